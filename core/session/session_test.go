package session

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// eachSight calls f with every sight there is.
func eachSight(f func(Sight)) {
	bools := []bool{false, true}
	for answer := NoAnswer; answer <= Answered; answer++ {
		for server := ProcessUnclear; server <= ProcessAlive; server++ {
			for pane := PaneUnread; pane <= PaneLost; pane++ {
				for wrapper := ProcessUnclear; wrapper <= ProcessAlive; wrapper++ {
					for _, exists := range bools {
						for _, ours := range bools {
							for _, others := range bools {
								for _, elsewhere := range bools {
									f(Sight{answer, server, exists, ours, pane, others, wrapper, elsewhere})
								}
							}
						}
					}
				}
			}
		}
	}
}

func TestJudge_TableA(t *testing.T) {
	for _, row := range []struct {
		name  string
		sight Sight
		state State
		flags Flags
	}{
		{"nothing was seen", Sight{}, Unknown, 0},
		{"no session of this name", Sight{Answer: Answered, Wrapper: ProcessGone}, Absent, 0},
		{"no server, its process gone", Sight{Answer: NoServer, Server: ProcessGone, Wrapper: ProcessGone}, Absent, 0},
		{"no server, none ever known", Sight{Answer: NoServer, Server: ProcessNone, Wrapper: ProcessNone}, Absent, 0},
		{"no server, its process alive", Sight{Answer: NoServer, Server: ProcessAlive, Wrapper: ProcessNone}, Unknown, 0},
		{"no server, record unreadable", Sight{Answer: NoServer, Wrapper: ProcessNone}, Unknown, 0},
		{"timeout", Sight{Answer: NoAnswer, Server: ProcessGone, Wrapper: ProcessGone}, Unknown, 0},
		{"agent alive", Sight{Answer: Answered, Session: true, Ours: true, Pane: PaneAlive}, Live, 0},
		{"agent dead", Sight{Answer: Answered, Session: true, Ours: true, Pane: PaneDead, Wrapper: ProcessGone}, Dead, 0},
		{"agent dead, guests", Sight{Answer: Answered, Session: true, Ours: true, Pane: PaneDead, OthersLive: true}, Dead, Guests},
		{"respawned pane", Sight{Answer: Answered, Session: true, Ours: true, Pane: PaneLost, OthersLive: true}, Dead, Guests},
		{"no stamp of ours", Sight{Answer: Answered, Session: true, Pane: PaneAlive}, Live, Foreign},
		{"no stamp of ours, dead", Sight{Answer: Answered, Session: true, Pane: PaneDead}, Live, Foreign},
		{"session gone, wrapper alive", Sight{Answer: Answered, Wrapper: ProcessAlive}, Live, Detached},
		{"server gone, wrapper alive", Sight{Answer: NoServer, Server: ProcessGone, Wrapper: ProcessAlive}, Live, Detached},
		{"pane closed, wrapper alive", Sight{Answer: Answered, Session: true, Ours: true, Pane: PaneDead, Wrapper: ProcessAlive}, Live, Detached},
		{"moved", Sight{Answer: Answered, Elsewhere: true, Wrapper: ProcessAlive}, Live, Moved},
		{"moved, a split left behind", Sight{Answer: Answered, Session: true, Ours: true, Pane: PaneLost, OthersLive: true, Elsewhere: true}, Live, Moved},
		{"panes unreadable", Sight{Answer: Answered, Session: true, Ours: true}, Unknown, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			state, flags, why := Judge(row.sight)
			if state != row.state || flags != row.flags {
				t.Errorf("Judge = %v %v (%s), want %v %v", state, flags, why, row.state, row.flags)
			}
		})
	}
}

func TestJudge_SilenceProvesNothing(t *testing.T) {
	eachSight(func(s Sight) {
		state, flags, why := Judge(s)
		if why == "" {
			t.Fatalf("Judge(%+v) gives no reason", s)
		}
		if s.Answer == NoAnswer && state != Unknown {
			t.Errorf("Judge(%+v) = %v without an answer", s, state)
		}
		if state == Absent && (s.Wrapper == ProcessAlive || s.Wrapper == ProcessUnclear) {
			t.Errorf("Judge(%+v) = absent while the agent may live", s)
		}
		if state == Dead && (s.Answer != Answered || !s.Session || !s.Ours || s.Pane == PaneAlive || s.Pane == PaneUnread) {
			t.Errorf("Judge(%+v) = dead without having seen it", s)
		}
		if flags&^allFlags != 0 || flags.Has(Guests) && state != Dead || flags != 0 && flags != Guests && state != Live {
			t.Errorf("Judge(%+v) = %v with flags %v", s, state, flags)
		}
	})
}

func TestPreflight_TableB(t *testing.T) {
	for _, row := range []struct {
		state   State
		flags   Flags
		present bool
		want    Step
	}{
		{Absent, 0, false, Proceed}, {Absent, 0, true, Proceed},
		{Live, 0, false, RefuseLive}, {Live, 0, true, RefuseLive},
		{Live, Foreign, false, RefuseLive}, {Live, Detached, true, RefuseLive}, {Live, Moved, false, RefuseLive},
		{Dead, 0, false, Clear}, {Dead, 0, true, Clear},
		{Dead, Guests, false, RefuseUnclearable}, {Dead, Guests, true, RefuseUnclearable},
		{Unknown, 0, false, Wait}, {Unknown, 0, true, RefuseLive},
	} {
		if got := Preflight(row.state, row.flags, row.present); got != row.want {
			t.Errorf("Preflight(%v, %v, present=%v) = %v, want %v", row.state, row.flags, row.present, got, row.want)
		}
	}
}

func TestPreflight_UnknownNeverKillsAndLiveNeverDies(t *testing.T) {
	for _, state := range States() {
		for flags := Flags(0); flags <= allFlags; flags++ {
			for _, present := range []bool{false, true} {
				if step := Preflight(state, flags, present); step == Clear && (state != Dead || flags.Has(Guests)) {
					t.Errorf("Preflight(%v, %v, %v) kills", state, flags, present)
				}
			}
			if step := AfterClear(state, flags); step == Clear {
				t.Errorf("AfterClear(%v, %v) kills a second time", state, flags)
			} else if step == Proceed && state != Absent {
				t.Errorf("AfterClear(%v, %v) proceeds", state, flags)
			}
		}
	}
}

func TestExists_UnknownIsNotGone(t *testing.T) {
	for state, want := range map[State]Existence{Live: Exists, Dead: Exists, Absent: Gone, Unknown: CannotTell} {
		if got := state.Exists(); got != want {
			t.Errorf("%v.Exists() = %v, want %v", state, got, want)
		}
	}
	for state, want := range map[State]bool{Live: true, Dead: false, Absent: false, Unknown: true} {
		if got := state.MayBeTalkedTo(); got != want {
			t.Errorf("%v.MayBeTalkedTo() = %v, want %v", state, got, want)
		}
	}
}

func TestRing_RemembersTheLastAndReadsBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r Ring
		want := map[string]Phase{}
		n := rapid.IntRange(0, 3*RingSize).Draw(t, "n")
		for i := range n {
			id := fmt.Sprintf("delivery%d", rapid.IntRange(0, 2*RingSize).Draw(t, "id"))
			phase := rapid.SampledFrom(Phases()[1:]).Draw(t, "phase")
			r = r.With(id, phase)
			want[id] = phase
			if r.Phase(id) != phase {
				t.Fatalf("after step %d the newest entry is forgotten", i)
			}
		}
		again := ParseRing(r.String())
		if again.String() != r.String() {
			t.Fatalf("ring %q reads back as %q", r, again)
		}
		if got := strings.Count(r.String(), "="); got != min(len(want), RingSize) {
			t.Fatalf("the ring has %d entries of %d", got, len(want))
		}
		for id, phase := range want {
			if got := again.Phase(id); got != None && got != phase {
				t.Fatalf("%s is %v, want %v", id, got, phase)
			}
		}
	})
}

func FuzzParseRing(f *testing.F) {
	f.Add("|abcdefgh=pasted|ijklmnop=taken|")
	f.Add("||=|a=b|#{x}=pasted|")
	f.Fuzz(func(t *testing.T, s string) {
		r := ParseRing(s)
		if strings.ContainsAny(r.String(), "#{},*?[]\\'\"\n ") {
			t.Fatalf("ring %q holds characters that tmux reads as its own", r)
		}
		if ParseRing(r.String()).String() != r.String() {
			t.Fatalf("ring %q does not read back", r)
		}
	})
}
