package store

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"muxpost.dev/muxpost/core/ledger"
	"muxpost.dev/muxpost/services/poller/internal/poll"
)

func supersededDetail(later string) string {
	return "it was edited upstream before it was delivered, and what it says now is " + later
}

// version is a row of an object, as the rules for a later revision need it.
type version struct {
	id       int64
	key      string
	revision string
	logged   logged
	revised  time.Time
	deleted  bool
	progress ledger.Progress
	earlier  poll.Earlier
}

// revise writes an event in the place of the earlier revisions of its object, and returns whether it is new. What an object said when
// it was last seen is not, nor what it said before that (readLate), nor anything of one that was deleted. Those that have not ended are cancelled.
func revise(ctx context.Context, tx pgx.Tx, e poll.Event) (bool, error) {
	object := poll.ObjectOf(e.Key)
	if object == "" {
		return insert(ctx, tx, e)
	}
	versions, err := lockVersions(ctx, tx, object)
	if err != nil {
		return false, err
	}
	if len(versions) == 0 {
		return insert(ctx, tx, e)
	}
	newest := versions[len(versions)-1]
	switch {
	case newest.revision == e.Key.Revision, newest.deleted, e.First, readLate(e, versions):
		return false, nil
	case newest.revision == "":
		_, err := exec(ctx, tx, `update poller.events set revision = @revision, revised_at = @revised where id = @id`,
			pgx.NamedArgs{"id": newest.id, "revision": e.Key.Revision, "revised": orNull(e.EditedAt)})
		return false, err
	}
	earlier, revision := make([]poll.Earlier, len(versions)), e.Key.Revision
	for i, v := range versions {
		earlier[i] = v.earlier
		if v.key == e.Key.String() {
			// It says again what it said before: the key of that is taken, and the delivery too.
			e.Key.Revision = revision + "." + strconv.Itoa(len(versions)+1)
		}
	}
	e.DeliveryID = ledger.DeliveryID(e.Key, e.WorkItem)
	if e.Unattested && e.State == ledger.Pending {
		e = poll.Settle(e, poll.ReasonEditor)
		e.Excerpt = "" // nor does it go along as the context of another one
	}
	edited := poll.Edited(earlier)
	if edited {
		e.Text, e.UpstreamAt = e.EditedText, e.EditedAt
	}
	for _, v := range versions {
		if err := supersede(ctx, tx, v, e.DeliveryID); err != nil {
			return false, err
		}
	}
	return insertRevision(ctx, tx, e, revision, edited)
}

// readLate reports whether an event is of what its object said before: a page that was read late, or of a replica that lags. What a review's
// verdict became has no time, so that of two at one time the one that is known already is the earlier.
func readLate(e poll.Event, versions []version) bool {
	newest := versions[len(versions)-1]
	switch {
	case e.Undated:
		return false
	case e.EditedAt.Before(newest.revised):
		return true
	case e.Kind != poll.KindReview || e.EditedAt.After(newest.revised):
		return false
	}
	return slices.ContainsFunc(versions, func(v version) bool { return v.revision == e.Key.Revision })
}

// lockVersions locks the rows of an object, the oldest first.
func lockVersions(ctx context.Context, tx pgx.Tx, object string) ([]version, error) {
	rows, err := tx.Query(ctx, `
select id, natural_key, revision, revised_at, deleted_at is not null, work_item, delivery_id, source, trace_id, kind, state, tries, budget, silences, reason, edited,
  unproven_since is not null
from poller.events
where object_key = @object
order by id
for update`, pgx.NamedArgs{"object": object})
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (v version, err error) {
		var state, kind string
		var unproven bool
		var revised *time.Time
		p, l := &v.progress, &v.logged
		if err = row.Scan(&v.id, &v.key, &v.revision, &revised, &v.deleted, &l.workItem, &l.deliveryID, &l.source, &l.traceID, &kind, &state, &p.Tries, &p.Budget,
			&p.Silences, &p.Reason, &v.earlier.Edited, &unproven); err != nil {
			return v, err
		}
		l.fields = map[string]string{"kind": kind}
		p.State, err = parseState(state)
		v.revised = deref(revised)
		v.earlier.State, v.earlier.Reason, v.earlier.Silent = p.State, p.Reason, unproven || p.Silences > 0
		return v, err
	})
}

// supersede marks a row with the delivery of the revision that is in its place, and cancels it where the rules say so.
func supersede(ctx context.Context, tx pgx.Tx, v version, later string) error {
	after := poll.Supersede(v.progress)
	if v.progress.State == ledger.Dropped {
		if err := giveBackOf(ctx, tx, v.id); err != nil {
			return err
		}
	}
	if after.State != ledger.Cancelled || v.progress.State == ledger.Cancelled {
		_, err := exec(ctx, tx, `update poller.events set superseded_by = @later where id = @id`,
			pgx.NamedArgs{"id": v.id, "later": later})
		return err
	}
	if err := cancel(ctx, tx, v.id, after, supersededDetail(later)); err != nil {
		return err
	}
	if _, err := exec(ctx, tx, `update poller.events set superseded_by = @later where id = @id`,
		pgx.NamedArgs{"id": v.id, "later": later}); err != nil {
		return err
	}
	v.logged.fields["reason"], v.logged.fields["by"] = after.Reason, later
	return write(ctx, tx, ledger.CommentCancelled, v.logged)
}

// cancel ends a row that is not leased. How it was asked about before stays on the record. What was a part of its text has its own turn again.
func cancel(ctx context.Context, tx pgx.Tx, id int64, after ledger.Progress, detail string) error {
	if err := giveBackOf(ctx, tx, id); err != nil {
		return err
	}
	_, err := exec(ctx, tx, `
update poller.events
set state = @state, reason = @reason, detail = @detail, next_look = null, unproven_since = null, held_since = null, armed_for = '',
  updated_at = clock_timestamp()
where id = @id`, pgx.NamedArgs{"id": id, "state": after.State.String(), "reason": after.Reason, "detail": detail})
	return err
}
