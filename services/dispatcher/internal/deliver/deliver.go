// Package deliver carries one event to the session that owns its work item, or says why not. It interprets core/dispatch: decide,
// perform one effect, add what came of it to the facts, decide again, until an outcome stands. It has no opinion of its own about
// when to paste, respawn, adopt, wait or drop.
//
// What it does keep:
//
//   - A delivery id happens once. What ended is replayed; everything else is decided again, and the host settles what it typed.
//   - One run at a time acts on a work item, under a lease whose token goes with every act and every change of the record.
//   - An act that was sent is finished under its own deadline and recorded, even if whoever asked has gone away.
//   - The record and the events that tell of it change together, or not at all.
//   - What an operator paused is not begun, and nothing of it is lost.
//   - Nothing takes longer than Limit: what is not finished then is an outcome, and asking again goes on.
//
// It knows nothing of gRPC, SQL or tmux, and writes the text of an event nowhere but into the order to the host.
package deliver

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"muxpost.dev/muxpost/core/dispatch"
	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/lease"
	"muxpost.dev/muxpost/internal/failpoint"
	"muxpost.dev/muxpost/internal/obs"
	"muxpost.dev/muxpost/services/dispatcher/internal/metrics"
)

const (
	// Limit is the longest that Deliver takes.
	Limit = 20 * time.Second
	// storing is the end of that time which is kept for writing down the outcome.
	storing = 1500 * time.Millisecond
)

// Config is what a Deliverer works with. All fields are required but Metrics, Resume, Forbids, Shadow, Breaker, Version, Attempts
// and Now.
type Config struct {
	Store  Store
	Hosts  Hosts
	Logger *slog.Logger
	Tracer obs.Tracer
	// Metrics take what is done; nil takes nothing.
	Metrics *metrics.Metrics
	// Process names this process among all that share the store; two that run at once must not have the same name.
	Process string
	// Harness is for first sessions whose request names none.
	Harness string
	// Resume says whether a session that ended comes back with its conversation.
	Resume bool
	// Forbids says whether an event of this kind may not start the first session of its work item; nil forbids none.
	Forbids func(kind Kind) bool
	// Shadow makes every run look and decide, say what it would do, and do nothing.
	Shadow bool
	// Breaker says when an item whose agents die again and again is parked. The zero value parks none.
	Breaker dispatch.Breaker
	// Version is the version that takes part in deliveries to a host; nil when it is not known.
	Version func(host string) dispatch.Version
	// Attempts are those of teams, which are handed out again when their host is given up; nil has none.
	Attempts interface {
		GiveUpAttempts(ctx context.Context, host string) error
	}
	// Now reads a monotonic clock; time.Now when nil.
	Now func() time.Time
}

// Deliverer delivers. It may be used by many goroutines.
type Deliverer struct {
	config Config
	runs   atomic.Int64
}

// New returns a Deliverer.
func New(config Config) *Deliverer {
	if config.Now == nil {
		config.Now = time.Now
	}
	if config.Metrics == nil {
		config.Metrics = metrics.New(nil)
	}
	if config.Version == nil {
		config.Version = func(string) dispatch.Version { return dispatch.Version{} }
	}
	return &Deliverer{config: config}
}

// Result is a delivery as it stands after it was asked for.
type Result struct {
	Delivery Delivery
	// LookAgain says when asking again is worth while, from now; zero for a final outcome.
	LookAgain time.Duration
}

func resultOf(d Delivery) Result {
	return Result{Delivery: d, LookAgain: dispatch.LookAgain(d.Outcome, d.Reason)}
}

// Deliver carries one event to its session. What became of it is a value; an error is fault.Invalid for a request that can never
// succeed, fault.Conflict for an id that belongs to another event, or fault.Unavailable when the store did not answer: then
// asking again under the same id is safe.
func (d *Deliverer) Deliver(ctx context.Context, req Request) (result Result, err error) {
	c, err := check(req)
	if err != nil {
		return Result{}, err
	}
	started := d.config.Now()
	ctx, end := obs.Start(ctx, d.config.Tracer, "deliver.Deliver",
		slog.String(obs.KeyDeliveryID, c.DeliveryID), slog.String(obs.KeyWorkItem, c.WorkItem))
	defer func() {
		d.measure(ctx, result, err, started)
		end(err)
	}()
	ctx, cancel := context.WithTimeout(ctx, Limit)
	defer cancel()

	found, pauses, err := d.begin(ctx, c)
	d.config.took(ctx, "begin", started)
	if err != nil || found.Outcome.Final() {
		return resultOf(found), err
	}
	failpoint.Hit("dispatcher.deliver.begun")
	// One that was typed is under way: a pause ends no search for evidence of it, and must not make it look as if it had not begun.
	if len(pauses) > 0 && found.Outcome != dispatch.Unconfirmed {
		return newRun(d, c, found, lease.Lease{}, started).postpone(ctx, pauses)
	}
	// From here on whoever asked may go away: a lease that was taken for nobody would hold the item back until it ends.
	detached, stop := context.WithTimeout(context.WithoutCancel(ctx), started.Add(Limit).Sub(d.config.Now()))
	defer stop()
	for try := 1; ; try++ {
		// Two runs of one process exclude each other as well as those of two.
		holder := fmt.Sprintf("%s/%d", d.config.Process, d.runs.Add(1))
		asked := d.config.Now()
		held, ok, err := d.config.Store.TakeLease(detached, c.WorkItem, holder)
		d.config.took(detached, "lease", asked)
		if err != nil {
			return Result{}, err
		}
		if !ok {
			return resultOf(d.busy(ctx, found)), nil
		}
		failpoint.Hit("dispatcher.deliver.leased")
		// The same end on our own clock. It is counted from before we asked, so it can only be too early.
		held.Until = asked.Add(lease.Time)
		r := newRun(d, c, found, held, started)
		result, err := r.run(detached)
		if err != nil || !r.outdated || try == mostLeases {
			return result, err
		}
		// The host was given a floor after the lease was taken, as when it was greeted for the first time. A new one is above it.
		found = result.Delivery
	}
}

// measure records what was answered. What is no outcome has the reason of its fault.
func (d *Deliverer) measure(ctx context.Context, r Result, err error, started time.Time) {
	outcome, reason := r.Delivery.Outcome.String(), string(r.Delivery.Reason)
	if err != nil {
		outcome, reason = "error", string(fault.ReasonOf(err))
	}
	d.config.Metrics.Answers.Add(ctx, 1, outcome, reason)
	d.config.Metrics.Duration.Record(ctx, d.config.Now().Sub(started), outcome)
}

// took records how long a step took.
func (c *Config) took(ctx context.Context, step string, since time.Time) {
	c.Metrics.Steps.Record(ctx, c.Now().Sub(since), step)
}

// save makes a change, and counts the events that tell of it.
func (c *Config) save(ctx context.Context, l lease.Lease, workItem string, change Change) error {
	err := c.Store.Save(ctx, l, workItem, change)
	if err == nil {
		for _, e := range change.Events {
			c.Metrics.Events.Add(ctx, 1, string(e.Type))
		}
	}
	return err
}

// mostLeases is how many leases one call takes where the host refuses the first as too old.
const mostLeases = 2

// begin stores the delivery on first sight.
func (d *Deliverer) begin(ctx context.Context, c checked) (Delivery, []Pause, error) {
	fresh := Delivery{
		ID: c.DeliveryID, WorkItem: c.WorkItem, NodeID: c.NodeID, Kind: c.Kind, Fingerprint: c.fingerprint(), Harness: c.Harness,
		Outcome: dispatch.InProgress, Reason: dispatch.ReasonStart, Detail: "it was asked for, and nothing is known yet",
		Target: c.ref.Target(), Asked: 1, Traceparent: obs.Inject(ctx), TraceID: obs.TraceID(ctx),
	}
	queued := Event{
		Type: dispatch.DispatchQueued, WorkItem: c.WorkItem, DeliveryID: c.DeliveryID, TraceID: fresh.TraceID,
		Fields: map[string]string{
			fieldWorkItem: c.WorkItem, fieldTarget: fresh.Target, fieldHost: "", fieldHarness: c.Harness,
			fieldDeliveryID: c.DeliveryID, fieldKind: string(c.Kind),
		},
	}
	found, pauses, err := d.config.Store.Begin(ctx, fresh, queued)
	if err == nil && found.Asked == 1 {
		d.config.Metrics.Events.Add(ctx, 1, string(queued.Type))
	}
	return found, pauses, err
}

// busy is the answer while another run is at work on the item. It is not stored: the record belongs to that run.
func (d *Deliverer) busy(ctx context.Context, found Delivery) Delivery {
	found.Outcome, found.Reason, found.How = dispatch.InProgress, dispatch.ReasonLeaseHeld, ""
	found.Detail, found.Remedy = "another delivery of this work item is under way", ""
	d.config.Logger.LogAttrs(ctx, slog.LevelInfo, "delivery decided", slog.String(obs.KeyAction, dispatch.Finish.String()),
		slog.String(obs.KeyReason, string(found.Reason)), slog.String(obs.KeyOutcome, found.Outcome.String()),
		slog.String(obs.KeyWorkItem, found.WorkItem), slog.String(obs.KeyDeliveryID, found.ID),
		slog.String(obs.KeyTarget, found.Target))
	return found
}

// newRun returns a run that knows nothing yet.
func newRun(d *Deliverer, c checked, found Delivery, held lease.Lease, started time.Time) *run {
	r := &run{config: &d.config, req: c, delivery: found, lease: held, ends: started.Add(Limit)}
	r.facts.Shadow, r.facts.SpawnForbidden = d.config.Shadow, d.config.Forbids != nil && d.config.Forbids(c.Kind)
	return r
}
