package main

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"muxpost.dev/muxpost/internal/measure"
)

// pair is one thing measured both ways.
type pair struct {
	name           string
	sessions       int
	ours, baseline []time.Duration
}

// report collects what was measured.
type report struct {
	w     io.Writer
	pairs []pair
	costs []cost
}

// cost is what a step left behind on the machine.
type cost struct {
	sessions                int
	tmuxd, wrappers, server usage
	idle                    float64 // of tmuxd, as a share of one core
}

func newReport(w io.Writer) *report { return &report{w: w} }

func (r *report) add(p pair) { r.pairs = append(r.pairs, p) }

func (r *report) print() {
	t := tabwriter.NewWriter(r.w, 0, 4, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "what\tsessions\tp50\tp99\tbaseline p50\tbaseline p99\ttimes faster\t")
	for _, p := range r.pairs {
		fmt.Fprintf(t, "%s\t%d\t%v\t%v\t%v\t%v\t%.1f\t\n", p.name, p.sessions, measure.Short(measure.Quantile(p.ours, .5)), measure.Short(measure.Quantile(p.ours, .99)),
			measure.Short(measure.Quantile(p.baseline, .5)), measure.Short(measure.Quantile(p.baseline, .99)), p.ratio())
	}
	_ = t.Flush()
	fmt.Fprintln(r.w)
	fmt.Fprintln(t, "sessions\ttmuxd idle CPU\ttmuxd RSS\tPSS\twrappers PSS\ttmux servers PSS\t")
	for _, c := range r.costs {
		fmt.Fprintf(t, "%d\t%.2f %%\t%s\t%s\t%s\t%s\t\n", c.sessions, c.idle*100, mib(c.tmuxd.rss), mib(c.tmuxd.pss), mib(c.wrappers.pss),
			mib(c.server.pss))
	}
	_ = t.Flush()
	fmt.Fprintln(r.w)
	for _, p := range r.pairs {
		fmt.Fprintf(r.w, "ratio %s sessions=%d p50_us=%.1f baseline_p50_us=%.1f ratio=%.2f\n", p.name, p.sessions, measure.Us(measure.Quantile(p.ours, .5)),
			measure.Us(measure.Quantile(p.baseline, .5)), p.ratio())
	}
}

func (p pair) ratio() float64 {
	ours := measure.Quantile(p.ours, .5)
	if ours == 0 {
		return 0
	}
	return float64(measure.Quantile(p.baseline, .5)) / float64(ours)
}

func mib(bytes int64) string { return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20)) }
