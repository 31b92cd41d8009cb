package poll

import (
	"context"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/ledger"
	"muxpost.dev/muxpost/internal/obs"
)

// Cancel ends an event that waits, is held or gave up, by a person's word, and returns its row, and whether this call did it. One that is being
// delivered, one that may have been typed, and one that has ended otherwise is fault.Conflict.
func (r *Retrier) Cancel(ctx context.Context, by Again) (row Entry, cancelled bool, err error) {
	if err := by.check(); err != nil {
		return Entry{}, false, err
	}
	before, cancelled, err := r.ledger.Cancel(ctx, by)
	if err != nil {
		return Entry{}, false, err
	}
	if row, err = r.row(ctx, by.DeliveryID); err != nil {
		return Entry{}, false, err
	}
	switch {
	case cancelled:
		r.log.InfoContext(ctx, "an event is cancelled by a person's word", obs.KeyDeliveryID, row.DeliveryID, obs.KeyWorkItem, row.WorkItem,
			obs.KeyState, before.State.String(), obs.KeyReason, before.Reason, "who", by.Who)
		return row, true, nil
	case before.State == ledger.Cancelled:
		return row, false, nil
	}
	return Entry{}, false, uncancellable(before, by.DeliveryID)
}

// uncancellable says why an event is not cancelled.
func uncancellable(p ledger.Progress, id string) error {
	refused := func(what, remedy string) error { return fault.New(fault.Conflict, "", what).WithRemedy(remedy) }
	switch {
	case p.State == ledger.Leased:
		return refused("it is being delivered", "ask again in a moment: muxpost cancel "+id)
	case p.State == ledger.Delivered:
		return refused("it is in its conversation", "tell the agent otherwise with muxpost send")
	case p.State == ledger.Settled && p.Reason != ledger.ReasonUnconfirmed:
		return refused("it was settled ("+p.Reason+"), so nothing is delivered of it", "nothing is needed")
	case p.State == ledger.Dropped, p.State == ledger.Settled:
		return refused("it has ended: "+p.State.String()+" ("+p.Reason+")", "muxpost done "+id+" says that it needs nothing more")
	case !p.UnprovenSince.IsZero():
		return refused("it was typed, and nothing shows yet whether it arrived", "it ends as unconfirmed ten minutes after that; then muxpost done "+id)
	}
	return refused("what became of it when it was last asked about is not known ("+p.Reason+"), so it may be in its conversation",
		"ask again once that is answered; muxpost done "+id+" ends one that was dropped, gave up or is unconfirmed by then")
}
