package notes

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

func write(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestWatch_TellsOfWhatIsWrittenAndRenamedIntoTheDirectory(t *testing.T) {
	dir, names := t.TempDir(), make(chan string, 100)
	stop, err := Watch(dir, func(name string) { names <- name }, func() { t.Error("nothing was missed") })
	if err != nil {
		t.Fatal(err)
	}
	heard := func(want string) {
		t.Helper()
		select {
		case got := <-names:
			if got != want {
				t.Errorf("%q, want %q", got, want)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("nothing is heard of %q", want)
		}
	}
	write(t, filepath.Join(dir, "a"))
	heard("a")
	elsewhere := filepath.Join(t.TempDir(), "b.new")
	write(t, elsewhere)
	if err := os.Rename(elsewhere, filepath.Join(dir, "b")); err != nil {
		t.Fatal(err)
	}
	heard("b")
	if err := os.Remove(filepath.Join(dir, "a")); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "c"))
	heard("c")
	for range 2 {
		if err := stop(); err != nil {
			t.Errorf("stopping: %v", err)
		}
	}
	write(t, filepath.Join(dir, "d"))
	select {
	case name := <-names:
		t.Errorf("after the end %q is told", name)
	default:
	}
}

func TestWatch_ADirectoryThatIsNotThereIsAnError(t *testing.T) {
	if _, err := Watch(filepath.Join(t.TempDir(), "none"), nil, nil); err == nil {
		t.Error("it is watched")
	}
}

func TestWatch_AQueueThatRanOverIsTold(t *testing.T) {
	limit, err := os.ReadFile("/proc/sys/fs/inotify/max_queued_events")
	if err != nil {
		t.Fatal(err)
	}
	var most int
	if _, err := fmt.Sscan(string(limit), &most); err != nil {
		t.Fatal(err)
	}
	dir, missed, block := t.TempDir(), make(chan bool, 1), make(chan bool)
	stop, err := Watch(dir, func(string) { <-block }, func() {
		select {
		case missed <- true:
		default:
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	for n := range most + 2000 { // equal events in a row are one
		write(t, filepath.Join(dir, fmt.Sprint(n%2)))
	}
	close(block)
	select {
	case <-missed:
	case <-time.After(20 * time.Second):
		t.Error("it is not told")
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestParse_NamesEachOnceAndSurvivesAnything(t *testing.T) {
	event := func(name string, size int) []byte {
		e := make([]byte, 16+size)
		e[12] = byte(size)
		copy(e[16:], name)
		return e
	}
	all := slices.Concat(event("a", 16), event("bb", 16), event("a", 16), event("", 0))
	if names, overflow := parse(all); !slices.Equal(names, []string{"a", "bb"}) || overflow {
		t.Errorf("%q, %v", names, overflow)
	}
	for n := range all {
		parse(all[:n])
	}
	lost := event("", 0)
	lost[5] = 0x40 // IN_Q_OVERFLOW
	if _, overflow := parse(lost); !overflow {
		t.Error("an overflow is passed over")
	}
}
