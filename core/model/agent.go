package model

// agent has the program in the pane go on, or end.
func (x *expansion) agent() {
	a, t := x.from.agent, x.from.tmux
	x.server()
	if !a.alive {
		return
	}
	if !a.started {
		x.try("the wrapper starts the harness", -1, none, func(w *world) { w.agent.started = true })
	}
	if a.started && !x.from.lives[a.life].reached {
		x.try("the wrapper records that it started the harness", -1, none, func(w *world) { w.lives[a.life].reached = true })
	}
	if a.started && !a.ready {
		x.try("the agent reads its first prompt and shows its composer", -1, none, func(w *world) { w.boots() })
	}
	if a.queue != 0 {
		x.try("the agent takes what was submitted", -1, none, func(w *world) { w.reads() })
	}
	if a.ready && !a.dialog {
		x.try("the agent opens a dialog", -1, Dialog, func(w *world) { w.agent.dialog = true })
	}
	if a.dialog {
		x.try("a person answers the dialog", -1, none, func(w *world) { w.agent.dialog = false })
	}
	if !t.session || t.life != a.life {
		x.try("the agent that was hung up ends", -1, none, func(w *world) { w.dies(true) })
	}
	x.try("the agent ends", -1, AgentDeath, func(w *world) { w.dies(true) })
	if a.started && !x.from.lives[a.life].reached {
		x.try("the agent and its wrapper are killed", -1, AgentDeath, func(w *world) { w.dies(false) })
	}
}

// server has the tmux server fall silent, answer again, or be killed.
func (x *expansion) server() {
	t := x.from.tmux
	if !t.session {
		return
	}
	if !t.silent {
		x.try("the tmux server falls silent", -1, Silence, func(w *world) { w.tmux.silent = true })
		x.try("the tmux server falls silent, and its socket is gone", -1, Silence, func(w *world) {
			w.tmux.silent, w.tmux.hidden = true, true
		})
	} else {
		x.try("the tmux server answers again", -1, none, func(w *world) { w.tmux.silent, w.tmux.hidden = false, false })
	}
	x.try("the tmux server is killed", -1, ServerDeath, func(w *world) {
		w.tmux = tmux{}
		if w.flight.what != createSession {
			w.flight = act{}
		}
	})
}

// boots has the agent take its first prompt, and show its composer.
func (w *world) boots() {
	a := &w.agent
	a.ready = true
	if p := w.lives[a.life].prompt; p != 0 {
		w.typed(p - 1)
		a.queue |= bit(p - 1)
	}
}

// reads has the agent record in its transcript what was submitted.
func (w *world) reads() {
	a := &w.agent
	for e := range uint8(events) {
		if a.queue&bit(e) != 0 {
			w.taken[a.of][e]++
		}
	}
	a.queue = 0
}

// dies ends the agent with everything that it had not recorded. The wrapper records the end, if it still can.
func (w *world) dies(recorded bool) {
	if recorded && w.agent.started {
		w.lives[w.agent.life].reached = true
	}
	if w.tmux.session && w.tmux.life == w.agent.life {
		w.tmux.dead = true
	}
	w.agent = agent{}
}

// person has somebody at the keyboard type, send or delete.
func (x *expansion) person() {
	a := x.from.agent
	if !a.alive || !a.ready || a.dialog || x.from.tmux.silent || !x.from.tmux.session {
		return
	}
	if a.composer&draft == 0 {
		x.try("a person begins to type", -1, Person, func(w *world) { w.agent.composer |= draft })
	}
	if a.composer == 0 {
		return
	}
	send := func(w *world) {
		w.agent.queue |= w.agent.composer &^ draft
		w.agent.composer = 0
	}
	if a.composer&draft == 0 {
		x.try("a person sends our text", -1, Person, send)
		x.try("a person deletes our text", -1, Person, func(w *world) { w.agent.composer = 0 })
		return
	}
	x.try("the person sends what stands there", -1, none, send)
	x.try("the person deletes the draft", -1, none, func(w *world) { w.agent.composer &^= draft })
	x.try("the person deletes everything", -1, none, func(w *world) { w.agent.composer = 0 })
}
