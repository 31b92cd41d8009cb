package main

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/task"
	"muxpost.dev/muxpost/internal/settings"
	"muxpost.dev/muxpost/services/tmuxd/internal/attempt"
	"muxpost.dev/muxpost/services/tmuxd/internal/harness"
	"muxpost.dev/muxpost/services/tmuxd/internal/host"
)

func TestT01_SuccessDoesNotWaitForWhatLivesOn(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	a := b.launch("nohup sh -c 'trap \"\" TERM HUP; echo $$ > orphan; while :; do sleep 0.1; done' >/dev/null 2>&1 &\nwhile [ ! -s orphan ]; do sleep 0.01; done; exit 0")
	b.becomes(a.ID, task.Succeeded)
	orphan := b.pidIn("orphan")
	b.until("the rest of the tree is ended", func() bool { return !alive(orphan) })
	if got := b.freed(a.ID); got.Outcome.End != (task.End{How: task.ByCode}) || len(got.Outcome.Remains) != 0 {
		t.Errorf("%+v", got.Outcome)
	}
}

func TestT02_AnotherCodeThanZeroIsAFailureWithThatCode(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	a := b.launch("exit 7")
	got := b.becomes(a.ID, task.Failed)
	if o := got.Outcome; o.End != (task.End{How: task.ByCode, N: 7}) || o.SecondHand || o.Reason != task.ReasonExit || o.StartedAt.IsZero() || o.EndedAt.IsZero() {
		t.Errorf("%+v", o)
	}
}

func TestT03_T05_TheOutputIsKeptAndThePaneIsFreed(t *testing.T) {
	t.Parallel()
	b := newBench(t, agent)
	for prompt, want := range map[string]task.State{"zz:print=30 zz:exit=0": task.Succeeded, "zz:print=30 zz:exit=4": task.Failed} {
		a := b.launch(prompt, func(r *attempt.LaunchRequest) { r.Harness = "fakeagent" })
		b.becomes(a.ID, want)
		b.freed(a.ID)
		out := b.output(a.ID)
		if !strings.HasPrefix(out, "line 1 of 30\nline 2 of 30\n") || !strings.HasSuffix(out, "\ndone") || strings.ContainsRune(out, 0x1b) {
			t.Errorf("%q", out)
		}
		if _, err := os.Stat(b.tmux.Socket(a.Target)); err == nil {
			if out, err := b.cmd(a.Target, "list-panes", "-a"); err == nil {
				t.Errorf("panes are left: %s", out)
			}
		}
	}
}

func TestT05_AFailedPaneIsKeptByPolicyUntilItIsSwept(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(b *bench) { b.config.KeepFailed, b.config.Keep = true, 1 })
	failed := b.launch("echo for a look; exit 7")
	b.becomes(failed.ID, task.Failed)
	if a := b.freed(failed.ID); !a.Outcome.Retained || !strings.Contains(b.person(a.Target, "capture-pane", "-p"), "for a look") {
		t.Errorf("%+v", a.Outcome)
	}
	good := b.launch("exit 0")
	b.becomes(good.ID, task.Succeeded)
	b.freed(good.ID)
	if out, err := b.cmd(good.Target, "list-panes", "-a"); err == nil {
		t.Errorf("a good one is kept: %s", out)
	}
	b.Sweep(b.ctx())
	if out, err := b.cmd(failed.Target, "list-panes", "-a"); err == nil {
		t.Errorf("a swept one is left: %s", out)
	}
	if _, _, err := b.Get(b.ctx(), failed.ID, false); err == nil {
		t.Error("a swept one is known")
	}
}

func TestT06_T34_AKilledWrapperIsAFailureAtSecondHand(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	a := b.launch("echo $$ > child; sleep 300")
	child := b.pidIn("child")
	if err := syscall.Kill(a.Pane.Wrapper.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	got := b.becomes(a.ID, task.Failed)
	if o := got.Outcome; o.Reason != task.ReasonSupervisor || !o.SecondHand || o.End != (task.End{How: task.BySignal, N: 9}) {
		t.Errorf("%+v", o)
	}
	b.until("the child is gone", func() bool { return !alive(child) })
}

func TestT12_T07_ALostServerIsACrashUnlessTheMarkerSaysMore(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	a := b.launch("sleep 300")
	// The wrapper is killed first, so that it cannot say anything.
	for _, pid := range []int{a.Pane.Server.Pid, a.Pane.Wrapper.Pid} {
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
	}
	for _, pid := range []int{a.Pane.Wrapper.Pid, a.Pane.Server.Pid} {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	if got := b.becomes(a.ID, task.Crashed); got.Reason != task.ReasonServerLost || !strings.Contains(got.Outcome.Detail, "server lost") {
		t.Errorf("%+v", got.Outcome)
	}
	marked := b.launch("trap 'exit 0' HUP; echo ready > ready; while :; do sleep 0.05; done")
	b.written("ready")
	if err := syscall.Kill(marked.Pane.Server.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if got := b.becomes(marked.ID, task.Succeeded); got.Outcome.SecondHand {
		t.Errorf("%+v", got.Outcome)
	}
}

func TestT07_APaneThatIsGoneWithoutAMarkerIsACrash(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	a := b.launch("sleep 300")
	b.person(a.Target, "new-session", "-d", "-s", "other", "sleep 300")
	for _, pid := range []int{a.Pane.Server.Pid, a.Pane.Wrapper.Pid} {
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
	}
	// While the server stands still nothing is known, and nothing is judged.
	if err := syscall.Kill(a.Pane.Wrapper.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if got := b.becomes(a.ID, task.Unknown); got.Reason != task.ReasonNoAnswer {
		t.Errorf("%+v", got)
	}
	b.stop() // so that nobody looks in between
	if err := syscall.Kill(a.Pane.Server.Pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	b.person(a.Target, "kill-session", "-t", "="+a.Target+":")
	b.open()
	if got := b.becomes(a.ID, task.Crashed); got.Reason != task.ReasonPaneGone {
		t.Errorf("%+v", got.Outcome)
	}
	// The person's own session lives on.
	b.freed(a.ID)
	if out := b.person(a.Target, "list-sessions", "-F", "#{session_name}"); out != "other\n" {
		t.Errorf("%q", out)
	}
}

func TestT08_T18_TheMarkerDecidesOverADeadPane(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(b *bench) { b.config.KeepFailed = true })
	for script, want := range map[string]task.State{"exit 0": task.Succeeded, "exit 7": task.Failed} {
		a := b.launch("while [ ! -e go ]; do sleep 0.01; done\n" + script)
		b.stop()
		if err := os.WriteFile(b.file("go"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		b.until("the pane is dead", func() bool {
			return strings.TrimSpace(b.person(a.Target, "list-panes", "-a", "-F", "#{pane_dead}")) == "1"
		})
		b.open()
		if got := b.becomes(a.ID, want); got.Outcome.SecondHand {
			t.Errorf("%+v", got.Outcome)
		}
		if err := os.Remove(b.file("go")); err != nil {
			t.Fatal(err)
		}
	}
}

func TestT11_AServerThatDoesNotAnswerIsNoEnd(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	a := b.launch("while [ ! -e go ]; do sleep 0.01; done; exit 0")
	if err := syscall.Kill(a.Pane.Server.Pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if got := b.get(a.ID); got.State != task.Running {
		t.Errorf("%v", got.State)
	}
	if err := os.WriteFile(b.file("go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	// The marker decides although tmux is mute; the pane is freed once it speaks again.
	b.becomes(a.ID, task.Succeeded)
	if b.get(a.ID).Freed {
		t.Error("it is called freed while nobody answers")
	}
	if err := syscall.Kill(a.Pane.Server.Pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	b.freed(a.ID)
}

func TestT14_T15_AStopIsNoFailureAndIsToldOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	a := b.launch("sleep 300")
	got, already := b.stopped(a.ID)
	if got.State != task.Stopped || already || got.Order.Reason != "a test" {
		t.Errorf("%+v, already %v", got, already)
	}
	if again, already := b.stopped(a.ID); again.State != task.Stopped || !already || !again.Outcome.SettledAt.Equal(got.Outcome.SettledAt) {
		t.Errorf("%+v, already %v", again, already)
	}
	gone := b.launch("sleep 300")
	if _, err := b.cmd(gone.Target, "kill-server"); err != nil {
		t.Log(err)
	}
	if got, _ := b.stopped(gone.ID); got.State == task.Crashed || got.State == task.Unknown || got.State == task.Running {
		t.Errorf("%+v", got)
	}
	if got, already := b.stopped(b.ended("exit 7", task.Failed).ID); got.State != task.Failed || !already {
		t.Errorf("%+v, already %v", got, already)
	}
}

func TestT14_WhatEndedBeforeTheStopStaysAsItEnded(t *testing.T) {
	t.Parallel()
	// Nobody has noticed the end yet when the stop comes.
	b := newBench(t, func(b *bench) { b.unkept = true })
	for script, want := range map[string]task.State{"exit 0": task.Succeeded, "exit 7": task.Failed} {
		a := b.launch(script)
		b.until("it has ended", func() bool { return !alive(a.Pane.Wrapper.Pid) })
		if got, already := b.stopped(a.ID); got.State != want || !already || got.Order != nil {
			t.Errorf("%+v, already %v", got, already)
		}
	}
}

// ended runs a script to its end.
func (b *bench) ended(script string, want task.State) attempt.Attempt {
	b.t.Helper()
	return b.becomes(b.launch(script).ID, want)
}

func TestT19_SilenceIsNoEnd(t *testing.T) {
	t.Parallel()
	var looks atomic.Int64
	b := newBench(t, spied(&watchedDisk{called: func(string) { looks.Add(1) }}, &watchedTmux{}))
	a := b.launch("while [ ! -e go ]; do sleep 0.05; done; exit 0")
	b.until("it is looked at often", func() bool { return looks.Load() > 60 })
	if got := b.get(a.ID); got.State != task.Running {
		t.Errorf("%v", got.State)
	}
	if err := os.WriteFile(b.file("go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b.becomes(a.ID, task.Succeeded)
}

func TestSpawn_AHarnessForTasksAloneRunsNoSession(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	table, err := harness.New(map[string]settings.Harness{"tasks": {Binary: "/bin/sh", Task: []string{"-s"}}}, r.dir, r.dir, exec.LookPath)
	if err != nil {
		t.Fatal(err)
	}
	r.Table = table
	if _, err := r.Spawn(r.ctx(), host.SpawnRequest{Item: r.item, Harness: "tasks", Token: 1}); fault.ReasonOf(err) != fault.ReasonUnknownHarness {
		t.Errorf("%v", err)
	}
}

// lagging is a tmux that has read half of what a program wrote when its end is known.
type lagging struct {
	attempt.Tmux
	asked atomic.Int32
}

func (l *lagging) Output(ctx context.Context, target string, p attempt.Pane) (attempt.Output, bool, error) {
	if l.asked.Add(1) == 1 {
		return attempt.Output{Text: "half"}, true, nil
	}
	return l.Tmux.Output(ctx, target, p)
}

// What an attempt showed is whole for whoever hears of its end and asks at once: a verdict may be its last line.
func TestT03_TheOutputOfOneThatIsOverIsWhole(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(b *bench) { b.aroundTmux = func(x attempt.Tmux) attempt.Tmux { return &lagging{Tmux: x} } })
	a := b.launch("echo first; echo last")
	b.becomes(a.ID, task.Succeeded)
	if out := b.output(a.ID); strings.TrimSpace(out) != "first\nlast" {
		t.Errorf("%q", out)
	}
}

func TestOutput_WhatIsNotAllThatWasShownSaysSo(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for name, row := range map[string]struct {
		script string
		cut    bool
	}{
		"little":           {"echo one; echo last", false},
		"all that fits":    {"seq 1 4000; echo last", false},
		"too many lines":   {"yes '' | head -n 6000; echo last", true},
		"too many letters": {"head -c 70000 /dev/zero | tr '\\0' x; echo; echo last", true},
	} {
		a := b.launch(row.script)
		b.becomes(a.ID, task.Succeeded)
		whole, out, err := b.Get(b.ctx(), a.ID, true)
		if err != nil || whole.Cut != row.cut || !strings.HasSuffix(out, "last") {
			t.Errorf("%s: cut %v, %d bytes, %v", name, whole.Cut, len(out), err)
		}
	}
	// Of one that runs it is told too.
	a := b.launch("yes '' | head -n 6000; echo last; sleep 300")
	b.until("it is told", func() bool {
		whole, out, err := b.Get(b.ctx(), a.ID, true)
		return err == nil && whole.Cut && strings.HasSuffix(out, "last")
	})
	b.stopped(a.ID)
}
