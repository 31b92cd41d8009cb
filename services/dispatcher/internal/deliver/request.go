package deliver

import (
	"crypto/sha256"
	"encoding/binary"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/prompt"
	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/core/workitem"
)

const (
	maxNodeID  = 200
	maxHarness = 64
)

// Request is one event on its way to an agent.
type Request struct {
	// DeliveryID is derived from the event: whoever asks again for it gets the same delivery.
	DeliveryID string
	// WorkItem is its reference in any case.
	WorkItem string
	// NodeID is the provider's own id of the item; empty when not known yet.
	NodeID string
	Kind   Kind
	// Text is what the agent shall read, UTF-8, at most prompt.MaxText bytes.
	Text string
	// Harness is for a first session; empty means the configured one.
	Harness string
}

// checked is a request that can be acted on.
type checked struct {
	Request
	ref   workitem.Ref
	clean string
}

// check refuses a request that can never succeed. The errors are fault.Invalid.
func check(r Request) (checked, error) {
	ref, err := workitem.Parse(r.WorkItem)
	if err != nil {
		return checked{}, err
	}
	switch {
	case !session.ValidDeliveryID(r.DeliveryID):
		return checked{}, errDeliveryID()
	case !r.Kind.Valid():
		return checked{}, fault.New(fault.Invalid, fault.ReasonBadArgument, "the kind of event is missing or not known").
			WithRemedy("say one of opened, comment, review, review_comment, state, check and message; or run the same release of poller and dispatcher")
	case len(r.NodeID) > maxNodeID || !printable(r.NodeID):
		return checked{}, fault.Newf(fault.Invalid, fault.ReasonBadArgument,
			"the node id must be at most %d printable ASCII characters without blanks", maxNodeID)
	case len(r.Harness) > maxHarness || !printable(r.Harness):
		return checked{}, fault.Newf(fault.Invalid, fault.ReasonUnknownHarness,
			"the name of a harness has at most %d printable ASCII characters without blanks", maxHarness).
			WithRemedy("name one of the harnesses that the host's Info lists, or none for the configured one")
	}
	clean, _, err := prompt.Clean(r.Text)
	if err != nil {
		return checked{}, err
	}
	r.WorkItem = ref.String()
	return checked{Request: r, ref: ref, clean: clean}, nil
}

func errDeliveryID() error {
	return fault.New(fault.Invalid, fault.ReasonBadDeliveryID,
		"the delivery id must have 8 to 64 characters of a-z, 0-9, - and _, and begin with a letter or digit")
}

func printable(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// fingerprint is of the text as it was sent, not as it was cleaned: what is cleaned away may differ between two releases.
func (c checked) fingerprint() [32]byte {
	h := sha256.New()
	for _, part := range []string{c.WorkItem, string(c.Kind), c.Text} {
		var size [8]byte
		binary.BigEndian.PutUint64(size[:], uint64(len(part)))
		h.Write(size[:])
		h.Write([]byte(part))
	}
	return [32]byte(h.Sum(nil))
}

// validConversationID reports whether an id can stand on a command line: nothing that could be read as a flag or a path.
func validConversationID(id string) bool {
	const maxID = 128
	if id == "" || len(id) > maxID || id[0] == '-' || id[0] == '_' {
		return false
	}
	for i := range len(id) {
		c := id[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && (c < '0' || c > '9') && c != '-' && c != '_' {
			return false
		}
	}
	return true
}
