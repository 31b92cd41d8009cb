package db_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/db"
	"muxpost.dev/muxpost/db/dbtest"
)

func TestInTx_CommitsOrRollsBackAsAWhole(t *testing.T) {
	pool := dbtest.NewEmpty(t)
	must(t, run(t, pool, "create table t (n int primary key)"))
	insert := func(n int, then func(tx pgx.Tx) error) error {
		return db.InTx(t.Context(), pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(t.Context(), "insert into t values ($1)", n); err != nil {
				return err
			}
			return then(tx)
		})
	}
	must(t, insert(1, func(pgx.Tx) error { return nil }))
	own := errors.New("own")
	if err := insert(2, func(pgx.Tx) error { return own }); err != own {
		t.Errorf("fn's own error became %v", err)
	}
	says(t, insert(1, nil), fault.AlreadyExists, "")
	func() {
		defer func() { _ = recover() }()
		_ = insert(3, func(pgx.Tx) error { panic("no") })
	}()
	says(t, insert(4, func(tx pgx.Tx) error {
		_, _ = tx.Exec(t.Context(), "no statement")
		return nil
	}), fault.Internal, fault.ReasonDatabase, "passed over")
	var n int
	must(t, pool.QueryRow(t.Context(), "select count(*) from t").Scan(&n))
	if n != 1 {
		t.Errorf("%d rows are there, want the one that was committed", n)
	}
	if got := pool.Stat().AcquiredConns(); got != 0 {
		t.Errorf("%d connections were kept", got)
	}
}

func TestInTx_RunsASerializationFailureAgain(t *testing.T) {
	pool := dbtest.NewEmpty(t)
	must(t, run(t, pool, "create table counter (n int); insert into counter values (0)"))
	const workers, each = 4, 5
	var mu sync.Mutex
	runs := 0
	var wg sync.WaitGroup
	failed := 0
	for range workers {
		wg.Go(func() {
			for range each {
				err := db.InTx(t.Context(), pool, func(tx pgx.Tx) error {
					mu.Lock()
					runs++
					mu.Unlock()
					var n int
					if _, err := tx.Exec(t.Context(), "set transaction isolation level serializable"); err != nil {
						return err
					}
					if err := tx.QueryRow(t.Context(), "select n from counter").Scan(&n); err != nil {
						return err
					}
					_, err := tx.Exec(t.Context(), "update counter set n = $1", n+1)
					return db.Fault(err) // a store that has mapped the error already is tried again as well
				})
				if err != nil {
					mu.Lock()
					failed++
					mu.Unlock()
					says(t, err, fault.Unavailable, fault.ReasonDatabase, "collided")
				}
			}
		})
	}
	wg.Wait()
	var n int
	must(t, pool.QueryRow(t.Context(), "select n from counter").Scan(&n))
	if n != workers*each-failed {
		t.Errorf("the counter is %d after %d transactions of which %d failed", n, workers*each, failed)
	}
	t.Logf("%d transactions took %d runs, %d gave up", workers*each, runs, failed)
}

func TestInTx_RunsTheVictimOfADeadlockAgain(t *testing.T) {
	pool := dbtest.NewEmpty(t)
	must(t, run(t, pool, "create table t (id int primary key, n int); insert into t values (1, 0), (2, 0)"))
	// Each takes its first row, waits once until the other has taken its own, and then wants that one.
	var met sync.WaitGroup
	met.Add(2)
	cross := func(first, second int) (int, error) {
		runs := 0
		err := db.InTx(t.Context(), pool, func(tx pgx.Tx) error {
			runs++
			if _, err := tx.Exec(t.Context(), "update t set n = n + 1 where id = $1", first); err != nil {
				return err
			}
			if runs == 1 {
				met.Done()
				met.Wait()
			}
			_, err := tx.Exec(t.Context(), "update t set n = n + 1 where id = $1", second)
			return err
		})
		return runs, err
	}
	type result struct {
		runs int
		err  error
	}
	results := make(chan result)
	for _, order := range [][2]int{{1, 2}, {2, 1}} {
		go func() {
			runs, err := cross(order[0], order[1])
			results <- result{runs, err}
		}()
	}
	total := 0
	for range 2 {
		r := <-results
		must(t, r.err)
		total += r.runs
	}
	if total != 3 {
		t.Errorf("two transactions took %d runs, want 3: one of them was the victim once", total)
	}
	var sum int
	must(t, pool.QueryRow(t.Context(), "select sum(n) from t").Scan(&sum))
	if sum != 4 {
		t.Errorf("the rows add up to %d, want 4", sum)
	}
}

func TestInTx_GivesUpAfterFiveTries(t *testing.T) {
	pool := dbtest.NewEmpty(t)
	runs := 0
	err := db.InTx(t.Context(), pool, func(tx pgx.Tx) error {
		runs++
		_, err := tx.Exec(t.Context(), "do $$ begin raise deadlock_detected; end $$")
		return err
	})
	says(t, err, fault.Unavailable, fault.ReasonDatabase, "collided")
	if runs != 5 {
		t.Errorf("it ran %d times", runs)
	}
}

func TestInTx_ABusyPoolIsTheDatabasesFaultAndAPassedDeadlineIsNot(t *testing.T) {
	pool, err := db.Open(t.Context(), db.Config{URL: dbtest.NewEmptyURL(t), MaxConns: 1})
	must(t, err)
	defer pool.Close()
	held, err := pool.Acquire(t.Context())
	must(t, err)
	defer held.Release()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	nothing := func(pgx.Tx) error { return nil }
	says(t, db.InTx(ctx, pool, nothing), fault.Unavailable, fault.ReasonDatabase, "every connection of the pool was busy")
	says(t, db.InTx(ctx, pool, nothing), fault.Unavailable, fault.ReasonDeadline)
}

// A client that stops in the middle, as one that is suspended does, must not hold the others up until TCP gives it up.
func TestInTx_OneThatStandsStillIsEndedAndLetsTheOthersThrough(t *testing.T) {
	pool := dbtest.NewEmpty(t)
	must(t, run(t, pool, "create table t (n int)"))
	const turn = "select pg_advisory_xact_lock(7)"
	holds, goOn := make(chan struct{}), make(chan struct{})
	resume := sync.OnceFunc(func() { close(goOn) })
	defer resume()
	silent := make(chan error, 1)
	go func() {
		silent <- db.InTxIdle(t.Context(), pool, 100*time.Millisecond, func(tx pgx.Tx) error {
			for _, sql := range []string{"insert into t values (1)", turn} {
				if _, err := tx.Exec(t.Context(), sql); err != nil {
					return err
				}
			}
			close(holds)
			<-goOn
			_, err := tx.Exec(t.Context(), "insert into t values (2)")
			return err
		})
	}()
	select {
	case <-holds:
	case err := <-silent:
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	must(t, db.InTx(ctx, pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, turn)
		return err
	}))
	resume()
	// Whether the server's last word is read or the connection is found closed, the database did not do it, and nobody asked wrongly.
	if err := <-silent; fault.KindOf(err) != fault.Unavailable || fault.ReasonOf(err) != fault.ReasonDeadline && fault.ReasonOf(err) != fault.ReasonDatabase {
		t.Errorf("the one that stood still has %v", err)
	}
	var n int
	must(t, pool.QueryRow(t.Context(), "select count(*) from t").Scan(&n))
	if n != 0 || pool.Stat().AcquiredConns() != 0 {
		t.Errorf("%d rows of it are there, and %d connections were kept", n, pool.Stat().AcquiredConns())
	}
}

func TestInTx_LimitsStandingStillInItsTransactionAlone(t *testing.T) {
	pool, err := db.Open(t.Context(), db.Config{URL: dbtest.NewEmptyURL(t), MaxConns: 1})
	must(t, err)
	defer pool.Close()
	const ask = "select current_setting('idle_in_transaction_session_timeout')"
	var within, after string
	must(t, db.InTx(t.Context(), pool, func(tx pgx.Tx) error { return tx.QueryRow(t.Context(), ask).Scan(&within) }))
	must(t, pool.QueryRow(t.Context(), ask).Scan(&after))
	if within != "10s" || after != "0" {
		t.Errorf("the limit is %s within and %s after it", within, after)
	}
}

func TestOpen_EndIdleLimitsTransactionsThatOthersBegin(t *testing.T) {
	for asked, want := range map[bool]string{true: "10s", false: "0"} {
		pool, err := db.Open(t.Context(), db.Config{URL: dbtest.NewEmptyURL(t), EndIdle: asked})
		must(t, err)
		var limit string
		err = pool.QueryRow(t.Context(), "select current_setting('idle_in_transaction_session_timeout')").Scan(&limit)
		pool.Close()
		if err != nil || limit != want {
			t.Errorf("asked for %v, the limit is %s, %v", asked, limit, err)
		}
	}
}
