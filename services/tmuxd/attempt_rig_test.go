package main

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/trace/noop"

	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/core/task"
	"muxpost.dev/muxpost/internal/needs"
	"muxpost.dev/muxpost/internal/settings"
	"muxpost.dev/muxpost/services/tmuxd/internal/attempt"
	"muxpost.dev/muxpost/services/tmuxd/internal/disk"
	"muxpost.dev/muxpost/services/tmuxd/internal/harness"
	"muxpost.dev/muxpost/services/tmuxd/internal/tmux"
	"muxpost.dev/muxpost/services/tmuxd/internal/trees"
	"muxpost.dev/muxpost/test/fakeagent/agenttest"
)

// bench is a runner of attempts with everything real: tmux, the wrapper, processes, files. Its harness sh runs the prompt as a shell script,
// which it reads from its standard input.
type bench struct {
	*attempt.Runner
	t       *testing.T
	dir     string
	work    string
	tmux    *tmux.Client
	state   *disk.Dir
	disk    disk.Attempts
	execs   string
	entries map[string]settings.Harness
	env     map[string]string
	config  attempt.Config
	// tmuxEnv is the environment of tmux, and so of its servers.
	tmuxEnv []string
	// now is the clock on the wall.
	now func() time.Time
	// unkept has nobody look after the attempts.
	unkept bool
	// around are put around what the runner works with.
	aroundDisk func(attempt.Disk) attempt.Disk
	aroundTmux func(attempt.Tmux) attempt.Tmux
	stop       func()
	tokens     int64
	ids        []string
}

func newBench(t *testing.T, change ...func(*bench)) *bench {
	t.Helper()
	needs.Program(t, "tmux")
	execs, err := wrapperBinary()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "mux") // a socket's address is short
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, dir: dir, work: filepath.Join(dir, "work"), execs: execs, env: map[string]string{}, now: time.Now,
		tmuxEnv: []string{"PATH=" + os.Getenv("PATH"), "TERM=xterm-256color"},
		entries: map[string]settings.Harness{"sh": {Binary: "/bin/sh", Task: []string{"-s"}}},
		config: attempt.Config{Roots: []string{filepath.Join(dir, "work")}, Width: 200, Height: 50, Limit: time.Hour, MaxLimit: 2 * time.Hour,
			MaxRunning: 32, KeepFor: time.Hour, Keep: 100},
		aroundDisk: func(d attempt.Disk) attempt.Disk { return d }, aroundTmux: func(x attempt.Tmux) attempt.Tmux { return x }}
	if err := os.Mkdir(b.work, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range change {
		c(b)
	}
	t.Cleanup(func() {
		b.end()
		os.RemoveAll(dir)
	})
	b.open()
	return b
}

// open makes the runner, as a start of tmuxd does.
func (b *bench) open() {
	b.t.Helper()
	var err error
	// A child that another test is starting may hold a copy of the lock for a moment.
	for range 200 {
		if b.state, err = disk.Open(filepath.Join(b.dir, "state"), b.execs); err == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err == nil {
		b.disk, err = b.state.OpenAttempts()
	}
	if err != nil {
		b.t.Fatal(err)
	}
	table, err := harness.New(b.entries, b.state.HarnessRoot(), b.dir, exec.LookPath)
	if err != nil {
		b.t.Fatal(err)
	}
	if b.tmux, err = tmux.New(tmux.Config{Bin: "tmux", Dir: filepath.Join(b.dir, "state"), Tracer: noop.NewTracerProvider().Tracer(""),
		Env: b.tmuxEnv}); err != nil {
		b.t.Fatal(err)
	}
	getenv := func(key string) (string, bool) {
		if v, ok := b.env[key]; ok {
			return v, true
		}
		return os.LookupEnv(key)
	}
	made := trees.New(trees.Config{StateDir: filepath.Join(b.dir, "state"), Env: os.Environ(), Logger: slog.New(slog.DiscardHandler)})
	b.Runner = attempt.New(b.config, attempt.Deps{Tmux: b.aroundTmux(b.tmux.Attempts()), Disk: b.aroundDisk(b.disk), Places: b.state, Table: table,
		Worktrees: made, Logger: slog.New(slog.DiscardHandler), Now: b.now, Getenv: getenv})
	if err := b.Adopt(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	kept := make(chan struct{})
	go func() {
		defer close(kept)
		if !b.unkept {
			_ = b.Keep(ctx)
		}
	}()
	b.stop = func() {
		cancel()
		<-kept
		made.Close()
		b.tmux.Close()
		b.state.Close()
	}
}

// restart is a kill -9 of tmuxd and a new start: nothing in memory survives.
func (b *bench) restart() {
	b.t.Helper()
	b.stop()
	b.open()
}

// end ends what this test started: the trees and the tmux servers of its attempts, by what the disk remembers of them.
func (b *bench) end() {
	b.stop()
	all, _, _ := b.disk.Recall()
	for _, m := range all {
		if m.Pane.Server.Pid > 0 && b.disk.ServerLives(m) == session.ProcessAlive {
			_ = syscall.Kill(m.Pane.Server.Pid, syscall.SIGCONT)
			_ = syscall.Kill(m.Pane.Server.Pid, syscall.SIGTERM)
		}
		_, _ = b.disk.End(m, true)
		_ = b.disk.EndWrapper(m)
		for range 300 {
			if b.disk.Alive(m) != session.ProcessAlive {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
}

func (b *bench) token() int64 { b.tokens++; return b.tokens }

func (b *bench) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	b.t.Cleanup(cancel)
	return ctx
}

// request is a launch of a shell script.
func (b *bench) request(script string) attempt.LaunchRequest {
	id := uuid.NewString()
	b.ids = append(b.ids, id)
	return attempt.LaunchRequest{ID: id, Harness: "sh", Directory: b.work, Prompt: script + "\n", Token: b.token()}
}

// launch runs a shell script.
func (b *bench) launch(script string, change ...func(*attempt.LaunchRequest)) attempt.Attempt {
	b.t.Helper()
	req := b.request(script)
	for _, c := range change {
		c(&req)
	}
	a, already, err := b.Launch(b.ctx(), req)
	if err != nil || already {
		b.t.Fatalf("%v, already %v", err, already)
	}
	return a
}

func (b *bench) get(id string) attempt.Attempt {
	b.t.Helper()
	a, _, err := b.Get(b.ctx(), id, false)
	if err != nil {
		b.t.Fatal(err)
	}
	return a
}

// becomes waits for a state.
func (b *bench) becomes(id string, want task.State) attempt.Attempt {
	b.t.Helper()
	var a attempt.Attempt
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if a = b.get(id); a.State == want {
			return a
		}
		if a.State.Final() || time.Now().After(deadline) {
			_, out, _ := b.Get(b.ctx(), id, true)
			b.t.Fatalf("it is %v (%v, %+v), not %v; output:\n%s", a.State, a.Reason, a.Outcome, want, out)
		}
	}
}

// freed waits until an attempt that is over has nothing left in tmux.
func (b *bench) freed(id string) attempt.Attempt {
	b.t.Helper()
	var a attempt.Attempt
	b.until("it is put away", func() bool { a = b.get(id); return a.Freed })
	return a
}

func (b *bench) until(what string, ok func() bool) {
	b.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			b.t.Fatalf("waited in vain until %s", what)
		}
	}
}

// file returns a path in the working directory, and written waits for what is in it.
func (b *bench) file(name string) string { return filepath.Join(b.work, name) }

func (b *bench) written(name string) string {
	b.t.Helper()
	var text string
	b.until(name+" is written", func() bool {
		data, err := os.ReadFile(b.file(name))
		text = string(data)
		return err == nil && strings.HasSuffix(text, "\n")
	})
	return strings.TrimSuffix(text, "\n")
}

func (b *bench) pidIn(name string) int {
	b.t.Helper()
	pid, err := strconv.Atoi(b.written(name))
	if err != nil {
		b.t.Fatal(err)
	}
	return pid
}

// alive reports whether a process lives that a script of this test started.
func alive(pid int) bool {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return false
	}
	fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
	return len(fields) > 0 && fields[0] != "Z" && fields[0] != "X"
}

// cmd runs tmux on an attempt's server, as a person would.
func (b *bench) cmd(target string, args ...string) (string, error) {
	out, err := exec.Command("tmux", append([]string{"-N", "-S", b.tmux.Socket(target)}, args...)...).CombinedOutput()
	return string(out), err
}

func (b *bench) person(target string, args ...string) string {
	b.t.Helper()
	out, err := b.cmd(target, args...)
	if err != nil {
		b.t.Fatalf("tmux %v: %v: %s", args, err, out)
	}
	return out
}

func (b *bench) output(id string) string {
	b.t.Helper()
	_, out, err := b.Get(b.ctx(), id, true)
	if err != nil {
		b.t.Fatal(err)
	}
	return out
}

func (b *bench) stopped(id string) (attempt.Attempt, bool) {
	b.t.Helper()
	a, already, err := b.Stop(b.ctx(), attempt.StopRequest{ID: id, Token: b.token(), Grace: time.Second, Reason: "a test"})
	if err != nil {
		b.t.Fatal(err)
	}
	return a, already
}

// agent adds the bundled agent to the table.
func agent(b *bench) {
	e := settings.BuiltinHarnesses()["fakeagent"]
	e.Binary = agenttest.Build(b.t)
	b.entries["fakeagent"] = e
}

func within(d time.Duration) func(*attempt.LaunchRequest) {
	return func(r *attempt.LaunchRequest) { r.Limit, r.Grace = d, time.Second }
}
