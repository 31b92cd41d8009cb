package model

import (
	"muxpost.dev/muxpost/core/dispatch"
	"muxpost.dev/muxpost/core/lease"
	"muxpost.dev/muxpost/core/ledger"
)

var holders = [...]string{"", "run 1", "run 2", "a run that is over"}

// lease is the item's lease as core/lease reads it.
func (d *database) lease() lease.Lease {
	l := lease.Lease{Holder: holders[d.holder], Token: int64(d.token), Until: epoch.Add(lease.Time)}
	if d.expired {
		l.Until = epoch
	}
	return l
}

// begin starts a run: what has ended is replayed, else the lease is taken, with a new token, and the registry is asked.
func (w *world) begin(r, e uint8) {
	w.ledger[e].state = ledger.Leased
	w.runs[r] = run{active: true, asked: true, event: e}
	if o := w.db.outcome[e]; o.Final() {
		w.answer(r, answerOf(o), "replayed")
		w.runs[r] = run{}
		return
	}
	if !w.db.lease().MayTake(holders[r+1], epoch) {
		w.answer(r, answerOf(dispatch.InProgress), string(dispatch.ReasonLeaseHeld))
		w.runs[r] = run{}
		return
	}
	w.db.last++
	w.db.holder, w.db.expired, w.db.token = r+1, false, w.db.last
	p := &w.runs[r]
	p.token, p.record = w.db.token, w.db.record
	p.facts.Registry = dispatch.NoSession
	if p.record.known {
		p.facts.Registry = dispatch.Recorded
	}
	p.resumable()
}

func (p *run) resumable() {
	p.facts.Resumable = dispatch.ResumeYes
	if p.record.known && p.record.conversation == 0 {
		p.facts.Resumable = dispatch.ResumeNoID
	}
}

// dispatchers has every run do its next step, or fail.
func (x *expansion) dispatchers() {
	for i := range x.from.runs {
		r, p := uint8(i), &x.from.runs[i]
		if !p.active {
			continue
		}
		e := int(p.event)
		x.try("a dispatcher is killed", e, RunCrash, func(w *world) { w.crash(r) })
		if x.from.db.holder == r+1 && !x.from.db.expired {
			x.try("a lease ends while its run is still at work", e, LeaseLost, func(w *world) {
				w.db.expired, w.runs[r].expired = true, true
			})
		}
		if p.waiting {
			x.try("a dispatcher gets no answer from the host", e, NoAnswer, func(w *world) { w.giveUp(r) })
			if p.request.kind != nothing && x.from.late.kind == nothing {
				x.try("a request is sent a second time on its way", e, Twice, func(w *world) { w.late = w.runs[r].request })
			}
			continue
		}
		d := x.m.config.Core.Decide(p.facts)
		if d.Action == dispatch.CountDeaths {
			x.count(r)
			continue
		}
		x.try(stepNames[d.Action], e, none, func(w *world) { w.perform(r, d) })
		if d.Action == dispatch.ProbeHost {
			x.try("a probe gets no answer", e, Unreachable, func(w *world) { w.runs[r].facts.Probe = dispatch.ProbeUnreachable })
		}
	}
}

var stepNames = map[dispatch.Action]string{
	dispatch.Finish: "a dispatcher stores the outcome and answers", dispatch.ProbeHost: "a dispatcher probes",
	dispatch.Adopt: "a dispatcher adopts the session", dispatch.Heal: "a dispatcher heals the record",
	dispatch.Park: "a dispatcher parks the item", dispatch.Unpark: "a dispatcher takes the park back",
	dispatch.Register: "a dispatcher registers the session", dispatch.SpawnResume: "a dispatcher orders a spawn with resume",
	dispatch.SpawnFresh: "a dispatcher orders a fresh spawn", dispatch.PasteText: "a dispatcher orders a paste",
}

// crash ends a run. Its lease stays until it ends by itself, its request goes on its way.
func (w *world) crash(r uint8) {
	w.answer(r, ledger.Silent, "dispatcher_unreachable")
	w.abandon(r)
	if w.db.holder == r+1 {
		w.db.holder = gone
	}
	w.runs[r] = run{}
}

// abandon leaves a request to itself: it may still arrive, and what it does goes on.
func (w *world) abandon(r uint8) {
	if w.runs[r].request.kind != nothing {
		w.late = w.runs[r].request
		w.runs[r].request = request{}
	}
	if w.op.stage != idle && w.op.from == r+1 {
		w.op.from = 0
	}
}

// giveUp has a run go on without the host's answer.
func (w *world) giveUp(r uint8) {
	spawn := w.runs[r].request.kind == spawnOrder || w.op.stage != idle && w.op.from == r+1 && w.op.order.kind == spawnOrder
	w.abandon(r)
	if spawn {
		w.hearSpawn(r, dispatch.SpawnSilent, 0, 0)
		return
	}
	w.hearPaste(r, dispatch.PasteSilent)
}

// hearPaste and hearSpawn give a run what came of its order.
func (w *world) hearPaste(r uint8, v dispatch.Paste) {
	w.runs[r].waiting, w.runs[r].facts.Paste = false, v
}

func (w *world) hearSpawn(r uint8, v dispatch.Spawn, life, of uint8) {
	p := &w.runs[r]
	p.waiting, p.spawned, p.spawnOf, p.life = false, life, of, life
	if p.resumes {
		p.facts.Resume = v
		return
	}
	p.facts.Fresh = v
}

// perform does what was decided, as the dispatcher's run does, and adds what came of it to the facts.
func (w *world) perform(r uint8, d dispatch.Decision) {
	p := &w.runs[r]
	own := lease.Lease{Holder: holders[r+1], Token: int64(p.token), Until: epoch.Add(lease.Time)}
	if p.expired {
		own.Until = epoch
	}
	if d.Action != dispatch.Finish && own.Budget(epoch) == 0 {
		d = dispatch.Decision{Action: dispatch.Finish, Outcome: dispatch.InProgress, Reason: dispatch.ReasonDeadline}
	}
	switch d.Action {
	case dispatch.Finish:
		w.finish(r, d.Outcome, d.Reason)
	case dispatch.ProbeHost:
		w.probe(r)
	case dispatch.Adopt:
		adopted := record{known: true, life: p.sight, conversation: p.sightOf}
		if p.facts.Fresh == dispatch.SpawnOccupied {
			adopted = record{known: true, life: p.spawned}
		}
		w.register(r, adopted)
	case dispatch.Heal:
		w.register(r, record{known: true, life: p.sight, conversation: p.record.conversation})
	case dispatch.Register:
		started := record{known: true, life: p.spawned, conversation: p.spawnOf}
		if started.conversation == 0 && p.facts.Fresh == dispatch.SpawnNotTried {
			started.conversation = p.record.conversation
		}
		w.register(r, started)
	case dispatch.Park, dispatch.Unpark:
		w.park(r, d.Action == dispatch.Park)
	case dispatch.SpawnResume, dispatch.SpawnFresh:
		if w.db.parked {
			w.breaks(startedParked)
		}
		p.waiting = true
		p.request = request{kind: spawnOrder, event: p.event, prompt: d.WithPrompt, token: p.token}
		p.resumes = d.Action == dispatch.SpawnResume
		if p.resumes {
			p.request.conversation = p.record.conversation
		}
	case dispatch.PasteText:
		p.waiting = true
		p.request = request{kind: pasteOrder, event: p.event, life: p.life, token: p.token}
	case dispatch.LookUp, dispatch.CountDeaths:
	}
}

// count has a run ask whether the session may be started.
func (x *expansion) count(r uint8) {
	found := func(s dispatch.Starts) func(*world) {
		return func(w *world) {
			if !w.ours(r) {
				w.lost(r)
				return
			}
			w.runs[r].facts.Starts = s
		}
	}
	e := int(x.from.runs[r].event)
	if x.from.db.parked {
		x.try("a dispatcher finds the item parked", e, none, found(dispatch.StartsParked))
		x.try("a dispatcher finds the item parked under another version", e, none, found(dispatch.StartsDue))
		return
	}
	x.try("a dispatcher finds that the session may be started", e, none, found(dispatch.StartsAllowed))
	x.try("a dispatcher finds that the agents died too often", e, Deaths, found(dispatch.StartsSpent))
}

// park records that the item is parked, or that it is not any more.
func (w *world) park(r uint8, parked bool) {
	if !w.ours(r) {
		w.lost(r)
		return
	}
	w.db.parked, w.runs[r].facts.Starts = parked, dispatch.StartsAllowed
	if parked {
		w.runs[r].facts.Starts = dispatch.StartsParked
	}
}

// probe asks the host, and greets it first where that is due: then later tokens are above what it has seen.
func (w *world) probe(r uint8) {
	if !w.host.greeted {
		w.host.greeted = true
		w.db.last = max(w.db.last, w.host.highest)
	}
	p := &w.runs[r]
	s := w.look()
	p.facts.Probe, p.facts.Phase = dispatch.ProbeOf(s.state, s.flags), w.phase(s, p.event)
	p.sight, p.sightOf = s.life, s.of
	if !s.pane {
		p.sight, p.sightOf = w.host.life, w.host.of
	}
	p.life = p.sight
	if !p.record.known {
		dead := p.facts.Probe == dispatch.ProbeDead || p.facts.Probe == dispatch.ProbeAbsent
		p.facts.HostKnows = dead && p.sightOf != 0
		return
	}
	p.facts.SameIncarnation = p.sight != 0 && p.sight == p.record.life
	if p.facts.Probe == dispatch.ProbeUnknown && p.life == 0 {
		p.life = p.record.life
	}
	if (p.facts.Probe == dispatch.ProbeLive || p.facts.Probe == dispatch.ProbeDead) && p.sightOf != 0 && p.sightOf != p.record.conversation {
		p.record.conversation, p.learned = p.sightOf, true
		p.resumable()
	}
}

// ours reports whether the database still takes a run's changes: its token is the item's.
func (w *world) ours(r uint8) bool { return w.db.token == w.runs[r].token && w.db.holder != 0 }

func (w *world) register(r uint8, to record) {
	p := &w.runs[r]
	if !w.ours(r) {
		w.lost(r)
		return
	}
	p.record, p.learned, p.facts = to, false, p.facts.WithRecord()
	w.db.record = to
}

// lost ends a run whose lease went to another one.
func (w *world) lost(r uint8) {
	w.answer(r, ledger.Silent, string(dispatch.ReasonLeaseHeld))
	w.runs[r] = run{}
}

// finish stores an outcome, gives the lease back, and answers the poller.
func (w *world) finish(r uint8, o dispatch.Outcome, why dispatch.Reason) {
	if !w.ours(r) {
		w.lost(r)
		return
	}
	p := &w.runs[r]
	if o.Final() {
		w.db.outcome[p.event] = o
	}
	if o == dispatch.Delivered {
		w.reported(p.event)
	}
	if p.learned {
		w.db.record = p.record
	}
	w.db.holder, w.db.expired = 0, false
	w.answer(r, answerOf(o), string(why))
	w.runs[r] = run{}
}

// database lets the leases of runs that are over end, and restores an earlier state where the configuration has it.
func (x *expansion) database() {
	if x.from.db.holder == gone {
		x.try("the lease of a dead run ends", -1, none, func(w *world) { w.db.holder, w.db.expired = 0, false })
	}
	if x.from.db.parked {
		x.try("a person takes the park back", -1, none, func(w *world) { w.db.parked = false })
	}
	if !x.m.restores {
		return
	}
	if !x.from.backup.taken {
		x.try("a backup of the database is made", -1, none, func(w *world) {
			w.backup = backup{taken: true, ledger: w.ledger, db: w.db}
		})
		return
	}
	x.try("the database is restored from the backup", -1, Restore, func(w *world) { w.restore() })
}

// restore sets the database back. It takes longer than a run may last, so nothing of the runs is left but what is on its way.
func (w *world) restore() {
	for r := range w.runs {
		if w.runs[r].active {
			w.abandon(uint8(r))
		}
	}
	w.runs = [runs]run{}
	w.ledger, w.db = w.backup.ledger, w.backup.db
	w.backup = backup{taken: true}
	for e := range w.ledger {
		if w.ledger[e].state == ledger.Leased {
			w.ledger[e].state = ledger.Pending
		}
	}
	if w.db.holder != 0 {
		w.db.holder = gone
	}
}
