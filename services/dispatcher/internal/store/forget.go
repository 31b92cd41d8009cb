package store

import (
	"context"
	"time"

	"muxpost.dev/muxpost/db"
)

// forgetBatch is how many rows one statement deletes, so that none is locked for long.
const forgetBatch = 1000

// Only what was delivered is finished for the dispatcher: anything else may be asked for again, or a person may have to look at it.
const forgetDeliveriesSQL = `
delete from dispatcher.deliveries where delivery_id in (
	select delivery_id from dispatcher.deliveries
	where outcome = 'delivered' and created_at < now() - $1::interval and updated_at < now() - $1::interval
	order by created_at
	limit $2
	for update skip locked
)`

// What is told of a delivery is kept as long as the delivery is.
const forgetEventsSQL = `
with gone as (
	delete from dispatcher.events where seq in (
		select e.seq from dispatcher.events e
		where e.time < now() - $1::interval
			and not exists (select from dispatcher.deliveries d where d.delivery_id = e.delivery_id)
		order by e.seq
		limit $2
	)
	returning seq
), noted as (
	update dispatcher.events_forgotten set through = greatest(through, (select max(seq) from gone)) where exists (select from gone)
)
select seq from gone`

// Forget deletes deliveries that have been in their conversations for longer than keep, and the events that are as old and tell of no
// delivery that is still known. Sessions, leases and pauses stay. It returns how many deliveries and events went.
func (s *Store) Forget(ctx context.Context, keep time.Duration) (deliveries, events int64, err error) {
	for _, part := range []struct {
		sql   string
		count *int64
	}{{forgetDeliveriesSQL, &deliveries}, {forgetEventsSQL, &events}} {
		for n := int64(forgetBatch); n == forgetBatch; *part.count += n {
			tag, err := s.pool.Exec(ctx, part.sql, keep, forgetBatch)
			if err != nil {
				return deliveries, events, db.Fault(err)
			}
			n = tag.RowsAffected()
		}
	}
	return deliveries, events, nil
}
