package host

import (
	"context"
	"fmt"
	"strings"
	"time"

	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/internal/failpoint"
	"muxpost.dev/muxpost/services/tmuxd/internal/harness"
)

const (
	// tick is how often a screen is looked at while something is waited for.
	tick = 30 * time.Millisecond
	// seenTime is how long a text may take to show in the composer; seenPerKiB is added for long ones.
	seenTime   = 2 * time.Second
	seenPerKiB = 4 * time.Millisecond
	// awayTime is how long a text that was typed and does not show is watched for, before it counts as one that never arrived.
	awayTime = 3 * time.Second
	// takenTime is how long evidence is waited for after one submit, and submits is how often one is sent.
	takenTime = 1500 * time.Millisecond
	submits   = 2
	// refusedTime is how long a screen that moves on is looked at again and again.
	refusedTime = 3 * time.Second
	// personTime is how long a person who types in an attached terminal is left alone.
	personTime = 3 * time.Second
	// lateScreen is how long a turn may run before the screen shows it.
	lateScreen = time.Minute
	// minRows and minColumns are the smallest pane in which a composer can be read.
	minRows, minColumns = 10, 40
)

// pasting is the channel that works for any program: the text is pasted into its terminal, seen in its composer, and submitted.
type pasting struct {
	*delivering
	// refusedAt is when an act was first refused because the screen had moved on.
	refusedAt time.Time
}

// carry goes on where an earlier call stopped, or looks and types.
func (p *pasting) carry(ctx context.Context, phase session.Phase) (PasteResult, error) {
	if p.harness.NoBracketedPaste {
		p.typed = strings.Join(strings.Fields(p.typed), " ")
	}
	p.typed = harness.Closed(p.typed)
	switch here := p.ring.Phase(p.req.DeliveryID); here {
	case session.Boot, session.Submitted:
		return p.settle(ctx, here, false)
	case session.Pasted:
		return p.resume(ctx)
	case session.None, session.Pasting, session.Taken, session.Handing:
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
	if other := p.ring.Unsubmitted(); other != "" {
		// The text of another delivery was typed here and does not show. Ours must not meet it when it comes up.
		switch shown, r, err := p.staysAway(ctx); {
		case err != nil || r != nil:
			return orZero(r), err
		case shown:
			return hold(HeldDraft, "the text of delivery "+other+", which was typed and not submitted, may still come up"), nil
		}
	}
	return p.typeText(ctx, screen, false)
}

// held says what is in the way of typing into a screen.
func (p *pasting) held(s Screen) (PasteResult, bool) {
	reading := p.harness.Read(s.Screen)
	p.h.saw(&p.sight, p.harness, reading)
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
	case p.harness.WhenBusy == "hold" && p.saysBusy():
		return hold(HeldBusy, "a turn has begun, and does not show yet"), true
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

// saysBusy reports whether the program has said by itself that a turn runs, which its screen may show late: a text that it took a moment ago would
// be typed into. What it said a while ago counts no more: by then the screen shows it, and a program may fail to say that it is done. A title that
// tells is part of every look, and so newer than what was noted of it.
func (p *pasting) saysBusy() bool {
	if p.harness.TellsByTitle() {
		return false
	}
	n, ok := p.h.Disk.Note(p.target, p.sight.pane.Stamp)
	return ok && notedWords[n.Word] == ActivityWorking && p.h.Now().Sub(n.At) < lateScreen
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
	return Look{Cursor: Cursor{s.CursorX, s.CursorY}, CursorHidden: p.harness.HidesCursor(),
		Dialogs: p.harness.Guarded(p.harness.Read(s.Screen)), DialogTitles: p.harness.DialogTitles}
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
