package deliver

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"muxpost.dev/muxpost/core/dispatch"
	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/lease"
	"muxpost.dev/muxpost/internal/failpoint"
	"muxpost.dev/muxpost/internal/obs"
)

// How long each act on a host may take, and the least for which it is worth sending. A resume leaves time for the fresh spawn
// that follows when it fails.
const (
	probeTime  = 3 * time.Second
	leastProbe = 250 * time.Millisecond
	spawnTime  = 15 * time.Second
	leastSpawn = 5 * time.Second
	pasteTime  = 10 * time.Second
	leastPaste = 2 * time.Second
)

// maxSteps is far above what core/dispatch proves to be enough; it turns a mistake there into an error instead of a loop.
const maxSteps = 16

// run is one pass over one delivery, under one lease.
type run struct {
	config   *Config
	req      checked
	delivery Delivery
	lease    lease.Lease
	ends     time.Time
	// trace is this run's, which for a repeat is not the delivery's.
	trace string

	facts dispatch.Facts
	// pauses are those that hold the item back.
	pauses []Pause
	// session is the record, brought up to date in memory; learned says that it differs from what is stored.
	session *Session
	learned bool
	// closed is the record of a session that was closed, which counts as none.
	closed *Session
	// ending is the order to end the session that waits.
	ending *Ending
	// host is the one that the run talks to, once it is known; left are those from which the item was moved away.
	host  Host
	left  []string
	sight Sight
	// stamp is the incarnation that a paste is meant for.
	stamp string
	// deaths are those of the item's agents, once they were counted.
	deaths Deaths
	spawn  SpawnReport
	// started is the harness of the last spawn that was ordered.
	started string
	// detail and remedy are the host's words on the last effect.
	detail string
	remedy string
	// outdated is true when the host refused our lease as too old.
	outdated bool
	steps    []string
}

// run decides and acts until there is an outcome. ctx ends with the time for the whole delivery, and not when whoever asked goes
// away: a known end is worth more than an early one, and it comes within Limit in any case.
func (r *run) run(ctx context.Context) (Result, error) {
	r.trace = obs.TraceID(ctx)
	for range maxSteps {
		decision := dispatch.Decide(r.facts)
		if decision.Action == dispatch.Finish {
			return r.finish(ctx, decision)
		}
		timeout, ok := r.timeFor(decision.Action)
		if !ok {
			return r.finish(ctx, dispatch.Decision{Outcome: dispatch.InProgress, Reason: dispatch.ReasonDeadline})
		}
		r.decided(ctx, decision)
		begun := r.config.Now()
		replayed, err := r.perform(ctx, decision, timeout)
		r.config.took(ctx, decision.Action.String(), begun)
		switch {
		case errors.Is(err, errHostFenced):
			return r.finish(ctx, dispatch.Decision{Outcome: dispatch.Waiting, Reason: dispatch.ReasonLeaseHeld})
		case errors.Is(err, fault.Fenced):
			return r.lost(ctx), nil
		case err != nil:
			r.release(ctx)
			return Result{}, err
		case replayed:
			r.release(ctx)
			return resultOf(r.delivery), nil
		}
	}
	return Result{}, fault.Newf(fault.Internal, "", "the delivery was not decided after %d steps", maxSteps)
}

// errHostFenced says that a host takes no token as old as ours: it has seen a newer one, or was given a floor above it. It is told from
// the store's own fence, which also means that nothing can be recorded any more.
var errHostFenced = errors.New("the lease is too old for the host")

// timeFor says how long an action may take; false when too little is left for it.
func (r *run) timeFor(a dispatch.Action) (time.Duration, bool) {
	now := r.config.Now()
	left := min(r.ends.Sub(now)-storing, r.lease.Budget(now))
	switch a {
	case dispatch.ProbeHost:
		return min(left, probeTime), left >= leastProbe
	case dispatch.SpawnResume:
		return min(left-leastSpawn, spawnTime), left >= 2*leastSpawn
	case dispatch.SpawnFresh:
		return min(left, spawnTime), left >= leastSpawn
	case dispatch.PasteText:
		return min(left, pasteTime), left >= leastPaste
	case dispatch.Finish, dispatch.LookUp, dispatch.Adopt, dispatch.Heal, dispatch.Register,
		dispatch.CountDeaths, dispatch.Park, dispatch.Unpark:
	}
	return left, left > 0
}

// perform does one thing and adds what came of it to the facts. replayed says that the delivery turned out to have ended before.
func (r *run) perform(ctx context.Context, d dispatch.Decision, timeout time.Duration) (replayed bool, err error) {
	switch d.Action {
	case dispatch.LookUp:
		return r.lookUp(ctx)
	case dispatch.ProbeHost:
		r.probe(ctx, timeout)
	case dispatch.Adopt:
		return false, r.adopt(ctx, d)
	case dispatch.Heal:
		return false, r.heal(ctx, d)
	case dispatch.Register:
		return false, r.register(ctx, d)
	case dispatch.CountDeaths:
		return false, r.count(ctx)
	case dispatch.Park:
		return false, r.park(ctx, d)
	case dispatch.Unpark:
		return false, r.unpark(ctx, d)
	case dispatch.SpawnResume, dispatch.SpawnFresh:
		return false, r.start(ctx, d, timeout)
	case dispatch.PasteText:
		return false, r.paste(ctx, timeout)
	case dispatch.Finish:
	}
	return false, nil
}

// postpone answers for a delivery that operators hold back, without a lease: nobody is asked about it and nothing is done. A run
// that is under way keeps the record.
func (r *run) postpone(ctx context.Context, pauses []Pause) (Result, error) {
	r.trace, r.facts.Paused, r.pauses = obs.TraceID(ctx), true, pauses
	d := dispatch.Decide(r.facts)
	out := r.delivery
	out.Outcome, out.Reason, out.How = d.Outcome, d.Reason, d.How
	out.Detail, out.Remedy = r.explain(d)
	r.step("%s", outcomeLine(d))
	out.Steps = r.steps
	r.decided(ctx, d)
	_, err := r.config.Store.Postpone(ctx, &out)
	return resultOf(out), err
}

// finish stores the outcome with its events and gives the lease back.
func (r *run) finish(ctx context.Context, d dispatch.Decision) (Result, error) {
	out := r.delivery
	if len(d.Withheld) > 0 {
		r.detail = r.rehearsed(d.Withheld)
	}
	out.Outcome, out.Reason, out.How = d.Outcome, d.Reason, d.How
	out.Detail, out.Remedy = r.explain(d)
	if out.Harness, out.ConversationID = r.shownHarness(), r.conversation(); !r.facts.LeftBehind {
		out.Host = r.hostName()
	}
	r.step("%s", outcomeLine(d))
	out.Steps = r.steps
	change := Change{Outcome: &out, Events: r.events(d, out.Detail, out.Remedy)}
	if r.learned && !r.facts.Shadow {
		change.Session = r.session
	}
	r.decided(ctx, d)
	failpoint.Hit("dispatcher.outcome.decided")
	begun := r.config.Now()
	err := r.save(ctx, change)
	r.config.took(ctx, d.Action.String(), begun)
	failpoint.Hit("dispatcher.outcome.saved")
	if errors.Is(err, fault.Fenced) {
		return r.lost(ctx), nil
	}
	if err != nil {
		r.release(ctx)
		return Result{}, err
	}
	return resultOf(out), nil
}

// release gives the lease back where no outcome does. If that fails too it ends by itself, which only costs time.
func (r *run) release(ctx context.Context) {
	if err := r.config.Store.Release(ctx, r.req.WorkItem, r.lease); err != nil {
		r.config.Logger.LogAttrs(ctx, slog.LevelWarn, "a lease was not given back and ends by itself",
			slog.String(obs.KeyWorkItem, r.req.WorkItem), slog.Int64(obs.KeyToken, r.lease.Token), slog.String(obs.KeyError, err.Error()))
	}
}

// lost is the answer when the lease went to another run: that run has the record, and what ours did is settled by the host when
// the delivery is asked for again.
func (r *run) lost(ctx context.Context) Result {
	r.config.Metrics.LeasesLost.Add(ctx, 1)
	out := r.delivery
	d := dispatch.Decision{Outcome: dispatch.Waiting, Reason: dispatch.ReasonLeaseHeld}
	out.Outcome, out.Reason, out.How = d.Outcome, d.Reason, ""
	out.Detail, out.Remedy = r.explain(d)
	r.decided(ctx, d)
	return resultOf(out)
}

// decided tells of a decision: one line in the log, and an event on the span.
func (r *run) decided(ctx context.Context, d dispatch.Decision) {
	attrs := []slog.Attr{
		slog.String(obs.KeyAction, d.Action.String()), slog.String(obs.KeyReason, string(d.Reason)),
		slog.String(obs.KeyEvent, string(r.req.Kind)), slog.String(obs.KeyWorkItem, r.req.WorkItem),
		slog.String(obs.KeyDeliveryID, r.req.DeliveryID), slog.String(obs.KeyTarget, r.req.ref.Target()), slog.String(obs.KeyHost, r.hostName()),
		slog.String(obs.KeyState, probeName(r.facts.Probe)), slog.Int64(obs.KeyToken, r.lease.Token),
	}
	level := slog.LevelInfo
	if d.Action == dispatch.Finish {
		attrs = append(attrs, slog.String(obs.KeyOutcome, d.Outcome.String()), slog.Int(obs.KeyTry, r.delivery.Asked))
		if d.Outcome == dispatch.Dropped {
			level = slog.LevelError
		}
	}
	r.config.Logger.LogAttrs(ctx, level, "delivery decided", attrs...)
	obs.Event(ctx, "deliver.step", attrs...)
}
