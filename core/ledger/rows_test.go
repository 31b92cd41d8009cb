package ledger

import (
	"testing"
	"time"
)

// TestApply_FailuresAndSilencesBackOffWithinTheirJitter goes through the waits after answered failures, and after silences without end.
func TestApply_FailuresAndSilencesBackOffWithinTheirJitter(t *testing.T) {
	for _, row := range []struct {
		answer Answer
		waits  []time.Duration
	}{
		{Failing, []time.Duration{5 * time.Second, 10 * time.Second}},
		{Silent, []time.Duration{5 * time.Second, 10 * time.Second, 20 * time.Second, 40 * time.Second, time.Minute, time.Minute, time.Minute}},
	} {
		for _, jitter := range []float64{-1, 0, 0.5, 1, 2} {
			p := Progress{State: Leased}
			for i, want := range row.waits {
				p = Apply(p, row.answer, "why", 0, t0, jitter)
				most := want + want/4
				if got := p.NextLook.Sub(t0); p.State != Pending || got < want || got > most || jitter == 0.5 && (got == want || got == most) {
					t.Errorf("answer %d, %d times, jitter %v: %v in %v, want %v to %v", row.answer, i+1, jitter, p.State, got, want, most)
				}
			}
		}
	}
	p := Apply(Progress{State: Leased}, Failing, "why", time.Hour, t0, 0)
	if got := p.NextLook.Sub(t0); got != time.Hour {
		t.Errorf("asked to wait an hour, it waits %v", got)
	}
}
