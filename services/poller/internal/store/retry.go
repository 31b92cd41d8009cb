package store

import (
	"context"

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
  where delivery_id = @delivery and deleted_at is null and superseded_by = ''
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
// it is none of these (any more), or was deleted or edited upstream.
func (s *Store) Retry(ctx context.Context, again poll.Again) (bool, error) {
	return s.changed(ctx, retryStatement, pgx.NamedArgs{
		"delivery": again.DeliveryID, "unconfirmed": ledger.ReasonUnconfirmed, "channel": channel, "type": string(ledger.Retried),
		"who": clean(again.Who), "why": clean(again.Reason),
	})
}

// The text goes over as it was, but for the line before it. What it is an edit of, and what edits it, stays what it was.
const typeAgainStatement = `
with before as (
  select * from poller.events
  where delivery_id = @delivery and deleted_at is null and superseded_by = '' and state = 'settled' and reason = @unconfirmed
  for update
), made as (
  insert into poller.events (delivery_id, natural_key, object_key, revision, revised_at, edited, excerpt, with_context, work_item, node_id, source,
    kind, author, url, title, text, harness, upstream_at, upstream_order, state, budget, next_look, traceparent, trace_id,
    thread, association, commit_sha, about)
  select @id, @key, object_key, revision, revised_at, edited, excerpt, with_context, work_item, node_id, source,
    kind, author, url, title, @text, harness, upstream_at, upstream_order, 'pending', budget, now(), traceparent, trace_id, thread, association, commit_sha,
    about
  from before
), ended as (
  update poller.events e
  set reason = @again, detail = @detail, superseded_by = @id, updated_at = clock_timestamp()
  from before where e.id = before.id
), quiet as (
  update poller.outbox o set state = 'skipped', ended_at = clock_timestamp() from before where o.event_id = before.id and o.state = 'waiting'
)
insert into poller.log (type, work_item, delivery_id, source, fields, trace_id)
select @type, work_item, delivery_id, source,
  jsonb_build_object('who', @who::text, 'why', @why::text, 'state', state, 'reason', reason, 'as', @id::text), trace_id
from before`

// TypeAgain makes an event of the order to type one again that was settled as unconfirmed, and returns its id; "" when it is that no more,
// or was deleted or edited upstream.
func (s *Store) TypeAgain(ctx context.Context, again poll.Again) (id string, err error) {
	err = db.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		var item, text string
		err := tx.QueryRow(ctx, `select work_item, text from poller.events where delivery_id = $1`, again.DeliveryID).Scan(&item, &text)
		if err != nil {
			return err
		}
		key := poll.OnceMoreKey(again.DeliveryID)
		id = ledger.DeliveryID(key, item)
		n, err := exec(ctx, tx, typeAgainStatement, pgx.NamedArgs{
			"delivery": again.DeliveryID, "unconfirmed": ledger.ReasonUnconfirmed, "id": id, "key": key.String(), "text": poll.OnceMore(text),
			"again": poll.ReasonTypedAgain, "detail": clean("it was typed once more" + byWhom(again) + ", as " + id),
			"type": string(ledger.Retried), "who": clean(again.Who), "why": clean(again.Reason),
		})
		if n == 0 {
			id = ""
		}
		return err
	})
	if err != nil {
		return "", err
	}
	return id, nil
}

// Settle ends an event for good that was dropped, gave up or was settled as unconfirmed; false when it is none of these (any more).
func (s *Store) Settle(ctx context.Context, again poll.Again) (bool, error) {
	return s.changed(ctx, `
with before as (
  select id, state, reason
  from poller.events
  where delivery_id = @delivery and (state in ('dropped', 'gave_up') or state = 'settled' and reason = @unconfirmed)
  for update
), done as (
  update poller.events e
  set state = 'settled', reason = @done, detail = @detail || ' (it was ' || before.state || ', ' || before.reason || ')', next_look = null,
    armed_for = '', updated_at = clock_timestamp()
  from before
  where e.id = before.id
  returning e.id, e.work_item, e.delivery_id, e.source, e.trace_id, before.state, before.reason
), told as (
  insert into poller.log (type, work_item, delivery_id, source, fields, trace_id)
  select @type, work_item, delivery_id, source, jsonb_build_object('who', @who::text, 'why', @why::text, 'state', state, 'reason', reason), trace_id
  from done
), quiet as (
  update poller.outbox o set state = 'skipped', ended_at = clock_timestamp() from done where o.event_id = done.id and o.state = 'waiting'
)
select id from done`, pgx.NamedArgs{
		"delivery": again.DeliveryID, "unconfirmed": ledger.ReasonUnconfirmed, "done": poll.ReasonDone,
		"type": string(ledger.SettledByHand), "who": clean(again.Who), "why": clean(again.Reason),
		"detail": clean("it was settled" + byWhom(again)),
	})
}

// byWhom ends a sentence with who said so, and why.
func byWhom(again poll.Again) string {
	out := " by a person"
	if again.Who != "" {
		out = " by " + again.Who
	}
	if again.Reason != "" {
		out += ": " + again.Reason
	}
	return out
}

// Hurry makes an event that waits due at once; anything else is left as it is.
func (s *Store) Hurry(ctx context.Context, id string) error {
	_, err := s.changed(ctx, `
update poller.events set next_look = now(), armed_for = ''
where delivery_id = @delivery and state in ('pending', 'held')
returning pg_notify(@channel, '')`, pgx.NamedArgs{"delivery": id, "channel": channel})
	return err
}

// Occupied returns up to n events that were dropped because their session's name was occupied: those of a work item, or those that are due
// when it is empty; those that have waited longest for a look come first.
func (s *Store) Occupied(ctx context.Context, workItem string, n int) ([]poll.Entry, error) {
	// What was dropped before looks were planned is due by its age.
	rows, err := s.quiet.Query(ctx, `select `+entryColumns+entryTables+`
where e.state = 'dropped' and e.reason = @reason and e.deleted_at is null and e.superseded_by = ''
  and case when @item = '' then coalesce(e.next_look, e.updated_at + @time::interval) <= now() else e.work_item = @item end
order by coalesce(e.next_look, e.updated_at), e.id
limit @n`, pgx.NamedArgs{"reason": ledger.ReasonSessionOccupied, "item": workItem, "time": ledger.SweepTime, "n": n})
	if err != nil {
		return nil, db.Fault(err)
	}
	entries, err := pgx.CollectRows(rows, scanEntry)
	return entries, db.Fault(err)
}

// AskAgain makes an event that was dropped because of an occupied name pending and due at once; what it may spend stays as it is. False
// means that it has changed since it was read. Its reason goes with its drop: what waits with one was asked about, may be on its way, and so
// goes before an earlier event of its item.
func (s *Store) AskAgain(ctx context.Context, e poll.Entry) (bool, error) {
	return s.changed(ctx, `
update poller.events
set state = 'pending', reason = '', detail = '', silences = 0, next_look = now(), updated_at = clock_timestamp()
where id = @id and state = 'dropped' and reason = @reason and updated_at = @updated and deleted_at is null and superseded_by = ''
returning pg_notify(@channel, '')`, pgx.NamedArgs{
		"id": e.ID, "reason": ledger.ReasonSessionOccupied, "updated": e.UpdatedAt, "channel": channel,
	})
}

// LookLater plans the next look at whether the name of an event that Occupied returned is free.
func (s *Store) LookLater(ctx context.Context, e poll.Entry) error {
	_, err := s.quiet.Exec(ctx, `
update poller.events set next_look = now() + @time::interval where id = @id and state = 'dropped' and reason = @reason`, pgx.NamedArgs{
		"id": e.ID, "reason": ledger.ReasonSessionOccupied, "time": ledger.SweepTime,
	})
	return db.Fault(err)
}

// Wake makes the events of a work item due that wait for something which may have passed, or those of all items when it is empty. What
// waits after a failure keeps its pause, and what waits for something that no change at its session brings.
func (s *Store) Wake(ctx context.Context, workItem string) error {
	_, err := s.quiet.Exec(ctx, `
with woken as (
  update poller.events set next_look = now()
  where (@item = '' or work_item = @item) and next_look > now()
    and (state = 'held' or state = 'pending' and (silences > 0 or unproven_since is not null) and reason <> all(@unhurried))
  returning id
)
select pg_notify(@channel, '') from woken limit 1`, pgx.NamedArgs{"item": workItem, "channel": channel, "unhurried": ledger.Unhurried()})
	return db.Fault(err)
}

// changed runs a statement that returns a row for what it changed.
func (s *Store) changed(ctx context.Context, statement string, args pgx.NamedArgs) (bool, error) {
	tag, err := s.pool.Exec(ctx, statement, args)
	return tag.RowsAffected() > 0, db.Fault(err)
}
