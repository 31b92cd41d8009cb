package logfile

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

const (
	// writers write lines each, in a process of its own whose standard error is the log.
	writers, lines = 8, 450
	child          = "LOGFILE_CHILD"
)

// TestMain is the service too: it logs from several goroutines, and says a word by itself at its end.
func TestMain(m *testing.M) {
	path := os.Getenv(child)
	if path == "" {
		os.Exit(m.Run())
	}
	out := Standard(os.Stderr, path)
	if w, ok := out.(*writer); ok {
		w.most = 64 << 10
	}
	var wait sync.WaitGroup
	for i := range writers {
		wait.Go(func() {
			for n := range lines {
				fmt.Fprintf(out, "writer %d line %d %s\n", i, n, strings.Repeat("x", 40))
			}
		})
	}
	wait.Wait()
	fmt.Fprintln(os.Stderr, "the last word")
	fmt.Fprintln(os.Stdout, "and one more")
}

func TestStandard_TurnsTheLogWhileItIsWrittenAndLosesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "service.log")
	log, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), child+"="+path)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	var all []byte
	for n := kept; n >= 0; n-- {
		name := path
		if n > 0 {
			name = fmt.Sprintf("%s.%d", path, n)
		}
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if info, _ := os.Stat(name); info.Size() > 65<<10 || info.Mode().Perm() != 0o600 {
			t.Errorf("%s has %d bytes, mode %v", name, info.Size(), info.Mode())
		}
		all = append(all, data...)
	}
	for i := range writers {
		for n := range lines {
			if c := bytes.Count(all, fmt.Appendf(nil, "writer %d line %d %s\n", i, n, strings.Repeat("x", 40))); c != 1 {
				t.Fatalf("line %d of writer %d is there %d times", n, i, c)
			}
		}
	}
	if now, err := os.ReadFile(path); err != nil || !strings.HasSuffix(string(now), "the last word\nand one more\n") {
		t.Errorf("what was said beside the log is elsewhere: %v", err)
	}
}

func TestStandard_LeavesAloneWhatIsNotTheLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "service.log")
	other, err := os.Create(path + ".mine")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if Standard(other, path) != other {
		t.Error("there is no log, and something else was taken for it")
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var buffer bytes.Buffer
	if Standard(other, path) != other || Standard(&buffer, path) != &buffer {
		t.Error("something else was taken for the log")
	}
}

func TestOpen_PutsALargeLogAside(t *testing.T) {
	path := filepath.Join(t.TempDir(), "service.log")
	for n := range kept + 2 {
		log, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fprintf(log, "log %d\n", n); err != nil {
			t.Fatal(err)
		}
		if err := log.Truncate(maxSize + 1); err != nil {
			t.Fatal(err)
		}
		log.Close()
	}
	old, err := filepath.Glob(path + "*")
	if err != nil || len(old) != kept+1 {
		t.Errorf("%v, %v", old, err)
	}
	if data, err := os.ReadFile(path + ".1"); err != nil || !strings.HasPrefix(string(data), fmt.Sprintf("log %d", kept)) {
		t.Errorf("the latest that was put aside: %v", err)
	}
	// A small one goes on.
	if err := os.WriteFile(path, []byte("x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	log, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(log, "y")
	log.Close()
	if data, err := os.ReadFile(path); err != nil || string(data) != "x\ny\n" {
		t.Errorf("%q, %v", data, err)
	}
}
