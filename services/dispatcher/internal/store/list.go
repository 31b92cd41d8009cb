package store

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"muxpost.dev/muxpost/core/dispatch"
	"muxpost.dev/muxpost/core/fault"
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
	f.and(q.BeforeID != "", "(created_at, delivery_id) < (@time, @id)", "id", q.BeforeID)
	f.args["time"] = q.BeforeTime
	return many(s, ctx, fmt.Sprintf("select %s from dispatcher.deliveries where %s order by created_at desc, delivery_id desc limit @limit",
		deliveryColumns, f.where), scanDelivery, f.args)
}

// Sessions returns sessions, by work item.
func (s *Store) Sessions(ctx context.Context, q deliver.SessionQuery) ([]deliver.Session, error) {
	f := newFilter(q.Limit)
	f.and(q.WorkItem != "", "work_item = @work_item", "work_item", q.WorkItem)
	f.and(q.Host != "", "host = @host", "host", q.Host)
	f.and(q.After != "", "work_item > @after", "after", q.After)
	return many(s, ctx, fmt.Sprintf("select %s from dispatcher.sessions where %s order by work_item limit @limit", sessionColumns, f.where),
		scanSession, f.args)
}

// Events returns events in order of their sequence. A reader that asks again after the last one it has seen never misses one: the
// table's writers take turns.
func (s *Store) Events(ctx context.Context, q deliver.EventQuery) ([]deliver.Event, error) {
	f := newFilter(q.Limit)
	f.and(true, "seq > @after", "after", q.After)
	f.and(q.WorkItem != "", "work_item = @work_item", "work_item", q.WorkItem)
	f.and(q.DeliveryID != "", "delivery_id = @delivery_id", "delivery_id", q.DeliveryID)
	order := "asc"
	if q.Latest {
		order = "desc"
	}
	events, err := many(s, ctx, fmt.Sprintf(`select seq, type, time, work_item, delivery_id, fields, trace_id from dispatcher.events
		where %s order by seq %s limit @limit`, f.where, order), scanEvent, f.args)
	if q.Latest {
		slices.Reverse(events)
	}
	return events, err
}

func scanEvent(row pgx.CollectableRow) (e deliver.Event, err error) {
	err = row.Scan(&e.Sequence, &e.Type, &e.Time, &e.WorkItem, &e.DeliveryID, &e.Fields, &e.TraceID)
	return e, err
}
