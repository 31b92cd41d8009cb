package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"muxpost.dev/muxpost/core/dispatch"
	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/db"
	"muxpost.dev/muxpost/services/dispatcher/internal/deliver"
)

// Delivery returns one delivery; one that is not known is fault.NotFound, ReasonDeliveryNotFound.
func (s *Store) Delivery(ctx context.Context, id string) (deliver.Delivery, error) {
	d, err := one(s, ctx, lookSQL, scanDelivery, pgx.NamedArgs{"delivery_id": id})
	if errors.Is(err, fault.NotFound) {
		return deliver.Delivery{}, errNoDelivery(id)
	}
	return d, err
}

func errNoDelivery(id string) error {
	return fault.Newf(fault.NotFound, fault.ReasonDeliveryNotFound, "no delivery %s was ever asked for", id).
		WithRemedy("ListDeliveries shows those that were")
}

// filter collects the conditions of a list.
type filter struct {
	where string
	args  pgx.NamedArgs
}

func newFilter(limit int) filter { return filter{where: "true", args: pgx.NamedArgs{"limit": limit}} }

// and adds a condition whose one parameter has a name.
func (f *filter) and(wanted bool, condition, name string, value any) {
	if wanted {
		f.where += " and " + condition
		f.args[name] = value
	}
}

// Deliveries returns deliveries, newest first.
func (s *Store) Deliveries(ctx context.Context, q deliver.DeliveryQuery) ([]deliver.Delivery, error) {
	f := newFilter(q.Limit)
	f.and(q.WorkItem != "", "work_item = @work_item", "work_item", q.WorkItem)
	if q.Outcome != nil {
		// That it is not delivered is said once more, in the words of the index that has the others.
		f.and(*q.Outcome != dispatch.Delivered, "outcome <> 'delivered' and outcome = @outcome", "outcome", q.Outcome.String())
		f.and(*q.Outcome == dispatch.Delivered, "outcome = @outcome", "outcome", q.Outcome.String())
	}
	f.and(q.Reason != "", "reason = @reason", "reason", string(q.Reason))
	f.and(q.Host != "", "host = @host", "host", q.Host)
	f.and(q.BeforeID != "", "(created_at, delivery_id) < (@time, @id)", "id", q.BeforeID)
	f.args["time"] = q.BeforeTime
	return many(s, ctx, fmt.Sprintf("select %s from dispatcher.deliveries where %s order by created_at desc, delivery_id desc limit @limit",
		deliveryColumns, f.where), scanDelivery, f.args)
}

// Sessions returns sessions, by work item.
func (s *Store) Sessions(ctx context.Context, q deliver.SessionQuery) ([]deliver.Session, error) {
	return sessionsOf(ctx, s, q, sessionColumns, "", oneSession)
}

// sessionsOf runs the list of sessions, with what else is joined to them.
func sessionsOf[T any](ctx context.Context, s *Store, q deliver.SessionQuery, columns, join string, scan pgx.RowToFunc[T]) ([]T, error) {
	f := newFilter(q.Limit)
	f.and(q.WorkItem != "", "work_item = @work_item", "work_item", q.WorkItem)
	f.and(q.Host != "", "host = @host", "host", q.Host)
	f.and(q.After != "", "work_item > @after", "after", q.After)
	if !q.Closed {
		f.where += " and not closed"
	}
	return many(s, ctx, fmt.Sprintf("select %s from dispatcher.sessions%s where %s order by work_item limit @limit", columns, join, f.where), scan, f.args)
}

// Idle returns sessions after a work item, by work item, whose agents have been idle for longer than a time and for which nothing waits.
func (s *Store) Idle(ctx context.Context, longer time.Duration, after string, limit int) ([]deliver.Session, error) {
	return many(s, ctx, "select "+sessionColumns+" from dispatcher.sessions"+joinActivities+` where not closed and host <> '' and work_item > @after
		and activity = @idle and since < clock_timestamp() - @longer::interval
		and not exists (select from dispatcher.deliveries d where d.work_item = sessions.work_item and d.outcome not in ('delivered', 'dropped'))
		order by work_item limit @limit`, oneSession,
		pgx.NamedArgs{"after": after, "idle": string(deliver.Idle), "longer": longer, "limit": limit})
}

// Shown returns sessions with what their agents do, by work item.
func (s *Store) Shown(ctx context.Context, q deliver.SessionQuery) ([]deliver.Shown, error) {
	return sessionsOf(ctx, s, q, sessionColumns+activityColumns, joinActivities, scanShown)
}

// One statement sees one state of the database: were what is forgotten read before or after the events, some could go in between, and their
// reader would not be told. An event's columns are null in the one row of a page without events.
const eventsSQL = `
with known as (
	select through, greatest(through, (select max(seq) from dispatcher.events)) as last from dispatcher.events_forgotten
)
select known.last, known.through, e.* from known left join (
	select seq, type, time, work_item, delivery_id, fields, trace_id from dispatcher.events where %s order by seq %s limit @limit
) e on true order by e.seq`

// Events returns a page of events in order of their sequence. A reader that asks again after the last one it has seen, or after the page's
// Last when that had fewer than Limit, never misses one: the table's writers take turns.
func (s *Store) Events(ctx context.Context, q deliver.EventQuery) (page deliver.EventPage, err error) {
	f := newFilter(q.Limit)
	f.and(true, "seq > @after", "after", q.After)
	f.and(q.WorkItem != "", "work_item = @work_item", "work_item", q.WorkItem)
	f.and(q.DeliveryID != "", "delivery_id = @delivery_id", "delivery_id", q.DeliveryID)
	types := make([]string, len(q.Types)) // as such: behind a pooler the database is not asked for a parameter's type
	for i, t := range q.Types {
		types[i] = string(t)
	}
	f.and(len(types) > 0, "type = any(@types)", "types", types)
	order := "asc"
	if q.Latest {
		order = "desc"
	}
	rows, err := s.pool.Query(ctx, fmt.Sprintf(eventsSQL, f.where, order), f.args)
	if err != nil {
		return page, db.Fault(err)
	}
	var seq *int64
	var at *time.Time
	var kind, item, delivery, trace *string
	var fields map[string]string
	_, err = pgx.ForEachRow(rows, []any{&page.Last, &page.Forgotten, &seq, &kind, &at, &item, &delivery, &fields, &trace}, func() error {
		if seq != nil {
			page.Events = append(page.Events, deliver.Event{Sequence: *seq, Type: dispatch.EventType(*kind), Time: *at, WorkItem: *item,
				DeliveryID: *delivery, Fields: fields, TraceID: *trace})
			fields = nil // the next row's are another map
		}
		return nil
	})
	return page, db.Fault(err)
}
