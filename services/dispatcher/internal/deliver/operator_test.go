package deliver_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"muxpost.dev/muxpost/core/dispatch"
	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/lease"
	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/services/dispatcher/internal/deliver"
	"muxpost.dev/muxpost/services/dispatcher/internal/deliver/delivertest"
)

func (b bench) pause(t *testing.T, scope string) {
	t.Helper()
	if _, made, err := b.deliverer.Pause(t.Context(), deliver.Pause{WorkItem: scope, Reason: "an upgrade", Who: "ann"}); err != nil || !made {
		t.Fatalf("pause %q: %v, %v", scope, made, err)
	}
}

func (b bench) unpause(t *testing.T, scope string) {
	t.Helper()
	if _, stood, err := b.deliverer.Unpause(t.Context(), scope, "bob"); err != nil || !stood {
		t.Fatalf("unpause %q: %v, %v", scope, stood, err)
	}
}

// acts counts what a host is asked for.
func (b bench) acts() *int {
	n := new(int)
	b.host.Before = func(string) { *n++ }
	return n
}

func TestPause_HoldsBackAndLosesNothing(t *testing.T) {
	for name, scopes := range map[string][]string{
		"all": {""}, "the item": {"github:Octo/Widget#7"}, "both": {"", item},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(absent(), nil)
			asked := b.acts()
			for _, scope := range scopes {
				b.pause(t, scope)
			}
			for range 2 {
				got := b.ask(t, id)
				d := got.Delivery
				if d.Outcome != dispatch.Waiting || d.Reason != dispatch.ReasonPaused || got.LookAgain != time.Minute {
					t.Fatalf("%+v", got)
				}
				for _, word := range []string{" by ann", "an upgrade", "since 20"} {
					if strings.Count(d.Detail, word) != len(scopes) {
						t.Errorf("%q in %q", word, d.Detail)
					}
				}
				if strings.Count(d.Remedy, "muxpost unpause ") != len(scopes) {
					t.Errorf("remedy %q", d.Remedy)
				}
				if stored := b.store.Stored(id); stored.Outcome != dispatch.Waiting || stored.Detail != d.Detail || len(stored.Steps) != 1 {
					t.Errorf("stored %+v", stored)
				}
			}
			for _, scope := range scopes {
				if *asked != 0 {
					t.Errorf("the host was asked %d times", *asked)
				}
				b.unpause(t, scope)
			}
			if got := b.ask(t, id); got.Delivery.Outcome != dispatch.Delivered || got.Delivery.Asked != 3 {
				t.Errorf("afterwards: %+v", got)
			}
		})
	}
}

func TestPause_OfAnotherItemHoldsNothingBack(t *testing.T) {
	b := newBench(absent(), nil)
	b.pause(t, "github:octo/widget#8")
	if got := b.ask(t, id); got.Delivery.Outcome != dispatch.Delivered {
		t.Errorf("%+v", got)
	}
}

func TestPause_ReplaysWhatEnded(t *testing.T) {
	b := newBench(absent(), nil)
	b.ask(t, id)
	b.pause(t, "")
	if got := b.ask(t, id); got.Delivery.Outcome != dispatch.Delivered {
		t.Errorf("%+v", got)
	}
}

// TestPause_WhatIsUnderWayEnds pauses while a delivery is being typed; who asks meanwhile changes nothing of its record.
func TestPause_WhatIsUnderWayEnds(t *testing.T) {
	b := newBench(live(delivertest.World{}), nil)
	b.host.Before = func(act string) {
		if act != "paste" {
			return
		}
		b.pause(t, "")
		if got := b.ask(t, id); got.Delivery.Reason != dispatch.ReasonPaused {
			t.Errorf("meanwhile: %+v", got)
		}
		if d := b.store.Stored(id); d.Reason != dispatch.ReasonStart {
			t.Errorf("meanwhile stored: %+v", d)
		}
	}
	if got := b.ask(t, id); got.Delivery.Outcome != dispatch.Delivered {
		t.Errorf("%+v", got)
	}
}

func TestPause_WhatWasTypedIsLookedForFurther(t *testing.T) {
	b := newBench(live(delivertest.World{NoEvidence: true}), nil)
	b.store.Put(*recorded("c1"))
	if got := b.ask(t, id).Delivery; got.Outcome != dispatch.Unconfirmed {
		t.Fatalf("%+v", got)
	}
	b.pause(t, "")
	if got := b.ask(t, id).Delivery; got.Outcome != dispatch.Unconfirmed || len(b.host.World().Typed) != 1 {
		t.Errorf("%+v, typed %v", got, b.host.World().Typed)
	}
	b.host.Change(func(w *delivertest.World) { w.NoEvidence = false })
	if got := b.ask(t, id).Delivery; got.Outcome != dispatch.Delivered || len(b.host.World().Typed) != 1 {
		t.Errorf("%+v, typed %v", got, b.host.World().Typed)
	}
}

func TestPause_TellsOfItselfOnce(t *testing.T) {
	b := newBench(absent(), nil)
	b.pause(t, item)
	p, made, err := b.deliverer.Pause(t.Context(), deliver.Pause{WorkItem: item, Reason: "another"})
	if err != nil || made || p.Reason != "an upgrade" {
		t.Errorf("again: %+v, %v, %v", p, made, err)
	}
	b.unpause(t, item)
	if _, stood, err := b.deliverer.Unpause(t.Context(), item, ""); err != nil || stood {
		t.Errorf("unpause again: %v, %v", stood, err)
	}
	events := b.store.Events()
	if len(events) != 2 || events[0].Type != dispatch.DispatchPaused || events[1].Type != dispatch.DispatchUnpaused {
		t.Fatalf("%+v", events)
	}
	haveTheirFields(t, events)
	if f := events[0].Fields; f["who"] != "ann" || f["reason"] != "an upgrade" || f["target"] != target || f["work_item"] != item {
		t.Errorf("%v", f)
	}
	if f := events[1].Fields; f["who"] != "bob" {
		t.Errorf("%v", f)
	}
}

func TestOperators_BadWordsAreRefused(t *testing.T) {
	b := newBench(absent(), nil)
	long := strings.Repeat("x", 301)
	for name, err := range map[string]error{
		"reason": func() error { _, _, err := b.deliverer.Pause(t.Context(), deliver.Pause{Reason: long}); return err }(),
		"UTF-8":  func() error { _, _, err := b.deliverer.Pause(t.Context(), deliver.Pause{Who: "\xff"}); return err }(),
		"item":   func() error { _, _, err := b.deliverer.Pause(t.Context(), deliver.Pause{WorkItem: "x"}); return err }(),
		"who":    func() error { _, _, err := b.deliverer.Unpause(t.Context(), "", long); return err }(),
		"id":     func() error { _, _, err := b.deliverer.Reopen(t.Context(), "x", "", false); return err }(),
		"opener": func() error { _, _, err := b.deliverer.Reopen(t.Context(), id, long, false); return err }(),
	} {
		if !errors.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	b.pause(t, "")
	_, _, err := b.deliverer.Pause(t.Context(), deliver.Pause{WorkItem: item, Reason: "two\nlines\x1b[31m"})
	if err != nil {
		t.Fatal(err)
	}
	if d := b.ask(t, id).Delivery; strings.ContainsAny(d.Detail, "\n\x1b") {
		t.Errorf("%q", d.Detail)
	}
}

// TestShadow_DoesNothingAtAll asks in every world of the tables: the world and the record stay as they are, and what is answered is a
// wait, or what the agent's own record proves.
func TestShadow_DoesNothingAtAll(t *testing.T) {
	told := map[string]bool{}
	for _, r := range append(deliverRows(), respawnRows()...) {
		t.Run(r.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(r.world, func(c *deliver.Config) { c.Shadow = true })
				if r.record != nil {
					b.store.Put(*r.record)
				}
				b.host.Before = func(act string) {
					if act != "probe" {
						t.Errorf("the host was asked to %s", act)
					}
				}
				got := b.ask(t, id)
				d := got.Delivery
				if d.Outcome != dispatch.Waiting && d.How != dispatch.HowAlready {
					t.Errorf("%v (%s)", d.Outcome, d.Reason)
				}
				if d.Reason == dispatch.ReasonShadow {
					if got.LookAgain != time.Minute || d.Remedy == "" || !strings.Contains(strings.Join(d.Steps, "\n"), "would ") {
						t.Errorf("%+v", got)
					}
					told[d.Detail] = true
				}
				if strings.TrimSpace(b.events()) != "" && d.How != dispatch.HowAlready {
					t.Errorf("events %s", b.events())
				}
				after, known := b.store.Session(item)
				if known != (r.record != nil) || known && (after.ConversationID != r.record.ConversationID ||
					after.Incarnation != r.record.Incarnation || after.Target != r.record.Target) {
					t.Errorf("the record is %+v", after)
				}
			})
		})
	}
	for _, want := range []string{"it would: paste into the living session (session_lives)",
		"record the session that was found (stamp_proves_ours), then paste into the living session",
		"start the session again with its conversation, the event as its first prompt (session_ended)",
		"start a session with a new conversation, the event as its first prompt (first)", "end it as dropped (session-occupied)"} {
		found := false
		for detail := range told {
			found = found || strings.Contains(detail, want)
		}
		if !found {
			t.Errorf("nobody is told: %s", want)
		}
	}
}

func TestShadow_SwitchedOffDelivers(t *testing.T) {
	b := newBench(absent(), func(c *deliver.Config) { c.Shadow = true })
	b.ask(t, id)
	real := newBench(absent(), func(c *deliver.Config) { c.Store = b.store })
	if got := real.ask(t, id); got.Delivery.Outcome != dispatch.Delivered || got.Delivery.How != dispatch.HowSpawned {
		t.Errorf("%+v", got)
	}
}

func TestReopen_IsDecidedAgain(t *testing.T) {
	world := live(delivertest.World{})
	world.Flags = session.Foreign
	b := newBench(world, nil)
	if got := b.ask(t, id); got.Delivery.Outcome != dispatch.Dropped {
		t.Fatalf("%+v", got)
	}
	b.host.Change(func(w *delivertest.World) {
		*w = delivertest.World{State: session.Absent, Phases: w.Phases, Token: w.Token}
	})
	if got := b.ask(t, id); got.Delivery.Outcome != dispatch.Dropped {
		t.Errorf("before it is re-opened: %+v", got)
	}
	for _, want := range []bool{true, false} {
		d, reopened, err := b.deliverer.Reopen(t.Context(), id, "ann", false)
		if err != nil || reopened != want || d.Outcome != dispatch.InProgress || d.Reason != dispatch.ReasonReopened ||
			!strings.Contains(d.Detail, "by ann") || !strings.Contains(d.Detail, "session-occupied") || d.Remedy != "" {
			t.Errorf("%v, %v, %+v", reopened, err, d)
		}
	}
	if got := b.ask(t, id); got.Delivery.Outcome != dispatch.Delivered || got.Delivery.How != dispatch.HowSpawned {
		t.Errorf("afterwards: %+v", got)
	}
	if _, _, err := b.deliverer.Reopen(t.Context(), id, "", false); !errors.Is(err, fault.Conflict) {
		t.Errorf("of a delivery that arrived: %v", err)
	}
	if _, _, err := b.deliverer.Reopen(t.Context(), "delivery-9", "", false); !errors.Is(err, fault.NotFound) {
		t.Errorf("of one that is not known: %v", err)
	}
	var told []deliver.Event
	haveTheirFields(t, b.store.Events())
	for _, e := range b.store.Events() {
		if e.Type == dispatch.DispatchReopened {
			told = append(told, e)
		}
	}
	if len(told) != 1 || told[0].DeliveryID != id || told[0].Fields["reason"] != "session-occupied" || told[0].Fields["who"] != "ann" ||
		told[0].Fields["kind"] != "comment" {
		t.Errorf("%+v", told)
	}
}

func TestReopen_LeavesWhatHasNotEnded(t *testing.T) {
	b := newBench(delivertest.World{Unreachable: true}, nil)
	b.ask(t, id)
	if d, reopened, err := b.deliverer.Reopen(t.Context(), id, "", false); err != nil || reopened || d.Reason != dispatch.ReasonHostUnreachable {
		t.Errorf("%+v, %v, %v", d, reopened, err)
	}
}

func TestDeliver_ANameThatAnotherItemHasStartsNothing(t *testing.T) {
	b := newBench(absent(), nil)
	asked := b.acts()
	b.store.Put(deliver.Session{WorkItem: "github:octo/other#1", Target: target, Host: "a"})
	d := b.ask(t, id).Delivery
	if d.Outcome != dispatch.Dropped || d.Reason != dispatch.ReasonTargetCollision || !strings.Contains(d.Detail, "github:octo/other#1") ||
		d.Remedy == "" {
		t.Errorf("%+v", d)
	}
	if *asked != 0 || strings.TrimSpace(b.events()) != "session.spawn_failed dispatch.dropped" {
		t.Errorf("asked %d times, events %s", *asked, b.events())
	}
}

// TestDeliver_CrashBeforeTheRecordThenDeath has the dispatcher end between a first spawn and its record, and the agent die before the
// event is asked for again: it comes back with its conversation, and nothing is a first prompt twice.
func TestDeliver_CrashBeforeTheRecordThenDeath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(delivertest.World{State: session.Absent, NoEvidence: true}, nil)
		b.host.After = func(act string) { b.store.SetDown(act == "spawn") }
		if _, err := b.deliverer.Deliver(t.Context(), request(id)); !errors.Is(err, fault.Unavailable) {
			t.Fatalf("without a database: %v", err)
		}
		b.host.After = nil
		b.store.SetDown(false)
		time.Sleep(lease.Time)
		b.host.Change(func(w *delivertest.World) { w.State, w.NoEvidence = session.Dead, false })
		if got := b.ask(t, id); got.Delivery.Outcome != dispatch.Delivered || got.Delivery.How != dispatch.HowResumed {
			t.Errorf("%+v", got)
		}
		if w := b.host.World(); w.Fresh != 1 || w.Resumed != 1 || len(w.Typed) != 0 || len(w.Prompts) != 1 {
			t.Errorf("%+v", w)
		}
		if s, ok := b.store.Session(item); !ok || s.ConversationID != "fresh-1" || len(s.Lineage) != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// Nobody is told that an event is on its way again while its session's name still belongs to somebody else.
func TestReopen_IfFreeLooksFirst(t *testing.T) {
	for name, row := range map[string]struct {
		now  func(*delivertest.World)
		want bool
	}{
		"somebody else still has it": {func(*delivertest.World) {}, false},
		"the host is away":           {func(w *delivertest.World) { w.Unreachable = true }, false},
		"tmux does not answer":       {func(w *delivertest.World) { w.Mute = true }, false},
		"a guest lives in it":        {func(w *delivertest.World) { w.State, w.Flags = session.Dead, session.Guests }, false},
		"its agent has no session":   {func(w *delivertest.World) { w.Flags = session.Detached }, false},
		"he has gone":                {func(w *delivertest.World) { w.State, w.Flags = session.Absent, 0 }, true},
		"the guest has gone":         {func(w *delivertest.World) { w.State, w.Flags = session.Dead, 0 }, true},
		"ours lives there now":       {func(w *delivertest.World) { w.Flags = 0 }, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(live(delivertest.World{Flags: session.Foreign}), nil)
			if got := b.ask(t, id).Delivery; got.Outcome != dispatch.Dropped || got.Reason != dispatch.ReasonSessionOccupied {
				t.Fatalf("%+v", got)
			}
			told := len(b.store.Events())
			b.host.Change(row.now)
			d, reopened, err := b.deliverer.Reopen(t.Context(), id, "", true)
			if err != nil || reopened != row.want || (d.Outcome == dispatch.Dropped) == row.want {
				t.Errorf("%v, %v, %v", d.Outcome, reopened, err)
			}
			if more := len(b.store.Events()) > told; more != row.want {
				t.Errorf("told: %v", more)
			}
		})
	}
}
