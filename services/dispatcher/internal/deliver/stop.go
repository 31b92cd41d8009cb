package deliver

import (
	"context"
	"fmt"
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
	host, sight, err := d.toStop(ctx, ref.String(), s.SupersededOn)
	if err != nil {
		return report, err
	}
	if s.SupersededOn != "" {
		// That it is over is told with the end of what was left behind, and so it is when it had ended by itself.
		defer func() {
			if err == nil {
				told.Fields[fieldHost] = s.SupersededOn
				_, err = d.config.Store.EndSuperseded(ctx, ref.String(), s.SupersededOn, told)
			}
		}()
	}
	switch sight.Probe {
	case dispatch.ProbeAbsent, dispatch.ProbeDead:
		return TerminateReport{Ended: true, Already: true, Detail: sight.Detail}, nil
	case dispatch.ProbeForeign, dispatch.ProbeGuests:
		return report, fault.New(fault.Conflict, "", "what lives there is not the agent: "+sight.Detail)
	case dispatch.ProbeUnknown, dispatch.ProbeUnreachable, dispatch.ProbeNowhere, dispatch.ProbeNotAsked:
		return report, fault.New(fault.Unavailable, fault.ReasonTmuxNoAnswer, "it is not known what lives there: "+sight.Detail)
	case dispatch.ProbeLive, dispatch.ProbeDetached:
	}
	report, err = host.Terminate(ctx, TerminateOrder{WorkItem: ref.String(), Stamp: sight.Incarnation.Stamp, Token: held.Token, Grace: s.Grace,
		Reason: line(by(s.Who) + " " + s.Reason)})
	if err != nil {
		return report, err
	}
	if !report.Ended {
		return report, fault.New(fault.Conflict, "", "the agent was not ended: "+report.Detail)
	}
	told.Fields[fieldReason], told.Fields[fieldIncarnation], told.Fields[fieldHost] = line(s.Reason), sight.Incarnation.Stamp, sight.Host
	told.Fields[fieldHarness] = sight.Harness
	if s.SupersededOn != "" {
		return report, nil
	}
	if err := d.config.Store.Save(ctx, held, ref.String(), Change{Events: []Event{told}}); err != nil {
		return report, err
	}
	d.operated(ctx, told)
	return report, nil
}

// toStop looks at what is to be ended: the item's own session, or one that was left behind on a host.
func (d *Deliverer) toStop(ctx context.Context, workItem, supersededOn string) (Host, Sight, error) {
	if supersededOn == "" {
		return d.probe(ctx, workItem)
	}
	known, err := d.config.Store.Recorded(ctx, workItem)
	if err != nil {
		return nil, Sight{}, err
	}
	if !slices.Contains(known.Left, supersededOn) {
		return nil, Sight{}, fault.Newf(fault.NotFound, "", "no session of %s was left behind on a host %q", workItem, line(supersededOn)).
			WithRemedy("`muxpost hosts superseded` lists them")
	}
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	host, _ := d.config.Hosts.On(supersededOn)
	return host, probeOn(ctx, host, supersededOn, workItem, ""), nil
}
