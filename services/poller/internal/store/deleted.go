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
	args := pgx.NamedArgs{"item": r.WorkItem, "thread": "", "kinds": poll.PostKinds(), "listed": listed, "source": r.Source, "at": orNull(r.SeenAt),
		"gone": append([]string{}, r.Gone...)}
	if r.Pull != nil {
		args["thread"] = r.Item.NodeID
	}
	if _, err := exec(ctx, tx, `
update poller.events set missing_since = null
where work_item = @item and missing_since is not null and object_key = any(@listed)`, args); err != nil || !r.Complete {
		return err
	}
	if _, err := exec(ctx, tx, `
update poller.events set missing_since = @at
where work_item = @item and thread = @thread and kind = any(@kinds) and deleted_at is null and missing_since is null and object_key <> all(@listed)
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
		if _, err := deleteObject(ctx, tx, object); err != nil {
			return err
		}
	}
	return nil
}

// heardDeleted cancels or marks what is known to be gone. What is not in the ledger yet is written down as cancelled, so that what is
// heard of it later makes no event.
func heardDeleted(ctx context.Context, tx pgx.Tx, gone []poll.Event) error {
	for _, e := range gone {
		n, err := deleteObject(ctx, tx, poll.ObjectOf(e.Key))
		if err != nil {
			return err
		}
		if n > 0 {
			continue
		}
		e.State, e.Reason, e.Detail, e.Text, e.EditedText, e.Excerpt = ledger.Cancelled, ledger.ReasonDeleted, deletedDetail, "", "", ""
		if _, err := insert(ctx, tx, e); err != nil {
			return err
		}
	}
	return nil
}

// deleteObject marks all revisions of an object as deleted upstream, and returns how many there are.
func deleteObject(ctx context.Context, tx pgx.Tx, object string) (int, error) {
	versions, err := lockVersions(ctx, tx, object)
	if err != nil {
		return 0, err
	}
	for _, v := range versions {
		if v.deleted {
			continue
		}
		if err := deleted(ctx, tx, v); err != nil {
			return 0, err
		}
	}
	return len(versions), nil
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
