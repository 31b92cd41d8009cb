package host

import (
	"context"
	"fmt"
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/prompt"
	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/core/workitem"
	"muxpost.dev/muxpost/internal/failpoint"
	"muxpost.dev/muxpost/internal/obs"
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
	// pasteTime bounds a paste whose caller sets no time; lastWords is kept of it for the answer.
	pasteTime = 10 * time.Second
	lastWords = 500 * time.Millisecond
)

// delivering is one delivery on its way into an agent, by whichever channel.
type delivering struct {
	h       *Host
	slot    *slot
	req     PasteRequest
	target  string
	harness *harness.Harness
	typed   string
	mark    string
	sight   sight
	ring    session.Ring
	// search is for the delivery in the agent's own records.
	search search
	// end is when nothing more is begun or waited for.
	end time.Time
}

// until returns when a wait that starts now ends.
func (d *delivering) until(wait time.Duration) time.Time {
	if t := time.Now().Add(wait); t.Before(d.end) {
		return t
	}
	return d.end
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
	d := &delivering{h: h, req: req, target: req.Item.Target(), typed: prompt.Typed(req.DeliveryID, clean), mark: prompt.Mark(req.DeliveryID)}
	slot, release, err := h.acquire(ctx, d.target)
	if err != nil {
		return PasteResult{}, err
	}
	defer release()
	d.slot = slot
	// An act that began is brought to its end: a caller that went away must not leave a half-known one. What the caller gave is how
	// long it may take.
	d.end = time.Now().Add(pasteTime)
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(d.end) {
		d.end = deadline
	}
	d.end = d.end.Add(-lastWords)
	ctx = context.WithoutCancel(ctx)
	if d.sight, err = h.lookOwned(ctx, slot, req.Item); err != nil {
		return PasteResult{}, err
	}
	if err := h.fence(d.sight, req.Token); err != nil {
		return PasteResult{}, err
	}
	r, err := d.run(ctx)
	failpoint.Hit("tmuxd.paste.answering")
	r.Target, r.Incarnation = d.target, d.sight.incarnation()
	return r, err
}

// run answers for sessions that take nothing and for deliveries that arrived, and carries the others.
func (d *delivering) run(ctx context.Context) (PasteResult, error) {
	h, s := d.h, d.sight
	if s.state == session.Unknown {
		return PasteResult{}, silence(fmt.Errorf("%s", s.why))
	}
	phase, err := h.phase(s, d.req.DeliveryID)
	if err != nil {
		return PasteResult{}, storage(err)
	}
	if phase == session.Taken {
		return PasteResult{Verdict: AlreadyDelivered, ByTranscript: true}, nil
	}
	if r, refused := d.refused(); refused {
		return r, nil
	}
	if d.harness, err = h.Table.Find(s.pane.Harness); err != nil {
		return PasteResult{}, err
	}
	d.ring = s.ring()
	return d.channel(phase).carry(ctx, phase)
}

// channel is a way in which a delivery reaches an agent that may take it. Whichever it is, the intent is journalled before anything is
// sent, what was sent is asked about before it is sent again, and only evidence says that it arrived.
type channel interface {
	// carry takes the delivery from its phase, which is what ring and journal say together, as far as it comes now.
	carry(ctx context.Context, phase session.Phase) (PasteResult, error)
}

// channel is the harness's. What was handed over is never typed instead, whatever the harness's entry says by now.
func (d *delivering) channel(phase session.Phase) channel {
	if d.harness.HandsOver() || phase == session.Handing {
		return &handing{delivering: d}
	}
	return &pasting{delivering: d}
}

// refused answers for sessions that take no delivery.
func (d *delivering) refused() (PasteResult, bool) {
	s := d.sight
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
	case d.req.Stamp != "" && d.req.Stamp != s.pane.Stamp:
		return refuse(RefusedIncarnation, "another incarnation lives there: "+s.pane.Stamp)
	}
	return PasteResult{}, false
}

// delivered records that the agent's own record has it. If that cannot be written, the next question finds out again.
func (d *delivering) delivered(ctx context.Context, from session.Phase, v Verdict) (PasteResult, error) {
	id := d.req.DeliveryID
	if err := d.journal(session.Taken, false); err != nil {
		d.h.Logger.WarnContext(ctx, "the journal could not be written", obs.KeyTarget, d.target, obs.KeyDeliveryID, id, obs.KeyError, err)
	}
	_, err := d.act(ctx, func(ctx context.Context, g Guard) (Ruling, error) {
		return d.h.Tmux.Record(ctx, d.target, g, id, from, d.ring.With(id, session.Taken))
	})
	if err != nil {
		d.h.Logger.WarnContext(ctx, "the phase of a delivery could not be recorded", obs.KeyTarget, d.target, obs.KeyDeliveryID, id, obs.KeyError, err)
	}
	if d.harness.Learns() {
		d.h.learn(ctx, d.target, d.sight.pane.Stamp, d.search.conversation)
	}
	return PasteResult{Verdict: v, ByTranscript: true}, nil
}

func (d *delivering) proof() proof {
	p, _ := d.h.evidence(d.harness, d.target, d.sight.status().Directory, d.req.DeliveryID, &d.search)
	return p
}

func (d *delivering) journal(phase session.Phase, synced bool) error {
	pane := d.sight.pane
	err := d.h.Disk.Append(d.target, Entry{Time: d.h.Now(), ID: d.req.DeliveryID, Phase: phase, Stamp: pane.Stamp, Harness: pane.Harness,
		Conversation: pane.Conversation, Directory: d.sight.status().Directory}, synced)
	if err != nil {
		return storage(err)
	}
	return nil
}

// act sends one guarded list. One that gets no answer is resolved at once: with the generation moved on it can no longer run, and the
// next call reads from the ring whether it did.
func (d *delivering) act(ctx context.Context, do func(context.Context, Guard) (Ruling, error)) (Ruling, error) {
	limit := max(time.Until(d.end), lastWords)
	limit = min(limit, actTime)
	actCtx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	ruling, err := do(actCtx, d.sight.guard(d.slot.generation, d.req.Token, d.h.Now().Add(limit)))
	if !noAnswer(err) {
		return ruling, err
	}
	if resolveErr := d.h.advance(ctx, d.slot, d.target); resolveErr != nil {
		return Unruled, resolveErr
	}
	return Unruled, fault.Wrap(fault.Unavailable, fault.ReasonTmuxNoAnswer, "the tmux server answered too late; what ran is settled, and asking again goes on", err)
}

// capture reads the screen. gone is set when the pane is no longer the agent's, or is dead.
func (d *delivering) capture(ctx context.Context) (s Screen, gone *PasteResult, err error) {
	lookCtx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	s, ok, err := d.h.Tmux.Capture(lookCtx, d.target, d.sight.guard(d.slot.generation, d.req.Token, time.Time{}))
	if noAnswer(err) {
		return s, nil, silence(err)
	}
	if err == nil && (!ok || s.Dead) {
		r, err := d.whyNot(ctx, NotIncarnation)
		return s, &r, err
	}
	return s, nil, err
}

// whyNot looks again after a guard refused, and says why. What passes within moments is told from the ruling.
func (d *delivering) whyNot(ctx context.Context, ruling Ruling) (PasteResult, error) {
	stamp := d.sight.pane.Stamp
	s := d.h.look(ctx, d.req.Item)
	refuse := func(c Cause, detail string) (PasteResult, error) {
		return PasteResult{Verdict: Refused, Cause: c, Detail: detail}, nil
	}
	switch {
	case s.state == session.Unknown:
		return PasteResult{}, silence(fmt.Errorf("%s", s.why))
	case s.state == session.Dead:
		return refuse(RefusedDead, s.why)
	case s.state == session.Absent:
		return refuse(RefusedAbsent, s.why)
	case s.flags.Has(session.Foreign):
		return refuse(RefusedForeign, s.why)
	case s.pane == nil || s.pane.Stamp != stamp:
		return refuse(RefusedIncarnation, "the session was replaced meanwhile")
	case s.pane.Fence > d.req.Token:
		return PasteResult{}, fault.Newf(fault.Fenced, fault.ReasonOlderToken, "the fencing token %d is older than %d, which this session has seen",
			d.req.Token, s.pane.Fence)
	case s.pane.Fence < 0:
		return hold(HeldNotReady, "the session's option @mux_fence holds no number, so no act is let through; set it to 0 to free the session"), nil
	case s.pane.InputOff:
		return hold(HeldInputOff, "the pane's input is switched off"), nil
	}
	// What is left is what changes from moment to moment.
	if screen, ok, err := d.h.Tmux.Capture(ctx, d.target, s.guard("", 0, time.Time{})); err == nil && ok && d.harness.Read(screen.Screen).Dialog {
		return hold(HeldDialog, "a dialog opened just before the act"), nil
	}
	var r PasteResult
	switch ruling {
	case TooLate:
		r = hold(HeldNotReady, "the tmux server came to the act after its deadline: this host is slow")
	case CursorMoved:
		r = hold(HeldDraft, "somebody typed, or the screen changed, just before the act")
	case DialogOrPhase:
		r = hold(HeldNotReady, "a dialog came and went just before the act")
	case Unruled, Done, NotIncarnation, NotGeneration, PaneDead, InputOff, OlderToken:
		r = hold(HeldNotReady, "the session changed just before the act, and is back as it was")
	}
	r.again = true
	return r, nil
}

func hold(c Cause, detail string) PasteResult {
	return PasteResult{Verdict: Held, Cause: c, Detail: detail}
}
