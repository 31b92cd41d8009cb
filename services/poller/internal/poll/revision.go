package poll

import (
	"slices"
	"strings"

	"muxpost.dev/muxpost/core/ledger"
	"muxpost.dev/muxpost/core/prompt"
)

// IsPost reports whether events of a kind are about something that was written, and can be edited and deleted.
func IsPost(kind string) bool { return slices.Contains(PostKinds(), kind) }

// PostKinds returns the kinds of events about something that was written.
func PostKinds() []string { return []string{KindComment, KindReview, KindReviewComment} }

// ObjectOf returns a natural key without its revision: what all revisions of an object share. It is empty for what is never edited.
func ObjectOf(k ledger.Key) string {
	if !IsPost(k.Kind) {
		return ""
	}
	k.Revision = ""
	return strings.TrimSuffix(k.String(), "|")
}

// revisionOf returns the revision of a comment: of the words in it that an agent would read. Blanks, line ends and what does not show
// make no other one. Were this to change, every comment that is known would seem to be edited.
func revisionOf(body string) string {
	const nonce = "revision"
	_, body, _ = strings.Cut(prompt.Render(prompt.Event{Body: body}, nonce), "-----"+nonce+"-----\n")
	// What is empty or too large once it is clean has no words that could be told apart.
	clean, _, _ := prompt.Clean(body)
	return ledger.Revision(strings.Join(strings.Fields(clean), " "))
}

// Earlier is an earlier revision of an object that is seen to say something else now.
type Earlier struct {
	State  ledger.State
	Reason string
	// Silent is true while the dispatcher was asked to deliver it and what came of that is not known.
	Silent bool
	// Edited is true when its own text says that it is an edit.
	Edited bool
}

// Edited reports whether an agent may know an earlier revision, so that the new one must say that it is an edit. Otherwise it takes
// the place of the earlier ones, as if it had been written so.
func Edited(earlier []Earlier) bool {
	return slices.ContainsFunc(earlier, func(e Earlier) bool {
		switch e.State {
		case ledger.Delivered, ledger.Leased:
			return true
		case ledger.Pending:
			// An answer that did not end it may be of a run that has it in its hands.
			return e.Edited || e.Silent || e.Reason != "" && e.Reason != ledger.ReasonRearmed
		case ledger.Settled:
			// The thread of the opening event had it, or a digest that is not taken back, or it was typed.
			return slices.Contains([]string{ledger.ReasonBaselined, ledger.ReasonUnconfirmed, ledger.ReasonCoalesced, ReasonTypedAgain, ReasonDone}, e.Reason)
		case ledger.Held, ledger.Dropped, ledger.GaveUp, ledger.Cancelled:
		}
		return e.Edited || e.Silent
	})
}

// Supersede returns the progress of an event once a later revision of its object is known, by the rule for one that was deleted: only
// what has not ended is cancelled, and what is being delivered is judged by its outcome.
func Supersede(p ledger.Progress) ledger.Progress {
	after := ledger.Cancel(p)
	if after.State == ledger.Cancelled && p.State != ledger.Cancelled {
		after.Reason = ReasonSuperseded
	}
	return after
}
