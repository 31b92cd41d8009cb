package model

import (
	"muxpost.dev/muxpost/core/dispatch"
	"muxpost.dev/muxpost/core/session"
)

// act sends the command list of the stage that the operation is in. It is run and answered; or run and the answer is lost; or it
// stays on its way; or tmuxd is killed once it was sent. done says what follows when the guard let it pass.
func (x *expansion) act(name string, done func(w *world)) {
	e := int(x.from.op.order.event)
	a := x.from.order()
	if x.from.tmux.silent && (a.what != createSession || !x.from.tmux.hidden) {
		x.try("tmux does not answer the list for the "+name, e, none, func(w *world) { w.sent(a); w.unheard() })
	} else {
		x.try("tmux runs the list for the "+name, e, none, func(w *world) { w.heard(w.run(a, false), done) })
		x.try("tmux runs the list for the "+name+", and the answer is lost", e, ActUnheard, func(w *world) {
			w.run(a, false)
			w.unheard()
		})
		if a.what == sendCR {
			x.try("tmux runs the list for the CR, and the agent swallows it", e, Swallow, func(w *world) { w.heard(w.run(a, true), done) })
		}
	}
	if x.from.flight.what != noDeed {
		return
	}
	x.try("the list for the "+name+" gets no answer and stays on its way", e, ActLate, func(w *world) { w.sent(a); w.unheard() })
	x.try("tmuxd is killed, and the list for the "+name+" is on its way", e, HostCrash, func(w *world) { w.sent(a); w.hostCrash() })
}

// order is the act that the operation's stage sends.
func (s *State) order() act {
	o := s.op
	a := act{event: o.order.event, life: o.life, token: o.order.token, from: o.phase, again: o.again}
	switch o.stage {
	case pastes:
		a.what = pasteText
	case submits:
		a.what = sendCR
	case clears:
		a.what = clearDead
	case creates:
		a.what, a.life = createSession, o.made
	}
	if a.what == pasteText || a.what == sendCR {
		a.ring = o.ring // what it writes is this with the phase that it makes
		a.stale = !s.host.own
	}
	return a
}

// sent puts an act on its way, from where it may still run later.
func (w *world) sent(a act) {
	if w.flight.what == noDeed {
		w.flight = a
	}
}

// unheard has the operation find out about an act that got no answer, before anything else.
func (w *world) unheard() {
	switch {
	case w.op.stage == creates:
		w.op.stage = resolvesStart
	case w.m.config.Rules.Generation:
		w.op.stage = resolves
	case w.op.order.kind == spawnOrder:
		w.cleared()
	default:
		w.ends(dispatch.PasteSilent)
	}
}

// heard goes on after an answer.
func (w *world) heard(ran bool, done func(w *world)) {
	switch {
	case ran:
		if w.op.stage == pastes {
			w.op.ring = w.m.rings.with[w.op.ring][w.op.order.event][session.Pasted]
		}
		if w.op.stage == submits {
			w.op.ring = w.m.rings.with[w.op.ring][w.op.order.event][session.Submitted]
		}
		if w.op.stage == creates {
			w.host.own = true
		}
		done(w)
	case w.op.stage == creates:
		w.duplicate()
	case w.op.stage == clears:
		w.cleared()
	default:
		// The answer is certain: what was announced in the journal did not happen. A CR that was repeated was announced before.
		if w.op.phase != session.Submitted {
			w.journal(w.m.rings.phase[w.op.ring][w.op.order.event])
		}
		w.whyNot()
	}
}

// run is what tmux does with a list, without a pause: the guard, the act, the record of it. It reports whether the guard let it pass.
func (w *world) run(a act, swallowed bool) bool {
	if a.what == createSession {
		return w.create(a)
	}
	rules, t := w.m.config.Rules, &w.tmux
	if !t.session || t.life != a.life || a.stale || rules.GuardToken && a.token < t.fence {
		return false
	}
	switch a.what {
	case pasteText:
		blocked := w.m.rings.any[t.ring][a.event]
		if a.again {
			blocked = !w.m.rings.has[t.ring][a.event][session.Pasted]
		}
		if t.dead || rules.GuardPhase && blocked || rules.GuardDraft && w.agent.composer != 0 {
			return false
		}
		t.ring = w.m.rings.with[a.ring][a.event][session.Pasted]
		w.paste(a.event)
	case sendCR:
		if t.dead || !w.agent.ready || rules.GuardPhase && !w.m.rings.has[t.ring][a.event][a.from] ||
			rules.GuardDialog && w.agent.dialog || rules.GuardDraft && w.agent.composer != bit(a.event) {
			return false
		}
		t.ring = w.m.rings.with[a.ring][a.event][session.Submitted]
		w.enter(swallowed)
	case clearDead:
		if rules.GuardDead && !t.dead {
			return false
		}
		if w.agent.alive && w.agent.life == t.life {
			w.breaks(killedLive)
		}
		w.acts(a.token)
		*t = tmux{}
		return true
	}
	w.acts(a.token)
	t.fence = a.token
	return true
}

// paste puts an event's text where the agent reads it. A dialog swallows it.
func (w *world) paste(e uint8) {
	if w.agent.dialog || !w.agent.ready {
		return
	}
	w.typed(e)
	if w.agent.composer&draft != 0 {
		w.breaks(typedOver)
	}
	w.agent.composer |= bit(e)
}

// enter is a CR of ours.
func (w *world) enter(swallowed bool) {
	a := &w.agent
	switch {
	case a.dialog:
		w.breaks(answeredDialog)
	case swallowed:
	case a.composer&draft != 0:
		w.breaks(mergedDraft)
	case a.composer == bit(0)|bit(1):
		w.breaks(mergedEvents)
	default:
		a.queue |= a.composer
		a.composer = 0
	}
}

// create is new-session, and the wrapper in its pane: it starts the harness if its spec is still there.
func (w *world) create(a act) bool {
	if w.tmux.session && !w.tmux.hidden {
		return false
	}
	l := &w.lives[a.life]
	ring := uint8(0)
	if l.prompt != 0 {
		ring = w.m.rings.with[0][l.prompt-1][session.Boot]
	}
	w.tmux = tmux{session: true, life: a.life, of: l.of, ring: ring, fence: a.token, dead: !l.spec}
	w.host.own = false
	if !l.spec {
		return true
	}
	if w.agent.alive {
		w.breaks(doubledAgent)
	}
	// A session whose wrapper finds no spec holds nothing but its remains: only a start counts as an act.
	w.acts(a.token)
	l.spec, l.reached = false, w.m.config.Rules.RecordFirst
	w.agent = agent{alive: true, life: a.life, of: l.of}
	return true
}

// inFlight lets an act that is on its way arrive, or come to nothing.
func (x *expansion) inFlight() {
	a := x.from.flight
	if a.what == noDeed {
		return
	}
	if !x.from.tmux.silent || x.from.tmux.hidden && a.what == createSession {
		x.try("a list that was on its way is run", int(a.event), none, func(w *world) { w.flight = act{}; w.run(a, false) })
	}
	x.try("a list that was on its way is lost", int(a.event), none, func(w *world) { w.flight = act{} })
}
