package deliver

import (
	"context"
	"slices"
	"time"

	"muxpost.dev/muxpost/core/dispatch"
	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/workitem"
)

const (
	// usualGrace is how long an agent has to end by itself, and maxGrace the most that may be asked for: a stop is within Limit too.
	usualGrace = 5 * time.Second
	maxGrace   = 10 * time.Second
)

// Stop is a person's order to end an agent.
type Stop struct {
	WorkItem, Who, Reason string
	// Grace is how long it has to end by itself; zero means usualGrace.
	Grace time.Duration
	// SupersededOn is the host of a session that was left behind; empty for the item's own session.
	SupersededOn string
}

func (s Stop) check() (workitem.Ref, error) {
	ref, err := workitem.Parse(s.WorkItem)
	switch {
	case err != nil:
		return ref, err
	case s.Grace < 0 || s.Grace > maxGrace:
		return ref, fault.Newf(fault.Invalid, fault.ReasonBadArgument, "grace must be 0 to %v, and is %v", maxGrace, s.Grace)
	}
	if err := checkWords("reason", s.Reason, maxPauseReason); err != nil {
		return ref, err
	}
	return ref, checkWords("who", s.Who, maxWho)
}

// Stop ends the agent of a work item with all that it started, and tells of it. Its conversation is kept: the next event brings it back. Where
// nobody answers for the session the order stands, naming the incarnation, until it can be carried out. What is not ours, or did not end, is
// fault.Conflict; where nobody answers and no session is recorded, or a delivery is under way, it is fault.Unavailable.
func (d *Deliverer) Stop(ctx context.Context, s Stop) (Ended, error) {
	return d.endAgent(ctx, s, false)
}

// Close is Stop for good: the item is done. Its conversation becomes a part of its lineage and is not resumed; a later event of the item starts
// a new one, where the policy for first sessions lets it.
func (d *Deliverer) Close(ctx context.Context, s Stop) (Ended, error) {
	s.SupersededOn = ""
	return d.endAgent(ctx, s, true)
}

// superseded ends a session that was left behind on a host, and tells of it also when that had ended by itself. It does not wait for the host:
// whatever waits for it is moved away already.
func (e *end) superseded(ctx context.Context, name string) (Ended, error) {
	if !slices.Contains(e.left, name) {
		return Ended{}, fault.Newf(fault.NotFound, "", "no session of %s was left behind on a host %q", e.ref, line(name)).
			WithRemedy("`muxpost hosts superseded` lists them")
	}
	e.order.Host = name
	e.look(ctx)
	e.order.Stamp = e.sight.Incarnation.Stamp
	out := Ended{Already: true, Detail: e.sight.Detail}
	switch dispatch.EndOf(e.sight.Probe, true) {
	case dispatch.EndRefuse, dispatch.EndLapse:
		return Ended{}, fault.New(fault.Conflict, "", "what lives there is not the agent: "+e.sight.Detail)
	case dispatch.EndWait:
		return Ended{}, fault.New(fault.Unavailable, fault.ReasonTmuxNoAnswer, "it is not known what lives there: "+e.sight.Detail)
	case dispatch.EndTerminate:
		report, err := e.kill(ctx)
		if err != nil {
			return Ended{}, err
		}
		out = Ended{Already: report.Already, Detail: report.Detail}
	case dispatch.EndDone:
		e.order.Stamp = e.sight.Incarnation.Stamp
	}
	told := e.event(ctx, dispatch.SessionStopped)
	told.Fields[fieldHost] = name
	_, err := e.config.Store.EndSuperseded(ctx, e.ref.String(), name, told)
	return out, err
}
