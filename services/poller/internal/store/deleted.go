package store

import (
	"context"

	"github.com/jackc/pgx/v5"

	"muxpost.dev/muxpost/core/ledger"
	"muxpost.dev/muxpost/services/poller/internal/poll"
)

// deletedDetail explains a cancelled event to a person.
const deletedDetail = "it was deleted upstream before it was delivered"

// cancelDeleted marks the comments of an item that a complete record lacks, and cancels those that the rules say. Only what was in
// the ledger when the look began can be missed: what came in since, by another way, may be newer than what was listed.
func cancelDeleted(ctx context.Context, tx pgx.Tx, r poll.Record) error {
	keys := make([]string, len(r.Events))
	for i, e := range r.Events {
		keys[i] = e.Key.String()
	}
	rows, err := tx.Query(ctx, `
select id, delivery_id, source, trace_id, kind, state, tries, budget, reason
from poller.events
where work_item = @item and kind = @kind and deleted_at is null and natural_key <> all(@keys)
  and created_at < (select last_look_at from poller.sources where name = @source)
order by id
for update`, pgx.NamedArgs{"item": r.WorkItem, "kind": poll.KindComment, "keys": keys, "source": r.Source})
	if err != nil {
		return err
	}
	type missed struct {
		id       int64
		logged   logged
		progress ledger.Progress
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (m missed, err error) {
		var state, kind string
		p := &m.progress
		if err = row.Scan(&m.id, &m.logged.deliveryID, &m.logged.source, &m.logged.traceID, &kind, &state, &p.Tries, &p.Budget,
			&p.Reason); err != nil {
			return m, err
		}
		m.logged.workItem, m.logged.fields = r.WorkItem, map[string]string{"kind": kind}
		p.State, err = parseState(state)
		return m, err
	})
	if err != nil {
		return err
	}
	for _, m := range all {
		after := ledger.Cancel(m.progress)
		if after.State != ledger.Cancelled {
			if _, err := exec(ctx, tx, `update poller.events set deleted_at = clock_timestamp() where id = @id`,
				pgx.NamedArgs{"id": m.id}); err != nil {
				return err
			}
			continue
		}
		if _, err := exec(ctx, tx, `
update poller.events
set state = @state, reason = @reason, detail = @detail, next_look = null, unproven_since = null, held_since = null, armed_for = '',
  deleted_at = clock_timestamp(), updated_at = clock_timestamp()
where id = @id`, pgx.NamedArgs{"id": m.id, "state": after.State.String(), "reason": after.Reason, "detail": deletedDetail}); err != nil {
			return err
		}
		if err := write(ctx, tx, ledger.CommentCancelled, m.logged); err != nil {
			return err
		}
	}
	return nil
}
