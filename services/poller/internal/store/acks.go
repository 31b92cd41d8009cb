package store

import (
	"context"

	"github.com/jackc/pgx/v5"

	"muxpost.dev/muxpost/db"
	"muxpost.dev/muxpost/services/poller/internal/poll"
)

const ackColumns = "entry_id, state, delivery_id, who, reason, created_at"

// Acknowledge writes down that a person has seen an entry, in place of an earlier word on it.
func (s *Store) Acknowledge(ctx context.Context, a poll.Ack) (poll.Ack, error) {
	rows, err := s.pool.Query(ctx, `
insert into poller.acks (entry_id, state, delivery_id, who, reason) values (@entry, @state, @delivery, @who, @reason)
on conflict (entry_id) do update
set state = excluded.state, delivery_id = excluded.delivery_id, who = excluded.who, reason = excluded.reason, created_at = now()
returning `+ackColumns, pgx.NamedArgs{
		"entry": a.EntryID, "state": a.State, "delivery": a.DeliveryID, "who": clean(a.Who), "reason": clean(a.Reason),
	})
	if err != nil {
		return poll.Ack{}, db.Fault(err)
	}
	kept, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[poll.Ack])
	return kept, db.Fault(err)
}

// Acknowledged returns up to n entries that were acknowledged, the latest first.
func (s *Store) Acknowledged(ctx context.Context, n int) ([]poll.Ack, error) {
	rows, err := s.pool.Query(ctx, "select "+ackColumns+" from poller.acks order by created_at desc, entry_id limit @n", pgx.NamedArgs{"n": n})
	if err != nil {
		return nil, db.Fault(err)
	}
	acks, err := pgx.CollectRows(rows, pgx.RowToStructByPos[poll.Ack])
	return acks, db.Fault(err)
}
