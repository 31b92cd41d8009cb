package e2e

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"

	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	"muxpost.dev/muxpost/test/stack"
)

// told are all events of the dispatcher, in order.
func (w *world) told() []*dispatcherv1.Event {
	w.t.Helper()
	res, err := w.Dispatcher.ListEvents(w.ctx, &dispatcherv1.ListEventsRequest{PageSize: 500})
	if err != nil {
		w.t.Fatal(err)
	}
	return res.GetEvents()
}

// dispatcherDies kills the dispatcher and starts it again.
func (w *world) dispatcherDies() {
	w.t.Helper()
	if err := syscall.Kill(w.pid("dispatcher"), syscall.SIGKILL); err != nil {
		w.t.Fatal(err)
	}
	if out, err := w.Run(w.ctx, "up"); err != nil {
		w.t.Fatalf("%v\n%s", err, out)
	}
}

// follower is muxpost events --follow, with what it wrote.
type follower struct {
	*exec.Cmd
	t       *testing.T
	lines   *bufio.Scanner
	warned  strings.Builder
	types   []string
	arrived int
}

func (w *world) follow(args ...string) *follower {
	w.t.Helper()
	f := &follower{Cmd: w.Command(w.ctx, append([]string{"events", "--follow", "--json"}, args...)...), t: w.t}
	f.Stderr = &f.warned
	out, err := f.StdoutPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	if err := f.Start(); err != nil {
		w.t.Fatal(err)
	}
	f.lines = bufio.NewScanner(out)
	return f
}

// until reads on until so many deliveries have arrived.
func (f *follower) until(count int) {
	f.t.Helper()
	for f.arrived < count && f.lines.Scan() {
		var e dispatcherv1.Event
		if err := protojson.Unmarshal(f.lines.Bytes(), &e); err != nil {
			f.t.Fatalf("%s: %v", f.lines.Text(), err)
		}
		f.types = append(f.types, fmt.Sprint(e.GetSequence(), e.GetType()))
		if e.GetType() == "dispatch.succeeded" {
			f.arrived++
		}
	}
	if f.arrived < count {
		f.t.Fatalf("it ended after %v: %v\n%s", f.types, f.lines.Err(), f.warned.String())
	}
}

func TestEvents_FollowGoesOnOverTheDeathOfTheDispatcher(t *testing.T) {
	t.Parallel()
	w := start(t, issue(), nil)
	w.delivered(0)
	followers := []*follower{w.follow("--after", "0"), w.follow(), w.follow(item, "--type", "dispatch.succeeded,poll.rearmed")}
	for n := range 3 {
		if n > 0 {
			w.dispatcherDies()
			w.comment(stack.Author, fmt.Sprintf("after death %d", n))
		}
		for _, f := range followers {
			f.until(n + 1)
		}
	}
	var stored, succeeded []string
	for _, e := range w.told() {
		stored = append(stored, fmt.Sprint(e.GetSequence(), e.GetType()))
		if e.GetType() == "dispatch.succeeded" {
			succeeded = append(succeeded, stored[len(stored)-1])
		}
	}
	for i, f := range followers {
		if err := f.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		if err := f.Wait(); err != nil {
			t.Errorf("interrupted: %v\n%s", err, f.warned.String())
		}
		if want := [][]string{stored, stored, succeeded}[i]; !slices.Equal(f.types, want) {
			t.Errorf("followed %v\nstored   %v", f.types, want)
		}
		if !strings.Contains(f.warned.String(), "the dispatcher answers again") {
			t.Errorf("nothing was said of the deaths: %s", f.warned.String())
		}
	}
}

// dying is a command of the example that kills who runs it before the first try of every second transition, and after the first that was applied
// of each. The example must not see a difference between that and any other death.
const dying = `#!/bin/sh
set -eu
if [ ! -e "$GRAPH.tried-$3" ]; then
	: >"$GRAPH.tried-$3"
	case $3 in *[02468]) kill -9 $PPID; exit ;; esac
fi
"$APPLY" "$@"
if [ ! -e "$GRAPH.applied-$3" ]; then
	: >"$GRAPH.applied-$3"
	kill -9 $PPID
fi
`

// TestEvents_TheExampleAppliesEachTransitionOnce kills the example around every transition, and the dispatcher in between.
func TestEvents_TheExampleAppliesEachTransitionOnce(t *testing.T) {
	t.Parallel()
	w := start(t, issue(), nil)
	example := filepath.Join("..", "..", "docs", "examples", "processgraph")
	program := filepath.Join(w.Dir, "processgraph")
	if out, err := exec.CommandContext(w.ctx, "go", "build", "-o", program, "./"+example).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	apply, err := filepath.Abs(filepath.Join(example, "apply.sh"))
	if err != nil {
		t.Fatal(err)
	}
	graph, command := filepath.Join(w.Dir, "graph"), filepath.Join(w.Dir, "dying.sh")
	if err := os.WriteFile(command, []byte(dying), 0o755); err != nil {
		t.Fatal(err)
	}
	w.delivered(0)
	w.comment(stack.Author, "first")
	w.delivered(1)
	if _, err := w.Dispatcher.StopSession(w.ctx, &dispatcherv1.StopSessionRequest{WorkItem: item}); err != nil {
		t.Fatal(err)
	}

	deaths, last := 0, ""
	// run runs the example, again after each death, until the graph has the last transition.
	run := func(sequence int64) {
		t.Helper()
		last = fmt.Sprint(sequence, " ")
		for {
			cmd := exec.CommandContext(w.ctx, program, "-dispatcher", w.Address("dispatcher"), "-state", graph+".sequence", command)
			cmd.Env = append(os.Environ(), "GRAPH="+graph, "APPLY="+apply)
			out, err := cmd.CombinedOutput()
			if err == nil || len(out) > 0 || w.ctx.Err() != nil {
				t.Fatalf("it ended by itself, or said something: %v %s", err, out)
			}
			deaths++
			data, _ := os.ReadFile(graph)
			if strings.Contains("\n"+string(data), "\n"+last) {
				return
			}
		}
	}
	events := w.told()
	run(events[len(events)-1].GetSequence())
	w.dispatcherDies()
	w.comment(stack.Author, "second")
	w.delivered(2)
	events = w.told()
	run(events[len(events)-1].GetSequence())

	happens := map[string]string{"dispatch.queued": "start", "dispatch.succeeded": "finish", "session.spawned": "start",
		"session.respawned": "start", "session.stopped": "finish"}
	var want []string
	for _, e := range w.told() {
		node := "delivery/" + e.GetDeliveryId()
		if strings.HasPrefix(e.GetType(), "session.") {
			node = "session/" + e.GetFields()["target"]
		}
		if what := happens[e.GetType()]; what != "" {
			want = append(want, fmt.Sprint(e.GetSequence(), " ", node, " ", what))
		}
	}
	data, err := os.ReadFile(graph)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Split(strings.TrimSpace(string(data)), "\n"); !slices.Equal(got, want) || len(want) < 9 {
		t.Errorf("the graph has\n%s\nand these are the events:\n%s", data, strings.Join(want, "\n"))
	}
	if deaths < len(want) {
		t.Errorf("it died %d times over %d transitions", deaths, len(want))
	}
}
