package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"muxpost.dev/muxpost/cmd/muxpost/internal/stack"
	"muxpost.dev/muxpost/db/local"
	"muxpost.dev/muxpost/internal/layout"
	"muxpost.dev/muxpost/internal/needs"
	"muxpost.dev/muxpost/internal/run"
	"muxpost.dev/muxpost/internal/settings"
	"muxpost.dev/muxpost/internal/wrapper"
)

// programs builds every program of a release once a test run.
var programs = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "muxbin")
	if err != nil {
		return "", err
	}
	programsDir = dir
	const module = "muxpost.dev/muxpost/"
	for name, path := range map[string]string{
		"muxpost": "cmd/muxpost", "muxpost-exec": "cmd/muxpost-exec", "muxpost-tmuxd": "services/tmuxd",
		"muxpost-dispatcher": "services/dispatcher", "muxpost-poller": "services/poller", "fakeagent": "test/fakeagent",
	} {
		if out, err := exec.Command("go", "build", "-o", filepath.Join(dir, name), module+path).CombinedOutput(); err != nil {
			return dir, errors.New(string(out))
		}
	}
	return dir, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if programsDir != "" {
		os.RemoveAll(programsDir)
	}
	os.Exit(code)
}

// programsDir is where the programs were built; empty when no test asked for them.
var programsDir string

// installation is a whole muxpost with everything real, in a directory of its own.
type installation struct {
	t        *testing.T
	bin, dir string
}

func newInstallation(t *testing.T) *installation {
	t.Helper()
	needs.Program(t, "tmux")
	if _, err := local.Find(); err != nil {
		needs.Unmet(t, err)
	}
	bin, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "mux")
	if err != nil {
		t.Fatal(err)
	}
	// The database may run as another user, who must get through.
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	i := &installation{t: t, bin: bin, dir: dir}
	t.Cleanup(i.remove)
	return i
}

// remove ends everything that the installation started, agents included.
func (i *installation) remove() {
	if out, code := i.run("down"); code != 0 {
		i.t.Errorf("the end: %d\n%s", code, out)
	}
	sockets, _ := filepath.Glob(filepath.Join(i.dir, "tmuxd", "*.sock"))
	for _, socket := range sockets {
		if stack.Listens(socket) == stack.Somebody {
			_ = exec.Command("tmux", "-N", "-S", socket, "kill-server").Run()
		}
	}
	os.RemoveAll(i.dir)
}

// config writes a configuration in which nothing can collide with another test's.
func (i *installation) config(more string) {
	i.t.Helper()
	text := strings.ReplaceAll(strings.ReplaceAll(`tmuxd: {listen: 'unix:DIR/t.sock'MORE}
dispatcher: {listen: 'unix:DIR/d.sock', harness: fakeagent, host: {address: 'unix:DIR/t.sock'}}
poller: {listen: 'unix:DIR/p.sock', dispatcher: 'unix:DIR/d.sock'}
`, "MORE", more), "DIR", i.dir)
	if err := os.WriteFile(filepath.Join(i.dir, "muxpost.yaml"), []byte(text), 0o600); err != nil {
		i.t.Fatal(err)
	}
}

// run runs muxpost and returns what it wrote and its exit code.
func (i *installation) run(line ...string) (string, int) {
	i.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(i.bin, "muxpost"), append([]string{"--data-dir", i.dir}, line...)...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	// The tests themselves may run inside an agent's session.
	cmd.Env = append(os.Environ(), layout.ConfigVariable+"=", layout.DatabaseURLVariable+"=", wrapper.StampVariable+"=")
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		i.t.Fatalf("muxpost %v: %v", line, err)
	}
	return out.String(), cmd.ProcessState.ExitCode()
}

// must is run for what has to succeed and say something.
func (i *installation) must(want string, line ...string) string {
	i.t.Helper()
	out, code := i.run(line...)
	if code != 0 || !strings.Contains(out, want) {
		i.t.Fatalf("muxpost %v: exit code %d, and %q expected in\n%s", line, code, want, out)
	}
	return out
}

func TestUp_CarriesAnEventToAnAgentAndDownLeavesItAlone(t *testing.T) {
	i := newInstallation(t)
	i.config("")
	i.must("0 failed", "doctor")
	i.must("poller      healthy", "up")
	i.must("nothing was started", "up")
	i.must("nothing was sent", "send", "--dry-run", "github:octo/widget#7", "hello")
	i.must("delivered", "send", "--wait", "--timeout", "60s", "--key", "k1", "github:octo/widget#7", "hello")
	i.must("used before", "send", "--key", "k1", "github:octo/widget#7", "hello")

	var ledger struct{ Entries []struct{ DeliveryID string } }
	if err := json.Unmarshal([]byte(i.must("DELIVERED", "ledger", "--json")), &ledger); err != nil || len(ledger.Entries) != 1 {
		t.Fatalf("%v, %+v", err, ledger)
	}
	id := ledger.Entries[0].DeliveryID
	i.must("live", "sessions")
	i.must(id, "deliveries", "github:octo/widget#7")
	i.must("session.spawned", "events", "--delivery", id)
	i.must("delivered by start", "explain", id)
	i.must(id, "explain", "https://github.com/octo/widget/issues/7")
	attach := i.must("loop-octo-widget-7.sock", "attach", "--print", "github:octo/widget#7")
	i.must("1 delivered", "status")
	i.must("0 failed", "doctor")

	i.dispatcherDies()
	if out := i.must("1 session stays", "down"); !strings.Contains(out, "kill-session -t '=loop-octo-widget-7:'") {
		t.Errorf("down does not say how to end the agent:\n%s", out)
	}
	i.must("nothing runs", "down")
	i.must("deliver.Deliver", "trace", id)
	if out, code := i.run("explain", id); code != run.ExitUnavailable {
		t.Errorf("with all down: %d\n%s", code, out)
	}
	if again := i.must("loop-octo-widget-7.sock", "attach", "--print", "github:octo/widget#7"); !strings.Contains(again, attach) {
		t.Errorf("%q, and %q before", again, attach)
	}
	i.comesBack()
}

// dispatcherDies kills the dispatcher: status and doctor say so, and up starts that one alone.
func (i *installation) dispatcherDies() {
	i.t.Helper()
	found := stack.Find(layout.DataDir(i.dir), layout.Dispatcher)
	if err := syscall.Kill(found.Process.Pid, syscall.SIGKILL); err != nil {
		i.t.Fatal(err)
	}
	deadline := time.Now().Add(10 * time.Second)
	for stack.Find(layout.DataDir(i.dir), layout.Dispatcher).Life != stack.Ended {
		if time.Now().After(deadline) {
			i.t.Fatal("a killed process does not end")
		}
		time.Sleep(10 * time.Millisecond)
	}
	if out, code := i.run("status"); code != run.ExitUnavailable || !strings.Contains(out, "had been started and ended") {
		i.t.Errorf("status: %d\n%s", code, out)
	}
	if out, code := i.run("doctor"); code != run.ExitFailed || !strings.Contains(out, "dispatcher does not run") {
		i.t.Errorf("doctor: %d\n%s", code, out)
	}
	out := i.must("dispatcher  healthy", "up")
	if !strings.Contains(out, "tmuxd       runs already") || !strings.Contains(out, "had ended") {
		i.t.Errorf("%s", out)
	}
}

// comesBack starts everything again, and the next event goes into the agent that lived on.
func (i *installation) comesBack() {
	i.t.Helper()
	i.must("healthy", "up")
	i.must("delivered", "send", "--wait", "--timeout", "60s", "github:octo/widget#7", "again")
	i.must("by paste", "deliveries")
}

func TestUp_StopsWhatItStartedWhenAServiceDoesNotComeUp(t *testing.T) {
	i := newInstallation(t)
	i.config(", state_dir: /dev/null/tmuxd, socket_dir: DIR")
	out, code := i.run("up")
	if code != run.ExitUnavailable || !strings.Contains(out, "state directory") || !strings.Contains(out, "stopping what was started") {
		t.Errorf("%d\n%s", code, out)
	}
	for _, service := range layout.Services() {
		if found := stack.Find(layout.DataDir(i.dir), service); found.Life != stack.NeverStarted {
			t.Errorf("%s: %+v", service, found)
		}
	}
	if _, err := local.Attach(t.Context(), layout.DataDir(i.dir).Postgres()); err == nil {
		t.Error("the database still runs")
	}
	i.config("")
	i.must("healthy", "up")
}

// agent has an agent run a shell line, below a real wrapper, and returns what it printed. It has no terminal, and needs none here.
func (i *installation) agent(line string) string {
	i.t.Helper()
	spec := filepath.Join(i.dir, "spec")
	err := wrapper.WriteSpec(spec, wrapper.Spec{Stamp: "s-of-an-agent", Argv: []string{"/bin/sh", "-c", line}, Dir: i.dir,
		Env:        append(os.Environ(), layout.ConfigVariable+"=", layout.DatabaseURLVariable+"=", "M="+filepath.Join(i.bin, "muxpost"), "D="+i.dir),
		RecordFile: filepath.Join(i.dir, "record"), NotAfter: time.Now().Add(time.Minute)})
	if err != nil {
		i.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, filepath.Join(i.bin, "muxpost-exec"), spec).CombinedOutput()
	if err != nil {
		i.t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

// running are the services that run.
func (i *installation) running() (all []layout.Service) {
	for _, service := range layout.Services() {
		if stack.Find(layout.DataDir(i.dir), service).Life == stack.Running {
			all = append(all, service)
		}
	}
	return all
}

// What an agent starts ends with it: an installation that one started would end under all others.
func TestUp_InsideAnAgentsSessionStartsNothingUnlessItIsMeant(t *testing.T) {
	i := newInstallation(t)
	i.config("")
	out := i.agent(`"$M" --data-dir "$D" up; echo "up: $?"; "$M" --data-dir "$D" doctor | grep shell; true`)
	if strings.Contains(out, "up: 0") || !strings.Contains(out, "shell of your own") || !strings.Contains(out, "warn  shell") {
		t.Errorf("it was not refused:\n%s", out)
	}
	if all := i.running(); len(all) > 0 {
		t.Errorf("%v run", all)
	}
	i.must("healthy", "up")
	i.must("ok    shell", "doctor")
	before := stack.Find(layout.DataDir(i.dir), layout.Tmuxd).Process
	if out := i.agent(`"$M" --data-dir "$D" up; echo "up: $?"`); !strings.Contains(out, "up: 0") || !strings.Contains(out, "nothing was started") {
		t.Errorf("where everything runs:\n%s", out)
	}
	if found := stack.Find(layout.DataDir(i.dir), layout.Tmuxd); found.Life != stack.Running || found.Process != before {
		t.Errorf("%+v, and %+v before", found, before)
	}
	i.must("", "down")

	out = i.agent(`"$M" --data-dir "$D" up --in-session; echo "up: $?"; "$M" --data-dir "$D" doctor; true`)
	if !strings.Contains(out, "up: 0") || !strings.Contains(out, "tmuxd was started inside an agent's session") {
		t.Errorf("meant:\n%s", out)
	}
	log, err := os.ReadFile(layout.DataDir(i.dir).Log(layout.Tmuxd))
	if err != nil || !strings.Contains(string(log), "tmuxd runs inside an agent's session") {
		t.Errorf("the log does not say so: %v", err)
	}
	if all := i.running(); len(all) > 0 {
		t.Errorf("%v outlived the agent that started them: nothing is shown", all)
	}
}

// tmux runs what its configuration says, and that lies beside the sockets.
func TestUp_TmuxdUsesNoDirectoryForSocketsThatOthersMayWriteTo(t *testing.T) {
	i := newInstallation(t)
	sockets := filepath.Join(i.dir, "s")
	if err := os.Mkdir(sockets, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(sockets, 0o777); err != nil {
		t.Fatal(err)
	}
	i.config(", socket_dir: " + sockets)
	if out, code := i.run("up"); code != run.ExitUnavailable || !strings.Contains(out, "chmod 700 "+sockets) || !strings.Contains(out, "tmuxd.socket_dir") {
		t.Errorf("%d\n%s", code, out)
	}
	if left, err := os.ReadDir(sockets); err != nil || len(left) > 0 {
		t.Errorf("it was written to: %v, %v", left, err)
	}
	if err := os.Chmod(sockets, 0o700); err != nil {
		t.Fatal(err)
	}
	i.must("healthy", "up")
}

func TestDoctor_LooksBeforeTheFirstUpAndChangesNothing(t *testing.T) {
	i := newInstallation(t)
	i.must("0 failed", "doctor")
	if left, err := os.ReadDir(i.dir); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	none := filepath.Join(i.dir, "none")
	i.must("0 failed", "doctor", "--data-dir", none)
	if _, err := os.Stat(none); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the data directory: %v", err)
	}
}

func TestDoctor_OfAFileThatCannotBeReadNamesThatAlone(t *testing.T) {
	i := newInstallation(t)
	if err := os.WriteFile(filepath.Join(i.dir, "muxpost.yaml"), []byte("poller: {}\npoller: {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, code := i.run("doctor"); code != run.ExitFailed || !strings.Contains(out, "1 failed") || !strings.Contains(out, "already defined") {
		t.Errorf("%d\n%s", code, out)
	}
}

func TestUp_StartsNothingWhileAValueOfAnySectionIsWrong(t *testing.T) {
	i := newInstallation(t)
	i.config(", width: 1, harnesses: {mine: {binary: x, prompt: '('}}")
	out, code := i.run("up")
	if code != run.ExitUsage || !strings.Contains(out, "tmuxd.width") || !strings.Contains(out, "tmuxd.harnesses.mine.prompt") ||
		!strings.Contains(out, "nothing was started") {
		t.Errorf("%d\n%s", code, out)
	}
	if out, code := i.run("doctor"); code != run.ExitFailed || strings.Count(out, "tmuxd.width") != 1 {
		t.Errorf("doctor: %d\n%s", code, out)
	}
}

// The template is loaded by the services' own loaders; only the addresses are changed, so that nothing collides.
func TestUp_WorksWithTheFirstConfiguration(t *testing.T) {
	i := newInstallation(t)
	text := settings.Template()
	for section, with := range map[string]string{
		"tmuxd:\n":      "tmuxd:\n  listen: unix:DIR/t.sock\n",
		"dispatcher:\n": "dispatcher:\n  listen: unix:DIR/d.sock\n  host: {address: 'unix:DIR/t.sock'}\n",
		"poller:\n":     "poller:\n  listen: unix:DIR/p.sock\n  dispatcher: unix:DIR/d.sock\n",
	} {
		if strings.Count(text, section) != 1 {
			t.Fatalf("%q is not there once", section)
		}
		text = strings.Replace(text, section, strings.ReplaceAll(with, "DIR", i.dir), 1)
	}
	if err := os.WriteFile(filepath.Join(i.dir, "muxpost.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	i.must("healthy", "up")
	i.must("has the schema", "migrate")
}

// On a host where tmux was upgraded, the session's server still runs the old one, whose file is gone.
func TestAttach_UsesTheServersOwnProgramAfterAnUpgrade(t *testing.T) {
	installed := needs.Program(t, "tmux")
	dir := t.TempDir()
	program, socket := filepath.Join(dir, "tmux"), filepath.Join(dir, "s")
	for _, args := range [][]string{{"cp", installed, program}, {program, "-S", socket, "new-session", "-d", "-s", "a", "sleep 600"}} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
	t.Cleanup(func() { _ = exec.Command(installed, "-N", "-S", socket, "kill-server").Run() })
	if got := understood(program, socket); got != program {
		t.Errorf("before the upgrade: %s", got)
	}
	if err := os.Remove(program); err != nil {
		t.Fatal(err)
	}
	own := understood("tmux", socket)
	if out, err := exec.Command(own, "-N", "-S", socket, "list-sessions", "-F", "#{session_name}").Output(); err != nil || string(out) != "a\n" || own == "tmux" {
		t.Errorf("%s: %q, %v", own, out, err)
	}
}
