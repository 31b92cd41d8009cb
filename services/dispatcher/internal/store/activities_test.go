package store

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"muxpost.dev/muxpost/services/dispatcher/internal/deliver"
)

func told(item, stamp string, activity deliver.Activity, since int64) deliver.Told {
	return deliver.Told{WorkItem: item, Stamp: stamp, Doing: deliver.Doing{Activity: activity, Detail: "d", Since: time.Unix(since, 0)}}
}

func TestIdle_AreThoseForWhichNothingWaits(t *testing.T) {
	s, pool := newStore(t)
	record := session()
	begin(t, s, "delivery-1")
	if err := s.Save(t.Context(), take(t, s, "a"), item, deliver.Change{Session: &record}); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(t.Context(), "update dispatcher.deliveries set outcome = 'delivered'"); err != nil {
		t.Fatal(err)
	}
	found := func(want bool, what string) {
		t.Helper()
		got, err := s.Idle(t.Context(), time.Hour, "", 10)
		if err != nil || (len(got) == 1) != want || want && got[0].WorkItem != item {
			t.Errorf("%s: %+v, %v", what, got, err)
		}
	}
	does := func(a deliver.Activity, stamp string, ago time.Duration) {
		t.Helper()
		if err := s.KeepActivities(t.Context(), record.Host, []deliver.Told{told(item, stamp, a, time.Now().Add(-ago).Unix())}, true); err != nil {
			t.Fatal(err)
		}
	}
	stamp := record.Incarnation.Stamp
	found(false, "nothing is known of it")
	does(deliver.Idle, stamp, 2*time.Hour)
	found(true, "idle for long")
	if got, err := s.Idle(t.Context(), time.Hour, item, 10); err != nil || len(got) != 0 {
		t.Errorf("the next page: %+v, %v", got, err)
	}
	does(deliver.Idle, stamp, time.Minute)
	found(false, "idle for a minute")
	does(deliver.Working, stamp, 2*time.Hour)
	found(false, "at work")
	does(deliver.Idle, "another", 2*time.Hour)
	found(false, "another incarnation")
	does(deliver.Idle, stamp, 2*time.Hour)
	for outcome, want := range map[string]bool{"held": false, "waiting": false, "unconfirmed": false, "in_progress": false, "failed": false, "dropped": true} {
		if _, err := pool.Exec(t.Context(), "update dispatcher.deliveries set outcome = $1", outcome); err != nil {
			t.Fatal(err)
		}
		found(want, "a delivery is "+outcome)
	}
}

func TestKeepActivities_AreShownOfTheRecordedIncarnationAndWrittenOnlyWhenTheyChange(t *testing.T) {
	s, pool := newStore(t)
	begin(t, s, "delivery-1")
	record := session()
	// It may be told before the session is recorded.
	keep := func(host string, whole bool, rows ...deliver.Told) {
		t.Helper()
		if err := s.KeepActivities(t.Context(), host, rows, whole); err != nil {
			t.Fatal(err)
		}
	}
	keep("a", true, told(item, "st1", deliver.Working, 7), told("github:o/r#8", "st8", deliver.Idle, 8))
	if err := s.Save(t.Context(), take(t, s, "a"), item, deliver.Change{Session: &record}); err != nil {
		t.Fatal(err)
	}
	shown := func() deliver.Shown {
		t.Helper()
		all, err := s.Shown(t.Context(), deliver.SessionQuery{WorkItem: item, Limit: 10})
		if err != nil || len(all) != 1 {
			t.Fatalf("%+v, %v", all, err)
		}
		return all[0]
	}
	got := shown()
	if got.Doing.Activity != deliver.Working || got.Doing.Detail != "d" || got.Doing.Since.Unix() != 7 || !got.Doing.SeenAt.IsZero() || time.Since(got.ToldAt).Abs() > time.Minute ||
		got.ConversationID != record.ConversationID || got.Directory != record.Directory {
		t.Errorf("%+v", got)
	}
	version := func() (out string) {
		t.Helper()
		if err := pool.QueryRow(t.Context(), "select string_agg(work_item || ' ' || xmin::text, ', ' order by work_item) from dispatcher.activities").Scan(&out); err != nil {
			t.Fatal(err)
		}
		return out
	}
	before := version()
	keep("a", false, told(item, "st1", deliver.Working, 7))
	keep("a", true, told(item, "st1", deliver.Working, 7), told("github:o/r#8", "st8", deliver.Idle, 8))
	if after := version(); after != before {
		t.Errorf("what is known was written again: %s, then %s", before, after)
	}
	keep("a", false, told(item, "st1", deliver.NeedsHuman, 9))
	if got := shown(); got.Doing.Activity != deliver.NeedsHuman || got.Doing.Since.Unix() != 9 {
		t.Errorf("%+v", got)
	}
	for name, row := range map[string]deliver.Told{"another incarnation": told(item, "st2", deliver.Idle, 9), "it ended": told(item, "st1", "", 0)} {
		keep("a", false, told(item, "st1", deliver.Idle, 9))
		keep("a", false, row)
		if got := shown(); got.Doing.Activity != "" || !got.ToldAt.IsZero() {
			t.Errorf("%s: %+v", name, got)
		}
	}
	keep("a", false, told(item, "st1", deliver.Idle, 9))
	keep("b", true) // another host has nothing
	if got := shown(); got.Doing.Activity != deliver.Idle {
		t.Errorf("another host's word took it away: %+v", got)
	}
	keep("a", true)
	if got := shown(); got.Doing.Activity != "" {
		t.Errorf("its host has it no more: %+v", got)
	}
}

func TestKeepActivities_OfAThousandIsOneStatementAndTwoDoNotHinderEachOther(t *testing.T) {
	s, pool := newStore(t)
	var all []deliver.Told
	for n := range 1000 {
		all = append(all, told(fmt.Sprintf("github:o/r#%d", n+1), "st", deliver.Idle, 1))
	}
	done := make(chan error)
	for n := range 2 {
		rows := slices.Clone(all)
		if n == 1 {
			slices.Reverse(rows)
		}
		go func() { done <- s.KeepActivities(t.Context(), "a", rows, true) }()
	}
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	var n int
	if err := pool.QueryRow(t.Context(), "select count(*) from dispatcher.activities").Scan(&n); err != nil || n != 1000 {
		t.Errorf("%d, %v", n, err)
	}
	if strings.Count(keepActivitiesSQL, ";") != 0 {
		t.Error("more than one statement")
	}
}
