package delivertest

import (
	"errors"
	"slices"
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
		got, _, err := s.Begin(ctx, d, deliver.Event{Type: dispatch.DispatchQueued, WorkItem: item, DeliveryID: id})
		must(err)
		if got.Asked != asked || got.Outcome != dispatch.InProgress {
			t.Errorf("ask %d gives %+v", asked, got)
		}
	}
	other := d
	other.Fingerprint = [32]byte{2}
	if _, _, err := s.Begin(ctx, other, deliver.Event{}); !errors.Is(err, fault.Conflict) || fault.ReasonOf(err) != fault.ReasonDeliveryMismatch {
		t.Errorf("another event under the id: %v", err)
	}
	if known, err := s.Look(ctx, item, id); err != nil || known.Session != nil || known.TargetOf != "" || known.Delivery.Asked != 2 {
		t.Errorf("%+v, %v", known, err)
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
	known, err := s.Look(ctx, item, id)
	must(err)
	if found := known.Session; found == nil || found.Host != "h" || len(found.Lineage) != 1 || known.TargetOf != "" ||
		known.Delivery.Outcome != dispatch.Waiting || len(known.Delivery.Steps) != 1 {
		t.Errorf("%+v", known)
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
	other.ID, other.Target, other.Asked = "delivery-2", record.Target, 1
	_, _, err = s.Begin(ctx, other, deliver.Event{Type: dispatch.DispatchQueued})
	must(err)
	if known, err := s.Look(ctx, other.WorkItem, other.ID); err != nil || known.Session != nil || known.TargetOf != item {
		t.Errorf("whose name it is: %+v, %v", known, err)
	}
	must(s.Release(ctx, other.WorkItem, l))
	checkLeave(t, s, item)
	checkHosts(t, s)
	checkPauses(t, s, item)
	checkPostpone(t, s, other)
	checkReopen(t, s, other)
	checkDeaths(t, s, other.WorkItem)
	checkEndings(t, s, other)
}

// checkLeave moves the session of an item away from its host.
func checkLeave(t *testing.T, s deliver.Store, item string) {
	t.Helper()
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	l, _, err := s.TakeLease(ctx, item, "c")
	must(err)
	known, err := s.Recorded(ctx, item)
	must(err)
	record := *known.Session
	record.ConversationID, record.Directory, record.Incarnation.Stamp = "c1", "/d", "st"
	must(s.Save(ctx, l, item, deliver.Change{Session: &record}))
	told := []deliver.Event{{Type: dispatch.SessionSuperseded, WorkItem: item}}
	old := l
	old.Token--
	if err := s.Save(ctx, old, item, deliver.Change{Left: true, Events: told}); !errors.Is(err, fault.Fenced) {
		t.Errorf("under an older token: %v", err)
	}
	if on, err := s.Sessions(ctx, deliver.SessionQuery{Host: "h", Limit: 9}); err != nil || len(on) != 1 {
		t.Errorf("on the host: %+v, %v", on, err)
	}
	must(s.Save(ctx, l, item, deliver.Change{Left: true, Events: told}))
	must(s.Release(ctx, item, l))
	known, err = s.Recorded(ctx, item)
	must(err)
	if r := known.Session; r.Host != "" || r.ConversationID != "" || r.Directory != "" || r.Incarnation.Stamp != "" ||
		!slices.Equal(r.Lineage, []string{"c0", "c1"}) || !slices.Equal(known.Left, []string{"h"}) {
		t.Errorf("%+v", known)
	}
	if on, err := s.Sessions(ctx, deliver.SessionQuery{Host: "h", Limit: 9}); err != nil || len(on) != 0 {
		t.Errorf("on the host: %+v, %v", on, err)
	}
	for _, want := range []bool{true, false} {
		if ended, err := s.EndSuperseded(ctx, item, "h", deliver.Event{Type: dispatch.SessionStopped, WorkItem: item}); ended != want || err != nil {
			t.Errorf("ended: %v, %v, want %v", ended, err, want)
		}
	}
	if known, err = s.Recorded(ctx, item); err != nil || len(known.Left) != 0 {
		t.Errorf("%+v, %v", known, err)
	}
}

// checkHosts leaves no host behind.
func checkHosts(t *testing.T, s deliver.Store) {
	t.Helper()
	ctx, told := t.Context(), deliver.Event{Type: dispatch.HostAdded}
	for i, r := range []deliver.HostRecord{{Name: "b", Address: "x:1"}, {Name: "a", Draining: true, Reason: "r", Who: "w"}, {Name: "b", Address: "x:2", Instance: "i"}} {
		if got, err := s.PutHost(ctx, r, told); err != nil || got.CreatedAt.IsZero() || got.Address != r.Address || got.Instance != r.Instance {
			t.Errorf("%d: %+v, %v", i, got, err)
		}
	}
	all, err := s.Hosts(ctx)
	if err != nil || len(all) != 2 || all[0].Name != "a" || !all[0].Draining || all[0].Who != "w" || all[1].Address != "x:2" {
		t.Errorf("%+v, %v", all, err)
	}
	for _, name := range []string{"a", "b"} {
		if err := s.DropHost(ctx, name, told); err != nil {
			t.Error(err)
		}
	}
	if err := s.DropHost(ctx, "a", told); !errors.Is(err, fault.NotFound) {
		t.Errorf("a host that is gone: %v", err)
	}
}

// checkPauses leaves no pause behind.
func checkPauses(t *testing.T, s deliver.Store, item string) {
	t.Helper()
	ctx := t.Context()
	paused := func() (scopes string) {
		t.Helper()
		d := deliver.Delivery{ID: "asks-for-pauses", WorkItem: item, Kind: deliver.Comment, Fingerprint: [32]byte{9}, Asked: 1, Target: "loop-octo-widget-7"}
		_, all, err := s.Begin(ctx, d, deliver.Event{Type: dispatch.DispatchQueued, WorkItem: item, DeliveryID: d.ID})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range all {
			scopes += "[" + p.WorkItem + " " + p.Reason + "]"
		}
		return scopes
	}
	told := deliver.Event{Type: dispatch.DispatchPaused, WorkItem: item}
	first, made, err := s.Pause(ctx, deliver.Pause{WorkItem: item, Reason: "one", Who: "ann"}, told)
	if err != nil || !made || first.Since.IsZero() || first.Who != "ann" {
		t.Errorf("the first pause: %+v, %v, %v", first, made, err)
	}
	again, made, err := s.Pause(ctx, deliver.Pause{WorkItem: item, Reason: "two"}, told)
	if err != nil || made || !again.Since.Equal(first.Since) || again.Reason != "one" {
		t.Errorf("the same again: %+v, %v, %v", again, made, err)
	}
	if _, made, err := s.Pause(ctx, deliver.Pause{WorkItem: "github:octo/widget#99"}, told); err != nil || !made {
		t.Errorf("another item: %v, %v", made, err)
	}
	if _, made, err := s.Pause(ctx, deliver.Pause{Reason: "every"}, told); err != nil || !made {
		t.Errorf("all: %v, %v", made, err)
	}
	if got := paused(); got != "[ every]["+item+" one]" {
		t.Errorf("paused by %s", got)
	}
	for _, scope := range []string{"", item, "github:octo/widget#99"} {
		if p, stood, err := s.Unpause(ctx, scope, told); err != nil || !stood || p.WorkItem != scope {
			t.Errorf("unpause %q: %+v, %v, %v", scope, p, stood, err)
		}
		if _, stood, err := s.Unpause(ctx, scope, told); err != nil || stood {
			t.Errorf("unpause %q again: %v, %v", scope, stood, err)
		}
	}
	if got := paused(); got != "" {
		t.Errorf("paused by %s in the end", got)
	}
}

// checkPostpone ends with the delivery dropped and no lease.
func checkPostpone(t *testing.T, s deliver.Store, d deliver.Delivery) {
	t.Helper()
	ctx := t.Context()
	postpone := func(want bool) {
		t.Helper()
		d.Outcome, d.Reason, d.Steps = dispatch.Waiting, dispatch.ReasonPaused, []string{"paused"}
		stored, err := s.Postpone(ctx, &d)
		if err != nil || stored != want {
			t.Errorf("postponed %v, %v", stored, err)
		}
		if got, err := s.Delivery(ctx, d.ID); err != nil || (got.Reason == dispatch.ReasonPaused) != want {
			t.Errorf("%+v, %v", got, err)
		}
	}
	l, _, err := s.TakeLease(ctx, d.WorkItem, "a")
	if err != nil {
		t.Fatal(err)
	}
	postpone(false)
	if err := s.Release(ctx, d.WorkItem, l); err != nil {
		t.Fatal(err)
	}
	postpone(true)
	if l, _, err = s.TakeLease(ctx, d.WorkItem, "a"); err != nil {
		t.Fatal(err)
	}
	d.Outcome, d.Reason, d.Remedy = dispatch.Dropped, dispatch.ReasonSessionOccupied, "free it"
	if err := s.Save(ctx, l, d.WorkItem, deliver.Change{Outcome: &d}); err != nil {
		t.Fatal(err)
	}
	postpone(false)
}

func checkReopen(t *testing.T, s deliver.Store, d deliver.Delivery) {
	t.Helper()
	told := deliver.Event{Type: dispatch.DispatchReopened, WorkItem: d.WorkItem, DeliveryID: d.ID}
	for _, want := range []bool{true, false} {
		d.Outcome, d.Reason, d.Detail, d.Remedy, d.Steps = dispatch.InProgress, dispatch.ReasonReopened, "re-opened", "", nil
		reopened, err := s.Reopen(t.Context(), &d, told)
		if err != nil || reopened != want {
			t.Errorf("re-opened %v, %v; want %v", reopened, err, want)
		}
		got, err := s.Delivery(t.Context(), d.ID)
		if err != nil || got.Outcome != dispatch.InProgress || got.Reason != dispatch.ReasonReopened || got.Remedy != "" || len(got.Steps) != 0 {
			t.Errorf("%+v, %v", got, err)
		}
	}
}
