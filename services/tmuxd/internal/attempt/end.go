package attempt

import (
	"cmp"
	"context"
	"errors"
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/task"
	"muxpost.dev/muxpost/internal/failpoint"
	"muxpost.dev/muxpost/internal/obs"
)

const (
	// limitMargin is how long after its limit and its grace an attempt may live until tmuxd ends it: ending it is its wrapper's affair.
	limitMargin = 10 * time.Second
	// wrapperTime is how long after a KILL of everything below it a wrapper may live.
	wrapperTime = 5 * time.Second
	// againTime is how often a KILL is repeated.
	againTime = 250 * time.Millisecond
	// stopTime bounds the wait for the end of an attempt that is stopped.
	stopTime = 90 * time.Second
)

// StopRequest asks for the end of an attempt.
type StopRequest struct {
	ID    string
	Token int64
	// Grace is how long it has between TERM and KILL; zero for what was said at its launch.
	Grace  time.Duration
	Reason string
	// Timeout is how long to wait for the end; zero for as long as it takes.
	Timeout time.Duration
	// Never has an attempt that is not known be one that was stopped before it began.
	Never bool
}

// Stop ends an attempt. Once the order is remembered the keeper carries it through, of this life of tmuxd or of the next; what Stop waits for
// is only the news. already is true when it had ended, or its end had been ordered, before.
func (r *Runner) Stop(ctx context.Context, req StopRequest) (a Attempt, already bool, err error) {
	if req.Grace < 0 || req.Grace > maxGrace || req.Timeout < 0 || req.Timeout > stopTime {
		return Attempt{}, false, fault.Newf(fault.Invalid, fault.ReasonBadArgument, "grace must be 0s to %v, and timeout 0s to %v", maxGrace, stopTime)
	}
	held, err := r.find(req.ID)
	if req.Never && errors.Is(err, fault.NotFound) {
		held, err = r.forestall(ctx, req)
	}
	if err != nil {
		return Attempt{}, false, err
	}
	if err := r.fence(held, req.Token); err != nil {
		return Attempt{}, false, err
	}
	if already, err = r.order(ctx, held, Order{Kind: task.OrderStop, Reason: req.Reason, Grace: req.Grace}); err != nil {
		return Attempt{}, false, err
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(req.Timeout, stopTime))
	defer cancel()
	select {
	case <-held.over:
	case <-ctx.Done():
	}
	return held.view(), already, nil
}

// forestall remembers an attempt that was never asked for as stopped, so that a launch under its id that comes later is refused. Where it came
// first, that is what is stopped.
func (r *Runner) forestall(ctx context.Context, req StopRequest) (*attempt, error) {
	if !idForm.MatchString(req.ID) {
		return nil, fault.Newf(fault.Invalid, fault.ReasonBadArgument, "attempt_id %q is not a UUID in lower case", req.ID)
	}
	now := r.Now()
	m := Memory{ID: req.ID, Target: Target(req.ID), Stamp: random("s"), Token: req.Token, CreatedAt: now, Freed: true,
		Order:   &Order{Kind: task.OrderStop, Reason: req.Reason, At: now},
		Outcome: &Outcome{State: task.Stopped, Reason: task.ReasonStop, Detail: "it was stopped before it was asked for", SettledAt: now}}
	r.mu.Lock()
	if held := r.attempts[req.ID]; held != nil {
		r.mu.Unlock()
		return held, nil
	}
	a := newAttempt(m)
	a.turn.Lock()
	defer a.turn.Unlock()
	r.attempts[req.ID] = a
	r.mu.Unlock()
	err := r.mayAct(req.Token, req.Token)
	if err == nil {
		if err = r.Disk.Begin(req.ID, ""); err == nil {
			err = r.change(a, func(*Memory) bool { return true })
		}
		if err != nil {
			err = errors.Join(storage(err), r.Disk.Forget(req.ID))
		}
	}
	if err != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.attempts, req.ID)
		return nil, err
	}
	r.Logger.InfoContext(ctx, "an attempt was stopped before it was asked for", obs.KeyAttemptID, req.ID, obs.KeyToken, req.Token)
	r.tell(a)
	return a, nil
}

// order remembers an order, unless the attempt has ended or another order came first.
func (r *Runner) order(ctx context.Context, a *attempt, o Order) (already bool, err error) {
	a.turn.Lock()
	defer a.turn.Unlock()
	defer a.rouse()
	return r.orderHeld(ctx, a, o)
}

// orderHeld is order for whoever holds the turn.
func (r *Runner) orderHeld(ctx context.Context, a *attempt, o Order) (already bool, err error) {
	m := a.recall()
	if m.Outcome != nil || m.Order != nil {
		return true, nil
	}
	// What ended by itself before the order stays as it ended.
	if mark := r.Disk.Marker(m); mark.Kind >= task.Ended {
		r.settle(ctx, a, task.Judge(task.Facts{Marker: mark.Kind, End: mark.End, Cause: mark.Cause}), mark)
		if a.recall().Outcome != nil {
			return true, nil
		}
	}
	o.At, o.Grace = r.Now(), cmp.Or(o.Grace, m.Grace)
	if err := r.change(a, func(m *Memory) bool { m.Order = &o; return true }); err != nil {
		return false, err
	}
	failpoint.Hit("tmuxd.attempt.ordered")
	r.Logger.InfoContext(ctx, "an attempt is ended", obs.KeyAttemptID, m.ID, obs.KeyTarget, m.Target, obs.KeyToken, m.Token,
		obs.KeyReason, o.Kind.String())
	r.tell(a)
	return false, nil
}

// ending is how far the end of an attempt has come. A tmuxd that is started again begins it again.
type ending struct {
	// asked is when the TERM was sent, and killed when the first KILL and the last one were.
	asked, killed, again time.Time
}

// enforce ends an attempt whose time is over or that stalls, and carries an order through. The turn is held.
func (k *keeping) enforce(ctx context.Context, m Memory, mark Marker) {
	if m.Order == nil {
		kind := k.due(m)
		if kind == task.NoOrder {
			return
		}
		if _, err := k.r.orderHeld(ctx, k.a, Order{Kind: kind}); err != nil {
			k.r.Logger.ErrorContext(ctx, "the end of an attempt could not be ordered", obs.KeyAttemptID, m.ID, obs.KeyError, err)
			return
		}
		if m = k.a.recall(); m.Order == nil || m.Outcome != nil {
			return
		}
	}
	if k.r.takeBack(ctx, k.a, "it had not begun"); k.a.recall().Outcome == nil {
		k.end(ctx, m, mark)
	}
}

// end signals what has to be signalled now.
func (k *keeping) end(ctx context.Context, m Memory, mark Marker) {
	disk, e, now := k.r.Disk, &k.ending, time.Now()
	fail := func(err error) {
		if err != nil {
			k.r.Logger.WarnContext(ctx, "an attempt cannot be signalled", obs.KeyAttemptID, m.ID, obs.KeyError, err)
		}
	}
	switch {
	case e.asked.IsZero():
		_, err := disk.End(m, false)
		fail(err)
		failpoint.Hit("tmuxd.attempt.asked")
		// A wrapper that has not started its command yet is asked again: there was nobody to hear.
		if mark.Kind == task.Open && !mark.StartedAt.IsZero() || now.Sub(k.began) > beginTime {
			e.asked = now
		}
	case now.Sub(e.asked) < m.Order.Grace:
	case e.killed.IsZero() || now.Sub(e.again) > againTime && now.Sub(e.killed) < wrapperTime:
		if e.killed.IsZero() {
			e.killed = now
		}
		e.again = now
		_, err := disk.End(m, true)
		fail(err)
	case now.Sub(e.killed) >= wrapperTime && now.Sub(e.again) > againTime:
		// The wrapper does not do its part: it is stopped, or hangs.
		e.again = now
		fail(disk.EndWrapper(m))
		_, err := disk.End(m, true)
		fail(err)
	}
}

// due says why an attempt has to be ended, if it has to be.
func (k *keeping) due(m Memory) task.Order {
	if age, ok := k.r.Disk.Age(m); ok && age > m.Limit+m.Grace+limitMargin {
		return task.OrderTime
	}
	if m.StallLimit > 0 {
		stalled := k.pace.stalled(m, k.r.Disk)
		k.a.mu.Lock()
		k.a.moved = k.r.Now().Add(-time.Since(k.pace.moved))
		k.a.mu.Unlock()
		if stalled {
			return task.OrderStall
		}
	}
	return task.NoOrder
}
