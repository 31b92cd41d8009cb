package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"muxpost.dev/muxpost/services/dispatcher/internal/metrics"
)

// figuresSQL reads all that is counted, in one statement. Deliveries that were delivered or dropped are left to their index.
const figuresSQL = `
select 'sessions', s.host, coalesce(a.activity, ''), count(*), 0
from dispatcher.sessions s left join dispatcher.activities a on a.work_item = s.work_item and a.host = s.host and a.stamp = s.stamp
where not s.closed group by 2, 3
union all
select 'waiting', outcome, reason, count(*), extract(epoch from clock_timestamp() - min(created_at))::float8
from dispatcher.deliveries where outcome <> 'delivered' and outcome in ('in_progress', 'held', 'waiting', 'failed', 'unconfirmed') group by 2, 3
union all select 'parked', '', '', count(*), 0 from dispatcher.parks where not lifted
union all select 'paused', case when work_item = '' then 'all' else 'item' end, '', count(*), 0 from dispatcher.pauses group by 2
union all select 'endings', '', '', count(*), 0 from dispatcher.endings`

// Figures counts what there is, for metrics.
func (s *Store) Figures(ctx context.Context) (out metrics.Figures, err error) {
	type figure struct {
		what, a, b string
		count      int
		age        float64
	}
	rows, err := many(s, ctx, figuresSQL, func(row pgx.CollectableRow) (f figure, err error) {
		err = row.Scan(&f.what, &f.a, &f.b, &f.count, &f.age)
		return f, err
	})
	for _, f := range rows {
		switch f.what {
		case "sessions":
			out.Sessions = append(out.Sessions, metrics.Sessions{Host: f.a, Activity: f.b, Count: f.count})
		case "waiting":
			out.Waiting = append(out.Waiting, metrics.Waiting{Outcome: f.a, Reason: f.b, Count: f.count, Oldest: time.Duration(f.age * float64(time.Second))})
		case "parked":
			out.Parked = f.count
		case "paused":
			if f.a == "all" {
				out.PausedAll = f.count
			} else {
				out.PausedItems = f.count
			}
		case "endings":
			out.Endings = f.count
		}
	}
	return out, err
}
