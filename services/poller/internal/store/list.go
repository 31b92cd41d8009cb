package store

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"

	"muxpost.dev/muxpost/db"
	"muxpost.dev/muxpost/services/poller/internal/poll"
)

// List returns rows of the ledger, newest first.
func (s *Store) List(ctx context.Context, f poll.Filter) ([]poll.Entry, error) {
	where, args := conditions(f)
	rows, err := s.pool.Query(ctx, listStatement(where), args)
	if err != nil {
		return nil, db.Fault(err)
	}
	entries, err := pgx.CollectRows(rows, scanEntry)
	return entries, db.Fault(err)
}

// Count returns how many events that a filter chooses are in each state for each reason; what no event is in is left out.
func (s *Store) Count(ctx context.Context, f poll.Filter) ([]poll.Count, error) {
	where, args := conditions(f)
	rows, err := s.pool.Query(ctx, countStatement(where), args)
	if err != nil {
		return nil, db.Fault(err)
	}
	counts, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (c poll.Count, err error) {
		var name string
		if err := row.Scan(&name, &c.Reason, &c.Events); err != nil {
			return c, err
		}
		c.State, err = parseState(name)
		return c, err
	})
	return counts, db.Fault(err)
}

func listStatement(where string) string {
	return `select ` + entryColumns + entryTables + where + ` order by id desc limit @limit`
}

func countStatement(where string) string {
	return `select state, reason, count(*) from poller.events e` + where + ` group by state, reason order by state, reason`
}

// conditions puts a filter into a where clause on the events e.
func conditions(f poll.Filter) (where string, args pgx.NamedArgs) {
	args = pgx.NamedArgs{"limit": f.Limit}
	var all []string
	add := func(on bool, condition, name string, value any) {
		if on {
			all = append(all, condition)
			args[name] = value
		}
	}
	add(f.WorkItem != "", "e.work_item = @item", "item", f.WorkItem)
	add(f.DeliveryID != "", "e.delivery_id = @delivery", "delivery", f.DeliveryID)
	if f.State != nil {
		add(true, "e.state = @state", "state", f.State.String())
	}
	add(f.Source != "", "e.source = @source", "source", f.Source)
	add(f.Kind != "", "e.kind = @kind", "kind", f.Kind)
	add(f.Reason != "", "e.reason = @reason", "reason", f.Reason)
	add(!f.Since.IsZero(), "e.created_at >= @since", "since", f.Since)
	add(f.Before > 0, "e.id < @before", "before", f.Before)
	if len(all) > 0 {
		where = " where " + strings.Join(all, " and ")
	}
	return where, args
}
