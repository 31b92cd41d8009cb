package migrations_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/db"
	"muxpost.dev/muxpost/db/dbtest"
	"muxpost.dev/muxpost/db/migrations"
)

func TestMain(m *testing.M) { os.Exit(dbtest.Main(m)) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func numbers(all []migrations.Migration) []int64 {
	var out []int64
	for _, m := range all {
		out = append(out, m.Version)
	}
	return out
}

// objects lists everything in a database that is not Postgres's own, but for the record of migrations.
func objects(t *testing.T, pool *pgxpool.Pool) []string {
	t.Helper()
	rows, err := pool.Query(t.Context(), `
		with ours as (
			select oid, nspname from pg_namespace where nspname !~ '^pg_' and nspname <> 'information_schema'
		)
		select 'schema ' || nspname from ours where nspname <> 'public'
		union all select 'relation ' || nspname || '.' || relname from pg_class c join ours on ours.oid = c.relnamespace
			where relname !~ '^goose_db_version'
		union all select 'function ' || nspname || '.' || proname from pg_proc p join ours on ours.oid = p.pronamespace
		union all select 'type ' || nspname || '.' || typname from pg_type y join ours on ours.oid = y.typnamespace
			where typname !~ '^_?goose_db_version'
		order by 1`)
	must(t, err)
	out, err := pgx.CollectRows(rows, pgx.RowTo[string])
	must(t, err)
	return out
}

func TestUp_EightAtOnceOnAFreshDatabaseAllSucceed(t *testing.T) {
	url := dbtest.NewEmptyURL(t)
	type result struct {
		did []migrations.Migration
		err error
	}
	results := make(chan result)
	began := time.Now()
	for range 8 {
		go func() {
			pool, err := db.Open(t.Context(), db.Config{URL: url, MaxConns: 1})
			if err != nil {
				results <- result{err: err}
				return
			}
			defer pool.Close()
			did, err := migrations.Up(t.Context(), pool, nil)
			if err == nil {
				err = migrations.Check(t.Context(), pool)
			}
			results <- result{did, err}
		}()
	}
	var applied []int64
	for range 8 {
		r := <-results
		if r.err != nil {
			t.Error(r.err)
		}
		applied = append(applied, numbers(r.did)...)
	}
	t.Logf("eight migrators took %v", time.Since(began).Round(time.Millisecond))
	slices.Sort(applied)
	if len(applied) < 9 || len(slices.Compact(slices.Clone(applied))) != len(applied) {
		t.Errorf("applied in all: %v; each migration once is wanted", applied)
	}
}

func TestDown_TakesEverythingBackAndUpBringsItAgain(t *testing.T) {
	pool := dbtest.NewEmpty(t)
	empty := objects(t, pool)
	up, err := migrations.Up(t.Context(), pool, nil)
	must(t, err)
	full := objects(t, pool)
	for _, want := range []string{"schema dispatcher", "schema poller", "relation river.river_job"} {
		if !slices.Contains(full, want) {
			t.Errorf("%s is not there", want)
		}
	}
	down, err := migrations.Down(t.Context(), pool, 0, nil)
	must(t, err)
	slices.Reverse(down)
	if diff := cmp.Diff(numbers(up), numbers(down)); diff != "" {
		t.Errorf("what was taken back is not what was applied: %s", diff)
	}
	if diff := cmp.Diff(empty, objects(t, pool)); diff != "" {
		t.Errorf("left behind: %s", diff)
	}
	again, err := migrations.Up(t.Context(), pool, nil)
	must(t, err)
	if diff := cmp.Diff(numbers(up), numbers(again)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(full, objects(t, pool)); diff != "" {
		t.Errorf("the second time it is another schema: %s", diff)
	}
	nothing, err := migrations.Up(t.Context(), pool, nil)
	must(t, err)
	if len(nothing) != 0 {
		t.Errorf("a third time applied %v", nothing)
	}
}

func TestStatus_ListsWhatIsThereAndWhatIsNot(t *testing.T) {
	pool := dbtest.NewEmpty(t)
	before, err := migrations.Status(t.Context(), pool)
	must(t, err)
	for _, m := range before {
		if !m.AppliedAt.IsZero() || m.Name == "" {
			t.Errorf("in an empty database: %+v", m)
		}
	}
	if len(objects(t, pool)) != 0 {
		t.Error("asking for the status has changed the database")
	}
	_, err = migrations.Up(t.Context(), pool, nil)
	must(t, err)
	must(t, exec(t, pool, "insert into public.goose_db_version (version_id, is_applied) values (4711, true)"))
	after, err := migrations.Status(t.Context(), pool)
	must(t, err)
	if diff := cmp.Diff(append(numbers(before), 4711), numbers(after)); diff != "" {
		t.Error(diff)
	}
	for _, m := range after {
		if since := time.Since(m.AppliedAt); since < -time.Minute || since > 10*time.Minute {
			t.Errorf("%d was applied at %v", m.Version, m.AppliedAt)
		}
	}
	if first, last := after[0], after[len(after)-1]; first.Name != "00001_schemas.sql" || last.Name != "" {
		t.Errorf("the first is %+v, the unknown one %+v", first, last)
	}
}

func exec(t *testing.T, pool *pgxpool.Pool, sql string) error {
	t.Helper()
	_, err := pool.Exec(t.Context(), sql)
	return err
}

func TestCheck_SaysWhoIsBehindAndWhatToDo(t *testing.T) {
	pool := dbtest.NewEmpty(t)
	check := func(words ...string) {
		t.Helper()
		err := migrations.Check(t.Context(), pool)
		if !errors.Is(err, fault.Conflict) || fault.ReasonOf(err) != fault.ReasonDatabase {
			t.Errorf("got %v", err)
			return
		}
		for _, w := range words {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%q does not say %q", err, w)
			}
		}
	}
	all, err := migrations.Status(t.Context(), pool)
	must(t, err)
	needs := all[len(all)-1].Version
	check(fmt.Sprintf("the database is at version 0, this build needs %d: run `muxpost migrate`", needs))
	_, err = migrations.Up(t.Context(), pool, nil)
	must(t, err)
	must(t, migrations.Check(t.Context(), pool))

	must(t, exec(t, pool, fmt.Sprint("delete from public.goose_db_version where version_id = ", needs)))
	check(fmt.Sprintf("the database is at version %d, this build needs %d: run `muxpost migrate`", needs-1, needs))
	must(t, exec(t, pool, fmt.Sprintf("insert into public.goose_db_version (version_id, is_applied) values (%d, true)", needs)))
	must(t, exec(t, pool, "delete from public.goose_db_version where version_id = 1"))
	check(fmt.Sprintf("at version %d and lacks version 1, which this build needs: run `muxpost migrate`", needs))
	must(t, exec(t, pool, "insert into public.goose_db_version (version_id, is_applied) values (1, true)"))
	must(t, migrations.Check(t.Context(), pool))
}

// A later release has migrated the database: this one works with what was added, and not where something was taken away.
func TestCheck_KnowsNothingOfWhatWasAddedAndRefusesWhatWasTakenAway(t *testing.T) {
	pool := dbtest.New(t)
	must(t, exec(t, pool, "insert into public.goose_db_version (version_id, is_applied) values (19, true), (4711, true)"))
	must(t, migrations.Check(t.Context(), pool))
	if did, err := migrations.Up(t.Context(), pool, nil); err != nil || len(did) > 0 {
		t.Errorf("up on what a later release has added to: %v, %v", did, err)
	}
	down := func() error { _, err := migrations.Down(t.Context(), pool, 0, nil); return err }
	if err := down(); !errors.Is(err, fault.Conflict) || !strings.Contains(err.Error(), "it has versions 19, 4711") {
		t.Errorf("down: %v", err)
	}
	must(t, exec(t, pool, "insert into public.muxpost_contracts (version, after_release) values (4711, 'v1')"))
	refused := func(when string) {
		t.Helper()
		for name, ask := range map[string]func() error{
			"check": func() error { return migrations.Check(t.Context(), pool) },
			"up":    func() error { _, err := migrations.Up(t.Context(), pool, nil); return err },
			"down":  down,
		} {
			if err := ask(); !errors.Is(err, fault.Conflict) || !strings.Contains(err.Error(), "4711") || !strings.Contains(err.Error(), "or a later one") {
				t.Errorf("%s %s: %v", name, when, err)
			}
		}
	}
	refused("on what was taken from")
	must(t, exec(t, pool, "drop table public.muxpost_contracts"))
	refused("where nothing says what was taken")
}

// files are the SQL migrations of this build, with others added.
func files(t *testing.T, more map[string]string) fstest.MapFS {
	t.Helper()
	out := fstest.MapFS{}
	names, err := filepath.Glob("*.sql")
	must(t, err)
	for _, name := range names {
		text, err := os.ReadFile(name)
		must(t, err)
		out[name] = &fstest.MapFile{Data: text}
	}
	for name, text := range more {
		out[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return out
}

func TestUp_FailureSaysWhichMigrationAndKeepsTheOnesBefore(t *testing.T) {
	pool := dbtest.NewEmpty(t)
	done, err := migrations.UpWith(t.Context(), pool, files(t, map[string]string{
		"00099_broken.sql": "-- +goose Up\ncreate table poller.half ();\ncreate nonsense;\n",
	}))
	if !errors.Is(err, fault.Internal) || !strings.Contains(err.Error(), "00099_broken.sql failed") {
		t.Fatalf("got %v", err)
	}
	if len(done) == 0 || done[0].Version != 1 {
		t.Errorf("applied before the failure: %v", done)
	}
	if all := objects(t, pool); slices.Contains(all, "relation poller.half") || !slices.Contains(all, "schema poller") {
		t.Errorf("after the failure there are %v", all)
	}
	_, err = migrations.Up(t.Context(), pool, nil)
	must(t, err)
	must(t, migrations.Check(t.Context(), pool))
}

func TestUp_ALowerRangeMayGrowLater(t *testing.T) {
	pool := dbtest.New(t)
	done, err := migrations.UpWith(t.Context(), pool, files(t, map[string]string{
		"00009_later.sql": "-- +goose Up\ncreate table poller.later ();\n",
	}))
	must(t, err)
	if len(done) != 1 || done[0].Name != "00009_later.sql" {
		t.Errorf("applied %v", done)
	}
	must(t, migrations.Check(t.Context(), pool)) // the build without it need not know it
}

// A role called like one of our schemas has that schema first in its search path.
func TestUp_RoleNamedLikeASchemaKeepsOneRecord(t *testing.T) {
	url := dbtest.NewEmptyURL(t)
	admin, err := db.Open(t.Context(), db.Config{URL: url})
	must(t, err)
	defer admin.Close()
	must(t, exec(t, admin, `create role dispatcher login superuser`))
	defer func() { must(t, exec(t, admin, "reassign owned by dispatcher to postgres; drop role dispatcher")) }()
	pool, err := db.Open(t.Context(), db.Config{URL: strings.Replace(url, "postgres@", "dispatcher@", 1)})
	must(t, err)
	defer pool.Close()
	for range 2 { // the second finds the schema dispatcher
		_, err = migrations.Up(t.Context(), pool, nil)
		must(t, err)
	}
	must(t, migrations.Check(t.Context(), pool))
	must(t, migrations.Check(t.Context(), admin))
}

type helloArgs struct{}

func (helloArgs) Kind() string { return "hello" }

type helloWorker struct {
	river.WorkerDefaults[helloArgs]
	done chan struct{}
}

func (w *helloWorker) Work(context.Context, *river.Job[helloArgs]) error {
	close(w.done)
	return nil
}

func TestRiver_WorksInItsSchema(t *testing.T) {
	pool := dbtest.New(t)
	worker := &helloWorker{done: make(chan struct{})}
	workers := river.NewWorkers()
	river.AddWorker(workers, worker)
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		Schema: migrations.RiverSchema, Workers: workers, Queues: map[string]river.QueueConfig{"q": {MaxWorkers: 1}},
	})
	must(t, err)
	must(t, client.Start(t.Context()))
	_, err = client.Insert(t.Context(), helloArgs{}, &river.InsertOpts{Queue: "q"})
	must(t, err)
	select {
	case <-worker.done:
	case <-time.After(time.Minute):
		t.Error("the job was not worked")
	}
	must(t, client.Stop(t.Context()))
}
