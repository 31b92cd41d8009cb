package delivertest

import (
	"errors"
	"testing"

	"muxpost.dev/muxpost/core/dispatch"
	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/services/dispatcher/internal/deliver"
)

// CheckStore holds a store to the contract of deliver.Store. It needs an empty one.
func CheckStore(t *testing.T, s deliver.Store) {
	t.Helper()
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	const item, id = "github:octo/widget#7", "delivery-1"
	d := deliver.Delivery{ID: id, WorkItem: item, Kind: deliver.Comment, Fingerprint: [32]byte{1}, Asked: 1, Target: "loop-octo-widget-7"}
	for asked := 1; asked <= 2; asked++ {
		got, err := s.Begin(ctx, d, deliver.Event{Type: dispatch.DispatchQueued, WorkItem: item, DeliveryID: id})
		must(err)
		if got.Asked != asked || got.Outcome != dispatch.InProgress {
			t.Errorf("ask %d gives %+v", asked, got)
		}
	}
	other := d
	other.Fingerprint = [32]byte{2}
	if _, err := s.Begin(ctx, other, deliver.Event{}); !errors.Is(err, fault.Conflict) || fault.ReasonOf(err) != fault.ReasonDeliveryMismatch {
		t.Errorf("another event under the id: %v", err)
	}
	if found, got, err := s.Look(ctx, item, id); err != nil || found != nil || got.Asked != 2 {
		t.Errorf("session %+v, delivery %+v, %v", found, got, err)
	}

	first, ok, err := s.TakeLease(ctx, item, "a")
	must(err)
	if _, second, err := s.TakeLease(ctx, item, "b"); !ok || second || err != nil {
		t.Errorf("the lease: first %v, second %v, %v", ok, second, err)
	}
	again, ok, err := s.TakeLease(ctx, item, "a")
	must(err)
	if !ok || again.Token <= first.Token {
		t.Errorf("a holder takes its own again: %v, %+v after %+v", ok, again, first)
	}
	record := deliver.Session{WorkItem: item, Target: "loop-octo-widget-7", Host: "h", Lineage: []string{"c0"}}
	if err := s.Save(ctx, first, item, deliver.Change{Session: &record}); !errors.Is(err, fault.Fenced) {
		t.Errorf("under an older token: %v", err)
	}
	must(s.Save(ctx, again, item, deliver.Change{Session: &record, Events: []deliver.Event{{Type: dispatch.SessionSpawned}}}))
	d.Outcome, d.Reason, d.Steps, d.Asked = dispatch.Waiting, dispatch.ReasonTmuxNoAnswer, []string{"one"}, 2
	must(s.Save(ctx, again, item, deliver.Change{Outcome: &d}))
	if d.UpdatedAt.IsZero() {
		t.Error("the outcome has no time")
	}
	found, got, err := s.Look(ctx, item, id)
	must(err)
	if found == nil || found.Host != "h" || len(found.Lineage) != 1 || got.Outcome != dispatch.Waiting || len(got.Steps) != 1 {
		t.Errorf("session %+v, delivery %+v", found, got)
	}
	if err := s.Save(ctx, again, item, deliver.Change{Outcome: &d}); !errors.Is(err, fault.Fenced) {
		t.Errorf("after the lease was given back: %v", err)
	}

	third, ok, err := s.TakeLease(ctx, item, "b")
	must(err)
	must(s.Release(ctx, item, again))
	if _, early, err := s.TakeLease(ctx, item, "c"); !ok || early || err != nil {
		t.Errorf("an older run gave away a newer one's lease: %v, %v, %v", ok, early, err)
	}
	must(s.Release(ctx, item, third))
	if _, ok, err := s.TakeLease(ctx, item, "c"); !ok || err != nil {
		t.Errorf("after the release: %v, %v", ok, err)
	}
	other = deliver.Delivery{WorkItem: "github:octo/widget#8"}
	l, _, err := s.TakeLease(ctx, other.WorkItem, "a")
	must(err)
	record.WorkItem = other.WorkItem
	if err := s.Save(ctx, l, other.WorkItem, deliver.Change{Session: &record}); fault.ReasonOf(err) != fault.ReasonTargetCollision {
		t.Errorf("two items of one name: %v", err)
	}
}
