package host

import (
	"context"
	"strconv"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/core/workitem"
)

// MaxScrollback is how many lines of scrollback can be asked for at most, and MaxCapture how many bytes one answer may have.
const (
	MaxScrollback = 50_000
	MaxCapture    = 4 << 20
)

// Reader is the part of Tmux that reads more than a screen.
type Reader interface {
	// Scrollback reads the screen of the incarnation's pane and what was scrolled out of it.
	Scrollback(ctx context.Context, target string, g Guard, q Extent) (Captured, bool, error)
}

// Extent says how much of a pane is read, and how.
type Extent struct {
	// Lines is how many lines of scrollback are read above the screen.
	Lines int
	// Attributes keeps the escape sequences of colours and attributes. They were chosen by a program that is not trusted.
	Attributes bool
	// Join joins lines that the terminal wrapped.
	Join bool
}

// CaptureRequest says what to read.
type CaptureRequest struct {
	Item workitem.Ref
	// Stamp is the incarnation to read; empty for whichever is there.
	Stamp string
	Extent
}

// Captured is what a pane showed at one moment, as the program wrote it.
type Captured struct {
	Lines []string
	// Scrollback is how many of the lines are above the screen.
	Scrollback    int
	Width, Height int
	Title         string
	Dead          bool
	// Cut is true when there was more than can be read.
	Cut bool
}

// Capture reads what an agent's pane shows, dead or alive. It changes nothing.
func (h *Host) Capture(ctx context.Context, req CaptureRequest) (Captured, Incarnation, error) {
	if req.Lines < 0 || req.Lines > MaxScrollback {
		return Captured{}, Incarnation{}, fault.Newf(fault.Invalid, fault.ReasonBadArgument,
			"%d lines of scrollback are asked for; 0 to %d can be read", req.Lines, MaxScrollback)
	}
	s := h.seen(ctx, req.Item)
	if err := captureRefused(s, req.Stamp); err != nil {
		return Captured{}, Incarnation{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, actTime)
	defer cancel()
	c, there, err := h.Tmux.Scrollback(ctx, s.target, s.guard("", 0, h.Now()), req.Extent)
	if err != nil {
		return Captured{}, Incarnation{}, silence(err)
	}
	if !there {
		return Captured{}, Incarnation{}, fault.New(fault.NotFound, fault.ReasonSessionNotFound, "the session was replaced while it was read")
	}
	size := 0
	for _, line := range c.Lines {
		size += len(line)
	}
	if c.Cut || size > MaxCapture {
		return Captured{}, Incarnation{}, fault.Newf(fault.Invalid, fault.ReasonBadArgument, "what was asked for has more than %d MiB", MaxCapture>>20).
			WithRemedy("ask for fewer lines of scrollback, or for text without attributes")
	}
	return c, s.incarnation(), nil
}

// captureRefused says why there is nothing to read in a session.
func captureRefused(s sight, stamp string) error {
	missing := func(why string) error { return fault.New(fault.NotFound, fault.ReasonSessionNotFound, why) }
	switch {
	case s.pane != nil && s.pane.Stamp != "" && stamp != "" && s.pane.Stamp != stamp:
		return missing("another incarnation is there: " + s.pane.Stamp)
	case s.state == session.Unknown && s.pane == nil:
		return fault.New(fault.Unavailable, fault.ReasonTmuxNoAnswer, s.why)
	case s.pane == nil || s.flags.Has(session.Foreign):
		return missing("there is no pane of an agent of ours: " + s.why)
	case s.pane.ID != s.pane.AgentPane || strconv.Itoa(s.pane.Pid) != s.pane.AgentPid:
		return missing("the agent's pane is gone, or was given to another process")
	}
	return nil
}
