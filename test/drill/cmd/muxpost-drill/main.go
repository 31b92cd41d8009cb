// Command muxpost-drill runs package drill on the programs that lie beside it. `muxpost drill` starts it.
//
// It knows only how to read a command line, where a drill runs and how it ends; everything else is the package's.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"muxpost.dev/muxpost/test/drill"
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// options are the command line.
type options struct {
	drill.Options
	during      time.Duration
	gap         int
	only, kinds string
	plan, keep  bool
	alone       bool
	shrink      int
}

func parse(args []string, stderr io.Writer) (o options, err error) {
	self, err := os.Executable()
	if err != nil {
		return o, err
	}
	flags := flag.NewFlagSet("muxpost drill", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Uint64Var(&o.Seed, "seed", 0, "`number` that decides what is told and what breaks (default: a random one, which is printed)")
	flags.DurationVar(&o.during, "time", time.Minute, "for how long events come in")
	flags.Float64Var(&o.Rate, "rate", 6, "events a second")
	flags.IntVar(&o.Items, "items", 9, "work items, each with an agent")
	flags.IntVar(&o.gap, "gap", 8, "events between two faults, on average; 0 breaks nothing")
	flags.DurationVar(&o.Settle, "settle", 5*time.Minute, "how long everything may take to arrive once nothing breaks any more")
	flags.DurationVar(&o.Interval, "interval", 2*time.Second, "how often GitHub is read")
	flags.StringVar(&o.Channel, "channel", "paste", "how deliveries reach the agents: paste or socket")
	flags.StringVar(&o.Bin, "bin", filepath.Dir(self), "`directory` of the programs")
	flags.StringVar(&o.Next, "next", "", "`directory` of the programs of another build, for the rolling upgrade (default: the same ones)")
	flags.BoolVar(&o.Clocks, "clocks", false, "the programs are built so that their clocks can be stepped")
	flags.StringVar(&o.only, "only", "", "break only what has these `numbers` in the plan, such as 3,17")
	flags.StringVar(&o.kinds, "kinds", "", "break only in these `ways`, such as cut,kill-agent")
	flags.BoolVar(&o.plan, "plan", false, "print what would break, and end")
	flags.BoolVar(&o.Keep, "keep", false, "leave the directory with everything in it")
	flags.BoolVar(&o.alone, "no-namespaces", false, "let hosts be directories, whatever could be done here")
	flags.IntVar(&o.shrink, "shrink", 0, "after a failure, run it again up to so many `times` to find the few faults that matter")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 || o.Rate <= 0 || o.Items < 1 || o.gap < 0 || o.during <= 0 {
		return o, fmt.Errorf("flags only, with numbers above nothing, not %q", flags.Args())
	}
	if o.Seed == 0 {
		o.Seed = uint64(rand.Uint32())
	}
	if o.Next == "" {
		o.Next = o.Bin
	}
	o.Steps = max(1, int(o.during.Seconds()*o.Rate))
	return o, o.choose()
}

// choose lays out what breaks.
func (o *options) choose() error {
	if o.gap == 0 {
		return nil
	}
	var indexes []int
	for word := range strings.SplitSeq(o.only, ",") {
		if word == "" {
			continue
		}
		i, err := strconv.Atoi(word)
		if err != nil {
			return fmt.Errorf("-only wants numbers, not %q", word)
		}
		indexes = append(indexes, i)
	}
	var kinds []drill.Kind
	for word := range strings.SplitSeq(o.kinds, ",") {
		if word != "" {
			if kinds = append(kinds, drill.Kind(word)); !slices.Contains(drill.Kinds(), drill.Kind(word)) {
				return fmt.Errorf("-kinds knows %v, and not %q", drill.Kinds(), word)
			}
		}
	}
	if o.Faults = drill.Plan(o.Seed, o.Steps, o.Items, o.gap, kinds...); len(indexes) > 0 {
		o.Faults = drill.Only(o.Faults, indexes)
	}
	return nil
}

// run is the program, but for its end.
func run(args []string, stdout, stderr io.Writer) int {
	o, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintln(stderr, "muxpost drill:", err)
		return 2
	}
	if o.plan {
		for _, f := range o.Faults {
			fmt.Fprintln(stdout, f)
		}
		return 0
	}
	if !o.alone && !drill.Isolated() {
		// Whoever runs inside draws no other seed.
		os.Args = append(os.Args, "-seed", strconv.FormatUint(o.Seed, 10))
		status, err := drill.Isolate()
		if !errors.Is(err, drill.ErrDenied) {
			if err != nil {
				fmt.Fprintln(stderr, "muxpost drill:", err)
				return 1
			}
			return status
		}
		fmt.Fprintf(stderr, "muxpost drill: %v: hosts are directories, lines are proxies, and no disk is full (as root they would be machines)\n", err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	o.Log = logger(stderr)
	v, err := once(ctx, o, stderr)
	if err == nil && !v.Clean() && o.shrink > 0 {
		err = shrink(ctx, o, v, stderr)
	}
	if err != nil {
		fmt.Fprintln(stderr, "muxpost drill: there is no verdict:", err)
		return 1
	}
	fmt.Fprintln(stdout, v)
	if !v.Clean() {
		return 1
	}
	return 0
}

// shrink looks for the few faults by which a drill fails as it did, by the worst of it, and says how to run it with them.
func shrink(ctx context.Context, o options, v drill.Verdict, stderr io.Writer) error {
	worst := v.Worst()
	left, err := drill.Shrink(o.Faults, o.shrink, func(faults []drill.Fault) (bool, error) {
		again := o
		again.Faults = faults
		got, err := once(ctx, again, stderr)
		fmt.Fprintf(stderr, "drill: with %d faults: %s\n", len(faults), got)
		return got.Counts()[worst] > 0, err
	})
	indexes := make([]string, len(left))
	for i, f := range left {
		indexes[i] = strconv.Itoa(f.Index)
		fmt.Fprintln(stderr, "drill: it takes", f)
	}
	fmt.Fprintf(stderr, "drill: again with: -seed %d -time %v -rate %v -items %d -gap %d -kinds '%s' -only %s\n", o.Seed, o.during, o.Rate, o.Items,
		o.gap, o.kinds, strings.Join(indexes, ","))
	return err
}

// once runs the drill in a directory of its own.
func once(ctx context.Context, o options, stderr io.Writer) (drill.Verdict, error) {
	dir, err := os.MkdirTemp("/tmp", "mux") // short: sockets lie below it
	if err != nil {
		return drill.Verdict{}, err
	}
	// The database may run as another user, and has to get through.
	if err := os.Chmod(dir, 0o755); err != nil {
		return drill.Verdict{}, err
	}
	o.Dir = dir
	fmt.Fprintf(stderr, "drill: seed %d, %d events to %d agents, %d faults; in %s\n", o.Seed, o.Steps, o.Items, len(o.Faults), dir)
	v, err := drill.Run(ctx, o.Options)
	for _, finding := range v.Findings {
		fmt.Fprintln(stderr, "drill:", finding)
	}
	if o.Keep {
		fmt.Fprintf(stderr, "drill: everything is left in %s\n", dir)
	} else {
		_ = os.RemoveAll(dir)
	}
	return v, err
}

func logger(w io.Writer) func(string, ...any) {
	var mu sync.Mutex
	began := time.Now()
	return func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(w, "%6.1fs %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
	}
}
