package deliver

import (
	"context"
	"fmt"
	"time"

	"muxpost.dev/muxpost/core/dispatch"
	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/workitem"
)

// byPolicy is who ends an agent that nobody ordered to be ended.
const byPolicy = "policy"

// EndIdle ends the agents that have been idle for longer than a time, and that nobody needs as far as their host can tell: nobody looks at them,
// nothing waits for them, nothing of their work is unpushed. Their conversations are kept, and the next event brings one back. It goes on after
// one that could not be ended, and returns what went wrong with the store.
func (d *Deliverer) EndIdle(ctx context.Context, after time.Duration) error {
	for last := ""; ; {
		found, err := d.config.Store.Idle(ctx, after, last, readAtOnce)
		if err != nil {
			return err
		}
		for _, s := range found {
			if err := d.endIdle(ctx, s, after); err != nil {
				return err
			}
		}
		if len(found) < readAtOnce {
			return nil
		}
		last = found[len(found)-1].WorkItem
	}
}

// endIdle ends the agent of one session, unless anything speaks against it.
func (d *Deliverer) endIdle(ctx context.Context, s Session, after time.Duration) error {
	ref, err := workitem.Parse(s.WorkItem)
	if err != nil || d.config.Shadow {
		return nil //nolint:nilerr // it is no item of ours, and no harm is done
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), Limit)
	defer cancel()
	held, known, giveBack, err := d.take(ctx, s.WorkItem)
	if err != nil {
		if fault.ReasonOf(err) == fault.ReasonLeaseHeld {
			return nil // a delivery is under way: it is needed
		}
		return err
	}
	defer giveBack()
	e := d.newEnd(ref, held, known, Ending{WorkItem: s.WorkItem, Stamp: s.Incarnation.Stamp, Host: s.Host, Who: byPolicy,
		Reason: fmt.Sprintf("it was idle for longer than %v", after), Grace: usualGrace})
	if !e.recorded() || e.session.Incarnation.Stamp != s.Incarnation.Stamp || e.stored {
		return nil
	}
	if e.look(ctx); e.sight.Probe != dispatch.ProbeLive || e.sight.Incarnation.Stamp != s.Incarnation.Stamp {
		return nil
	}
	report, err := e.host.Terminate(ctx, TerminateOrder{WorkItem: s.WorkItem, Stamp: s.Incarnation.Stamp, Token: held.Token, Grace: usualGrace,
		Reason: e.order.Reason, Unneeded: true})
	if err != nil || !report.Ended {
		return nil //nolint:nilerr // it is needed, or nobody answers: it is looked at again
	}
	return e.done(ctx, report.Already, report.Detail)
}
