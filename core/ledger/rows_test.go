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
		{Failing, []time.Duration{5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute, 30 * time.Minute, time.Hour, time.Hour}},
		{Silent, []time.Duration{5 * time.Second, 10 * time.Second, 20 * time.Second, 40 * time.Second, time.Minute, time.Minute, time.Minute}},
	} {
		for _, jitter := range []float64{-1, 0, 0.5, 1, 2} {
			p := Progress{State: Leased, Budget: 10}
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

// TestApply_EachClassOfAnswersKeepsItsWord asks about an event for a day, as often as it wants to be asked about, and gets one answer all the time.
func TestApply_EachClassOfAnswersKeepsItsWord(t *testing.T) {
	for _, row := range []struct {
		name   string
		answer Answer
		after  time.Duration
		budget int
		ends   State         // Pending: never
		within time.Duration // when it ends, at the latest
		asked  [2]int        // at least and at most
		gap    time.Duration // the longest wait
	}{
		{"arrived", Arrived, 0, 3, Delivered, 0, [2]int{1, 1}, 0},
		{"dropped", Dropping, 0, 3, Dropped, 0, [2]int{1, 1}, 0},
		{"failures", Failing, 0, 3, GaveUp, 45 * time.Second, [2]int{3, 3}, 40 * time.Second},
		{"failures with a large budget", Failing, 0, 10, GaveUp, 6 * time.Hour, [2]int{10, 10}, 75 * time.Minute},
		{"failures that say when", Failing, 10 * time.Second, 3, GaveUp, time.Minute, [2]int{3, 3}, 40 * time.Second},
		{"nobody answers", Silent, 0, 3, Pending, 0, [2]int{1100, 1500}, 75 * time.Second},
		{"a limit that says when", Silent, time.Hour, 3, Pending, 0, [2]int{18, 24}, 75 * time.Minute},
		{"held", Holding, 0, 3, Pending, 0, [2]int{1100, 1500}, 75 * time.Second},
		{"being worked on", Working, 2 * time.Second, 3, Pending, 0, [2]int{43200, 43200}, 2 * time.Second},
		{"unproven", Unproven, 0, 3, Settled, EvidenceTime + 15*time.Second, [2]int{40, 61}, 13 * time.Second},
	} {
		for _, jitter := range []float64{0, 0.3, 1} {
			p, now, asked, gap := Progress{State: Leased, Budget: row.budget}, t0, 0, time.Duration(0)
			for now.Sub(t0) < 24*time.Hour {
				p = Apply(p, row.answer, "why", row.after, now, jitter)
				if asked++; !p.State.Waits() {
					break
				}
				gap, now = max(gap, p.NextLook.Sub(now)), p.NextLook
			}
			switch ended := !p.State.Waits(); {
			case ended != (row.ends != Pending), ended && (p.State != row.ends || now.Sub(t0) > row.within):
				t.Errorf("%s, jitter %v: %v after %v", row.name, jitter, p.State, now.Sub(t0))
			case asked < row.asked[0], asked > row.asked[1], gap > row.gap:
				t.Errorf("%s, jitter %v: asked %d times, the longest wait was %v", row.name, jitter, asked, gap)
			case row.answer != Failing && p.Tries != 0:
				t.Errorf("%s spent %d tries", row.name, p.Tries)
			}
		}
	}
}
