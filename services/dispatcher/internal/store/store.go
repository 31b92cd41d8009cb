// Package store keeps the dispatcher's records in Postgres: which session owns which work item, the deliveries with their outcomes,
// the leases with their fencing tokens, and the events that people follow.
//
// Each change is one statement, so it happens whole or not at all, and no client can stop in the middle of one. All times are on
// the database's clock. A change under a lease names its token and changes nothing once another holder has taken it.
//
// It decides nothing, and knows nothing of hosts or of the wire.
package store

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"muxpost.dev/muxpost/core/dispatch"
	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/lease"
	"muxpost.dev/muxpost/db"
	"muxpost.dev/muxpost/services/dispatcher/internal/deliver"
)

// Store is the dispatcher's schema in one database. It may be used by many goroutines.
type Store struct{ pool *pgxpool.Pool }

var _ deliver.Store = (*Store)(nil)

// New returns a store on a pool, which stays the caller's.
func New(pool *pgxpool.Pool) *Store { return &Store{pool} }

// Ping reports whether the database answers; if not, it is fault.Unavailable.
func (s *Store) Ping(ctx context.Context) error {
	_, err := s.pool.Exec(ctx, "select 1")
	return db.Fault(err)
}

const deliveryColumns = `delivery_id, work_item, node_id, kind, fingerprint, harness, outcome, reason, detail, remedy, how, host,
	target, conversation_id, asked, traceparent, trace_id, steps, created_at, updated_at`

const beginSQL = `
with d as (
	insert into dispatcher.deliveries as old (delivery_id, work_item, node_id, kind, fingerprint, harness, outcome, reason, detail,
		target, traceparent, trace_id)
	values (@delivery_id, @work_item, @node_id, @kind, @fingerprint, @harness, @outcome, @reason, @detail, @target, @traceparent, @trace_id)
	on conflict (delivery_id) do update set asked = old.asked + 1 where old.fingerprint = excluded.fingerprint
	returning *
), told as (
	insert into dispatcher.events (type, work_item, delivery_id, fields, trace_id)
	select @type, d.work_item, d.delivery_id, @fields::jsonb, d.trace_id from d where d.asked = 1
)
select ` + deliveryColumns + ` from d`

// Begin inserts a delivery that was not asked for before, with its event, or counts one more ask and returns the delivery as it stands, with the
// pauses that hold its work item back, that of all first: in one round trip. Another fingerprint under the same id is fault.Conflict,
// ReasonDeliveryMismatch.
func (s *Store) Begin(ctx context.Context, d deliver.Delivery, queued deliver.Event) (found deliver.Delivery, pauses []deliver.Pause, err error) {
	fields, err := json.Marshal(queued.Fields)
	if err != nil {
		return found, nil, fault.Wrap(fault.Internal, "", "the fields of an event cannot be written", err)
	}
	var batch pgx.Batch
	batch.Queue(pausedSQL, d.WorkItem).Query(func(rows pgx.Rows) (err error) {
		pauses, err = pgx.CollectRows(rows, scanPause)
		return err
	})
	// Its event comes last: from there to the end of the batch no other writer of events has a turn.
	batch.Queue(beginSQL, pgx.NamedArgs{
		"delivery_id": d.ID, "work_item": d.WorkItem, "node_id": d.NodeID, "kind": string(d.Kind), "fingerprint": d.Fingerprint[:],
		"harness": d.Harness, "outcome": d.Outcome.String(), "reason": string(d.Reason), "detail": d.Detail, "target": d.Target,
		"traceparent": d.Traceparent, "trace_id": d.TraceID, "type": string(queued.Type), "fields": string(fields),
	}).Query(func(rows pgx.Rows) (err error) {
		found, err = pgx.CollectExactlyOneRow(rows, scanDelivery)
		return err
	})
	err = db.Fault(s.pool.SendBatch(ctx, &batch).Close())
	if errors.Is(err, fault.NotFound) {
		err = fault.Newf(fault.Conflict, fault.ReasonDeliveryMismatch,
			"the delivery %s is known already, with another work item, kind or text", d.ID).
			WithRemedy("use an id of its own for each event")
	}
	return found, pauses, err
}

// The token is drawn in the update as well, once the row is locked: one that was drawn before the wait could be older than that of
// a lease which came and went meanwhile.
const takeLeaseSQL = `
insert into dispatcher.leases as l (work_item, holder, token, until)
values (@work_item, @holder, dispatcher.next_token(), clock_timestamp() + @time::interval)
on conflict (work_item) do update
set holder = excluded.holder, token = dispatcher.next_token(), until = clock_timestamp() + @time::interval
where l.holder = '' or l.until <= clock_timestamp() or l.holder = excluded.holder
returning holder, token, until`

// TakeLease takes the lease of a work item with a new token, by the rule of lease.MayTake; false when another holder has it.
func (s *Store) TakeLease(ctx context.Context, workItem, holder string) (lease.Lease, bool, error) {
	l, err := one(s, ctx, takeLeaseSQL, scanLease, pgx.NamedArgs{"work_item": workItem, "holder": holder, "time": lease.Time})
	if errors.Is(err, fault.NotFound) {
		return lease.Lease{}, false, nil
	}
	return l, err == nil, err
}

const lookSQL = `
select ` + deliveryColumns + ` from dispatcher.deliveries where delivery_id = @delivery_id`

// Look returns what is recorded of a work item and of a delivery of it, as they stand, in one round trip.
func (s *Store) Look(ctx context.Context, workItem, deliveryID string) (known deliver.Known, err error) {
	err = s.known(ctx, &known, workItem, deliveryID)
	if errors.Is(err, fault.NotFound) {
		err = errNoDelivery(deliveryID)
	}
	return known, err
}

// Recorded returns what is recorded of a work item, without a delivery.
func (s *Store) Recorded(ctx context.Context, workItem string) (known deliver.Known, err error) {
	err = s.known(ctx, &known, workItem, "")
	return known, err
}

// known fills in the delivery, if one is named, the session of the item, or whose the name is that it would have, the order to end it that
// waits, and which hosts the item was moved away from.
func (s *Store) known(ctx context.Context, into *deliver.Known, workItem, deliveryID string) error {
	args := pgx.NamedArgs{"work_item": workItem, "delivery_id": deliveryID}
	var batch pgx.Batch
	if deliveryID != "" {
		batch.Queue(lookSQL, args).Query(func(rows pgx.Rows) (err error) {
			into.Delivery, err = pgx.CollectExactlyOneRow(rows, scanDelivery)
			return err
		})
	}
	// Names are unique, so these are two rows at most.
	batch.Queue("select "+sessionColumns+` from dispatcher.sessions where work_item = @work_item
		or target = (select target from dispatcher.deliveries where delivery_id = @delivery_id)`, args).Query(func(rows pgx.Rows) error {
		found, err := pgx.CollectRows(rows, oneSession)
		for _, record := range found {
			if record.WorkItem == workItem {
				into.Session, into.TargetOf = &record, ""
				break
			}
			into.TargetOf = record.WorkItem
		}
		return err
	})
	batch.Queue("select "+endingColumns+" from dispatcher.endings where work_item = @work_item", args).Query(func(rows pgx.Rows) error {
		found, err := pgx.CollectRows(rows, scanEnding)
		for _, e := range found {
			into.Ending = &e
		}
		return err
	})
	batch.Queue("select host from dispatcher.superseded where work_item = @work_item order by host", args).Query(func(rows pgx.Rows) (err error) {
		into.Left, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	return db.Fault(s.pool.SendBatch(ctx, &batch).Close())
}

// Release gives a lease back if its token is still the item's.
func (s *Store) Release(ctx context.Context, workItem string, l lease.Lease) error {
	_, err := s.pool.Exec(ctx, `update dispatcher.leases set holder = '', until = clock_timestamp()
		where work_item = $1 and token = $2 and holder <> ''`, workItem, l.Token)
	return db.Fault(err)
}

// The lock is next_token's, and is held until the end of the statement: nobody draws between the raising and the token drawn here.
const raiseSQL = `
with turn as materialized (
	select pg_advisory_xact_lock('dispatcher.fencing_token'::regclass::bigint)
), raised as materialized (
	select setval('dispatcher.fencing_token', greatest(nextval('dispatcher.fencing_token'), $1::bigint)) from turn
)
select dispatcher.next_token() from raised`

// RaiseToken makes every later token greater than above, and draws one that no lease has: all before it are lower, all after it higher.
// It waits for whoever draws one, until that is committed, and for nobody else.
func (s *Store) RaiseToken(ctx context.Context, above int64) (drawn int64, err error) {
	return one(s, ctx, raiseSQL, pgx.RowTo[int64], above)
}

// one runs a statement that returns a row at most; none is fault.NotFound.
func one[T any](s *Store, ctx context.Context, sql string, scan pgx.RowToFunc[T], args ...any) (T, error) {
	rows, err := s.pool.Query(ctx, sql, args...)
	if err != nil {
		var none T
		return none, db.Fault(err)
	}
	out, err := pgx.CollectExactlyOneRow(rows, scan)
	return out, db.Fault(err)
}

func many[T any](s *Store, ctx context.Context, sql string, scan pgx.RowToFunc[T], args ...any) ([]T, error) {
	rows, err := s.pool.Query(ctx, sql, args...)
	if err != nil {
		return nil, db.Fault(err)
	}
	out, err := pgx.CollectRows(rows, scan)
	return out, db.Fault(err)
}

func scanLease(row pgx.CollectableRow) (l lease.Lease, err error) {
	err = row.Scan(&l.Holder, &l.Token, &l.Until)
	return l, err
}

func scanDelivery(row pgx.CollectableRow) (d deliver.Delivery, err error) {
	var fingerprint []byte
	var outcome string
	err = row.Scan(&d.ID, &d.WorkItem, &d.NodeID, &d.Kind, &fingerprint, &d.Harness, &outcome, &d.Reason, &d.Detail, &d.Remedy, &d.How,
		&d.Host, &d.Target, &d.ConversationID, &d.Asked, &d.Traceparent, &d.TraceID, &d.Steps, &d.CreatedAt, &d.UpdatedAt)
	if err != nil {
		return d, err
	}
	var known bool
	if d.Outcome, known = dispatch.ParseOutcome(outcome); !known || len(fingerprint) != len(d.Fingerprint) {
		return d, fault.Newf(fault.Internal, fault.ReasonDatabase, "the record of the delivery %s cannot be read", d.ID)
	}
	d.Fingerprint = [32]byte(fingerprint)
	return d, nil
}

const sessionColumns = `work_item, node_id, target, host, harness, conversation_id, lineage, stamp, session_id, pane_id, pane_pid,
	server_pid, server_started, socket_path, directory, closed, created_at, updated_at`

func oneSession(row pgx.CollectableRow) (deliver.Session, error) { return scanSession(row) }

// scanSession reads a session, and further columns behind it into more.
func scanSession(row pgx.CollectableRow, more ...any) (s deliver.Session, err error) {
	i := &s.Incarnation
	var started *time.Time
	err = row.Scan(append([]any{&s.WorkItem, &s.NodeID, &s.Target, &s.Host, &s.Harness, &s.ConversationID, &s.Lineage, &i.Stamp, &i.SessionID, &i.PaneID,
		&i.PanePID, &i.ServerPID, &started, &s.SocketPath, &s.Directory, &s.Closed, &s.CreatedAt, &s.UpdatedAt}, more...)...)
	if started != nil {
		i.ServerStarted = *started
	}
	return s, err
}
