package store

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/services/dispatcher/internal/deliver"
)

const pauseColumns = "work_item, reason, who, created_at"

// pausedSQL chooses the pauses that hold back a work item, that of all first.
const pausedSQL = "select " + pauseColumns + " from dispatcher.pauses where work_item in ('', $1) order by work_item"

// Pauses returns pauses, that of all first, then by work item.
func (s *Store) Pauses(ctx context.Context, q deliver.PauseQuery) ([]deliver.Pause, error) {
	return many(s, ctx, "select "+pauseColumns+` from dispatcher.pauses where $1::text is null or work_item > $1
		order by work_item limit $2`, scanPause, q.After, q.Limit)
}

// The update changes nothing: it is there so that a pause which stands is returned, and locked until this statement ends. A row
// that was inserted has no older version, which is what xmax says.
const pauseSQL = `
with p as (
	insert into dispatcher.pauses as old (work_item, reason, who) values (@work_item, @reason, @who)
	on conflict (work_item) do update set work_item = old.work_item
	returning work_item, reason, who, created_at, old.xmax = 0 as made
), told as (
	insert into dispatcher.events (type, work_item, fields, trace_id)
	select @type, p.work_item, @fields::jsonb, @trace_id from p where p.made
)
select work_item, reason, who, created_at, made from p`

// Pause makes a pause with its event, or returns the one that stands, and then false.
func (s *Store) Pause(ctx context.Context, p deliver.Pause, told deliver.Event) (stands deliver.Pause, made bool, err error) {
	args, err := toldArgs(told)
	if err != nil {
		return deliver.Pause{}, false, err
	}
	args["work_item"], args["reason"], args["who"] = p.WorkItem, p.Reason, p.Who
	stands, err = one(s, ctx, pauseSQL, func(row pgx.CollectableRow) (p deliver.Pause, err error) {
		err = row.Scan(&p.WorkItem, &p.Reason, &p.Who, &p.Since, &made)
		return p, err
	}, args)
	return stands, made, err
}

const unpauseSQL = `
with p as (
	delete from dispatcher.pauses where work_item = @work_item returning *
), told as (
	insert into dispatcher.events (type, work_item, fields, trace_id)
	select @type, p.work_item, @fields::jsonb, @trace_id from p
)
select ` + pauseColumns + ` from p`

// Unpause ends a pause with its event and returns it; false when none stands.
func (s *Store) Unpause(ctx context.Context, workItem string, told deliver.Event) (deliver.Pause, bool, error) {
	args, err := toldArgs(told)
	if err != nil {
		return deliver.Pause{}, false, err
	}
	args["work_item"] = workItem
	p, err := one(s, ctx, unpauseSQL, scanPause, args)
	if errors.Is(err, fault.NotFound) {
		return deliver.Pause{}, false, nil
	}
	return p, err == nil, err
}

// The row is locked by the update, so an outcome that a run has stored meanwhile is seen and kept.
const postponeSQL = `
update dispatcher.deliveries d set outcome = @outcome, reason = @reason, detail = @detail, remedy = @remedy, how = @how, steps = @steps,
	updated_at = case when d.outcome = @outcome and d.reason = @reason then d.updated_at else now() end
where delivery_id = @delivery_id and outcome not in ('delivered', 'dropped')
	and not exists (select from dispatcher.leases l where l.work_item = d.work_item and l.holder <> '' and l.until > clock_timestamp())
returning updated_at`

// Postpone stores an outcome that needed no lease and sets its UpdatedAt, unless the delivery has ended or a run is at work on the
// item: then it changes nothing and reports false.
func (s *Store) Postpone(ctx context.Context, d *deliver.Delivery) (bool, error) {
	args := pgx.NamedArgs{}
	outcomeArgs(args, *d)
	return s.update(ctx, postponeSQL, args, d)
}

const reopenSQL = `
with d as (
	update dispatcher.deliveries set outcome = @outcome, reason = @reason, detail = @detail, remedy = @remedy, how = @how, steps = @steps,
		updated_at = now()
	where delivery_id = @delivery_id and outcome = 'dropped'
	returning work_item, delivery_id, updated_at
), told as (
	insert into dispatcher.events (type, work_item, delivery_id, fields, trace_id)
	select @type, d.work_item, d.delivery_id, @fields::jsonb, @trace_id from d
)
select updated_at from d`

// Reopen stores an outcome in place of dropped, with its event; false when the delivery is not dropped (any more).
func (s *Store) Reopen(ctx context.Context, d *deliver.Delivery, told deliver.Event) (bool, error) {
	args, err := toldArgs(told)
	if err != nil {
		return false, err
	}
	outcomeArgs(args, *d)
	return s.update(ctx, reopenSQL, args, d)
}

// update runs a statement that returns when a delivery was changed; no row is no change.
func (s *Store) update(ctx context.Context, sql string, args pgx.NamedArgs, d *deliver.Delivery) (bool, error) {
	at, err := one(s, ctx, sql, pgx.RowTo[time.Time], args)
	if errors.Is(err, fault.NotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	d.UpdatedAt = at
	return true, nil
}

// toldArgs are the parameters of the one event of a statement.
func toldArgs(told deliver.Event) (pgx.NamedArgs, error) {
	fields, err := json.Marshal(told.Fields)
	if err != nil {
		return nil, fault.Wrap(fault.Internal, "", "the fields of an event cannot be written", err)
	}
	return pgx.NamedArgs{"type": string(told.Type), "fields": string(fields), "trace_id": told.TraceID}, nil
}

func scanPause(row pgx.CollectableRow) (p deliver.Pause, err error) {
	err = row.Scan(&p.WorkItem, &p.Reason, &p.Who, &p.Since)
	return p, err
}
