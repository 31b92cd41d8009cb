package db_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/db"
	"muxpost.dev/muxpost/db/dbtest"
	"muxpost.dev/muxpost/db/local"
)

func run(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) error {
	t.Helper()
	_, err := pool.Exec(t.Context(), sql, args...)
	return err
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestFault_LeavesAloneWhatIsNotTheDatabases(t *testing.T) {
	if db.Fault(nil) != nil {
		t.Error("nil became an error")
	}
	own := errors.New("own")
	if got := db.Fault(own); got != own {
		t.Errorf("got %v", got)
	}
	known := fmt.Errorf("while reading: %w", fault.New(fault.Fenced, fault.ReasonOlderToken, "older"))
	if got := db.Fault(known); got != known {
		t.Errorf("got %v", got)
	}
}

func TestFault_GivesTheServersAnswersTheirKinds(t *testing.T) {
	pool := dbtest.NewEmpty(t)
	must(t, run(t, pool, "create table t (id int constraint t_key unique, n int check (n > 0), word varchar(3))"))
	must(t, run(t, pool, "insert into t values (1, 1, 'a')"))
	for name, tc := range map[string]struct {
		sql        string
		args       []any
		kind       fault.Kind
		reason     fault.Reason
		constraint string
	}{
		"unique":     {"insert into t values ($1)", []any{1}, fault.AlreadyExists, "", "t_key"},
		"check":      {"insert into t values (2, $1)", []any{-1}, fault.Internal, fault.ReasonDatabase, "t_n_check"},
		"too long":   {"insert into t values (3, 1, $1)", []any{secret}, fault.Internal, fault.ReasonDatabase, ""},
		"no number":  {"select $1::text::int", []any{secret}, fault.Internal, fault.ReasonDatabase, ""},
		"nul":        {"select $1::text", []any{"a\x00b"}, fault.Invalid, fault.ReasonBadText, ""},
		"no table":   {"select * from missing", nil, fault.Internal, fault.ReasonDatabase, ""},
		"time limit": {"set statement_timeout = 20; select pg_sleep(30)", nil, fault.Unavailable, fault.ReasonDeadline, ""},
		"read only":  {"begin read only; insert into t values (9)", nil, fault.Unavailable, fault.ReasonDatabase, ""},
		"collision":  {"do $$ begin raise serialization_failure; end $$", nil, fault.Unavailable, fault.ReasonDatabase, ""},
		"disk full":  {"do $$ begin raise disk_full; end $$", nil, fault.Unavailable, fault.ReasonDatabase, ""},
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := pgx.Connect(t.Context(), pool.Config().ConnString())
			must(t, err)
			defer func() { _ = conn.Close(context.Background()) }()
			_, err = conn.Exec(t.Context(), tc.sql, tc.args...)
			got := db.Fault(err)
			says(t, got, tc.kind, tc.reason)
			if c := db.Constraint(got); c != tc.constraint {
				t.Errorf("the constraint is %q, want %q", c, tc.constraint)
			}
			if db.SQLState(got) == "" || !errors.Is(got, err) && !errors.As(got, new(*pgconn.PgError)) {
				t.Errorf("the cause of %v is lost", got)
			}
		})
	}
}

func TestFault_NoRowsIsNotFound(t *testing.T) {
	var n int
	err := db.Fault(dbtest.NewEmpty(t).QueryRow(t.Context(), "select 1 where false").Scan(&n))
	says(t, err, fault.NotFound, "")
	if !errors.Is(err, pgx.ErrNoRows) {
		t.Errorf("%v is not pgx.ErrNoRows", err)
	}
}

func TestFault_TellsADeadlineFromACancelledCall(t *testing.T) {
	pool := dbtest.NewEmpty(t)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := pool.Exec(ctx, "select pg_sleep(30)")
	says(t, db.Fault(err), fault.Unavailable, fault.ReasonDeadline, "in time")

	ctx, stop := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, stop)
	_, err = pool.Exec(ctx, "select pg_sleep(30)")
	says(t, db.Fault(err), fault.Unavailable, "", "cancelled")
}

func TestFault_EndedConnectionIsUnavailable(t *testing.T) {
	pool := dbtest.NewEmpty(t)
	conn, err := pool.Acquire(t.Context())
	must(t, err)
	defer conn.Release()
	must(t, run(t, pool, "select pg_terminate_backend($1)", conn.Conn().PgConn().PID()))
	_, err = conn.Exec(t.Context(), "select 1")
	says(t, db.Fault(err), fault.Unavailable, fault.ReasonDatabase)
	// The connection is now known to be closed, which is another error with the same meaning.
	_, err = conn.Exec(t.Context(), "select 1")
	says(t, db.Fault(err), fault.Unavailable, fault.ReasonDatabase)
}

func TestFault_ClosedPoolIsUnavailable(t *testing.T) {
	pool, err := db.Open(t.Context(), db.Config{URL: dbtest.NewEmptyURL(t)})
	must(t, err)
	pool.Close()
	says(t, db.Fault(run(t, pool, "select 1")), fault.Unavailable, fault.ReasonDatabase)
}

func TestFault_ServerThatWentAwayIsUnavailableAndComesBack(t *testing.T) {
	dbtest.NewEmptyURL(t) // skips where there is no Postgres
	dir, err := os.MkdirTemp("", "muxpost-db-")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	must(t, os.Chmod(dir, 0o755))
	opts := local.Options{Dir: dir + "/pg"}
	server, err := local.Start(context.Background(), opts)
	must(t, err)
	pool, err := db.Open(t.Context(), db.Config{URL: server.URL("postgres")})
	must(t, err)
	defer pool.Close()
	must(t, server.Stop(context.Background()))
	for range 2 { // the first finds a connection that was closed, the second nothing that listens
		says(t, db.Fault(run(t, pool, "select 1")), fault.Unavailable, fault.ReasonDatabase)
	}
	server, err = local.Start(context.Background(), opts)
	must(t, err)
	defer func() { must(t, server.Stop(context.Background())) }()
	must(t, run(t, pool, "select 1"))
}

func TestFault_RefusedUserIsUnavailable(t *testing.T) {
	url := strings.Replace(dbtest.NewEmptyURL(t), "postgres@", "stranger:"+secret+"@", 1)
	_, err := db.Open(t.Context(), db.Config{URL: url})
	says(t, err, fault.Unavailable, fault.ReasonDatabase, `user "stranger"`, "check the user and the password")
}
