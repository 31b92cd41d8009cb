package store

import (
	"context"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"muxpost.dev/muxpost/core/ledger"
	"muxpost.dev/muxpost/db"
	"muxpost.dev/muxpost/services/poller/internal/poll"
)

// upsertPull writes the row of a pull request, and how it came to its item where it does now. It returns whether there is nothing more to
// write: it belongs to no item, or to another one than who read it thought.
func upsertPull(ctx context.Context, tx pgx.Tx, r poll.Record) (over bool, err error) {
	i := r.Item
	state := "open"
	switch {
	case i.Pull != nil && i.Pull.Merged:
		state = "merged"
	case !i.Open:
		state = "closed"
	}
	args := pgx.NamedArgs{
		"node": clean(i.NodeID), "source": r.Source, "place": r.Place, "number": i.Ref.Number(), "title": clean(i.Title), "url": clean(i.URL),
		"item": r.WorkItem, "rule": string(r.Pull.Rule), "detail": clean(r.Pull.Detail), "closes": r.Pull.Closes, "state": state,
		"closedat": orNull(i.ClosedAt), "updated": orNull(i.UpdatedAt), "seen": orNull(r.SeenAt), "since": orNull(r.CommentsSince),
		"sha": "", "aside": r.Aside,
	}
	if i.Pull != nil {
		args["sha"] = clean(i.Pull.HeadSHA)
	}
	if _, err := exec(ctx, tx, `
insert into poller.pulls (node_id, source, place, number) values (@node, @source, @place, @number) on conflict do nothing`, args); err != nil {
		return false, err
	}
	var owner, rule string
	if err := tx.QueryRow(ctx, `select coalesce(work_item, ''), rule from poller.pulls where node_id = @node for update`, args).
		Scan(&owner, &rule); err != nil {
		return false, err
	}
	if _, err := exec(ctx, tx, `
update poller.pulls
set source = @source, place = @place, number = @number, title = coalesce(nullif(@title, ''), title), url = coalesce(nullif(@url, ''), url),
  closes = coalesce(@closes::text[], closes),
  head_sha = case when @aside or @updated < shown_at or @sha = '' then head_sha else @sha end,
  state = case when @aside or @updated < shown_at then state else @state end,
  closed_upstream = case when @aside or @updated < shown_at then closed_upstream else coalesce(@closedat, closed_upstream) end,
  shown_at = case when @aside then shown_at else greatest(shown_at, @updated) end
where node_id = @node`, args); err != nil {
		return false, err
	}
	switch {
	case r.WorkItem == "":
		_, err := exec(ctx, tx, `
update poller.pulls set unlinked_at = greatest(unlinked_at, @seen), seen_updated_at = @updated where node_id = @node and work_item is null`, args)
		return true, err
	case owner == "" && r.Pull.Rule != "" && rule != string(poll.RuleByHand):
		if err := link(ctx, tx, args); err != nil {
			return false, err
		}
	case owner != r.WorkItem:
		return true, nil
	}
	if r.Pull.Rule == poll.RuleItself || !r.Partial {
		if err := pullRead(ctx, tx, args); err != nil {
			return false, err
		}
	}
	return false, stale(ctx, tx, args)
}

// pullRead keeps what a pull request looked like when its thread was read, and that it is closed where it is an item of its own.
func pullRead(ctx context.Context, tx pgx.Tx, args pgx.NamedArgs) error {
	if _, err := exec(ctx, tx, `
update poller.pulls set seen_at = @seen, seen_updated_at = @updated, posts_since = @since where node_id = @node`, args); err != nil {
		return err
	}
	_, err := exec(ctx, tx, `
update poller.items i set closed_at = case when p.state <> 'open' then coalesce(i.closed_at, now()) end
from poller.pulls p where p.node_id = @node and i.node_id = p.node_id and i.work_item = p.work_item`, args)
	return err
}

// link writes down to which item a pull request belongs now: args has node, item (empty for none), rule, detail, and optionally who.
func link(ctx context.Context, tx pgx.Tx, args pgx.NamedArgs) error {
	if args["who"] == nil {
		args["who"] = ""
	}
	if _, err := exec(ctx, tx, `update poller.pulls set work_item = nullif(@item, ''), rule = @rule where node_id = @node`, args); err != nil {
		return err
	}
	if _, err := exec(ctx, tx, `
insert into poller.links (pull_node_id, place, number, work_item, rule, detail, who)
select node_id, place, number, work_item, @rule, @detail, @who from poller.pulls where node_id = @node`, args); err != nil {
		return err
	}
	var pull, source string
	if err := tx.QueryRow(ctx, `select place || '#' || number, source from poller.pulls where node_id = @node`, args).Scan(&pull, &source); err != nil {
		return err
	}
	item, _ := args["item"].(string)
	rule, _ := args["rule"].(string)
	detail, _ := args["detail"].(string)
	return write(ctx, tx, ledger.PullLinked, logged{workItem: item, source: source,
		fields: map[string]string{"pull": pull, "rule": rule, "detail": detail}})
}

// stale marks the results of CI at commits that are not the head any more and cancels those that have not ended, and lets those back in
// whose commit is the head again. One that is being delivered is judged by its outcome.
func stale(ctx context.Context, tx pgx.Tx, args pgx.NamedArgs) error {
	rows, err := tx.Query(ctx, `
select e.id, e.commit_sha = p.head_sha, p.head_sha, e.state, e.tries, e.silences, e.reason, e.work_item, e.delivery_id,
  e.source, e.trace_id
from poller.events e join poller.pulls p on p.node_id = e.thread
where e.thread = @node and e.kind = 'check' and (e.commit_sha = p.head_sha) = (e.stale_at is not null)
for update of e`, args)
	if err != nil {
		return err
	}
	type result struct {
		id          int64
		current     bool
		head, state string
		progress    ledger.Progress
		logged      logged
	}
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (r result, err error) {
		p, l := &r.progress, &r.logged
		err = row.Scan(&r.id, &r.current, &r.head, &r.state, &p.Tries, &p.Silences, &p.Reason, &l.workItem, &l.deliveryID, &l.source,
			&l.traceID)
		return r, err
	})
	if err != nil {
		return err
	}
	for _, r := range found {
		if r.progress.State, err = parseState(r.state); err != nil {
			return err
		}
		if r.current {
			if err := current(ctx, tx, r.id, r.logged.workItem); err != nil {
				return err
			}
			continue
		}
		if _, err := exec(ctx, tx, `update poller.events set stale_at = now() where id = @id`, pgx.NamedArgs{"id": r.id}); err != nil {
			return err
		}
		after := poll.Supersede(r.progress)
		if after.State != ledger.Cancelled || r.progress.State == ledger.Cancelled {
			continue
		}
		if err := cancel(ctx, tx, r.id, after, poll.StaleDetail(r.head)); err != nil {
			return err
		}
		r.logged.fields = map[string]string{"kind": poll.KindCheck, "reason": after.Reason}
		if err := write(ctx, tx, ledger.CommentCancelled, r.logged); err != nil {
			return err
		}
	}
	return nil
}

// current takes back that a result is stale. One that was cancelled for that alone is an event again, under its own id, where an agent knows
// of its item.
func current(ctx context.Context, tx pgx.Tx, id int64, item string) error {
	_, err := exec(ctx, tx, `
update poller.events
set stale_at = null,
  state = case when again then 'pending' else state end, reason = case when again then '' else reason end,
  detail = case when again then '' else detail end, next_look = case when again then now() else next_look end,
  updated_at = case when again then clock_timestamp() else updated_at end
from (select id as of, state = 'cancelled' and reason = @superseded and `+told+` as again from poller.events where id = @id) s
where id = s.of`, pgx.NamedArgs{
		"id": id, "superseded": poll.ReasonSuperseded, "item": item,
		"unconfirmed": ledger.ReasonUnconfirmed, "done": poll.ReasonDone, "again": poll.ReasonTypedAgain,
	})
	return err
}

// Link writes down to which item a pull request belongs by an operator's word, and returns the link, and whether it is new. What was
// written there by now is no event of the item, and what waits for another item's agent goes there still.
func (s *Store) Link(ctx context.Context, r poll.Record, who string) (linked poll.Linked, changed bool, err error) {
	// On the clock of the source: that of the database may be another one.
	args := pgx.NamedArgs{
		"node": clean(r.Item.NodeID), "source": r.Source, "place": r.Place, "number": r.Item.Ref.Number(), "title": clean(r.Item.Title),
		"url": clean(r.Item.URL), "item": r.WorkItem, "rule": string(r.Pull.Rule), "detail": clean(r.Pull.Detail), "who": clean(who),
		"sha": clean(r.Item.Pull.HeadSHA), "shown": orNull(r.Item.UpdatedAt),
	}
	err = db.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := exec(ctx, tx, `
insert into poller.pulls (node_id, source, place, number, title, url, head_sha) values (@node, @source, @place, @number, @title, @url, @sha)
on conflict do nothing`, args); err != nil {
			return err
		}
		var owner, rule string
		if err := tx.QueryRow(ctx, `select coalesce(work_item, ''), rule from poller.pulls where node_id = @node for update`, args).
			Scan(&owner, &rule); err != nil {
			return err
		}
		if changed = owner != r.WorkItem || rule != string(r.Pull.Rule); !changed {
			return nil
		}
		if owner != r.WorkItem {
			if _, err := exec(ctx, tx, `
update poller.pulls set unlinked_at = greatest(unlinked_at, @shown, case when @shown::timestamptz is null then now() end), seen_at = null, posts_since = null where node_id = @node`, args); err != nil {
				return err
			}
		}
		return link(ctx, tx, args)
	})
	if err != nil {
		return poll.Linked{}, false, err
	}
	links, err := s.Links(ctx, r.Item.Ref.String(), 1)
	if err != nil || len(links) == 0 {
		return poll.Linked{}, changed, err
	}
	return links[0], changed, nil
}

// Links returns how pull requests came to their items, the latest first: of a pull request, of a work item, or all for "".
func (s *Store) Links(ctx context.Context, of string, limit int) ([]poll.Linked, error) {
	statement, args := linksStatement(of, limit)
	rows, err := s.pool.Query(ctx, statement, args)
	if err != nil {
		return nil, db.Fault(err)
	}
	links, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (l poll.Linked, err error) {
		err = row.Scan(&l.Pull, &l.WorkItem, &l.Rule, &l.Detail, &l.Who, &l.At, &l.Current)
		return l, err
	})
	return links, db.Fault(err)
}

// linksStatement asks for the name both as that of an item and as that of a pull request, each by its index.
func linksStatement(of string, limit int) (string, pgx.NamedArgs) {
	args, where := pgx.NamedArgs{"of": of, "limit": limit}, ""
	if of != "" {
		where = "where work_item = @of"
	}
	if place, digits, ok := strings.Cut(of, "#"); ok {
		if number, err := strconv.ParseInt(digits, 10, 64); err == nil {
			where += " or place = @place and number = @number"
			args["place"], args["number"] = place, number
		}
	}
	return `
select place || '#' || number, coalesce(work_item, ''), rule, detail, who, created_at,
  id = (select max(n.id) from poller.links n where n.pull_node_id = l.pull_node_id)
from poller.links l
` + where + `
order by id desc limit @limit`, args
}
