// Command bench measures the whole product, from a comment upstream to the agent that has taken it, as it ships: a real Postgres, tmuxd, dispatcher
// and poller, agents in tmux, and a server that speaks GitHub's API and sends webhooks. It prints where the time goes, and lines that a script can
// read, each beside a baseline in the same run: what running tmux takes to type the text blindly, one insert with its commit, and an empty gRPC call.
//
// It starts and ends everything that it measures and touches nothing else. What arrived, and when, it has from the agents' own transcripts.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
)

func main() {
	items := flag.Int("items", 10, "how many work items there are, each with an agent")
	rounds := flag.Int("rounds", 200, "how many comments are written one by one")
	together := flag.Int("together", 500, "how many comments are written at once")
	echo := flag.String("echo", "", "serve the empty call on this `socket`, for another process")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	var err error
	switch {
	case *echo != "":
		err = serveEcho(ctx, *echo)
	case *items < 1 || *rounds < 5 || *together < 1:
		err = fmt.Errorf("-items %d, -rounds %d, -together %d: at least 1, 5 and 1 are needed", *items, *rounds, *together)
	default:
		err = run(ctx, *items, *rounds, *together)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, items, rounds, together int) error {
	b := &bench{items: items}
	defer b.end()
	progress("starting the product with %d agents", items)
	if err := b.begin(ctx); err != nil {
		return err
	}
	progress("%d comments, one by one", rounds)
	alone, err := b.alone(ctx, rounds)
	if err != nil {
		return err
	}
	progress("%d comments at once", together)
	rate, crowd, err := b.together(ctx, together)
	if err != nil {
		return err
	}
	if err := b.stages(ctx, alone); err != nil {
		return err
	}
	return b.print(os.Stdout, alone, crowd, rate)
}

func progress(format string, args ...any) { fmt.Fprintf(os.Stderr, "bench: "+format+"\n", args...) }
