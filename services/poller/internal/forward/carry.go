package forward

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"strings"
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/ledger"
	"muxpost.dev/muxpost/internal/failpoint"
	"muxpost.dev/muxpost/internal/obs"
)

// carry asks about one event and writes down what came of it.
func (f *Forwarder) carry(ctx context.Context, c Claim) {
	failpoint.Hit("poller.forward.claimed")
	ctx = obs.Extract(ctx, c.Traceparent)
	ctx, end := obs.Start(ctx, f.config.Tracer, "forward.Deliver", slog.String(obs.KeyDeliveryID, c.DeliveryID),
		slog.String(obs.KeyWorkItem, c.WorkItem), slog.String(obs.KeyEvent, c.Kind))
	asking, cancel := context.WithTimeout(ctx, DeliverTime)
	o, err := f.deliver(asking, c)
	failpoint.Hit("poller.forward.answered")
	cancel()
	if ctx.Err() != nil {
		// Called off by the stop: what came of it is asked again by whoever claims it next.
		f.release(ctx, c)
		end(ctx.Err())
		return
	}
	if err != nil {
		o = outcomeOf(err)
	}
	err = errors.Join(err, f.finish(ctx, c, o))
	failpoint.Hit("poller.forward.finished")
	end(err)
}

// deliver asks about an event, with the text that it keeps.
func (f *Forwarder) deliver(ctx context.Context, c Claim) (Outcome, error) {
	if c.Undecided {
		goesOn, err := f.config.Deliverer.GoesOn(ctx, c.WorkItem)
		if err != nil {
			return Outcome{}, err
		}
		if c, err = f.config.Ledger.Decide(ctx, c, goesOn); err != nil {
			return Outcome{}, err
		}
	}
	return f.config.Deliverer.Deliver(ctx, c)
}

// finish applies an outcome to the event.
func (f *Forwarder) finish(ctx context.Context, c Claim, o Outcome) error {
	finishing, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishTime)
	defer cancel()
	jitter := rand.Float64() //nolint:gosec // It spreads looks; nobody gains by guessing it.
	var ended time.Time
	before, after, err := f.config.Ledger.Finish(finishing, c, o, func(p ledger.Progress, now time.Time) ledger.Progress {
		ended = now
		return ledger.Apply(p, o.Answer, o.Reason, o.After, now, jitter)
	})
	log := f.config.Logger.With(obs.KeyDeliveryID, c.DeliveryID, obs.KeyWorkItem, c.WorkItem, obs.KeyEvent, c.Kind)
	if err != nil {
		// The lease ends by itself, and the event is asked about again.
		log.WarnContext(ctx, "an answer was not written down", obs.KeyReason, string(fault.ReasonOf(err)), obs.KeyError, err)
		return err
	}
	f.count(o, after)
	f.config.Metrics.Forwarded.Add(ctx, 1, after.State.String(), after.Reason)
	if !after.State.Waits() {
		f.config.Metrics.Ended.Add(ctx, 1, after.State.String())
		f.config.Metrics.Delivery.Record(ctx, ended.Sub(c.CameAt), after.State.String())
	}
	obs.Annotate(ctx, slog.String(obs.KeyState, after.State.String()), slog.String(obs.KeyReason, after.Reason),
		slog.Int(obs.KeyTry, after.Tries))
	level := slog.LevelInfo
	if after.State.Waits() && before.Reason == after.Reason && before.Tries == after.Tries {
		level = slog.LevelDebug // it waits on, for what it waited for before
	}
	log.Log(ctx, level, "event forwarded", obs.KeyState, after.State.String(), obs.KeyReason, after.Reason, obs.KeyTry, after.Tries)
	return nil
}

func (f *Forwarder) count(o Outcome, after ledger.Progress) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.totals.Asked++
	switch {
	case after.State == ledger.Delivered:
		f.totals.Delivered++
	case !after.State.Waits():
		f.totals.Ended++
	case o.Reason == string(fault.ReasonDispatcherSilent):
		f.totals.Silent++
	}
}

func (f *Forwarder) release(ctx context.Context, c Claim) {
	releasing, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishTime)
	defer cancel()
	if err := f.config.Ledger.Release(releasing, c); err != nil {
		f.config.Logger.WarnContext(ctx, "an event was not given back and waits for the end of its lease",
			obs.KeyDeliveryID, c.DeliveryID, obs.KeyReason, string(fault.ReasonOf(err)), obs.KeyError, err)
	}
}

// outcomeOf says what an error means for an event. Only an answer spends a try: that the request itself cannot be taken is one,
// silence is none, and whatever else went wrong is no fault of the event's.
func outcomeOf(err error) Outcome {
	o := Outcome{Answer: ledger.Silent, Reason: string(fault.ReasonOf(err)), Detail: detailOf(err)}
	var f *fault.Error
	if errors.As(err, &f) {
		o.After = f.RetryAfter
	}
	switch kind := fault.KindOf(err); {
	case kind == fault.Invalid, kind == fault.Conflict:
		o.Answer = ledger.Failing
	case kind == fault.Unavailable, errors.Is(err, context.DeadlineExceeded):
		o.Reason = string(fault.ReasonDispatcherSilent)
	}
	if o.Reason == "" {
		o.Reason = strings.ReplaceAll(fault.KindOf(err).Error(), " ", "_")
	}
	return o
}

// detailOf returns what a person should read of an error: its message and its remedy, not its causes.
func detailOf(err error) string {
	var f *fault.Error
	if !errors.As(err, &f) {
		return err.Error()
	}
	return joined(f.Message, f.Remedy)
}

// joined puts a remedy behind what it is for.
func joined(detail, remedy string) string {
	if remedy == "" {
		return detail
	}
	return strings.TrimSpace(detail + " (" + remedy + ")")
}
