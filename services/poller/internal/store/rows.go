package store

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/ledger"
	"muxpost.dev/muxpost/core/workitem"
	"muxpost.dev/muxpost/db"
	"muxpost.dev/muxpost/services/poller/internal/poll"
)

const entryColumns = `id, delivery_id, work_item, source, kind, author, url, title, state, reason, detail, tries, budget, next_look,
  held_since, gave_up_versions, deleted_at, superseded_by, edited, upstream_at, created_at, updated_at, trace_id,
  coalesce((select p.place || '#' || p.number from poller.pulls p where p.node_id = e.thread and e.thread <> ''), ''), commit_sha, about,
  ahead_id, ahead_state, ahead_reason, ahead_detail`

// entryTables are where they come from: an event that waits has the one beside it that its item waits for, in the order of a claim.
const entryTables = ` from poller.events e
left join lateral (
  select w.id as ahead, w.delivery_id as ahead_id, w.state as ahead_state, w.reason as ahead_reason, w.detail as ahead_detail
  from poller.events w
  where w.work_item = e.work_item and w.state in ('pending', 'leased', 'held')
  order by (w.state = 'leased') desc, w.reason = '', w.upstream_at, w.upstream_order, w.id
  limit 1
) h on e.state in ('pending', 'leased', 'held') and h.ahead <> e.id`

// errDryRun takes back what a dry run wrote.
var errDryRun = errors.New("dry run")

// Submit writes an event by hand and returns its row, and whether it was there before. The same key with another work item, text
// or harness is fault.Conflict. With dryRun everything is taken back.
func (s *Store) Submit(ctx context.Context, e poll.Event, dryRun bool) (row poll.Entry, existed bool, err error) {
	ref, err := workitem.Parse(e.WorkItem)
	if err != nil {
		return poll.Entry{}, false, err
	}
	err = db.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		if err := itemByHand(ctx, tx, ref, e.Source); err != nil {
			return err
		}
		args := pgx.NamedArgs{"item": e.WorkItem, "key": e.Key.String()}
		if err := tx.QueryRow(ctx, `select coalesce(node_id, ''), title from poller.items where work_item = @item`, args).
			Scan(&e.NodeID, &e.Title); err != nil {
			return err
		}
		inserted, err := insert(ctx, tx, e)
		if err != nil {
			return err
		}
		existed = !inserted
		var text, harness string
		if err := tx.QueryRow(ctx, `select text, harness from poller.events where natural_key = @key`, args).Scan(&text, &harness); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, `select `+entryColumns+entryTables+` where natural_key = @key`, args)
		if err != nil {
			return err
		}
		if row, err = pgx.CollectExactlyOneRow(rows, scanEntry); err != nil {
			return err
		}
		if row.WorkItem != e.WorkItem || text != e.Text || harness != e.Harness {
			return fault.Newf(fault.Conflict, fault.ReasonDeliveryMismatch,
				"the idempotency key was used for another message, to %s (delivery %s)", row.WorkItem, row.DeliveryID).
				WithRemedy("choose another key for another message")
		}
		if dryRun {
			return errDryRun
		}
		return nil
	})
	if errors.Is(err, errDryRun) {
		err = nil
	}
	if err != nil {
		return poll.Entry{}, false, err
	}
	if !existed && !dryRun {
		s.meters.Taken.Add(ctx, 1, e.Source, e.Kind)
	}
	return row, existed, nil
}

// itemByHand makes the row of an item that nobody has seen yet. An item that is known under an older name is refused: by the new
// one it would get a second session.
func itemByHand(ctx context.Context, tx pgx.Tx, ref workitem.Ref, source string) error {
	args := pgx.NamedArgs{"item": ref.String(), "source": source, "place": poll.PlaceOf(ref), "number": ref.Number()}
	var known string
	err := tx.QueryRow(ctx, `
select work_item from poller.items where place = @place and number = @number
order by (work_item = @item) desc, closed_at desc nulls first limit 1`, args).Scan(&known)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		_, err = exec(ctx, tx, `
insert into poller.items (work_item, source, place, number) values (@item, @source, @place, @number) on conflict do nothing`, args)
	case err == nil && known != ref.String():
		return fault.Newf(fault.Conflict, fault.ReasonBadWorkItem, "%s is known as %s, the name it was first seen under", ref, known).
			WithRemedy("send it to " + known)
	}
	return err
}

func parseState(name string) (ledger.State, error) {
	state, known := ledger.ParseState(name)
	if !known {
		return state, fault.Newf(fault.Internal, fault.ReasonDatabase, "the ledger holds the state %q, which this build does not know", name)
	}
	return state, nil
}

func scanEntry(row pgx.CollectableRow) (poll.Entry, error) {
	var e poll.Entry
	var state string
	var next, held, deleted *time.Time
	var aheadID, aheadState, aheadReason, aheadDetail *string
	err := row.Scan(&e.ID, &e.DeliveryID, &e.WorkItem, &e.Source, &e.Kind, &e.Author, &e.URL, &e.Title, &state, &e.Reason, &e.Detail,
		&e.Tries, &e.Budget, &next, &held, &e.GaveUpVersions, &deleted, &e.SupersededBy, &e.Edited, &e.UpstreamAt, &e.CreatedAt, &e.UpdatedAt, &e.TraceID,
		&e.Pull, &e.Commit, &e.About, &aheadID, &aheadState, &aheadReason, &aheadDetail)
	if err != nil {
		return e, err
	}
	if e.State, err = parseState(state); err != nil {
		return e, err
	}
	if aheadID != nil {
		e.WaitsBehind = &poll.Ahead{DeliveryID: *aheadID, Reason: *aheadReason, Detail: *aheadDetail}
		if e.WaitsBehind.State, err = parseState(*aheadState); err != nil {
			return e, err
		}
	}
	e.HeldSince, e.DeletedAt = deref(held), deref(deleted)
	if e.State.Waits() {
		e.NextLook = deref(next)
	}
	if e.Kind == poll.KindMessage {
		e.UpstreamAt = time.Time{}
	}
	return e, nil
}
