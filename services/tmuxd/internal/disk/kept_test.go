package disk

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestKept_AFileIsReadAgainOnceItIsAnotherOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	reads := 0
	read := func(path string) (string, error) {
		reads++
		data, err := os.ReadFile(path)
		return string(data), err
	}
	var k kept[string]
	later := func() time.Time { return time.Now().Add(time.Hour) }
	check := func(now func() time.Time, want string, wantReads int) {
		t.Helper()
		if got, err := k.get(path, now, read); err != nil || got != want || reads != wantReads {
			t.Errorf("got %q %v after %d reads, want %q after %d", got, err, reads, want, wantReads)
		}
	}
	replace := func(text string) {
		t.Helper()
		if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	replace("one")
	check(time.Now, "one", 1)
	check(time.Now, "one", 2) // it changed just now
	check(later, "one", 3)
	check(time.Now, "one", 3)
	replace("two")
	check(later, "two", 4)
	check(later, "two", 4)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := k.get(path, later, read); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of a file that is gone: %v", err)
	}
	replace("two")
	check(func() time.Time { return time.Now().Add(-time.Hour) }, "two", 6) // a clock that was set back
	check(time.Now, "two", 7)
}

func TestKept_WhatCannotBeReadIsAskedForAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var k kept[int]
	broken := errors.New("broken")
	for range 2 {
		if _, err := k.get(path, time.Now, func(string) (int, error) { return 0, broken }); !errors.Is(err, broken) {
			t.Error(err)
		}
	}
	if len(k.byID) != 0 {
		t.Error("it was kept")
	}
}
