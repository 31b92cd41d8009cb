package model

import (
	"muxpost.dev/muxpost/core/dispatch"
	"muxpost.dev/muxpost/core/session"
)

// stage is what the host's mutation does next. One mutation of a session is under way at a time.
type stage uint8

const (
	idle stage = iota
	// Of both: the generation is made ours before the first look, and a list that got no answer is resolved.
	takesOver
	resolves
	// Of a paste.
	looksAtComposer
	pastes
	notesPasted
	waitsForText
	looksAgain
	submits
	settles
	records
	// Of a spawn.
	clears
	creates
	resolvesStart
	watches
	recordsPrompt
)

// host takes the next order, goes on with the one under way, or is killed.
func (x *expansion) host() {
	s := x.from
	x.try("tmuxd is killed and starts again", -1, HostCrash, func(w *world) { w.hostCrash() })
	if s.op.stage != idle {
		x.operation()
		return
	}
	for i := range s.runs {
		if s.runs[i].request.kind != nothing {
			x.try("the host takes an order", int(s.runs[i].event), none, func(w *world) {
				order := w.runs[i].request
				w.runs[i].request = request{}
				w.accept(order, uint8(i+1))
			})
		}
	}
	if s.late.kind != nothing {
		x.try("the host takes an order that nobody waits for", int(s.late.event), none, func(w *world) {
			order := w.late
			w.late = request{}
			w.accept(order, 0)
		})
		x.try("an order that nobody waits for is lost", int(s.late.event), none, func(w *world) { w.late = request{} })
	}
}

// hostCrash forgets what is in memory. A run that waits hears that the connection broke.
func (w *world) hostCrash() {
	from := w.op.from
	spawn := w.op.order.kind == spawnOrder
	busy := w.op.stage != idle
	w.op, w.host.own = op{}, false
	if !busy || from == 0 {
		return
	}
	if spawn {
		w.hearSpawn(from-1, dispatch.SpawnSilent, 0, 0)
		return
	}
	w.hearPaste(from-1, dispatch.PasteSilent)
}

// accept begins with an order: the generation of the server is made ours, and then the host looks.
func (w *world) accept(order request, from uint8) {
	w.op = op{stage: takesOver, order: order, from: from}
	if !w.tmux.session || w.tmux.silent || w.host.own {
		w.takes()
		return
	}
	if !w.m.config.Rules.LookAfterOwning {
		s := w.look()
		w.op.life, w.op.of, w.op.ring = s.life, s.of, s.ring
		w.op.phase = w.phase(s, order.event)
	}
}

// takesOver makes the generation ours: whatever an earlier life of tmuxd sent is refused from here on, and what it did is in the look.
func (w *world) takesOver() {
	switch {
	case !w.owns():
		w.silent()
	case !w.m.config.Rules.LookAfterOwning && w.op.order.kind == pasteOrder && !w.tmux.dead:
		w.goesOn()
	default:
		w.takes()
	}
}

// takes looks, fences, and decides by state and phase what is to be done.
func (w *world) takes() {
	s, order, rules := w.look(), w.op.order, w.m.config.Rules
	if order.token < max(w.host.token, s.fence) && rules.GuardToken {
		w.fenced()
		return
	}
	if w.m.restores {
		w.host.highest = max(w.host.highest, order.token)
	}
	if rules.RememberToken {
		w.host.token = max(w.host.token, order.token)
	}
	w.op.life, w.op.of, w.op.ring = s.life, s.of, s.ring
	w.op.phase = w.phase(s, order.event)
	if order.kind == pasteOrder {
		w.acceptPaste(s)
		return
	}
	if rules.RevokeOld {
		w.lives[w.host.life].spec = false
	}
	w.acceptSpawn(s)
}

// silent answers that tmux did not.
func (w *world) silent() {
	if w.op.order.kind == pasteOrder {
		w.ends(dispatch.PasteSilent)
		return
	}
	w.endsSpawn(dispatch.SpawnSilent, 0, 0)
}

// fenced answers that a newer token was seen: the dispatcher ends its run, and greets the host before the next.
func (w *world) fenced() {
	from := w.op.from
	w.op = op{}
	if from == 0 {
		return
	}
	w.runs[from-1].waiting = false
	w.host.greeted = false
	w.finish(from-1, dispatch.Waiting, dispatch.ReasonLeaseHeld)
}

// ends answers a paste, endsSpawn a spawn.
func (w *world) ends(v dispatch.Paste) {
	from := w.op.from
	w.op = op{}
	if from != 0 {
		w.hearPaste(from-1, v)
	}
}

func (w *world) endsSpawn(v dispatch.Spawn, life, of uint8) {
	from := w.op.from
	w.op = op{}
	if from != 0 {
		w.hearSpawn(from-1, v, life, of)
	}
}

// owns makes the generation ours: whatever an earlier life of tmuxd sent is refused from here on. It reports whether tmux answered.
func (w *world) owns() bool {
	if w.tmux.silent || !w.tmux.session {
		w.host.own = false
		return false
	}
	w.host.own = true
	w.advance()
	return true
}

// advance gives the server a new generation.
func (w *world) advance() {
	switch {
	case w.flight.what == noDeed || w.flight.what == createSession:
	case w.m.config.Rules.Generation:
		w.flight = act{} // its guard will refuse it
	}
}

// operation goes on with the mutation under way.
func (x *expansion) operation() {
	e := int(x.from.op.order.event)
	do := func(what string, f func(w *world)) { x.try(what, e, none, f) }
	switch x.from.op.stage {
	case takesOver:
		do("the host takes the generation over, and looks", func(w *world) { w.takesOver() })
	case resolves:
		do("the host resolves the act that got no answer", func(w *world) { w.resolves() })
	case looksAtComposer:
		do("the host looks at the composer and journals the paste", func(w *world) { w.looksAtComposer() })
	case pastes:
		x.act("paste", func(w *world) { w.op.stage, w.op.phase = notesPasted, session.Pasted })
	case notesPasted:
		do("the host journals that it pasted", func(w *world) { w.journal(session.Pasted); w.op.stage = waitsForText })
	case waitsForText:
		do("the host looks for the text and journals the submit", func(w *world) { w.waitsForText() })
	case looksAgain:
		do("the host looks whether the text still stands there", func(w *world) { w.looksAgain() })
	case submits:
		x.act("CR", func(w *world) { w.op.stage, w.op.phase, w.op.sent = settles, session.Submitted, true })
	case settles:
		do("the host looks for evidence", func(w *world) { w.settles() })
	case records:
		do("the host records that the transcript has it", func(w *world) { w.records() })
	case clears:
		x.act("clearing", func(w *world) { w.cleared() })
	case creates:
		x.act("start", func(w *world) { w.op.stage = watches })
	case resolvesStart:
		do("the host takes the start back, or finds it", func(w *world) { w.resolvesStart() })
	case watches:
		x.watch()
	case recordsPrompt:
		do("the host records that the transcript has the prompt", func(w *world) { w.recordsPrompt() })
	case idle:
	}
}

// resolves settles a list that got no answer. Without an answer to this one either, the generation is not ours any more.
func (w *world) resolves() {
	answered := w.owns()
	switch {
	case w.op.order.kind == pasteOrder:
		w.ends(dispatch.PasteSilent)
	case answered && w.tmux.dead && w.m.config.Rules.ClearAgain:
		w.endsSpawn(dispatch.SpawnSilent, 0, 0)
	case answered || !w.tmux.session:
		w.cleared()
	default:
		w.endsSpawn(dispatch.SpawnSilent, 0, 0)
	}
}

func (w *world) journal(p session.Phase) {
	w.host.journal[w.op.order.event] = entry{phase: p, life: w.op.life, of: w.op.of}
}
