package deliver_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"muxpost.dev/muxpost/core/dispatch"
	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/services/dispatcher/internal/deliver"
	"muxpost.dev/muxpost/services/dispatcher/internal/deliver/delivertest"
)

func TestEndIdle_EndsWhatNobodyNeedsAndNothingElse(t *testing.T) {
	for name, row := range map[string]struct {
		before func(t *testing.T, b bench)
		ended  bool
	}{
		"nobody needs it": {func(*testing.T, bench) {}, true},
		"its host says that it is needed": {func(_ *testing.T, b bench) {
			b.host.Change(func(w *delivertest.World) { w.Needed = "somebody looks at it in a terminal" })
		}, false},
		"its host is away":             {func(_ *testing.T, b bench) { b.host.Change(func(w *delivertest.World) { w.Unreachable = true }) }, false},
		"another incarnation is there": {func(_ *testing.T, b bench) { b.host.Change(func(w *delivertest.World) { w.Stamp = "newer" }) }, false},
		"it is detached":               {func(_ *testing.T, b bench) { b.host.Change(func(w *delivertest.World) { w.Flags = session.Detached }) }, false},
		"a delivery is under way": {func(t *testing.T, b bench) {
			if _, ok, err := b.store.TakeLease(t.Context(), item, "a run"); !ok || err != nil {
				t.Fatal(ok, err)
			}
		}, false},
		"only looks": {func(_ *testing.T, b bench) {}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(live(delivertest.World{}), func(c *deliver.Config) { c.Shadow = name == "only looks" })
				b.store.Put(*recorded("c1"))
				b.store.SetIdle(item)
				row.before(t, b)
				if err := b.deliverer.EndIdle(t.Context(), 72*time.Hour); err != nil {
					t.Fatal(err)
				}
				if ended := b.host.World().State == session.Dead; ended != row.ended {
					t.Errorf("ended: %v", ended)
				}
				told := b.store.Events()
				if got := len(told) > 0; got != row.ended {
					t.Fatalf("%+v", told)
				}
				if !row.ended {
					return
				}
				if e := told[0]; e.Type != dispatch.SessionStopped || e.Fields["who"] != "policy" || !strings.Contains(e.Fields["reason"], "72h") {
					t.Errorf("%+v", e)
				}
				// Its conversation comes back with the next event.
				if d := b.ask(t, id).Delivery; d.How != dispatch.HowResumed {
					t.Errorf("%+v", d)
				}
			})
		})
	}
}

func TestEndIdle_SaysThatTheStoreDoesNotAnswer(t *testing.T) {
	b := newBench(live(delivertest.World{}), nil)
	b.store.SetDown(true)
	if err := b.deliverer.EndIdle(t.Context(), time.Hour); !errors.Is(err, fault.Unavailable) {
		t.Errorf("%v", err)
	}
}
