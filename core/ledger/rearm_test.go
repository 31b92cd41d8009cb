package ledger

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"muxpost.dev/muxpost/core/dispatch"
)

func proper(name string) Version { return VersionOf(Build{Program: "poller", Release: name}) }

func TestVersionOf_IsOneNameForAllThatTakePart(t *testing.T) {
	for _, tt := range []struct {
		name   string
		builds []Build
		want   Version
	}{
		{"a release", []Build{{Program: "poller", Release: "v1", Commit: "abc"}}, Version{"poller v1", true}},
		{"a build without a stamp", []Build{{Program: "poller", Commit: "abc"}}, Version{"poller abc", true}},
		{"a dirty build", []Build{{Program: "poller", Release: "v1", Dirty: true}}, Version{"poller v1+dirty", false}},
		{"a dirty build without a stamp", []Build{{Program: "poller", Commit: "abc", Dirty: true}}, Version{"poller abc+dirty", false}},
		{"a build of which nothing is known", []Build{{Program: "poller"}}, Version{"poller unknown", false}},
		{"several, in another order", []Build{{Program: "poller", Release: "v2"}, {Program: "dispatcher", Release: "v1"}},
			Version{"dispatcher v1, poller v2", true}},
		{"several, one of them dirty", []Build{{Program: "poller", Release: "v2"}, {Program: "tmuxd", Commit: "abc", Dirty: true}},
			Version{"poller v2, tmuxd abc+dirty", false}},
		{"none", nil, Version{"", false}},
	} {
		if diff := cmp.Diff(tt.want, VersionOf(tt.builds...)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

// It goes through every state, reason, record and version there can be.
func TestRearm_OnlyAVersionThatHadNoPartRearmsAndOnlyWhatGaveUpOrFoundItsNameOccupied(t *testing.T) {
	records := [][]string{nil, {}, {"poller v1"}, {"poller v1", "poller v2"}, {"poller v2"}, {"poller v1+dirty"}}
	versions := []Version{proper("v1"), proper("v2"), proper("v3"), VersionOf(Build{Program: "poller", Release: "v1", Dirty: true}),
		VersionOf(Build{Program: "poller", Release: "v3", Dirty: true}), VersionOf(Build{Program: "poller"}), VersionOf()}
	rearms := map[State]int{}
	for _, s := range States() {
		for _, reason := range []string{"why", ReasonSessionOccupied} {
			for _, record := range records {
				for _, v := range versions {
					p := Progress{State: s, Tries: 2, Budget: 3, Silences: 2, Reason: reason}
					after, tried, rearmed := Rearm(p, record, v, t0)
					want := (s == GaveUp || s == Dropped && reason == ReasonSessionOccupied) && len(record) > 0 && v.Rearms && !slices.Contains(record, v.Name)
					if rearmed != want {
						t.Errorf("%v (%s) with record %q under %+v: re-armed is %v", s, reason, record, v, rearmed)
					}
					if !rearmed {
						if diff := cmp.Diff(p, after); diff != "" || !slices.Equal(tried, record) {
							t.Errorf("%v (%s) with record %q under %+v was changed: %s, %q", s, reason, record, v, diff, tried)
						}
						continue
					}
					rearms[s]++
					// What was dropped keeps what it has left.
					next := Progress{State: Pending, Budget: 3, NextLook: t0, Reason: ReasonRearmed, Tries: map[State]int{Dropped: 2}[s]}
					if diff := cmp.Diff(next, after); diff != "" {
						t.Errorf("progress (-want +got):\n%s", diff)
					}
					if !slices.Contains(tried, v.Name) || len(tried) != len(record)+1 {
						t.Errorf("the record %q became %q under %s", record, tried, v.Name)
					}
				}
			}
		}
	}
	if rearms[GaveUp] == 0 || rearms[Dropped] == 0 {
		t.Errorf("re-armed: %v", rearms)
	}
}

// TestRearm_VersionsThatTakeTurnsInAnyWaySpendABudgetEachAtMost has replicas of a few versions meet on one event that always fails.
func TestRearm_VersionsThatTakeTurnsInAnyWaySpendABudgetEachAtMost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		versions := make([]Version, rapid.IntRange(1, 4).Draw(t, "versions"))
		for i := range versions {
			versions[i] = proper(fmt.Sprint("v", i))
		}
		p, record, tries, given := Progress{State: Pending, Budget: 3}, []string(nil), 0, map[string]int{}
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			v := rapid.SampledFrom(versions).Draw(t, "version")
			if rapid.Bool().Draw(t, "sees") {
				var rearmed bool
				if p, record, rearmed = Rearm(p, record, v, t0); rearmed {
					given[v.Name]++
				}
			} else if p.State == Pending {
				tries++
				if p = Apply(p, Failing, "r", 0, t0, 0); p.State == GaveUp {
					record = AddVersion(record, v)
				}
			}
		}
		for name, n := range given {
			if n > 1 {
				t.Fatalf("%s re-armed it %d times", name, n)
			}
		}
		if most := 3 * len(versions); tries > most {
			t.Fatalf("%d tries by %d versions", tries, len(versions))
		}
	})
}

func TestCancel_EndsWhatWaitsAndWhatMightBeRearmedAndNothingElse(t *testing.T) {
	for _, s := range States() {
		p := Progress{State: s, Tries: 1, Budget: 3, Reason: "why", NextLook: t0, HeldSince: t0, UnprovenSince: t0}
		want := p
		if s == Pending || s == Held || s == GaveUp {
			want = Progress{State: Cancelled, Tries: 1, Budget: 3, Reason: ReasonDeleted}
		}
		got := Cancel(p)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%v (-want +got):\n%s", s, diff)
		}
		if _, _, rearmed := Rearm(got, []string{"poller v1"}, proper("v2"), t0); rearmed {
			t.Errorf("%v is re-armed after its deletion", s)
		}
	}
}

func TestApply_HeldSinceLastsThroughLooksAndSilenceUntilSomethingElseIsAnswered(t *testing.T) {
	p := Apply(Progress{State: Leased}, Holding, "draft", 0, t0, 0)
	p = Apply(p, Silent, "host_unreachable", 0, t0.Add(HeldLong/2), 0)
	p = Apply(p, Holding, "draft", 0, t0.Add(HeldLong), 0)
	if !p.HeldSince.Equal(t0) {
		t.Errorf("held since %v", p.HeldSince)
	}
	for _, a := range Answers() {
		after := Apply(p, a, "r", 0, t0.Add(HeldLong), 0)
		if keeps := a == Holding || a == Silent; after.HeldSince.IsZero() == keeps {
			t.Errorf("answer %d: held since %v", a, after.HeldSince)
		}
	}
}

func TestPosts_AreToldForWhatNeedsAPerson(t *testing.T) {
	seen := map[Post]bool{}
	for _, s := range States() {
		for _, reason := range []string{"", "draft", ReasonUnconfirmed, ReasonSessionOccupied, ReasonUnauthorised, ReasonBaselined} {
			for _, held := range []bool{false, true} {
				p := Progress{State: s, Reason: reason}
				if held {
					p.HeldSince = t0.Add(-HeldLong)
				}
				var want []Post
				switch {
				case s == GaveUp:
					want = []Post{NoticeGaveUp, ReactionConfused}
				case s == Dropped:
					want = []Post{ReactionConfused}
				case s == Delivered:
					want = []Post{ReactionHooray}
				case s == Settled && reason == ReasonUnconfirmed:
					want = []Post{NoticeUnconfirmed}
				case s == Held && held:
					want = []Post{NoticeHeld}
				}
				got := Posts(p, t0)
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%v, %q (-want +got):\n%s", s, reason, diff)
				}
				for _, post := range got {
					seen[post] = true
				}
			}
		}
	}
	if len(Posts(Progress{State: Held, HeldSince: t0.Add(1 - HeldLong)}, t0)) != 0 {
		t.Error("told too early that it is held")
	}
	for _, post := range AllPosts() {
		// The others are made when something happens, and not by how an event stands.
		if made := slices.Contains([]Post{ReactionEyes, NoticeStarted, PostCommand, PostAnswer}, post); made == seen[post] {
			t.Errorf("%s: told is %v", post, seen[post])
		}
		_, reaction := post.Reaction()
		got := []bool{post.Wanted(false, false), post.Wanted(true, false), post.Wanted(false, true), post.Wanted(true, true)}
		want := []bool{post == PostCommand, !reaction || post == ReactionConfused, reaction || post == PostCommand, true}
		if diff := cmp.Diff(want, got); diff != "" || reaction && post.Notice() {
			t.Errorf("%s (-want +got):\n%s", post, diff)
		}
	}
	if ReasonSessionOccupied != string(dispatch.ReasonSessionOccupied) {
		t.Error("the dispatcher has another word for an occupied session")
	}
}

func TestRepost_EndsAfterAFewRefusalsOrADay(t *testing.T) {
	for name, refused := range map[string]bool{"refused": true, "silent": false} {
		p, now, n := Posting{CreatedAt: t0}, t0, 0
		for again := true; again; n++ {
			var next Posting
			next, wait, more := Repost(p, refused, 0, now)
			if wait < firstRepost || wait > maxRepost {
				t.Fatalf("%s: waits %v", name, wait)
			}
			p, again, now = next, more, now.Add(wait)
		}
		if refused && n != PostTries || !refused && (n < 20 || now.Sub(t0) < PostTime) {
			t.Errorf("%s: ended after %d times and %v", name, n, now.Sub(t0))
		}
	}
	if _, wait, again := Repost(Posting{CreatedAt: t0}, false, 2*maxRepost, t0); wait != 2*maxRepost || !again {
		t.Errorf("a limit of two hours is waited for %v, %v", wait, again)
	}
}
