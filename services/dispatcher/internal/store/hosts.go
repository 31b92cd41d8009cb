package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/services/dispatcher/internal/deliver"
)

const hostColumns = "name, address, instance, draining, reason, who, created_at, updated_at"

// Hosts returns what is recorded of hosts, by name.
func (s *Store) Hosts(ctx context.Context) ([]deliver.HostRecord, error) {
	return many(s, ctx, "select "+hostColumns+" from dispatcher.hosts order by name", scanHost)
}

// MeetHost returns what is recorded of a host of which a tmuxd answered. The name belongs to the first one.
func (s *Store) MeetHost(ctx context.Context, name, instance string) (deliver.HostRecord, error) {
	return one(s, ctx, `
insert into dispatcher.hosts as old (name, instance) values (@name, @instance)
on conflict (name) do update set instance = case when old.instance = '' then excluded.instance else old.instance end
returning `+hostColumns, scanHost, pgx.NamedArgs{"name": name, "instance": instance})
}

// tellAlone stores an event for each row of "changed".
const tellAlone = `, told as (
	insert into dispatcher.events (type, work_item, fields, trace_id) select @type, @told_item, @fields::jsonb, @trace_id from changed
)`

// PutHost records a host with its event, and returns the record with its times.
func (s *Store) PutHost(ctx context.Context, r deliver.HostRecord, told deliver.Event) (deliver.HostRecord, error) {
	args, err := hostArgs(told)
	if err != nil {
		return r, err
	}
	args["name"], args["address"], args["instance"], args["draining"] = r.Name, r.Address, r.Instance, r.Draining
	args["reason"], args["who"] = r.Reason, r.Who
	return one(s, ctx, `
with changed as (
	insert into dispatcher.hosts (name, address, instance, draining, reason, who)
	values (@name, @address, @instance, @draining, @reason, @who)
	on conflict (name) do update set address = excluded.address, instance = excluded.instance, draining = excluded.draining,
		reason = excluded.reason, who = excluded.who, updated_at = now()
	returning *
)`+tellAlone+`
select `+hostColumns+" from changed", scanHost, args)
}

// DropHost removes the record of a host with its event, and what was left behind there. One that sessions are recorded on is fault.Conflict,
// one that is not known fault.NotFound.
func (s *Store) DropHost(ctx context.Context, name string, told deliver.Event) error {
	args, err := hostArgs(told)
	if err != nil {
		return err
	}
	args["name"] = name
	sessions, err := one(s, ctx, `
with held as (select count(*) as n from dispatcher.sessions where host = @name and not closed),
changed as (
	delete from dispatcher.hosts where name = @name and (select n from held) = 0 returning name
), left_there as (
	delete from dispatcher.superseded using changed where host = changed.name
)`+tellAlone+`
select n from held where n > 0 or exists (select 1 from changed)`, pgx.RowTo[int64], args)
	switch {
	case errors.Is(err, fault.NotFound):
		return fault.Newf(fault.NotFound, "", "nothing is recorded of a host %q", name).WithRemedy("`muxpost hosts` lists them")
	case err == nil && sessions > 0:
		return fault.Newf(fault.Conflict, "", "%d work items are recorded on the host %q", sessions, name).
			WithRemedy(fmt.Sprintf("move them away first with `muxpost hosts evacuate %s`", name))
	}
	return err
}

// Superseded returns the sessions that were left behind, by host and work item.
func (s *Store) Superseded(ctx context.Context, q deliver.SupersededQuery) ([]deliver.Superseded, error) {
	f := newFilter(q.Limit)
	f.and(q.Host != "", "host = @host", "host", q.Host)
	f.and(q.AfterItem != "", "(host, work_item) > (@after_host, @after_item)", "after_item", q.AfterItem)
	f.args["after_host"] = q.AfterHost
	return many(s, ctx, fmt.Sprintf(`select work_item, host, stamp, target, harness, conversation_id, directory, created_at
		from dispatcher.superseded where %s order by host, work_item limit @limit`, f.where),
		func(row pgx.CollectableRow) (o deliver.Superseded, err error) {
			err = row.Scan(&o.WorkItem, &o.Host, &o.Stamp, &o.Target, &o.Harness, &o.ConversationID, &o.Directory, &o.Since)
			return o, err
		}, f.args)
}

// EndSuperseded removes that a session was left behind, with its event; false when it is not known (any more).
func (s *Store) EndSuperseded(ctx context.Context, workItem, host string, told deliver.Event) (bool, error) {
	args, err := hostArgs(told)
	if err != nil {
		return false, err
	}
	args["work_item"], args["host"] = workItem, host
	_, err = one(s, ctx, `
with changed as (
	delete from dispatcher.superseded where work_item = @work_item and host = @host returning work_item
)`+tellAlone+`
select work_item from changed`, pgx.RowTo[string], args)
	if errors.Is(err, fault.NotFound) {
		return false, nil
	}
	return err == nil, err
}

func hostArgs(told deliver.Event) (pgx.NamedArgs, error) {
	args, err := toldArgs(told)
	if err == nil {
		args["told_item"] = told.WorkItem
	}
	return args, err
}

func scanHost(row pgx.CollectableRow) (r deliver.HostRecord, err error) {
	err = row.Scan(&r.Name, &r.Address, &r.Instance, &r.Draining, &r.Reason, &r.Who, &r.CreatedAt, &r.UpdatedAt)
	return r, err
}
