package model

import (
	"time"

	"muxpost.dev/muxpost/core/dispatch"
	"muxpost.dev/muxpost/core/ledger"
)

// epoch is now in every call of a rule that wants a time; the model's time passes by steps and not by a clock.
var epoch = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// poller asks for the first event that waits, and may be gone before it hears the answer.
func (x *expansion) poller() {
	for r := range x.from.runs {
		if x.from.runs[r].active && x.from.runs[r].asked {
			x.try("the poller gives up on the dispatcher, or is killed", int(x.from.runs[r].event), PollerGone, func(w *world) {
				w.answer(uint8(r), ledger.Silent, "dispatcher_unreachable")
			})
		}
	}
	head := -1
	for e := range x.from.ledger {
		if x.from.ledger[e].state.Waits() {
			head = e
			break
		}
	}
	if head < 0 || x.from.ledger[head].state == ledger.Leased {
		return
	}
	for r := range x.from.runs {
		if !x.from.runs[r].active {
			x.try("the poller asks, a dispatcher takes the lease and looks up the registry", head, none, func(w *world) {
				w.begin(uint8(r), uint8(head))
			})
			return
		}
	}
}

// answer gives the poller its answer, if it still waits for one.
func (w *world) answer(r uint8, a ledger.Answer, reason string) {
	if !w.runs[r].asked {
		return
	}
	w.runs[r].asked = false
	w.apply(w.runs[r].event, a, reason)
}

// apply has core/ledger say what an answer does to an event. That evidence was missing the last time stands for ten minutes: the
// shortest time in which an event can be given up as unconfirmed is the worst.
func (w *world) apply(e uint8, a ledger.Answer, reason string) {
	row := &w.ledger[e]
	p := ledger.Progress{State: row.state, Tries: int(row.tries)}
	if row.unproven {
		p.UnprovenSince = epoch.Add(-ledger.EvidenceTime)
	}
	p = w.m.config.Core.Apply(p, a, reason, 0, epoch, 0)
	*row = event{state: p.State, tries: uint8(p.Tries), unproven: !p.UnprovenSince.IsZero()}
	if p.State.Waits() {
		return
	}
	row.tries, row.unproven = 0, false
	switch {
	case p.State == ledger.Delivered:
		w.reported(e)
	case p.Reason == "":
		w.breaks(endedUnsaid)
	case p.State == ledger.Dropped:
		w.breaks(droppedFree)
	}
}

// reported notes that an event was reported as delivered. Where the screen is all the evidence, it proves less.
func (w *world) reported(e uint8) {
	if w.m.config.NoTranscript {
		return
	}
	for c := range w.taken {
		if w.taken[c][e] > 0 {
			return
		}
	}
	w.breaks(reportedLost)
}

// answerOf puts an outcome into the ledger's words, as the poller does.
func answerOf(o dispatch.Outcome) ledger.Answer {
	switch o {
	case dispatch.Delivered:
		return ledger.Arrived
	case dispatch.InProgress:
		return ledger.Working
	case dispatch.Held:
		return ledger.Holding
	case dispatch.Failed:
		return ledger.Failing
	case dispatch.Dropped:
		return ledger.Dropping
	case dispatch.Unconfirmed:
		return ledger.Unproven
	case dispatch.Waiting:
	}
	return ledger.Silent
}
