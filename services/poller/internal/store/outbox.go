package store

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"muxpost.dev/muxpost/core/ledger"
	"muxpost.dev/muxpost/core/workitem"
	"muxpost.dev/muxpost/db"
	"muxpost.dev/muxpost/services/poller/internal/notify"
	"muxpost.dev/muxpost/services/poller/internal/poll"
)

// post puts into the outbox what is to be told about an event: each once, unless it was skipped before because it was not true then.
func post(ctx context.Context, tx pgx.Tx, event int64, posts []ledger.Post) error {
	for _, p := range posts {
		if _, err := exec(ctx, tx, `
insert into poller.outbox as o (event_id, post) values (@event, @post)
on conflict (event_id, post) do update
set state = 'waiting', refusals = 0, silences = 0, not_before = now(), created_at = now(), ended_at = null
where o.state = 'skipped'`, pgx.NamedArgs{"event": event, "post": string(p)}); err != nil {
			return err
		}
	}
	return nil
}

// The conditions on state, not_before and lease_until stand on the row that is locked, as for a claim of an event.
const claimPostStatement = `
with due as (
  select o.id
  from poller.outbox o
  join poller.events e on e.id = o.event_id
  left join poller.sources s on s.name = e.source
  where o.state = 'waiting' and o.not_before <= now() and (o.lease_until is null or o.lease_until <= now())
    and e.source = any(@sources)
    and greatest(s.not_before, s.notice_not_before, '-infinity') <= now()
  order by o.not_before, o.id
  limit 1
  for update of o skip locked
)
update poller.outbox o
set lease_holder = @lease, lease_until = clock_timestamp() + @time
from due, poller.events e, poller.items i
where o.id = due.id and e.id = o.event_id and i.work_item = e.work_item
returning o.id, o.post, o.refusals, o.silences, o.created_at, e.delivery_id, e.work_item, e.source, e.kind, e.url, e.state, e.tries,
  e.upstream_order, i.place, i.number, clock_timestamp()`

// ClaimPost leases a post of one of the sources that is due, or returns false. Nothing is due while the source wants to be left alone.
func (s *Store) ClaimPost(ctx context.Context, sources []string, lease time.Duration) (notify.Post, bool, error) {
	p := notify.Post{Lease: s.holder + "/" + uuid.NewString()}
	var what, state, place string
	var order int64
	err := s.quiet.QueryRow(ctx, claimPostStatement, pgx.NamedArgs{"sources": sources, "lease": p.Lease, "time": lease}).Scan(
		&p.ID, &what, &p.Posting.Refusals, &p.Posting.Silences, &p.Posting.CreatedAt, &p.DeliveryID, &p.WorkItem, &p.Source, &p.Kind, &p.URL,
		&state, &p.Tries, &order, &place, &p.Number, &p.Now)
	if errors.Is(err, pgx.ErrNoRows) {
		return p, false, nil
	}
	if err != nil {
		return p, false, db.Fault(err)
	}
	p.What = ledger.Post(what)
	if p.Kind == poll.KindComment {
		p.Comment = order
	}
	if p.State, err = parseState(state); err != nil {
		return p, false, err
	}
	ref, err := workitem.Parse(place + "#" + strconv.FormatUint(max(p.Number, 1), 10))
	p.Repository = ref.Owner() + "/" + ref.Repo()
	return p, err == nil, err
}

// EndPost writes down how the work at a post ended. A lease that was lost changes nothing, except that a limit always counts.
func (s *Store) EndPost(ctx context.Context, p notify.Post, end notify.End) error {
	return db.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		args := pgx.NamedArgs{
			"id": p.ID, "lease": p.Lease, "state": string(end.State), "refusals": end.Posting.Refusals, "silences": end.Posting.Silences,
			"wait": end.Wait, "problem": clean(end.Problem), "source": p.Source, "limit": end.Limit,
		}
		if end.Limit > 0 {
			if _, err := exec(ctx, tx, `
update poller.sources set notice_not_before = greatest(notice_not_before, now() + @limit) where name = @source`, args); err != nil {
				return err
			}
		}
		n, err := exec(ctx, tx, `
update poller.outbox
set state = @state, refusals = @refusals, silences = @silences, not_before = clock_timestamp() + @wait, last_error = @problem,
  lease_holder = null, lease_until = null, ended_at = case when @state <> 'waiting' then clock_timestamp() end
where id = @id and lease_holder = @lease and state = 'waiting'`, args)
		if err != nil || n == 0 || end.State == notify.Skipped {
			return err
		}
		if _, err := exec(ctx, tx, `
update poller.sources
set notice_error = @problem, notice_error_at = case when @problem <> '' then coalesce(notice_error_at, clock_timestamp()) end
where name = @source`, args); err != nil {
			return err
		}
		l := logged{workItem: p.WorkItem, deliveryID: p.DeliveryID, source: p.Source, fields: map[string]string{"post": string(p.What)}}
		switch end.State {
		case notify.Done:
			return write(ctx, tx, ledger.NoticePosted, l)
		case notify.Failed:
			l.fields["problem"] = end.Problem
			return write(ctx, tx, ledger.NoticeFailed, l)
		case notify.Waiting, notify.Skipped:
		}
		return nil
	})
}
