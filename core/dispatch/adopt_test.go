package dispatch

import "testing"

func TestAdoptOf_OnlyWhatIsProvenOursIsRecorded(t *testing.T) {
	for p := ProbeNotAsked; p <= ProbeAbsent+1; p++ {
		for bits := range 8 {
			recorded, same, knows := bits&1 != 0, bits&2 != 0, bits&4 != 0
			gone := p == ProbeDead || p == ProbeAbsent
			want := AdoptWait
			switch {
			case p == ProbeLive && (!recorded || !same), gone && !recorded && knows:
				want = AdoptRecord
			case p == ProbeLive, gone && recorded:
				want = AdoptAlready
			case gone, p == ProbeNowhere:
				want = AdoptNone
			case p == ProbeForeign, p == ProbeGuests:
				want = AdoptForeign
			case p == ProbeDetached:
				want = AdoptDetached
			}
			if got := AdoptOf(recorded, p, same, knows); got != want {
				t.Errorf("recorded %v, probe %d, same %v, known %v: %v, want %v", recorded, p, same, knows, got, want)
			}
		}
	}
}
