package store

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/ledger"
	"muxpost.dev/muxpost/db"
	"muxpost.dev/muxpost/services/poller/internal/forward"
)

// querier is a pool, a connection or a transaction.
type querier interface {
	Exec(ctx context.Context, statement string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, statement string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, statement string, args ...any) pgx.Row
}

// claimTries is how often a claim that met another one on the same item is tried again.
const claimTries = 5

// claimDepth is how many events that are due a claim looks at, at least, before it goes through all that wait.
const claimDepth = 64

// heads finds the first event of each item that waits. One that is leased comes first whatever its order, and then one that was asked about: an
// earlier event that came in late must not overtake one that may be on its way to the agent, or stand half typed in the agent's composer. There the
// earlier one could not be typed, and the half typed one would not be asked about again: both would wait for ever. Upstream times are whole
// seconds, so that a comment comes in late beside every message by hand of its second.
const heads = `
with heads as (
  select distinct on (work_item) id
  from poller.events
  where state in ('pending', 'leased', 'held')
  order by work_item, (state = 'leased') desc, reason = '', upstream_at, upstream_order, id
)`

// isDue is true of an event that may be claimed now. It stands on the row that is locked, so that Postgres checks it again on its newest version
// when another claim was faster.
const isDue = `(e.state in ('pending', 'held') and e.next_look <= now() - case when e.armed_for in ('', @version) then interval '0' else @armed end
      or e.state = 'leased' and e.lease_until <= now())`

const lease = `
update poller.events e
set state = 'leased', lease_holder = @lease, lease_until = now() + @time
from due
where e.id = due.id
returning e.id, e.delivery_id, e.work_item, e.node_id, e.kind, e.text, e.harness, e.traceparent,
  e.deleted_at is not null or e.superseded_by <> '' or e.stale_at is not null as over, e.with_context is null as undecided, e.armed_for <> '' as rearmed, e.created_at`

// nearStatement looks at those events that have been due for longest, and at each whether it is the first of its item by the order of heads. A row
// with no id says whether there are more than it looked at.
var nearStatement = `
with near as (
  select id from poller.events
  where state in ('pending', 'leased', 'held') and coalesce(lease_until, next_look) <= now()
  order by coalesce(lease_until, next_look), id
  limit @depth
), due as (
  select e.id
  from poller.events e
  where e.id = any (array(select id from near)) and ` + isDue + `
    and (e.state = 'leased' or not exists (select from poller.events w
      where w.work_item = e.work_item and w.state in ('pending', 'leased', 'held')
        and (w.reason = '', w.upstream_at, w.upstream_order, w.id) < (e.reason = '', e.upstream_at, e.upstream_order, e.id)))
    and not exists (select from poller.events w where w.work_item = e.work_item and w.state = 'leased' and w.id <> e.id)
  order by coalesce(e.lease_until, e.next_look), e.id
  limit @n
  for update of e skip locked
), claimed as (` + lease + `
)
select 0, '', '', '', '', '', '', '', (select count(*) = @depth from near), false, false, now()
union all
select * from claimed`

// farStatement looks at every item that waits.
var farStatement = heads + `,
due as (
  select e.id
  from poller.events e
  where e.id in (select id from heads) and ` + isDue + `
  order by coalesce(e.lease_until, e.next_look), e.id
  limit @n
  for update of e skip locked
)` + lease

// Claim leases up to n events that are due, each the first of its item that waits. An event whose lease has ended is due; one that
// another version re-armed is due only ledger.ArmedTime later.
//
// It looks at those that have been due for longest. Where these are not the first of their items, but wait behind others that are not due, it goes
// through all that wait; that takes the longer the more there are.
func (s *Store) Claim(ctx context.Context, n int) ([]forward.Claim, error) {
	claims, more, err := s.claim(ctx, nearStatement, n)
	if err != nil || !more || len(claims) >= n {
		return claims, err
	}
	rest, _, err := s.claim(ctx, farStatement, n-len(claims))
	if err != nil && len(claims) > 0 {
		return claims, nil // what is left is claimed the next time
	}
	return append(claims, rest...), err
}

// claim makes one statement, again where it gave way to another one.
func (s *Store) claim(ctx context.Context, statement string, n int) (claims []forward.Claim, more bool, err error) {
	for try := 1; ; try++ {
		claims, more, err = s.tryClaim(ctx, statement, n)
		// Two claims found different events of one item: one that came in late, and the one behind it. One of them gave way.
		if !errors.Is(err, fault.AlreadyExists) || try == claimTries {
			return claims, more, err
		}
	}
}

func (s *Store) tryClaim(ctx context.Context, statement string, n int) (claims []forward.Claim, more bool, err error) {
	lease := s.holder + "/" + uuid.NewString()
	rows, err := s.quiet.Query(ctx, statement, pgx.NamedArgs{
		"n": n, "lease": lease, "time": ledger.LeaseTime, "version": s.version().Name, "armed": ledger.ArmedTime, "depth": max(claimDepth, 4*n),
	})
	if err != nil {
		return nil, false, db.Fault(err)
	}
	var gone []forward.Claim
	c, over := forward.Claim{Lease: lease}, false
	_, err = pgx.ForEachRow(rows, []any{&c.ID, &c.DeliveryID, &c.WorkItem, &c.NodeID, &c.Kind, &c.Text, &c.Harness, &c.Traceparent, &over, &c.Undecided, &c.Rearmed, &c.CameAt},
		func() error {
			switch {
			case c.ID == 0:
				more = over
			case over:
				gone = append(gone, c)
			default:
				claims = append(claims, c)
			}
			return nil
		})
	if err != nil {
		return nil, false, db.Fault(err)
	}
	for _, c := range gone {
		// Deleted or edited upstream while somebody had it who never said what came of it: Release ends it. If that fails, its lease runs out.
		_ = s.Release(ctx, c)
	}
	return claims, more, nil
}

// NextDue returns how long it is until some item's first event is due, not below zero; false when none waits.
func (s *Store) NextDue(ctx context.Context) (time.Duration, bool, error) {
	var wait *time.Duration
	err := s.quiet.QueryRow(ctx, heads+`
select min(case when e.state = 'leased' then e.lease_until when e.armed_for in ('', @version) then e.next_look
  else e.next_look + @armed end) - now()
from poller.events e where e.id in (select id from heads)`, pgx.NamedArgs{"version": s.version().Name, "armed": ledger.ArmedTime}).Scan(&wait)
	if err != nil || wait == nil {
		return 0, false, db.Fault(err)
	}
	return max(0, *wait), true, nil
}

func leaseLost(err error) error {
	if !errors.Is(err, pgx.ErrNoRows) {
		return err
	}
	return fault.New(fault.Fenced, fault.ReasonLeaseLost, "the event's lease ended and somebody else has it, or it was ended")
}

func deref(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}

func orNull(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
