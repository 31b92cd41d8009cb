package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/task"
	"muxpost.dev/muxpost/internal/wrapper"
	"muxpost.dev/muxpost/services/tmuxd/internal/attempt"
)

// stubborn is a script that nothing but a KILL ends, and what it starts too, outside of its process group and session.
const stubborn = `trap "" TERM HUP INT
setsid sh -c 'trap "" TERM HUP INT; (trap "" TERM HUP INT; echo $$ > grandchild; while :; do sleep 0.05; done) & echo $$ > child; while :; do sleep 0.05; done' &
echo $$ > self; while :; do sleep 0.05; done`

func TestT16_ManyAreStoppedTogether(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var all []attempt.Attempt
	for i := range 3 {
		all = append(all, b.launch(fmt.Sprintf("echo $$ > pid%d; sleep 300", i)))
		b.written(fmt.Sprintf("pid%d", i))
	}
	if _, err := b.cmd(all[1].Target, "kill-server"); err != nil {
		t.Log(err)
	}
	var wg sync.WaitGroup
	for _, a := range all {
		token := b.token() + 10
		wg.Go(func() {
			if _, _, err := b.Stop(b.ctx(), attempt.StopRequest{ID: a.ID, Token: token}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for i, a := range all {
		if got := b.get(a.ID); !got.State.Final() || i != 1 && got.State != task.Stopped {
			t.Errorf("%d: %+v", i, got)
		}
		if alive(b.pidIn(fmt.Sprintf("pid%d", i))) {
			t.Errorf("%d lives on", i)
		}
		b.freed(a.ID)
	}
}

func TestT143_AStopReachesTheWholeTree(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	a := b.launch(stubborn)
	pids := []int{b.pidIn("self"), b.pidIn("child"), b.pidIn("grandchild")}
	got, _ := b.stopped(a.ID)
	if got.State != task.Stopped || got.Outcome.End != (task.End{How: task.BySignal, N: 9}) {
		t.Errorf("%+v", got.Outcome)
	}
	b.freed(a.ID)
	for _, pid := range pids {
		if alive(pid) {
			t.Errorf("%d lives on", pid)
		}
	}
}

func TestT14_AStopIsFinishedByATmuxdThatIsStartedAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	a := b.launch(stubborn)
	pid := b.pidIn("self")
	got, already, err := b.Stop(b.ctx(), attempt.StopRequest{ID: a.ID, Token: b.token(), Grace: 3 * time.Second, Reason: "r", Timeout: time.Millisecond})
	if err != nil || already || got.State.Final() || got.Order == nil {
		t.Fatalf("%+v, %v, %v", got, already, err)
	}
	b.restart()
	if got := b.get(a.ID); got.Order == nil || got.Order.Reason != "r" {
		t.Errorf("%+v", got)
	}
	b.becomes(a.ID, task.Stopped)
	b.freed(a.ID)
	if alive(pid) {
		t.Error("it lives on")
	}
	// The pane was gone when the order was carried out: no failure either.
	gone := b.launch("sleep 300")
	b.stop()
	m := b.remembered(gone.ID)
	m.Order = &attempt.Order{Kind: task.OrderStop, At: time.Now(), Grace: time.Second}
	if _, err := b.disk.Remember(m); err != nil {
		t.Fatal(err)
	}
	_ = syscall.Kill(gone.Pane.Wrapper.Pid, syscall.SIGKILL)
	_, _ = b.cmd(gone.Target, "kill-server")
	b.open()
	b.becomes(gone.ID, task.Stopped)
}

func (b *bench) remembered(id string) attempt.Memory {
	b.t.Helper()
	all, _, err := b.disk.Recall()
	if err != nil {
		b.t.Fatal(err)
	}
	for _, m := range all {
		if m.ID == id {
			return m
		}
	}
	b.t.Fatalf("%s is not remembered", id)
	return attempt.Memory{}
}

func TestT52_ALimitIsKeptByTheWrapperWithoutTmuxd(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	a := b.launch("trap 'exit 0' TERM; echo ready > ready; while :; do sleep 0.05; done", within(2*time.Second))
	b.written("ready")
	b.stop()
	b.until("it has ended", func() bool { return !alive(a.Pane.Wrapper.Pid) })
	b.open()
	// It exited with 0, and only because its time was over.
	if got := b.becomes(a.ID, task.TimedOut); got.Reason != task.ReasonTimeLimit || got.Outcome.End != (task.End{How: task.ByCode}) {
		t.Errorf("%+v", got.Outcome)
	}
}

func TestT52_ALimitEndsWhatIgnoresItsEnd(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	a := b.launch(stubborn, within(2*time.Second))
	pids := []int{b.pidIn("self"), b.pidIn("child"), b.pidIn("grandchild")}
	if got := b.becomes(a.ID, task.TimedOut); got.Outcome.End != (task.End{How: task.BySignal, N: 9}) {
		t.Errorf("%+v", got.Outcome)
	}
	b.freed(a.ID)
	for _, pid := range pids {
		if alive(pid) {
			t.Errorf("%d lives on", pid)
		}
	}
}

func TestT52_ALimitIsKeptByTmuxdWhenTheWrapperDoesNot(t *testing.T) {
	t.Parallel()
	disk := &watchedDisk{}
	b := newBench(t, spied(disk, &watchedTmux{}))
	disk.before = func(r attempt.Run) {
		path := filepath.Join(filepath.Dir(b.disk.PromptFile(r.ID)), "spec.json")
		spec, err := wrapper.ReadSpec(path)
		spec.Limit = 0
		if err := errors.Join(err, wrapper.WriteSpec(path, spec)); err != nil {
			t.Error(err)
		}
	}
	a := b.launch("echo $$ > pid; sleep 300", within(time.Second))
	pid := b.pidIn("pid")
	if got := b.becomes(a.ID, task.TimedOut); got.Reason != task.ReasonTimeLimit || got.Order == nil {
		t.Errorf("%+v", got)
	}
	if alive(pid) {
		t.Error("it lives on")
	}
}

func TestT122_T19_OnlyWhatMakesNoProgressIsStalled(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	limited := func(r *attempt.LaunchRequest) { r.StallLimit, r.Grace = 5*time.Second, time.Second }
	// The wrapper lets its own child go on when that stops; what is stopped here is what does the work, below it. What beats beside it is no
	// proof of the worker.
	stopped := b.launch("(while :; do sleep 0.1; done) &\nsh -c 'echo $$ > worker; while :; do sleep 0.1; done'; exit 0", limited)
	busy := b.launch("while [ ! -e go ]; do sleep 0.1; done; exit 0", limited)
	silent := b.launch("sleep 300")
	idle := b.launch("sleep 300", limited)
	worker := b.pidIn("worker")
	if err := syscall.Kill(worker, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for _, a := range []attempt.Attempt{stopped, idle} {
		if got := b.becomes(a.ID, task.Stalled); got.Reason != task.ReasonStall || got.Order == nil {
			t.Errorf("%+v", got.Outcome)
		}
	}
	if alive(worker) {
		t.Error("what stood stopped lives on")
	}
	for _, a := range []attempt.Attempt{busy, silent} {
		if got := b.get(a.ID); got.State != task.Running {
			t.Errorf("%v (%v)", got.State, got.Reason)
		}
	}
	if err := os.WriteFile(b.file("go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b.becomes(busy.ID, task.Succeeded)
}

func TestFence_AnOlderTokenStopsNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	req := b.request("sleep 300")
	req.Token = 100
	if _, _, err := b.Launch(b.ctx(), req); err != nil {
		t.Fatal(err)
	}
	if _, _, err := b.Stop(b.ctx(), attempt.StopRequest{ID: req.ID, Token: 99}); !errors.Is(err, fault.Fenced) {
		t.Errorf("%v", err)
	}
	if err := b.state.RaiseFloor(200); err != nil {
		t.Fatal(err)
	}
	if _, _, err := b.Stop(b.ctx(), attempt.StopRequest{ID: req.ID, Token: 199}); !errors.Is(err, fault.Fenced) {
		t.Errorf("%v", err)
	}
	later := b.request("exit 0")
	later.Token = 199
	if _, _, err := b.Launch(b.ctx(), later); !errors.Is(err, fault.Fenced) {
		t.Errorf("%v", err)
	}
	if _, _, err := b.Get(b.ctx(), later.ID, false); !errors.Is(err, fault.NotFound) {
		t.Errorf("%v", err)
	}
	if got := b.get(req.ID); got.State != task.Running {
		t.Errorf("%v", got.State)
	}
	b.restart()
	if _, _, err := b.Stop(b.ctx(), attempt.StopRequest{ID: req.ID, Token: 150}); !errors.Is(err, fault.Fenced) {
		t.Errorf("%v", err)
	}
	if got, _, err := b.Stop(b.ctx(), attempt.StopRequest{ID: req.ID, Token: 300}); err != nil || got.State != task.Stopped {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestLaunch_ARepeatAnswersForTheFirstAndAnotherRequestIsRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	req := b.request("echo x >> ran; sleep 300")
	var wg sync.WaitGroup
	var mu sync.Mutex
	fresh := 0
	for range 8 {
		wg.Go(func() {
			a, already, err := b.Launch(b.ctx(), req)
			if err != nil || a.ID != req.ID {
				t.Errorf("%+v, %v", a, err)
			}
			mu.Lock()
			defer mu.Unlock()
			if !already {
				fresh++
			}
		})
	}
	wg.Wait()
	if b.written("ran") != "x" || fresh != 1 {
		t.Errorf("%d were fresh, and %q ran", fresh, b.written("ran"))
	}
	other := req
	other.Prompt += "#"
	if _, _, err := b.Launch(b.ctx(), other); !errors.Is(err, fault.AlreadyExists) || fault.ReasonOf(err) != fault.ReasonAttemptMismatch {
		t.Errorf("%v", err)
	}
}

func TestLaunch_NoMoreRunAtOnceThanMay(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(b *bench) { b.config.MaxRunning = 1 })
	a := b.launch("sleep 300")
	if _, _, err := b.Launch(b.ctx(), b.request("exit 0")); !errors.Is(err, fault.Throttled) {
		t.Errorf("%v", err)
	}
	b.stopped(a.ID)
	b.ended("exit 0", task.Succeeded)
}

func TestT132_NothingIsLeftOfWhatIsSweptAndWhatIsOpenIsNeverSwept(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(b *bench) { b.config.KeepFor = time.Nanosecond })
	open := b.launch("while [ ! -e go ]; do sleep 0.05; done; exit 0")
	for _, script := range []string{"exit 0", "exit 7", "kill -9 $$"} {
		req := b.request(script)
		if _, _, err := b.Launch(b.ctx(), req); err != nil {
			t.Fatal(err)
		}
	}
	b.restart()
	// A launch that a crash interrupted before anything was remembered leaves its place, and nothing of it ran.
	if err := os.MkdirAll(filepath.Join(b.dir, "state", "attempts", "6b0a1f6e-0000-4000-8000-000000000000"), 0o700); err != nil {
		t.Fatal(err)
	}
	b.restart()
	b.until("everything else is swept", func() bool {
		b.Sweep(b.ctx())
		left, err := os.ReadDir(filepath.Join(b.dir, "state", "attempts"))
		return err == nil && len(left) == 1 && left[0].Name() == open.ID
	})
	sockets, _ := filepath.Glob(filepath.Join(b.dir, "state", "task-*"))
	for _, s := range sockets {
		if s != b.tmux.Socket(open.Target) {
			if out, err := b.cmd(strings.TrimSuffix(filepath.Base(s), ".sock"), "list-panes", "-a"); err == nil {
				t.Errorf("%s is left: %s", s, out)
			}
		}
	}
	if len(sockets) > 1 {
		t.Errorf("sockets are left: %v", sockets)
	}
	if got := b.get(open.ID); got.State != task.Running {
		t.Errorf("%v", got.State)
	}
	if err := os.WriteFile(b.file("go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b.until("the open one has ended", func() bool { return b.settled(open.ID) })
}

// settled reports whether an attempt is over, or swept.
func (b *bench) settled(id string) bool {
	a, _, err := b.Get(b.ctx(), id, false)
	return err != nil || a.State.Final()
}

func TestT133_AdoptingTwiceChangesNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	a := b.launch("while [ ! -e go ]; do sleep 0.05; done; exit 3")
	for range 2 {
		b.restart()
		if got := b.becomes(a.ID, task.Running); got.Pane.ID != a.Pane.ID || got.Pane.Wrapper != a.Pane.Wrapper || got.StartedAt.IsZero() {
			t.Errorf("%+v, and before %+v", got, a)
		}
	}
	b.stop()
	if err := os.WriteFile(b.file("go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b.until("it has ended", func() bool { return !alive(a.Pane.Wrapper.Pid) })
	b.open()
	first := b.becomes(a.ID, task.Failed)
	b.freed(a.ID)
	b.restart()
	if again := b.get(a.ID); again.State != task.Failed || !again.Outcome.SettledAt.Equal(first.Outcome.SettledAt) || again.Outcome.End.N != 3 {
		t.Errorf("%+v", again.Outcome)
	}
}

func TestT63_T69_APersonsPanesAreNeitherJudgedNorEnded(t *testing.T) {
	t.Parallel()
	var tries atomic.Int64
	b := newBench(t, spied(&watchedDisk{}, &watchedTmux{called: func(what string) {
		if what == "free" {
			tries.Add(1)
		}
	}}))
	a := b.launch("while [ ! -e go ]; do sleep 0.05; done; exit 0")
	// Another session, with a window of the attempt's name, and a split of the attempt's own window.
	b.person(a.Target, "new-session", "-d", "-s", a.Target+"-2", "-n", a.Target, "sleep 300")
	b.person(a.Target, "split-window", "-d", "-t", "="+a.Target+":", "sleep 300")
	b.person(a.Target, "set-option", "-g", "remain-on-exit", "off") // T17
	if err := os.WriteFile(b.file("go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b.becomes(a.ID, task.Succeeded)
	b.until("it was tried to free the pane", func() bool { return tries.Load() > 1 })
	panes := b.person(a.Target, "list-panes", "-a", "-F", "#{session_name} #{pane_dead} #{pane_pid}")
	if strings.Count(panes, " 0 ") != 2 || b.get(a.ID).Freed {
		t.Errorf("freed %v; panes:\n%s", b.get(a.ID).Freed, panes)
	}
	for line := range strings.Lines(panes) {
		var name string
		var dead, pid int
		if _, err := fmt.Sscan(line, &name, &dead, &pid); err == nil && dead == 0 && name == a.Target {
			_ = syscall.Kill(pid, syscall.SIGTERM)
		}
	}
	b.freed(a.ID)
	if out := b.person(a.Target, "list-sessions", "-F", "#{session_name}"); out != a.Target+"-2\n" {
		t.Errorf("%q", out)
	}
}
