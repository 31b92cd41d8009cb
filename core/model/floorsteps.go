package model

// floorWorld is a state that a step is changing.
type floorWorld struct {
	floorState
	m      *floorModel
	broken string
}

func (w *floorWorld) breaks(promise string) {
	if w.broken == "" {
		w.broken = promise
	}
}

// floorSteps finds the steps out of one state.
type floorSteps struct {
	m     *floorModel
	from  *floorState
	yield func(*step[floorState])
	w     floorWorld
	out   step[floorState]
}

func (m *floorModel) steps(from *floorState, yield func(*step[floorState])) {
	x := floorSteps{m: m, from: from, yield: yield}
	x.leases()
	for p := range peers {
		x.greets(uint8(p))
	}
	for r := range runs {
		x.errand(uint8(r))
	}
	x.door()
	x.loses()
	x.database()
}

// try yields the step that do makes, if the fault that it needs may still strike.
func (x *floorSteps) try(what string, delivery int, f Fault, do func(w *floorWorld)) {
	if f != none && x.from.left[f] == 0 {
		return
	}
	x.w = floorWorld{floorState: *x.from, m: x.m}
	if f != none {
		x.w.left[f]--
		x.w.faults--
		for k, n := range x.w.left {
			x.w.left[k] = min(n, x.w.faults)
		}
	}
	do(&x.w)
	x.w.tidy(x.m)
	if x.w.floorState == *x.from {
		return
	}
	x.out = step[floorState]{what: what, event: delivery, fault: f, to: &x.w.floorState, broken: x.w.broken}
	x.yield(&x.out)
}

// draw takes the next number of the sequence.
func (w *floorWorld) draw() uint8 {
	if w.m.config.Rules.Clock {
		w.db.last = max(w.db.last, w.ever)
	}
	w.db.last++
	w.ever = max(w.ever, w.db.last)
	return w.db.last
}

// leases has a dispatcher take a lease for any delivery that is not recorded as delivered. That an item's deliveries have an order is
// left out: one that was given up and opened again comes when it comes.
func (x *floorSteps) leases() {
	r := 0
	for r < runs && x.from.runs[r].active {
		r++
	}
	if r == runs {
		return
	}
	for d := range uint8(events) {
		l := x.from.db.leases[x.m.sessionOf(d)]
		if x.from.db.done&bit(d) != 0 || !l.lease().MayTake(holders[r+1], epoch) {
			continue
		}
		for p := range uint8(peers) {
			x.try(peerNames[p]+" takes a lease", int(d), none, func(w *floorWorld) {
				w.age++
				token := w.draw()
				w.db.leases[w.m.sessionOf(d)] = held{holder: uint8(r + 1), token: token}
				w.runs[r] = errand{active: true, peer: p, order: typing{some: true, delivery: d, token: token, age: w.age}}
			})
		}
	}
}

var peerNames = [peers]string{"dispatcher A", "dispatcher B"}

// greets has a dispatcher greet the host, as hosts.greet and hosts.fence do.
func (x *floorSteps) greets(p uint8) {
	at, rules := x.from.peers[p], x.m.config.Rules
	who := peerNames[p]
	switch {
	case at.stale:
		x.try(who+" notices that the host was started again", -1, none, func(w *floorWorld) { w.reconnects(p) })
	case at.met:
		x.try("the connection of "+who+" breaks", -1, Reconnect, func(w *floorWorld) { w.breaksOff(p) })
	}
	switch {
	case at.met:
	case at.stage == notGreeting:
		// What the host says and the token that is drawn on it are one step: an answer that has grown old in between is one to an earlier
		// greeting.
		x.try(who+" greets the host, raises the sequence above what it has seen and draws a token", -1, none, func(w *floorWorld) {
			q := &w.peers[p]
			if rules.Raise {
				w.db.last = max(w.db.last, w.host.floor, w.host.highest, q.floor)
			}
			drawn := w.draw()
			if !q.fenced || !rules.Once || w.host.floor < q.floor && rules.Again {
				q.stage, q.drawn, q.since = giving, drawn, true
				return
			}
			q.met = true
			w.host.greeted = w.host.greeted || q.floor >= w.given
		})
	case at.stage == giving:
		x.try(who+" gives the host a floor", -1, none, func(w *floorWorld) {
			w.raise(at.drawn)
			w.host.greeted = w.host.greeted || at.since
			w.peers[p] = peer{met: true, fenced: true, stale: at.stale, floor: max(at.drawn, w.host.floor)}
		})
		x.try(who+" gives the host a floor, and the answer is lost", -1, FloorUnheard, func(w *floorWorld) {
			w.raise(at.drawn)
			w.reconnects(p)
		})
		x.try("a floor stays on its way, and "+who+" gets no answer", -1, FloorUnheard, func(w *floorWorld) {
			w.lateFloor = at.drawn
			w.reconnects(p)
		})
	}
}

// raise gives the host a floor.
func (w *floorWorld) raise(floor uint8) {
	w.given = max(w.given, floor)
	if w.m.config.Rules.Floor {
		w.host.floor = max(w.host.floor, floor)
	}
}

// reconnects has a dispatcher count what comes as another connection.
func (w *floorWorld) reconnects(p uint8) { w.peers[p] = peer{floor: w.peers[p].floor} }

// breaksOff ends a connection: who waits for an answer on it gets none.
func (w *floorWorld) breaksOff(p uint8) {
	w.reconnects(p)
	for r := range w.runs {
		if a := w.runs[r]; a.active && a.peer == p && (a.stage == ordered || a.stage == accepted) {
			w.givesUp(uint8(r))
		}
	}
}

// errand has a run do its next step, or fail.
func (x *floorSteps) errand(r uint8) {
	a := x.from.runs[r]
	if !a.active {
		return
	}
	d := int(a.order.delivery)
	if at := x.from.db.leases[x.m.sessionOf(uint8(d))]; at.holder == r+1 && !at.expired {
		x.try("a lease ends while its run is still at work", d, LeaseLost, func(w *floorWorld) {
			w.db.leases[w.m.sessionOf(uint8(d))].expired, w.runs[r].expired = true, true
		})
	}
	x.try(peerNames[a.peer]+" is killed", d, RunCrash, func(w *floorWorld) { w.crash(a.peer) })
	switch a.stage {
	case leased:
		switch {
		case a.expired:
			x.try("a run has no time left", d, none, func(w *floorWorld) { w.finish(r, false) })
		case x.from.peers[a.peer].met:
			x.try(peerNames[a.peer]+" orders the typing", d, none, func(w *floorWorld) { w.runs[r].stage = ordered })
		}
	case ordered:
		x.try("the host takes an order", d, none, func(w *floorWorld) { w.takes(a.order, r+1) })
		x.try(peerNames[a.peer]+" gets no answer to its order", d, NoAnswer, func(w *floorWorld) { w.forgets(r) })
	case accepted:
		x.try(peerNames[a.peer]+" gets no answer to its order", d, NoAnswer, func(w *floorWorld) { w.forgets(r) })
	}
}

// forgets has a run end without an answer, and its dispatcher greet the host again, on the same connection.
func (w *floorWorld) forgets(r uint8) {
	w.peers[w.runs[r].peer].met = false
	w.givesUp(r)
}

// givesUp ends a run that waits. Its order goes on its way.
func (w *floorWorld) givesUp(r uint8) {
	w.abandon(r)
	w.finish(r, false)
}

func (w *floorWorld) abandon(r uint8) {
	if a := w.runs[r]; a.stage == ordered && !w.late.some {
		w.late = a.order
	}
	for i := range w.host.inside {
		if w.host.inside[i].from == r+1 {
			w.host.inside[i].from = 0
		}
	}
}

// finish stores what came of a run and gives its lease back, if that is still the run's.
func (w *floorWorld) finish(r uint8, delivered bool) {
	a := w.runs[r]
	w.runs[r] = errand{}
	at := &w.db.leases[w.m.sessionOf(a.order.delivery)]
	if at.token != a.order.token || at.holder == 0 {
		return
	}
	at.holder, at.expired = 0, false
	if delivered {
		w.db.done |= bit(a.order.delivery)
		if w.typed&bit(a.order.delivery) == 0 {
			w.breaks(reportedLost)
		}
	}
}

// crash kills a dispatcher with all of its runs. Their leases end by themselves, and what it sent goes on its way.
func (w *floorWorld) crash(p uint8) {
	for r := range w.runs {
		if a := w.runs[r]; a.active && a.peer == p {
			w.abandon(uint8(r))
			w.runs[r] = errand{}
			if at := &w.db.leases[w.m.sessionOf(a.order.delivery)]; at.holder == uint8(r+1) {
				at.holder = gone
			}
		}
	}
	if w.peers[p].stage == giving {
		w.lateFloor = w.peers[p].drawn
	}
	w.peers[p] = peer{}
}

// takes lets an order in, as tmuxd's fence does, or refuses it.
func (w *floorWorld) takes(o typing, from uint8) {
	at, rules := w.m.sessionOf(o.delivery), w.m.config.Rules
	if w.host.inside[at].some {
		return // until it has the turn
	}
	if rules.Floor && o.token < w.host.floor {
		w.refuses(o, from)
		return
	}
	if rules.Seen && o.token < w.host.seen[at] {
		w.refuses(o, from)
		return
	}
	if rules.Floor && w.host.greeted && o.token < w.given {
		w.breaks(belowFloor)
	}
	w.host.highest, w.host.seen[at] = max(w.host.highest, o.token), max(w.host.seen[at], o.token)
	if w.m.sessionOf(w.host.flight.delivery) == at {
		w.host.flight = typing{} // the generation is taken over: its guard will refuse it
	}
	w.host.inside[at] = typing{some: true, delivery: o.delivery, token: o.token, age: o.age, from: from}
	if from != 0 {
		w.runs[from-1].stage = accepted
	}
}

// refuses answers that the token is too old: the run ends, and its dispatcher greets the host again.
func (w *floorWorld) refuses(o typing, from uint8) {
	if from == 0 {
		return
	}
	w.peers[w.runs[from-1].peer].met = false
	w.finish(from-1, false)
	if w.m.config.Refusals == 0 {
		return
	}
	w.refused[o.delivery]++
	w.m.refused = max(w.m.refused, int(w.refused[o.delivery]))
	if int(w.refused[o.delivery]) > w.m.config.Refusals {
		w.breaks(refusedAgain)
	}
}

// door has the host go on with what it let in, and take what nobody waits for.
func (x *floorSteps) door() {
	for i := range x.from.host.inside {
		o := x.from.host.inside[i]
		if !o.some {
			continue
		}
		x.try("the host types, answers, and the outcome is stored", int(o.delivery), none, func(w *floorWorld) {
			w.types(o)
			w.host.inside[i] = typing{}
			if o.from != 0 {
				w.finish(o.from-1, true)
			}
		})
	}
	if o := x.from.late; o.some {
		x.try("the host takes an order that nobody waits for", int(o.delivery), none, func(w *floorWorld) {
			if w.host.inside[w.m.sessionOf(o.delivery)].some {
				return
			}
			w.late = typing{}
			w.takes(o, 0)
		})
		x.try("an order that nobody waits for is lost", int(o.delivery), none, func(w *floorWorld) { w.late = typing{} })
	}
	if f := x.from.lateFloor; f != 0 {
		x.try("a floor that nobody waits for arrives", -1, none, func(w *floorWorld) { w.lateFloor = 0; w.raise(f) })
		x.try("a floor that nobody waits for is lost", -1, none, func(w *floorWorld) { w.lateFloor = 0 })
	}
	if o := x.from.host.flight; o.some {
		x.try("a list of an earlier life runs", int(o.delivery), none, func(w *floorWorld) { w.host.flight = typing{}; w.types(o) })
		x.try("a list of an earlier life is lost", int(o.delivery), none, func(w *floorWorld) { w.host.flight = typing{} })
	}
}

// types types a delivery, unless its phase says that it was typed.
func (w *floorWorld) types(o typing) {
	if w.typed&bit(o.delivery) != 0 {
		return
	}
	w.typed |= bit(o.delivery)
	at := w.m.sessionOf(o.delivery)
	if o.age < w.newest[at] {
		w.breaks(crossed)
	}
	w.newest[at] = max(w.newest[at], o.age)
}

// loses kills the host, and has it lose files.
func (x *floorSteps) loses() {
	x.try("tmuxd is killed and starts again", -1, HostCrash, func(w *floorWorld) { w.hostCrash() })
	for i := range x.from.host.inside {
		if o := x.from.host.inside[i]; o.some && !x.from.host.flight.some {
			x.try("tmuxd is killed, and its list is on its way", int(o.delivery), HostCrash, func(w *floorWorld) {
				w.hostCrash()
				w.host.flight = typing{some: true, delivery: o.delivery, token: o.token, age: o.age}
			})
		}
	}
	x.try("tmuxd is killed and loses its file of the highest token", -1, FilesLost, func(w *floorWorld) {
		w.hostCrash()
		w.host.highest = 0
	})
	x.try("tmuxd is killed and loses its files of the highest token and of the floor", -1, FilesLost, func(w *floorWorld) {
		w.hostCrash()
		w.host.highest, w.host.floor, w.host.greeted = 0, 0, false
		for p := range w.peers {
			w.peers[p].since = false
		}
	})
}

// hostCrash ends what the host had let in. Each dispatcher notices in its own time, and may send something before.
func (w *floorWorld) hostCrash() {
	for i := range w.host.inside {
		o := w.host.inside[i]
		w.host.inside[i] = typing{}
		if o.from != 0 {
			w.reconnects(w.runs[o.from-1].peer)
			w.finish(o.from-1, false)
		}
	}
	for p := range w.peers {
		if q := &w.peers[p]; q.met || q.fenced || q.stage != notGreeting {
			q.stale = true
		}
	}
}

// database lets the leases of runs that are over end, makes a backup, and goes back to it.
func (x *floorSteps) database() {
	for i := range x.from.db.leases {
		if x.from.db.leases[i].holder == gone {
			x.try("the lease of a dead run ends", -1, none, func(w *floorWorld) { w.db.leases[i].holder = 0 })
		}
	}
	if x.from.left[Restore] == 0 {
		return
	}
	if !x.from.backedUp {
		x.try("a backup of the database is made", -1, none, func(w *floorWorld) { w.backup, w.backedUp = w.db, true })
		return
	}
	x.try("the database is restored from the backup, under the dispatchers", -1, Restore, func(w *floorWorld) { w.restore() })
}

// restore sets the database back. It takes longer than a run may last, so nothing of the runs is left but what is on its way.
func (w *floorWorld) restore() {
	if !w.outlasts(w.late) {
		w.late = typing{}
	}
	for r := range w.runs {
		if a := &w.runs[r]; a.active {
			if a.stage == ordered && !w.outlasts(a.order) {
				a.stage = leased
			}
			w.abandon(uint8(r))
		}
	}
	w.runs = [runs]errand{}
	w.db = w.backup
	for i := range w.db.leases {
		if w.db.leases[i].holder != 0 {
			w.db.leases[i].holder, w.db.leases[i].expired = gone, false
		}
	}
}

// outlasts reports whether an order may still be on its way after a restore.
func (w *floorWorld) outlasts(o typing) bool { return w.m.config.Forgotten || o.token < w.given }
