package poll

import (
	"strings"

	"muxpost.dev/muxpost/core/ledger"
)

// marker begins a hidden line in everything that muxpost itself writes upstream.
const marker = "<!-- muxpost"

// The poller's own reasons, beside the ledger's: for settling an event when it comes in, and for ending one afterwards.
const (
	// ReasonOwn: muxpost wrote it.
	ReasonOwn = "own"
	// ReasonBot: a machine wrote it. Two machines that answer each other would never end.
	ReasonBot = "bot"
	// ReasonSuperseded: cancelled, because it was edited upstream before it was delivered, and a later revision is in its place.
	ReasonSuperseded = "superseded"
	// ReasonTypedAgain: settled as unconfirmed, and typed once more under another id by a person's order.
	ReasonTypedAgain = "typed_again"
	// ReasonDone: settled by a person's word, in place of being tried again.
	ReasonDone = "done"
)

// Policy says who may steer. The zero value lets nobody.
type Policy struct {
	// Authors are the logins whose comments and items count, in any case.
	Authors []string
	// TrustLabel lets an item's opening event through whoever wrote the item: putting the label on takes triage rights.
	TrustLabel bool
}

// comment judges a comment by its own author: a reason to settle it, or none.
func (p Policy) comment(c Post) (reason string) {
	switch {
	case strings.Contains(c.Body, marker):
		return ReasonOwn
	case c.Author.Machine:
		return ReasonBot
	case !p.allows(c.Author):
		return ledger.ReasonUnauthorised
	}
	return ""
}

// opening judges an item: a reason to settle its opening event, or none.
func (p Policy) opening(i Item) (reason string) {
	switch {
	case strings.Contains(i.Body, marker):
		return ReasonOwn
	case p.TrustLabel:
		return ""
	case i.Author.Machine:
		return ReasonBot
	case !p.allows(i.Author):
		return ledger.ReasonUnauthorised
	}
	return ""
}

// allows compares names as the provider does. A name that is missing is nobody's.
func (p Policy) allows(a Author) bool {
	if a.Login == "" {
		return false
	}
	for _, name := range p.Authors {
		if strings.EqualFold(name, a.Login) {
			return true
		}
	}
	return false
}

// explain says why an event was settled, for a person.
func explain(reason, login string) string {
	if login == "" {
		login = "an account that is gone"
	}
	switch reason {
	case ReasonOwn:
		return "it carries the mark of muxpost's own posts"
	case ReasonBot:
		return "written by a machine (" + login + "), and machines do not steer agents"
	case ledger.ReasonUnauthorised:
		return login + " is not among the source's authors"
	case ledger.ReasonBaselined:
		return "it was there before the item was first seen"
	}
	return ""
}
