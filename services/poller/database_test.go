package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/db"
	"muxpost.dev/muxpost/db/local"
	"muxpost.dev/muxpost/db/migrations"
	"muxpost.dev/muxpost/internal/layout"
	"muxpost.dev/muxpost/internal/needs"
)

// keepLocal starts a local cluster in the data directory, as muxpost up does, and returns what stops it.
func keepLocal(t *testing.T, dir string) func() {
	t.Helper()
	if _, err := local.Find(); errors.Is(err, fault.NotFound) {
		needs.Unmet(t, err)
	}
	cluster, err := local.Start(t.Context(), local.Options{Dir: layout.DataDir(dir).Postgres()})
	must(t, err)
	stop := func() { must(t, cluster.Stop(context.Background())) }
	t.Cleanup(stop)
	conn, err := pgx.Connect(t.Context(), cluster.URL("postgres"))
	must(t, err)
	_, err = conn.Exec(t.Context(), "create database "+pgx.Identifier{layout.Database}.Sanitize())
	must(t, err)
	must(t, conn.Close(t.Context()))
	pool, err := db.Open(t.Context(), db.Config{URL: cluster.URL(layout.Database), AppName: "test", MaxConns: 2})
	must(t, err)
	defer pool.Close()
	_, err = migrations.Up(t.Context(), pool, nil)
	must(t, err)
	return stop
}

func TestOnce_FindsTheLocalDatabaseOfTheDataDirectory(t *testing.T) {
	w := newWorld(t, standard)
	w.labelled(t, "alice")
	for _, dir := range []string{w.dir, filepath.Dir(w.dir)} {
		must(t, os.Chmod(dir, 0o711)) //nolint:gosec // The database's user must get through.
	}
	stop := keepLocal(t, w.dir)
	text, err := os.ReadFile(w.config)
	must(t, err)
	var kept []string
	for line := range strings.Lines(string(text)) {
		if !strings.Contains(line, "database_url") {
			kept = append(kept, line)
		}
	}
	must(t, os.WriteFile(w.config, []byte(strings.Join(kept, "")), 0o600))
	if line, code, err := once(t, w); err != nil || code != 0 || !strings.Contains(line, "1 delivered") {
		t.Errorf("%s, %d, %v", line, code, err)
	}
	stop()
	begun := time.Now()
	if line, code, err := once(t, w); code != 3 || !strings.Contains(err.Error(), "muxpost up") || time.Since(begun) > 10*time.Second {
		t.Errorf("%s, %d, %v", line, code, err)
	}
}
