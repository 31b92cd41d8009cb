package store

import (
	"testing"
	"time"

	"muxpost.dev/muxpost/core/dispatch"
	"muxpost.dev/muxpost/core/ledger"
	"muxpost.dev/muxpost/services/poller/internal/forward"
	"muxpost.dev/muxpost/services/poller/internal/metrics"
)

func TestFigures_CountWhatIsOnItsWayOrNeedsAPerson(t *testing.T) {
	w := newWorld(t)
	if got, err := w.Figures(t.Context()); err != nil || len(got.Events) != 2 || got.Events[0].Count+got.Events[1].Count+got.Outbox.Count > 0 {
		t.Errorf("of nothing: %+v, %v", got, err)
	}
	item := ref(t, 7)
	for i, object := range []string{"a", "b", "c", "d", "e"} {
		w.add(t, item, event(item, object, time.Now(), int64(i)))
	}
	w.sql(t, `update poller.events set created_at = now() - interval '1 hour' where id = (select min(id) from poller.events)`)
	for id, state := range map[int]string{1: "dropped", 2: "gave_up", 3: "delivered"} {
		w.sql(t, `update poller.events set state = $1 where id = (select min(id) + $2 from poller.events)`, state, id)
	}
	w.put(t, arrival("x", 7), arrival("y", 8))
	w.sql(t, `update poller.hooks set state = 'failed' where guid = 'y'`)
	w.sql(t, `insert into poller.hook_sources (source) values ('gh'), ('silent')`)
	w.sql(t, `insert into poller.sources (name, last_success_at) values ('old', now() - interval '2 hours'), ('never', null) on conflict (name) do nothing`)
	w.sql(t, `insert into poller.outbox (event_id, post, created_at) select min(id), 'notice_held', now() - interval '10 minutes' from poller.events`)
	got, err := w.Figures(t.Context())
	must(t, err)
	by := map[string]metrics.Waiting{}
	for _, e := range got.Events {
		by[e.State] = e
	}
	if p := by["pending"]; p.Count != 2 || p.Oldest < time.Hour || p.Oldest > 2*time.Hour || by["dropped"].Count != 1 || by["gave_up"].Count != 1 {
		t.Errorf("events: %+v", got.Events)
	}
	if len(got.Inbox) != 2 || got.Inbox[0].Count != 1 || got.Inbox[1].Count != 1 || got.Inbox[0].Oldest <= 0 {
		t.Errorf("inbox: %+v", got.Inbox)
	}
	if age := got.Success["old"]; age < 2*time.Hour || age > 3*time.Hour || got.Success["never"] != 0 {
		t.Errorf("success: %v", got.Success)
	}
	if _, told := got.Received["silent"]; told || got.Received["gh"] <= 0 {
		t.Errorf("received: %v", got.Received)
	}
	if got.Outbox.Count != 1 || got.Outbox.Oldest < 10*time.Minute {
		t.Errorf("outbox: %+v", got.Outbox)
	}
}

// An item that a person paused is meant to wait. It is counted with the others, and the oldest that is asked for is one that should have moved.
func TestFigures_TheOldestThatIsPendingIsNoneThatIsPaused(t *testing.T) {
	w := newWorld(t)
	at := func(what string, count int, over, under time.Duration) {
		t.Helper()
		got, err := w.Figures(t.Context())
		must(t, err)
		for _, e := range got.Events {
			if e.State != "pending" {
				continue
			}
			if e.Count != count || e.Oldest < over || e.Oldest >= under {
				t.Errorf("%s: %d are pending, the oldest for %v; want %d, from %v to %v", what, e.Count, e.Oldest, count, over, under)
			}
			return
		}
		t.Errorf("%s: none is pending", what)
	}
	answer := func(reason dispatch.Reason) {
		t.Helper()
		_, _, err := w.Finish(t.Context(), w.one(t), forward.Outcome{}, func(p ledger.Progress, now time.Time) ledger.Progress {
			return ledger.Apply(p, ledger.Working, string(reason), time.Hour, now, 0)
		})
		must(t, err)
	}
	paused, other := ref(t, 7), ref(t, 8)
	w.add(t, paused, event(paused, "first", epoch, 1), event(paused, "behind it", epoch.Add(time.Second), 2))
	w.sql(t, `update poller.events set created_at = now() - interval '5 hours'`)
	at("nobody was asked yet", 2, 5*time.Hour, 6*time.Hour)
	answer(dispatch.ReasonPaused)
	at("the item is paused", 2, 0, 1)

	w.add(t, other, event(other, "goes on", epoch, 3))
	w.sql(t, `update poller.events set created_at = now() - interval '1 hour' where work_item = $1`, other.String())
	at("another item waits", 3, time.Hour, 2*time.Hour)

	w.sql(t, `update poller.events set next_look = now() where reason = $1`, string(dispatch.ReasonPaused))
	w.sql(t, `update poller.events set next_look = now() + interval '1 hour' where work_item = $1`, other.String())
	answer(dispatch.ReasonHostUnreachable)
	at("the pause has ended, and its host is away", 3, 5*time.Hour, 6*time.Hour)
}
