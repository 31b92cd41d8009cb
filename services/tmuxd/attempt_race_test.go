package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/core/task"
	"muxpost.dev/muxpost/services/tmuxd/internal/attempt"
)

// watchedDisk lets a test see and change what a keeper learns from the disk. Everything else is real.
type watchedDisk struct {
	attempt.Disk
	mu     sync.Mutex
	marker func(attempt.Memory, attempt.Marker) attempt.Marker
	before func(attempt.Run)
	called func(string)
}

func (d *watchedDisk) set(marker func(attempt.Memory, attempt.Marker) attempt.Marker) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.marker = marker
}

func (d *watchedDisk) Marker(m attempt.Memory) attempt.Marker {
	out := d.Disk.Marker(m)
	d.call("marker")
	d.mu.Lock()
	change := d.marker
	d.mu.Unlock()
	if change != nil {
		out = change(m, out)
	}
	return out
}

func (d *watchedDisk) Alive(m attempt.Memory) session.Process {
	d.call("process")
	return d.Disk.Alive(m)
}

func (d *watchedDisk) Prepare(r attempt.Run) ([]string, error) {
	argv, err := d.Disk.Prepare(r)
	if d.before != nil {
		d.before(r)
	}
	return argv, err
}

func (d *watchedDisk) call(what string) {
	if d.called != nil {
		d.called(what)
	}
}

// watchedTmux does the same for what it learns from tmux.
type watchedTmux struct {
	attempt.Tmux
	called   func(string)
	launched func(attempt.Pane, error) (attempt.Pane, error)
}

func (x *watchedTmux) Look(ctx context.Context, target, stamp string) (attempt.Seen, error) {
	if x.called != nil {
		x.called("pane")
	}
	return x.Tmux.Look(ctx, target, stamp)
}

func (x *watchedTmux) Launch(ctx context.Context, l attempt.Launch) (attempt.Pane, error) {
	if x.called != nil {
		x.called("launch")
	}
	p, err := x.Tmux.Launch(ctx, l)
	if x.launched != nil {
		p, err = x.launched(p, err)
	}
	return p, err
}

func (x *watchedTmux) Free(ctx context.Context, target string, p attempt.Pane) (bool, error) {
	if x.called != nil {
		x.called("free")
	}
	return x.Tmux.Free(ctx, target, p)
}

// spied puts a watchedDisk and a watchedTmux into a bench.
func spied(d *watchedDisk, x *watchedTmux) func(*bench) {
	return func(b *bench) {
		b.aroundDisk = func(real attempt.Disk) attempt.Disk { d.Disk = real; return d }
		b.aroundTmux = func(real attempt.Tmux) attempt.Tmux { x.Tmux = real; return x }
	}
}

func TestT09_TheMarkerIsReadBeforeThePaneAtEveryLook(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var calls []string
	note := func(what string) {
		mu.Lock()
		defer mu.Unlock()
		calls = append(calls, what)
	}
	b := newBench(t, spied(&watchedDisk{called: note}, &watchedTmux{called: note}))
	a := b.launch("sleep 0.3; kill -9 $PPID; sleep 300")
	b.becomes(a.ID, task.Failed)
	mu.Lock()
	defer mu.Unlock()
	looks := 0
	for i, c := range calls {
		if c != "process" {
			continue
		}
		looks++
		if i == 0 || calls[i-1] != "marker" && calls[i-1] != "pane" {
			t.Fatalf("look %d begins with the process: %v", looks, calls[:i+1])
		}
	}
	if looks < 2 || !strings.Contains(strings.Join(calls, " "), "marker process pane marker") {
		t.Errorf("the marker was not read again before the end: %v", calls)
	}
}

func TestT10_TheMarkerIsReadAgainBeforeACrash(t *testing.T) {
	t.Parallel()
	disk := &watchedDisk{}
	b := newBench(t, spied(disk, &watchedTmux{}))
	a := b.launch("while [ ! -e go ]; do sleep 0.01; done; exit 0")
	var once sync.Once
	disk.set(func(m attempt.Memory, mark attempt.Marker) attempt.Marker {
		// Between this look at the marker and the one at the pane, the command ends, writes the marker, and the pane vanishes.
		once.Do(func() {
			if err := os.WriteFile(b.file("go"), nil, 0o600); err != nil {
				t.Error(err)
			}
			for range 10000 {
				if !alive(m.Pane.Wrapper.Pid) {
					break
				}
				time.Sleep(time.Millisecond)
			}
			if _, err := b.cmd(m.Target, "kill-server"); err != nil {
				t.Log(err)
			}
			for range 10000 {
				if !alive(m.Pane.Server.Pid) {
					break
				}
				time.Sleep(time.Millisecond)
			}
		})
		return mark
	})
	if got := b.becomes(a.ID, task.Succeeded); got.Outcome.SecondHand {
		t.Errorf("%+v", got.Outcome)
	}
}

func TestT25_AMarkerThatCannotBeReadIsNoEnd(t *testing.T) {
	t.Parallel()
	disk := &watchedDisk{}
	b := newBench(t, spied(disk, &watchedTmux{}))
	for script, want := range map[string]task.State{"exit 0": task.Succeeded, "exit 7": task.Failed} {
		a := b.launch("while [ ! -e go ]; do sleep 0.01; done\n" + script)
		disk.set(func(attempt.Memory, attempt.Marker) attempt.Marker {
			return attempt.Marker{Kind: task.Unreadable, Detail: "EIO"}
		})
		if err := os.WriteFile(b.file("go"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		b.until("it has ended", func() bool { return !alive(a.Pane.Wrapper.Pid) })
		if got := b.becomes(a.ID, task.Unknown); got.Reason != task.ReasonUnreadable {
			t.Errorf("%+v", got)
		}
		disk.set(nil)
		b.becomes(a.ID, want)
		if err := os.Remove(b.file("go")); err != nil {
			t.Fatal(err)
		}
	}
}

func TestT43_T140_WhatIsMissingAtTheLaunchIsALaunchFailure(t *testing.T) {
	t.Parallel()
	for name, remove := range map[string]func(*bench, attempt.Run) string{
		"the prompt":    func(b *bench, r attempt.Run) string { return b.disk.PromptFile(r.ID) },
		"the directory": func(_ *bench, r attempt.Run) string { return r.Dir },
	} {
		disk := &watchedDisk{}
		b := newBench(t, spied(disk, &watchedTmux{}), func(b *bench) {
			file := b.entries["sh"]
			file.Task, file.TaskPrompt = []string{"-s", "{prompt_file}"}, "file"
			sentence := b.entries["sh"]
			sentence.Task, sentence.TaskPrompt = []string{"-c", "exit 0", "{sentence}"}, "sentence"
			b.entries["file"], b.entries["sentence"] = file, sentence
		})
		disk.before = func(r attempt.Run) {
			if err := os.RemoveAll(remove(b, r)); err != nil {
				t.Error(err)
			}
		}
		for _, harness := range []string{"sh", "file", "sentence"} {
			if err := os.MkdirAll(b.work, 0o755); err != nil {
				t.Fatal(err)
			}
			a := b.launch("exit 0", func(r *attempt.LaunchRequest) { r.Harness = harness })
			got := b.becomes(a.ID, task.LaunchFailed)
			if got.Outcome.SecondHand || !strings.Contains(got.Outcome.Detail, "no such file") {
				t.Errorf("%s of %s: %+v", name, harness, got.Outcome)
			}
			b.freed(a.ID)
		}
	}
}

func TestT135_ALaunchWithoutAnAnswerIsAdoptedAndNeverRepeated(t *testing.T) {
	t.Parallel()
	lost := &watchedTmux{}
	b := newBench(t, spied(&watchedDisk{}, lost))
	lost.launched = func(attempt.Pane, error) (attempt.Pane, error) {
		b.written("ran") // the wrapper was quicker than whoever would take the launch back
		return attempt.Pane{}, fmt.Errorf("%w: lost on the way", attempt.ErrNoAnswer)
	}
	req := b.request("echo $$ >> ran; while [ ! -e go ]; do sleep 0.01; done; exit 0")
	first, _, err := b.Launch(b.ctx(), req)
	if err != nil || first.State.Final() {
		t.Fatalf("%+v, %v", first, err)
	}
	req.Token = b.token()
	if again, already, err := b.Launch(b.ctx(), req); err != nil || !already || again.ID != first.ID {
		t.Errorf("%+v, %v, %v", again, already, err)
	}
	b.restart()
	req.Token = b.token()
	if _, already, err := b.Launch(b.ctx(), req); err != nil || !already {
		t.Errorf("%v, %v", already, err)
	}
	if err := os.WriteFile(b.file("go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b.becomes(first.ID, task.Succeeded)
	if ran := b.written("ran"); strings.Contains(ran, "\n") {
		t.Errorf("it ran more than once: %q", ran)
	}
	b.freed(first.ID)
}

func TestT135_ALaunchThatIsTakenBackNeverRuns(t *testing.T) {
	t.Parallel()
	disk := &watchedDisk{}
	b := newBench(t, spied(disk, &watchedTmux{}))
	// Before tmux starts the wrapper, somebody takes the spec back: as a tmuxd does that was killed and started again in between.
	disk.before = func(r attempt.Run) { disk.Revoke(r.ID) }
	a := b.launch("echo ran > ran")
	got := b.becomes(a.ID, task.LaunchFailed)
	if !got.Outcome.SecondHand || got.Outcome.End != (task.End{How: task.ByCode, N: 121}) {
		t.Errorf("%+v", got.Outcome)
	}
	if _, err := os.Stat(b.file("ran")); err == nil {
		t.Error("it has run")
	}
}

func TestT04_ThePaneOfASuccessIsFreedLaterIfNotNow(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	a := b.launch("while [ ! -e go ]; do sleep 0.01; done; exit 0")
	if err := syscall.Kill(a.Pane.Server.Pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(b.file("go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b.becomes(a.ID, task.Succeeded)
	b.restart()
	if got := b.get(a.ID); got.State != task.Succeeded || got.Freed {
		t.Errorf("%+v", got)
	}
	if err := syscall.Kill(a.Pane.Server.Pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	b.freed(a.ID)
	if out, err := b.cmd(a.Target, "list-panes", "-a"); err == nil {
		t.Errorf("panes are left: %s", out)
	}
}
