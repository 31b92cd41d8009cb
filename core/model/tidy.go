package model

// tidy puts a state into the one form that all states with the same future share. Without it there would be too many: new tokens,
// incarnations and conversations come up all the time, and most of what lies behind makes no difference any more.
func (s *State) tidy(m *Model) {
	if !s.tmux.session {
		s.tmux = tmux{}
		s.host.own = false
	}
	if !s.agent.alive {
		s.agent = agent{}
	}
	if s.op.stage == idle {
		s.op = op{}
	}
	for i := range s.runs {
		if !s.runs[i].active {
			s.runs[i] = run{}
		}
	}
	if !s.runs[0].active && s.runs[1].active {
		s.swapRuns()
	}
	if !m.restores && s.done(0) {
		s.forget(m, 0)
	}
	s.rank()
	s.renumberLives()
	s.renumberConversations()
}

// swapRuns exchanges the places of the two runs.
func (s *State) swapRuns() {
	s.runs[0], s.runs[1] = s.runs[1], s.runs[0]
	other := [...]uint8{0, 2, 1, gone}
	s.db.holder, s.op.from = other[s.db.holder], other[s.op.from]
}

// done reports whether an event has ended and nothing is under way for it.
func (s *State) done(e uint8) bool {
	if s.ledger[e].state.Waits() || s.late.kind != nothing && s.late.event == e || s.op.stage != idle && s.op.order.event == e ||
		s.flight.what != noDeed {
		return false
	}
	for _, r := range s.runs {
		if r.active && r.event == e {
			return false
		}
	}
	for l := range s.lives {
		if s.lives[l].prompt == e+1 && (s.lives[l].spec || s.agent.alive && !s.agent.ready && int(s.agent.life) == l) {
			return false
		}
	}
	return true
}

// forget drops what is remembered of an event that is done.
func (s *State) forget(m *Model, e uint8) {
	s.host.journal[e] = entry{}
	s.db.outcome[e] = 0
	s.tmux.ring, s.op.ring = m.rings.without[s.tmux.ring][e], m.rings.without[s.op.ring][e]
	for c := range s.taken {
		s.taken[c][e] = 0
	}
	for l := range s.lives {
		if s.lives[l].prompt == e+1 {
			s.lives[l].prompt = 0
		}
	}
}

// rank renumbers tokens so that only their order is left.
func (s *State) rank() {
	all := [...]*uint8{
		&s.db.token, &s.db.last, &s.backup.db.token, &s.backup.db.last, &s.runs[0].token, &s.runs[1].token, &s.runs[0].request.token,
		&s.runs[1].request.token, &s.late.token, &s.op.order.token, &s.host.token, &s.host.highest, &s.tmux.fence, &s.flight.token, &s.acted,
	}
	compress(all[:])
}

// compress renumbers values from 1, in their order, and returns what became of each. Zero stays zero.
func compress(all []*uint8) (to [16]uint8) {
	var has [16]bool
	count := uint8(0)
	for _, v := range all {
		has[*v] = true
	}
	for v := 1; v < len(has); v++ {
		if has[v] {
			count++
			to[v] = count
		}
	}
	for _, v := range all {
		*v = to[*v]
	}
	return to
}

// renumberLives keeps of the incarnations what can still be asked for.
func (s *State) renumberLives() {
	all := [...]*uint8{
		&s.db.record.life, &s.backup.db.record.life, &s.runs[0].record.life, &s.runs[1].record.life, &s.runs[0].life, &s.runs[1].life,
		&s.runs[0].sight, &s.runs[1].sight, &s.runs[0].spawned, &s.runs[1].spawned, &s.runs[0].request.life, &s.runs[1].request.life,
		&s.late.life, &s.op.order.life, &s.op.life, &s.op.made, &s.host.life, &s.host.journal[0].life, &s.host.journal[1].life,
		&s.tmux.life, &s.flight.life, &s.agent.life,
	}
	to := compress(all[:])
	if to[fresh] == fresh {
		panic("model: more incarnations are known of than a state has room for")
	}
	var kept [lives]life
	for l := range s.lives {
		if to[l] != 0 {
			kept[to[l]] = s.lives[l]
		}
	}
	s.lives = kept
}

// renumberConversations does the same for conversations. What those that are out of reach have is kept under 0.
func (s *State) renumberConversations() {
	all := [...]*uint8{
		&s.db.record.conversation, &s.backup.db.record.conversation, &s.runs[0].record.conversation, &s.runs[1].record.conversation,
		&s.runs[0].sightOf, &s.runs[1].sightOf, &s.runs[0].spawnOf, &s.runs[1].spawnOf, &s.runs[0].request.conversation,
		&s.runs[1].request.conversation, &s.late.conversation, &s.op.order.conversation, &s.op.of, &s.host.of, &s.host.journal[0].of,
		&s.host.journal[1].of, &s.tmux.of, &s.agent.of, &s.lives[1].of, &s.lives[2].of, &s.lives[3].of, &s.lives[4].of, &s.lives[5].of,
		&s.lives[6].of, &s.lives[7].of,
	}
	to := compress(all[:])
	if to[fresh] == fresh {
		panic("model: more conversations are known of than a state has room for")
	}
	kept := [lives][events]uint8{0: s.taken[0]}
	for c := 1; c < lives; c++ {
		for e, n := range s.taken[c] {
			if to[c] == 0 {
				kept[0][e] = max(kept[0][e], n)
			} else {
				kept[to[c]][e] = n
			}
		}
	}
	s.taken = kept
}
