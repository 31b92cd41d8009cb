// Command processgraph drives the nodes of an external process graph from the dispatcher's events: each delivery is a node that starts when it
// is first asked for and finishes or fails with its outcome, and each session one that starts with its agent. For a transition it runs a
// command that knows the graph, and it keeps on disk how far it has come.
//
//	processgraph -dispatcher unix:/var/lib/muxpost/run/dispatcher.sock -state graph.sequence ./apply.sh
//
// It may be killed at any time. The command is run at least once for each transition, in order, with the event's sequence number by which it
// knows one that it has applied already; so each is applied once. It knows nothing of the graph.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
)

const (
	// silence is how long nothing may come from the stream, which says at least every 15 seconds that it has nothing to say.
	silence = 45 * time.Second
	// pause is the time before a stream that broke is opened again.
	pause = time.Second
)

// transition is what happens to which node.
type transition struct {
	node func(*dispatcherv1.Event) string
	what string
}

// transitions says what each event does to the graph. Of others nothing follows, and they are not asked for.
func transitions() map[string]transition {
	delivery := func(e *dispatcherv1.Event) string { return "delivery/" + e.GetDeliveryId() }
	session := func(e *dispatcherv1.Event) string { return "session/" + e.GetFields()["target"] }
	return map[string]transition{
		"dispatch.queued":      {delivery, "start"},
		"dispatch.succeeded":   {delivery, "finish"},
		"dispatch.dropped":     {delivery, "fail"},
		"dispatch.reopened":    {delivery, "start"},
		"session.spawned":      {session, "start"},
		"session.respawned":    {session, "start"},
		"session.registered":   {session, "start"},
		"session.spawn_failed": {session, "fail"},
		"session.stopped":      {session, "finish"},
		"session.closed":       {session, "finish"},
		"session.parked":       {session, "fail"},
	}
}

func main() {
	log.SetFlags(0)
	dispatcher := flag.String("dispatcher", "unix:/var/lib/muxpost/run/dispatcher.sock", "address of the dispatcher")
	state := flag.String("state", "graph.sequence", "file that keeps the number of the last event that was applied")
	flag.Parse()
	if flag.NArg() == 0 {
		log.Fatal("name the command that applies a transition: it is run with NODE, start, finish or fail, and SEQUENCE")
	}
	if err := run(*dispatcher, *state, flag.Args()); err != nil {
		log.Fatal(err)
	}
}

// run follows the events until it is told to stop, or until it cannot go on.
func run(dispatcher, state string, command []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	conn, err := grpc.NewClient(dispatcher, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // Nothing is under way any more.
	d := &driver{client: dispatcherv1.NewDispatcherServiceClient(conn), state: state, command: command}
	if d.after, err = load(state); err != nil {
		return err
	}
	for {
		err := d.follow(ctx)
		switch code := status.Code(err); {
		case ctx.Err() != nil:
			return nil
		case code != codes.Unavailable && code != codes.Canceled:
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// driver applies the events after a sequence number.
type driver struct {
	client  dispatcherv1.DispatcherServiceClient
	state   string
	command []string
	after   int64
}

// follow applies what the stream brings, until it breaks.
func (d *driver) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	quiet := time.AfterFunc(silence, cancel)
	defer quiet.Stop()
	known := transitions()
	stream, err := d.client.WatchEvents(ctx, &dispatcherv1.WatchEventsRequest{
		AfterSequence: d.after, Types: slices.Sorted(maps.Keys(known)),
	}, grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	for {
		step, err := stream.Recv()
		if err != nil {
			return err
		}
		quiet.Stop() // applying takes as long as it takes
		switch s := step.GetStep().(type) {
		case *dispatcherv1.WatchEventsResponse_Event:
			t := known[s.Event.GetType()]
			if err := d.apply(ctx, t.node(s.Event), t.what, s.Event.GetSequence()); err != nil {
				return err
			}
			err = d.save(s.Event.GetSequence())
		case *dispatcherv1.WatchEventsResponse_CaughtUp:
			err = d.save(s.CaughtUp.GetSequence())
		case *dispatcherv1.WatchEventsResponse_Missed:
			if d.after > 0 {
				return fmt.Errorf("events after %d were deleted before they were read: bring the graph up to date from ListDeliveries and "+
					"ListSessions, and then remove %s", d.after, d.state)
			}
		}
		if err != nil {
			return err
		}
		quiet.Reset(silence)
	}
}

// apply runs the command for one transition. One that fails ends the program: whoever starts it again begins with the same transition.
func (d *driver) apply(ctx context.Context, node, what string, sequence int64) error {
	args := append(slices.Clone(d.command[1:]), node, what, strconv.FormatInt(sequence, 10))
	cmd := exec.CommandContext(ctx, d.command[0], args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s could not be told that %s has to %s (event %d): %w", d.command[0], node, what, sequence, err)
	}
	return nil
}

// save keeps a sequence number, whole or not at all.
func (d *driver) save(sequence int64) error {
	if sequence == d.after {
		return nil
	}
	file, err := os.Create(d.state + ".new")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(file, sequence)
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	if err := os.Rename(file.Name(), d.state); err != nil {
		return err
	}
	d.after = sequence
	return nil
}

// load returns the number that was kept; zero, which is the beginning, when there is none.
func load(state string) (int64, error) {
	data, err := os.ReadFile(state)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(string(bytes.TrimSpace(data)), 10, 64)
}
