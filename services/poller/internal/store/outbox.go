package store

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/ledger"
	"muxpost.dev/muxpost/core/workitem"
	"muxpost.dev/muxpost/db"
	"muxpost.dev/muxpost/services/poller/internal/forward"
	"muxpost.dev/muxpost/services/poller/internal/notify"
	"muxpost.dev/muxpost/services/poller/internal/poll"
)

// post puts into the outbox what is to be told about an event: each once, unless it was skipped before because it was not true then. A reaction
// goes to what became a part of its text as well. What the source does not want is left out.
func (s *Store) post(ctx context.Context, tx pgx.Tx, source string, event int64, posts []ledger.Post, words notify.Words) error {
	said, err := json.Marshal(words)
	if err != nil {
		return fault.Wrap(fault.Internal, "", "the words of a post cannot be written", err)
	}
	for _, p := range posts {
		if !p.Wanted(s.notices[source], s.reactions[source]) {
			continue
		}
		_, reaction := p.Reaction()
		if _, err := exec(ctx, tx, `
insert into poller.outbox as o (event_id, post, words)
select e.id, @post::text, @words::jsonb from poller.events e join poller.events h on h.id = @event
where (e.id = h.id or @reaction::boolean and e.superseded_by = h.delivery_id and e.reason = @coalesced) and (not @reaction::boolean or e.kind = any(@reactable))
order by e.id
on conflict (event_id, post) do update
set state = 'waiting', refusals = 0, silences = 0, not_before = now(), created_at = now(), ended_at = null
where o.state = 'skipped'`, pgx.NamedArgs{
			"event": event, "post": string(p), "words": string(said), "reaction": reaction, "coalesced": ledger.ReasonCoalesced, "reactable": reactable(),
		}); err != nil {
			return err
		}
	}
	return nil
}

// reactable are the kinds of events that can have a reaction upstream.
func reactable() []string {
	return slices.DeleteFunc([]string{"opened", "comment", "review", "review_comment", "state", "check", "labelled", "message"},
		func(kind string) bool { return !ledger.Reactable(kind) })
}

// postNew puts into the outbox what is to be done about the events that this transaction has written: a reaction on what will be delivered,
// and the orders to muxpost itself. An order that came about by an edit is not carried out: its comment may have been one before.
func (s *Store) postNew(ctx context.Context, tx pgx.Tx, source, workItem string) error {
	args := pgx.NamedArgs{"item": workItem, "command": ledger.ReasonCommand, "order": string(ledger.PostCommand), "eyes": string(ledger.ReactionEyes),
		"reactable": reactable(), "late": "; it is not carried out, because it came about by an edit: write a new comment"}
	if _, err := exec(ctx, tx, `
with orders as (
  select e.id, exists (select from poller.events o where o.object_key = e.object_key and e.object_key <> '' and o.id <> e.id) as edited
  from poller.events e
  where e.work_item = @item and e.created_at = now() and e.state = 'settled' and e.reason = @command and e.command <> ''
), late as (
  update poller.events e set detail = detail || @late::text from orders o where o.id = e.id and o.edited
)
insert into poller.outbox (event_id, post) select id, @order::text from orders where not edited order by id
on conflict do nothing`, args); err != nil || !s.reactions[source] {
		return err
	}
	_, err := exec(ctx, tx, `
insert into poller.outbox (event_id, post)
select id, @eyes::text from poller.events
where work_item = @item and created_at = now() and state = 'pending' and kind = any(@reactable)
order by id
on conflict do nothing`, args)
	return err
}

// postStarted has told on the ticket where the first agent of an item was started: once, whatever happens to the item later.
func (s *Store) postStarted(ctx context.Context, tx pgx.Tx, e leased, o forward.Outcome) error {
	if !o.Started || !s.notices[e.source] {
		return nil
	}
	n, err := exec(ctx, tx, `update poller.items set start_told_at = now() where work_item = @item and start_told_at is null`,
		pgx.NamedArgs{"item": e.WorkItem})
	if err != nil || n == 0 {
		return err
	}
	return s.post(ctx, tx, e.source, e.ID, []ledger.Post{ledger.NoticeStarted}, notify.Words{Host: clean(o.Host), Harness: clean(o.Harness)})
}

// The conditions on state, not_before and lease_until stand on the row that is locked, as for a claim of an event. What became a part of an
// event's text stands as that event does. An order writes nothing upstream, so that no source holds it up.
const claimPostStatement = `
with due as (
  select o.id
  from poller.outbox o
  join poller.events e on e.id = o.event_id
  left join poller.sources s on s.name = e.source
  where o.state = 'waiting' and o.not_before <= now() and (o.lease_until is null or o.lease_until <= now())
    and (o.post = 'command'
      or e.source = any(@sources) and greatest(s.not_before, s.notice_not_before, '-infinity') <= now()
        and (e.source = any(@noticing) and (o.post = 'reaction_confused' or o.post not like 'reaction%')
          or e.source = any(@reacting) and o.post like 'reaction%'))
  order by o.not_before, o.id
  limit 1
  for update of o skip locked
)
update poller.outbox o
set lease_holder = @lease, lease_until = clock_timestamp() + @time
from due
join poller.outbox d on d.id = due.id
join poller.events e on e.id = d.event_id
join poller.items i on i.work_item = e.work_item
left join poller.events h on e.reason = 'coalesced' and h.delivery_id = e.superseded_by
where o.id = due.id
returning o.id, o.post, o.refusals, o.silences, o.created_at, e.delivery_id, e.work_item, e.source, e.kind, e.url, coalesce(h.state, e.state), e.tries,
  e.upstream_order, e.command, e.author, o.words, i.place, i.number, clock_timestamp()`

// ClaimPost leases a post of one of the sources that is due, or an order of any, or returns false. Nothing is due while the source wants to be
// left alone, but for orders.
func (s *Store) ClaimPost(ctx context.Context, sources []string, lease time.Duration) (notify.Post, bool, error) {
	p := notify.Post{Lease: s.holder + "/" + uuid.NewString()}
	var what, state, place string
	var order int64
	err := s.quiet.QueryRow(ctx, claimPostStatement, pgx.NamedArgs{"sources": sources, "lease": p.Lease, "time": lease,
		"noticing": slices.Collect(maps.Keys(s.notices)), "reacting": slices.Collect(maps.Keys(s.reactions))}).Scan(
		&p.ID, &what, &p.Posting.Refusals, &p.Posting.Silences, &p.Posting.CreatedAt, &p.DeliveryID, &p.WorkItem, &p.Source, &p.Kind, &p.URL,
		&state, &p.Tries, &order, &p.Command, &p.Author, &p.Words, &place, &p.Number, &p.Now)
	if errors.Is(err, pgx.ErrNoRows) {
		return p, false, nil
	}
	if err != nil {
		return p, false, db.Fault(err)
	}
	p.What = ledger.Post(what)
	if p.What == ledger.PostCommand {
		p.Posting.Time = ledger.CommandTime
	}
	if p.Kind != poll.KindOpened && p.Kind != poll.KindMessage && p.Kind != poll.KindLabelled {
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
		if p.What == ledger.PostCommand {
			return s.postAnswer(ctx, tx, p, end)
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
			if p.What == ledger.ReactionEyes || p.What == ledger.ReactionHooray {
				return nil // the ledger says as much
			}
			return write(ctx, tx, ledger.NoticePosted, l)
		case notify.Failed:
			l.fields["problem"] = end.Problem
			return write(ctx, tx, ledger.NoticeFailed, l)
		case notify.Waiting, notify.Skipped:
		}
		return nil
	})
}

// postAnswer has an order answered that has ended. The order's event says what came of it, too, for who does not see the ticket.
func (s *Store) postAnswer(ctx context.Context, tx pgx.Tx, p notify.Post, end notify.End) error {
	if end.State == notify.Waiting || end.Answer == (notify.Words{}) {
		return nil
	}
	end.Answer.Text = clean(end.Answer.Text)
	var event int64
	if err := tx.QueryRow(ctx, `
update poller.events set detail = detail || '; ' || @said::text where id = (select event_id from poller.outbox where id = @id) returning id`,
		pgx.NamedArgs{"id": p.ID, "said": poll.Said(end.Answer.Text)}).Scan(&event); err != nil {
		return err
	}
	return s.post(ctx, tx, p.Source, event, []ledger.Post{ledger.PostAnswer}, end.Answer)
}
