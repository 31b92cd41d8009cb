package store

import (
	"context"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/ledger"
	"muxpost.dev/muxpost/db"
	"muxpost.dev/muxpost/internal/failpoint"
	"muxpost.dev/muxpost/internal/obs"
	"muxpost.dev/muxpost/services/poller/internal/poll"
)

// Known returns the items that were last seen in a place and are not closed, and those with one of the node ids.
func (s *Store) Known(ctx context.Context, place string, nodeIDs []string) ([]poll.Known, error) {
	rows, err := s.pool.Query(ctx, `
select work_item, coalesce(node_id, ''), number, baselined_at is not null, closed_at is not null,
  seen_at, seen_updated_at, seen_comments, comments_since,
  exists (select from poller.events e where e.work_item = i.work_item and e.state in ('pending', 'leased', 'held') and e.kind = 'comment')
    or exists (select from poller.events e where e.work_item = i.work_item and e.state = 'gave_up' and e.kind = 'comment')
from poller.items i
where place = @place and closed_at is null or node_id = any(@nodes)
order by number`, pgx.NamedArgs{"place": place, "nodes": nodeIDs})
	if err != nil {
		return nil, db.Fault(err)
	}
	known, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (poll.Known, error) {
		var k poll.Known
		var seen, updated, since *time.Time
		err := row.Scan(&k.WorkItem, &k.NodeID, &k.Number, &k.Baselined, &k.Closed, &seen, &updated, &k.SeenComments, &since, &k.Waiting)
		k.SeenAt, k.SeenUpdatedAt, k.CommentsSince = deref(seen), deref(updated), deref(since)
		return k, err
	})
	return known, db.Fault(err)
}

// Record writes an item, how far it was read, and its events, all or nothing.
func (s *Store) Record(ctx context.Context, r poll.Record) (poll.Recorded, error) {
	fresh, err := s.fresh(ctx, r.Events)
	if err != nil {
		return poll.Recorded{}, err
	}
	traces := s.begin(ctx, r, fresh)
	var out poll.Recorded
	err = db.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		out = poll.Recorded{}
		baselined, err := upsertItem(ctx, tx, r)
		if err != nil || baselined && r.FirstSight {
			return err
		}
		for i, e := range fresh {
			inserted, err := insert(traces[i].ctx, tx, e)
			if err != nil {
				return err
			}
			switch {
			case !inserted, e.Reason == ledger.ReasonBaselined:
			case e.State == ledger.Pending:
				failpoint.Hit("poller.poll.inserted")
				out.Pending++
			default:
				out.Settled++
			}
		}
		if r.Complete {
			return cancelDeleted(ctx, tx, r)
		}
		return nil
	})
	for _, t := range traces {
		failpoint.Hit("poller.poll.recorded")
		t.end(err)
	}
	if err != nil {
		return poll.Recorded{}, err
	}
	return out, nil
}

// fresh leaves out the events that are known already, so that reading a thread again begins no traces.
func (s *Store) fresh(ctx context.Context, events []poll.Event) ([]poll.Event, error) {
	if len(events) == 0 {
		return nil, nil
	}
	keys := make([]string, len(events))
	for i, e := range events {
		keys[i] = e.Key.String()
	}
	rows, err := s.pool.Query(ctx, `select natural_key from poller.events where natural_key = any(@keys)`, pgx.NamedArgs{"keys": keys})
	if err != nil {
		return nil, db.Fault(err)
	}
	there, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, db.Fault(err)
	}
	known := make(map[string]bool, len(there))
	for _, key := range there {
		known[key] = true
	}
	var out []poll.Event
	for i, e := range events {
		if !known[keys[i]] {
			out = append(out, e)
		}
	}
	return out, nil
}

// eventTrace is the trace of an event that is being written.
type eventTrace struct {
	ctx context.Context
	end func(error)
}

// begin starts the trace of each event: its own, linked to the look that found it, and from when that look began, so that it
// shows how long the event took from upstream to the agent. The baseline is not followed.
func (s *Store) begin(ctx context.Context, r poll.Record, events []poll.Event) []eventTrace {
	traces := make([]eventTrace, len(events))
	for i, e := range events {
		if e.Reason == ledger.ReasonBaselined {
			traces[i] = eventTrace{ctx: ctx, end: func(error) {}}
			continue
		}
		options := []trace.SpanStartOption{
			trace.WithNewRoot(), trace.WithTimestamp(r.LookBegan),
			trace.WithAttributes(attribute.String(obs.KeyDeliveryID, e.DeliveryID), attribute.String(obs.KeyWorkItem, e.WorkItem),
				attribute.String(obs.KeySource, e.Source), attribute.String(obs.KeyEvent, e.Kind),
				attribute.String(obs.KeyState, e.State.String()), attribute.String(obs.KeyReason, e.Reason)),
		}
		if look := trace.SpanContextFromContext(ctx); look.IsValid() {
			options = append(options, trace.WithLinks(trace.Link{SpanContext: look}))
		}
		own, span := s.tracer.Start(ctx, "poll.Event", options...)
		traces[i] = eventTrace{ctx: own, end: func(err error) {
			if err != nil {
				span.SetStatus(codes.Error, err.Error())
			}
			span.End()
		}}
	}
	return traces
}

// upsertItem writes the item's row, and returns whether it had been baselined before.
func upsertItem(ctx context.Context, tx pgx.Tx, r poll.Record) (baselined bool, err error) {
	i := r.Item
	args := pgx.NamedArgs{
		"item": r.WorkItem, "node": clean(i.NodeID), "source": r.Source, "place": r.Place,
		"number": i.Ref.Number(), "title": clean(i.Title), "url": clean(i.URL), "first": r.FirstSight, "closed": r.Closed,
		"seen":    orNull(r.SeenAt),
		"updated": orNull(i.UpdatedAt), "comments": i.Comments, "since": orNull(r.CommentsSince),
	}
	if r.FirstSight {
		if _, err := exec(ctx, tx, `
insert into poller.items (work_item, node_id, source, place, number)
values (@item, @node, @source, @place, @number) on conflict do nothing`, args); err != nil {
			return false, err
		}
	}
	var name, node string
	err = tx.QueryRow(ctx, `
select work_item, coalesce(node_id, ''), baselined_at is not null from poller.items
where work_item = @item or node_id = @node order by (node_id = @node) desc nulls last limit 1 for update`, args).
		Scan(&name, &node, &baselined)
	if err != nil {
		return false, err
	}
	if name != r.WorkItem {
		// Somebody else saw it first, under another name: the next look goes by that.
		return true, nil
	}
	if node != "" && node != i.NodeID {
		return false, fault.Newf(fault.Conflict, fault.ReasonBadWorkItem,
			"%s is another item upstream than the one that the ledger knows by this name (the repository was made anew)", r.WorkItem).
			WithRemedy("its events are not taken, so that they do not reach the old item's agent; " +
				"rename the repository, or remove the old item's rows")
	}
	if r.FirstSight && baselined {
		return true, nil
	}
	_, err = exec(ctx, tx, `
update poller.items
set node_id = @node, source = @source, place = @place, number = case when @number::bigint > 0 then @number::bigint else number end,
  title = coalesce(nullif(@title, ''), title), url = coalesce(nullif(@url, ''), url),
  baselined_at = case when @first then now() else baselined_at end, last_polled_at = now(),
  seen_at = @seen, seen_updated_at = @updated, seen_comments = @comments, comments_since = @since,
  closed_at = case when @closed then coalesce(closed_at, now()) end
where work_item = @item`, args)
	return baselined, err
}

const insertStatement = `
insert into poller.events (delivery_id, natural_key, work_item, node_id, source, kind, author, url, title, text, harness,
  upstream_at, upstream_order, state, reason, detail, budget, next_look, traceparent, trace_id)
values (@delivery, @key, @item, @node, @source, @kind, @author, @url, @title, @text, @harness,
  coalesce(@at, now()), @order, @state, @reason, @detail, @budget, case when @state = 'pending' then now() end, @traceparent, @trace)
on conflict do nothing`

// insert writes an event, with the trace that ctx is in, and returns whether it is new.
func insert(ctx context.Context, tx pgx.Tx, e poll.Event) (bool, error) {
	traceparent, traceID := obs.Inject(ctx), obs.TraceID(ctx)
	if e.Reason == ledger.ReasonBaselined {
		traceparent, traceID = "", ""
	}
	n, err := exec(ctx, tx, insertStatement, pgx.NamedArgs{
		"delivery": e.DeliveryID, "key": e.Key.String(), "item": e.WorkItem, "node": clean(e.NodeID), "source": e.Source, "kind": e.Kind,
		"author": clean(e.Author), "url": clean(e.URL), "title": clean(e.Title), "text": clean(e.Text), "harness": e.Harness,
		"at": orNull(e.UpstreamAt), "order": e.UpstreamOrder, "state": e.State.String(), "reason": e.Reason, "detail": clean(e.Detail),
		"budget": e.Budget, "traceparent": traceparent, "trace": traceID,
	})
	return n == 1, err
}

// clean drops what Postgres cannot keep as text.
func clean(s string) string {
	if !strings.ContainsRune(s, 0) && utf8.ValidString(s) {
		return s
	}
	return strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", ""), "")
}
