// Command bench measures a real poller, a process of its own on a real Postgres, from the row of an event in the ledger to the question to the
// dispatcher, which is a server in this process that delivers everything at once. Each measure of ours alternates with the bare things of which
// it is made: an insert with its commit, and the way of an announcement from an insert to who listens. It prints a table, and a line for each
// ratio that a script can read.
//
// It starts and ends everything that it measures and touches nothing else.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
)

func main() {
	waiting := flag.String("waiting", "1,10000", "how many items have an event that waits and is not due, step by step")
	rounds := flag.Int("rounds", 300, "how often each thing is measured at each step")
	events := flag.Int("events", 2000, "how many events come at once where their rate is measured")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, *waiting, *rounds, *events)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, waiting string, rounds, events int) error {
	var steps []int
	for _, word := range strings.Split(waiting, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(word))
		if err != nil || n < 1 || len(steps) > 0 && n <= steps[len(steps)-1] {
			return fmt.Errorf("-waiting %q: write growing numbers, such as 1,10000", waiting)
		}
		steps = append(steps, n)
	}
	if rounds < 5 || events < 1 {
		return fmt.Errorf("-rounds %d, -events %d: at least 5 are needed for a median, and 1", rounds, events)
	}
	s, err := begin(ctx)
	if err != nil {
		return err
	}
	defer s.end()
	report := report{w: os.Stdout}
	// A list that ends on a full page takes one request more, as those of a hundred and a thousand would.
	for _, n := range []int{99, 999} {
		progress("looks at %d items", n)
		c, err := s.looks(ctx, n)
		if err != nil {
			return fmt.Errorf("while %d items are looked at: %w", n, err)
		}
		report.costs = append(report.costs, c)
	}
	for _, n := range steps {
		progress("%d items wait", n)
		b := &bench{stage: s, rounds: rounds, events: events, waiting: n, report: &report}
		if err := b.step(ctx); err != nil {
			return fmt.Errorf("with %d items that wait: %w", n, err)
		}
	}
	report.print()
	return nil
}

func progress(format string, args ...any) { fmt.Fprintf(os.Stderr, "bench: "+format+"\n", args...) }
