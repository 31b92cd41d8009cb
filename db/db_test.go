package db_test

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/db"
	"muxpost.dev/muxpost/db/dbtest"
)

func TestMain(m *testing.M) { os.Exit(dbtest.Main(m)) }

const secret = "hunter2"

// says checks an error's kind, reason and words, and that no secret is among them.
func says(t *testing.T, err error, kind fault.Kind, reason fault.Reason, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("there is no error")
	}
	if fault.KindOf(err) != kind || fault.ReasonOf(err) != reason {
		t.Errorf("%v is %v, reason %q; want %v, %q", err, fault.KindOf(err), fault.ReasonOf(err), kind, reason)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q does not say %q", err, w)
		}
	}
	if strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), "\n") {
		t.Errorf("%q shows a secret, or has several lines", err)
	}
}

func TestOpen_SaysWhereItKnockedAndNotThePassword(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = db.Open(t.Context(), db.Config{URL: "postgres://me:" + secret + "@" + address + "/mine"})
	says(t, err, fault.Unavailable, fault.ReasonDatabase, `database "mine"`, address, `user "me"`, "PostgreSQL runs and listens")
}

func TestOpen_SilentServerIsGivenUpAfterFiveSeconds(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	began := time.Now()
	_, err = db.Open(t.Context(), db.Config{URL: "postgres://me:" + secret + "@" + silent.Addr().String() + "/mine?sslmode=disable"})
	says(t, err, fault.Unavailable, fault.ReasonDatabase, silent.Addr().String(), "nothing answered in time")
	if took := time.Since(began); took < 4*time.Second || took > 15*time.Second {
		t.Errorf("it took %v", took)
	}
}

func TestOpen_MissingDatabaseSaysSo(t *testing.T) {
	url := strings.Replace(dbtest.NewEmptyURL(t), "/test_", "/missing_", 1)
	_, err := db.Open(t.Context(), db.Config{URL: url})
	says(t, err, fault.Unavailable, fault.ReasonDatabase, "missing_", ".s.PGSQL.5432", "create the database")
}

func TestOpen_CancelledCallIsNotTheDatabasesFault(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := db.Open(ctx, db.Config{URL: dbtest.NewEmptyURL(t)})
	says(t, err, fault.Unavailable, "", "cancelled")
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v is not context.Canceled", err)
	}
}

func TestOpen_BadURLNeverShowsWhatItHolds(t *testing.T) {
	for _, url := range []string{
		"postgres://me:" + secret + "/x@host/db", "postgres://me:" + secret + "%zz@host:5432/db", "postgres://me:" + secret + ":x@host:port/db",
		"host=h password='" + secret, "host=h password=" + secret + " sslmode=never", "postgres://host/db?password=" + secret + "&sslmode=odd",
	} {
		_, err := db.Open(t.Context(), db.Config{URL: url})
		says(t, err, fault.Invalid, fault.ReasonBadConfig, "postgres://user:password@host:5432")
		_, err = db.Describe(url)
		says(t, err, fault.Invalid, fault.ReasonBadConfig)
	}
	// An empty URL must not reach whatever database the environment names.
	t.Setenv("PGHOST", "127.0.0.1")
	for _, url := range []string{"", " \n"} {
		_, err := db.Open(t.Context(), db.Config{URL: url})
		says(t, err, fault.Invalid, fault.ReasonBadConfig, "no database URL")
	}
}

func TestOpen_AppliesItsSettings(t *testing.T) {
	pool, err := db.Open(t.Context(), db.Config{URL: dbtest.NewEmptyURL(t), MaxConns: 3, AppName: "muxpost-test"})
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if got := pool.Config().MaxConns; got != 3 {
		t.Errorf("the pool may have %d connections", got)
	}
	var name string
	if err := pool.QueryRow(t.Context(), "show application_name").Scan(&name); err != nil || name != "muxpost-test" {
		t.Errorf("application_name is %q, %v", name, err)
	}
}

func TestOpen_SpansNameTheStatementAndHoldNoParameter(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	tp := trace.NewTracerProvider(trace.WithSpanProcessor(spans))
	pool, err := db.Open(t.Context(), db.Config{URL: dbtest.NewEmptyURL(t), TracerProvider: tp})
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	var out string
	// A statement outside of any trace makes none: polling would fill the trace store otherwise.
	ctx, parent := tp.Tracer("test").Start(t.Context(), "parent")
	defer parent.End()
	if err := pool.QueryRow(ctx, "select $1::text", secret).Scan(&out); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(ctx, "select $1::text::int", secret); err == nil {
		t.Fatal("a word was taken for a number")
	}
	if _, err := pool.Exec(ctx, "select $1::int", secret); err == nil {
		t.Fatal("a word was sent as a number")
	}
	batch := new(pgx.Batch)
	batch.Queue("select $1::text::int", secret)
	if err := pool.SendBatch(ctx, batch).Close(); err == nil {
		t.Fatal("a word was taken for a number in a batch")
	}
	found := false
	for _, s := range spans.Ended() {
		if s.Name() == "SELECT" {
			found = true
		}
		for _, a := range s.Attributes() {
			if strings.Contains(a.Value.String(), secret) {
				t.Errorf("span %q has the parameter in %s=%s", s.Name(), a.Key, a.Value.String())
			}
		}
		for _, e := range s.Events() {
			for _, a := range e.Attributes {
				if strings.Contains(a.Value.String(), secret) {
					t.Errorf("span %q has the parameter in its event %s", s.Name(), e.Name)
				}
			}
		}
		if strings.Contains(s.Status().Description, secret) {
			t.Errorf("span %q has the parameter in its status", s.Name())
		}
	}
	if !found {
		t.Errorf("no span is named after the statement: %v", spans.Ended())
	}
}

func TestDescribe_LeavesThePasswordOut(t *testing.T) {
	for url, want := range map[string]string{
		"postgres://me:" + secret + "@h:5433/d":                   `database "d" at h:5433 as user "me"`,
		"postgres://me:" + secret + "@h1,h2:1/d?sslmode=prefer":   `database "d" at h1:5432, h2:1 as user "me"`,
		"host=/run/pg user=me dbname=d password=" + secret:        `database "d" at /run/pg/.s.PGSQL.5432 as user "me"`,
		"postgres://me@/d?host=/run/pg&port=6&password=" + secret: `database "d" at /run/pg/.s.PGSQL.6 as user "me"`,
	} {
		if got, err := db.Describe(url); err != nil || got != want {
			t.Errorf("got %s, %v; want %s", got, err, want)
		}
	}
}
