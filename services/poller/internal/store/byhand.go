package store

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"muxpost.dev/muxpost/core/ledger"
	"muxpost.dev/muxpost/db"
	"muxpost.dev/muxpost/services/poller/internal/poll"
)

// Cancel ends an event by a person's word where the rules let it, with what was to be told of it upstream, and returns what it was before; false
// when it stays that. An event that is not there is the zero progress and false.
func (s *Store) Cancel(ctx context.Context, by poll.Again) (before ledger.Progress, done bool, err error) {
	err = db.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		before, done = ledger.Progress{}, false
		var id int64
		var state, kind string
		var unproven *time.Time
		var asked bool
		l := logged{deliveryID: by.DeliveryID}
		err := tx.QueryRow(ctx, `
select id, work_item, source, trace_id, kind, state, reason, tries, budget, silences, unproven_since, with_context is not null
from poller.events where delivery_id = @delivery for update`, pgx.NamedArgs{"delivery": by.DeliveryID}).Scan(&id, &l.workItem, &l.source,
			&l.traceID, &kind, &state, &before.Reason, &before.Tries, &before.Budget, &before.Silences, &unproven, &asked)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		if before.State, err = parseState(state); err != nil {
			return err
		}
		before.UnprovenSince = deref(unproven)
		var after ledger.Progress
		if after, done = ledger.CancelByHand(before); !done {
			return nil
		}
		detail := "it was cancelled" + byWhom(by)
		if asked && before.Silences > 0 {
			detail += " (it had been asked about before, so the agent may know of it all the same)"
		}
		if err := cancel(ctx, tx, id, after, clean(detail)); err != nil {
			return err
		}
		if _, err := exec(ctx, tx, `
update poller.outbox set state = 'skipped', ended_at = clock_timestamp() where event_id = @id and state = 'waiting'`,
			pgx.NamedArgs{"id": id}); err != nil {
			return err
		}
		l.fields = map[string]string{"kind": kind, "reason": after.Reason, "who": by.Who, "why": by.Reason, "state": state}
		return write(ctx, tx, ledger.CommentCancelled, l)
	})
	return before, done, err
}
