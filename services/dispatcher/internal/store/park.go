package store

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/lease"
	"muxpost.dev/muxpost/services/dispatcher/internal/deliver"
)

const (
	parkColumns = "work_item, deaths, within, detail, versions, lifted, since"

	keepPark = `, parked as (
	insert into dispatcher.parks (work_item, deaths, within, detail, versions)
	select work_item, @p_deaths, @p_within, @p_detail, @p_versions from ours
	on conflict (work_item) do update set deaths = excluded.deaths, within = excluded.within, detail = excluded.detail,
		versions = excluded.versions, lifted = false, since = now()
)`
	ordered = `, ordered as (
	insert into dispatcher.deaths (work_item, stamp, counts) select work_item, @ordered, false from ours
	on conflict (work_item, stamp) do update set counts = false
)`
	dropPark = `, unparked as (
	delete from dispatcher.parks p using ours where p.work_item = ours.work_item
), forgiven as (
	update dispatcher.deaths d set counts = false from ours where d.work_item = ours.work_item
)`
	liftPark = `, lifted as (
	update dispatcher.parks p set lifted = true, versions = @p_versions from ours where p.work_item = ours.work_item
), forgiven as (
	update dispatcher.deaths d set counts = false from ours where d.work_item = ours.work_item
)`
)

// parkSQL is what a change of a park adds to a statement, with its parameters in args.
func parkSQL(args pgx.NamedArgs, p deliver.Park) string {
	args["p_versions"] = noNil(p.Versions)
	if p.Lifted {
		return liftPark
	}
	args["p_deaths"], args["p_within"], args["p_detail"] = p.Deaths, p.Within, p.Detail
	return keepPark
}

// The row that is inserted is not among those that are counted: a statement does not see what it writes.
const diedSQL = stillOurs + `, seen as (
	insert into dispatcher.deaths (work_item, stamp) select work_item, @stamp from ours where @stamp <> ''
	on conflict do nothing returning work_item
)
select (select count(*) from seen) + (
		select count(*) from dispatcher.deaths d where d.work_item = ours.work_item and d.counts and d.seen_at > now() - @within::interval
	), p.work_item is not null, coalesce(p.deaths, 0), coalesce(p.within, '0'), coalesce(p.detail, ''), coalesce(p.versions, '{}'),
	coalesce(p.lifted, false), coalesce(p.since, now()), now() - coalesce(p.since, now())
from ours left join dispatcher.parks p on p.work_item = ours.work_item`

// Died records that an incarnation was seen dead, unless it is recorded already or the stamp is empty, and returns what counts.
func (s *Store) Died(ctx context.Context, l lease.Lease, workItem, stamp string, within time.Duration) (deliver.Deaths, error) {
	d, err := one(s, ctx, diedSQL, func(row pgx.CollectableRow) (d deliver.Deaths, err error) {
		p, parked := deliver.Park{WorkItem: workItem}, false
		err = row.Scan(&d.Count, &parked, &p.Deaths, &p.Within, &p.Detail, &p.Versions, &p.Lifted, &p.Since, &d.Age)
		if parked {
			d.Park = &p
		}
		return d, err
	}, pgx.NamedArgs{"work_item": workItem, "token": l.Token, "stamp": stamp, "within": within})
	if errors.Is(err, fault.NotFound) {
		return deliver.Deaths{}, leaseLost()
	}
	return d, err
}

const unparkSQL = `
with p as (
	delete from dispatcher.parks where work_item = @work_item and not lifted returning *
), forgiven as (
	update dispatcher.deaths d set counts = false from p where d.work_item = p.work_item
), told as (
	insert into dispatcher.events (type, work_item, fields, trace_id)
	select @type, p.work_item, @fields::jsonb, @trace_id from p
)
select ` + parkColumns + ` from p`

// Unpark ends a park with its event, so that no death until now counts, and returns it; false when the item is not parked.
func (s *Store) Unpark(ctx context.Context, workItem string, told deliver.Event) (deliver.Park, bool, error) {
	args, err := toldArgs(told)
	if err != nil {
		return deliver.Park{}, false, err
	}
	args["work_item"] = workItem
	p, err := one(s, ctx, unparkSQL, scanPark, args)
	if errors.Is(err, fault.NotFound) {
		return deliver.Park{}, false, nil
	}
	return p, err == nil, err
}

// Parks returns the items that are parked, by work item.
func (s *Store) Parks(ctx context.Context, q deliver.ParkQuery) ([]deliver.Park, error) {
	return many(s, ctx, "select "+parkColumns+` from dispatcher.parks where not lifted and work_item > $1 order by work_item limit $2`,
		scanPark, q.After, q.Limit)
}

func scanPark(row pgx.CollectableRow) (p deliver.Park, err error) {
	err = row.Scan(&p.WorkItem, &p.Deaths, &p.Within, &p.Detail, &p.Versions, &p.Lifted, &p.Since)
	return p, err
}
