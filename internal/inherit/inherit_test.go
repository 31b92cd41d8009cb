package inherit

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"muxpost.dev/muxpost/internal/needs"
)

// nobody is a user without any rights, the same everywhere.
const nobody = 65534

// theirs is a directory of another user's.
func theirs(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		needs.Unmet(t, "only root can make what belongs to another user")
	}
	dir := t.TempDir()
	if err := os.Chown(dir, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	return dir
}

func owner(t *testing.T, path string) (uid, gid int) {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	st := info.Sys().(*syscall.Stat_t)
	return int(st.Uid), int(st.Gid)
}

func TestMkdirAll_WhatRootMakesIsTheDirectorysOwners(t *testing.T) {
	dir := theirs(t)
	deep := filepath.Join(dir, "a", "b")
	for range 2 { // what is there stays as it is
		if err := MkdirAll(deep, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{filepath.Dir(deep), deep} {
		uid, gid := owner(t, path)
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o700 || uid != nobody || gid != nobody {
			t.Errorf("%s: %v, %v, of %d:%d", path, info, err, uid, gid)
		}
	}
	// What was root's stays root's, and nothing in it is given away.
	if err := os.Chown(deep, 0, 0); err != nil {
		t.Fatal(err)
	}
	if err := MkdirAll(filepath.Join(deep, "c"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{deep, filepath.Join(deep, "c")} {
		if uid, gid := owner(t, path); uid != 0 || gid != 0 {
			t.Errorf("%s is of %d:%d", path, uid, gid)
		}
	}
}

func TestOwner_AFileIsTheDirectorysOwners(t *testing.T) {
	for want, dir := range map[int]string{nobody: theirs(t), 0: t.TempDir()} {
		f, err := os.Create(filepath.Join(dir, "f"))
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(Owner(f), f.Close()); err != nil {
			t.Fatal(err)
		}
		if uid, gid := owner(t, f.Name()); uid != want || gid != want {
			t.Errorf("it is of %d:%d, want %d", uid, gid, want)
		}
	}
}

func TestMkdirAll_SaysWhatIsNoDirectory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{file, filepath.Join(file, "below")} {
		if err := MkdirAll(dir, 0o700); err == nil {
			t.Errorf("%s was made", dir)
		}
	}
}
