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
	// SweepLimit is how many of them one sweep takes; the next one goes on with those that were left.
	SweepLimit = 20
	// sweepInterval is how often it is looked for them, and sweepTime bounds one sweep.
	sweepInterval = time.Minute
	sweepTime     = 30 * time.Second
	// sweeper is who re-opens them, on the dispatcher's record.
	sweeper = "muxpost (the name is free again)"

	maxWho    = 100
	maxWhy    = 300
	retryTime = 8 * time.Second
)

// Again names an event that a person has decided about.
type Again struct {
	DeliveryID string
	// Who asks for it and why, for people; both may be empty.
	Who, Reason string
	// TypeAgain types an unconfirmed event once more, in place of looking for evidence again.
	TypeAgain bool
}

// Ended keeps the events that ended, for a person to decide about. Its errors are faults. Each change is made only where the row is still
// one that it is for; who asked for it and why is written down with it.
type Ended interface {
	// List returns rows, newest first.
	List(ctx context.Context, f Filter) ([]Entry, error)
	// Retry makes an event that was dropped, gave up or was settled as unconfirmed pending with a new budget, and due at once; false
	// when it is none of these (any more).
	Retry(ctx context.Context, again Again) (bool, error)
	// TypeAgain makes an event of the order to type one again that was settled as unconfirmed, and returns its id; "" when it is that no
	// more.
	TypeAgain(ctx context.Context, again Again) (id string, err error)
	// Settle ends an event for good that was dropped, gave up or was settled as unconfirmed; false when it is none of these (any more).
	Settle(ctx context.Context, again Again) (bool, error)
	// Cancel ends an event that ledger.CancelByHand lets end, and returns what it was before; false when it stays that.
	Cancel(ctx context.Context, by Again) (before ledger.Progress, done bool, err error)
	// Hurry makes an event that waits due at once.
	Hurry(ctx context.Context, id string) error
}

// Swept keeps the events that are asked about again by themselves. Its errors are faults.
type Swept interface {
	// Occupied returns up to n events that were dropped because their session's name was occupied: those of a work item, or those that are
	// due when it is empty; those that have waited longest for a look come first.
	Occupied(ctx context.Context, workItem string, n int) ([]Entry, error)
	// LookLater plans the next look at one.
	LookLater(ctx context.Context, e Entry) error
	// AskAgain makes an event that Occupied returned pending and due at once; what it may spend stays as it is. False means that it
	// has changed since.
	AskAgain(ctx context.Context, e Entry) (bool, error)
}

// Reopener takes back at the dispatcher that a delivery was dropped.
type Reopener interface {
	// Reopen is idempotent; with ifFree it does so only where the name of the session can be had now. It returns false for one that is
	// dropped still. A delivery that is in its conversation is fault.Conflict, one that is not known fault.NotFound.
	Reopen(ctx context.Context, id, who string, ifFree bool) (open bool, err error)
}

// Retrier has events that ended asked about again: by a person's word, and those of an occupied name by itself. The dispatcher goes
// first: a row that the ledger opened before would only hear once more that it was dropped.
type Retrier struct {
	ledger interface {
		Ended
		Swept
	}
	reopener Reopener
	log      *slog.Logger
}

// NewRetrier returns a retrier.
func NewRetrier(l interface {
	Ended
	Swept
}, r Reopener, log *slog.Logger) *Retrier {
	return &Retrier{ledger: l, reopener: r, log: log}
}

// Retried is what came of a retry.
type Retried struct {
	Row Entry
	// Again is true when it was put on its way again; one that waited is only due at once.
	Again bool
	// EvidenceOnly is true when it had been typed, so that it is only looked for evidence of it.
	EvidenceOnly bool
}

// Retry has an event asked about again under its own id. One that is in its conversation, was ended by policy, or was deleted or edited
// upstream is fault.Conflict. With TypeAgain, one that is unconfirmed is typed once more under an id of its own, whose row is returned;
// anything else is fault.Conflict then.
func (r *Retrier) Retry(ctx context.Context, again Again) (out Retried, err error) {
	if err := again.check(); err != nil {
		return Retried{}, err
	}
	row, err := r.row(ctx, again.DeliveryID)
	if err != nil {
		return Retried{}, err
	}
	if again.TypeAgain {
		return r.typeAgain(ctx, row, again)
	}
	if row.State.Waits() {
		if err := r.ledger.Hurry(ctx, row.DeliveryID); err != nil {
			return Retried{}, err
		}
		out.Row, err = r.row(ctx, again.DeliveryID)
		return out, err
	}
	if err := retriable(row); err != nil {
		return Retried{}, err
	}
	asking, cancel := context.WithTimeout(ctx, retryTime)
	defer cancel()
	if _, err := r.reopener.Reopen(asking, row.DeliveryID, again.Who, false); err != nil && !errors.Is(err, fault.NotFound) {
		return Retried{}, err
	}
	if out.Again, err = r.ledger.Retry(ctx, again); err != nil {
		return Retried{}, err
	}
	out.EvidenceOnly = out.Again && row.State == ledger.Settled
	if out.Again {
		r.log.InfoContext(ctx, "an event is tried again by a person's word", obs.KeyDeliveryID, row.DeliveryID, obs.KeyWorkItem, row.WorkItem,
			obs.KeyState, row.State.String(), obs.KeyReason, row.Reason, "who", again.Who)
	}
	// Where somebody else was faster, the row says what became of it.
	out.Row, err = r.row(ctx, again.DeliveryID)
	return out, err
}

// typeAgain has an unconfirmed event typed once more. Nobody can know whether it is there then twice: that is why a person orders it.
func (r *Retrier) typeAgain(ctx context.Context, row Entry, again Again) (Retried, error) {
	if err := retriable(row); err != nil {
		return Retried{}, err
	}
	if row.State != ledger.Settled {
		return Retried{}, fault.Newf(fault.Conflict, "", "it is %s, and only what ended as unconfirmed is typed again", described(row)).
			WithRemedy("muxpost explain " + row.DeliveryID + " says what it waits for; evidence is looked for by itself for ten minutes, and then it ends")
	}
	id, err := r.ledger.TypeAgain(ctx, again)
	if err != nil {
		return Retried{}, err
	}
	if id == "" {
		return Retried{}, fault.New(fault.Conflict, "", "it has changed meanwhile").WithRemedy("muxpost explain " + row.DeliveryID)
	}
	r.log.InfoContext(ctx, "an event is typed again by a person's order", obs.KeyDeliveryID, row.DeliveryID, obs.KeyWorkItem, row.WorkItem,
		"as", id, "who", again.Who)
	row, err = r.row(ctx, id)
	return Retried{Row: row, Again: true}, err
}

// Settle ends an event for good that was dropped, gave up or is unconfirmed, and returns its row, and whether this call did it. Anything
// else is fault.Conflict.
func (r *Retrier) Settle(ctx context.Context, again Again) (row Entry, settled bool, err error) {
	if err := again.check(); err != nil {
		return Entry{}, false, err
	}
	if settled, err = r.ledger.Settle(ctx, again); err != nil {
		return Entry{}, false, err
	}
	if row, err = r.row(ctx, again.DeliveryID); err != nil {
		return Entry{}, false, err
	}
	switch {
	case settled:
		r.log.InfoContext(ctx, "an event is settled by a person's word", obs.KeyDeliveryID, row.DeliveryID, obs.KeyWorkItem, row.WorkItem,
			"who", again.Who)
	case row.State != ledger.Settled || row.Reason != ReasonDone:
		remedy := "muxpost explain " + row.DeliveryID + " says what becomes of it"
		if row.State.Waits() {
			remedy += "; what was typed ends as unconfirmed after ten minutes without evidence"
		}
		return Entry{}, false, fault.Newf(fault.Conflict, "", "it is %s, and only what was dropped, gave up or ended as unconfirmed is settled by hand",
			described(row)).WithRemedy(remedy)
	}
	return row, settled, nil
}

// described is the state of a row with its reason, as people read it.
func described(row Entry) string {
	if row.Reason == "" {
		return row.State.String()
	}
	return row.State.String() + " (" + row.Reason + ")"
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
	return checkWords(a.Who, a.Reason)
}

// checkWords refuses what people say when it cannot be kept.
func checkWords(who, reason string) error {
	for _, word := range []struct {
		name, text string
		most       int
	}{{"who", who, maxWho}, {"reason", reason, maxWhy}} {
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
	case row.SupersededBy != "":
		what := "it was edited upstream, and what it says now is the delivery "
		if row.Reason == ReasonTypedAgain {
			what = "it was typed again, as the delivery "
		}
		if row.Reason == ledger.ReasonCoalesced {
			what = "what it says is a part of the delivery "
		}
		return refused(what+row.SupersededBy, "see muxpost explain "+row.SupersededBy)
	case row.State == ledger.Cancelled && row.Reason == ledger.ReasonByHand:
		return refused("a person cancelled it, so it is not delivered any more", send)
	case row.State == ledger.Cancelled || !row.DeletedAt.IsZero():
		return refused("it was deleted upstream, so it is not delivered any more", send)
	case row.State == ledger.Settled && row.Reason == ReasonDone:
		return refused("a person said that it is done, so it is not tried again", send)
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

// Sweep has events asked about again that were dropped because of who lived under their session's name, and that can be had now. It takes
// those whose look is due, and ends early when the dispatcher does not answer. An error is the ledger's.
func (r *Retrier) Sweep(ctx context.Context) error { return r.sweep(ctx, "") }

// Freed is Sweep for the events of one work item, whose session may have changed, due or not.
func (r *Retrier) Freed(ctx context.Context, workItem string) error { return r.sweep(ctx, workItem) }

func (r *Retrier) sweep(ctx context.Context, workItem string) error {
	rows, err := r.ledger.Occupied(ctx, workItem, SweepLimit)
	if err != nil {
		return err
	}
	for _, row := range rows {
		asking, cancel := context.WithTimeout(ctx, retryTime)
		open, err := r.reopener.Reopen(asking, row.DeliveryID, sweeper, true)
		cancel()
		switch {
		case errors.Is(err, fault.Conflict), errors.Is(err, fault.NotFound):
			// In its conversation after all, or never asked about: asking says so.
		case err != nil:
			r.log.DebugContext(ctx, "the dispatcher does not re-open; the next sweep asks again", obs.KeyError, err)
			return nil
		case !open:
			if err := r.ledger.LookLater(ctx, row); err != nil {
				return err
			}
			continue
		}
		again, err := r.ledger.AskAgain(ctx, row)
		if err != nil {
			return err
		}
		if again {
			r.log.InfoContext(ctx, "an event is asked about again: the name of its session can be had", obs.KeyDeliveryID, row.DeliveryID,
				obs.KeyWorkItem, row.WorkItem)
		}
	}
	return nil
}
