package dbtest_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"muxpost.dev/muxpost/db/dbtest"
	"muxpost.dev/muxpost/db/migrations"
)

// modeVariable makes the test binary behave as that of a package whose tests use dbtest on a machine without Postgres.
const modeVariable = "MUXPOST_DBTEST_MODE"

func TestMain(m *testing.M) { os.Exit(dbtest.Main(m)) }

func TestNew_GivesEachTestADatabaseOfItsOwnAndDropsIt(t *testing.T) {
	names := map[string]bool{}
	var last string
	for range 2 {
		t.Run("one", func(t *testing.T) {
			pool := dbtest.New(t)
			if err := migrations.Check(t.Context(), pool); err != nil {
				t.Error(err)
			}
			if _, err := pool.Exec(t.Context(), "create table mine ()"); err != nil {
				t.Errorf("what another test made is here: %v", err)
			}
			if err := pool.QueryRow(t.Context(), "select current_database()").Scan(&last); err != nil {
				t.Fatal(err)
			}
			names[last] = true
			// A client that stays does not hold up the drop.
			dbtest.New(t)
		})
	}
	var left int
	err := dbtest.NewEmpty(t).QueryRow(t.Context(), "select count(*) from pg_database where datname = $1", last).Scan(&left)
	if err != nil || left != 0 || len(names) != 2 {
		t.Errorf("databases %v, left %d, %v", names, left, err)
	}
}

func TestNew_RunsInParallel(t *testing.T) {
	for range 4 {
		t.Run("one", func(t *testing.T) {
			t.Parallel()
			if _, err := dbtest.New(t).Exec(t.Context(), "create table mine ()"); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestNewEmpty_HoldsNothing(t *testing.T) {
	var tables int
	err := dbtest.NewEmpty(t).QueryRow(t.Context(),
		"select count(*) from pg_tables where schemaname not in ('pg_catalog', 'information_schema')").Scan(&tables)
	if err != nil || tables != 0 {
		t.Errorf("%d tables, %v", tables, err)
	}
}

// TestInner is run by the test below in a process of its own.
func TestInner(t *testing.T) {
	if os.Getenv(modeVariable) == "" {
		t.Skip("it is for TestNew_WithoutPostgresSkipsAtADeskAndFailsInCI")
	}
	dbtest.New(t)
}

func TestNew_WithoutPostgresSkipsAtADeskAndFailsInCI(t *testing.T) {
	for ci, want := range map[string]string{"": "--- SKIP: TestInner", "true": "--- FAIL: TestInner"} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestInner$", "-test.v")
		cmd.Env = append(os.Environ(), modeVariable+"=1", "CI="+ci, "MUXPOST_PG_BINDIR=/nowhere")
		out, _ := cmd.CombinedOutput()
		if !strings.Contains(string(out), want) || !strings.Contains(string(out), "MUXPOST_PG_BINDIR") {
			t.Errorf("with CI=%q:\n%s", ci, out)
		}
	}
}
