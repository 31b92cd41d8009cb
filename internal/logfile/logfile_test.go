package logfile

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func content(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func say(t *testing.T, f *os.File, text string) {
	t.Helper()
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

// A log that is written to without a break is put aside each time that it is full; no word is lost, and only so many are kept.
func TestLook_PutsAsideWhatIsFullUnderWhoWrites(t *testing.T) {
	path := filepath.Join(t.TempDir(), "poller.log")
	out, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	for round := range Kept + 2 {
		say(t, out, fmt.Sprintf("round %d\n", round))
		if err := Look(out, path); err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(content(t, path), fmt.Sprintf("round %d\n", round)) {
			t.Errorf("round %d: it was put aside although it is small", round)
		}
		say(t, out, strings.Repeat("x", Max))
		if err := Look(out, path); err != nil {
			t.Fatal(err)
		}
		if got := content(t, path); got != "" {
			t.Errorf("round %d: the new one begins with %.20q", round, got)
		}
		if got := content(t, path+".1"); !strings.HasPrefix(got, fmt.Sprintf("round %d\n", round)) || len(got) < Max {
			t.Errorf("round %d: put aside was %.20q, of %d bytes", round, got, len(got))
		}
	}
	say(t, out, "the last word")
	if got := content(t, path); got != "the last word" {
		t.Errorf("%q", got)
	}
	if files, err := filepath.Glob(path + "*"); err != nil || len(files) != 1+Kept {
		t.Errorf("left are %v, %v", files, err)
	}
	if got := content(t, fmt.Sprintf("%s.%d", path, Kept)); !strings.HasPrefix(got, "round 2\n") {
		t.Errorf("the oldest is %.20q", got)
	}
}

func TestLook_LeavesAloneWhatIsNoLogOfThatName(t *testing.T) {
	dir := t.TempDir()
	path, other := filepath.Join(dir, "poller.log"), filepath.Join(dir, "other")
	out, err := os.Create(other)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	say(t, out, strings.Repeat("x", Max+1))
	for _, there := range []bool{false, true} {
		if there {
			if err := os.WriteFile(path, make([]byte, Max+1), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := Look(out, path); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(path + ".1"); err == nil || len(content(t, other)) != Max+1 {
			t.Errorf("somebody else's file was touched: %v", err)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != fs.FileMode(0o600) {
		t.Error(info, err)
	}
}
