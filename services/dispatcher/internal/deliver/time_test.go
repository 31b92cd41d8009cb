package deliver_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"muxpost.dev/muxpost/core/dispatch"
	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/services/dispatcher/internal/deliver"
	"muxpost.dev/muxpost/services/dispatcher/internal/deliver/delivertest"
)

func TestDeliver_NothingTakesLongerThanTheLimit(t *testing.T) {
	slow := 2900 * time.Millisecond
	for name, row := range map[string]struct {
		world  delivertest.World
		record *deliver.Session
		want   dispatch.Reason
	}{
		"a host that is slow in everything": {dead(delivertest.World{Slow: slow, ResumeEnds: dispatch.SpawnDied}), recorded("c1"), ""},
		"a slow first spawn":                {delivertest.World{State: session.Absent, Slow: slow}, nil, ""},
		"a host that never answers":         {live(delivertest.World{Slow: time.Hour}), recorded("c1"), dispatch.ReasonHostUnreachable},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(row.world, nil)
				if row.record != nil {
					b.store.Put(*row.record)
				}
				started := time.Now()
				got := b.ask(t, id)
				if took := time.Since(started); took > deliver.Limit {
					t.Errorf("it took %v", took)
				}
				if got.Delivery.Reason != row.want {
					t.Errorf("%v (%s), %q", got.Delivery.Outcome, got.Delivery.Reason, got.Delivery.Steps)
				}
			})
		})
	}
}

// TestDeliver_OutOfTimeIsAnOutcome lets acts take so long that what must follow no longer fits: nothing is sent that could not be
// waited for, and asking again goes on.
func TestDeliver_OutOfTimeIsAnOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(dead(delivertest.World{ResumeEnds: dispatch.SpawnDied}), nil)
		b.store.Put(*recorded("c1"))
		b.host.After = func(act string) {
			if act == "probe" {
				time.Sleep(10 * time.Second)
			}
		}
		got := b.ask(t, id)
		if got.Delivery.Outcome != dispatch.InProgress || got.Delivery.Reason != dispatch.ReasonDeadline || got.LookAgain == 0 {
			t.Errorf("%+v", got)
		}
		b.host.After = nil
		if got := b.ask(t, id); got.Delivery.Outcome != dispatch.Delivered {
			t.Errorf("asked again: %+v", got)
		}
	})
}

func TestDeliver_ActsEndBeforeTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(dead(delivertest.World{Slow: time.Second}), nil)
		b.store.Put(*recorded("c1"))
		b.ask(t, id)
		limits := []time.Duration{3 * time.Second, 15 * time.Second}
		for i, budget := range b.host.Budgets() {
			if budget > limits[min(i, 1)] || budget <= 0 {
				t.Errorf("act %d may take %v", i, budget)
			}
		}
	})
}

func TestDeliver_AnOlderLeaseWaits(t *testing.T) {
	b := newBench(live(delivertest.World{Token: 7}), nil)
	b.store.Put(*recorded("c1"))
	got := b.ask(t, id)
	if got.Delivery.Outcome != dispatch.Waiting || got.Delivery.Reason != dispatch.ReasonLeaseHeld ||
		!strings.Contains(got.Delivery.Detail, "takes no lease this old") {
		t.Errorf("%+v", got)
	}
	if w := b.host.World(); len(w.Typed) != 0 {
		t.Errorf("typed %v", w.Typed)
	}
}

func TestDeliver_ALeaseLostMeanwhileStoresNothing(t *testing.T) {
	for _, act := range []string{"probe", "spawn", "paste"} {
		b := newBench(dead(delivertest.World{ResumeEnds: dispatch.SpawnDied}), nil)
		b.store.Put(*recorded("c1"))
		b.host.After = func(done string) {
			if done != act {
				return
			}
			b.store.EndLease(item)
			if _, ok, err := b.store.TakeLease(t.Context(), item, "another"); !ok || err != nil {
				t.Errorf("the lease did not end: %v, %v", ok, err)
			}
		}
		got := b.ask(t, id)
		if got.Delivery.Outcome != dispatch.Waiting || got.Delivery.Reason != dispatch.ReasonLeaseHeld || got.LookAgain == 0 {
			t.Errorf("lost after the %s: %+v", act, got)
		}
		if d := b.store.Stored(id); d.Outcome != dispatch.InProgress || d.Reason != dispatch.ReasonStart {
			t.Errorf("lost after the %s, and stored %+v", act, d)
		}
	}
}
