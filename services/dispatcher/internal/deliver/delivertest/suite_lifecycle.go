package delivertest

import (
	"errors"
	"slices"
	"testing"
	"time"

	"muxpost.dev/muxpost/core/dispatch"
	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/lease"
	"muxpost.dev/muxpost/services/dispatcher/internal/deliver"
)

// checkDeaths begins and ends with no lease and nothing parked.
func checkDeaths(t *testing.T, s deliver.Store, item string) {
	t.Helper()
	ctx := t.Context()
	l, _, err := s.TakeLease(ctx, item, "a")
	if err != nil {
		t.Fatal(err)
	}
	died := func(stamp string, want int) deliver.Deaths {
		t.Helper()
		got, err := s.Died(ctx, l, item, stamp, time.Hour)
		if err != nil || got.Count != want {
			t.Errorf("%s: %+v, %v; want %d", stamp, got, err, want)
		}
		return got
	}
	save := func(c deliver.Change) {
		t.Helper()
		if err := s.Save(ctx, l, item, c); err != nil {
			t.Fatal(err)
		}
	}
	unpark := func(want bool) deliver.Park {
		t.Helper()
		p, stood, err := s.Unpark(ctx, item, deliver.Event{Type: dispatch.SessionUnparked, WorkItem: item})
		if err != nil || stood != want {
			t.Errorf("unparked: %v, %v; want %v", stood, err, want)
		}
		return p
	}
	died("one", 1)
	died("one", 1) // the same again
	died("", 1)
	if got := died("two", 2); got.Park != nil {
		t.Errorf("%+v", got.Park)
	}
	save(deliver.Change{Ordered: "three"})
	died("three", 2)
	save(deliver.Change{Ordered: "two"})
	died("two", 1)
	unpark(false)

	save(deliver.Change{Park: &deliver.Park{WorkItem: item, Deaths: 1, Within: time.Hour, Detail: "so", Versions: []string{"v1"}}})
	p := died("", 1).Park
	if p == nil || p.Lifted || p.Deaths != 1 || p.Within != time.Hour || p.Detail != "so" || !slices.Equal(p.Versions, []string{"v1"}) || p.Since.IsZero() {
		t.Errorf("%+v", p)
	}
	save(deliver.Change{Park: &deliver.Park{WorkItem: item, Lifted: true, Versions: []string{"v1", "v2"}}})
	if p = died("", 0).Park; p == nil || !p.Lifted || p.Deaths != 1 || len(p.Versions) != 2 {
		t.Errorf("%+v", p)
	}
	unpark(false)
	died("four", 1)
	save(deliver.Change{Park: &deliver.Park{WorkItem: item, Deaths: 1, Within: time.Hour, Versions: p.Versions}})
	if p = died("", 1).Park; p == nil || p.Lifted {
		t.Errorf("parked again: %+v", p)
	}
	if p := unpark(true); p.WorkItem != item || len(p.Versions) != 2 {
		t.Errorf("%+v", p)
	}
	if got := died("", 0); got.Park != nil {
		t.Errorf("%+v", got.Park)
	}
	if _, err := s.Died(ctx, lease.Lease{Token: l.Token - 1}, item, "five", time.Hour); !errors.Is(err, fault.Fenced) {
		t.Errorf("under an older token: %v", err)
	}
	if err := s.Release(ctx, item, l); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Died(ctx, l, item, "five", time.Hour); !errors.Is(err, fault.Fenced) {
		t.Errorf("without the lease: %v", err)
	}
}

// checkEndings begins and ends with no lease, no order that waits and nothing parked.
func checkEndings(t *testing.T, s deliver.Store, d deliver.Delivery) {
	t.Helper()
	ctx, item := t.Context(), d.WorkItem
	l, _, err := s.TakeLease(ctx, item, "a")
	if err != nil {
		t.Fatal(err)
	}
	save := func(c deliver.Change) {
		t.Helper()
		if err := s.Save(ctx, l, item, c); err != nil {
			t.Fatal(err)
		}
	}
	known := func() deliver.Known {
		t.Helper()
		got, err := s.Recorded(ctx, item)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if got := known(); got.Session != nil || got.Ending != nil {
		t.Errorf("%+v", got)
	}
	first := deliver.Ending{WorkItem: item, Stamp: "one", Host: "h", Who: "ann", Reason: "so", Grace: time.Second, Detail: "away"}
	save(deliver.Change{Ending: &first})
	stands := known().Ending
	if stands == nil || stands.Since.IsZero() {
		t.Fatalf("%+v", stands)
	}
	first.Since = stands.Since
	if *stands != first {
		t.Errorf("%+v, want %+v", *stands, first)
	}
	first.Closes, first.Detail = true, "still away"
	save(deliver.Change{Ending: &first})
	if got := known().Ending; got == nil || *got != first {
		t.Errorf("%+v, want %+v", got, first)
	}
	if got, err := s.Look(ctx, item, d.ID); err != nil || got.Ending == nil || got.Ending.Stamp != "one" {
		t.Errorf("%+v, %v", got.Ending, err)
	}
	if all, err := s.Endings(ctx, deliver.EndingQuery{Limit: 9}); err != nil || len(all) != 1 || all[0] != first {
		t.Errorf("%+v, %v", all, err)
	}
	for _, q := range []deliver.EndingQuery{{WorkItem: "github:octo/widget#404", Limit: 9}, {After: item, Limit: 9}} {
		if all, err := s.Endings(ctx, q); err != nil || len(all) != 0 {
			t.Errorf("%+v: %+v, %v", q, all, err)
		}
	}
	save(deliver.Change{Park: &deliver.Park{WorkItem: item, Deaths: 1, Within: time.Hour}})
	closed := deliver.Session{WorkItem: item, Target: "loop-of-its-own", Lineage: []string{"c0"}, Closed: true}
	save(deliver.Change{Session: &closed, EndingOver: true})
	if got := known(); got.Ending != nil || got.Session == nil || !got.Session.Closed || len(got.Session.Lineage) != 1 {
		t.Errorf("%+v", got)
	}
	if got, err := s.Died(ctx, l, item, "", time.Hour); err != nil || got.Park != nil {
		t.Errorf("it is parked still: %+v, %v", got, err)
	}
	save(deliver.Change{EndingOver: true}) // none waits
	save(deliver.Change{Park: &deliver.Park{WorkItem: item, Deaths: 1, Within: time.Hour}})
	save(deliver.Change{Left: true})
	if got, err := s.Died(ctx, l, item, "", time.Hour); err != nil || got.Park != nil {
		t.Errorf("it is parked still: %+v, %v", got, err)
	}
	if err := s.Release(ctx, item, l); err != nil {
		t.Fatal(err)
	}
}
