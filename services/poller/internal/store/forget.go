package store

import (
	"context"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"muxpost.dev/muxpost/core/ledger"
	"muxpost.dev/muxpost/db"
)

const (
	// forgetBatch is how many rows one transaction deletes, so that none is locked for long.
	forgetBatch = 1000
	// keepCancelled is the least time for which a cancelled event is kept, so that a late redelivery cannot revive it.
	keepCancelled = 30 * 24 * time.Hour
)

// forgottenDetail explains a comment that came back to the ledger after it was forgotten.
const forgottenDetail = "it is older than what the ledger keeps, so what it said before is not known; it is an event again once it is edited"

// finished is true of a row that nobody will be asked about any more, and that nobody has to look at. What is a part of another one's text is
// so with that.
func finished(row string) string {
	return strings.ReplaceAll(`((e.state = 'delivered' or e.state = 'settled' and e.reason <> @unconfirmed
      and not (e.reason = 'coalesced' and exists (select from poller.events h where h.delivery_id = e.superseded_by
        and (h.state not in ('delivered', 'settled') or h.reason = @unconfirmed))))
      and e.updated_at < now() - @keep::interval
    or e.state = 'cancelled' and e.updated_at < now() - greatest(@keep::interval, @cancelled::interval))`, "e.", row+".")
}

// What has an object key, a result of CI and a labelling may be listed upstream for as long as it is there, so how far it was forgotten stays with its item. The
// rest comes in once: the opening event at the first sight of its item, which is never forgotten, and what was sent by hand.
//
// What all of it has in common stands beside the rest, so that the index of what is finished is read as far as that and not to its end.
//
// The revisions of an object are deleted once all of them are finished, the oldest first: what is left is always the newest, by which an
// edit is told.
var forgetStatement = `
with old as (
  select e.id
  from poller.events e
  where e.state in ('delivered', 'settled', 'cancelled') and e.updated_at < now() - @keep::interval and ` + finished("e") + `
    and not exists (select from poller.outbox o where o.event_id = e.id and o.state = 'waiting')
    and (e.object_key = ''
      or (select bool_and(` + finished("s") + `) and min(s.id) = e.id from poller.events s where s.object_key = e.object_key))
  order by e.updated_at
  limit @n
  for update of e skip locked
), gone as (
  delete from poller.events e using old where e.id = old.id
  returning e.work_item, e.object_key <> '' or e.kind in ('check', 'labelled') as listed, greatest(e.upstream_at, least(e.revised_at, now() - @keep::interval)) as at
), marked as (
  update poller.items i set forgotten_through = greatest(i.forgotten_through, f.at)
  from (select work_item, max(at) as at from gone where listed group by work_item) f
  where i.work_item = f.work_item
)
select count(*) from gone`

// What was told of an event is kept as long as the event is.
const forgetLogStatement = `
delete from poller.log where seq in (
  select l.seq from poller.log l
  where l.time < now() - @keep::interval
    and not exists (select from poller.events e where e.delivery_id = l.delivery_id)
  order by l.seq
  limit @n
)`

// An acknowledgement is kept as long as the event that it is about; the others are few, one for each source, pause and session.
const forgetAcksStatement = `
delete from poller.acks a
where a.delivery_id <> '' and not exists (select from poller.events e where e.delivery_id = a.delivery_id)`

// Forget deletes what is finished and has not changed for a while: events with what was told of them upstream, and what the poller did.
// What is open, held, dropped, given up or unconfirmed stays. How far what is listed upstream was forgotten stays with its item, so that
// none of it is ever taken for new. It returns how many events and lines went.
func (s *Store) Forget(ctx context.Context, keep time.Duration) (events, lines int64, err error) {
	args := pgx.NamedArgs{
		"keep": keep, "cancelled": keepCancelled, "unconfirmed": ledger.ReasonUnconfirmed, "n": forgetBatch,
	}
	for n := int64(1); n > 0; events += n {
		if err := s.quiet.QueryRow(ctx, forgetStatement, args).Scan(&n); err != nil {
			return events, lines, db.Fault(err)
		}
	}
	for n := int64(forgetBatch); n == forgetBatch; lines += n {
		if n, err = exec(ctx, s.quiet, forgetLogStatement, args); err != nil {
			return events, lines, err
		}
	}
	_, err = exec(ctx, s.quiet, forgetAcksStatement, nil)
	return events, lines, err
}
