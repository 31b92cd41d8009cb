package poll

import (
	"context"
	"errors"
	"log/slog"
	"time"
	"unicode/utf8"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/ledger"
	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/internal/obs"
)

const (
	// SweepAge is how long an event stays dropped because its session's name was occupied, before it is asked about again.
	SweepAge = 5 * time.Minute
	// SweepLimit is how many of them one sweep takes; the next one goes on with those that were left.
	SweepLimit = 20
	// sweepInterval is how often it is looked for them, and sweepTime bounds one sweep.
	sweepInterval = time.Minute
	sweepTime     = 30 * time.Second
	// sweeper is who re-opens them, on the dispatcher's record.
	sweeper = "muxpost (the name may be free again)"

	maxWho    = 100
	maxWhy    = 300
	retryTime = 8 * time.Second
)

// Again names an event that a person wants to be asked about again.
type Again struct {
	DeliveryID string
	// Who asks for it and why, for people; both may be empty.
	Who, Reason string
}

// Ended keeps the events that ended. Its errors are faults.
type Ended interface {
	// List returns rows, newest first.
	List(ctx context.Context, f Filter) ([]Entry, error)
	// Retry makes an event that was dropped, gave up or was settled as unconfirmed pending with a new budget, and due at once; false
	// when it is none of these (any more). Who asked for it and why is written down with it.
	Retry(ctx context.Context, again Again) (bool, error)
	// Hurry makes an event that waits due at once.
	Hurry(ctx context.Context, id string) error
	// Occupied returns up to n events that were dropped because their session's name was occupied, at least an age ago, the longest
	// dropped first.
	Occupied(ctx context.Context, age time.Duration, n int) ([]Entry, error)
	// AskAgain makes an event that Occupied returned pending and due at once; what it may spend stays as it is. False means that it
	// has changed since.
	AskAgain(ctx context.Context, e Entry) (bool, error)
}

// Reopener takes back at the dispatcher that a delivery was dropped.
type Reopener interface {
	// Reopen is idempotent. A delivery that is in its conversation is fault.Conflict, one that is not known fault.NotFound.
	Reopen(ctx context.Context, id, who string) error
}

// Retrier has events that ended asked about again: by a person's word, and those of an occupied name by itself. The dispatcher goes
// first: a row that the ledger opened before would only hear once more that it was dropped.
type Retrier struct {
	ledger   Ended
	reopener Reopener
	log      *slog.Logger
}

// NewRetrier returns a retrier.
func NewRetrier(l Ended, r Reopener, log *slog.Logger) *Retrier {
	return &Retrier{ledger: l, reopener: r, log: log}
}

// Retry has an event asked about again under its own id, and returns its row, and whether it had ended: one that waits is only due at
// once. One that is in its conversation, was ended by policy or was deleted upstream is fault.Conflict.
func (r *Retrier) Retry(ctx context.Context, again Again) (row Entry, retried bool, err error) {
	if err := again.check(); err != nil {
		return Entry{}, false, err
	}
	if row, err = r.row(ctx, again.DeliveryID); err != nil {
		return Entry{}, false, err
	}
	if row.State.Waits() {
		if err := r.ledger.Hurry(ctx, row.DeliveryID); err != nil {
			return Entry{}, false, err
		}
		row, err = r.row(ctx, again.DeliveryID)
		return row, false, err
	}
	if err := retriable(row); err != nil {
		return Entry{}, false, err
	}
	asking, cancel := context.WithTimeout(ctx, retryTime)
	defer cancel()
	if err := r.reopener.Reopen(asking, row.DeliveryID, again.Who); err != nil && !errors.Is(err, fault.NotFound) {
		return Entry{}, false, err
	}
	if retried, err = r.ledger.Retry(ctx, again); err != nil {
		return Entry{}, false, err
	}
	if retried {
		r.log.InfoContext(ctx, "an event is tried again by a person's word", obs.KeyDeliveryID, row.DeliveryID, obs.KeyWorkItem, row.WorkItem,
			obs.KeyState, row.State.String(), obs.KeyReason, row.Reason, "who", again.Who)
	}
	// Where somebody else was faster, the row says what became of it.
	if row, err = r.row(ctx, again.DeliveryID); err != nil {
		return Entry{}, false, err
	}
	return row, retried, nil
}

func (r *Retrier) row(ctx context.Context, id string) (Entry, error) {
	rows, err := r.ledger.List(ctx, Filter{DeliveryID: id, Limit: 1})
	if err != nil {
		return Entry{}, err
	}
	if len(rows) == 0 {
		return Entry{}, fault.Newf(fault.NotFound, fault.ReasonDeliveryNotFound, "the ledger has no event %s", id).
			WithRemedy("muxpost ledger lists the ids; one that never was in it is sent again by whoever sent it")
	}
	return rows[0], nil
}

func (a Again) check() error {
	if !session.ValidDeliveryID(a.DeliveryID) {
		return fault.New(fault.Invalid, fault.ReasonBadDeliveryID, "the delivery id is missing or malformed").
			WithRemedy("copy it from a row of the ledger: 8 to 64 characters of a-z, 0-9, - and _")
	}
	for _, word := range []struct {
		name, text string
		most       int
	}{{"who", a.Who, maxWho}, {"reason", a.Reason, maxWhy}} {
		if !utf8.ValidString(word.text) || len(word.text) > word.most {
			return fault.Newf(fault.Invalid, fault.ReasonBadArgument, "%s must be UTF-8 of at most %d bytes", word.name, word.most)
		}
	}
	return nil
}

// retriable says why an event that ended is not asked about again.
func retriable(row Entry) error {
	refused := func(what, remedy string) error {
		return fault.New(fault.Conflict, "", what).WithRemedy(remedy)
	}
	const send = "send what it should know with muxpost send"
	switch {
	case row.State == ledger.Delivered:
		return refused("it is in its conversation, and nothing is typed twice", "send a message of your own with muxpost send")
	case row.State == ledger.Cancelled || !row.DeletedAt.IsZero():
		return refused("it was deleted upstream, so it is not delivered any more", send)
	case row.State == ledger.Settled && row.Reason != ledger.ReasonUnconfirmed:
		return refused("it was settled by policy ("+row.Reason+"), and a retry does not change the policy", send)
	}
	return nil
}

// Run sweeps until ctx ends. It returns nil: trouble with the ledger or the dispatcher is waited out.
func (r *Retrier) Run(ctx context.Context) error {
	ticker := time.NewTicker(sweepInterval)
	defer ticker.Stop()
	for {
		sweeping, cancel := context.WithTimeout(ctx, sweepTime)
		err := r.Sweep(sweeping)
		cancel()
		if err != nil && ctx.Err() == nil {
			r.log.WarnContext(ctx, "the events of occupied names were not swept", obs.KeyReason, string(fault.ReasonOf(err)), obs.KeyError, err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// Sweep has events asked about again that were dropped because of who lived under their session's name: he may be gone. It takes those
// dropped for longer than SweepAge, the longest first, and ends early when the dispatcher does not answer. An error is the ledger's.
func (r *Retrier) Sweep(ctx context.Context) error {
	rows, err := r.ledger.Occupied(ctx, SweepAge, SweepLimit)
	if err != nil {
		return err
	}
	for _, row := range rows {
		asking, cancel := context.WithTimeout(ctx, retryTime)
		err := r.reopener.Reopen(asking, row.DeliveryID, sweeper)
		cancel()
		// In its conversation after all, or never asked about: asking says so.
		if err != nil && !errors.Is(err, fault.Conflict) && !errors.Is(err, fault.NotFound) {
			r.log.DebugContext(ctx, "the dispatcher does not re-open; the next sweep asks again", obs.KeyError, err)
			return nil
		}
		again, err := r.ledger.AskAgain(ctx, row)
		if err != nil {
			return err
		}
		if again {
			r.log.InfoContext(ctx, "an event of an occupied name is asked about again", obs.KeyDeliveryID, row.DeliveryID,
				obs.KeyWorkItem, row.WorkItem)
		}
	}
	return nil
}
