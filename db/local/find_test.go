package local

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"muxpost.dev/muxpost/core/fault"
)

// install makes a directory with the two programs in it.
func install(t *testing.T, dir string, programs ...string) string {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, p := range programs {
		if err := os.WriteFile(filepath.Join(dir, p), []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func dirs(all []Binaries) []string {
	var out []string
	for _, b := range all {
		out = append(out, b.Dir)
	}
	return out
}

func TestFind_PathComesFirstThenTheNewestVersion(t *testing.T) {
	root := t.TempDir()
	nine := install(t, filepath.Join(root, "pg", "9", "bin"), "initdb", "postgres")
	fifteen := install(t, filepath.Join(root, "pg", "15", "bin"), "initdb", "postgres")
	install(t, filepath.Join(root, "pg", "17", "bin"), "initdb") // a client package brings parts
	other := install(t, filepath.Join(root, "own"), "initdb", "postgres")
	p := places{path: []string{"", "relative", other}, globs: []string{filepath.Join(root, "pg", "*", "bin")}}
	all, err := p.find()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{other, fifteen, nine}, dirs(all)); diff != "" {
		t.Error(diff)
	}
}

func TestFind_FollowsALinkOnThePathToTheRealDirectory(t *testing.T) {
	root := t.TempDir()
	real := install(t, filepath.Join(root, "real"), "initdb", "postgres")
	links := install(t, filepath.Join(root, "links"))
	if err := os.Symlink(filepath.Join(real, "postgres"), filepath.Join(links, "postgres")); err != nil {
		t.Fatal(err)
	}
	all, err := places{path: []string{links}}.find()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{real}, dirs(all)); diff != "" {
		t.Error(diff)
	}
}

func TestFind_TheOperatorsChoiceIsTheOnlyOne(t *testing.T) {
	root := t.TempDir()
	good := install(t, filepath.Join(root, "good"), "initdb", "postgres")
	chosen := install(t, filepath.Join(root, "chosen"), "postgres")
	p := places{binDir: chosen, path: []string{good}}
	_, err := p.find()
	if !errors.Is(err, fault.NotFound) {
		t.Fatalf("got %v, want not found", err)
	}
	for _, want := range []string{"MUXPOST_PG_BINDIR", chosen} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
	p.binDir = good
	if all, err := p.find(); err != nil || len(all) != 1 || all[0].Dir != good {
		t.Errorf("got %v, %v", all, err)
	}
}

func TestFind_WithoutProgramsSaysWhichPackageToInstall(t *testing.T) {
	_, err := places{path: []string{t.TempDir()}, globs: []string{"/nowhere/*/bin"}}.find()
	if !errors.Is(err, fault.NotFound) {
		t.Fatalf("got %v, want not found", err)
	}
	for _, want := range []string{"initdb", "/nowhere/*/bin", "apt-get install postgresql", "MUXPOST_PG_BINDIR"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
}

func TestParsePidFile_ReadsWhatIsThere(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		want       pidFile
		ok         bool
	}{
		{"whole", "12\n/d\n1700000000\n5433\n/s\n\n  1 2\nready   \n", pidFile{pid: 12, port: 5433, socket: "/s"}, true},
		{"stopping", "12\n/d\n1700000000\n5433\n/s\n\n  1 2\nstopping\n", pidFile{pid: 12, port: 5433, socket: "/s", stopping: true}, true},
		{"just begun", "12\n/d\n", pidFile{pid: 12}, true},
		{"single user", "-12\n/d\n", pidFile{}, false},
		{"empty", "", pidFile{}, false},
		{"garbage", "x\n", pidFile{}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, ok := parsePidFile(tc.text)
			if got != tc.want || ok != tc.ok {
				t.Errorf("got %+v, %v, want %+v, %v", got, ok, tc.want, tc.ok)
			}
		})
	}
}
