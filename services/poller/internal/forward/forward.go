package forward

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/ledger"
	"muxpost.dev/muxpost/internal/obs"
	"muxpost.dev/muxpost/services/poller/internal/metrics"
)

const (
	// DeliverTime bounds one question to the dispatcher: a little more than it takes at most, and well within a lease.
	DeliverTime = 24 * time.Second
	// finishTime bounds what is written after an answer.
	finishTime = 5 * time.Second
	// pollTime is how often the ledger is looked into when nothing wakes us.
	pollTime = time.Second
	// minPause keeps a look that comes a moment too early from being repeated in a hurry.
	minPause = 10 * time.Millisecond
	// DefaultGrace is how long questions under way may go on once Run is told to stop.
	DefaultGrace = 6 * time.Second
)

// Claim is an event that is ours to ask about, until its lease ends.
type Claim struct {
	// ID and Lease name the claim; a lease is a new one with each claim.
	ID         int64
	Lease      string
	DeliveryID string
	WorkItem   string
	NodeID     string
	// Kind is what happened, as the ledger names it: "opened", "comment", "review", "check".
	Kind    string
	Text    string
	Harness string
	// Traceparent is the trace that the event came in with; empty when there is none.
	Traceparent string
	// Rearmed is true of an event that is tried again because another version runs than it was given up or dropped under.
	Rearmed bool
	// CameAt is when it came into the ledger, on the database's clock.
	CameAt time.Time
	// Undecided is true of an event that was never asked about, and of which it is to be decided whether its context goes along.
	Undecided bool
}

// Ledger keeps the events. Its errors are faults.
type Ledger interface {
	// Claim leases up to n events that are due, each the first of its item that waits.
	Claim(ctx context.Context, n int) ([]Claim, error)
	// Decide makes the text of a claim what it is for good: one with what waits behind it, where that becomes one text, and with the context
	// of its item, where the agent may lack that. A lease that was lost is fault.Fenced.
	Decide(ctx context.Context, c Claim, goesOn bool) (Claim, error)
	// Finish ends a claim: next says what becomes of the event, from its progress so far and the database's time. It returns
	// both. o is the answer. A lease that was lost is fault.Fenced, and nothing is changed.
	Finish(ctx context.Context, c Claim, o Outcome, next func(ledger.Progress, time.Time) ledger.Progress) (
		before, after ledger.Progress, err error)
	// Release gives a claim back as if it had not been made.
	Release(ctx context.Context, c Claim) error
	// NextDue returns how long it is until an event is due; false when none waits.
	NextDue(ctx context.Context) (time.Duration, bool, error)
}

// Deliverer asks the dispatcher.
type Deliverer interface {
	// Deliver has an event delivered and returns what came of it. An error is a fault and means that this is not known, or
	// that the request cannot be taken.
	Deliver(ctx context.Context, c Claim) (Outcome, error)
	// GoesOn reports whether the next event of a work item goes into a conversation that the item had before.
	GoesOn(ctx context.Context, workItem string) (bool, error)
}

// Outcome is what came of a delivery.
type Outcome struct {
	Answer ledger.Answer
	// Reason is the stable name of the outcome's cause, and Detail explains it to a person.
	Reason string
	Detail string
	// After is when to ask again; zero when the answer did not say.
	After time.Duration
	// Version is what took part in it; the zero value when there was no answer.
	Version ledger.Version
	// Started is true where the first session of the item was started for it, on Host, running Harness; that is empty where it is not known.
	Started       bool
	Host, Harness string
}

// Rearmer has events that gave up tried again when another version sees their items.
type Rearmer interface {
	// See re-arms what is to be re-armed of items that this process did not see before, and returns those that had any.
	See(ctx context.Context, items []string) ([]string, error)
}

// Config is what a Forwarder is made from. All but Wake, Grace and Metrics are required.
type Config struct {
	Ledger    Ledger
	Rearmer   Rearmer
	Deliverer Deliverer
	// Workers is how many events are asked about at once.
	Workers int
	// Wake gets a value when events came in. It may be nil; it is only a hint.
	Wake <-chan struct{}
	// Grace is how long questions under way may go on after the stop; DefaultGrace when 0.
	Grace  time.Duration
	Logger *slog.Logger
	Tracer obs.Tracer
	// Metrics count what became of events; nil counts nothing.
	Metrics *metrics.Metrics
}

// Forwarder carries events to the dispatcher.
type Forwarder struct {
	config Config

	mu     sync.Mutex
	totals Totals
	down   bool // the ledger could not be read at the last look
}

// Totals count what came of the events that were asked about.
type Totals struct {
	// Asked counts questions, Delivered and Ended events that reached their end that way, or another.
	Asked, Delivered, Ended int
	// Silent counts questions that the dispatcher did not answer at all.
	Silent int
}

// New returns a forwarder.
func New(config Config) *Forwarder {
	if config.Grace == 0 {
		config.Grace = DefaultGrace
	}
	if config.Metrics == nil {
		config.Metrics = metrics.New(nil)
	}
	return &Forwarder{config: config}
}

// Totals returns what was done so far.
func (f *Forwarder) Totals() Totals {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.totals
}

// Run carries events until ctx ends. Then it claims nothing more, lets the questions under way end within the grace, and gives
// back what was not answered by then. It returns nil: trouble with the ledger or the dispatcher is waited out.
func (f *Forwarder) Run(ctx context.Context) error {
	c := f.newCrew(ctx)
	defer c.stop(f.config.Grace)
	timer := time.NewTimer(pollTime)
	defer timer.Stop()
	for {
		_ = f.fill(ctx, c) // said in the log; the next look comes by itself
		timer.Reset(pollTime)
		select {
		case <-ctx.Done():
			return nil
		case <-c.freed:
		case <-f.config.Wake:
		case <-timer.C:
		}
	}
}

// Drain carries events until nothing is due within the patience and nothing is under way, or ctx ends. It stops early once the
// dispatcher does not answer at all: waiting for it is not its work. An error is the ledger's.
func (f *Forwarder) Drain(ctx context.Context, patience time.Duration) error {
	c := f.newCrew(ctx)
	defer c.stop(f.config.Grace)
	for {
		if f.Totals().Silent == 0 {
			if err := f.fill(ctx, c); err != nil && !over(ctx) {
				return err
			}
		}
		if c.idle() {
			wait, ok, err := f.config.Ledger.NextDue(ctx)
			if over(ctx) || err == nil && (!ok || wait > patience || f.Totals().Silent > 0) {
				return nil
			}
			if err != nil {
				return err
			}
			timer := time.NewTimer(max(wait, minPause))
			select {
			case <-ctx.Done():
				timer.Stop()
				return nil
			case <-timer.C:
			}
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-c.freed:
		}
	}
}

// fill gives every free worker an event, as far as there are any.
func (f *Forwarder) fill(ctx context.Context, c *crew) error {
	n := f.config.Workers - c.busy()
	if n <= 0 || over(ctx) {
		return nil
	}
	claims, err := f.claim(ctx, n)
	f.reportLedger(ctx, err)
	for _, claim := range claims {
		if over(ctx) {
			// Told to stop between the claim and its work: nothing was asked yet.
			f.release(ctx, claim)
			continue
		}
		c.start(func(ctx context.Context) { f.carry(ctx, claim) })
	}
	return err
}

// claim claims up to n events. Those of an item of which something was re-armed just now are given back unasked and claimed anew:
// what was re-armed may come first.
func (f *Forwarder) claim(ctx context.Context, n int) (kept []Claim, err error) {
	for len(kept) < n {
		claims, err := f.config.Ledger.Claim(ctx, n-len(kept))
		if err != nil || len(claims) == 0 {
			return kept, err
		}
		items := make([]string, len(claims))
		for i, c := range claims {
			items[i] = c.WorkItem
		}
		rearmed, err := f.config.Rearmer.See(ctx, items)
		for _, c := range claims {
			if slices.Contains(rearmed, c.WorkItem) {
				f.release(ctx, c)
			} else {
				kept = append(kept, c)
			}
		}
		if err != nil || len(rearmed) == 0 {
			return kept, err
		}
	}
	return kept, nil
}

// over reports whether it is time to stop.
func over(ctx context.Context) bool { return ctx.Err() != nil }

// reportLedger logs once that the ledger cannot be read, and once that it can again.
func (f *Forwarder) reportLedger(ctx context.Context, err error) {
	if over(ctx) {
		return
	}
	f.mu.Lock()
	changed := f.down != (err != nil)
	f.down = err != nil
	f.mu.Unlock()
	switch {
	case changed && err != nil:
		f.config.Logger.WarnContext(ctx, "cannot read the ledger", obs.KeyReason, string(fault.ReasonOf(err)), obs.KeyError, err)
	case changed:
		f.config.Logger.InfoContext(ctx, "the ledger can be read again")
	}
}
