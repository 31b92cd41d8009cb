package session

import (
	"strings"
)

// Phase is how far a delivery has come at a session.
type Phase uint8

// The phases, in the order in which a pasted delivery passes through them. A first prompt goes from Boot to Taken, and what is handed over
// without typing from Handing to Taken.
const (
	// None means that nothing is recorded.
	None Phase = iota
	// Pasting means that the intent to paste is journalled; whether the act ran is not known.
	Pasting
	// Pasted means that the text was put into the pane and not submitted.
	Pasted
	// Submitted means that the text was submitted; evidence is still to come.
	Submitted
	// Taken means that the agent's own record names the delivery.
	Taken
	// Boot means that the text is the first prompt of an incarnation that was started.
	Boot
	// Handing means that the text is handed to the agent over a channel of its own, or was: whether it has it, the agent is asked.
	Handing
)

var phaseNames = [...]string{
	None: "none", Pasting: "pasting", Pasted: "pasted", Submitted: "submitted", Taken: "taken", Boot: "boot",
	Handing: "handing",
}

// Phases lists every phase, for tests that must cover them all.
func Phases() []Phase { return []Phase{None, Pasting, Pasted, Submitted, Taken, Boot, Handing} }

// String returns the phase's name, as it stands in the ring and the journal.
func (p Phase) String() string {
	if int(p) < len(phaseNames) {
		return phaseNames[p]
	}
	return phaseNames[None]
}

// ParsePhase reads a phase's name; an unknown one is None and false.
func ParsePhase(s string) (Phase, bool) {
	for p, name := range phaseNames {
		if name == s {
			return Phase(p), true
		}
	}
	return None, false
}

// MayHaveArrived reports whether a delivery in this phase may be in the conversation already, so that it must never become a
// first prompt or be typed again without evidence.
func (p Phase) MayHaveArrived() bool {
	return p == Submitted || p == Taken || p == Boot || p == Handing
}

const (
	// RingSize is how many deliveries a session remembers.
	RingSize = 64

	minID = 8
	maxID = 64
)

// ValidDeliveryID reports whether s can be a delivery id: 8 to 64 of a-z, 0-9, - and _, beginning with a letter or digit. The
// alphabet holds nothing that tmux's formats or patterns read as their own.
func ValidDeliveryID(s string) bool {
	if len(s) < minID || len(s) > maxID || s[0] == '-' || s[0] == '_' {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return false
		}
	}
	return true
}

// Ring is the memory of a session: its last deliveries with their phases, oldest first, kept in a session option in the form
// |id=phase|id=phase| that a guard inside tmux can match. The zero value is empty.
type Ring struct {
	entries []ringEntry
}

type ringEntry struct {
	id    string
	phase Phase
}

// ParseRing reads a ring. What cannot be read is left out: a person may have set the option to anything.
func ParseRing(s string) Ring {
	var r Ring
	for part := range strings.SplitSeq(s, "|") {
		id, name, ok := strings.Cut(part, "=")
		phase, known := ParsePhase(name)
		if ok && known && ValidDeliveryID(id) {
			r = r.With(id, phase)
		}
	}
	return r
}

// String returns the ring in the form that ParseRing reads; empty for an empty ring.
func (r Ring) String() string {
	if len(r.entries) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteByte('|')
	for _, e := range r.entries {
		b.WriteString(e.id + "=" + e.phase.String() + "|")
	}
	return b.String()
}

// Phase returns the phase of a delivery, None when the ring does not have it.
func (r Ring) Phase(id string) Phase {
	for _, e := range r.entries {
		if e.id == id {
			return e.phase
		}
	}
	return None
}

// With returns a ring in which the delivery has this phase and is the newest; the oldest is forgotten beyond RingSize.
func (r Ring) With(id string, phase Phase) Ring {
	out := r.Without(id).entries
	out = append(out, ringEntry{id, phase})
	if len(out) > RingSize {
		out = out[len(out)-RingSize:]
	}
	return Ring{out}
}

// Without returns a ring that does not have the delivery.
func (r Ring) Without(id string) Ring {
	out := make([]ringEntry, 0, len(r.entries)+1)
	for _, e := range r.entries {
		if e.id != id {
			out = append(out, e)
		}
	}
	return Ring{out}
}

// Unsubmitted returns the newest delivery whose text was put into the pane and not submitted, or the empty string. While there
// is one, text in the composer is ours.
func (r Ring) Unsubmitted() string {
	for i := len(r.entries) - 1; i >= 0; i-- {
		if r.entries[i].phase == Pasted {
			return r.entries[i].id
		}
	}
	return ""
}

// Mark is the pattern (fnmatch) that matches a ring in which the delivery has this phase.
func Mark(id string, phase Phase) string { return "*|" + id + "=" + phase.String() + "|*" }

// MarkAny is the pattern (fnmatch) that matches a ring that has the delivery in any phase.
func MarkAny(id string) string { return "*|" + id + "=*" }
