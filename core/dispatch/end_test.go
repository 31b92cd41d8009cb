package dispatch

import "testing"

func TestEndOf_EndsOnlyTheNamedIncarnationAndNothingOnSilence(t *testing.T) {
	want := map[Probe][2]EndStep{ // another one, the named one
		ProbeNotAsked: {EndWait, EndWait}, ProbeNowhere: {EndWait, EndWait}, ProbeUnreachable: {EndWait, EndWait}, ProbeUnknown: {EndWait, EndWait},
		ProbeLive: {EndLapse, EndTerminate}, ProbeDetached: {EndLapse, EndTerminate}, ProbeForeign: {EndRefuse, EndRefuse},
		ProbeGuests: {EndRefuse, EndRefuse}, ProbeDead: {EndDone, EndDone}, ProbeAbsent: {EndDone, EndDone}, ProbeAbsent + 1: {EndWait, EndWait},
	}
	for p := ProbeNotAsked; p <= ProbeAbsent+1; p++ {
		for i, named := range []bool{false, true} {
			if got := EndOf(p, named); got != want[p][i] {
				t.Errorf("probe %d, named %v: %v, want %v", p, named, got, want[p][i])
			}
		}
	}
}

// TestDecide_NothingIsBegunForASessionThatIsToEnd holds that an order to end a session comes before its events.
func TestDecide_NothingIsBegunForASessionThatIsToEnd(t *testing.T) {
	walk(func(path []Facts, _ Decision) {
		f := path[len(path)-1]
		if f.Registry == RegistryNotAsked || f.Paused || f.Shadow {
			return
		}
		f.Ending = true
		if got := Decide(f); got.Action != Finish || got.Outcome != Waiting || got.Reason != ReasonSessionEnding {
			t.Fatalf("%+v: %+v", f, got)
		}
	})
}
