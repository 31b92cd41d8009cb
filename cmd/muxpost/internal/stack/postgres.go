package stack

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/db"
	"muxpost.dev/muxpost/db/local"
	"muxpost.dev/muxpost/db/migrations"
	"muxpost.dev/muxpost/internal/layout"
)

// postgresRuns reports whether the local cluster answers.
func postgresRuns(ctx context.Context, dir layout.DataDir) bool {
	_, err := AttachPostgres(ctx, dir)
	return err == nil
}

// AttachPostgres returns the local cluster if it runs; fault.NotFound means that it does not.
func AttachPostgres(ctx context.Context, dir layout.DataDir) (*local.Cluster, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	return local.Attach(ctx, dir.Postgres())
}

// startPostgres starts the local cluster, or finds it running.
func (s *Stack) startPostgres(ctx context.Context) (*local.Cluster, error) {
	began := s.Now()
	cluster, err := local.Start(ctx, local.Options{Dir: s.DataDir.Postgres(), Detached: true, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	if cluster.Started() {
		s.Say("postgres    started in %s (pid %d, %s)", took(s.Now().Sub(began)), cluster.Pid(), cluster.Dir())
	} else {
		s.Say("postgres    runs already (pid %d)", cluster.Pid())
	}
	return cluster, nil
}

// OpenLocal makes sure that the cluster has our database, and returns its URL.
func OpenLocal(ctx context.Context, cluster *local.Cluster) (string, error) {
	conn, err := pgx.Connect(ctx, cluster.URL("postgres"))
	if err != nil {
		return "", db.Fault(err)
	}
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // Nothing is under way.
	var there bool
	if err := conn.QueryRow(ctx, "select exists (select from pg_database where datname = $1)", layout.Database).Scan(&there); err != nil {
		return "", db.Fault(err)
	}
	if !there {
		if _, err := conn.Exec(ctx, "create database "+pgx.Identifier{layout.Database}.Sanitize()); err != nil {
			return "", fault.Wrap(fault.Unavailable, fault.ReasonDatabase, "the database cannot be made in the local cluster", db.Fault(err))
		}
	}
	return cluster.URL(layout.Database), nil
}

// Migrate brings the database at a URL to the schema of this build, and returns what was applied.
func Migrate(ctx context.Context, url string) ([]migrations.Migration, error) {
	pool, err := db.Open(ctx, db.Config{URL: url, AppName: "muxpost-migrate", MaxConns: 4})
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	return migrations.Up(ctx, pool, nil)
}

// prepareDatabase has a database that answers and has the schema, and returns its URL and the cluster, which is nil when the
// database is not a local one.
func (s *Stack) prepareDatabase(ctx context.Context) (url string, cluster *local.Cluster, err error) {
	database, err := s.Database()
	if err != nil {
		return "", nil, err
	}
	if url = database.URL; database.Local() {
		if cluster, err = s.startPostgres(ctx); err != nil {
			return "", nil, err
		}
		if url, err = OpenLocal(ctx, cluster); err != nil {
			return "", cluster, err
		}
	} else if name, err := db.Describe(url); err == nil {
		s.Say("postgres    %s, from %s", name, database.From)
	}
	began := s.Now()
	applied, err := Migrate(ctx, url)
	if err != nil {
		return "", cluster, err
	}
	if len(applied) > 0 {
		s.Say("database    %d migrations applied in %s", len(applied), took(s.Now().Sub(began)))
	}
	return url, cluster, nil
}

// stopPostgres stops the local cluster, and reports whether there was one to stop.
func (s *Stack) stopPostgres(ctx context.Context) (bool, error) {
	_, err := AttachPostgres(ctx, s.DataDir)
	if errors.Is(err, fault.NotFound) {
		return false, nil
	}
	began := s.Now()
	if err := local.Stop(ctx, s.DataDir.Postgres()); err != nil {
		return true, fmt.Errorf("postgres: %w", err)
	}
	s.Say("postgres    stopped in %s", took(s.Now().Sub(began)))
	return true, nil
}

// HasCluster reports whether a local cluster was ever made.
func HasCluster(dir layout.DataDir) bool {
	_, err := os.Stat(filepath.Join(dir.Postgres(), "data"))
	return !errors.Is(err, fs.ErrNotExist)
}
