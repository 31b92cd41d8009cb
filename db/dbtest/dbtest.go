// Package dbtest gives a test a database of its own on a real Postgres.
//
// A test binary has one temporary cluster (db/local), started by the first test that asks. In it a template is migrated once,
// and each test gets a copy, which is dropped at the test's end with whatever is still connected. Where the machine has no
// Postgres the test is skipped; in CI it fails, for there a test that does not run is a lie.
//
// The package knows no table. It is for tests alone.
package dbtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/db"
	"muxpost.dev/muxpost/db/local"
	"muxpost.dev/muxpost/db/migrations"
	"muxpost.dev/muxpost/internal/needs"
)

const template = "muxpost_template"

// patience bounds each step here; on a loaded machine initdb alone may take ten seconds.
const patience = 2 * time.Minute

// server is the cluster of a test binary.
type server struct {
	mu       sync.Mutex
	cluster  *local.Cluster
	err      error // of the start, which is not tried twice
	migrated bool
	made     int
}

// shared is the one variable of the package: the tests of a binary have nothing else in common that could hold the cluster.
var shared server

// Main runs the tests of a package and stops the cluster if one was started: os.Exit(dbtest.Main(m)) in TestMain. A package
// without it leaves a directory behind, which the next run removes; the server is gone in any case, as it dies with the process.
func Main(m *testing.M) int {
	code := m.Run()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := shared.stop(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "dbtest:", err)
		return max(code, 1)
	}
	return code
}

// New returns a pool on a database with the schema of this build, for this test alone. At the end of the test the pool is closed,
// and a connection that was never given back fails the test.
func New(t testing.TB) *pgxpool.Pool {
	t.Helper()
	return open(t, NewURL(t))
}

// NewURL returns the URL of a database with the schema of this build, for this test alone.
func NewURL(t testing.TB) string {
	t.Helper()
	return shared.database(t, true)
}

// NewEmpty returns a pool on a database that holds nothing, as New does otherwise.
func NewEmpty(t testing.TB) *pgxpool.Pool {
	t.Helper()
	return open(t, NewEmptyURL(t))
}

// NewEmptyURL returns the URL of a database that holds nothing, for this test alone.
func NewEmptyURL(t testing.TB) string {
	t.Helper()
	return shared.database(t, false)
}

func open(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := db.Open(t.Context(), db.Config{URL: url, AppName: t.Name()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		closed := make(chan struct{})
		go func() {
			defer close(closed)
			pool.Close()
		}()
		select {
		case <-closed:
		case <-time.After(10 * time.Second):
			t.Errorf("%d connections were never given back to the pool", pool.Stat().AcquiredConns())
		}
	})
	return pool
}

// database makes a database, and has it dropped at the end of the test.
func (s *server) database(t testing.TB, migrated bool) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cluster, name, err := s.create(ctx, migrated)
	if errors.Is(err, fault.NotFound) && cluster == nil {
		needs.Unmet(t, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if t.Failed() {
			t.Logf("the last lines of Postgres's log:\n%s", cluster.LogTail(20))
		}
		if err := administer(ctx, cluster, "drop database if exists "+name+" with (force)"); err != nil {
			t.Errorf("drop database %s: %v", name, err)
		}
	})
	return cluster.URL(name)
}

// create starts the cluster and migrates the template when nobody has, and makes one database. A cluster that is nil with the
// error means that it could not be started.
func (s *server) create(ctx context.Context, migrated bool) (*local.Cluster, string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cluster == nil && s.err == nil {
		s.cluster, s.err = local.Start(ctx, local.Options{Temporary: true})
	}
	if s.err != nil {
		return nil, "", s.err
	}
	if migrated && !s.migrated {
		if err := makeTemplate(ctx, s.cluster); err != nil {
			return s.cluster, "", err
		}
		s.migrated = true
	}
	s.made++
	name := fmt.Sprintf("test_%d", s.made)
	statement := "create database " + name + " template template0"
	if migrated {
		statement = "create database " + name + " template " + template
	}
	return s.cluster, name, administer(ctx, s.cluster, statement)
}

func (s *server) stop(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cluster == nil {
		return nil
	}
	return s.cluster.Stop(ctx)
}

func makeTemplate(ctx context.Context, cluster *local.Cluster) error {
	// A first try that failed half way has left one.
	for _, statement := range []string{
		"drop database if exists " + template + " with (force)", "create database " + template + " template template0",
	} {
		if err := administer(ctx, cluster, statement); err != nil {
			return err
		}
	}
	pool, err := db.Open(ctx, db.Config{URL: cluster.URL(template), AppName: "dbtest"})
	if err != nil {
		return err
	}
	// It must be closed before the first copy is made: a template with a client is refused.
	defer pool.Close()
	_, err = migrations.Up(ctx, pool, nil)
	return err
}

// administer runs one statement outside a transaction.
func administer(ctx context.Context, cluster *local.Cluster, statement string) error {
	conn, err := pgx.Connect(ctx, cluster.URL("postgres"))
	if err != nil {
		return db.Fault(err)
	}
	defer func() { _ = conn.Close(ctx) }()
	if _, err := conn.Exec(ctx, statement); err != nil {
		return fmt.Errorf("%s: %w", statement, err)
	}
	return nil
}
