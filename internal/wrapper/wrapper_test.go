package wrapper

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestRecord_ReadsBackAndIsPrivate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r.json")
	if _, err := ReadRecord(path); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("no record: %v", err)
	}
	want := Record{Stamp: "s1", State: Signaled, Signal: 9, EndedAt: time.Unix(5, 0).UTC()}
	if err := WriteRecord(path, want); err != nil {
		t.Fatal(err)
	}
	got, err := ReadRecord(path)
	if err != nil || got.State != Signaled || got.Signal != 9 || !got.Ended() || !got.ReachedHarness() || !got.EndedAt.Equal(want.EndedAt) {
		t.Fatalf("%+v, %v", got, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), ".*")); len(left) > 0 {
		t.Errorf("temporary files are left: %v", left)
	}
}

func TestRead_RefusesWhatWeDidNotWrite(t *testing.T) {
	dir := t.TempDir()
	good := filepath.Join(dir, "good")
	if err := WriteRecord(good, Record{State: Exited}); err != nil {
		t.Fatal(err)
	}
	for name, make := range map[string]func(path string) error{
		"a link":      func(p string) error { return os.Symlink(good, p) },
		"a directory": func(p string) error { return os.Mkdir(p, 0o700) },
		"a pipe":      func(p string) error { return exec.Command("mkfifo", p).Run() },
		"writable by others": func(p string) error {
			if err := os.WriteFile(p, []byte(`{"version":1}`), 0o600); err != nil {
				return err
			}
			return os.Chmod(p, 0o666)
		},
		"empty":           func(p string) error { return os.WriteFile(p, nil, 0o600) },
		"half":            func(p string) error { return os.WriteFile(p, []byte(`{"version":1,"st`), 0o600) },
		"another version": func(p string) error { return os.WriteFile(p, []byte(`{"version":2}`), 0o600) },
		"too large":       func(p string) error { return os.WriteFile(p, []byte(strings.Repeat(" ", maxFile+1)), 0o600) },
	} {
		path := filepath.Join(dir, strings.ReplaceAll(name, " ", "-"))
		if err := make(path); err != nil {
			t.Fatal(err)
		}
		if r, err := ReadRecord(path); err == nil {
			t.Errorf("%s is read as %+v", name, r)
		}
	}
}

func TestProcess_APidUsedAgainIsNotTheSame(t *testing.T) {
	self, err := Self()
	if err != nil {
		t.Fatal(err)
	}
	if alive, err := self.Alive(); err != nil || !alive {
		t.Errorf("we do not live: %v %v", alive, err)
	}
	for name, change := range map[string]func(*Process){
		"another start": func(p *Process) { p.Start++ },
		"another boot":  func(p *Process) { p.Boot = "x" },
		"no pid":        func(p *Process) { p.Pid = 0 },
	} {
		p := self
		change(&p)
		if alive, err := p.Alive(); err != nil || alive {
			t.Errorf("%s: alive %v, %v", name, alive, err)
		}
	}
}

func TestProcess_AZombieHasEnded(t *testing.T) {
	cmd := exec.Command("sleep", "300")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p, err := Find(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	// Nobody has waited for it yet: it stays a zombie.
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		if alive, err := p.Alive(); err == nil && !alive {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("a zombie counts as alive")
		}
	}
	_ = cmd.Wait()
}
