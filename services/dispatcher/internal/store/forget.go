package store

import (
	"context"
	"time"

	"muxpost.dev/muxpost/db"
)

// forgetBatch is how many rows one statement deletes, so that none is locked for long.
const forgetBatch = 1000

// Only what was delivered is finished for the dispatcher: anything else may be asked for again, or a person may have to look at it, for a longer
// time.
const forgetDeliveriesSQL = `
delete from dispatcher.deliveries where delivery_id in (
	select delivery_id from dispatcher.deliveries
	where outcome = 'delivered' and created_at < now() - $1::interval and updated_at < now() - $1::interval
	order by created_at
	limit $2
	for update skip locked
)`

// What was not delivered and has not changed for so long is asked for by nobody. Should it be, it is decided anew, and the host still knows what
// was typed.
const forgetUndeliveredSQL = `
delete from dispatcher.deliveries where delivery_id in (
	select delivery_id from dispatcher.deliveries
	where outcome <> 'delivered' and created_at < now() - $1::interval and updated_at < now() - $1::interval
	order by created_at
	limit $2
	for update skip locked
)`

// What is told of a delivery that may be asked for again, or that a person may have to look at, is kept as long as it is. Up to which number
// events are gone is written with the deletion, so that a reader who was away for longer hears of it.
const forgetEventsSQL = `
with gone as (
	delete from dispatcher.events where seq in (
		select e.seq from dispatcher.events e
		where e.time < now() - $1::interval
			and not exists (select from dispatcher.deliveries d where d.delivery_id = e.delivery_id and d.outcome <> 'delivered')
		order by e.seq
		limit $2
	)
	returning seq
), noted as (
	update dispatcher.events_forgotten set through = greatest(through, (select max(seq) from gone)) where exists (select from gone)
)
select seq from gone`

// ForgetDeliveries deletes deliveries that have been in their conversations for longer than keep, and returns how many went. So go the deaths
// and the lifted parks of that age, and the runs of teams that have been over for so long. Sessions, leases, pauses and what is parked stay.
func (s *Store) ForgetDeliveries(ctx context.Context, keep time.Duration) (int64, error) {
	for _, sql := range []string{forgetDeathsSQL, forgetParksSQL} {
		if _, err := s.forget(ctx, sql, keep); err != nil {
			return 0, err
		}
	}
	if err := s.forgetRuns(ctx, keep); err != nil {
		return 0, err
	}
	return s.forget(ctx, forgetDeliveriesSQL, keep)
}

// ForgetUndelivered deletes deliveries that were not delivered and have not changed for longer than keep, and returns how many went.
func (s *Store) ForgetUndelivered(ctx context.Context, keep time.Duration) (int64, error) {
	return s.forget(ctx, forgetUndeliveredSQL, keep)
}

// forgetRuns deletes runs that have been over for longer than keep, with all that belongs to them, a few at a time. One of which something still
// has to be stopped stays.
func (s *Store) forgetRuns(ctx context.Context, keep time.Duration) error {
	const few = 20
	for n := int64(few); n == few; {
		tag, err := s.pool.Exec(ctx, `delete from dispatcher.team_runs where run_id in (
			select run_id from dispatcher.team_runs r where ended_at < now() - $1::interval
				and not exists (select from dispatcher.team_attempts a where a.run_id = r.run_id and a.owed)
			order by ended_at limit $2 for update skip locked
		)`, keep, few)
		if err != nil {
			return db.Fault(err)
		}
		n = tag.RowsAffected()
	}
	return nil
}

// ForgetEvents deletes events that are older than keep, except those of deliveries that are known and not delivered, and returns how many went.
func (s *Store) ForgetEvents(ctx context.Context, keep time.Duration) (int64, error) {
	return s.forget(ctx, forgetEventsSQL, keep)
}

// A death counts for a day at most, and the versions of a park that was lifted are of interest no longer than its deliveries.
const (
	forgetDeathsSQL = `
delete from dispatcher.deaths where (work_item, stamp) in (
	select work_item, stamp from dispatcher.deaths where seen_at < now() - $1::interval limit $2
)`
	forgetParksSQL = `
delete from dispatcher.parks where work_item in (
	select work_item from dispatcher.parks where lifted and since < now() - $1::interval limit $2
)`
)

// forget runs a statement, which takes the age and the size of a batch, until it finds no full one.
func (s *Store) forget(ctx context.Context, sql string, keep time.Duration) (all int64, err error) {
	for n := int64(forgetBatch); n == forgetBatch; all += n {
		tag, err := s.pool.Exec(ctx, sql, keep, forgetBatch)
		if err != nil {
			return all, db.Fault(err)
		}
		n = tag.RowsAffected()
	}
	return all, nil
}
