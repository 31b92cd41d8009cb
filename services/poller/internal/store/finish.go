package store

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"muxpost.dev/muxpost/core/ledger"
	"muxpost.dev/muxpost/db"
	"muxpost.dev/muxpost/services/poller/internal/forward"
	"muxpost.dev/muxpost/services/poller/internal/notify"
	"muxpost.dev/muxpost/services/poller/internal/poll"
)

// leased is an event whose claim is about to end.
type leased struct {
	forward.Claim

	source   string
	traceID  string
	progress ledger.Progress
	record   []string
	armedFor string
	deleted  bool
	// later is the delivery of a later revision; empty when there is none.
	later string
	// stale is true of a result of CI at a commit that is not the head any more.
	stale bool
	now   time.Time
}

// Finish ends a claim with what next makes of the event's progress and the database's time. What is to be followed and what is to
// be told upstream is written with it. An event that was deleted upstream meanwhile and would wait on is cancelled. A lease that was
// lost is fault.Fenced.
func (s *Store) Finish(ctx context.Context, c forward.Claim, o forward.Outcome,
	next func(ledger.Progress, time.Time) ledger.Progress) (before, after ledger.Progress, err error) {
	err = db.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		e, err := lock(ctx, tx, c)
		if err != nil {
			return err
		}
		before = e.progress
		answered := next(e.progress, e.now)
		var detail string
		after, detail = e.cancel(answered, o.Detail)
		if after.State == ledger.Cancelled || after.State == ledger.Dropped && (e.deleted || e.later != "") {
			if err := giveBack(ctx, tx, e.DeliveryID, !answered.UnprovenSince.IsZero(), answered.Silences > 0); err != nil {
				return err
			}
		}
		if after.Rearmable() {
			if o.Version.Name == "" {
				o.Version = s.version() // nobody said who took part
			}
			e.record = ledger.AddVersion(e.record, o.Version)
		}
		if err := s.end(ctx, tx, e, after, clean(detail)); err != nil {
			return err
		}
		if err := s.logEnd(ctx, tx, e, after); err != nil {
			return err
		}
		if after.State == ledger.Delivered {
			if err := contextGiven(ctx, tx, e); err != nil {
				return err
			}
			if err := s.postStarted(ctx, tx, e, o); err != nil {
				return err
			}
		}
		return s.post(ctx, tx, e.source, c.ID, ledger.Posts(after, e.now), notify.Words{})
	})
	return before, after, err
}

// lock reads the event of a claim that stands.
func lock(ctx context.Context, tx pgx.Tx, c forward.Claim) (leased, error) {
	e := leased{Claim: c, progress: ledger.Progress{State: ledger.Leased}}
	p := &e.progress
	var unproven, held *time.Time
	err := tx.QueryRow(ctx, `
select source, trace_id, tries, budget, silences, unproven_since, held_since, reason, gave_up_versions, armed_for,
  deleted_at is not null, superseded_by, stale_at is not null, clock_timestamp()
from poller.events where id = @id and state = 'leased' and lease_holder = @lease
for update`, pgx.NamedArgs{"id": c.ID, "lease": c.Lease}).Scan(&e.source, &e.traceID, &p.Tries, &p.Budget, &p.Silences, &unproven, &held,
		&p.Reason, &e.record, &e.armedFor, &e.deleted, &e.later, &e.stale, &e.now)
	p.UnprovenSince, p.HeldSince = deref(unproven), deref(held)
	return e, leaseLost(err)
}

// cancel ends an event that would wait on, when it was deleted or edited upstream while it was leased.
func (e leased) cancel(p ledger.Progress, detail string) (after ledger.Progress, why string) {
	switch {
	case e.deleted:
		after, why = ledger.Cancel(p), deletedDetail
	case e.later != "":
		after, why = poll.Supersede(p), supersededDetail(e.later)
	case e.stale:
		after, why = poll.Supersede(p), poll.StaleDetail("")
	}
	if after.State != ledger.Cancelled {
		return p, detail
	}
	return after, why
}

// end writes what became of a claim. One that waits on for the same reason has not changed: people ask since when it does.
func (s *Store) end(ctx context.Context, tx pgx.Tx, e leased, after ledger.Progress, detail string) error {
	armedFor := e.armedFor
	if !after.State.Waits() {
		armedFor = ""
	}
	_, err := exec(ctx, tx, `
update poller.events
set state = @state, reason = @reason, detail = @detail, tries = @tries, silences = @silences, unproven_since = @unproven,
  held_since = @held, next_look = @next, gave_up_versions = @record, armed_for = @armed, lease_holder = null, lease_until = null,
  updated_at = case when reason = @reason and @state in ('pending', 'held') then updated_at else clock_timestamp() end
where id = @id`, pgx.NamedArgs{
		"id": e.ID, "state": after.State.String(), "reason": after.Reason, "detail": detail, "tries": after.Tries,
		"silences": after.Silences, "unproven": orNull(after.UnprovenSince), "held": orNull(after.HeldSince), "next": orNull(after.NextLook),
		"record": e.record, "armed": armedFor,
	})
	return err
}

// logEnd writes down that an event gave up, or was cancelled after all.
func (s *Store) logEnd(ctx context.Context, tx pgx.Tx, e leased, after ledger.Progress) error {
	l := logged{workItem: e.WorkItem, deliveryID: e.DeliveryID, source: e.source, traceID: e.traceID}
	l.fields = map[string]string{"kind": e.Kind}
	switch after.State {
	case ledger.GaveUp:
		l.fields["reason"], l.fields["tries"] = after.Reason, strconv.Itoa(after.Tries)
		l.fields["versions"] = strings.Join(e.record, "; ")
		return write(ctx, tx, ledger.CommentFailed, l)
	case ledger.Cancelled:
		if after.Reason == poll.ReasonSuperseded {
			l.fields["reason"], l.fields["by"] = after.Reason, e.later
		}
		return write(ctx, tx, ledger.CommentCancelled, l)
	case ledger.Pending, ledger.Leased, ledger.Held, ledger.Delivered, ledger.Settled, ledger.Dropped:
	}
	return nil
}

// Release gives a claim back: the event is due at once, and nothing else about it changes, unless it was deleted upstream meanwhile.
// A lease that was lost is fault.Fenced.
func (s *Store) Release(ctx context.Context, c forward.Claim) error {
	return db.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		e, err := lock(ctx, tx, c)
		if err != nil {
			return err
		}
		p := e.progress
		p.State = ledger.Pending
		if p, detail := e.cancel(p, ""); p.State == ledger.Cancelled {
			// It may be in the hands of a run that never said what came of it.
			if err := giveBack(ctx, tx, e.DeliveryID, !e.progress.UnprovenSince.IsZero(), true); err != nil {
				return err
			}
			if err := s.end(ctx, tx, e, p, detail); err != nil {
				return err
			}
			return s.logEnd(ctx, tx, e, p)
		}
		_, err = exec(ctx, tx, `
update poller.events set state = 'pending', next_look = now(), lease_holder = null, lease_until = null where id = @id`,
			pgx.NamedArgs{"id": c.ID})
		return err
	})
}
