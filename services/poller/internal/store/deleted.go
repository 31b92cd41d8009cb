package store

import (
	"context"

	"github.com/jackc/pgx/v5"

	"muxpost.dev/muxpost/core/ledger"
	"muxpost.dev/muxpost/services/poller/internal/poll"
)

// deletedDetail explains a cancelled event to a person.
const deletedDetail = "it was deleted upstream before it was delivered"

// missing keeps which comments of an item are missing from complete listings, and cancels or marks those that are gone. Only what was
// in the ledger when the look began can be missed: what came in since, by another way, may be newer than what was listed.
func missing(ctx context.Context, tx pgx.Tx, r poll.Record) error {
	listed := []string{}
	for _, e := range r.Events {
		if object := poll.ObjectOf(e.Key); object != "" {
			listed = append(listed, object)
		}
	}
	args := pgx.NamedArgs{"item": r.WorkItem, "kind": poll.KindComment, "listed": listed, "source": r.Source, "at": orNull(r.SeenAt),
		"gone": append([]string{}, r.Gone...)}
	if _, err := exec(ctx, tx, `
update poller.events set missing_since = null
where work_item = @item and missing_since is not null and object_key = any(@listed)`, args); err != nil || !r.Complete {
		return err
	}
	if _, err := exec(ctx, tx, `
update poller.events set missing_since = @at
where work_item = @item and kind = @kind and deleted_at is null and missing_since is null and object_key <> all(@listed)
  and created_at < (select last_look_at from poller.sources where name = @source)`, args); err != nil {
		return err
	}
	return cancelGone(ctx, tx, args)
}

// cancelGone cancels what is gone and has not ended, and marks the rest of it.
func cancelGone(ctx context.Context, tx pgx.Tx, args pgx.NamedArgs) error {
	rows, err := tx.Query(ctx, `
select distinct object_key from poller.events
where work_item = @item and deleted_at is null and missing_since is not null and object_key = any(@gone)`, args)
	if err != nil {
		return err
	}
	objects, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	for _, object := range objects {
		versions, err := lockVersions(ctx, tx, object)
		if err != nil {
			return err
		}
		for _, v := range versions {
			if err := deleted(ctx, tx, v); err != nil {
				return err
			}
		}
	}
	return nil
}

func deleted(ctx context.Context, tx pgx.Tx, v version) error {
	if _, err := exec(ctx, tx, `update poller.events set deleted_at = clock_timestamp() where id = @id`, pgx.NamedArgs{"id": v.id}); err != nil {
		return err
	}
	if v.progress.State == ledger.Dropped {
		return giveBackOf(ctx, tx, v.id)
	}
	after := ledger.Cancel(v.progress)
	if after.State != ledger.Cancelled || v.progress.State == ledger.Cancelled {
		return nil
	}
	if err := cancel(ctx, tx, v.id, after, deletedDetail); err != nil {
		return err
	}
	return write(ctx, tx, ledger.CommentCancelled, v.logged)
}
