package model

import (
	"muxpost.dev/muxpost/core/dispatch"
	"muxpost.dev/muxpost/core/session"
)

// acceptSpawn answers for an earlier spawn of the same delivery, refuses a first prompt that may have arrived, and looks what the
// name permits.
func (w *world) acceptSpawn(s sight) {
	o := w.op.order
	if o.prompt {
		if p := w.m.rings.phase[s.ring][o.event]; s.state == session.Live && s.flags == 0 && p != session.None {
			w.endsSpawn(started(p), s.life, s.of)
			return
		}
		if w.op.phase.MayHaveArrived() {
			w.endsSpawn(dispatch.SpawnSilent, 0, 0)
			return
		}
	}
	w.preflight(s, false)
}

func started(p session.Phase) dispatch.Spawn {
	if p == session.Taken {
		return dispatch.SpawnTaken
	}
	return dispatch.SpawnStarted
}

// preflight does what core/session permits.
func (w *world) preflight(s sight, present bool) {
	w.op.life = s.life
	switch w.m.config.Core.Preflight(s.state, s.flags, present) {
	case session.Clear:
		if w.op.kills > 0 {
			// Other remains than those that were cleared: one order clears once.
			v := dispatch.SpawnUnclearable
			if w.m.config.Rules.ClearAgain {
				v = dispatch.SpawnSilent
			}
			w.endsSpawn(v, 0, 0)
			return
		}
		w.op.kills++
		w.op.stage = clears
	case session.Proceed:
		w.prepare()
	case session.RefuseLive:
		w.occupied(s)
	case session.RefuseUnclearable:
		w.endsSpawn(dispatch.SpawnUnclearable, 0, 0)
	case session.Wait:
		w.endsSpawn(dispatch.SpawnSilent, 0, 0)
	}
}

func (w *world) occupied(s sight) {
	life := s.life
	if !s.pane {
		life = w.host.life
	}
	w.endsSpawn(dispatch.SpawnOccupied, life, 0)
}

// cleared looks again after a clearing, whatever that said of itself.
func (w *world) cleared() {
	s := w.look()
	switch w.m.config.Core.AfterClear(s.state, s.flags) {
	case session.Proceed:
		w.prepare()
	case session.RefuseLive:
		w.occupied(s)
	case session.RefuseUnclearable:
		v := dispatch.SpawnUnclearable
		if s.life != w.op.life && w.m.config.Rules.ClearAgain {
			v = dispatch.SpawnSilent
		}
		w.endsSpawn(v, 0, 0)
	case session.Wait, session.Clear:
		w.endsSpawn(dispatch.SpawnSilent, 0, 0)
	}
}

// prepare writes everything that a start needs to the disk: the journal first.
func (w *world) prepare() {
	o, rules := w.op.order, w.m.config.Rules
	if rules.AwaitServer && w.tmux.hidden {
		w.endsSpawn(dispatch.SpawnSilent, 0, 0)
		return
	}
	made := uint8(fresh)
	l := life{spec: true, of: o.conversation}
	if l.of == 0 {
		l.of = fresh
	}
	w.op.made, w.op.life, w.op.of = made, made, l.of
	if o.prompt {
		l.prompt = o.event + 1
		w.op.ring = w.m.rings.with[0][o.event][session.Boot]
		w.journal(session.Boot)
	}
	w.lives[made] = l
	w.host.life, w.host.of, w.host.token = made, l.of, o.token
	w.op.news++
	w.op.stage = creates
}

// duplicate goes on after tmux said that the session exists: the start is taken back, and one more is tried if the name permits it.
func (w *world) duplicate() {
	w.lives[w.op.made].spec = false
	if w.op.news == 2 {
		w.endsSpawn(dispatch.SpawnFailed, 0, 0)
		return
	}
	w.preflight(w.look(), true)
}

// resolvesStart settles a start that got no answer: taken back it comes to nothing; if the wrapper was quicker, it is found.
func (w *world) resolvesStart() {
	made := w.op.made
	if w.lives[made].spec {
		w.lives[made].spec = false
		w.endsSpawn(dispatch.SpawnSilent, 0, 0)
		return
	}
	w.host.own = false
	if s := w.look(); s.state == session.Live && s.pane && s.life == made {
		w.op.stage = watches
		return
	}
	w.endsSpawn(dispatch.SpawnSilent, 0, 0)
}

// watch looks after a start for its survival window.
func (x *expansion) watch() {
	e := int(x.from.op.order.event)
	x.try("the host looks what became of the start", e, none, func(w *world) {
		made, of := w.op.made, w.op.of
		switch {
		case !w.agent.alive || w.agent.life != made:
			w.endsSpawn(dispatch.SpawnDied, 0, 0)
		case w.op.order.prompt && w.proof(uint8(e)):
			w.op.stage = recordsPrompt
		default:
			w.endsSpawn(dispatch.SpawnStarted, made, of)
		}
	})
}

func (w *world) recordsPrompt() {
	w.journal(session.Taken)
	w.ring(0, session.Boot)
	w.endsSpawn(dispatch.SpawnTaken, w.op.made, w.op.of)
}
