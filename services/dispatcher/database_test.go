package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/db/local"
	"muxpost.dev/muxpost/internal/layout"
	"muxpost.dev/muxpost/internal/needs"
	"muxpost.dev/muxpost/internal/settings"
)

func TestDatabaseURL_IsTheLocalClustersWhereNoneIsNamed(t *testing.T) {
	if _, err := local.Find(); errors.Is(err, fault.NotFound) {
		needs.Unmet(t, err)
	}
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Dir(dir)} {
		if err := os.Chmod(d, 0o711); err != nil { //nolint:gosec // The database's user must get through.
			t.Fatal(err)
		}
	}
	find := func() (string, error) {
		where := at(dir)
		where.File = write(t, "dispatcher: {harness: claude}")
		s, err := settings.LoadService(where, layout.Dispatcher)
		if err != nil {
			t.Fatal(err)
		}
		return local.ServiceURL(t.Context(), s, layout.Dispatcher)
	}
	if _, err := find(); !errors.Is(err, fault.Invalid) {
		t.Errorf("no database at all: %v", err)
	}
	cluster, err := local.Start(t.Context(), local.Options{Dir: layout.DataDir(dir).Postgres()})
	if err != nil {
		t.Fatal(err)
	}
	url, err := find()
	if err != nil || url != cluster.URL(layout.Database) {
		t.Errorf("%q, %v", url, err)
	}
	if err := cluster.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	if _, err := find(); !errors.Is(err, fault.Unavailable) {
		t.Errorf("one that does not run: %v", err)
	}
}
