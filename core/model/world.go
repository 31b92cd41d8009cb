package model

import (
	"muxpost.dev/muxpost/core/session"
)

// Model is the system under one configuration.
type Model struct {
	config Config
	rings  *rings
	// restores is true when the database may be restored.
	restores bool
}

// New returns a model.
func New(c Config) *Model {
	return &Model{config: c, rings: newRings(), restores: c.Limits[Restore] > 0}
}

// first is the state in which nothing has happened yet.
func (m *Model) first() State {
	s := State{host: host{greeted: true}, faults: uint8(m.config.Faults)}
	for f, n := range m.config.Limits {
		s.left[f] = uint8(min(n, m.config.Faults))
	}
	return s
}

// world is a state that a step is changing.
type world struct {
	State
	m      *Model
	broken string
}

func (w *world) breaks(promise string) {
	if w.broken == "" {
		w.broken = promise
	}
}

// steps yields every step out of a state.
func (m *Model) steps(from *State, yield func(*step[State])) {
	x := expansion{m: m, from: from, yield: yield}
	x.poller()
	x.dispatchers()
	x.host()
	x.inFlight()
	x.agent()
	x.person()
	x.database()
}

// expansion finds the steps out of one state.
type expansion struct {
	m     *Model
	from  *State
	yield func(*step[State])
	w     world
	out   step[State]
}

// try yields the step that do makes, if the fault that it needs may still strike.
func (x *expansion) try(what string, event int, f Fault, do func(w *world)) {
	if f != none && x.from.left[f] == 0 {
		return
	}
	x.w = world{State: *x.from, m: x.m}
	if f != none {
		x.w.left[f]--
		x.w.faults--
		for k, n := range x.w.left {
			x.w.left[k] = min(n, x.w.faults)
		}
	}
	do(&x.w)
	x.w.tidy(x.m)
	if x.w.State == *x.from {
		return
	}
	x.out = step[State]{what: what, event: event, fault: f, to: &x.w.State, broken: x.w.broken}
	x.yield(&x.out)
}

// sight is one look of the host at the session.
type sight struct {
	state session.State
	flags session.Flags
	pane  bool // there is a pane of ours, and what follows is its
	life  uint8
	of    uint8
	ring  uint8
	fence uint8
}

// look is what the host sees of the session: core/session judges it.
func (w *world) look() sight {
	var seen session.Sight
	var s sight
	switch {
	case !w.tmux.session:
		seen.Answer, seen.Server = session.NoServer, session.ProcessGone
	case w.tmux.hidden:
		seen.Answer, seen.Server = session.NoServer, session.ProcessAlive
	case w.tmux.silent:
		seen.Answer, seen.Server = session.NoAnswer, session.ProcessAlive
	default:
		seen.Answer, seen.Server, seen.Session, seen.Ours, seen.Pane = session.Answered, session.ProcessAlive, true, true, session.PaneAlive
		if w.tmux.dead {
			seen.Pane = session.PaneDead
		}
		s = sight{pane: true, life: w.tmux.life, of: w.tmux.of, ring: w.tmux.ring, fence: w.tmux.fence}
	}
	seen.Wrapper = session.ProcessGone
	if w.runsStill(s.life) || w.runsStill(w.host.life) && (!s.pane || w.m.config.Rules.AskBoth) {
		seen.Wrapper = session.ProcessAlive
	}
	s.state, s.flags, _ = w.m.config.Core.Judge(seen)
	return s
}

// phase is how far a delivery has come at the session, as the host finds out: the ring of a living session first, then the journal,
// corrected by the agent's own transcript.
func (w *world) phase(s sight, e uint8) session.Phase {
	if s.pane && s.state == session.Live {
		if p := w.m.rings.phase[s.ring][e]; p != session.None {
			return p
		}
	}
	last := w.host.journal[e]
	if !w.m.config.Rules.Journal {
		return session.None
	}
	if s.state == session.Live && s.pane && last.life == s.life && last.phase == session.Pasting {
		return session.None
	}
	return w.settled(s, e, last)
}

// settled corrects what the journal says of an incarnation that is over, or that cannot be asked: what may have arrived and cannot be
// looked up stays so.
func (w *world) settled(s sight, e uint8, last entry) session.Phase {
	known := s.state != session.Unknown
	switch last.phase {
	case session.None, session.Taken:
		return last.phase
	case session.Boot:
		if known && !w.reached(last.life) {
			return session.None
		}
	case session.Pasting, session.Pasted:
		if !w.m.config.Rules.EvidenceOfPasted {
			return last.phase
		}
	case session.Submitted:
	}
	switch {
	case w.proof(e):
		return session.Taken
	case known && !w.m.config.NoTranscript:
		return session.None
	case last.phase == session.Boot:
		return session.Boot
	}
	return session.Submitted
}

// runsStill reports whether the process of an incarnation lives.
func (w *world) runsStill(life uint8) bool { return life != 0 && w.agent.alive && w.agent.life == life }

// reached reports whether the wrapper's record says that the harness was started, or its process may still start it.
func (w *world) reached(life uint8) bool {
	return w.lives[life].reached || w.runsStill(life)
}

// proof reports whether a transcript has the event, where they can be read: any, because a person may have begun another conversation.
func (w *world) proof(e uint8) bool {
	if w.m.config.NoTranscript {
		return false
	}
	for c := range w.taken {
		if w.taken[c][e] > 0 {
			return true
		}
	}
	return false
}

// acts notes that something was changed under a token.
func (w *world) acts(token uint8) {
	if token < w.acted {
		w.breaks(olderToken)
	}
	w.acted = max(w.acted, token)
}

// typed notes that the text of an event was put into the agent: into its composer, or as its first prompt.
func (w *world) typed(e uint8) {
	a := &w.agent
	if a.composer&bit(e) != 0 || a.queue&bit(e) != 0 || w.taken[a.of][e] > 0 {
		w.breaks(typedTwice)
	}
}
