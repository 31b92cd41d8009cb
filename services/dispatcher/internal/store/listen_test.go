package store

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"muxpost.dev/muxpost/services/dispatcher/internal/deliver"
)

// TestListen_HearsAnAnnouncementAndLooksByItself tells the two apart: an announcement without an event, and an event without one.
func TestListen_HearsAnAnnouncementAndLooksByItself(t *testing.T) {
	s, pool := newStore(t)
	exec := func(sql string) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	more, ended := make(chan struct{}, 100), make(chan error, 1)
	go func() {
		ended <- s.Listen(ctx, func() { more <- struct{}{} }, slog.New(slog.DiscardHandler))
	}()
	hears := func(what string) {
		t.Helper()
		select {
		case <-more:
		case <-ctx.Done():
			t.Fatalf("%s was not heard", what)
		}
	}
	hears("that it listens")
	exec("select pg_notify('" + channel + "', '')")
	hears("an announcement")
	exec("drop trigger announce_events on dispatcher.events; insert into dispatcher.events (type) values ('dispatch.queued')")
	hears("an event")
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestEvents_AreAnnouncedAtTheirCommitAndNothingElseIs(t *testing.T) {
	s, pool := newStore(t)
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if _, err := conn.Exec(t.Context(), "listen "+channel); err != nil {
		t.Fatal(err)
	}
	begin(t, s, "delivery-1")
	begin(t, s, "delivery-1") // told of once
	last := page(t, s, deliver.EventQuery{}).Last
	if _, err := pool.Exec(t.Context(), "select pg_notify($1, 'the end')", channel); err != nil {
		t.Fatal(err)
	}
	for n := 0; ; n++ {
		heard, err := conn.Conn().WaitForNotification(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if heard.Payload == "the end" {
			if n != 1 || last == 0 {
				t.Errorf("%d announcements of one event", n)
			}
			return
		}
	}
}
