package host

import (
	"context"
	"fmt"
	"strings"
	"time"

	"muxpost.dev/muxpost/core/prompt"
	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/core/workitem"
	"muxpost.dev/muxpost/internal/failpoint"
	"muxpost.dev/muxpost/services/tmuxd/internal/harness"
)

// PasteRequest asks for one delivery to be put into a living agent.
type PasteRequest struct {
	Item       workitem.Ref
	DeliveryID string
	Text       string
	// Stamp is the incarnation it is meant for; empty for whichever is there.
	Stamp string
	Token int64
}

// Verdict says what came of a delivery at a session.
type Verdict uint8

// The verdicts. The zero value claims nothing.
const (
	Unconfirmed Verdict = iota
	Submitted
	AlreadyDelivered
	Held
	Refused
)

// String returns the verdict's name, for the log.
func (v Verdict) String() string {
	return [...]string{Unconfirmed: "unconfirmed", Submitted: "submitted", AlreadyDelivered: "already_delivered", Held: "held",
		Refused: "refused"}[v]
}

// Cause says why a delivery is held or refused.
type Cause uint8

// The causes: of Held first, then of Refused.
const (
	CauseNone Cause = iota
	HeldDraft
	HeldDialog
	HeldBusy
	HeldNotReady
	HeldInputOff
	HeldNotShown
	HeldFrozen
	HeldPerson
	RefusedDead
	RefusedAbsent
	RefusedForeign
	RefusedIncarnation
)

// PasteResult is the verdict on a delivery.
type PasteResult struct {
	Target      string
	Incarnation Incarnation
	Verdict     Verdict
	Cause       Cause
	// ByTranscript is true when the agent's own record proves it, false when the screen does.
	ByTranscript bool
	// Phase is the delivery's phase, with Unconfirmed.
	Phase  session.Phase
	Detail string
	// again is true when an act was refused only for what changes from moment to moment: another look is worth it.
	again bool
}

const (
	// tick is how often a screen is looked at while something is waited for.
	tick = 30 * time.Millisecond
	// seenTime is how long a text may take to show in the composer; seenPerKiB is added for long ones.
	seenTime   = 2 * time.Second
	seenPerKiB = 4 * time.Millisecond
	// takenTime is how long evidence is waited for after one submit, and submits is how often one is sent.
	takenTime = 1500 * time.Millisecond
	submits   = 2
	// pasteTime bounds a paste whose caller sets no time; lastWords is kept of it for the answer.
	pasteTime = 10 * time.Second
	lastWords = 500 * time.Millisecond
	// refusedTime is how long a screen that moves on is looked at again and again.
	refusedTime = 3 * time.Second
	// personTime is how long a person who types in an attached terminal is left alone.
	personTime = 3 * time.Second
	// minRows and minColumns are the smallest pane in which a composer can be read.
	minRows, minColumns = 10, 40
)

// pasting is one paste under way.
type pasting struct {
	h       *Host
	slot    *slot
	req     PasteRequest
	target  string
	harness *harness.Harness
	typed   string
	mark    string
	sight   sight
	ring    session.Ring
	// end is when nothing more is begun or waited for.
	end time.Time
	// refusedAt is when an act was first refused because the screen had moved on.
	refusedAt time.Time
}

// until returns when a wait for d that starts now ends.
func (p *pasting) until(d time.Duration) time.Time {
	if t := time.Now().Add(d); t.Before(p.end) {
		return t
	}
	return p.end
}

// Paste puts a delivery into the agent and submits it. A repeat goes on at the phase in which the first stopped; the text is never typed
// twice. It never waits for a person.
func (h *Host) Paste(ctx context.Context, req PasteRequest) (PasteResult, error) {
	if !session.ValidDeliveryID(req.DeliveryID) {
		return PasteResult{}, badDeliveryID(req.DeliveryID)
	}
	clean, _, err := prompt.Clean(req.Text)
	if err != nil {
		return PasteResult{}, err
	}
	p := &pasting{h: h, req: req, target: req.Item.Target(), typed: prompt.Typed(req.DeliveryID, clean), mark: prompt.Mark(req.DeliveryID)}
	slot, release, err := h.acquire(ctx, p.target)
	if err != nil {
		return PasteResult{}, err
	}
	defer release()
	p.slot = slot
	// An act that began is brought to its end: a caller that went away must not leave a half-known one. What the caller gave is how
	// long it may take.
	p.end = time.Now().Add(pasteTime)
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(p.end) {
		p.end = deadline
	}
	p.end = p.end.Add(-lastWords)
	ctx = context.WithoutCancel(ctx)
	if p.sight, err = h.lookOwned(ctx, slot, req.Item); err != nil {
		return PasteResult{}, err
	}
	if err := h.fence(p.sight, req.Token); err != nil {
		return PasteResult{}, err
	}
	r, err := p.run(ctx)
	failpoint.Hit("tmuxd.paste.answering")
	r.Target, r.Incarnation = p.target, p.sight.incarnation()
	return r, err
}

// run decides by state and phase what is to be done, and does it.
func (p *pasting) run(ctx context.Context) (PasteResult, error) {
	h, s := p.h, p.sight
	if s.state == session.Unknown {
		return PasteResult{}, silence(fmt.Errorf("%s", s.why))
	}
	phase, err := h.phase(s, p.req.DeliveryID)
	if err != nil {
		return PasteResult{}, storage(err)
	}
	if phase == session.Taken {
		return PasteResult{Verdict: AlreadyDelivered, ByTranscript: true}, nil
	}
	if r, refused := p.refused(); refused {
		return r, nil
	}
	if p.harness, err = h.Table.Find(s.pane.Harness); err != nil {
		return PasteResult{}, err
	}
	if p.harness.NoBracketedPaste {
		p.typed = strings.Join(strings.Fields(p.typed), " ")
	}
	p.ring = s.ring()
	here := p.ring.Phase(p.req.DeliveryID)
	switch here {
	case session.Boot, session.Submitted:
		return p.settle(ctx, here, false)
	case session.Pasted:
		return p.resume(ctx)
	case session.None, session.Pasting, session.Taken:
	}
	if phase.MayHaveArrived() {
		// An earlier incarnation may have taken it, and nothing can tell.
		return PasteResult{Verdict: Unconfirmed, Phase: phase,
			Detail: "an earlier life of this session may have taken it, and its harness leaves no record that could tell"}, nil
	}
	screen, gone, err := p.capture(ctx)
	if err != nil || gone != nil {
		return orZero(gone), err
	}
	if r, held := p.held(screen); held {
		return r, nil
	}
	return p.typeText(ctx, screen, false)
}

// refused answers for sessions that take no delivery.
func (p *pasting) refused() (PasteResult, bool) {
	s := p.sight
	refuse := func(c Cause, detail string) (PasteResult, bool) {
		return PasteResult{Verdict: Refused, Cause: c, Detail: detail}, true
	}
	switch {
	case s.state == session.Dead:
		return refuse(RefusedDead, s.why)
	case s.state == session.Absent:
		return refuse(RefusedAbsent, s.why)
	case s.flags.Has(session.Foreign):
		return refuse(RefusedForeign, s.why)
	case s.flags.Has(session.Detached) || s.pane == nil:
		return hold(HeldNotReady, s.why), true
	case p.req.Stamp != "" && p.req.Stamp != s.pane.Stamp:
		return refuse(RefusedIncarnation, "another incarnation lives there: "+s.pane.Stamp)
	}
	return PasteResult{}, false
}

func hold(c Cause, detail string) PasteResult {
	return PasteResult{Verdict: Held, Cause: c, Detail: detail}
}

// held says what is in the way of typing into a screen.
func (p *pasting) held(s Screen) (PasteResult, bool) {
	reading := p.harness.Read(s.Screen)
	switch {
	case s.InputOff:
		return hold(HeldInputOff, "the pane's input is switched off (select-pane -e switches it on)"), true
	case reading.Dialog:
		return hold(HeldDialog, "a dialog waits for a person"), true
	case len(s.Rows) < minRows || s.Width < minColumns:
		return hold(HeldNotReady, fmt.Sprintf("the pane has %d columns and %d rows, too few to read the composer", s.Width, len(s.Rows))), true
	case !reading.Ready:
		return hold(HeldNotReady, "the composer is not there: the agent is starting, or shows something else"), true
	case reading.Busy && p.harness.WhenBusy == "hold":
		return hold(HeldBusy, "a turn is running"), true
	case reading.Text != "":
		if other := p.ring.Unsubmitted(); other != "" && other != p.req.DeliveryID {
			return hold(HeldDraft, "the composer holds text, perhaps that of delivery "+other+", which was typed and not submitted"), true
		}
		return hold(HeldDraft, "the composer holds a draft"), true
	case p.unread():
		return hold(HeldFrozen, "the agent has not read what was typed before"), true
	case s.LastKey.Known && s.LastKey.Ago < personTime:
		return hold(HeldPerson, "somebody typed in an attached terminal just now"), true
	}
	return PasteResult{}, false
}

// unread reports whether the agent has typed text that it did not read yet: then its screen says nothing.
func (p *pasting) unread() bool {
	n, ok := p.h.Tmux.Unread(p.sight.pane.TTY)
	return ok && n > 0
}

// typeText puts the text into the pane, as it was seen on a screen, and goes on to the submit. again is true after evidence that it never
// arrived.
func (p *pasting) typeText(ctx context.Context, screen Screen, again bool) (PasteResult, error) {
	h, id := p.h, p.req.DeliveryID
	if err := p.journal(session.Pasting, false); err != nil {
		return PasteResult{}, err
	}
	failpoint.Hit("tmuxd.paste.intended")
	ring := p.ring.With(id, session.Pasted)
	ruling, err := p.act(ctx, func(ctx context.Context, g Guard) (Ruling, error) {
		return h.Tmux.Paste(ctx, p.target, g, Text{ID: id, Typed: p.typed, Again: again, Look: p.look(screen), Ring: ring})
	})
	failpoint.Hit("tmuxd.paste.typed")
	if err != nil {
		return PasteResult{}, err
	}
	if ruling != Done {
		// The answer is certain: nothing was typed, so nothing of it can have arrived.
		if err := p.journal(p.ring.Phase(id), false); err != nil {
			return PasteResult{}, err
		}
		return p.typeAgain(ctx, again, ruling)
	}
	p.ring = ring
	if err := p.journal(session.Pasted, false); err != nil {
		return PasteResult{}, err
	}
	failpoint.Hit("tmuxd.paste.journalled")
	return p.see(ctx)
}

// typeAgain says why an act was refused. If it was only that the screen moved on (the agent drew it anew), it is looked at and tried again.
func (p *pasting) typeAgain(ctx context.Context, again bool, ruling Ruling) (PasteResult, error) {
	r, err := p.whyNot(ctx, ruling)
	if err != nil || !r.again || !p.mayRepeat() {
		return r, err
	}
	pause(ctx, tick)
	screen, gone, err := p.capture(ctx)
	if err != nil || gone != nil {
		return orZero(gone), err
	}
	if r, held := p.held(screen); held {
		return r, nil
	}
	return p.typeText(ctx, screen, again)
}

// mayRepeat says whether an act that was refused may be tried again: for a time, from the first refusal on.
func (p *pasting) mayRepeat() bool {
	if p.refusedAt.IsZero() {
		p.refusedAt = time.Now()
	}
	return time.Since(p.refusedAt) < refusedTime && time.Now().Before(p.end)
}

// look is what must still hold of a screen inside the server.
func (p *pasting) look(s Screen) Look {
	return Look{Cursor: Cursor{s.CursorX, s.CursorY}, Dialogs: p.harness.Guarded(p.harness.Read(s.Screen)), DialogTitles: p.harness.DialogTitles}
}

// see waits until the text shows in the composer, alone, and submits it then. Without that nothing is submitted. Two looks have to agree,
// before and after the time that the program needs to take a submit: a person may be typing.
func (p *pasting) see(ctx context.Context) (PasteResult, error) {
	end := p.until(seenTime + time.Duration(len(p.typed)/1024)*seenPerKiB)
	settled := false
	for {
		screen, gone, err := p.capture(ctx)
		if err != nil || gone != nil {
			return orZero(gone), err
		}
		reading := p.harness.Read(screen.Screen)
		shows := p.harness.Composed(reading, p.typed, p.mark)
		switch {
		case reading.Ready && shows == harness.ShowsText && !p.unread():
			if settled {
				failpoint.Hit("tmuxd.paste.seen")
				return p.submit(ctx, screen, session.Pasted)
			}
			settled = true
			pause(ctx, p.harness.Settle)
			continue
		case reading.Dialog:
			return hold(HeldDialog, "a dialog opened before the text could be submitted"), nil
		case !time.Now().Before(end) && p.unread():
			return hold(HeldFrozen, "the agent has not read what was typed; it was not submitted"), nil
		case !time.Now().Before(end) && (shows == harness.ShowsMore || shows == harness.ShowsOther):
			return hold(HeldDraft, "the composer holds other text beside the delivery's; it was not submitted"), nil
		case !time.Now().Before(end):
			return hold(HeldNotShown, "the text was typed and does not show in the composer; it was not submitted"), nil
		}
		settled = false
		pause(ctx, tick)
	}
}

// submit sends the CR into a screen that was looked at, and settles by evidence.
func (p *pasting) submit(ctx context.Context, screen Screen, from session.Phase) (PasteResult, error) {
	h, id := p.h, p.req.DeliveryID
	// A conversation outlives a reboot by resume: that this was submitted must not be forgotten by one.
	if err := p.journal(session.Submitted, true); err != nil {
		return PasteResult{}, err
	}
	failpoint.Hit("tmuxd.paste.submitting")
	ring := p.ring.With(id, session.Submitted)
	ruling, err := p.act(ctx, func(ctx context.Context, g Guard) (Ruling, error) {
		return h.Tmux.Submit(ctx, p.target, g, id, from, p.look(screen), ring)
	})
	failpoint.Hit("tmuxd.paste.submitted")
	if err != nil {
		return PasteResult{}, err
	}
	if ruling != Done {
		if err := p.journal(from, false); err != nil {
			return PasteResult{}, err
		}
		r, err := p.whyNot(ctx, ruling)
		if err != nil || !r.again || !p.mayRepeat() {
			return r, err
		}
		return p.see(ctx)
	}
	p.ring = ring
	return p.settle(ctx, session.Submitted, true)
}
