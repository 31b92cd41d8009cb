package session

import "strings"

// State is the state of a session.
type State uint8

// The four states. The zero value is the harmless one.
const (
	// Unknown means that nobody answered, or that the answer proves nothing.
	Unknown State = iota
	// Live means that something lives under the session's name: our agent, or an occupant (see the flags).
	Live
	// Dead means that the agent's pane was seen dead and its remains are retained.
	Dead
	// Absent means that the server said so, or that the server's process is proven gone.
	Absent
)

// States lists every state, for tests that must cover them all.
func States() []State { return []State{Unknown, Live, Dead, Absent} }

var stateNames = [...]string{Unknown: "unknown", Live: "live", Dead: "dead", Absent: "absent"}

// String returns the state's name.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return "unknown"
}

// Flags qualify a state. The zero value is no flag.
type Flags uint8

// The flags.
const (
	// Guests, beside Dead: another process lives in the session. It is never pasted into and never cleared.
	Guests Flags = 1 << iota
	// Foreign, beside Live: the session does not carry our stamp for this work item.
	Foreign
	// Detached, beside Live: the session is gone, but the wrapper's process lives. It is never respawned over.
	Detached
	// Moved, beside Live: the recorded pane lives in a session of another name. Nothing is spawned beside it.
	Moved

	allFlags = Guests | Foreign | Detached | Moved
)

// Has reports whether every flag of g is set.
func (f Flags) Has(g Flags) bool { return f&g == g }

// String returns the names of the flags, joined by a comma.
func (f Flags) String() string {
	var names []string
	for _, n := range []struct {
		f    Flags
		name string
	}{{Guests, "guests"}, {Foreign, "foreign"}, {Detached, "detached"}, {Moved, "moved"}} {
		if f.Has(n.f) {
			names = append(names, n.name)
		}
	}
	return strings.Join(names, ",")
}

// Existence answers whether a session exists. It is a question of its own: the session of an unknown state is not gone.
type Existence uint8

// The answers about existence.
const (
	// CannotTell is the answer for Unknown. Nothing that closes, kills or replaces may take it for Gone.
	CannotTell Existence = iota
	// Exists is the answer for Live and Dead.
	Exists
	// Gone is the answer for Absent.
	Gone
)

// Exists says whether there is a session to attach to or to end.
func (s State) Exists() Existence {
	switch s {
	case Live, Dead:
		return Exists
	case Absent:
		return Gone
	}
	return CannotTell
}

// MayBeTalkedTo says whether a guarded paste may be tried. For Unknown it may: the guard decides inside the server.
func (s State) MayBeTalkedTo() bool { return s == Live || s == Unknown }
