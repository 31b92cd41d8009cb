package store

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"muxpost.dev/muxpost/core/dispatch"
	"muxpost.dev/muxpost/services/dispatcher/internal/deliver"
)

func TestPause_ManyAtOnceMakeOne(t *testing.T) {
	s, _ := newStore(t)
	told := deliver.Event{Type: dispatch.DispatchPaused, Fields: map[string]string{"who": "ann"}}
	var made, ended atomic.Int32
	var wait sync.WaitGroup
	for i := range 16 {
		wait.Go(func() {
			p, ok, err := s.Pause(t.Context(), deliver.Pause{Who: fmt.Sprint(i)}, told)
			if err != nil || p.Since.IsZero() || p.Who == "" {
				t.Errorf("%+v, %v", p, err)
			}
			if ok {
				made.Add(1)
			}
		})
	}
	wait.Wait()
	for range 16 {
		wait.Go(func() {
			_, ok, err := s.Unpause(t.Context(), "", deliver.Event{Type: dispatch.DispatchUnpaused})
			if err != nil {
				t.Error(err)
			}
			if ok {
				ended.Add(1)
			}
		})
	}
	wait.Wait()
	if got := events(t, s, deliver.EventQuery{}); made.Load() != 1 || ended.Load() != 1 || len(got) != 2 || got[0].Fields["who"] != "ann" ||
		got[0].WorkItem != "" {
		t.Errorf("made %d, ended %d, events %+v", made.Load(), ended.Load(), got)
	}
}

func TestPauses_AreListedFromAPosition(t *testing.T) {
	s, _ := newStore(t)
	for _, scope := range []string{"github:o/r#2", "", "github:o/r#1"} {
		_, made, err := s.Pause(t.Context(), deliver.Pause{WorkItem: scope}, deliver.Event{Type: dispatch.DispatchPaused})
		if err != nil || !made {
			t.Fatal(made, err)
		}
	}
	all, first := "", "github:o/r#1"
	for _, row := range []struct {
		after *string
		limit int
		want  string
	}{{nil, 9, " github:o/r#1 github:o/r#2"}, {nil, 1, ""}, {&all, 9, "github:o/r#1 github:o/r#2"}, {&first, 9, "github:o/r#2"}} {
		found, err := s.Pauses(t.Context(), deliver.PauseQuery{After: row.after, Limit: row.limit})
		if err != nil {
			t.Fatal(err)
		}
		var items []string
		for _, p := range found {
			items = append(items, p.WorkItem)
		}
		if got := strings.Join(items, " "); got != row.want {
			t.Errorf("%q, want %q", got, row.want)
		}
	}
}

func TestDeliveries_ByOutcome(t *testing.T) {
	s, _ := newStore(t)
	for i, o := range dispatch.Outcomes() {
		d := begin(t, s, fmt.Sprintf("delivery-%d", i))
		d.Outcome = o
		if err := s.Save(t.Context(), take(t, s, "a"), item, deliver.Change{Outcome: &d}); err != nil {
			t.Fatal(err)
		}
	}
	for i, o := range dispatch.Outcomes() {
		got, err := s.Deliveries(t.Context(), deliver.DeliveryQuery{Outcome: &o, WorkItem: item, Limit: 9})
		if err != nil || len(got) != 1 || got[0].ID != fmt.Sprintf("delivery-%d", i) || got[0].Outcome != o {
			t.Errorf("%v: %+v, %v", o, got, err)
		}
	}
}

// TestReopen_ManyAtOnceTellOnce re-opens one delivery from several sides.
func TestReopen_ManyAtOnceTellOnce(t *testing.T) {
	s, _ := newStore(t)
	d := begin(t, s, "delivery-1")
	d.Outcome, d.Reason = dispatch.Dropped, dispatch.ReasonSessionOccupied
	if err := s.Save(t.Context(), take(t, s, "a"), item, deliver.Change{Outcome: &d}); err != nil {
		t.Fatal(err)
	}
	var reopened atomic.Int32
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			again := d
			again.Outcome, again.Reason = dispatch.InProgress, dispatch.ReasonReopened
			ok, err := s.Reopen(t.Context(), &again, deliver.Event{Type: dispatch.DispatchReopened, Fields: map[string]string{"who": "ann"}})
			if err != nil {
				t.Error(err)
			}
			if ok {
				reopened.Add(1)
			}
		})
	}
	wait.Wait()
	got := events(t, s, deliver.EventQuery{DeliveryID: d.ID})
	if reopened.Load() != 1 || len(got) != 2 || got[1].Type != dispatch.DispatchReopened || got[1].Fields["who"] != "ann" ||
		got[1].WorkItem != item {
		t.Errorf("re-opened %d times, events %+v", reopened.Load(), got)
	}
}
