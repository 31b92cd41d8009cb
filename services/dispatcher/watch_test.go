package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/db"
	"muxpost.dev/muxpost/internal/rpc"
	"muxpost.dev/muxpost/internal/rpc/rpctest"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	"muxpost.dev/muxpost/services/dispatcher/internal/store"
)

// database opens the service's database beside it.
func (s *service) database(t *testing.T) *pgxpool.Pool {
	t.Helper()
	pool, err := db.Open(t.Context(), db.Config{URL: s.url, MaxConns: 16})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// reader is a program that follows the events and keeps how far it has come.
type reader struct {
	client dispatcherv1.DispatcherServiceClient
	after  int64
	seen   map[string]int
}

// read reads until it has had all events, or so many; 0 is any number.
func (r *reader) read(ctx context.Context, most int) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := r.client.WatchEvents(ctx, &dispatcherv1.WatchEventsRequest{AfterSequence: r.after})
	if err != nil {
		return err
	}
	for n := 1; most == 0 || n <= most; n++ {
		step, err := stream.Recv()
		if err != nil {
			return err
		}
		switch s := step.GetStep().(type) {
		case *dispatcherv1.WatchEventsResponse_Event:
			if s.Event.GetSequence() <= r.after {
				return fmt.Errorf("%d came after %d", s.Event.GetSequence(), r.after)
			}
			r.after = s.Event.GetSequence()
			r.seen[s.Event.GetDeliveryId()]++
		case *dispatcherv1.WatchEventsResponse_CaughtUp:
			r.after = s.CaughtUp.GetSequence()
			return nil
		case *dispatcherv1.WatchEventsResponse_Missed:
			return fmt.Errorf("missed %v", s)
		}
	}
	return nil
}

// TestWatchEvents_AReaderMissesNoLateCommit has many connections write events in transactions that commit in any order, some of them with a
// transaction id from long before, while readers follow and begin anew again and again at the number that they had come to.
func TestWatchEvents_AReaderMissesNoLateCommit(t *testing.T) {
	s := startService(t)
	pool := s.database(t)
	const writers, each, readers = 12, 25, 3
	var writing, reading sync.WaitGroup
	written := make(chan struct{})
	for w := range writers {
		writing.Go(func() {
			for i := range each {
				if err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
					if w%2 == 0 {
						if _, err := tx.Exec(t.Context(), "select pg_current_xact_id()"); err != nil {
							return err
						}
					}
					_, err := tx.Exec(t.Context(), `insert into dispatcher.events (type, delivery_id) values ('dispatch.queued', $1)`, fmt.Sprintf("%d-%d", w, i))
					if err == nil && i%5 == 0 {
						_, err = tx.Exec(t.Context(), "select pg_sleep(0.002)") // others want to commit meanwhile
					}
					return err
				}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	go func() { writing.Wait(); close(written) }()
	for n := range readers {
		reading.Go(func() {
			r := &reader{client: s.client, seen: map[string]int{}}
			for ended := false; !ended; {
				select {
				case <-written:
					ended = true
				default:
				}
				most := 5 + 4*n
				if ended {
					most = 0
				}
				if err := r.read(t.Context(), most); err != nil {
					t.Error(err)
					return
				}
			}
			for id, times := range r.seen {
				if times != 1 {
					t.Errorf("%s came %d times", id, times)
				}
			}
			if len(r.seen) != writers*each {
				t.Errorf("the reader saw %d of %d events", len(r.seen), writers*each)
			}
		})
	}
	reading.Wait()
}

// TestWatchEvents_WithoutAnnouncementsALookFindsThem is the stream behind a transaction pooler: nothing is ever heard.
func TestWatchEvents_WithoutAnnouncementsALookFindsThem(t *testing.T) {
	s := startService(t)
	pool := s.database(t)
	if _, err := pool.Exec(t.Context(), "drop trigger announce_events on dispatcher.events"); err != nil {
		t.Fatal(err)
	}
	r := &reader{client: s.client, seen: map[string]int{}}
	if err := r.read(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	stream, err := s.client.WatchEvents(t.Context(), &dispatcherv1.WatchEventsRequest{Types: []string{"session.stopped"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil { // it has caught up
		t.Fatal(err)
	}
	if _, err := pool.Exec(t.Context(), `insert into dispatcher.events (type) values ('dispatch.queued'), ('session.stopped')`); err != nil {
		t.Fatal(err)
	}
	step, err := stream.Recv()
	if err != nil || step.GetEvent().GetType() != "session.stopped" {
		t.Fatalf("%v, %v", step, err)
	}
}

// TestWatchEvents_OneThatDoesNotReadHoldsNobodyUp holds up neither writers nor other readers, nor the end of the service.
func TestWatchEvents_OneThatDoesNotReadHoldsNobodyUp(t *testing.T) {
	s := startService(t)
	pool := s.database(t)
	lazy := dispatcherv1.NewDispatcherServiceClient(rpctest.Dial(t, s.addr, rpc.DialOptions{}))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range 20 {
		if _, err := lazy.WatchEvents(ctx, &dispatcherv1.WatchEventsRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	// Far more than what fits on the way to a reader.
	if _, err := pool.Exec(t.Context(), `insert into dispatcher.events (type, delivery_id, fields)
		select 'dispatch.failed', n::text, jsonb_build_object('detail', repeat('x', 2000)) from generate_series(1, 5000) n`); err != nil {
		t.Fatal(err)
	}
	r := &reader{client: s.client, seen: map[string]int{}}
	if err := r.read(t.Context(), 0); err != nil || len(r.seen) != 5000 {
		t.Errorf("a reader beside it saw %d events, %v", len(r.seen), err)
	}
	s.stop()
	if strings.Contains(s.log.String(), "cut off by the stop") {
		t.Errorf("the service waited for one that does not read:\n%s", s.log)
	}
}

func TestWatchEvents_EndsAsUnavailableWithTheService(t *testing.T) {
	s := startService(t)
	stream, err := s.client.WatchEvents(t.Context(), &dispatcherv1.WatchEventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if step, err := stream.Recv(); err != nil || step.GetCaughtUp() == nil {
		t.Fatalf("%v, %v", step, err)
	}
	s.stop()
	if _, err := stream.Recv(); !errors.Is(err, fault.Unavailable) {
		t.Errorf("%v", err)
	}
}

func TestWatchEvents_SaysWhatIsGoneAndRefusesANumberFromElsewhere(t *testing.T) {
	s := startService(t)
	pool := s.database(t)
	if _, err := pool.Exec(t.Context(), `insert into dispatcher.events (type, time) select 'session.spawned', now() - n * interval '1 day'
		from generate_series(6, 1, -1) n`); err != nil {
		t.Fatal(err)
	}
	if n, err := store.New(pool).ForgetEvents(t.Context(), 84*time.Hour); err != nil || n != 3 {
		t.Fatalf("%d, %v", n, err)
	}
	steps := func(after int64) (out []string) {
		t.Helper()
		stream, err := s.client.WatchEvents(t.Context(), &dispatcherv1.WatchEventsRequest{AfterSequence: after})
		if err != nil {
			t.Fatal(err)
		}
		for {
			step, err := stream.Recv()
			switch {
			case err != nil:
				return append(out, err.Error())
			case step.GetCaughtUp() != nil:
				return append(out, fmt.Sprint("end ", step.GetCaughtUp().GetSequence()))
			case step.GetMissed() != nil:
				out = append(out, fmt.Sprint("missed ", step.GetMissed().GetForgottenSequence()))
			default:
				out = append(out, fmt.Sprint(step.GetEvent().GetSequence()))
			}
		}
	}
	for after, want := range map[int64]string{0: "missed 3 4 5 6 end 6", 2: "missed 3 4 5 6 end 6", 3: "4 5 6 end 6", 6: "end 6"} {
		if got := strings.Join(steps(after), " "); got != want {
			t.Errorf("after %d: %s, want %s", after, got, want)
		}
	}
	if got := strings.Join(steps(7), " "); !strings.Contains(got, "after_sequence is 7, and the last event has 6") || !strings.Contains(got, "restored") {
		t.Errorf("after what was never given: %s", got)
	}
}
