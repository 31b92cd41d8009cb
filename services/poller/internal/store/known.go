package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"muxpost.dev/muxpost/core/workitem"
	"muxpost.dev/muxpost/db"
	"muxpost.dev/muxpost/services/poller/internal/poll"
)

// waiting and missingOf are what Known and KnownPulls say of the events of a thread: that of the row w, which names the item and the thread.
const (
	waiting = `exists (select from poller.events e where e.work_item = w.work_item and e.thread = w.thread
      and e.state in ('pending', 'leased', 'held') and e.kind in ('comment', 'review', 'review_comment'))
    or exists (select from poller.events e where e.work_item = w.work_item and e.thread = w.thread
      and e.state = 'gave_up' and e.kind in ('comment', 'review', 'review_comment'))`
	missingOf = `coalesce((select jsonb_agg(distinct jsonb_build_object('Object', object_key, 'Kind', kind, 'ID', upstream_order, 'Since', missing_since))
    from poller.events e where e.work_item = w.work_item and e.thread = w.thread and e.missing_since is not null and e.deleted_at is null), '[]')`
)

// Known returns the items that were last seen in a place and are not closed, and those with one of the node ids. A pull request that is
// an item of its own is none of them: KnownPulls has it.
func (s *Store) Known(ctx context.Context, place string, nodeIDs []string) ([]poll.Known, error) {
	rows, err := s.pool.Query(ctx, `
select w.work_item, coalesce(node_id, ''), place, number, baselined_at is not null, closed_at is not null,
  seen_at, seen_updated_at, seen_comments, comments_since, closed_upstream, shown_at, `+waiting+`, `+missingOf+`
from (select i.*, '' as thread from poller.items i
  where place = @place and closed_at is null and not exists (select from poller.pulls p where p.node_id = i.node_id)
    or node_id = any(@nodes)) w
order by number`, pgx.NamedArgs{"place": place, "nodes": nodeIDs})
	if err != nil {
		return nil, db.Fault(err)
	}
	known, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (poll.Known, error) {
		var k poll.Known
		var seen, updated, since, closed, shown *time.Time
		err := row.Scan(&k.WorkItem, &k.NodeID, &k.Place, &k.Number, &k.Baselined, &k.Closed, &seen, &updated, &k.SeenComments, &since, &closed, &shown,
			&k.Waiting, &k.Missing)
		k.SeenAt, k.SeenUpdatedAt, k.CommentsSince = deref(seen), deref(updated), deref(since)
		k.ClosedUpstream, k.ShownAt = deref(closed), deref(shown)
		return k, err
	})
	return known, db.Fault(err)
}

// Which pull requests are asked for; an index has those of a place for each.
const (
	openPulls   = `place = @place and state = 'open' and work_item is not null or node_id = any(@nodes)`
	pullsOfHead = `place = @place and work_item is not null and (head_sha = @sha or number = any(@numbers))`
)

// KnownPulls returns the pull requests of items that were last seen in a place and are open, and those with one of the node ids.
func (s *Store) KnownPulls(ctx context.Context, place string, nodeIDs []string) ([]poll.KnownPull, error) {
	return s.knownPulls(ctx, openPulls, pgx.NamedArgs{"place": place, "nodes": nodeIDs})
}

// PullsAt returns the pull requests of a place that belong to an item and whose head is a commit, or that have one of the numbers.
func (s *Store) PullsAt(ctx context.Context, place, sha string, numbers []uint64) ([]poll.KnownPull, error) {
	of := make([]int64, len(numbers))
	for i, n := range numbers {
		of[i] = int64(n) //nolint:gosec // A number that does not fit is none of ours.
	}
	return s.knownPulls(ctx, pullsOfHead, pgx.NamedArgs{"place": place, "sha": sha, "numbers": of})
}

func pullsStatement(where string) string {
	return `
select node_id, place, number, coalesce(w.work_item, ''), rule, closes, state = 'open', head_sha, closed_upstream, shown_at,
  seen_at, seen_updated_at, posts_since, unlinked_at, ` + waiting + `, ` + missingOf + `
from (select p.*, p.node_id as thread from poller.pulls p where ` + where + `) w
order by number`
}

func (s *Store) knownPulls(ctx context.Context, where string, args pgx.NamedArgs) ([]poll.KnownPull, error) {
	rows, err := s.pool.Query(ctx, pullsStatement(where), args)
	if err != nil {
		return nil, db.Fault(err)
	}
	known, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (poll.KnownPull, error) {
		var k poll.KnownPull
		var closed, shown, seen, updated, since, unlinked *time.Time
		err := row.Scan(&k.NodeID, &k.Place, &k.Number, &k.WorkItem, &k.Rule, &k.Closes, &k.Open, &k.HeadSHA, &closed, &shown, &seen, &updated, &since,
			&unlinked, &k.Waiting, &k.Missing)
		k.ClosedUpstream, k.ShownAt, k.SeenAt, k.SeenUpdatedAt = deref(closed), deref(shown), deref(seen), deref(updated)
		k.PostsSince, k.UnlinkedAt = deref(since), deref(unlinked)
		return k, err
	})
	return known, db.Fault(err)
}

// Items returns the work items that are known under refs and were seen before, by ref.
func (s *Store) Items(ctx context.Context, refs []string) (map[string]poll.Owner, error) {
	places, numbers, names := []string{}, []int64{}, []string{}
	for _, text := range refs {
		ref, err := workitem.Parse(text)
		if err != nil {
			continue
		}
		places, numbers, names = append(places, poll.PlaceOf(ref)), append(numbers, int64(ref.Number())), append(names, text) //nolint:gosec // It was parsed.
	}
	rows, err := s.pool.Query(ctx, `
select distinct on (r.name) r.name, i.work_item, coalesce(i.baselined_upstream, i.baselined_at)
from unnest(@names::text[], @places::text[], @numbers::bigint[]) as r (name, place, number)
join poller.items i on i.place = r.place and i.number = r.number and i.baselined_at is not null
where not exists (select from poller.pulls p where p.node_id = i.node_id)
order by r.name, i.closed_at desc nulls first`, pgx.NamedArgs{"names": names, "places": places, "numbers": numbers})
	if err != nil {
		return nil, db.Fault(err)
	}
	out := map[string]poll.Owner{}
	var name string
	var owner poll.Owner
	_, err = pgx.ForEachRow(rows, []any{&name, &owner.WorkItem, &owner.Since}, func() error {
		out[name] = owner
		return nil
	})
	return out, db.Fault(err)
}
