package host

import (
	"context"
	"strings"
	"time"

	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/internal/failpoint"
	"muxpost.dev/muxpost/services/tmuxd/internal/harness"
)

// resume goes on with a text that was typed and not submitted: it still stands there, or it never arrived, or somebody sent it.
func (p *pasting) resume(ctx context.Context) (PasteResult, error) {
	screen, gone, err := p.capture(ctx)
	if err != nil || gone != nil {
		return orZero(gone), err
	}
	reading := p.harness.Read(screen.Screen)
	switch shows := p.harness.Composed(reading, p.typed, p.mark); {
	case reading.Dialog:
		return hold(HeldDialog, "a dialog waits for a person"), nil
	case !reading.Ready:
		return hold(HeldNotReady, "the composer is not there"), nil
	case p.unread():
		return hold(HeldFrozen, "the agent has not read what was typed"), nil
	case shows == harness.ShowsText:
		return p.see(ctx)
	case shows != harness.ShowsNothing:
		return hold(HeldDraft, "the composer holds other text than the delivery's"), nil
	case p.proof() == recorded:
		return p.delivered(ctx, session.Pasted, AlreadyDelivered)
	case reading.Busy:
		return hold(HeldBusy, "a turn is running, and the text may be queued behind it"), nil
	case strings.Contains(strings.Join(screen.Rows, "\n"), p.mark):
		return PasteResult{Verdict: Unconfirmed, Phase: session.Pasted, Detail: "the text shows in the conversation, and is not in the agent's record"}, nil
	case p.proof() == cannotSay:
		return PasteResult{Verdict: Unconfirmed, Phase: session.Pasted,
			Detail: "the text was typed and stands in the composer no more; a person may have sent it, and nothing can tell"}, nil
	}
	if r, held := p.held(screen); held {
		return r, nil
	}
	if shown, r, err := p.staysAway(ctx); err != nil || r != nil {
		return orZero(r), err
	} else if shown {
		return p.resume(ctx)
	}
	if screen, gone, err = p.capture(ctx); err != nil || gone != nil {
		return orZero(gone), err
	}
	if r, held := p.held(screen); held {
		return r, nil
	}
	// The agent has read its input, its composer stays empty, and neither its record nor the screen has the text: it never arrived (a
	// dialog swallowed it).
	return p.typeText(ctx, screen, true)
}

// staysAway watches for a time whether a text that was typed, was read and does not show comes up yet: a program that has read its
// input may take long to draw it, and one that was stopped in between takes as long as it is stopped.
func (p *pasting) staysAway(ctx context.Context) (shown bool, r *PasteResult, err error) {
	for end := time.Now().Add(awayTime); time.Now().Before(end); pause(ctx, tick) {
		screen, gone, err := p.capture(ctx)
		if err != nil || gone != nil {
			return false, gone, err
		}
		reading := p.harness.Read(screen.Screen)
		switch {
		case reading.Dialog || !reading.Ready || reading.Text != "" || p.unread() || p.proof() == recorded:
			return true, nil, nil
		case p.h.Tmux.Stopped(p.sight.pane.TTY):
			r := hold(HeldFrozen, "the agent is stopped, and may have read what was typed")
			return false, &r, nil
		case !time.Now().Before(p.end):
			r := hold(HeldFrozen, "the text was typed and does not show; it is not certain yet that it never will")
			return false, &r, nil
		}
	}
	return false, nil, nil
}

// settle looks for evidence of what was submitted, or started with. Once more a submit is sent while the text still stands in the composer,
// the agent has read the first and no dialog is open: programs swallow one that comes too early. sent is true when a submit was sent just now.
func (p *pasting) settle(ctx context.Context, phase session.Phase, sent bool) (PasteResult, error) {
	first := Submitted
	if !sent {
		first = AlreadyDelivered
	}
	for n := 1; ; n++ {
		screen, r, err := p.await(ctx, phase, first)
		if err != nil || r != nil {
			return orZero(r), err
		}
		if n >= submits || !time.Now().Before(p.end) {
			return hold(HeldNotShown, "the text was submitted more than once and still stands in the composer"), nil
		}
		ruling, err := p.act(ctx, func(ctx context.Context, g Guard) (Ruling, error) {
			return p.h.Tmux.Submit(ctx, p.target, g, p.req.DeliveryID, session.Submitted, p.look(screen), p.ring)
		})
		if err != nil {
			return PasteResult{}, err
		}
		if ruling != Done {
			return p.whyNot(ctx, ruling)
		}
	}
}

// await waits for evidence. It returns a result, or the screen on which the text still stands, unsent.
func (p *pasting) await(ctx context.Context, phase session.Phase, first Verdict) (Screen, *PasteResult, error) {
	for end := p.until(takenTime); ; {
		if p.proof() == recorded {
			failpoint.Hit("tmuxd.paste.proven")
			r, err := p.delivered(ctx, phase, first)
			return Screen{}, &r, err
		}
		screen, gone, err := p.capture(ctx)
		if err != nil || gone != nil {
			return Screen{}, gone, err
		}
		reading := p.harness.Read(screen.Screen)
		shows := p.harness.Composed(reading, p.typed, p.mark)
		left := phase == session.Submitted && reading.Ready && shows == harness.ShowsNothing && !p.unread()
		if left && !p.harness.LeavesEvidence() {
			return screen, &PasteResult{Verdict: first, Detail: "the text left the composer"}, nil
		}
		if time.Now().Before(end) {
			pause(ctx, tick)
			continue
		}
		unconfirmed := func(detail string) (Screen, *PasteResult, error) {
			return screen, &PasteResult{Verdict: Unconfirmed, Phase: phase, Detail: detail}, nil
		}
		held := func(c Cause, detail string) (Screen, *PasteResult, error) {
			r := hold(c, detail)
			return screen, &r, nil
		}
		switch {
		case reading.Dialog:
			return held(HeldDialog, "it was submitted, and a dialog waits for a person before anything shows of it")
		case p.unread():
			return held(HeldFrozen, "it was submitted, and the agent has not read it yet")
		case phase == session.Boot:
			return unconfirmed("the agent was started with it and has not recorded it yet")
		case reading.Ready && shows == harness.ShowsText:
			return screen, nil, nil
		case reading.Ready && shows == harness.ShowsMore:
			return held(HeldDraft, "the text still stands in the composer, together with somebody's draft")
		case left && reading.Busy:
			// It waits in the agent's own queue, which dies with the agent: it is held until the record has it.
			return held(HeldBusy, "the agent queued it behind a turn; it counts once the agent records it")
		case left:
			return unconfirmed("the text left the composer and is not in the agent's record yet")
		}
		return unconfirmed("the text was submitted, and nothing shows yet whether it arrived")
	}
}

func orZero(r *PasteResult) PasteResult {
	if r == nil {
		return PasteResult{}
	}
	return *r
}

// lastLines returns the last lines of a screen that are not blank.
func lastLines(rows []string, count int) []string {
	for len(rows) > 0 && strings.TrimSpace(rows[len(rows)-1]) == "" {
		rows = rows[:len(rows)-1]
	}
	var out []string
	for _, row := range rows[max(0, len(rows)-count):] {
		out = append(out, strings.TrimRight(row, " "))
	}
	return out
}
