package deliver_test

import (
	"errors"
	"slices"
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

// away is a bench whose session is recorded and lives on a host that does not answer.
func away(t *testing.T) bench {
	t.Helper()
	b := newBench(live(delivertest.World{Unreachable: true}), nil)
	b.store.Put(*recorded("c1"))
	return b
}

func (b bench) returns() { b.host.Change(func(w *delivertest.World) { w.Unreachable = false }) }

// carryOut returns the items whose order is over.
func (b bench) carryOut(t *testing.T) (over []string) {
	t.Helper()
	if err := b.deliverer.CarryOut(t.Context(), "", func(item string) { over = append(over, item) }); err != nil {
		t.Fatal(err)
	}
	return over
}

func (b bench) ending(t *testing.T) *deliver.Ending {
	t.Helper()
	got, err := b.store.Recorded(t.Context(), item)
	if err != nil {
		t.Fatal(err)
	}
	return got.Ending
}

var stopIt = deliver.Stop{WorkItem: "github:Octo/Widget#7", Who: "ann", Reason: "it is done"}

func TestClose_EndsTheAgentAndItsRecordAndTheNextEventBeginsANewConversation(t *testing.T) {
	for name, w := range map[string]delivertest.World{"living": live(delivertest.World{}), "dead": dead(delivertest.World{}),
		"detached": {State: session.Live, Flags: session.Detached, Stamp: "old", Conversation: "c1"}, "absent": {State: session.Absent, Conversation: "c1"}} {
		t.Run(name, func(t *testing.T) {
			b := newBench(w, nil)
			b.store.Put(*recorded("c1"))
			ended, err := b.deliverer.Close(t.Context(), stopIt)
			if err != nil || ended.Waits || ended.Already != (name == "dead" || name == "absent") {
				t.Fatalf("%+v, %v", ended, err)
			}
			record, _ := b.store.Session(item)
			if !record.Closed || record.ConversationID != "" || !slices.Equal(record.Lineage, []string{"c1"}) {
				t.Errorf("%+v", record)
			}
			told := b.store.Events()
			haveTheirFields(t, told)
			if len(told) != 1 || told[0].Type != dispatch.SessionClosed || told[0].Fields["who"] != "ann" || told[0].Fields["reason"] != "it is done" ||
				told[0].Fields["conversation_id"] != "c1" {
				t.Errorf("%+v", told)
			}
			if again, err := b.deliverer.Close(t.Context(), stopIt); err != nil || !again.Already || len(b.store.Events()) != 1 {
				t.Errorf("again: %+v, %v", again, err)
			}
			// The host still knows the conversation; it is not resumed.
			d := b.ask(t, id).Delivery
			record, _ = b.store.Session(item)
			if d.How != dispatch.HowSpawned || record.Closed || record.ConversationID != "fresh-1" || !slices.Equal(record.Lineage, []string{"c1"}) {
				t.Errorf("%+v, %+v", d, record)
			}
		})
	}
}

func TestClose_ALaterEventIsForTheFirstSpawnPolicyToLetIn(t *testing.T) {
	b := newBench(live(delivertest.World{}), func(c *deliver.Config) { c.Forbids = func(deliver.Kind) bool { return true } })
	b.store.Put(*recorded("c1"))
	if _, err := b.deliverer.Close(t.Context(), stopIt); err != nil {
		t.Fatal(err)
	}
	if d := b.ask(t, id).Delivery; d.Reason != dispatch.ReasonSpawnForbidden || b.starts() != 0 {
		t.Errorf("%+v", d)
	}
}

func TestClose_OfASessionThatNobodyRecordedKeepsItsConversation(t *testing.T) {
	b := newBench(live(delivertest.World{}), nil)
	if _, err := b.deliverer.Close(t.Context(), stopIt); err != nil {
		t.Fatal(err)
	}
	if record, _ := b.store.Session(item); !record.Closed || !slices.Equal(record.Lineage, []string{"c1"}) || record.Target != target {
		t.Errorf("%+v", record)
	}
	b = newBench(absent(), nil)
	if ended, err := b.deliverer.Close(t.Context(), stopIt); err != nil || !ended.Already || len(b.store.Events()) != 0 {
		t.Errorf("of none: %+v, %v", ended, err)
	}
}

func TestClose_EndsAPark(t *testing.T) {
	b := mortal(absent(), &dispatch.Version{}, nil)
	b.delivers(t, "delivery")
	if _, err := b.deliverer.Close(t.Context(), stopIt); err != nil {
		t.Fatal(err)
	}
	if d := b.ask(t, "delivery-x").Delivery; d.How != dispatch.HowSpawned {
		t.Errorf("%+v", d)
	}
}

// TestEnding_WaitsForItsHost orders an end while the host is away: nothing is begun for the item, and the order is carried out once the
// host is back, whatever process does it, and once.
func TestEnding_WaitsForItsHost(t *testing.T) {
	for name, row := range map[string]struct {
		order func(*deliver.Deliverer) (deliver.Ended, error)
		told  string
		how   dispatch.How
	}{
		"stop": {func(d *deliver.Deliverer) (deliver.Ended, error) { return d.Stop(t.Context(), stopIt) },
			"session.end_ordered dispatch.queued session.stopped", dispatch.HowResumed},
		"close": {func(d *deliver.Deliverer) (deliver.Ended, error) { return d.Close(t.Context(), stopIt) },
			"session.end_ordered dispatch.queued session.closed", dispatch.HowSpawned},
	} {
		t.Run(name, func(t *testing.T) {
			b := away(t)
			for range 2 { // ordered twice is ordered once
				if ended, err := row.order(b.deliverer); err != nil || !ended.Waits {
					t.Fatalf("%+v, %v", ended, err)
				}
			}
			if e := b.ending(t); e == nil || e.Stamp != "old" || e.Host != "a" || e.Verb() != name || e.Who != "ann" || e.Detail == "" {
				t.Fatalf("%+v", e)
			}
			if over := b.carryOut(t); len(over) != 0 || b.ending(t) == nil {
				t.Errorf("while the host is away: %v", over)
			}
			got := b.ask(t, id)
			if d := got.Delivery; d.Outcome != dispatch.Waiting || d.Reason != dispatch.ReasonSessionEnding || got.LookAgain != time.Minute ||
				!strings.Contains(d.Detail, name+" by ann") || !strings.Contains(d.Remedy, "muxpost stop --cancel '"+item+"'") {
				t.Errorf("%+v", got)
			}
			b.returns()
			if d := b.ask(t, id).Delivery; d.Reason != dispatch.ReasonSessionEnding {
				t.Errorf("before it is carried out: %+v", d)
			}
			if over := b.carryOut(t); !slices.Equal(over, []string{item}) || b.ending(t) != nil || b.host.World().State != session.Dead {
				t.Errorf("over %v, %+v", over, b.ending(t))
			}
			if over := b.carryOut(t); len(over) != 0 {
				t.Errorf("again: %v", over)
			}
			if got := strings.Join(typesOf(b), " "); got != row.told {
				t.Errorf("told %s", got)
			}
			if d := b.ask(t, id).Delivery; d.How != row.how {
				t.Errorf("the event that waited: %+v", d)
			}
		})
	}
}

func typesOf(b bench) (out []string) {
	for _, e := range b.store.Events() {
		out = append(out, string(e.Type))
	}
	return out
}

// TestEnding_TouchesNothingThatItDoesNotName has something else be there when the host is back.
func TestEnding_TouchesNothingThatItDoesNotName(t *testing.T) {
	for name, change := range map[string]func(*delivertest.World){
		"a later incarnation": func(w *delivertest.World) { w.Stamp = "new" },
		"somebody else":       func(w *delivertest.World) { w.Flags = session.Foreign },
		"a guest":             func(w *delivertest.World) { w.State, w.Flags = session.Dead, session.Guests },
		"nothing":             func(w *delivertest.World) { w.State = session.Absent },
	} {
		t.Run(name, func(t *testing.T) {
			b := away(t)
			if _, err := b.deliverer.Stop(t.Context(), stopIt); err != nil {
				t.Fatal(err)
			}
			b.returns()
			b.host.Change(change)
			before := b.host.World()
			if over := b.carryOut(t); !slices.Equal(over, []string{item}) || b.ending(t) != nil {
				t.Errorf("over %v", over)
			}
			if after := b.host.World(); after.State != before.State || after.Stamp != before.Stamp || after.Token != before.Token {
				t.Errorf("%+v", after)
			}
			if told := typesOf(b); told[len(told)-1] != "session.end_lapsed" {
				t.Errorf("told %v", told)
			}
			if record, _ := b.store.Session(item); record.Closed {
				t.Error("it is closed")
			}
		})
	}
}

func TestEnding_AnAnswerThatIsLostLeavesTheOrderStanding(t *testing.T) {
	b := newBench(live(delivertest.World{}), nil)
	b.store.Put(*recorded("c1"))
	b.host.Before = func(act string) {
		if act == "terminate" {
			b.host.Change(func(w *delivertest.World) { w.Unreachable = true })
		}
	}
	if ended, err := b.deliverer.Stop(t.Context(), stopIt); err != nil || !ended.Waits || b.ending(t) == nil {
		t.Fatalf("%+v, %v", ended, err)
	}
	b.host.Before = nil
	b.host.Change(func(w *delivertest.World) { w.Unreachable, w.Immortal = false, true })
	if over := b.carryOut(t); len(over) != 0 || !strings.Contains(b.ending(t).Detail, "still lives") {
		t.Errorf("%v, %+v", over, b.ending(t))
	}
	b.host.Change(func(w *delivertest.World) { w.Immortal = false })
	if over := b.carryOut(t); len(over) != 1 || b.host.World().State != session.Dead {
		t.Errorf("%v", over)
	}
}

func TestCancelEnding_LeavesTheAgentAlone(t *testing.T) {
	b := away(t)
	if _, stood, err := b.deliverer.CancelEnding(t.Context(), item, "bob"); err != nil || stood {
		t.Errorf("none: %v, %v", stood, err)
	}
	if _, err := b.deliverer.Close(t.Context(), stopIt); err != nil {
		t.Fatal(err)
	}
	if e, stood, err := b.deliverer.CancelEnding(t.Context(), "github:Octo/Widget#7", "bob"); err != nil || !stood || e.Who != "ann" {
		t.Errorf("%+v, %v, %v", e, stood, err)
	}
	told := b.store.Events()
	haveTheirFields(t, told)
	if e := told[len(told)-1]; e.Type != dispatch.SessionEndCancelled || e.Fields["who"] != "bob" || e.Fields["order"] != "close" {
		t.Errorf("%+v", e)
	}
	b.returns()
	if over := b.carryOut(t); len(over) != 0 || b.host.World().State != session.Live {
		t.Errorf("%v", over)
	}
	if d := b.ask(t, id).Delivery; d.How != dispatch.HowPasted {
		t.Errorf("%+v", d)
	}
	for item, who := range map[string]string{"x": "", item: strings.Repeat("x", 101)} {
		if _, _, err := b.deliverer.CancelEnding(t.Context(), item, who); !errors.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", item, err)
		}
	}
}

func TestEnding_EndsNoSearchForEvidence(t *testing.T) {
	b := newBench(live(delivertest.World{NoEvidence: true}), nil)
	b.store.Put(*recorded("c1"))
	if d := b.ask(t, id).Delivery; d.Outcome != dispatch.Unconfirmed {
		t.Fatalf("%+v", d)
	}
	b.host.Change(func(w *delivertest.World) { w.Mute = true })
	if ended, err := b.deliverer.Stop(t.Context(), stopIt); err != nil || !ended.Waits {
		t.Fatalf("%+v, %v", ended, err)
	}
	b.host.Change(func(w *delivertest.World) { w.Mute, w.NoEvidence = false, false })
	if d := b.ask(t, id).Delivery; d.How != dispatch.HowAlready {
		t.Errorf("%+v", d)
	}
}

func TestEnding_GoesThroughAllOfThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := away(t)
		if _, err := b.deliverer.Stop(t.Context(), stopIt); err != nil {
			t.Fatal(err)
		}
		b.store.SetDown(true)
		if err := b.deliverer.CarryOut(t.Context(), "", func(string) {}); !errors.Is(err, fault.Unavailable) {
			t.Errorf("without a database: %v", err)
		}
		b.store.SetDown(false)
		// A delivery that is under way keeps the lease: the order stands until it has ended.
		held, _, err := b.store.TakeLease(t.Context(), item, "a run")
		if err != nil {
			t.Fatal(err)
		}
		b.returns()
		if over := b.carryOut(t); len(over) != 0 {
			t.Errorf("%v", over)
		}
		if err := b.store.Release(t.Context(), item, held); err != nil {
			t.Fatal(err)
		}
		if over := b.carryOut(t); len(over) != 1 {
			t.Errorf("%v", over)
		}
	})
}

// An order that waits for a host is over when the item is moved away from it: a stop has come to nothing, and a close is one all the same.
func TestEnding_IsOverWhenTheItemIsMovedAway(t *testing.T) {
	for name, row := range map[string]struct {
		order func(*deliver.Deliverer) (deliver.Ended, error)
		told  dispatch.EventType
		how   dispatch.How
	}{
		"stop":  {func(d *deliver.Deliverer) (deliver.Ended, error) { return d.Stop(t.Context(), stopIt) }, dispatch.SessionEndLapsed, dispatch.HowFresh},
		"close": {func(d *deliver.Deliverer) (deliver.Ended, error) { return d.Close(t.Context(), stopIt) }, dispatch.SessionClosed, dispatch.HowSpawned},
	} {
		t.Run(name, func(t *testing.T) {
			b, other := two(live(delivertest.World{Unreachable: true}))
			b.store.Put(*recorded("c1"))
			if ended, err := row.order(b.deliverer); err != nil || !ended.Waits {
				t.Fatalf("%+v, %v", ended, err)
			}
			if out := b.evacuate(t); !slices.Equal(out.Moved, []string{item}) || b.ending(t) != nil {
				t.Fatalf("%+v, %+v", out, b.ending(t))
			}
			told := b.store.Events()
			haveTheirFields(t, told)
			if told[len(told)-1].Type != row.told {
				t.Errorf("told %v", typesOf(b))
			}
			d := b.ask(t, id).Delivery
			record, _ := b.store.Session(item)
			if d.How != row.how || d.Host != "b" || record.Closed || !slices.Equal(record.Lineage, []string{"c1"}) || other.World().Fresh != 1 {
				t.Errorf("%+v, %+v", d, record)
			}
			b.returns()
			if over := b.carryOut(t); len(over) != 0 || b.host.World().State != session.Live {
				t.Errorf("what is left there is ended: %v", over)
			}
		})
	}
}
