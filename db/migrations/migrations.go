// Package migrations holds the schema of the central database, and brings a database to it.
//
// The versions come in ranges, each with an owner, and each range grows by itself:
//
//	1 to 9     what all share: the schemas dispatcher, poller and river, and who may call (the schema access)
//	10 to 19   the dispatcher's tables, in the schema dispatcher
//	20 to 29   the poller's tables, in the schema poller
//	40 to 59   the poller's, further
//	101 ...    River's own migrations, River's version n as 100+n, in the schema river
//
// A version of a lower range may so be newer than one of a higher. A database is therefore compared with a build as a set of
// versions, not by the greatest. SQL files must name their schema in every statement: the search path is not theirs to know.
//
// The release before this one goes on running on the schema of this one, before services are replaced and after they are rolled back. So a
// migration only adds; what takes away is a contract, and says in public.muxpost_contracts after which release (docs/upgrade.md).
//
// The package knows what it applies, and nothing of what the tables mean.
package migrations

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"io/fs"
	"log/slog"
	"path"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/db"
)

// table records what was applied. Its schema is named because a role called dispatcher or poller would otherwise find its own
// schema first, and start a second record there.
const table = "public.goose_db_version"

//go:embed *.sql
var files embed.FS

// Migration is one version of the schema, as a build or a database knows it.
type Migration struct {
	// Version orders migrations within a range.
	Version int64
	// Name is the file's name, or River's. It is empty for a version that this build does not know.
	Name string
	// AppliedAt is when the database got it, and zero while it has not.
	AppliedAt time.Time
}

// Up applies what the database lacks, and returns it in the order applied. Any number of processes may call it at once: they
// take turns, for a minute at most. What a later release has added is left as it is; where it took away what this build needs, that is
// fault.Conflict, and nothing is done. A failure leaves the migrations before it applied.
func Up(ctx context.Context, pool *pgxpool.Pool, log *slog.Logger) ([]Migration, error) {
	var done []Migration
	err := withProvider(pool, files, log, func(p *goose.Provider) (err error) {
		done, err = up(ctx, pool, p)
		return err
	})
	return done, err
}

func up(ctx context.Context, pool *pgxpool.Pool, p *goose.Provider) ([]Migration, error) {
	record, err := readRecord(ctx, pool)
	if err != nil {
		return nil, err
	}
	if err := refuseContracts(ctx, pool, versions(p), record); err != nil {
		return nil, err
	}
	results, err := p.Up(ctx)
	return applied(results, err), problem("the database could not be migrated", err)
}

// Down takes back what the database got after version to, the last applied first; 0 takes everything back, with all data. A database that
// is newer than this build is fault.Conflict: it does not know how.
func Down(ctx context.Context, pool *pgxpool.Pool, to int64, log *slog.Logger) ([]Migration, error) {
	var done []Migration
	err := withProvider(pool, files, log, func(p *goose.Provider) error {
		if err := refuseNewer(ctx, pool, p); err != nil {
			return err
		}
		results, err := p.DownTo(ctx, to)
		done = applied(results, err)
		return problem("the database's migrations could not be taken back", err)
	})
	return done, err
}

func withProvider(pool *pgxpool.Pool, sqlFiles fs.FS, log *slog.Logger, f func(*goose.Provider) error) (err error) {
	conns := stdlib.OpenDBFromPool(pool)
	defer func() { err = errors.Join(err, conns.Close()) }()
	p, err := newProvider(conns, sqlFiles, log)
	if err != nil {
		return err
	}
	return f(p)
}

func newProvider(conns *sql.DB, sqlFiles fs.FS, log *slog.Logger) (*goose.Provider, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	// The lock is the session's, so the pool must reach the server itself, not a pgbouncer that pools by transaction. It is
	// asked for every second, not every five as by default: the turns before ours are short.
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 60))
	if err != nil {
		return nil, fault.Wrap(fault.Internal, fault.ReasonDatabase, "the lock for migrations cannot be made", err)
	}
	rivers, err := riverMigrations(log)
	if err != nil {
		return nil, err
	}
	p, err := goose.NewProvider(goose.DialectPostgres, conns, sqlFiles,
		goose.WithTableName(table), goose.WithSessionLocker(locker), goose.WithGoMigrations(rivers...),
		goose.WithDisableGlobalRegistry(true), goose.WithAllowOutofOrder(true), goose.WithSlog(log), goose.WithVerbose(true))
	if err != nil {
		return nil, fault.Wrap(fault.Internal, fault.ReasonDatabase, "the migrations of this build do not fit together", err)
	}
	return p, nil
}

// applied lists what was done, also when a later migration failed.
func applied(results []*goose.MigrationResult, err error) []Migration {
	var partial *goose.PartialError
	if errors.As(err, &partial) {
		results = partial.Applied
	}
	var out []Migration
	for _, r := range results {
		out = append(out, Migration{Version: r.Source.Version, Name: sourceName(r.Source)})
	}
	return out
}

func sourceName(s *goose.Source) string {
	if isRiver(s.Version) {
		return riverName(s.Version)
	}
	return path.Base(s.Path)
}

// problem gives a failed migration its kind. A statement that the server refuses is a fault of the migration's; a server that
// does not answer is not.
func problem(message string, err error) error {
	if err == nil {
		return nil
	}
	var partial *goose.PartialError
	if errors.As(err, &partial) && partial.Failed != nil {
		message += ": " + sourceName(partial.Failed.Source) + " failed"
	}
	kinded := db.Fault(err)
	kind, reason := fault.KindOf(kinded), fault.ReasonOf(kinded)
	if reason == "" {
		reason = fault.ReasonDatabase
	}
	return fault.Wrap(kind, reason, message, err)
}

// versions returns the versions of a build in order.
func versions(p *goose.Provider) []int64 {
	var out []int64
	for _, s := range p.ListSources() {
		out = append(out, s.Version)
	}
	slices.Sort(out)
	return out
}
