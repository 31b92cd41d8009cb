package db

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"muxpost.dev/muxpost/core/fault"
)

// maxTries is how often InTx runs a transaction that keeps colliding with others.
const maxTries = 5

// firstPause is the longest wait before the second try; it doubles for each one after.
const firstPause = 10 * time.Millisecond

// idleLimit is how long a transaction may stand still between two statements. What it has locked others wait for, and of a client that was
// suspended, or whose machine lost power, the server would hear for hours only that it says nothing.
const idleLimit = 10 * time.Second

// Beginner starts transactions: a pool or a connection.
type Beginner interface {
	BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error)
}

// InTx runs fn in a transaction and commits it. When fn returns an error or panics, everything is rolled back. A transaction
// that the server ended because it collided with another (serialization failure, deadlock) is run again, five times in all,
// so fn must have no effect outside tx. One that stood still for ten seconds is ended by the server with all that it locked, so
// fn waits for nothing but the database; it is fault.Unavailable, and the connection is not used again. An error that came from
// the database is returned as Fault would; one that fn made itself is returned as it is. After fault.Unavailable it is not known
// whether the transaction took effect.
func InTx(ctx context.Context, pool Beginner, fn func(tx pgx.Tx) error) error {
	return inTx(ctx, pool, idleLimit, fn)
}

func inTx(ctx context.Context, pool Beginner, idle time.Duration, fn func(tx pgx.Tx) error) error {
	for try := 1; ; try++ {
		err := runTx(ctx, pool, idle, fn)
		if try == maxTries || !collided(err) {
			return Fault(err)
		}
		if err := pause(ctx, firstPause<<(try-1)); err != nil {
			return Fault(err)
		}
	}
}

func runTx(ctx context.Context, pool Beginner, idle time.Duration, fn func(tx pgx.Tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	tx, err := pool.BeginTx(ctx, pgx.TxOptions{BeginQuery: beginning(idle)})
	if err != nil {
		return beginFault(err)
	}
	// After a commit this does nothing. It also runs when fn panics, so that the connection goes back clean.
	defer func() { _ = tx.Rollback(ctx) }()
	if err := fn(tx); err != nil {
		return err
	}
	return tx.Commit(ctx)
}

// beginning begins a transaction with its limit, in one round trip. The limit is the transaction's: a pooler refuses what is asked for at the
// start of a connection, and hands on to others what stays with one.
func beginning(idle time.Duration) string {
	return "begin transaction; set local " + idleSetting(idle)
}

func idleSetting(limit time.Duration) string {
	return fmt.Sprintf("idle_in_transaction_session_timeout = %d", limit.Milliseconds())
}

// beginFault tells a wait for the pool from a wait for the server. Only the first ends in the context's own error: what
// happens on a connection comes wrapped by pgconn.
func beginFault(err error) error {
	var onConn *pgconn.ConnectError
	if !errors.Is(err, context.DeadlineExceeded) || pgconn.Timeout(err) || errors.As(err, &onConn) {
		return err
	}
	return fault.Wrap(fault.Unavailable, fault.ReasonDatabase, "every connection of the pool was busy until the time was up", err).
		WithRemedy("raise the pool's size, or look for transactions that stay open in pg_stat_activity")
}

func collided(err error) bool {
	switch SQLState(err) {
	case "40001", "40P01":
		return true
	}
	return false
}

// pause waits a random part of at most, so that two transactions that collided do not meet again in step.
func pause(ctx context.Context, atMost time.Duration) error {
	timer := time.NewTimer(rand.N(atMost)) //nolint:gosec // jitter is no secret
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
