package stack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/layout"
	"muxpost.dev/muxpost/internal/needs"
	"muxpost.dev/muxpost/internal/settings"
)

// rig is a data directory with a record of one service.
type rig struct {
	*Stack
	said *bytes.Buffer
}

func newRig(t *testing.T) rig {
	t.Helper()
	// A socket's address is short, and so must be the directory of its test.
	dir, err := os.MkdirTemp("", "mux")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s, err := settings.Load(settings.Where{DataDir: dir, BinDir: dir, Getenv: func(string) string { return "" }})
	if err != nil {
		t.Fatal(err)
	}
	if err := MakeDataDir(s.DataDir, true); err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	say := func(format string, args ...any) { fmt.Fprintf(&said, format+"\n", args...) }
	return rig{&Stack{Settings: s, BinDir: dir, Say: say, Now: time.Now}, &said}
}

// record writes the pid file of a service.
func (r rig) record(t *testing.T, service layout.Service, p Process) {
	t.Helper()
	if err := writeJSON(r.DataDir.PIDFile(service), Record{Service: service, Process: p, StartedAt: time.Now()}); err != nil {
		t.Fatal(err)
	}
}

// sleeper starts a process that this test may signal, and has it reaped.
func sleeper(t *testing.T, script string) (Process, <-chan struct{}) {
	t.Helper()
	cmd := exec.Command("sh", "-c", script)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// It says when its traps are set.
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	p, err := identify(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
	})
	return p, ended
}

func TestFind_TellsARunningServiceFromAStaleFile(t *testing.T) {
	r := newRig(t)
	if got := Find(r.DataDir, layout.Poller); got.Life != NeverStarted {
		t.Errorf("without a file: %+v", got)
	}
	self, err := identify(os.Getpid())
	if err != nil {
		needs.Unmet(t, err) // this system does not tell when a process started
	}
	r.record(t, layout.Poller, self)
	if got := Find(r.DataDir, layout.Poller); got.Life != Running {
		t.Errorf("a living process: %+v", got)
	}
	later, earlierBoot := self, self
	later.Start++
	earlierBoot.Boot = "another"
	for name, p := range map[string]Process{
		"a pid that another process has by now": later, "a pid of an earlier boot": earlierBoot, "no pid": {},
	} {
		r.record(t, layout.Poller, p)
		if got := Find(r.DataDir, layout.Poller); got.Life != Ended {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if err := os.WriteFile(r.DataDir.PIDFile(layout.Poller), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := Find(r.DataDir, layout.Poller); got.Life != Unclear || got.Problem == "" {
		t.Errorf("a damaged file: %+v", got)
	}
	r.record(t, layout.Poller, self)
	if err := os.Rename(r.DataDir.PIDFile(layout.Poller), r.DataDir.PIDFile(layout.Tmuxd)); err != nil {
		t.Fatal(err)
	}
	if got := Find(r.DataDir, layout.Tmuxd); got.Life != Unclear {
		t.Errorf("a file of another service: %+v", got)
	}
}

func TestStop_NeverSignalsAReusedPid(t *testing.T) {
	r := newRig(t)
	p, ended := sleeper(t, "echo; exec sleep 60")
	reused := p
	reused.Start--
	r.record(t, layout.Poller, reused)
	ran, err := r.stop(t.Context(), layout.Poller, r.Say)
	if ran || err != nil {
		t.Errorf("%v, %v", ran, err)
	}
	if sent, err := send(reused, syscall.SIGTERM); sent || err != nil {
		t.Errorf("sent %v, %v", sent, err)
	}
	select {
	case <-ended:
		t.Fatal("a process that was not meant was signalled")
	default:
	}
	if Find(r.DataDir, layout.Poller).Life != NeverStarted {
		t.Error("the stale file is still there")
	}
	r.record(t, layout.Poller, p)
	if ran, err := r.stop(t.Context(), layout.Poller, r.Say); !ran || err != nil {
		t.Errorf("the right one: %v, %v", ran, err)
	}
	<-ended
}

func TestWaitGone_GivesUpOnAProcessThatStays(t *testing.T) {
	p, ended := sleeper(t, "trap '' TERM; echo; while :; do sleep 1; done")
	if sent, err := send(p, syscall.SIGTERM); !sent || err != nil {
		t.Fatalf("%v, %v", sent, err)
	}
	if gone, err := waitGone(t.Context(), p, 50*time.Millisecond, func() {}); gone || err != nil {
		t.Errorf("%v, %v", gone, err)
	}
	if sent, err := send(p, syscall.SIGKILL); !sent || err != nil {
		t.Fatalf("%v, %v", sent, err)
	}
	<-ended
	if gone, err := waitGone(t.Context(), p, time.Second, func() {}); !gone || err != nil {
		t.Errorf("%v, %v", gone, err)
	}
}

func TestLock_IsHeldByOneAtATime(t *testing.T) {
	r := newRig(t)
	unlock, err := Lock(r.DataDir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Lock(r.DataDir); !errors.Is(err, fault.Conflict) {
		t.Errorf("a second one: %v", err)
	}
	unlock()
	if unlock, err = Lock(r.DataDir); err != nil {
		t.Fatal(err)
	}
	unlock()
}

func TestTail_WritesRecordsForPeople(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.log")
	text := "old\n" +
		`{"time":"2026-01-02T03:04:05Z","level":"WARN","msg":"the database does not answer","service":"poller","error":"refused","try":2}` +
		"\nplain \x1b[31mred\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).Local().Format("15:04:05")
	want := []string{at + " WARN the database does not answer error=refused try=2", "plain  [31mred"}
	if diff := cmp.Diff(want, Tail(path, 4, 5)); diff != "" {
		t.Error(diff)
	}
	if got := Tail(path+"none", 0, 5); got != nil {
		t.Errorf("%v", got)
	}
}

func TestEnviron_GivesTheDatabaseToWhoNeedsItAlone(t *testing.T) {
	r := newRig(t)
	r.Environ = []string{"PATH=/bin", "MUXPOST_DATA_DIR=x", "MUXPOST_DATABASE_URL=old", "TMUX=y"}
	if diff := cmp.Diff([]string{"PATH=/bin"}, r.environ(layout.Tmuxd, "postgres://x")); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"PATH=/bin", "MUXPOST_DATABASE_URL=postgres://x"}, r.environ(layout.Poller, "postgres://x")); diff != "" {
		t.Error(diff)
	}
}

func TestMakeDataDir_IsPrivateExceptForRoot(t *testing.T) {
	for _, root := range []bool{true, false} {
		dir := layout.DataDir(filepath.Join(t.TempDir(), "a", "b"))
		if err := MakeDataDir(dir, root); err != nil {
			t.Fatal(err)
		}
		want := fs.FileMode(0o700)
		if root {
			want = 0o711
		}
		for path, mode := range map[string]fs.FileMode{string(dir): want, dir.LogDir(): 0o700, dir.RunDir(): 0o700} {
			if info, err := os.Stat(path); err != nil || info.Mode().Perm() != mode {
				t.Errorf("%s: %v, %v", path, info.Mode(), err)
			}
		}
	}
}

func TestTmux_RefusesOneThatIsTooOld(t *testing.T) {
	dir := t.TempDir()
	for text, ok := range map[string]bool{
		"tmux 3.3a": true, "tmux 3.4": true, "tmux 4.0": true, "tmux next-3.6": true, "tmux 3.2a": false, "tmux 2.9": false, "tmux openbsd": true,
	} {
		path := filepath.Join(dir, "tmux")
		if err := os.WriteFile(path, []byte("#!/bin/sh\necho '"+text+"'\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		if _, err := Tmux(context.Background(), path); (err == nil) != ok {
			t.Errorf("%s: %v", text, err)
		}
	}
	if _, err := Tmux(context.Background(), filepath.Join(dir, "none")); fault.ReasonOf(err) != fault.ReasonTmuxMissing {
		t.Errorf("%v", err)
	}
}

func TestPreflight_TellsEveryProblemAtOnce(t *testing.T) {
	r := newRig(t)
	t.Setenv("MUXPOST_PG_BINDIR", "/nowhere")
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	r.Tmuxd.Tmux, r.Tmuxd.Listen, r.Poller.Listen = "no-such-tmux", taken.Addr().String(), "192.0.2.1:1"
	r.Dispatcher.Listen = "unix:" + string(r.DataDir) + "/d.sock"
	r.Tmuxd.SocketDir = "/" + strings.Repeat("a", 90)
	err = notReady(r.preflight(t.Context(), nil))
	if !errors.Is(err, fault.Invalid) {
		t.Errorf("%v", err)
	}
	for _, want := range []string{
		"no-such-tmux", "muxpost-tmuxd", "muxpost-exec", "/nowhere", "in use", "192.0.2.1:1", "dispatcher.harness", "91 bytes",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("nothing is said of %s in:\n%v", want, err)
		}
	}
}

func TestInSession_IsToldByTheStamp(t *testing.T) {
	for entry, want := range map[string]bool{
		"MUXPOST_STAMP=s1": true, "MUXPOST_STAMP=": false, "MUXPOST_STAMPED=s1": false, "XMUXPOST_STAMP=s1": false, "MUXPOST_STAMP": false, "": false,
	} {
		if got := InSession([]string{"PATH=/bin", entry}); got != want {
			t.Errorf("%q: %v", entry, got)
		}
	}
}

func TestPreflight_RefusesInsideAnAgentsSessionUnlessNothingIsStartedOrItIsMeant(t *testing.T) {
	r := newRig(t)
	r.Environ = []string{"MUXPOST_STAMP=s1"}
	refused := func(running map[layout.Service]bool) bool {
		problems := r.preflight(t.Context(), running)
		return len(problems) > 0 && strings.Contains(notReady(problems).Error(), "agent's session")
	}
	if !refused(nil) {
		t.Error("everything would be started")
	}
	all := map[layout.Service]bool{}
	for _, service := range layout.Services() {
		all[service] = true
	}
	if !refused(all) {
		t.Error("the database would be started")
	}
	r.Dispatcher.DatabaseURL, r.Poller.DatabaseURL = "postgres://127.0.0.1/x", "postgres://127.0.0.1/x"
	if refused(all) {
		t.Error("nothing would be started")
	}
	if all[layout.Poller] = false; !refused(all) {
		t.Error("the poller would be started")
	}
	if r.InSession = true; refused(nil) {
		t.Error("it is meant")
	}
}

func TestAgents_AreTheSocketsThatSomebodyListensOn(t *testing.T) {
	r := newRig(t)
	dir := r.Tmuxd.SocketDir
	for _, sub := range []string{"", "sessions"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	living, err := net.Listen("unix", r.Socket("loop-octo-widget-7"))
	if err != nil {
		t.Fatal(err)
	}
	defer living.Close()
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: r.Socket("loop-octo-widget-8"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	dead.Close()
	memory := `{"Target":"loop-octo-widget-7","WorkItem":"github:octo/widget#7"}`
	for path, text := range map[string]string{"sessions/loop-octo-widget-7.json": memory, "loop-x-y-1.sock": "no socket"} {
		if err := os.WriteFile(filepath.Join(dir, path), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := r.Agents()
	want := []Agent{{Target: "loop-octo-widget-7", WorkItem: "github:octo/widget#7", Socket: r.Socket("loop-octo-widget-7"), Answers: true}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
}

func TestDown_WithNothingRunningSaysNothingRan(t *testing.T) {
	r := newRig(t)
	if ran, err := r.Down(t.Context(), false); ran || err != nil || r.said.Len() > 0 {
		t.Errorf("%v, %v, %q", ran, err, r.said)
	}
}

func TestNotes_AStandInIsNamed(t *testing.T) {
	r := newRig(t)
	r.Dispatcher.Harness = settings.StandIn
	if out := notes(&r.Settings); len(out) != 0 {
		t.Errorf("%q", out)
	}
	r.Poller.Sources = []settings.Source{{Name: "widgets"}}
	if out := notes(&r.Settings); len(out) != 1 || !strings.Contains(out[0], "a work item keeps the harness that it was started with") {
		t.Errorf("%q", out)
	}
}
