package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"muxpost.dev/muxpost/core/ledger"
	"muxpost.dev/muxpost/db"
	"muxpost.dev/muxpost/services/poller/internal/metrics"
)

// figuresStatement reads all that is counted. Each part goes by an index that holds only what is on its way or needs a person, so that it
// costs the same however much the ledger has delivered.
//
// What is pending behind a pause is meant to wait: it is counted, and not asked how long it has.
const figuresStatement = heads + `, paused as (
  select e.work_item from poller.events e where e.id in (select id from heads) and e.reason = '` + ledger.ReasonPaused + `'
)
select 'events', e.state, count(*),
  coalesce(extract(epoch from clock_timestamp() - min(e.created_at) filter (where e.state <> 'pending' or p.work_item is null)), 0)::float8
from poller.events e left join paused p using (work_item) where e.state in ('pending', 'leased', 'held') group by 2
union all select 'events', 'gave_up', count(*), 0 from poller.events where state = 'gave_up'
union all select 'events', 'dropped', count(*), 0 from poller.events where state = 'dropped'
union all
select 'inbox', 'waiting', count(*), coalesce(extract(epoch from clock_timestamp() - min(received_at)), 0)::float8
from poller.hooks where state = 'waiting'
union all select 'inbox', 'failed', count(*), 0 from poller.hooks where state = 'failed'
union all
select 'outbox', '', count(*), coalesce(extract(epoch from clock_timestamp() - min(created_at)), 0)::float8
from poller.outbox where state = 'waiting'
union all
select 'received', s.source, 0, extract(epoch from clock_timestamp() - (select max(h.received_at) from poller.hooks h where h.source = s.source))::float8
from poller.hook_sources s where exists (select from poller.hooks h where h.source = s.source)
union all
select 'success', name, 0, extract(epoch from clock_timestamp() - last_success_at)::float8
from poller.sources where last_success_at is not null`

// Figures counts what there is, for metrics.
func (s *Store) Figures(ctx context.Context) (metrics.Figures, error) {
	out := metrics.Figures{Received: map[string]time.Duration{}, Success: map[string]time.Duration{}}
	rows, err := s.quiet.Query(ctx, figuresStatement)
	if err != nil {
		return out, db.Fault(err)
	}
	var what, name string
	var count int
	var seconds float64
	_, err = pgx.ForEachRow(rows, []any{&what, &name, &count, &seconds}, func() error {
		age := time.Duration(seconds * float64(time.Second))
		w := metrics.Waiting{State: name, Count: count, Oldest: age}
		switch what {
		case "events":
			out.Events = append(out.Events, w)
		case "inbox":
			out.Inbox = append(out.Inbox, w)
		case "outbox":
			out.Outbox = w
		case "received":
			out.Received[name] = age
		case "success":
			out.Success[name] = age
		}
		return nil
	})
	return out, db.Fault(err)
}
