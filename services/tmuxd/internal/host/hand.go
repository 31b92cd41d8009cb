package host

import (
	"context"
	"errors"
	"time"

	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/internal/failpoint"
)

// askTime bounds a question to an agent: one that lives answers at once.
const askTime = 2 * time.Second

// handing is the channel of a program that takes deliveries by itself: nothing is typed, so that a draft stays as it is, and no dialog can be
// answered. What cannot be handed over because there is no conversation yet, or nobody to hand it to, is typed.
type handing struct {
	*delivering
	// before is the phase that it had when this began.
	before session.Phase
}

// carry asks the agent for the delivery, and hands it over if it has none of it.
func (c *handing) carry(ctx context.Context, phase session.Phase) (PasteResult, error) {
	c.before = phase
	here := c.ring.Phase(c.req.DeliveryID)
	handed := phase == session.Handing
	if !handed && (here != session.None || phase.MayHaveArrived()) {
		return c.paste(ctx, phase) // it was typed, or started with
	}
	if handed && c.proof() == recorded {
		return c.delivered(ctx, here, AlreadyDelivered)
	}
	standing, err := c.ask(ctx)
	switch {
	case errors.Is(err, ErrNobodyListens) && !handed:
		return c.paste(ctx, phase)
	case err != nil && handed:
		return c.unconfirmed("it was handed to the agent, whose channel does not answer: " + err.Error()), nil
	case err != nil:
		return hold(HeldFrozen, "the agent's channel does not answer: "+err.Error()), nil //nolint:nilerr // That is an outcome.
	}
	if r, settled, err := c.settled(ctx, standing, here, AlreadyDelivered); settled {
		return r, err
	}
	switch noConversation := standing.Conversation == ""; {
	case noConversation && !handed:
		return c.paste(ctx, phase)
	case noConversation && here == session.Handing:
		return c.hand(ctx, here) // the agent says for certain whether it has it, and takes none without a conversation
	}
	if r, held := c.held(standing); held {
		return r, nil
	}
	if gone, err := c.asks(ctx); gone != nil || err != nil {
		return orZero(gone), err
	}
	return c.hand(ctx, here)
}

// paste types it.
func (c *handing) paste(ctx context.Context, phase session.Phase) (PasteResult, error) {
	return (&pasting{delivering: c.delivering}).carry(ctx, phase)
}

// line is the channel of the incarnation that was seen.
func (c *handing) line() Line {
	s := c.sight.status()
	return Line{Kind: c.harness.Channel, Stamp: c.sight.pane.Stamp, Conversation: s.Conversation}
}

func (c *handing) ask(ctx context.Context) (Standing, error) {
	ctx, cancel := context.WithDeadline(ctx, c.until(askTime))
	defer cancel()
	return c.h.Channels.Ask(ctx, c.line(), c.req.DeliveryID)
}

// settled answers for a delivery that the agent has, from the phase that the ring has of it.
func (c *handing) settled(ctx context.Context, s Standing, from session.Phase, v Verdict) (r PasteResult, ok bool, err error) {
	switch {
	case s.Taken:
		failpoint.Hit("tmuxd.hand.proven")
		if c.search.conversation == "" && c.harness.ValidConversation(s.Conversation) {
			c.search.conversation = s.Conversation
		}
		r, err = c.delivered(ctx, from, v)
		return r, true, err
	case s.Queued:
		return hold(HeldBusy, "the agent has it and takes it after what runs; it counts once the agent records it"), true, nil
	}
	return PasteResult{}, false, nil
}

// held says what is in the way of handing over.
func (c *handing) held(s Standing) (PasteResult, bool) {
	switch {
	case s.Dialog:
		return hold(HeldDialog, "a dialog waits for a person"), true
	case s.Busy && !c.throughBusy():
		return hold(HeldBusy, "a turn is running"), true
	case s.Conversation == "":
		return hold(HeldNotReady, "an earlier life of this session may have taken it, and this one has no conversation yet"), true
	}
	return PasteResult{}, false
}

// asks holds it while the screen shows a question that the agent's channel may know nothing of, as programs ask at their start.
func (c *handing) asks(ctx context.Context) (*PasteResult, error) {
	screen, gone, err := c.capture(ctx)
	if err == nil && gone == nil && c.harness.Read(screen.Screen).Dialog {
		r := hold(HeldDialog, "a dialog waits for a person")
		gone = &r
	}
	return gone, err
}

// throughBusy reports whether a turn that runs is no reason to wait.
func (c *handing) throughBusy() bool { return c.harness.WhenBusy == "deliver" }

// hand hands it over. Journal and ring have the intent first, so that whoever comes after a crash asks.
func (c *handing) hand(ctx context.Context, from session.Phase) (PasteResult, error) {
	id := c.req.DeliveryID
	// A conversation outlives a reboot by resume: that this was handed over must not be forgotten by one.
	if err := c.journal(session.Handing, true); err != nil {
		return PasteResult{}, err
	}
	failpoint.Hit("tmuxd.hand.intended")
	ring := c.ring.With(id, session.Handing)
	ruling, err := c.act(ctx, func(ctx context.Context, g Guard) (Ruling, error) {
		return c.h.Tmux.Intend(ctx, c.target, g, id, from, ring)
	})
	if err != nil {
		return PasteResult{}, err
	}
	if ruling != Done {
		// The answer is certain: nothing was handed over by this call.
		if err := c.journal(c.before, false); err != nil {
			return PasteResult{}, err
		}
		return c.whyNot(ctx, ruling)
	}
	c.ring = ring
	failpoint.Hit("tmuxd.hand.recorded")
	handCtx, cancel := context.WithDeadline(ctx, c.end)
	standing, err := c.h.Channels.Hand(handCtx, c.line(), Offer{ID: id, Text: c.typed, Busy: c.throughBusy(), Again: c.before == session.Handing})
	cancel()
	failpoint.Hit("tmuxd.hand.sent")
	switch {
	case errors.Is(err, ErrNobodyListens):
		return c.takeBack(ctx, hold(HeldNotReady, "the agent's channel did not take it: "+err.Error()))
	case err != nil:
		return c.unconfirmed("it was handed to the agent, which did not answer: " + err.Error()), nil //nolint:nilerr // That is an outcome.
	}
	if r, settled, err := c.settled(ctx, standing, session.Handing, Submitted); settled {
		return r, err
	}
	if standing.Conversation == "" && (c.before != session.Handing || from == session.Handing) {
		// The agent knows everything that this life of it was handed: it is certain that it has none of it.
		c.before = session.None
		if r, err := c.takeBack(ctx, PasteResult{}); err != nil {
			return r, err
		}
		return c.paste(ctx, session.None)
	}
	r, held := c.held(standing)
	if !held {
		r = hold(HeldNotReady, "the agent did not take it")
	}
	return c.takeBack(ctx, r)
}

// takeBack records that nothing was handed over, as is certain, unless an earlier call did.
func (c *handing) takeBack(ctx context.Context, r PasteResult) (PasteResult, error) {
	if c.before == session.Handing {
		return r, nil
	}
	id := c.req.DeliveryID
	if err := c.journal(c.before, false); err != nil {
		return PasteResult{}, err
	}
	ring := c.ring.Without(id)
	_, err := c.act(ctx, func(ctx context.Context, g Guard) (Ruling, error) {
		return c.h.Tmux.Record(ctx, c.target, g, id, session.Handing, ring)
	})
	c.ring = ring
	return r, err
}

func (c *handing) unconfirmed(detail string) PasteResult {
	return PasteResult{Verdict: Unconfirmed, Phase: session.Handing, Detail: detail}
}
