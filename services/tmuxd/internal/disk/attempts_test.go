package disk

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"muxpost.dev/muxpost/services/tmuxd/internal/attempt"
)

// unwritten is how many pages of a file a power cut would take, by what the kernel says; none where it says nothing.
func unwritten(t *testing.T, path string) uint64 {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var st unix.Cachestat_t
	if err := unix.Cachestat(uint(f.Fd()), &unix.CachestatRange{}, &st, 0); err != nil {
		t.Logf("this kernel does not say what is written: %v", err)
	}
	return st.Dirty + st.Writeback
}

// What an attempt came to is synced; without its output nobody could tell why.
func TestKeep_TheOutputSurvivesAPowerCut(t *testing.T) {
	d := open(t)
	a, err := d.OpenAttempts()
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Begin("a1", "do it"); err != nil {
		t.Fatal(err)
	}
	text := strings.Repeat("what it showed\n", 4096)
	beside := filepath.Join(d.root, "beside")
	if err := os.WriteFile(beside, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if unwritten(t, beside) == 0 {
		t.Log("that it is synced is not shown: this file system does not tell what is not yet written")
	}
	for _, out := range []attempt.Output{{Text: text, Cut: true}, {Text: text + "and more"}} {
		if err := a.Keep("a1", out); err != nil {
			t.Fatal(err)
		}
		if n := unwritten(t, a.file("a1", outputFile)); n > 0 {
			t.Errorf("a power cut takes %d pages of it", n)
		}
		if got, err := a.Kept("a1"); err != nil || got.Text != out.Text || !got.Cut {
			t.Errorf("%d bytes, cut %v, %v", len(got.Text), got.Cut, err)
		}
	}
	if left, err := filepath.Glob(a.file("a1", ".*")); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
