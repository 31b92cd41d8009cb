package main

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"muxpost.dev/muxpost/internal/measure"
)

func (b *bench) print(w io.Writer, alone *figures, crowd []*event, rate float64) error {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "what\tp50\tp99\tp99.9\t")
	row := func(what string, d []time.Duration) {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t\n", what, measure.Short(measure.Quantile(d, .5)), measure.Short(measure.Quantile(d, .99)), measure.Short(measure.Quantile(d, .999)))
	}
	for _, stage := range []string{toLedger, toAsk, toPaste, toTaken, toSettled} {
		row(stage, alone.stages[stage])
	}
	one, many := ways(alone.events), ways(crowd)
	row("comment written → taken, one at a time", one)
	row(fmt.Sprintf("comment written → taken, %d at once", len(crowd)), many)
	row("a blind paste by running tmux, and a commit", alone.sum)
	row("an insert and its commit", alone.commits)
	row("GetDelivery", alone.asks)
	row("an empty gRPC call", alone.calls)
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "\n%d comments at once for %d agents: %.1f taken in a second\n\n", len(crowd), b.items, rate)
	ratio := func(name string, ours, bare []time.Duration) {
		fmt.Fprintf(w, "ratio %s items=%d p50_us=%.1f p99_us=%.1f p999_us=%.1f baseline_p50_us=%.1f ratio=%.3f\n", name, b.items, measure.Us(measure.Quantile(ours, .5)),
			measure.Us(measure.Quantile(ours, .99)), measure.Us(measure.Quantile(ours, .999)), measure.Us(measure.Quantile(bare, .5)),
			measure.Share(measure.Quantile(bare, .5), measure.Quantile(ours, .5)))
	}
	ratio("event", one, alone.sum)
	ratio("event_together", many, alone.sum)
	ratio("get_delivery", alone.asks, alone.calls)
	_, err := fmt.Fprintf(w, "ratio events_taken items=%d per_s=%.1f baseline_per_s=%.1f ratio=%.3f\n", b.items, rate,
		1/measure.Quantile(alone.sum, .5).Seconds(), rate*measure.Quantile(alone.sum, .5).Seconds())
	return err
}

// ways returns how long each event was under way.
func ways(events []*event) (out []time.Duration) {
	for _, e := range events {
		out = append(out, e.taken.Sub(e.written))
	}
	return out
}
