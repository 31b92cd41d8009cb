package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"muxpost.dev/muxpost/core/task"
	"muxpost.dev/muxpost/internal/needs"
	"muxpost.dev/muxpost/services/tmuxd/internal/attempt"
)

func TestT29_AShellThatOverwritesNothingIsIrrelevant(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	rc := filepath.Join(home, "rc")
	for _, name := range []string{"rc", ".bashrc", ".bash_profile", ".profile", ".zshenv", ".zshrc", ".kshrc"} {
		if err := os.WriteFile(filepath.Join(home, name), []byte("set -o noclobber\necho read >> "+filepath.Join(home, "touched")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, shell := range []string{needs.Program(t, "bash"), needs.Program(t, "zsh"), "/bin/sh"} {
		b := newBench(t, func(b *bench) {
			b.tmuxEnv = append(b.tmuxEnv, "SHELL="+shell, "HOME="+home, "ENV="+rc, "BASH_ENV="+rc, "ZDOTDIR="+home, "SHELLOPTS=noclobber")
		})
		// The second one finds everything that the first has left.
		for n, code := range []int{0, 7} {
			a := b.launch(fmt.Sprintf("echo %d > result; echo shown; exit %d", n, code))
			if got := b.becomes(a.ID, map[int]task.State{0: task.Succeeded, 7: task.Failed}[code]); got.Outcome.End != (task.End{How: task.ByCode, N: code}) {
				t.Errorf("%s: %+v", shell, got.Outcome)
			}
			b.freed(a.ID)
			if got := b.written("result"); got != fmt.Sprint(n) {
				t.Errorf("%s: the attempt %d left %q", shell, n, got)
			}
			if out := b.output(a.ID); !strings.Contains(out, "shown") || strings.Contains(out, "cannot overwrite") {
				t.Errorf("%s: %q", shell, out)
			}
		}
	}
	if data, err := os.ReadFile(filepath.Join(home, "touched")); err == nil {
		t.Errorf("what a person has for his shell was read: %s", data)
	}
}

func TestT72_TheLastPaneIsKilledAndTheNextAttemptHasOneAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	other := b.launch("while [ ! -e go ]; do sleep 0.05; done; exit 0")
	for range 2 {
		a := b.launch("echo $$ > child; sleep 300")
		child := b.pidIn("child")
		b.person(a.Target, "kill-pane", "-t", "="+a.Target+":")
		if got := b.becomes(a.ID, task.Failed); got.Outcome.Reason != task.ReasonHangUp {
			t.Errorf("%+v", got.Outcome)
		}
		b.until("its command is gone", func() bool { return !alive(child) })
		b.freed(a.ID)
		if _, err := b.cmd(a.Target, "list-panes", "-a"); err == nil {
			t.Error("its server is left")
		}
		if err := os.Remove(b.file("child")); err != nil {
			t.Fatal(err)
		}
	}
	next := b.launch("exit 0")
	b.becomes(next.ID, task.Succeeded)
	if got := b.get(other.ID); got.State != task.Running {
		t.Errorf("another one is %v (%v)", got.State, got.Reason)
	}
	if err := os.WriteFile(b.file("go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b.becomes(other.ID, task.Succeeded)
}

func TestT144_AKeptPaneIsThereForAPersonAndNothingOfThatCounts(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(b *bench) { b.config.KeepFailed, b.config.Keep = true, 1 })
	failed := b.launch("while [ ! -e go ]; do sleep 0.05; done; echo for a look; exit 7")
	pane := "=" + failed.Target + ":"
	// A log by pipe-pane, whose reader is slow: tmux takes the pane for alive until it is done, and the marker says otherwise.
	b.person(failed.Target, "pipe-pane", "-o", "-t", pane, "sleep 2; exec cat > "+b.file("log"))
	if err := os.WriteFile(b.file("go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	first := b.becomes(failed.ID, task.Failed)
	if got := b.freed(failed.ID); !got.Outcome.Retained || !strings.Contains(b.output(failed.ID), "for a look") {
		t.Errorf("%+v; %q", got.Outcome, b.output(failed.ID))
	}
	b.until("the log has it", func() bool {
		data, err := os.ReadFile(b.file("log"))
		return err == nil && strings.Contains(string(data), "for a look")
	})

	// Somebody goes into the pane, where the attempt was at work.
	b.person(failed.Target, "respawn-pane", "-t", pane, "echo $$ > person; pwd > where; exec sleep 300")
	person := b.pidIn("person")
	if where := b.written("where"); where != b.work {
		t.Errorf("it is in %s", where)
	}
	b.restart()
	again := b.get(failed.ID)
	if again.State != task.Failed || again.Outcome.End != first.Outcome.End || !again.Outcome.SettledAt.Equal(first.Outcome.SettledAt) || !strings.Contains(b.output(failed.ID), "for a look") {
		t.Errorf("%+v, and before %+v", again.Outcome, first.Outcome)
	}
	if a, already := b.stopped(failed.ID); !already || a.State != task.Failed {
		t.Errorf("%v, already %v", a.State, already)
	}
	good := b.launch("exit 0")
	b.becomes(good.ID, task.Succeeded)
	b.freed(good.ID)
	b.Sweep(b.ctx())
	if _, _, err := b.Get(b.ctx(), failed.ID, false); err != nil || !alive(person) {
		t.Fatalf("what a person runs lives %v; the attempt: %v", alive(person), err)
	}
	// Once he is done nothing is left.
	if err := syscall.Kill(person, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	b.until("it is swept", func() bool {
		b.Sweep(b.ctx())
		_, _, err := b.Get(b.ctx(), failed.ID, false)
		return err != nil
	})
	if out, err := b.cmd(failed.Target, "list-panes", "-a"); err == nil {
		t.Errorf("its pane is left: %s", out)
	}
	if left, _ := filepath.Glob(b.tmux.Socket(failed.Target) + "*"); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestT124_AClockThatIsSetMakesNothingStaleAndHidesNothing(t *testing.T) {
	t.Parallel()
	for name, jump := range map[string]time.Duration{"an hour ahead": time.Hour, "an hour back": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var ahead atomic.Int64
			b := newBench(t, func(b *bench) {
				b.config.KeepFor = 2 * time.Hour
				// Without the reading of a clock that nobody sets, as a time has it that was stored.
				b.now = func() time.Time { return time.Now().Round(0).Add(time.Duration(ahead.Load())) }
			})
			limits := func(r *attempt.LaunchRequest) {
				r.Limit, r.StallLimit, r.Grace = 30*time.Minute, 5*time.Second, time.Second
			}
			busy := b.launch("while [ ! -e go ]; do sleep 0.1; done; exit 0", limits)
			silent := b.launch("sleep 300", func(r *attempt.LaunchRequest) { r.Limit = 30 * time.Minute })
			short := b.launch("echo ready > ready; sleep 300", within(8*time.Second))
			idle := b.launch("sleep 300", limits)
			b.written("ready")
			ahead.Store(int64(jump))
			b.restart()
			if got := b.becomes(idle.ID, task.Stalled); got.Reason != task.ReasonStall {
				t.Errorf("%+v", got.Outcome)
			}
			if got := b.becomes(short.ID, task.TimedOut); got.Reason != task.ReasonTimeLimit {
				t.Errorf("%+v", got.Outcome)
			}
			ahead.Store(-int64(jump))
			for _, a := range []attempt.Attempt{busy, silent} {
				if got := b.get(a.ID); got.State != task.Running || got.Order != nil {
					t.Errorf("%v (%v), %+v", got.State, got.Reason, got.Order)
				}
			}
			if err := os.WriteFile(b.file("go"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			b.becomes(busy.ID, task.Succeeded)
			b.freed(busy.ID)
		})
	}
}
