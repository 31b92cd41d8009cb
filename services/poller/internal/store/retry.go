package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"muxpost.dev/muxpost/core/ledger"
	"muxpost.dev/muxpost/db"
	"muxpost.dev/muxpost/services/poller/internal/poll"
)

// The conditions stand on the row that is locked: of two that retry one event, one changes it.
const retryStatement = `
with before as (
  select id, state, reason
  from poller.events
  where delivery_id = @delivery and deleted_at is null
    and (state in ('dropped', 'gave_up') or state = 'settled' and reason = @unconfirmed)
  for update
), done as (
update poller.events e
set state = 'pending', reason = '', detail = '', tries = 0, silences = 0, unproven_since = null, held_since = null, next_look = now(),
  armed_for = '', updated_at = clock_timestamp()
from before
where e.id = before.id
returning e.work_item, e.delivery_id, e.source, e.trace_id, before.state, before.reason
), told as (
insert into poller.log (type, work_item, delivery_id, source, fields, trace_id)
select @type, work_item, delivery_id, source, jsonb_build_object('who', @who::text, 'why', @why::text, 'state', state, 'reason', reason), trace_id
from done
)
select pg_notify(@channel, '') from done`

// Retry makes an event that was dropped, gave up or was settled as unconfirmed pending with a new budget, and due at once; false when
// it is none of these (any more), or was deleted upstream.
func (s *Store) Retry(ctx context.Context, again poll.Again) (bool, error) {
	return s.changed(ctx, retryStatement, pgx.NamedArgs{
		"delivery": again.DeliveryID, "unconfirmed": ledger.ReasonUnconfirmed, "channel": channel, "type": string(ledger.Retried),
		"who": clean(again.Who), "why": clean(again.Reason),
	})
}

// Hurry makes an event that waits due at once; anything else is left as it is.
func (s *Store) Hurry(ctx context.Context, id string) error {
	_, err := s.changed(ctx, `
update poller.events set next_look = now(), armed_for = ''
where delivery_id = @delivery and state in ('pending', 'held')
returning pg_notify(@channel, '')`, pgx.NamedArgs{"delivery": id, "channel": channel})
	return err
}

// Occupied returns up to n events that were dropped at least an age ago because their session's name was occupied, the longest dropped
// first.
func (s *Store) Occupied(ctx context.Context, age time.Duration, n int) ([]poll.Entry, error) {
	rows, err := s.quiet.Query(ctx, `select `+entryColumns+entryTables+`
where e.state = 'dropped' and e.reason = @reason and e.deleted_at is null and e.updated_at <= now() - @age::interval
order by e.updated_at, e.id
limit @n`, pgx.NamedArgs{"reason": ledger.ReasonSessionOccupied, "age": age, "n": n})
	if err != nil {
		return nil, db.Fault(err)
	}
	entries, err := pgx.CollectRows(rows, scanEntry)
	return entries, db.Fault(err)
}

// AskAgain makes an event that was dropped because of an occupied name pending and due at once; what it may spend stays as it is. False
// means that it has changed since it was read.
func (s *Store) AskAgain(ctx context.Context, e poll.Entry) (bool, error) {
	return s.changed(ctx, `
update poller.events
set state = 'pending', silences = 0, next_look = now(), updated_at = clock_timestamp()
where id = @id and state = 'dropped' and reason = @reason and updated_at = @updated and deleted_at is null
returning pg_notify(@channel, '')`, pgx.NamedArgs{
		"id": e.ID, "reason": ledger.ReasonSessionOccupied, "updated": e.UpdatedAt, "channel": channel,
	})
}

// changed runs a statement that returns a row for what it changed.
func (s *Store) changed(ctx context.Context, statement string, args pgx.NamedArgs) (bool, error) {
	tag, err := s.pool.Exec(ctx, statement, args)
	return tag.RowsAffected() > 0, db.Fault(err)
}
