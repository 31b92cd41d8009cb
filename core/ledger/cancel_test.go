package ledger

import (
	"slices"
	"testing"

	"muxpost.dev/muxpost/core/dispatch"
	"muxpost.dev/muxpost/core/fault"
)

// It goes through every state, with each reason that a wait can have.
func TestCancelByHand_EndsWhatWaitsAndCannotBeInAnAgentsHands(t *testing.T) {
	reasons := []string{"", ReasonRearmed}
	for _, r := range dispatch.Reasons() {
		reasons = append(reasons, string(r))
	}
	for _, r := range fault.Reasons() {
		reasons = append(reasons, string(r))
	}
	for _, doubt := range inDoubt() {
		if doubt != "internal" && !slices.Contains(reasons, doubt) {
			t.Errorf("%s is no reason of anybody's", doubt)
		}
	}
	for _, s := range States() {
		for _, reason := range reasons {
			for _, unproven := range []bool{false, true} {
				p := Progress{State: s, Reason: reason}
				if unproven {
					p.UnprovenSince = t0
				}
				doubt := s == Pending && (unproven || slices.Contains(inDoubt(), reason))
				want := (s == Pending || s == Held || s == GaveUp) && !doubt
				after, done := CancelByHand(p)
				switch {
				case done != want:
					t.Errorf("%v (%s), unproven %v: cancelled is %v", s, reason, unproven, done)
				case !done && after != p:
					t.Errorf("%v (%s) was changed to %+v", s, reason, after)
				case done && (after.State != Cancelled || after.Reason != ReasonByHand || !after.NextLook.IsZero() || after.Rearmable()):
					t.Errorf("%v (%s) became %+v", s, reason, after)
				}
			}
		}
	}
}
