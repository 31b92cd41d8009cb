package host

import (
	"context"
	"fmt"
	"strings"
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/prompt"
	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/core/workitem"
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
}

const (
	// tick is how often a screen is looked at while something is waited for.
	tick = 30 * time.Millisecond
	// seenTime is how long a text may take to show in the composer; seenPerKiB is added for long ones.
	seenTime   = 2 * time.Second
	seenPerKiB = 4 * time.Millisecond
	// takenTime is how long evidence is waited for after one submit, and submits is how often one is sent.
	takenTime = 1500 * time.Millisecond
	submits   = 3
	// pasteTime bounds a paste whose caller sets no time; lastWords is kept of it for the answer.
	pasteTime = 10 * time.Second
	lastWords = 500 * time.Millisecond
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
	p.sight = h.look(ctx, req.Item)
	if err := h.fence(p.sight, req.Token); err != nil {
		return PasteResult{}, err
	}
	r, err := p.run(ctx)
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
	if err := h.own(ctx, p.slot, p.target, s.view); err != nil {
		return PasteResult{}, err
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
	return p.deliver(ctx)
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
		return PasteResult{Verdict: Held, Cause: HeldNotReady, Detail: s.why}, true
	case p.req.Stamp != "" && p.req.Stamp != s.pane.Stamp:
		return refuse(RefusedIncarnation, "another incarnation lives there: "+s.pane.Stamp)
	}
	return PasteResult{}, false
}

// deliver looks, pastes, and submits what it sees.
func (p *pasting) deliver(ctx context.Context) (PasteResult, error) {
	screen, gone, err := p.capture(ctx)
	if err != nil || gone != nil {
		return orZero(gone), err
	}
	if r, held := p.held(screen); held {
		return r, nil
	}
	return p.type_(ctx, false)
}

// held says what is in the way of typing into a screen.
func (p *pasting) held(s Screen) (PasteResult, bool) {
	hold := func(c Cause, detail string) (PasteResult, bool) {
		return PasteResult{Verdict: Held, Cause: c, Detail: detail}, true
	}
	reading := p.harness.Read(s.Screen)
	switch {
	case s.InputOff:
		return hold(HeldInputOff, "the pane's input is switched off (select-pane -e switches it on)")
	case reading.Dialog:
		return hold(HeldDialog, "a dialog waits for a person")
	case !reading.Ready:
		return hold(HeldNotReady, "the composer is not there: the agent is starting, or shows something else")
	case reading.Busy && p.harness.WhenBusy == "hold":
		return hold(HeldBusy, "a turn is running")
	case reading.Text != "":
		if other := p.ring.Unsubmitted(); other != "" && other != p.req.DeliveryID {
			return hold(HeldDraft, "the composer holds text, perhaps that of delivery "+other+", which was typed and not submitted")
		}
		return hold(HeldDraft, "the composer holds a draft")
	}
	return PasteResult{}, false
}

// type_ puts the text into the pane and goes on to the submit. again is true after evidence that it never arrived.
func (p *pasting) type_(ctx context.Context, again bool) (PasteResult, error) {
	h, id := p.h, p.req.DeliveryID
	if err := p.journal(session.Pasting, false); err != nil {
		return PasteResult{}, err
	}
	ring := p.ring.With(id, session.Pasted)
	done, err := p.act(ctx, func(ctx context.Context, g Guard) (bool, error) {
		return h.Tmux.Paste(ctx, p.target, g, Text{ID: id, Typed: p.typed, Again: again, Ring: ring})
	})
	if err != nil {
		return PasteResult{}, err
	}
	if !done {
		return p.whyNot(ctx)
	}
	p.ring = ring
	if err := p.journal(session.Pasted, false); err != nil {
		return PasteResult{}, err
	}
	return p.see(ctx)
}

// see waits until the text shows in the composer, alone, and submits it then. Without that nothing is submitted.
func (p *pasting) see(ctx context.Context) (PasteResult, error) {
	end := p.until(seenTime + time.Duration(len(p.typed)/1024)*seenPerKiB)
	for {
		screen, gone, err := p.capture(ctx)
		if err != nil || gone != nil {
			return orZero(gone), err
		}
		reading := p.harness.Read(screen.Screen)
		shows := p.harness.Composed(reading, p.typed, p.mark)
		if reading.Ready && shows == harness.ShowsText {
			break
		}
		if reading.Dialog {
			return PasteResult{Verdict: Held, Cause: HeldDialog, Detail: "a dialog opened before the text could be submitted"}, nil
		}
		if time.Now().After(end) {
			if shows == harness.ShowsMore || shows == harness.ShowsOther {
				return PasteResult{Verdict: Held, Cause: HeldDraft, Detail: "the composer holds other text beside the delivery's; it was not submitted"}, nil
			}
			return PasteResult{Verdict: Held, Cause: HeldNotShown, Detail: "the text was typed and does not show in the composer; it was not submitted"}, nil
		}
		pause(ctx, tick)
	}
	pause(ctx, p.harness.Settle)
	return p.submit(ctx, session.Pasted)
}

// submit sends the CR, and settles by evidence.
func (p *pasting) submit(ctx context.Context, from session.Phase) (PasteResult, error) {
	h, id := p.h, p.req.DeliveryID
	// A conversation outlives a reboot by resume: that this was submitted must not be forgotten by one.
	if err := p.journal(session.Submitted, true); err != nil {
		return PasteResult{}, err
	}
	ring := p.ring.With(id, session.Submitted)
	look := Look{Dialogs: p.harness.Dialogs, DialogTitles: p.harness.DialogTitles}
	done, err := p.act(ctx, func(ctx context.Context, g Guard) (bool, error) {
		return h.Tmux.Submit(ctx, p.target, g, id, from, look, ring)
	})
	if err != nil {
		return PasteResult{}, err
	}
	if !done {
		return p.whyNot(ctx)
	}
	p.ring = ring
	return p.settle(ctx, session.Submitted, true)
}

// resume goes on with a text that was typed and not submitted: it still stands there, or it never arrived, or somebody sent it.
func (p *pasting) resume(ctx context.Context) (PasteResult, error) {
	screen, gone, err := p.capture(ctx)
	if err != nil || gone != nil {
		return orZero(gone), err
	}
	reading := p.harness.Read(screen.Screen)
	switch shows := p.harness.Composed(reading, p.typed, p.mark); {
	case reading.Dialog:
		return PasteResult{Verdict: Held, Cause: HeldDialog, Detail: "a dialog waits for a person"}, nil
	case !reading.Ready:
		return PasteResult{Verdict: Held, Cause: HeldNotReady, Detail: "the composer is not there"}, nil
	case shows == harness.ShowsText:
		return p.see(ctx)
	case shows != harness.ShowsNothing:
		return PasteResult{Verdict: Held, Cause: HeldDraft, Detail: "the composer holds other text than the delivery's"}, nil
	}
	switch p.proof() {
	case recorded:
		return p.delivered(ctx, session.Pasted, AlreadyDelivered)
	case cannotSay:
		if strings.Contains(strings.Join(screen.Rows, "\n"), p.mark) {
			return PasteResult{Verdict: AlreadyDelivered, Detail: "the text shows in the conversation"}, nil
		}
	case notRecorded:
	}
	if r, held := p.held(screen); held {
		return r, nil
	}
	// The composer is empty, and neither the record nor the screen has it: it never arrived (a dialog swallowed it).
	return p.type_(ctx, true)
}

// settle looks for evidence of what was submitted, or started with. While the text still stands in the composer, and no dialog does, the
// submit is repeated: programs swallow one that comes too early. sent is true when a submit was sent just now.
func (p *pasting) settle(ctx context.Context, phase session.Phase, sent bool) (PasteResult, error) {
	first := Submitted
	if !sent {
		first = AlreadyDelivered
	}
	for n := 1; ; n++ {
		var standing bool
		for end := p.until(takenTime); ; {
			if p.proof() == recorded {
				return p.delivered(ctx, phase, first)
			}
			screen, gone, err := p.capture(ctx)
			if err != nil || gone != nil {
				return orZero(gone), err
			}
			reading := p.harness.Read(screen.Screen)
			shows := p.harness.Composed(reading, p.typed, p.mark)
			standing = phase == session.Submitted && reading.Ready && shows == harness.ShowsText
			if phase == session.Submitted && !p.harness.LeavesEvidence() && reading.Ready && shows == harness.ShowsNothing {
				return PasteResult{Verdict: first, Detail: "the text left the composer"}, nil
			}
			if time.Now().After(end) {
				if phase == session.Submitted && reading.Ready && shows == harness.ShowsNothing {
					// It left the composer and is not recorded yet: queued behind a turn.
					return queued(reading.Busy), nil
				}
				break
			}
			pause(ctx, tick)
		}
		if !standing || n >= submits || !time.Now().Before(p.end) {
			return PasteResult{Verdict: Unconfirmed, Phase: phase, Detail: unconfirmedDetail(phase, standing)}, nil
		}
		done, err := p.act(ctx, func(ctx context.Context, g Guard) (bool, error) {
			look := Look{Dialogs: p.harness.Dialogs, DialogTitles: p.harness.DialogTitles}
			return p.h.Tmux.Submit(ctx, p.target, g, p.req.DeliveryID, session.Submitted, look, p.ring)
		})
		if err != nil {
			return PasteResult{}, err
		}
		if !done {
			return p.whyNot(ctx)
		}
	}
}

// queued is the verdict on a text that left the composer without being recorded. During a turn it waits in the agent's own queue, which
// dies with the agent: it is held until the record has it.
func queued(busy bool) PasteResult {
	if busy {
		return PasteResult{Verdict: Held, Cause: HeldBusy, Detail: "the agent queued it behind a turn; it counts once the agent records it"}
	}
	return PasteResult{Verdict: Unconfirmed, Phase: session.Submitted, Detail: "the text left the composer and is not in the agent's record yet"}
}

func unconfirmedDetail(phase session.Phase, standing bool) string {
	switch {
	case standing:
		return "the text was submitted several times and still stands in the composer"
	case phase == session.Boot:
		return "the agent was started with it and has not recorded it yet"
	}
	return "the text was submitted, and nothing shows yet whether it arrived"
}

// delivered records that the agent's own record has it. If that cannot be written, the next question finds out again.
func (p *pasting) delivered(ctx context.Context, from session.Phase, v Verdict) (PasteResult, error) {
	id := p.req.DeliveryID
	if err := p.journal(session.Taken, false); err != nil {
		p.h.Logger.WarnContext(ctx, "the journal could not be written", "target", p.target, "delivery_id", id, "error", err)
	}
	_, err := p.act(ctx, func(ctx context.Context, g Guard) (bool, error) {
		return p.h.Tmux.Record(ctx, p.target, g, id, from, p.ring.With(id, session.Taken))
	})
	if err != nil {
		p.h.Logger.WarnContext(ctx, "the phase of a delivery could not be recorded", "target", p.target, "delivery_id", id, "error", err)
	}
	return PasteResult{Verdict: v, ByTranscript: true}, nil
}

func (p *pasting) proof() proof {
	conversation, dir := p.sight.pane.Conversation, p.sight.status().Directory
	return p.h.evidence(p.harness, conversation, dir, p.req.DeliveryID)
}

func (p *pasting) journal(phase session.Phase, synced bool) error {
	pane := p.sight.pane
	err := p.h.Disk.Append(p.target, Entry{Time: p.h.Now(), ID: p.req.DeliveryID, Phase: phase, Stamp: pane.Stamp, Harness: pane.Harness,
		Conversation: pane.Conversation, Directory: p.sight.status().Directory}, synced)
	if err != nil {
		return storage(err)
	}
	return nil
}

// act sends one guarded list. One that gets no answer is resolved at once: with the generation moved on it can no longer run, and the
// next call reads from the ring whether it did.
func (p *pasting) act(ctx context.Context, do func(context.Context, Guard) (bool, error)) (bool, error) {
	actCtx, cancel := context.WithTimeout(ctx, actTime)
	defer cancel()
	done, err := do(actCtx, p.sight.guard(p.slot.generation, p.req.Token, p.h.Now().Add(actTime)))
	if !noAnswer(err) {
		return done, err
	}
	if resolveErr := p.h.advance(ctx, p.slot, p.target); resolveErr != nil {
		return false, resolveErr
	}
	return false, fault.Wrap(fault.Unavailable, fault.ReasonTmuxNoAnswer, "the tmux server answered too late; what ran is settled, and asking again goes on", err)
}

// capture reads the screen. gone is set when the pane is no longer the agent's, or is dead.
func (p *pasting) capture(ctx context.Context) (s Screen, gone *PasteResult, err error) {
	lookCtx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	s, ok, err := p.h.Tmux.Capture(lookCtx, p.target, p.sight.guard(p.slot.generation, p.req.Token, time.Time{}))
	if noAnswer(err) {
		return s, nil, silence(err)
	}
	if err == nil && (!ok || s.Dead) {
		r, err := p.whyNot(ctx)
		return s, &r, err
	}
	return s, nil, err
}

// whyNot looks again after a guard refused, and says why.
func (p *pasting) whyNot(ctx context.Context) (PasteResult, error) {
	stamp := p.sight.pane.Stamp
	s := p.h.look(ctx, p.req.Item)
	switch {
	case s.state == session.Unknown:
		return PasteResult{}, silence(fmt.Errorf("%s", s.why))
	case s.state == session.Dead:
		return PasteResult{Verdict: Refused, Cause: RefusedDead, Detail: s.why}, nil
	case s.state == session.Absent:
		return PasteResult{Verdict: Refused, Cause: RefusedAbsent, Detail: s.why}, nil
	case s.flags.Has(session.Foreign):
		return PasteResult{Verdict: Refused, Cause: RefusedForeign, Detail: s.why}, nil
	case s.pane == nil || s.pane.Stamp != stamp:
		return PasteResult{Verdict: Refused, Cause: RefusedIncarnation, Detail: "the session was replaced meanwhile"}, nil
	case s.pane.Fence > p.req.Token:
		return PasteResult{}, fault.Newf(fault.Fenced, fault.ReasonOlderToken, "the fencing token %d is older than %d, which this session has seen",
			p.req.Token, s.pane.Fence)
	case s.pane.InputOff:
		return PasteResult{Verdict: Held, Cause: HeldInputOff, Detail: "the pane's input is switched off"}, nil
	}
	// What is left is what changes from moment to moment: a dialog opened, the cursor is away, the deadline passed.
	return PasteResult{Verdict: Held, Cause: HeldDialog, Detail: "a dialog opened, or the composer went away, just before the act"}, nil
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
