package store

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/lease"
	"muxpost.dev/muxpost/db"
	"muxpost.dev/muxpost/services/dispatcher/internal/deliver"
)

// Every change begins with "ours", which locks the row of the lease and is empty when the token is another's. All that follows
// reads from it, so that without the lease nothing is changed.
const (
	stillOurs = `
with ours as (
	select work_item from dispatcher.leases where work_item = @work_item and token = @token and holder <> '' for update
)`
	givenBack = `
with ours as (
	update dispatcher.leases set holder = '', until = clock_timestamp()
	where work_item = @work_item and token = @token and holder <> '' returning work_item
)`
	keepSession = `, kept as (
	insert into dispatcher.sessions as old (work_item, node_id, target, host, harness, conversation_id, lineage, stamp, session_id,
		pane_id, pane_pid, server_pid, server_started, socket_path, directory, closed)
	select work_item, @node_id, @target, @host, @harness, @conversation_id, @lineage, @stamp, @session_id,
		@pane_id, @pane_pid, @server_pid, @server_started, @socket_path, @directory, @closed from ours
	on conflict (work_item) do update set node_id = excluded.node_id, target = excluded.target, host = excluded.host,
		harness = excluded.harness, conversation_id = excluded.conversation_id, lineage = excluded.lineage, stamp = excluded.stamp,
		session_id = excluded.session_id, pane_id = excluded.pane_id, pane_pid = excluded.pane_pid, server_pid = excluded.server_pid,
		server_started = excluded.server_started, socket_path = excluded.socket_path, directory = excluded.directory, closed = excluded.closed,
		updated_at = now()
)`
	// What is left behind keeps its identity, and the record has none until the item has a host again.
	leaveHost = `, left_there as (
	insert into dispatcher.superseded as old (work_item, host, stamp, target, harness, conversation_id, directory)
	select s.work_item, s.host, s.stamp, s.target, s.harness, s.conversation_id, s.directory
	from dispatcher.sessions s join ours using (work_item) where s.host <> ''
	on conflict (work_item, host) do update set stamp = excluded.stamp, harness = excluded.harness,
		conversation_id = excluded.conversation_id, directory = excluded.directory, created_at = now()
), moved as (
	update dispatcher.sessions s set host = '', lineage = case when s.conversation_id = '' then s.lineage
		else s.lineage || s.conversation_id end, conversation_id = '', stamp = '', session_id = '', pane_id = '', pane_pid = 0,
		server_pid = 0, server_started = null, socket_path = '', directory = '', updated_at = now()
	from ours where s.work_item = ours.work_item
)`
	// The outcome last changed when another outcome or reason was written, not when the same one was found again.
	keepOutcome = `, ended as (
	update dispatcher.deliveries d set outcome = @outcome, reason = @reason, detail = @detail, remedy = @remedy, how = @how,
		harness = @d_harness, host = @d_host, conversation_id = @d_conversation_id, steps = @steps,
		updated_at = case when d.outcome = @outcome and d.reason = @reason then d.updated_at else now() end
	from ours where d.delivery_id = @delivery_id
	returning d.updated_at
)`
	tell = `, told as (
	insert into dispatcher.events (type, work_item, delivery_id, fields, trace_id)
	select e.type, ours.work_item, e.delivery_id, e.fields::jsonb, e.trace_id
	from ours, unnest(@types::text[], @delivery_ids::text[], @fields::text[], @trace_ids::text[])
		with ordinality as e(type, delivery_id, fields, trace_id, n)
	order by e.n
)`
	done = `
select null::timestamptz from ours`
	doneOutcome = `
select (select updated_at from ended) from ours`
)

// Save makes a change, all of it or nothing, provided that the lease's token is still the item's; otherwise it is fault.Fenced,
// ReasonLeaseLost. A change with an outcome gives the lease back and sets the outcome's UpdatedAt. A target that another work item
// has is fault.Conflict.
func (s *Store) Save(ctx context.Context, l lease.Lease, workItem string, c deliver.Change) error {
	sql, last, args := stillOurs, done, pgx.NamedArgs{"work_item": workItem, "token": l.Token}
	if c.Outcome != nil {
		sql, last = givenBack+keepOutcome, doneOutcome
		outcomeArgs(args, *c.Outcome)
	}
	if c.Session != nil {
		sql += keepSession
		sessionArgs(args, *c.Session)
	}
	if c.Left {
		sql += leaveHost
	}
	sql += endingSQL(args, c)
	if c.Left || c.Session != nil && c.Session.Closed {
		sql += dropPark
	}
	if c.Park != nil {
		sql += parkSQL(args, *c.Park)
	}
	if c.Ordered != "" {
		sql += ordered
		args["ordered"] = c.Ordered
	}
	if len(c.Events) > 0 {
		sql += tell
		if err := eventArgs(args, c.Events); err != nil {
			return err
		}
	}
	changed, err := one(s, ctx, sql+last, pgx.RowTo[*time.Time], args)
	switch {
	case err == nil && c.Outcome != nil && changed != nil:
		c.Outcome.UpdatedAt = *changed
	case errors.Is(err, fault.NotFound):
		return leaseLost()
	case errors.Is(err, fault.AlreadyExists) && db.Constraint(err) == "sessions_target_key":
		return fault.Wrap(fault.Conflict, fault.ReasonTargetCollision, "another work item has a session of the same name", err)
	}
	return err
}

func leaseLost() error {
	return fault.New(fault.Fenced, fault.ReasonLeaseLost, "the lease of the work item went to another run")
}

func outcomeArgs(args pgx.NamedArgs, d deliver.Delivery) {
	args["delivery_id"], args["outcome"], args["reason"], args["how"] = d.ID, d.Outcome.String(), string(d.Reason), string(d.How)
	args["detail"], args["remedy"], args["steps"] = d.Detail, d.Remedy, noNil(d.Steps)
	args["d_harness"], args["d_host"], args["d_conversation_id"] = d.Harness, d.Host, d.ConversationID
}

func sessionArgs(args pgx.NamedArgs, s deliver.Session) {
	i := s.Incarnation
	args["node_id"], args["target"], args["host"], args["harness"] = s.NodeID, s.Target, s.Host, s.Harness
	args["conversation_id"], args["lineage"], args["stamp"] = s.ConversationID, noNil(s.Lineage), i.Stamp
	args["session_id"], args["pane_id"], args["pane_pid"], args["server_pid"] = i.SessionID, i.PaneID, i.PanePID, i.ServerPID
	args["server_started"], args["socket_path"], args["directory"], args["closed"] = nil, s.SocketPath, s.Directory, s.Closed
	if !i.ServerStarted.IsZero() {
		args["server_started"] = i.ServerStarted
	}
}

func eventArgs(args pgx.NamedArgs, events []deliver.Event) error {
	var types, ids, fields, traces []string
	for _, e := range events {
		text, err := json.Marshal(e.Fields)
		if err != nil {
			return fault.Wrap(fault.Internal, "", "the fields of an event cannot be written", err)
		}
		types, ids = append(types, string(e.Type)), append(ids, e.DeliveryID)
		fields, traces = append(fields, string(text)), append(traces, e.TraceID)
	}
	args["types"], args["delivery_ids"], args["fields"], args["trace_ids"] = types, ids, fields, traces
	return nil
}

// noNil keeps an empty list from being written as null.
func noNil(s []string) []string {
	if s == nil {
		return []string{}
	}
	return s
}
