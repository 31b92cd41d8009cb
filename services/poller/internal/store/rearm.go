package store

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"muxpost.dev/muxpost/core/ledger"
	"muxpost.dev/muxpost/db"
	"muxpost.dev/muxpost/services/poller/internal/rearm"
)

// rearmable is an event that may be tried again, as the rule for it needs it.
type rearmable struct {
	id                           int64
	workItem, deliveryID, source string
	progress                     ledger.Progress
	record                       []string
	now                          time.Time
}

// Rearm gives the events of items that gave up a new budget, and has those that were dropped because of an occupied name tried again, where
// the running version had no part in that; it returns the items that had any. Each is written down as one event to follow.
func (s *Store) Rearm(ctx context.Context, items []string, running ledger.Version) (done []rearm.Done, err error) {
	if len(items) == 0 || !running.Rearms {
		return nil, nil
	}
	err = db.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		done = nil
		events, err := lockRearmable(ctx, tx, items)
		if err != nil {
			return err
		}
		for _, e := range events {
			after, record, ok := ledger.Rearm(e.progress, e.record, running, e.now)
			if !ok {
				continue
			}
			if _, err := exec(ctx, tx, `
update poller.events
set state = @state, reason = @reason, detail = '', tries = @tries, silences = 0, unproven_since = null, held_since = null,
  next_look = @next, gave_up_versions = @record, armed_for = @version, updated_at = clock_timestamp()
where id = @id`, pgx.NamedArgs{
				"id": e.id, "state": after.State.String(), "reason": after.Reason, "tries": after.Tries, "next": after.NextLook,
				"record": record, "version": running.Name,
			}); err != nil {
				return err
			}
			done = add(done, e)
		}
		for _, d := range done {
			if err := write(ctx, tx, ledger.Rearmed, logged{workItem: d.WorkItem, source: d.Source, fields: map[string]string{
				"comments": strings.Join(d.Comments, " "), "recorded_versions": strings.Join(d.RecordedVersions, "; "), "version": running.Name,
			}}); err != nil {
				return err
			}
		}
		if len(done) > 0 {
			_, err = exec(ctx, tx, `select pg_notify(@channel, '')`, pgx.NamedArgs{"channel": channel})
		}
		return err
	})
	return done, err
}

// lockRearmable locks the events of items that may be tried again, an item's together.
func lockRearmable(ctx context.Context, tx pgx.Tx, items []string) ([]rearmable, error) {
	rows, err := tx.Query(ctx, `
select id, work_item, delivery_id, source, state, tries, budget, reason, gave_up_versions, clock_timestamp()
from poller.events
where work_item = any(@items) and deleted_at is null and superseded_by = ''
  and (state = 'gave_up' or state = 'dropped' and reason = @occupied)
order by work_item, id
for update`, pgx.NamedArgs{"items": items, "occupied": ledger.ReasonSessionOccupied})
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (e rearmable, err error) {
		var state string
		p := &e.progress
		err = row.Scan(&e.id, &e.workItem, &e.deliveryID, &e.source, &state, &p.Tries, &p.Budget, &p.Reason, &e.record, &e.now)
		p.State, _ = ledger.ParseState(state)
		return e, err
	})
}

// add puts an event to its item's others.
func add(done []rearm.Done, e rearmable) []rearm.Done {
	if n := len(done); n == 0 || done[n-1].WorkItem != e.workItem {
		done = append(done, rearm.Done{WorkItem: e.workItem, Source: e.source})
	}
	last := &done[len(done)-1]
	last.Comments = append(last.Comments, e.deliveryID)
	versions := slices.Sorted(slices.Values(slices.Concat(last.RecordedVersions, e.record)))
	last.RecordedVersions = slices.Compact(versions)
	return done
}
