// Command bench measures a real tmuxd, over gRPC, beside the same work done by running tmux, as tools of this kind do: one shared server
// with as many sessions, a process for every command. Each measure of ours alternates with one of the baseline, so that both meet the
// same machine. It prints a table, what everything costs in processor time and memory, and a line for each ratio that a script can read.
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
	sessions := flag.String("sessions", "1,100,500,1000", "how many sessions the host has, step by step")
	rounds := flag.Int("rounds", 200, "how often each thing is measured at each step, at least")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, *sessions, *rounds)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, sessions string, rounds int) error {
	var steps []int
	for _, word := range strings.Split(sessions, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(word))
		if err != nil || n < 1 || len(steps) > 0 && n <= steps[len(steps)-1] {
			return fmt.Errorf("-sessions %q: write growing numbers, such as 1,100", sessions)
		}
		steps = append(steps, n)
	}
	if rounds < 5 {
		return fmt.Errorf("-rounds %d: at least 5 are needed for a median", rounds)
	}
	dir, err := os.MkdirTemp("", "muxbench") // a socket's address is short
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	ours, err := startHost(ctx, dir)
	if err != nil {
		return err
	}
	defer ours.end()
	theirs, err := startBaseline(ctx, dir)
	if err != nil {
		return err
	}
	defer theirs.end()
	report := newReport(os.Stdout)
	for _, n := range steps {
		progress("%d sessions", n)
		b := &bench{host: ours, baseline: theirs, rounds: rounds, sessions: n, report: report}
		if err := b.step(ctx); err != nil {
			return fmt.Errorf("at %d sessions: %w", n, err)
		}
	}
	report.print()
	return nil
}

func progress(format string, args ...any) { fmt.Fprintf(os.Stderr, "bench: "+format+"\n", args...) }
