package host

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"muxpost.dev/muxpost/core/session"
)

func seenAs(target string, state session.State, at int64) Summary {
	return Summary{Status: Status{Target: target, State: state, Incarnation: Incarnation{Stamp: "s1"}}, SeenAt: time.Unix(at, 0)}
}

// text writes a step as a test names it.
func text(s Step) string {
	switch {
	case s.Session != nil:
		return s.Session.Target + " " + s.Session.State.String()
	case s.CaughtUp:
		return "caught up"
	case s.MassDeath != nil:
		return fmt.Sprintf("mass death of %d", s.MassDeath.Sessions)
	}
	return fmt.Sprintf("missed %d", s.Missed)
}

var errEnough = errors.New("enough")

// read follows from a cursor until it was told count steps, and returns them and the last cursor. between is called after each.
func read(t *testing.T, h *Host, cursor string, count int, between func(n int)) (steps []string, last string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	err := h.Follow(ctx, cursor, func(s Step) error {
		steps, last = append(steps, text(s)), s.Cursor
		if between != nil {
			between(len(steps))
		}
		if len(steps) == count {
			return errEnough
		}
		return nil
	})
	if !errors.Is(err, errEnough) {
		t.Fatalf("%v after %q", err, steps)
	}
	return steps, last
}

func expect(t *testing.T, got []string, want ...string) {
	t.Helper()
	if strings.Join(got, ", ") != strings.Join(want, ", ") {
		t.Errorf("told %q, want %q", got, want)
	}
}

func TestFollow_BeginsWithWhatIsKnownAndGoesOnWithWhatChanges(t *testing.T) {
	t.Parallel()
	h := New(Config{}, Deps{Now: time.Now})
	h.feed.tell(seenAs("a", session.Live, 1))
	h.feed.tell(seenAs("b", session.Live, 1))
	h.feed.tell(seenAs("a", session.Dead, 2))
	h.feed.raise(MassDeath{Sessions: 9}) // of the past: it is told to whoever follows, not to whoever begins
	got, _ := read(t, h, "", 4, func(n int) {
		if n == 3 {
			h.feed.tell(seenAs("b", session.Dead, 2))
		}
	})
	expect(t, got, "b live", "a dead", "caught up", "b dead")
}

func TestFollow_TheSameSeenAgainIsNoChange(t *testing.T) {
	t.Parallel()
	h := New(Config{}, Deps{Now: time.Now})
	first, again := seenAs("a", session.Dead, 1), seenAs("a", session.Dead, 2)
	// The same moment, as two readings of a file give it.
	first.Exit = Exit{Known: true, At: time.Unix(7, 0).In(time.FixedZone("", 3600))}
	again.Exit = Exit{Known: true, At: time.Unix(7, 0).In(time.FixedZone("", 3600))}
	h.feed.tell(first)
	_, cursor := read(t, h, "", 2, nil)
	h.feed.tell(again)
	got, _ := read(t, h, cursor, 1, nil)
	expect(t, got, "caught up")
	err := h.Follow(t.Context(), "", func(s Step) error { // whoever begins is told when it was seen last
		if s.Session == nil || !s.Session.SeenAt.Equal(time.Unix(2, 0)) {
			t.Errorf("%+v", s.Session)
		}
		return errEnough
	})
	if !errors.Is(err, errEnough) {
		t.Error(err)
	}
	again.Exit.Code, again.SeenAt = 1, time.Unix(3, 0)
	h.feed.tell(again)
	got, _ = read(t, h, cursor, 2, nil)
	expect(t, got, "a dead", "caught up")
}

func TestFollow_WhatWasSeenEarlierIsPassedOver(t *testing.T) {
	t.Parallel()
	h := New(Config{}, Deps{Now: time.Now})
	h.feed.tell(seenAs("a", session.Live, 1))
	h.feed.doubt("a", "s1", time.Unix(5, 0))
	// A look that began before the process ended, and came to its end after that.
	h.feed.tell(seenAs("a", session.Live, 4))
	if state := h.feed.known["a"].session.State; state != session.Unknown {
		t.Errorf("told as %v", state)
	}
	if ended, at := h.feed.tell(seenAs("a", session.Dead, 6)); !ended || !at.Equal(time.Unix(5, 0)) {
		t.Errorf("the end is not counted, or was at %v", at)
	}
	if ended, _ := h.feed.tell(seenAs("a", session.Absent, 7)); ended {
		t.Error("the end is counted twice")
	}
}

func TestFollow_WhatIsForgottenIsToldToWhoeverFollowsAndToNobodyElse(t *testing.T) {
	t.Parallel()
	h := New(Config{}, Deps{Now: time.Now})
	h.feed.tell(seenAs("a", session.Dead, 1))
	_, cursor := read(t, h, "", 2, nil)
	h.feed.forget(seenAs("a", session.Absent, 2))
	h.feed.forget(seenAs("a", session.Absent, 3))
	h.feed.forget(seenAs("b", session.Absent, 3)) // it was never known
	got, _ := read(t, h, cursor, 2, nil)
	expect(t, got, "a absent", "caught up")
	got, _ = read(t, h, "", 1, nil)
	expect(t, got, "caught up")
	if page, more := h.List("", 10); len(page) != 0 || more || len(h.feed.among(session.Dead, session.Absent)) != 1 {
		t.Errorf("%v", page)
	}
	h.feed.tell(seenAs("a", session.Live, 4))
	if page, _ := h.List("", 10); len(page) != 1 {
		t.Errorf("%v", page)
	}
}

func TestFollow_DoesNotGrowWithWhatWasForgotten(t *testing.T) {
	t.Parallel()
	h := New(Config{}, Deps{Now: time.Now})
	h.feed.tell(seenAs("kept", session.Live, 1))
	_, cursor := read(t, h, "", 2, nil)
	for n := range 10 * maxForgotten {
		target := "t" + strconv.Itoa(n)
		h.feed.tell(seenAs(target, session.Dead, 1))
		h.feed.forget(seenAs(target, session.Absent, 2))
	}
	if n := len(h.feed.known); n != maxForgotten+1 {
		t.Errorf("%d are kept", n)
	}
	got, _ := read(t, h, cursor, 2*maxForgotten+1, nil) // before each of them the change is superseded that told it as dead
	last := "t" + strconv.Itoa(10*maxForgotten-1) + " absent"
	if !strings.HasPrefix(got[0], "missed") || got[len(got)-2] != last || got[len(got)-1] != "caught up" {
		t.Errorf("%q", got)
	}
	// What comes back is no longer one of those.
	h.feed.tell(seenAs("t"+strconv.Itoa(10*maxForgotten-1), session.Live, 3))
	if page, _ := h.List("", 10); len(page) != 2 || len(h.feed.forgotten) != maxForgotten-1 {
		t.Errorf("%d, %d", len(page), len(h.feed.forgotten))
	}
}

func TestFollow_ResumesBehindACursor(t *testing.T) {
	t.Parallel()
	h := New(Config{}, Deps{Now: time.Now})
	h.feed.tell(seenAs("a", session.Live, 1))
	h.feed.tell(seenAs("b", session.Live, 1))
	_, cursor := read(t, h, "", 3, nil)
	h.feed.tell(seenAs("b", session.Dead, 2))
	h.feed.raise(MassDeath{Sessions: 9})
	got, _ := read(t, h, cursor, 3, nil)
	expect(t, got, "b dead", "mass death of 9", "caught up")

	later := New(Config{}, Deps{Now: time.Now}) // the next life of tmuxd
	later.feed.tell(seenAs("c", session.Live, 1))
	got, _ = read(t, later, cursor, 2, nil)
	expect(t, got, "c live", "caught up")
}

func TestList_GoesOnBehindATarget(t *testing.T) {
	t.Parallel()
	h := New(Config{}, Deps{Now: time.Now})
	for _, target := range []string{"c", "a", "d", "b"} {
		h.feed.tell(seenAs(target, session.Live, 1))
	}
	page, more := h.List("", 3)
	if len(page) != 3 || !more || page[0].Target != "a" || page[2].Target != "c" {
		t.Errorf("%v %v", page, more)
	}
	// What comes and goes in between moves nothing.
	h.feed.tell(seenAs("aa", session.Live, 1))
	if page, more = h.List("c", 3); len(page) != 1 || more || page[0].Target != "d" {
		t.Errorf("%v %v", page, more)
	}
	if n := h.Counts(); n != (Counts{Live: 5}) {
		t.Errorf("%+v", n)
	}
}
