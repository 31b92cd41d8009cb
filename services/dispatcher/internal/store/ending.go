package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"muxpost.dev/muxpost/services/dispatcher/internal/deliver"
)

const (
	endingColumns = "work_item, closes, stamp, host, who, reason, grace, detail, since"

	keepEnding = `, ordered_end as (
	insert into dispatcher.endings as old (work_item, closes, stamp, host, who, reason, grace, detail)
	select work_item, @e_closes, @e_stamp, @e_host, @e_who, @e_reason, @e_grace, @e_detail from ours
	on conflict (work_item) do update set closes = excluded.closes, stamp = excluded.stamp, host = excluded.host, who = excluded.who,
		reason = excluded.reason, grace = excluded.grace, detail = excluded.detail
)`
	endingOver = `, over as (
	delete from dispatcher.endings e using ours where e.work_item = ours.work_item
)`
)

// endingSQL is what a change of an order adds to a statement, with its parameters in args.
func endingSQL(args pgx.NamedArgs, c deliver.Change) string {
	switch e := c.Ending; {
	case e != nil:
		args["e_closes"], args["e_stamp"], args["e_host"], args["e_who"] = e.Closes, e.Stamp, e.Host, e.Who
		args["e_reason"], args["e_grace"], args["e_detail"] = e.Reason, e.Grace, e.Detail
		return keepEnding
	case c.EndingOver:
		return endingOver
	}
	return ""
}

// Endings returns the orders that wait, by work item.
func (s *Store) Endings(ctx context.Context, q deliver.EndingQuery) ([]deliver.Ending, error) {
	f := newFilter(q.Limit)
	f.and(q.WorkItem != "", "work_item = @work_item", "work_item", q.WorkItem)
	f.and(q.After != "", "work_item > @after", "after", q.After)
	return many(s, ctx, fmt.Sprintf("select %s from dispatcher.endings where %s order by work_item limit @limit", endingColumns, f.where),
		scanEnding, f.args)
}

func scanEnding(row pgx.CollectableRow) (e deliver.Ending, err error) {
	err = row.Scan(&e.WorkItem, &e.Closes, &e.Stamp, &e.Host, &e.Who, &e.Reason, &e.Grace, &e.Detail, &e.Since)
	return e, err
}
