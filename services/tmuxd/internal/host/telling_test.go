package host

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"muxpost.dev/muxpost/core/session"
)

func TestAfter_WhatAProgramToldIsBelievedBeforeTheScreen(t *testing.T) {
	seen := time.Unix(100, 0)
	told := func(a Activity) Doing { return Doing{Activity: a, Since: seen.Add(-time.Second)} }
	old := func(a Activity) Doing { return Doing{Activity: a, Since: seen.Add(-time.Hour)} }
	shows := func(a Activity) Doing { return Doing{Activity: a, SeenAt: seen, Detail: "row"} }
	for _, row := range []struct {
		was, screen Doing
		tells       bool
		want        Activity
		// looks is true when it is known from the screen alone, so that it is looked at again.
		looks bool
	}{
		{told(ActivityWorking), shows(ActivityIdle), true, ActivityWorking, false}, // the screen lags
		{told(ActivityIdle), shows(ActivityWorking), true, ActivityIdle, false},
		{old(ActivityIdle), shows(ActivityWorking), true, ActivityWorking, true}, // it tells no more
		{old(ActivityWorking), shows(ActivityIdle), true, ActivityIdle, true},
		{old(ActivityIdle), shows(ActivityIdle), true, ActivityIdle, false},
		{told(ActivityIdle), shows(ActivityStarting), true, ActivityIdle, false},
		{told(ActivityIdle), shows(ActivityDraft), true, ActivityDraft, true},
		{told(ActivityIdle), shows(ActivityHuman), true, ActivityHuman, true},
		{told(ActivityIdle), shows(ActivityUnclear), true, ActivityUnclear, true},
		{told(ActivityWorking), shows(ActivityUnclear), true, ActivityWorking, false},
		{told(ActivityApproval), shows(ActivityHuman), true, ActivityApproval, false},
		{told(ActivityApproval), shows(ActivityApproval), true, ActivityApproval, false},
		{shows(ActivityDraft), shows(ActivityIdle), true, ActivityIdle, false},
		{told(ActivityStarting), shows(ActivityStarting), true, ActivityStarting, true},
		{told(ActivityStarting), shows(ActivityIdle), true, ActivityIdle, false},
		{Doing{}, shows(ActivityWorking), true, ActivityWorking, false},
		{Doing{}, shows(ActivityWorking), false, ActivityWorking, true},
		{shows(ActivityWorking), shows(ActivityIdle), false, ActivityIdle, true},
	} {
		got := row.was.after(row.screen, row.tells)
		if got.Activity != row.want || got.told() == row.looks {
			t.Errorf("%+v, and then the screen %+v: %+v", row.was, row.screen, got)
		}
		if row.was.Activity == ActivityApproval && row.screen.Activity == ActivityApproval && got.Detail != "row" {
			t.Errorf("what the dialog says is lost: %+v", got)
		}
	}
}

// However often an agent changes what it does, it is told once a second at most, and the last word is always told.
func TestDoes_IsToldOnceASecondAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := New(Config{}, Deps{Now: time.Now})
		h.feed.tell(seenAs("a", session.Live, 1))
		ctx, cancel := context.WithCancel(t.Context())
		var told []Activity
		var at []time.Duration
		began, done := time.Now(), make(chan error)
		go func() {
			done <- h.Follow(ctx, "", func(s Step) error {
				if s.Session != nil {
					told, at = append(told, s.Session.Doing.Activity), append(at, time.Since(began))
				}
				return nil
			})
		}()
		synctest.Wait()
		for n := range 95 { // nearly two seconds
			h.feed.does("a", "s1", Doing{Activity: []Activity{ActivityWorking, ActivityIdle}[n%2]}, false)
			h.feed.does("a", "s1", Doing{Activity: []Activity{ActivityWorking, ActivityIdle}[n%2]}, false) // the same again
			h.feed.does("a", "another", Doing{Activity: ActivityHuman}, false)
			h.feed.does("b", "s1", Doing{Activity: ActivityHuman}, false)
			time.Sleep(20 * time.Millisecond)
			synctest.Wait()
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		cancel()
		<-done
		if len(told) != 4 || told[0] != ActivityUnknown || told[1] != ActivityWorking || told[3] != ActivityWorking {
			t.Errorf("told %v", told)
		}
		for n := 2; n < len(at); n++ {
			if at[n]-at[n-1] < tellEvery {
				t.Errorf("told at %v", at)
			}
		}
		if !slices.IsSorted(at) || h.feed.doing("a").Activity != ActivityWorking {
			t.Errorf("%v, %+v", at, h.feed.doing("a"))
		}
	})
}

func TestDoing_EndsWithTheIncarnation(t *testing.T) {
	for name, over := range map[string]func(f *feed){
		"it died":      func(f *feed) { f.tell(seenAs("a", session.Dead, 2)) },
		"it is gone":   func(f *feed) { f.tell(seenAs("a", session.Absent, 2)) },
		"it may be":    func(f *feed) { f.doubt("a", "s1", time.Unix(2, 0)) },
		"it is silent": func(f *feed) { f.tell(seenAs("a", session.Unknown, 2)) },
		"another one": func(f *feed) {
			s := seenAs("a", session.Live, 2)
			s.Incarnation.Stamp = "s2"
			f.tell(s)
		},
		"not ours": func(f *feed) {
			s := seenAs("a", session.Live, 2)
			s.Flags = session.Foreign
			f.tell(s)
		},
	} {
		f := newFeed("b")
		f.tell(seenAs("a", session.Live, 1))
		f.does("a", "s1", Doing{Activity: ActivityWorking}, false)
		f.tell(seenAs("a", session.Live, 1)) // the same, seen again
		if got := f.doing("a"); got.Activity != ActivityWorking {
			t.Errorf("%s: it was %+v", name, got)
		}
		over(f)
		if got := f.doing("a"); got != (Doing{}) {
			t.Errorf("%s: %+v", name, got)
		}
		f.does("a", "s1", Doing{Activity: ActivityIdle}, false)
		if got := f.doing("a"); got != (Doing{}) {
			t.Errorf("%s: what comes late says %+v", name, got)
		}
	}
}
