package deliver_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"muxpost.dev/muxpost/core/dispatch"
	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/services/dispatcher/internal/deliver"
	"muxpost.dev/muxpost/services/dispatcher/internal/deliver/delivertest"
)

func TestStop_EndsOurOwnLivingAgentAndNothingElse(t *testing.T) {
	flagged := func(state session.State, flags session.Flags) delivertest.World {
		w := live(delivertest.World{})
		w.State, w.Flags = state, flags
		return w
	}
	for name, row := range map[string]struct {
		world   delivertest.World
		refusal error // nil for none
		already bool
		stopped int
	}{
		"it lives":                    {live(delivertest.World{}), nil, false, 1},
		"it lives without a session":  {flagged(session.Live, session.Detached), nil, false, 1},
		"it has died":                 {dead(delivertest.World{}), nil, true, 0},
		"there is none":               {absent(), nil, true, 0},
		"somebody else lives there":   {flagged(session.Live, session.Foreign), fault.Conflict, false, 0},
		"a guest lives there":         {flagged(session.Dead, session.Guests), fault.Conflict, false, 0},
		"the host is away":            {live(delivertest.World{Unreachable: true}), fault.Unavailable, false, 0},
		"tmux does not answer":        {live(delivertest.World{Mute: true}), fault.Unavailable, false, 0},
		"something of it still lives": {live(delivertest.World{Immortal: true}), fault.Conflict, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(row.world, nil)
			report, err := b.deliverer.Stop(t.Context(), deliver.Stop{WorkItem: item, Who: "ann", Reason: "it is stuck"})
			if row.refusal == nil && (err != nil || report.Waits || report.Already != row.already) || row.refusal != nil && !errors.Is(err, row.refusal) {
				t.Errorf("%+v, %v", report, err)
			}
			events := b.store.Events()
			if len(events) != row.stopped {
				t.Fatalf("%d events", len(events))
			}
			haveTheirFields(t, events)
			for _, e := range events {
				if f := e.Fields; e.Type != dispatch.SessionStopped || f["who"] != "ann" || f["reason"] != "it is stuck" || f["incarnation"] == "" || f["host"] == "" {
					t.Errorf("%+v", e)
				}
			}
			// The item is free for whoever comes next.
			if _, err := b.deliverer.Stop(t.Context(), deliver.Stop{WorkItem: item}); fault.ReasonOf(err) == fault.ReasonLeaseHeld {
				t.Error(err)
			}
		})
	}
}

func TestStop_WaitsForNoDeliveryAndTheNextOneBringsTheAgentBack(t *testing.T) {
	b := newBench(live(delivertest.World{}), nil)
	b.store.Put(*recorded("c1"))
	b.host.Before = func(act string) {
		if act != "paste" {
			return
		}
		if _, err := b.deliverer.Stop(t.Context(), deliver.Stop{WorkItem: item}); fault.ReasonOf(err) != fault.ReasonLeaseHeld {
			t.Errorf("while a delivery is typed: %v", err)
		}
	}
	b.ask(t, id)
	b.host.Before = nil
	if _, err := b.deliverer.Stop(t.Context(), deliver.Stop{WorkItem: item}); err != nil {
		t.Fatal(err)
	}
	if d := b.ask(t, "delivery-2").Delivery; d.How != dispatch.HowResumed {
		t.Errorf("%+v", d)
	}
}

func TestStop_RefusesWhatIsNoOrder(t *testing.T) {
	b := newBench(live(delivertest.World{}), nil)
	for name, s := range map[string]deliver.Stop{
		"item": {WorkItem: "x"}, "who": {WorkItem: item, Who: strings.Repeat("x", 101)}, "reason": {WorkItem: item, Reason: "\xff"},
		"grace": {WorkItem: item, Grace: time.Minute}, "less than none": {WorkItem: item, Grace: -1},
	} {
		if _, err := b.deliverer.Stop(t.Context(), s); !errors.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
