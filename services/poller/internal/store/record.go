package store

import (
	"cmp"
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

// Record writes an item, how far it was read, and its events, all or nothing.
func (s *Store) Record(ctx context.Context, r poll.Record) (poll.Recorded, error) {
	fresh, err := s.fresh(ctx, r)
	if err != nil {
		return poll.Recorded{}, err
	}
	traces := s.begin(ctx, r, fresh)
	var out poll.Recorded
	var news []came
	err = db.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		out, news = poll.Recorded{}, nil
		over, err := upsert(ctx, tx, r)
		if err != nil || over {
			return err
		}
		for i, e := range fresh {
			e, err := s.judge(ctx, tx, e)
			if err != nil {
				return err
			}
			inserted, err := revise(traces[i].ctx, tx, e)
			if err != nil {
				return err
			}
			if inserted {
				news = append(news, came{traces[i].ctx, e})
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
		if err := heardDeleted(ctx, tx, r.Deleted); err != nil {
			return err
		}
		if len(fresh) > 0 {
			if err := s.postNew(ctx, tx, r.Source, r.WorkItem); err != nil {
				return err
			}
		}
		return missing(ctx, tx, r)
	})
	for _, t := range traces {
		failpoint.Hit("poller.poll.recorded")
		t.end(err)
	}
	if err != nil {
		return poll.Recorded{}, err
	}
	s.measure(news)
	return out, nil
}

// came is an event that came in, with its trace.
type came struct {
	ctx   context.Context
	event poll.Event
}

// measure counts what came in, and how late that was. What was there before the item was seen is no news.
func (s *Store) measure(news []came) {
	for _, n := range news {
		e := n.event
		switch {
		case e.Reason == ledger.ReasonBaselined:
			continue
		case e.State == ledger.Pending:
			s.meters.Taken.Add(n.ctx, 1, e.Source, e.Kind)
		default:
			s.meters.Refused.Add(n.ctx, 1, e.Source, e.Reason)
		}
		at := e.UpstreamAt
		if e.EditedAt.After(at) {
			at = e.EditedAt
		}
		if !at.IsZero() {
			s.meters.Arrival.Record(n.ctx, max(0, time.Since(at)), e.Source)
		}
	}
}

// fresh leaves out the events that are known already, so that reading a thread again begins no traces; and the comments that were
// known once and are forgotten. One of these that was changed since is on the record from now on, as it is: whether it says something
// else nobody knows any more, and nothing is delivered twice.
func (s *Store) fresh(ctx context.Context, r poll.Record) (out []poll.Event, err error) {
	if len(r.Events) == 0 {
		return nil, nil
	}
	known, forgotten, err := s.known(ctx, r)
	if err != nil {
		return nil, err
	}
	for _, e := range r.Events {
		object := poll.ObjectOf(e.Key)
		revision, there := known[cmp.Or(object, e.Key.String())]
		switch {
		case there && (object == "" || revision == e.Key.Revision || e.First):
		case there || object == "" && e.Kind != poll.KindCheck && e.Kind != poll.KindLabelled || e.UpstreamAt.After(forgotten):
			out = append(out, e)
		case object == "":
		case e.EditedAt.After(forgotten):
			e.State, e.Reason, e.Detail, e.Text = ledger.Settled, ledger.ReasonBaselined, forgottenDetail, ""
			out = append(out, e)
		}
	}
	return out, nil
}

// known returns the newest revision of each object, and "" for each natural key of what is never edited, as far as they are known; and
// through which upstream time the item's comments were forgotten.
func (s *Store) known(ctx context.Context, r poll.Record) (known map[string]string, forgotten time.Time, err error) {
	keys, objects := make([]string, len(r.Events)), make([]string, len(r.Events))
	for i, e := range r.Events {
		keys[i], objects[i] = e.Key.String(), poll.ObjectOf(e.Key)
	}
	rows, err := s.pool.Query(ctx, `
select natural_key, '', null::timestamptz from poller.events where object_key = '' and natural_key = any(@keys)
union all
(select distinct on (object_key) object_key, revision, null from poller.events
where object_key <> '' and object_key = any(@objects) order by object_key, id desc)
union all
select '', '', forgotten_through from poller.items where work_item = @item`, pgx.NamedArgs{"keys": keys, "objects": objects, "item": r.WorkItem})
	if err != nil {
		return nil, forgotten, db.Fault(err)
	}
	known = map[string]string{}
	var key, revision string
	var through *time.Time
	_, err = pgx.ForEachRow(rows, []any{&key, &revision, &through}, func() error {
		if key == "" {
			forgotten = deref(through)
		} else {
			known[key] = revision
		}
		return nil
	})
	return known, forgotten, db.Fault(err)
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
		own, span := s.tracer.Start(obs.Routine(ctx, false), "poll.Event", options...)
		traces[i] = eventTrace{ctx: own, end: func(err error) {
			if err != nil {
				span.SetStatus(codes.Error, err.Error())
			}
			span.End()
		}}
	}
	return traces
}

// upsert writes the rows of the item and of the pull request, and returns whether there is nothing more to write: somebody else saw it
// first, or it belongs to no item.
func upsert(ctx context.Context, tx pgx.Tx, r poll.Record) (over bool, err error) {
	if r.Pull == nil || r.FirstSight {
		baselined, err := upsertItem(ctx, tx, r)
		if err != nil || baselined && r.FirstSight {
			return true, err
		}
	}
	if r.Pull == nil {
		return false, nil
	}
	return upsertPull(ctx, tx, r)
}

// upsertItem writes the item's row, and returns whether it had been baselined before.
func upsertItem(ctx context.Context, tx pgx.Tx, r poll.Record) (baselined bool, err error) {
	i := r.Item
	args := pgx.NamedArgs{
		"item": r.WorkItem, "node": clean(i.NodeID), "source": r.Source, "place": r.Place,
		"number": i.Ref.Number(), "title": clean(i.Title), "url": clean(i.URL), "first": r.FirstSight, "closed": r.Closed,
		"body": clean(poll.ContextBody(i.Body)), "seen": orNull(r.SeenAt),
		"updated": orNull(i.UpdatedAt), "comments": max(0, i.Comments), "since": orNull(r.CommentsSince), "partial": r.Partial,
		"closedat": orNull(i.ClosedAt), "aside": r.Aside,
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
  body = case when @title = '' then body else @body end,
  baselined_at = case when @first then now() else baselined_at end, last_polled_at = now(),
  baselined_upstream = case when @first then @seen else baselined_upstream end,
  seen_at = case when @partial then seen_at else @seen end, seen_updated_at = case when @partial then seen_updated_at else @updated end,
  seen_comments = case when @partial then seen_comments else @comments end,
  comments_since = case when @partial then comments_since else @since end,
  closed_at = case when @aside or @updated < shown_at then closed_at when @closed then coalesce(closed_at, now()) end,
  closed_upstream = case when @aside or @updated < shown_at then closed_upstream else coalesce(@closedat, closed_upstream) end,
  shown_at = case when @aside then shown_at else greatest(shown_at, @updated) end
where work_item = @item`, args)
	return baselined, err
}

const insertStatement = `
insert into poller.events (delivery_id, natural_key, object_key, revision, revised_at, edited, excerpt, with_context, work_item, node_id, source, kind, author, url, title, text, harness,
  upstream_at, upstream_order, state, reason, detail, budget, next_look, traceparent, trace_id, thread, association, commit_sha, stale_at, deleted_at,
  together, command, about)
values (@delivery, @key, @object, case when @object <> '' then @revision else '' end, @revised, @edited, @excerpt,
  case @kind when 'opened' then @text::text <> '' when 'message' then false end, @item,
  coalesce((select i.node_id from poller.items i where i.work_item = @item), @node), @source, @kind, @author, @url, @title, @text, @harness,
  coalesce(@at, now()), @order, @state, @reason, @detail, @budget, case when @state = 'pending' then now() end, @traceparent, @trace, @thread, @association,
  @commit, case when @kind = 'check' and @state = 'cancelled' then now() end, case when @reason = 'deleted_upstream' then now() end,
  @together, @command, @about)
on conflict do nothing`

// insert writes an event, with the trace that ctx is in, and returns whether it is new.
func insert(ctx context.Context, tx pgx.Tx, e poll.Event) (bool, error) {
	return insertRevision(ctx, tx, e, e.Key.Revision, false)
}

// insertRevision is insert for a revision whose key says more than what it is a revision of, and which may be an edit.
func insertRevision(ctx context.Context, tx pgx.Tx, e poll.Event, revision string, edited bool) (bool, error) {
	traceparent, traceID := obs.Inject(ctx), obs.TraceID(ctx)
	if e.Reason == ledger.ReasonBaselined {
		traceparent, traceID = "", ""
	}
	n, err := exec(ctx, tx, insertStatement, pgx.NamedArgs{
		"delivery": e.DeliveryID, "key": e.Key.String(), "object": poll.ObjectOf(e.Key), "revision": revision, "revised": orNull(e.EditedAt),
		"edited": edited, "excerpt": clean(e.Excerpt), "item": e.WorkItem, "node": clean(e.NodeID), "source": e.Source, "kind": e.Kind,
		"author": clean(e.Author), "url": clean(e.URL), "title": clean(e.Title), "text": clean(e.Text), "harness": e.Harness,
		"at": orNull(e.UpstreamAt), "order": e.UpstreamOrder, "state": e.State.String(), "reason": e.Reason, "detail": clean(e.Detail),
		"budget": e.Budget, "traceparent": traceparent, "trace": traceID, "together": clean(e.Together), "command": clean(e.Command),
		"thread": clean(e.Thread), "association": clean(e.Association), "commit": clean(e.Commit),
		"about": clean(e.About),
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
