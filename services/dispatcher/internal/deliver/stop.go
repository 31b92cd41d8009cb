package deliver

import (
	"context"
	"fmt"
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
}

// Stop ends the agent of a work item with all that it started, and tells of it. already is true when it had ended before. What is not ours, or
// did not end, is fault.Conflict; where nobody answers, or a delivery is under way, it is fault.Unavailable.
func (d *Deliverer) Stop(ctx context.Context, s Stop) (report TerminateReport, err error) {
	ref, err := workitem.Parse(s.WorkItem)
	switch {
	case err != nil:
		return report, err
	case s.Grace < 0 || s.Grace > maxGrace:
		return report, fault.Newf(fault.Invalid, fault.ReasonBadArgument, "grace must be 0 to %v, and is %v", maxGrace, s.Grace)
	case s.Grace == 0:
		s.Grace = usualGrace
	}
	if err := checkWords("reason", s.Reason, maxPauseReason); err != nil {
		return report, err
	}
	if err := checkWords("who", s.Who, maxWho); err != nil {
		return report, err
	}
	told, err := operatorEvent(ctx, dispatch.SessionStopped, s.WorkItem, s.Who)
	if err != nil {
		return report, err
	}
	// An end that was ordered is seen through, whoever goes away.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), Limit)
	defer cancel()
	held, ok, err := d.config.Store.TakeLease(ctx, ref.String(), fmt.Sprintf("%s/%d", d.config.Process, d.runs.Add(1)))
	if err != nil {
		return report, err
	}
	if !ok {
		return report, fault.New(fault.Unavailable, fault.ReasonLeaseHeld, "a delivery of this work item is under way").
			WithRemedy("try again in a moment; muxpost pause keeps further ones away").WithRetryAfter(time.Second)
	}
	defer func() { _ = d.config.Store.Release(ctx, ref.String(), held) }() // it ends by itself too
	probing, stop := context.WithTimeout(ctx, probeTime)
	sight := d.config.Host.Probe(probing, ref.String(), "")
	stop()
	switch sight.Probe {
	case dispatch.ProbeAbsent, dispatch.ProbeDead:
		return TerminateReport{Ended: true, Already: true, Detail: sight.Detail}, nil
	case dispatch.ProbeForeign, dispatch.ProbeGuests:
		return report, fault.New(fault.Conflict, "", "what lives there is not the agent: "+sight.Detail)
	case dispatch.ProbeUnknown, dispatch.ProbeUnreachable, dispatch.ProbeNotAsked:
		return report, fault.New(fault.Unavailable, fault.ReasonTmuxNoAnswer, "it is not known what lives there: "+sight.Detail)
	case dispatch.ProbeLive, dispatch.ProbeDetached:
	}
	report, err = d.config.Host.Terminate(ctx, TerminateOrder{WorkItem: ref.String(), Stamp: sight.Incarnation.Stamp, Token: held.Token, Grace: s.Grace,
		Reason: line(by(s.Who) + " " + s.Reason)})
	if err != nil {
		return report, err
	}
	if !report.Ended {
		return report, fault.New(fault.Conflict, "", "the agent was not ended: "+report.Detail)
	}
	told.Fields[fieldReason], told.Fields[fieldIncarnation], told.Fields[fieldHost] = line(s.Reason), sight.Incarnation.Stamp, sight.Host
	told.Fields[fieldHarness] = sight.Harness
	if err := d.config.Store.Save(ctx, held, ref.String(), Change{Events: []Event{told}}); err != nil {
		return report, err
	}
	d.operated(ctx, told)
	return report, nil
}
