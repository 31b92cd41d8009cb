package dispatch

import (
	"reflect"
	"testing"
)

// TestDecide_ShadowDoesNothing holds that on no path of shadow mode anything is done but to look, that nothing ends there but what
// the agent's own record proves, and that what is withheld is what would have been done.
func TestDecide_ShadowDoesNothing(t *testing.T) {
	withheld := map[Action]bool{}
	walk(func(path []Facts, d Decision) {
		f := path[len(path)-1]
		if !f.Shadow {
			return
		}
		if d.Action != Finish {
			if d.Action != LookUp && d.Action != ProbeHost {
				t.Fatalf("%+v: %v", f, d.Action)
			}
			return
		}
		if d.Outcome != Waiting && (d.Outcome != Delivered || d.How != HowAlready) {
			t.Fatalf("%+v ends as %v", f, d.Outcome)
		}
		real := f
		real.Shadow = false
		would := Decide(real)
		if would.Action == CountDeaths {
			// A count is a record of no interest: shadow mode tells what comes of it where nothing speaks against a start.
			real.Starts = StartsAllowed
			would = Decide(real)
		}
		switch {
		case d.Reason != ReasonShadow:
			if !reflect.DeepEqual(d, would) {
				t.Fatalf("%+v: %+v in shadow mode, %+v without", f, d, would)
			}
		case len(d.Withheld) == 0 || !reflect.DeepEqual(d.Withheld[0], would) || len(d.Events) != 0:
			t.Fatalf("%+v: %+v in shadow mode, %+v without", f, d, would)
		}
		for _, w := range d.Withheld {
			withheld[w.Action] = true
		}
	})
	for _, a := range []Action{Adopt, Heal, SpawnResume, SpawnFresh, PasteText, Finish} {
		if !withheld[a] {
			t.Errorf("%v is never withheld", a)
		}
	}
}

func TestDecide_ShadowTellsOfTheActBehindARecord(t *testing.T) {
	d := Decide(Facts{Shadow: true, Registry: NoSession, Probe: ProbeLive})
	if len(d.Withheld) != 2 || d.Withheld[0].Action != Adopt || d.Withheld[1].Action != PasteText {
		t.Errorf("%+v", d)
	}
}

func TestDecide_PausedAsksNobody(t *testing.T) {
	want := Decision{Action: Finish, Outcome: Waiting, Reason: ReasonPaused}
	walk(func(path []Facts, _ Decision) {
		f := path[len(path)-1]
		f.Paused = true
		if got := Decide(f); !reflect.DeepEqual(got, want) {
			t.Fatalf("%+v: %+v", f, got)
		}
	})
}

// TestDecide_WhatTheHostKnowsIsAdoptedAndThenRespawned holds that no first session is started beside a known conversation, and
// that once it is recorded it is one like any other.
func TestDecide_WhatTheHostKnowsIsAdoptedAndThenRespawned(t *testing.T) {
	adopted := 0
	walk(func(path []Facts, d Decision) {
		f := path[len(path)-1]
		if f.Shadow || !f.HostKnows {
			return
		}
		if f.Registry == NoSession {
			if d.Action == SpawnFresh || d.Action == SpawnResume {
				t.Fatalf("%+v: %v before it is recorded", f, d.Action)
			}
			if d.Action == Adopt {
				adopted++
			}
			return
		}
		plain := f
		plain.HostKnows = false
		if got := Decide(plain); !reflect.DeepEqual(got, d) {
			t.Fatalf("%+v: %+v, and %+v for one that was recorded before", f, d, got)
		}
	})
	if adopted == 0 {
		t.Error("nothing is adopted")
	}
}

func TestDecide_ATakenNameStartsAndAsksNothing(t *testing.T) {
	want := Decision{Action: Finish, Outcome: Dropped, Reason: ReasonTargetCollision, Events: []EventType{SessionSpawnFailed, DispatchDropped}}
	if got := Decide(Facts{Registry: NoSession, TargetTaken: true}); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	if got := Decide(Facts{Registry: Recorded, TargetTaken: true}); got.Action != ProbeHost {
		t.Errorf("with a session of its own: %+v", got)
	}
}
