package ledger

import "slices"

// Cancel returns the progress of an event whose object was deleted upstream. One that waits, or gave up and might be re-armed, is
// cancelled for good; one that is being delivered is judged by its outcome, and one that has ended stays what it is.
func Cancel(p Progress) Progress {
	if p.State == Pending || p.State == Held || p.State == GaveUp {
		return p.end(Cancelled, ReasonDeleted)
	}
	return p
}

// CancelByHand returns the progress of an event that a person cancels, by the rule for one that was deleted. It is false for one that stays what
// it is: one that has ended otherwise, and one that may be in an agent's hands, because who cancels it wants it not to be there.
func CancelByHand(p Progress) (Progress, bool) {
	if p.InHands() {
		return p, false
	}
	after := Cancel(p)
	if after.State != Cancelled || p.State == Cancelled {
		return p, false
	}
	after.Reason = ReasonByHand
	return after, true
}

// inDoubt are the reasons of answers that leave open whether the event was typed, or say that an agent was started with it.
func inDoubt() []string {
	return []string{"starting", "spawn_no_answer", "tmux_no_answer", "lease_held", "deadline", "dispatcher_unreachable", "internal"}
}

// InHands reports whether the last thing that is known of an event is that it may be in an agent's hands: it is being delivered, it was typed and
// is not proven, or who was asked about it did not say what became of it.
func (p Progress) InHands() bool {
	return p.State == Leased || p.State == Pending && (!p.UnprovenSince.IsZero() || slices.Contains(inDoubt(), p.Reason))
}
