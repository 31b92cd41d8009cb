package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"muxpost.dev/muxpost/db"
	"muxpost.dev/muxpost/services/dispatcher/internal/deliver"
)

// Of what is known already nothing is written: several dispatchers follow one host, and each of them is told the same.
const keepActivitiesSQL = `
with told as (
	select * from unnest(@work_items::text[], @stamps::text[], @activities::text[], @details::text[], @since::timestamptz[], @seen_at::timestamptz[])
		as t(work_item, stamp, activity, detail, since, seen_at)
), gone as (
	delete from dispatcher.activities a where a.host = @host and (a.work_item in (select work_item from told where activity = '')
		or @whole and a.work_item not in (select work_item from told))
)
insert into dispatcher.activities as a (work_item, host, stamp, activity, detail, since, seen_at)
select work_item, @host, stamp, activity, detail, since, seen_at from told where activity <> '' order by work_item
on conflict (work_item, host) do update set stamp = excluded.stamp, activity = excluded.activity, detail = excluded.detail,
	since = excluded.since, seen_at = excluded.seen_at, updated_at = now()
where (a.stamp, a.activity, a.detail, a.since, a.seen_at) is distinct from
	(excluded.stamp, excluded.activity, excluded.detail, excluded.since, excluded.seen_at)`

// KeepActivities stores what the agents of a host do, each work item once; an empty activity forgets what it did. With whole that is all of the
// host's, and what else is known of it is forgotten.
func (s *Store) KeepActivities(ctx context.Context, host string, told []deliver.Told, whole bool) error {
	var items, stamps, activities, details []string
	var since, seenAt []*time.Time
	for _, t := range told {
		items, stamps = append(items, t.WorkItem), append(stamps, t.Stamp)
		activities, details = append(activities, string(t.Activity)), append(details, t.Detail)
		since, seenAt = append(since, orNull(t.Since)), append(seenAt, orNull(t.SeenAt))
	}
	_, err := s.pool.Exec(ctx, keepActivitiesSQL, pgx.NamedArgs{"host": host, "whole": whole, "work_items": noNil(items), "stamps": noNil(stamps),
		"activities": noNil(activities), "details": noNil(details), "since": since, "seen_at": seenAt})
	return db.Fault(err)
}

func orNull(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func orZero(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}

// activityColumns are what the agent of a session's recorded incarnation does.
const (
	activityColumns = `, coalesce(activity, ''), coalesce(detail, ''), since, seen_at, told_at`
	joinActivities  = ` left join (select work_item as of_item, host as of_host, stamp as of_stamp, activity, detail, since, seen_at,
		updated_at as told_at from dispatcher.activities) a on of_item = work_item and of_host = host and of_stamp = stamp`
)

func scanShown(row pgx.CollectableRow) (s deliver.Shown, err error) {
	var since, seenAt, toldAt *time.Time
	s.Session, err = scanSession(row, &s.Doing.Activity, &s.Doing.Detail, &since, &seenAt, &toldAt)
	s.Doing.Since, s.Doing.SeenAt, s.ToldAt = orZero(since), orZero(seenAt), orZero(toldAt)
	return s, err
}
