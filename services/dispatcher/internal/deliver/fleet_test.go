package deliver_test

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"go.opentelemetry.io/otel/trace/noop"

	"muxpost.dev/muxpost/core/dispatch"
	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/services/dispatcher/internal/deliver"
	"muxpost.dev/muxpost/services/dispatcher/internal/deliver/delivertest"
)

// two is a bench with two hosts: a, on which the item's session is, and b.
func two(w delivertest.World) (bench, *delivertest.Host) {
	b := delivertest.NewHost("b", delivertest.World{State: session.Absent})
	out := newBench(w, nil)
	return bench{out.store, out.host, deliver.New(deliver.Config{Store: out.store, Hosts: delivertest.Hosts{out.host, b}, Logger: slog.New(slog.DiscardHandler), Tracer: noop.NewTracerProvider().Tracer(""),
		Process: "p1", Harness: "claude", Resume: true})}, b
}

func (b bench) evacuate(t *testing.T) deliver.Evacuation {
	t.Helper()
	out, err := b.deliverer.Evacuate(t.Context(), deliver.HostOrder{Name: "a", Who: "ann", Reason: "it burned"})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestEvacuate_TheItemBeginsAnewElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, other := two(delivertest.World{Unreachable: true})
		b.store.Put(*recorded("c1"))
		if d := b.ask(t, id).Delivery; d.Outcome != dispatch.Waiting || d.Reason != dispatch.ReasonHostUnreachable || len(other.World().Prompts) != 0 {
			t.Fatalf("nothing starts elsewhere by itself: %+v", d)
		}
		if out := b.evacuate(t); !slices.Equal(out.Moved, []string{item}) || out.More || len(out.Busy) != 0 {
			t.Errorf("%+v", out)
		}
		d := b.ask(t, id).Delivery
		if d.Outcome != dispatch.Delivered || d.How != dispatch.HowFresh || d.Host != "b" ||
			!strings.Contains(strings.Join(d.Steps, "\n"), "spawn, fresh") {
			t.Errorf("%+v", d)
		}
		record, _ := b.store.Session(item)
		if record.Host != "b" || !slices.Equal(record.Lineage, []string{"c1"}) || record.ConversationID == "c1" {
			t.Errorf("%+v", record)
		}
		if out := b.evacuate(t); len(out.Moved) != 0 {
			t.Errorf("again: %+v", out)
		}
		// The host comes back with its session alive: it is nobody's any more.
		b.host.Change(func(w *delivertest.World) { *w = live(delivertest.World{Phases: w.Phases}) })
		if d := b.ask(t, "delivery-2").Delivery; d.Outcome != dispatch.Delivered || d.Host != "b" || len(b.host.World().Typed) != 0 {
			t.Errorf("%+v", d)
		}
		b.endsSuperseded(t)
	})
}

// endsSuperseded has the session on host a ended, and nothing else.
func (b bench) endsSuperseded(t *testing.T) {
	t.Helper()
	if _, err := b.deliverer.Stop(t.Context(), deliver.Stop{WorkItem: item, SupersededOn: "b"}); !errors.Is(err, fault.NotFound) {
		t.Errorf("the item's own session: %v", err)
	}
	report, err := b.deliverer.Stop(t.Context(), deliver.Stop{WorkItem: item, SupersededOn: "a"})
	if err != nil || report.Waits || b.host.World().State != session.Dead {
		t.Errorf("%+v, %v, %v", report, err, b.host.World().State)
	}
	haveTheirFields(t, b.store.Events())
	if known, err := b.store.Recorded(t.Context(), item); err != nil || len(known.Left) != 0 || known.Session.Host != "b" {
		t.Errorf("%+v, %v", known, err)
	}
	if _, err := b.deliverer.Stop(t.Context(), deliver.Stop{WorkItem: item, SupersededOn: "a"}); !errors.Is(err, fault.NotFound) {
		t.Errorf("again: %v", err)
	}
}

// What was left behind and ended by itself is told of like what an order ended.
func TestStop_OfWhatWasLeftBehindAndHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := two(dead(delivertest.World{}))
		b.store.Put(*recorded("c1"))
		b.evacuate(t)
		report, err := b.deliverer.Stop(t.Context(), deliver.Stop{WorkItem: item, SupersededOn: "a", Reason: "it is over"})
		if err != nil || !report.Already {
			t.Errorf("%+v, %v", report, err)
		}
		events := b.store.Events()
		last := events[len(events)-1]
		haveTheirFields(t, events)
		if last.Type != dispatch.SessionStopped || last.Fields["host"] != "a" || last.Fields["reason"] != "it is over" || last.Fields["incarnation"] == "" {
			t.Errorf("%+v", last)
		}
	})
}

// What may have been typed on the host that was given up is not typed into the new conversation: a person chooses.
func TestEvacuate_WhatMayHaveArrivedIsNotRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := live(delivertest.World{})
		w.LosesAnswers = true
		b, other := two(w)
		b.store.Put(*recorded("c1"))
		if d := b.ask(t, id).Delivery; d.Outcome != dispatch.Waiting || d.Reason != dispatch.ReasonTmuxNoAnswer {
			t.Fatalf("%+v", d)
		}
		b.host.Change(func(w *delivertest.World) { w.Unreachable = true })
		b.evacuate(t)
		for range 2 {
			if d := b.ask(t, id).Delivery; d.Outcome != dispatch.Unconfirmed || d.Host != "a" || len(other.World().Prompts)+len(other.World().Typed) != 0 {
				t.Errorf("%+v", d)
			}
		}
		if d := b.ask(t, "delivery-2").Delivery; d.Outcome != dispatch.Delivered || d.Host != "b" {
			t.Errorf("%+v", d)
		}
		if d := b.ask(t, id).Delivery; d.Outcome != dispatch.Unconfirmed || len(other.World().Typed) != 0 {
			t.Errorf("once there is another conversation: %+v", d)
		}
	})
}

func TestEvacuate_WaitsForADeliveryThatIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := two(live(delivertest.World{}))
		b.store.Put(*recorded("c1"))
		if _, ok, err := b.store.TakeLease(t.Context(), item, "another run"); !ok || err != nil {
			t.Fatal(ok, err)
		}
		if out := b.evacuate(t); !slices.Equal(out.Busy, []string{item}) || len(out.Moved) != 0 {
			t.Errorf("%+v", out)
		}
		b.store.EndLease(item)
		if out := b.evacuate(t); !slices.Equal(out.Moved, []string{item}) {
			t.Errorf("%+v", out)
		}
	})
}

func TestDrain_ADeadSessionStaysWhereItsConversationIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := dead(delivertest.World{})
		w.Draining = true
		b, other := two(w)
		b.store.Put(*recorded("c1"))
		if d := b.ask(t, id).Delivery; d.Outcome != dispatch.Waiting || d.Reason != dispatch.ReasonHostDraining || d.Remedy == "" || len(other.World().Prompts) != 0 {
			t.Errorf("%+v", d)
		}
		b.host.Change(func(w *delivertest.World) { w.Draining = false })
		if d := b.ask(t, id).Delivery; d.Outcome != dispatch.Delivered || d.How != dispatch.HowResumed {
			t.Errorf("%+v", d)
		}
	})
}

func TestHostOrders_AreRecordedAndTold(t *testing.T) {
	b, _ := two(delivertest.World{})
	ctx, ann := t.Context(), deliver.HostOrder{Name: "a", Who: "ann", Reason: "new disks"}
	for _, do := range []func() (deliver.HostRecord, error){
		func() (deliver.HostRecord, error) { return b.deliverer.Drain(ctx, ann) },
		func() (deliver.HostRecord, error) { return b.deliverer.Undrain(ctx, ann) },
		func() (deliver.HostRecord, error) { return b.deliverer.AcceptHost(ctx, ann) },
		func() (deliver.HostRecord, error) {
			return b.deliverer.AddHost(ctx, deliver.HostOrder{Name: "c"}, "unix:/c.sock")
		},
	} {
		if r, err := do(); err != nil || r.Name == "" {
			t.Errorf("%+v, %v", r, err)
		}
	}
	if err := b.deliverer.ForgetHost(ctx, deliver.HostOrder{Name: "c"}); err != nil {
		t.Error(err)
	}
	if got, want := strings.TrimSpace(b.events()), "host.draining host.undrained host.accepted host.added host.forgotten"; got != want {
		t.Errorf("%q", got)
	}
	haveTheirFields(t, b.store.Events())
	if e := b.store.Events()[0]; e.Fields["host"] != "a" || e.Fields["who"] != "ann" || e.Fields["reason"] != "new disks" {
		t.Errorf("%+v", e)
	}
	b.store.Put(*recorded("c1"))
	if err := b.deliverer.ForgetHost(ctx, ann); !errors.Is(err, fault.Conflict) {
		t.Errorf("a host with a session: %v", err)
	}
	for _, bad := range []deliver.HostOrder{{}, {Name: "a b"}, {Name: strings.Repeat("x", 64)}, {Name: "a", Who: strings.Repeat("x", 101)}} {
		if _, err := b.deliverer.Drain(ctx, bad); !errors.Is(err, fault.Invalid) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	if _, err := b.deliverer.Drain(ctx, deliver.HostOrder{Name: "nobody"}); !errors.Is(err, fault.NotFound) {
		t.Errorf("%v", err)
	}
}
