package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"muxpost.dev/muxpost/core/ledger"
	"muxpost.dev/muxpost/services/poller/internal/poll"
)

// judge ends an event as it comes in where what the ledger has of its item says so: it tells the end of an item of which nobody was told
// anything, or its CI, or it is one of too many.
func (s *Store) judge(ctx context.Context, tx pgx.Tx, e poll.Event) (poll.Event, error) {
	switch {
	case e.State != ledger.Pending:
		return e, nil
	case e.Kind == poll.KindState, e.Kind == poll.KindCheck:
		return untold(ctx, tx, e)
	case s.loop.Posts > 0 && poll.IsPost(e.Kind):
		return s.tooMany(ctx, tx, e)
	}
	return e, nil
}

// told is true of an item (@item) of which an agent was told something that somebody wrote, or is to be. Of an item whose events are
// forgotten the item itself says that one was told.
const told = `(exists (select from poller.events where work_item = @item
  and (kind not in ('state', 'check') and state not in ('settled', 'cancelled') or reason in (@unconfirmed, @done, @again)))
  or exists (select from poller.items where work_item = @item and context_at is not null))`

// untold settles the end of an item of which no agent was told anything, nor is to be, and what CI says of it: a stranger can have CI run at his
// own pull request, and nobody is started by that.
func untold(ctx context.Context, tx pgx.Tx, e poll.Event) (poll.Event, error) {
	var was bool
	err := tx.QueryRow(ctx, `select `+told, pgx.NamedArgs{
		"item": e.WorkItem, "unconfirmed": ledger.ReasonUnconfirmed, "done": poll.ReasonDone, "again": poll.ReasonTypedAgain,
	}).Scan(&was)
	if err != nil || was {
		return e, err
	}
	return poll.Settle(e, poll.ReasonUntold), nil
}

// tooMany drops a post that is one too many: programs that answer each other would go on for ever. The first one that is dropped is told.
// Posts of one second count as one: a review brings many at once.
func (s *Store) tooMany(ctx context.Context, tx pgx.Tx, e poll.Event) (poll.Event, error) {
	var posts, dropped int
	err := tx.QueryRow(ctx, `
select count(distinct upstream_at), count(*) filter (where reason = @loop)
from poller.events
where work_item = @item and kind = any(@kinds) and upstream_at <= @at and upstream_at > @at::timestamptz - @within::interval
  and (state <> 'settled' or reason in (@unconfirmed, @done, @again)) and object_key <> @object`, pgx.NamedArgs{
		"item": e.WorkItem, "kinds": poll.PostKinds(), "at": e.UpstreamAt, "within": s.loop.Within, "loop": poll.ReasonLoop,
		"unconfirmed": ledger.ReasonUnconfirmed, "done": poll.ReasonDone, "again": poll.ReasonTypedAgain, "object": poll.ObjectOf(e.Key),
	}).Scan(&posts, &dropped)
	if err != nil || posts < s.loop.Posts {
		return e, err
	}
	e.State, e.Reason = ledger.Dropped, poll.ReasonLoop
	e.Detail = fmt.Sprintf("more than %d posts about this item within %v: that looks like programs that answer each other; "+
		"it can be retried (muxpost retry) once that is looked into", s.loop.Posts, s.loop.Within)
	if dropped > 0 {
		return e, nil
	}
	return e, write(ctx, tx, ledger.BreakerTripped, logged{workItem: e.WorkItem, deliveryID: e.DeliveryID, source: e.Source,
		fields: map[string]string{"author": e.Author, "posts": fmt.Sprint(posts), "within": s.loop.Within.String()}})
}
