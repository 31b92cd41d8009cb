package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/ledger"
	"muxpost.dev/muxpost/core/workitem"
	"muxpost.dev/muxpost/db/dbtest"
	"muxpost.dev/muxpost/db/migrations"
	"muxpost.dev/muxpost/services/poller/internal/poll"
)

func TestRecord_TheSameEventIsOneRowWhicheverWayItCame(t *testing.T) {
	w := newWorld(t)
	item := ref(t, 1)
	w.add(t, item)
	r := record(item, event(item, "a", epoch, 1))
	r.FirstSight = false
	var wait sync.WaitGroup
	results := make([]poll.Recorded, 8)
	for i := range results {
		wait.Go(func() {
			var err error
			if results[i], err = w.Record(t.Context(), r); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	sum := 0
	for _, r := range results {
		sum += r.Pending
	}
	rows, err := w.List(t.Context(), poll.Filter{Limit: 10})
	must(t, err)
	equal(t, "new, rows", []int{sum, len(rows)}, []int{1, 1})
}

func TestRecord_IsAllOrNothing(t *testing.T) {
	w := newWorld(t)
	item := ref(t, 1)
	bad := event(item, "b", epoch, 2)
	bad.Kind = "no such kind"
	_, err := w.Record(t.Context(), record(item, event(item, "a", epoch, 1), bad))
	if !errors.Is(err, fault.Internal) {
		t.Errorf("got %v", err)
	}
	known, err := w.Known(t.Context(), poll.PlaceOf(item), nil)
	must(t, err)
	rows, err := w.List(t.Context(), poll.Filter{Limit: 10})
	must(t, err)
	equal(t, "items, rows", []int{len(known), len(rows)}, []int{0, 0})
}

func TestRecord_AnItemThatWasBaselinedMeanwhileIsLeftAlone(t *testing.T) {
	w := newWorld(t)
	item := ref(t, 1)
	_, err := w.Record(t.Context(), record(item, event(item, "a", epoch, 1)))
	must(t, err)
	got, err := w.Record(t.Context(), record(item, event(item, "b", epoch, 2)))
	must(t, err)
	equal(t, "recorded", got, poll.Recorded{})
}

func TestRecord_AnotherItemOfTheSameNameIsRefusedInWords(t *testing.T) {
	w := newWorld(t)
	item := ref(t, 1)
	w.add(t, item)
	r := record(item)
	r.Item.NodeID = "I_other"
	if _, err := w.Record(t.Context(), r); !errors.Is(err, fault.Conflict) || !strings.Contains(err.Error(), "made anew") {
		t.Errorf("got %v", err)
	}
}

func TestRecord_ARenamedItemKeepsItsName(t *testing.T) {
	w := newWorld(t)
	item := ref(t, 1)
	w.add(t, item)
	r := record(item, event(item, "a", epoch, 1))
	renamed, err := workitem.Parse("github:octo/gadget#1")
	must(t, err)
	r.Item.Ref, r.Place, r.FirstSight = renamed, poll.PlaceOf(renamed), false
	_, err = w.Record(t.Context(), r)
	must(t, err)
	known, err := w.Known(t.Context(), poll.PlaceOf(renamed), nil)
	must(t, err)
	equal(t, "known there", []any{len(known), known[0].WorkItem}, []any{1, item.String()})
	byHand := event(renamed, "key", time.Time{}, 0)
	if _, _, err := w.Submit(t.Context(), byHand, false); !errors.Is(err, fault.Conflict) || !strings.Contains(err.Error(), item.String()) {
		t.Errorf("a message to its new name: %v", err)
	}
	byHand.WorkItem = item.String()
	_, _, err = w.Submit(t.Context(), byHand, false)
	must(t, err)
}

func TestRecord_EachEventHasATraceOfItsOwnThatBeginsWithTheLook(t *testing.T) {
	w := newWorld(t)
	item := ref(t, 1)
	baselined := event(item, "old", epoch, 1)
	baselined.State, baselined.Reason, baselined.Text = ledger.Settled, ledger.ReasonBaselined, ""
	ctx, look := w.tracer.Start(t.Context(), "poll.Source")
	r := record(item, event(item, "a", epoch, 2), event(item, "b", epoch, 3), baselined)
	_, err := w.Record(ctx, r)
	must(t, err)
	_, err = w.Record(ctx, r) // nothing new: no trace
	must(t, err)
	look.End()
	ids := map[string]bool{}
	for _, span := range w.spans.Ended() {
		if span.Name() != "poll.Event" {
			continue
		}
		ids[span.SpanContext().TraceID().String()] = true
		if !span.StartTime().Equal(epoch) || span.Parent().IsValid() || len(span.Links()) != 1 ||
			span.Links()[0].SpanContext.TraceID() != look.SpanContext().TraceID() {
			t.Errorf("the trace begins at %v, parent %v, links %v", span.StartTime(), span.Parent(), span.Links())
		}
		for _, attr := range span.Attributes() {
			if strings.Contains(attr.Value.AsString(), "text of") {
				t.Errorf("%s holds the event's text", attr.Key)
			}
		}
	}
	rows, err := w.List(t.Context(), poll.Filter{Limit: 10})
	must(t, err)
	for _, row := range rows {
		if want := row.State == ledger.Pending; ids[row.TraceID] != want {
			t.Errorf("%s: trace %q", row.State, row.TraceID)
		}
	}
	equal(t, "traces", len(ids), 2)
	if c := w.one(t); !strings.Contains(c.Traceparent, "-") || !ids[strings.Split(c.Traceparent, "-")[1]] {
		t.Errorf("the claim's trace is %q", c.Traceparent)
	}
}

func TestRecord_KeepsTextThatPostgresDoesNotTake(t *testing.T) {
	w := newWorld(t)
	item := ref(t, 1)
	e := event(item, "a", epoch, 1)
	e.Text, e.Title, e.Author = "a\x00b", "t\x00", "x\xff"
	w.add(t, item, e)
	equal(t, "text", w.one(t).Text, "ab")
}

func TestSubmit_TheSameKeyIsOneRowAndAnotherMessageUnderItIsRefused(t *testing.T) {
	w := newWorld(t)
	item := ref(t, 1)
	message := event(item, "key", time.Time{}, 0)
	message.Kind, message.Source, message.NodeID = poll.KindMessage, ledger.SourceManual, ""
	dry, existed, err := w.Submit(t.Context(), message, true)
	must(t, err)
	equal(t, "dry run", []any{dry.DeliveryID, dry.State, existed}, []any{message.DeliveryID, ledger.Pending, false})
	equal(t, "after a dry run", w.claims(t, 10), []string(nil))
	first, existed, err := w.Submit(t.Context(), message, false)
	must(t, err)
	equal(t, "first", existed, false)
	second, existed, err := w.Submit(t.Context(), message, false)
	must(t, err)
	equal(t, "second", []any{existed, second.ID}, []any{true, first.ID})
	other := message
	other.Text = "another"
	if _, _, err := w.Submit(t.Context(), other, false); fault.ReasonOf(err) != fault.ReasonDeliveryMismatch {
		t.Errorf("another text under the key: %v", err)
	}
	equal(t, "upstream time", first.UpstreamAt.IsZero(), true)
	// Seen upstream later, the item gets its id, and its opening event goes first.
	w.add(t, item, event(item, "opened", epoch, 0))
	equal(t, "claimed", w.claims(t, 10), []string{"opened"})
}

func TestLook_OneAtATimeForASource(t *testing.T) {
	w := newWorld(t)
	begin := func() error {
		_, err := w.BeginLook(t.Context(), "gh", "me", time.Minute, 0)
		return err
	}
	must(t, begin())
	if err := begin(); fault.ReasonOf(err) != fault.ReasonLeaseHeld {
		t.Errorf("a second look at once: %v", err)
	}
	if _, err := w.BeginLook(t.Context(), "other", "me", time.Minute, 0); err != nil {
		t.Errorf("another source: %v", err)
	}
	must(t, w.EndLook(t.Context(), "gh", "me", poll.LookEnd{Repositories: []poll.RepositoryEnd{{Name: "Octo/Widget"}}}))
	must(t, begin())
	w.sql(t, `update poller.sources set lease_until = now() - interval '1 second'`)
	must(t, begin()) // the other one died
}

func TestLook_ALimitCountsForEveryReplicaAndSurvivesARestart(t *testing.T) {
	w := newWorld(t)
	_, err := w.BeginLook(t.Context(), "gh", "me", time.Minute, 0)
	must(t, err)
	must(t, w.EndLook(t.Context(), "gh", "me", poll.LookEnd{Problem: "limited", Wait: time.Hour, Throttles: 2}))
	_, err = w.BeginLook(t.Context(), "gh", "somebody else", time.Minute, 0)
	var f *fault.Error
	if !errors.As(err, &f) || f.Kind != fault.Throttled || f.RetryAfter < 59*time.Minute {
		t.Errorf("got %v", err)
	}
	w.sql(t, `update poller.sources set not_before = now()`)
	look, err := w.BeginLook(t.Context(), "gh", "me", time.Minute, 0)
	must(t, err)
	equal(t, "limits in a row", look.Throttles, 2)
}

func TestSourceStates_AreWhatTheLooksLeft(t *testing.T) {
	w := newWorld(t)
	get := func() poll.SourceState {
		states, err := w.SourceStates(t.Context(), []string{"gh", "never"})
		must(t, err)
		equal(t, "one that nobody looked at", states["never"], poll.SourceState{})
		return states["gh"]
	}
	look := func(end poll.LookEnd) {
		_, err := w.BeginLook(t.Context(), "gh", "me", time.Minute, 0)
		must(t, err)
		must(t, w.EndLook(t.Context(), "gh", "me", end))
	}
	look(poll.LookEnd{})
	first := get()
	equal(t, "after a success", []any{first.LastLook.IsZero(), first.LastSuccess.IsZero(), first.LastError, first.LastErrorAt.IsZero()},
		[]any{false, false, "", true})
	look(poll.LookEnd{Problem: "the token was refused"})
	s := get()
	equal(t, "after a failure", []any{s.LastError, s.LastErrorAt.Equal(s.LastLook), s.LastSuccess.Equal(first.LastSuccess), s.NotBefore.IsZero()},
		[]any{"the token was refused", true, true, true})
	_, err := w.BeginLook(t.Context(), "gh", "me", time.Minute, 0)
	must(t, err)
	s = get()
	equal(t, "while the next look is under way", []any{s.LastError, s.LastErrorAt.IsZero()}, []any{"the token was refused", true})
	must(t, w.EndLook(t.Context(), "gh", "me", poll.LookEnd{Problem: "limited", Wait: time.Hour}))
	if s = get(); time.Until(s.NotBefore) < 59*time.Minute {
		t.Errorf("while a limit is waited out: %+v", s)
	}
	w.sql(t, `update poller.sources set not_before = now()`)
	equal(t, "after the limit", get().NotBefore.IsZero(), true)
	w.add(t, ref(t, 1), event(ref(t, 1), "a", epoch, 1))
	w.sql(t, `update poller.items set source = 'gh', baselined_at = now()`)
	equal(t, "open items", get().Items, 1)
	w.sql(t, `update poller.items set closed_at = now()`)
	equal(t, "open items once it is closed", get().Items, 0)
}

func TestListen_WakesOnNewEvents(t *testing.T) {
	w := newWorld(t)
	item := ref(t, 1)
	w.add(t, item)
	ctx, cancel := context.WithCancel(t.Context())
	wake, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- w.Listen(ctx, wake, slog.New(slog.DiscardHandler)) }()
	cancelled := time.After(20 * time.Second)
	heard := make(chan struct{}, 16)
	go func() {
		for {
			select {
			case <-wake:
				heard <- struct{}{}
			case <-ctx.Done():
				return
			}
		}
	}()
	// The channel has no room, so a wake-up is heard only by who waits for it; an insert is repeated until one is.
	for n := 0; ; n++ {
		r := record(item, event(item, fmt.Sprint(n), epoch, int64(n)))
		r.FirstSight = false
		_, err := w.Record(t.Context(), r)
		must(t, err)
		select {
		case <-heard:
			cancel()
			must(t, <-ended)
			return
		case <-time.After(50 * time.Millisecond):
		case <-cancelled:
			t.Fatal("nothing was heard")
		}
	}
}

func TestList_FiltersAndPages(t *testing.T) {
	w := newWorld(t)
	one, two := ref(t, 1), ref(t, 2)
	w.add(t, one, event(one, "a", epoch, 1), event(one, "b", epoch, 2))
	w.add(t, two, event(two, "c", epoch, 1))
	delivered := ledger.Delivered
	w.answer(t, w.one(t), ledger.Arrived, 0)
	list := func(f poll.Filter) int {
		f.Limit = 10
		rows, err := w.List(t.Context(), f)
		must(t, err)
		return len(rows)
	}
	equal(t, "all", list(poll.Filter{}), 3)
	equal(t, "of an item", list(poll.Filter{WorkItem: one.String()}), 2)
	equal(t, "delivered", list(poll.Filter{State: &delivered}), 1)
	rows, err := w.List(t.Context(), poll.Filter{Limit: 2})
	must(t, err)
	equal(t, "newest first", rows[0].ID > rows[1].ID, true)
	equal(t, "before the second", list(poll.Filter{Before: rows[1].ID}), 1)
	equal(t, "by delivery", list(poll.Filter{DeliveryID: rows[0].DeliveryID}), 1)
}

func TestMigration_GoesDownAndUpAgain(t *testing.T) {
	pool := dbtest.New(t)
	_, err := migrations.Down(t.Context(), pool, 19, nil)
	must(t, err)
	var left int
	must(t, pool.QueryRow(t.Context(), `
select count(*) from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = 'poller'`).Scan(&left))
	equal(t, "left in the schema", left, 0)
	_, err = migrations.Up(t.Context(), pool, nil)
	must(t, err)
	must(t, migrations.Check(t.Context(), pool))
}
