package store

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/ledger"
	"muxpost.dev/muxpost/db"
	"muxpost.dev/muxpost/services/poller/internal/poll"
)

// logged is what an event of the poller's is about.
type logged struct {
	workItem, deliveryID, source, traceID string

	fields map[string]string
}

// write adds an event to what people follow, in the transaction of what it tells of.
func write(ctx context.Context, tx pgx.Tx, t ledger.EventType, l logged) error {
	if l.fields == nil {
		l.fields = map[string]string{}
	}
	for key, value := range l.fields {
		l.fields[key] = clean(value)
	}
	fields, err := json.Marshal(l.fields)
	if err != nil {
		return fault.Wrap(fault.Internal, "", "the fields of an event cannot be written", err)
	}
	_, err = exec(ctx, tx, `
insert into poller.log (type, work_item, delivery_id, source, fields, trace_id)
values (@type, @item, @delivery, @source, @fields::jsonb, @trace)`, pgx.NamedArgs{
		"type": string(t), "item": l.workItem, "delivery": l.deliveryID, "source": l.source, "fields": string(fields), "trace": l.traceID,
	})
	return err
}

// Events returns what the poller did, in order of sequence. Writers take turns, so whoever reads on after the last one misses
// nothing.
func (s *Store) Events(ctx context.Context, q poll.EventQuery) ([]poll.Followed, error) {
	where := []string{"seq > @after"}
	types := make([]string, len(q.Types)) // as such: behind a pooler the database is not asked for a parameter's type
	for i, t := range q.Types {
		types[i] = string(t)
	}
	args := pgx.NamedArgs{"after": q.After, "limit": q.Limit, "item": q.WorkItem, "delivery": q.DeliveryID, "source": q.Source,
		"types": types}
	for condition, on := range map[string]bool{
		"work_item = @item": q.WorkItem != "", "delivery_id = @delivery": q.DeliveryID != "", "source = @source": q.Source != "",
		"type = any(@types)": len(q.Types) > 0,
	} {
		if on {
			where = append(where, condition)
		}
	}
	order := "asc"
	if q.Latest {
		order = "desc"
	}
	rows, err := s.pool.Query(ctx, `select seq, type, time, work_item, delivery_id, source, fields, trace_id from poller.log where `+
		strings.Join(where, " and ")+` order by seq `+order+` limit @limit`, args)
	if err != nil {
		return nil, db.Fault(err)
	}
	events, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (e poll.Followed, err error) {
		err = row.Scan(&e.Sequence, &e.Type, &e.Time, &e.WorkItem, &e.DeliveryID, &e.Source, &e.Fields, &e.TraceID)
		return e, err
	})
	if q.Latest {
		slices.Reverse(events)
	}
	return events, db.Fault(err)
}
