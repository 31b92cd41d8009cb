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
		"empty":      func(p string) error { return os.WriteFile(p, nil, 0o600) },
		"half":       func(p string) error { return os.WriteFile(p, []byte(`{"version":1,"st`), 0o600) },
		"no version": func(p string) error { return os.WriteFile(p, []byte(`{"state":"exited"}`), 0o600) },
		"too large":  func(p string) error { return os.WriteFile(p, []byte(strings.Repeat(" ", maxFile+1)), 0o600) },
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

// T23: what is in the file decides, and anything else than a wrapper's own record is malformed.
func TestReadRecord_TakesNothingForAnEndThatIsNone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r")
	for _, content := range []string{
		"abc", "0", "-1", "256", "0x0", "0 0", "0\n1", "\x00\x00", "[]", "null", `""`, "{}", `{"version":1}`, `{"version":1,"state":""}`,
		`{"version":1,"state":"exited","code":-1}`, `{"version":1,"state":"exited","code":256}`, `{"version":1,"state":"exited","code":"0"}`,
		`{"version":1,"state":"exited","code":0}{"version":1}`, `{"version":1,"state":"signaled"}`, `{"version":1,"state":"signaled","signal":65}`,
		`{"version":1,"state":"running","code":3}`, `{"version":1,"state":"exited","signal":9}`, `{"version":1,"state":"done"}`, `{"version":-1,"state":"exited"}`,
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if r, err := ReadRecord(path); !errors.Is(err, ErrMalformed) || r.Ended() {
			t.Errorf("%q is read as %+v, %v", content, r, err)
		}
	}
}

func TestReadRecord_ALaterVersionSaysNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r")
	// Whatever a later version means by these fields, and however it writes them.
	for _, content := range []string{`{"version":2,"state":"exited","code":0}`, `{"version":99,"state":{"kind":"exited"},"wrapper":"7"}`} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if r, err := ReadRecord(path); !errors.Is(err, ErrNewer) || errors.Is(err, ErrMalformed) || r.Ended() || r.State != "" {
			t.Errorf("%s is read as %+v, %v", content, r, err)
		}
	}
}

func TestReadSpec_OfTheVersionsThatThisWrapperKnows(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	for content, ok := range map[string]bool{
		`{"version":1,"argv":["x"],"record_file":"r"}`:                   true,
		`{"version":2,"argv":["x"],"record_file":"r","limit":5}`:         true,
		`{"version":3,"argv":["x"],"record_file":"r"}`:                   true,
		`{"version":3,"argv":["x"],"record_file":"r","companion":["y"]}`: false,
		`{"version":4,"argv":["x"],"record_file":"r"}`:                   false,
		`{"version":2,"argv":[],"record_file":"r"}`:                      false,
		`{"version":2,"argv":["x"]}`:                                     false,
		`{"version":2,"argv":["x"],"record_file":"r","limit":-1}`:        false,
		`{"version":2,"argv":["x"],"record_file":"r","grace":-1}`:        false,
		`{"version":2,"argv":["x"],"record_file":"r","limit":"1"}`:       false,
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if s, err := ReadSpec(path); (err == nil) != ok {
			t.Errorf("%s is read as %+v, %v", content, s, err)
		}
	}
}

func FuzzReadRecord(f *testing.F) {
	for _, seed := range []string{`{"version":1,"state":"exited","code":7}`, `{"version":1,"state":"signaled","signal":9}`, `{"version":2}`, "", "{"} {
		f.Add([]byte(seed))
	}
	path := filepath.Join(f.TempDir(), "r")
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := ReadRecord(path)
		if err != nil {
			if r.Ended() || !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrNewer) {
				t.Errorf("%+v, %v", r, err)
			}
			return
		}
		if r.Code < 0 || r.Code > 255 || (r.Signal > 0) != (r.State == Signaled) {
			t.Errorf("%+v", r)
		}
	})
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
