package host

import (
	"testing"
	"time"

	"muxpost.dev/muxpost/core/session"
)

// clocked is a snapshot with a clock that the test moves.
func clocked() (s *snapshot, clock *time.Time) {
	at := time.Unix(1000, 0)
	return newSnapshot(func() time.Time { return at }), &at
}

// served reports whether a reader that allows an hour is served.
func served(s *snapshot, now time.Time) bool {
	_, _, f, mine := s.read("t", now, time.Hour)
	if mine {
		s.land("t", f, mark{})
	}
	return f == nil
}

func TestSnapshot_WhatTurnsIt(t *testing.T) {
	t.Parallel()
	live := Status{Target: "t", State: session.Live, Incarnation: Incarnation{Stamp: "s1"}}
	for name, turn := range map[string]func(*snapshot){
		"a hint, or the end of the server": func(s *snapshot) { s.turn("t") },
		"the end of the agent":             func(s *snapshot) { s.end("t", "s1") },
		"the beginning of an act":          func(s *snapshot) { s.act("t") },
		"the end of an act":                func(s *snapshot) { s.act("t")() },
	} {
		s, now := clocked()
		if !s.keep(s.begin("t"), live, true, true) || !served(s, *now) {
			t.Fatal("it is not served at all")
		}
		turn(s)
		if served(s, *now) {
			t.Errorf("%s: it is served", name)
		}
		s, now = clocked()
		m := s.begin("t")
		turn(s)
		if s.keep(m, live, true, true) || served(s, *now) {
			t.Errorf("%s: a look that began before is kept", name)
		}
	}
}

func TestSnapshot_NothingIsKeptDuringAnAct(t *testing.T) {
	t.Parallel()
	s, now := clocked()
	first, second := s.act("t"), s.act("t")
	first()
	if !s.keep(s.begin("t"), Status{State: session.Live}, true, true) || served(s, *now) {
		t.Error("what was seen during an act is served")
	}
	if !s.ordered("t") {
		t.Error("an end would be taken for nobody's doing")
	}
	second()
	if served(s, *now) || !s.ordered("t") {
		t.Error("just after the act")
	}
	*now = now.Add(actedLately)
	if s.ordered("t") || s.ordered("another") {
		t.Error("an end long after the act would be taken for its doing")
	}
}

func TestSnapshot_AnOlderLookReplacesNoNewerOne(t *testing.T) {
	t.Parallel()
	s, now := clocked()
	slow := s.begin("t")
	*now = now.Add(time.Second)
	quick := s.begin("t")
	s.keep(quick, Status{State: session.Unknown}, true, false) // it failed
	s.keep(slow, Status{State: session.Live}, true, true)
	if served(s, *now) {
		t.Error("the older one is served")
	}
	s.keep(s.begin("t"), Status{State: session.Live}, true, true)
	if _, age, f, _ := s.read("t", now.Add(3*time.Second), 2*time.Second); f == nil {
		t.Errorf("one that is %v old is served", age)
	}
}

func TestSnapshot_RemembersNothingOfWhatIsOnlyAskedAbout(t *testing.T) {
	t.Parallel()
	s, now := clocked()
	_, _, f, _ := s.read("t", *now, 0)
	s.keep(s.begin("t"), Status{State: session.Absent}, false, true)
	s.land("t", f, mark{})
	s.keep(s.begin("u"), Status{State: session.Absent}, false, true)
	s.turn("w")
	if s.hasEnded("x", "s1") || s.hasEnded("t", "") || len(s.entries) != 0 {
		t.Errorf("%d entries", len(s.entries))
	}
}

// A reader that comes between the end of a look and its landing takes part in it: what was turned by then is not for him.
func TestSnapshot_AFlightThatWasTurnedBeforeItLandedIsNoGood(t *testing.T) {
	t.Parallel()
	live := Status{Target: "t", State: session.Live, Incarnation: Incarnation{Stamp: "s1"}}
	for _, turned := range []bool{false, true} {
		s, now := clocked()
		_, _, f, _ := s.read("t", *now, 0)
		m := s.begin("t")
		f.status, f.good = live, s.keep(m, live, true, true)
		if turned {
			s.end("t", "s1")
		}
		if _, _, joined, mine := s.read("t", *now, 0); joined != f || mine {
			t.Fatal("it is not joined")
		}
		s.land("t", f, m)
		if f.good == turned {
			t.Errorf("turned %v: good %v", turned, f.good)
		}
	}
}
