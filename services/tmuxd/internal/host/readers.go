package host

import (
	"context"
	"slices"

	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/core/workitem"
)

// Lister is the part of Tmux that tells names.
type Lister interface {
	// Names returns the names of the sessions on the target's server, and reads nothing else there.
	Names(ctx context.Context, target string) ([]string, error)
}

// Presence says whether there is a session of a name.
type Presence struct {
	Target    string
	Existence session.Existence
	// Detail is one line for a person: what this stands on.
	Detail string
}

// Exists says whether there is a session of the item's name: alive or dead, ours or not. It asks for names and reads no panes, so it cannot
// tell whose the session is. Where an agent lives on without its session, or in one of another name, the answer is yes as well, and the detail
// says so: whoever closes on a no would leave it running.
func (h *Host) Exists(ctx context.Context, item workitem.Ref) Presence {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	s := sight{item: item, target: item.Target()}
	seen := session.Sight{Wrapper: session.ProcessNone} // whether the agent outlived its session is another question
	var err error
	if s.memory, s.known, err = h.Disk.Recall(s.target); err == nil {
		seen.Server = session.ProcessNone
	}
	h.dial(ctx, &s, &seen)
	if seen.Answer == session.Answered {
		var names []string
		if names, err = h.Tmux.Names(ctx, s.target); err != nil {
			seen.Answer = session.NoAnswer
		}
		if slices.Contains(names, s.target) {
			return Presence{Target: s.target, Existence: session.Exists, Detail: "the tmux server has a session of this name"}
		}
	}
	state, _, why := session.Judge(seen)
	out := Presence{Target: s.target, Existence: state.Exists(), Detail: why}
	switch {
	case out.Existence == session.CannotTell && err != nil:
		out.Detail = err.Error()
	case out.Existence == session.Gone && h.runs(s.memory):
		out.Existence = session.Exists
		out.Detail += "; but its agent's process lives on, without a session or in one of another name"
	}
	return out
}

// runs says whether the wrapper of the remembered incarnation is known to live.
func (h *Host) runs(m Memory) bool {
	if m.Stamp == "" {
		return false
	}
	ran, err := h.Disk.Ran(m.Target, m.Stamp)
	return err == nil && ran.Process == session.ProcessAlive
}

// MayTalk says whether a delivery may be tried at the session, and what is known of it. One that does not answer may be talked to: a guarded
// paste is tried there, and types nothing where it must not.
func (h *Host) MayTalk(ctx context.Context, item workitem.Ref) (st Status, may bool, err error) {
	st, err = h.State(ctx, item, "")
	return st, err == nil && st.State.MayBeTalkedTo(), err
}
