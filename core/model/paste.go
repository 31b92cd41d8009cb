package model

import (
	"muxpost.dev/muxpost/core/dispatch"
	"muxpost.dev/muxpost/core/session"
)

// acceptPaste decides by state and phase what is to be done.
func (w *world) acceptPaste(s sight) {
	switch {
	case s.state == session.Unknown:
		w.ends(dispatch.PasteSilent)
	case w.op.phase == session.Taken:
		w.ends(dispatch.PasteAlready)
	case s.state == session.Dead, s.state == session.Absent:
		w.ends(dispatch.PasteRefusedGone)
	case !s.pane || s.flags.Has(session.Detached):
		w.ends(dispatch.PasteNotReady)
	case w.op.order.life != 0 && w.op.order.life != s.life:
		w.ends(dispatch.PasteRefusedOther)
	default:
		w.goesOn()
	}
}

// goesOn takes a delivery up where its phase says that it was left.
func (w *world) goesOn() {
	switch here := w.m.rings.phase[w.op.ring][w.op.order.event]; {
	case here == session.Boot, here == session.Submitted:
		w.op.stage, w.op.phase = settles, here
	case here == session.Pasted:
		w.op.stage, w.op.phase = looksAgain, here
	case w.op.phase.MayHaveArrived():
		w.ends(dispatch.PasteUnconfirmed)
	default:
		w.op.stage = looksAtComposer
	}
}

// screen is what a capture of the pane says first of all. It reports whether there is more to be read.
func (w *world) screen() bool {
	switch {
	case w.tmux.silent:
		w.ends(dispatch.PasteSilent)
	case !w.tmux.session, w.tmux.dead, w.tmux.life != w.op.life:
		w.whyNot()
	default:
		return true
	}
	return false
}

// whyNot looks again after a guard refused.
func (w *world) whyNot() {
	s := w.look()
	switch {
	case s.state == session.Unknown:
		w.ends(dispatch.PasteSilent)
	case s.state == session.Dead, s.state == session.Absent:
		w.ends(dispatch.PasteRefusedGone)
	case !s.pane, s.life != w.op.life:
		w.ends(dispatch.PasteRefusedOther)
	case s.fence > w.op.order.token:
		w.fenced()
	default:
		w.ends(dispatch.PasteHeld)
	}
}

// shows reports whether the composer holds the text, and nothing else.
func (w *world) shows() bool {
	if !w.m.config.Rules.LookFirst {
		return w.agent.composer&bit(w.op.order.event) != 0
	}
	return w.agent.composer == bit(w.op.order.event)
}

// looksAtComposer holds the delivery, or journals the intent to paste.
func (w *world) looksAtComposer() {
	if !w.screen() {
		return
	}
	switch {
	case w.agent.dialog:
		w.ends(dispatch.PasteHeld)
	case !w.agent.ready:
		w.ends(dispatch.PasteNotReady)
	case w.agent.composer != 0 && w.m.config.Rules.LookFirst:
		w.ends(dispatch.PasteHeld)
	default:
		w.journal(session.Pasting)
		w.op.stage, w.op.again, w.op.phase = pastes, false, session.None
	}
}

// waitsForText submits nothing that it does not see, alone.
func (w *world) waitsForText() {
	if !w.screen() {
		return
	}
	if w.agent.dialog || !w.agent.ready || !w.shows() {
		w.ends(dispatch.PasteHeld)
		return
	}
	w.journal(session.Submitted)
	w.op.stage, w.op.phase = submits, session.Pasted
}

// looksAgain goes on with a text that was pasted and not submitted: it still stands there, or somebody sent it, or it never arrived.
func (w *world) looksAgain() {
	if !w.screen() {
		return
	}
	switch {
	case w.agent.dialog:
		w.ends(dispatch.PasteHeld)
	case !w.agent.ready:
		w.ends(dispatch.PasteNotReady)
	case w.shows():
		w.waitsForText()
	case w.agent.composer != 0:
		w.ends(dispatch.PasteHeld)
	case w.proof(w.op.order.event):
		w.op.stage = records
	case w.agent.queue != 0 && w.m.config.Rules.WaitBusy:
		w.ends(dispatch.PasteHeld)
	case w.m.config.NoTranscript:
		w.ends(dispatch.PasteUnconfirmed) // a person may have sent it
	default:
		w.journal(session.Pasting)
		w.op.stage, w.op.again = pastes, true
	}
}

// settles looks for evidence of what was submitted. While the text still stands there the CR is repeated, once an order; without evidence
// in time it is not known whether it arrived.
func (w *world) settles() {
	e, a := w.op.order.event, w.agent
	if w.proof(e) {
		w.op.stage = records
		return
	}
	if !w.screen() {
		return
	}
	submitted := w.op.phase == session.Submitted && a.ready
	switch {
	case a.dialog:
		w.ends(dispatch.PasteHeld)
	case submitted && a.composer == bit(e) && !w.op.resent:
		w.op.stage, w.op.resent = submits, true
	case submitted && a.composer == 0 && w.m.config.NoTranscript:
		w.endsSettled() // it left the composer
	case submitted && a.composer&bit(e) != 0 && w.m.config.Rules.HoldStanding:
		w.ends(dispatch.PasteHeld)
	default:
		w.ends(dispatch.PasteUnconfirmed)
	}
}

// endsSettled answers that it arrived: by this paste, or before.
func (w *world) endsSettled() {
	v := dispatch.PasteAlready
	if w.op.sent {
		v = dispatch.PasteSubmitted
	}
	w.ends(v)
}

// records writes down that the agent's own record has it; if that fails, the next question finds out again.
func (w *world) records() {
	w.journal(session.Taken)
	w.ring(w.op.ring, w.op.phase)
	w.endsSettled()
}

// ring has tmux write the phase taken, if the delivery's phase there is still from.
func (w *world) ring(before uint8, from session.Phase) {
	e, t := w.op.order.event, &w.tmux
	if t.session && !t.silent && w.host.own && t.life == w.op.life && w.m.rings.has[t.ring][e][from] {
		t.ring, t.fence = w.m.rings.with[before][e][session.Taken], w.op.order.token
	}
}
