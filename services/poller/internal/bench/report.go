package main

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"muxpost.dev/muxpost/internal/measure"
)

// latency is the way of single events, and of what it is compared with.
type latency struct {
	waiting                      int
	ours, commits, announcements []time.Duration
}

// rate is how many events went through the ledger in a second, and how many bare commits were made in one just before.
type rate struct {
	what, name string
	waiting    int
	ours, bare float64
}

// report collects what was measured.
type report struct {
	w         io.Writer
	latencies []latency
	rates     []rate
	costs     []cost
}

func (r *report) print() {
	t := tabwriter.NewWriter(r.w, 0, 4, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "items that wait\tfrom row to Deliver p50\tp99\tinsert and commit p50\tp99\tinsert to listener p50\tp99\t")
	for _, l := range r.latencies {
		fmt.Fprintf(t, "%d\t", l.waiting)
		for _, d := range [][]time.Duration{l.ours, l.commits, l.announcements} {
			fmt.Fprintf(t, "%.2f ms\t%.2f ms\t", measure.Ms(measure.Quantile(d, .5)), measure.Ms(measure.Quantile(d, .99)))
		}
		fmt.Fprintln(t)
	}
	_ = t.Flush()
	fmt.Fprintln(r.w)
	fmt.Fprintln(t, "what\titems that wait\tevents in a second\tbare commits in a second\t")
	for _, e := range r.rates {
		fmt.Fprintf(t, "%s\t%d\t%.0f\t%.0f\t\n", e.what, e.waiting, e.ours, e.bare)
	}
	_ = t.Flush()
	fmt.Fprintln(r.w)
	fmt.Fprintln(t, "items that are looked at\trequests for each\tof the rate limit\tCPU\tCPU of a bare request\t")
	for _, c := range r.costs {
		fmt.Fprintf(t, "%d\t%.3f\t%.3f\t%.1f µs\t%.1f µs\t\n", c.items, c.requests, c.charged, measure.Us(c.cpu), measure.Us(c.bare))
	}
	_ = t.Flush()
	fmt.Fprintln(r.w)
	for _, c := range r.costs {
		fmt.Fprintf(r.w, "ratio look_unchanged items=%d cpu_us=%.1f baseline_cpu_us=%.1f ratio=%.2f\n", c.items, measure.Us(c.cpu), measure.Us(c.bare), measure.Share(c.cpu, c.bare))
	}
	for _, l := range r.latencies {
		for _, with := range []struct {
			name string
			d    []time.Duration
		}{{"row_to_deliver_commit", l.commits}, {"row_to_deliver_notify", l.announcements}} {
			fmt.Fprintf(r.w, "ratio %s waiting=%d p50_ms=%.2f p99_ms=%.2f baseline_p50_ms=%.2f baseline_p99_ms=%.2f ratio=%.2f ratio_p99=%.2f\n", with.name, l.waiting,
				measure.Ms(measure.Quantile(l.ours, .5)), measure.Ms(measure.Quantile(l.ours, .99)), measure.Ms(measure.Quantile(with.d, .5)), measure.Ms(measure.Quantile(with.d, .99)),
				measure.Share(measure.Quantile(l.ours, .5), measure.Quantile(with.d, .5)), measure.Share(measure.Quantile(l.ours, .99), measure.Quantile(with.d, .99)))
		}
	}
	for _, e := range r.rates {
		fmt.Fprintf(r.w, "ratio %s waiting=%d per_s=%.0f baseline_per_s=%.0f ratio=%.3f\n", e.name, e.waiting, e.ours, e.bare, e.ours/e.bare)
	}
}
