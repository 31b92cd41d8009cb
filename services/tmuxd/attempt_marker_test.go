package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/task"
	"muxpost.dev/muxpost/services/tmuxd/internal/attempt"
)

// marker is the path of an attempt's marker.
func (b *bench) marker(id string) string {
	return filepath.Join(b.dir, "state", "attempts", id, "marker.json")
}

func TestT13_T20_T21_MarkersLieOutsideAndAreForOneLaunch(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	a := b.ended("exit 7", task.Failed)
	data, err := os.ReadFile(b.marker(a.ID))
	if err != nil || !strings.Contains(string(data), `"code":7`) || !strings.Contains(string(data), a.Stamp) {
		t.Errorf("%s, %v", data, err)
	}
	left, _ := os.ReadDir(b.work)
	if len(left) != 0 {
		t.Errorf("the working directory has %v", left)
	}
	req := b.request("echo ran > ran")
	if err := os.Mkdir(filepath.Dir(b.marker(req.ID)), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(b.marker(req.ID), data, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := b.Launch(b.ctx(), req); !errors.Is(err, fault.AlreadyExists) {
		t.Errorf("%v", err)
	}
	// What was kept of an earlier one says nothing of the next, also to a tmuxd that was started again.
	b.restart()
	if next := b.ended("exit 0", task.Succeeded); next.Stamp == a.Stamp {
		t.Error("a stamp is used twice")
	}
	if _, err := os.Stat(b.file("ran")); err == nil {
		t.Error("it was launched over a marker")
	}
}

func TestT22_AnEmptyMarkerIsNotYet(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	a := b.launch("while [ ! -e go ]; do sleep 0.01; done; exit 0")
	if err := os.Truncate(b.marker(a.ID), 0); err != nil {
		t.Fatal(err)
	}
	b.restart()
	if got := b.becomes(a.ID, task.Running); got.Outcome != nil {
		t.Errorf("%+v", got)
	}
	if err := os.WriteFile(b.file("go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b.becomes(a.ID, task.Succeeded)
	dead := b.launch("sleep 300")
	if err := os.Truncate(b.marker(dead.ID), 0); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(dead.Pane.Wrapper.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	b.becomes(dead.ID, task.Unknown)
	if got := b.becomes(dead.ID, task.Crashed); got.Reason != task.ReasonTruncated {
		t.Errorf("%+v", got.Outcome)
	}
}

func TestT23_T24_T27_WhatTheWrapperDidNotWriteIsNeverASuccess(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	write := func(text string) func(string) error {
		return func(path string) error { return os.WriteFile(path, []byte(text), 0o600) }
	}
	instead := func(put func(string) error) func(string) error {
		return func(path string) error { return errors.Join(os.Remove(path), put(path)) }
	}
	forged := `{"version":1,"stamp":"s0000","state":"exited","wrapper":{},"child":{},"started_at":"2020-01-01T00:00:00Z","ended_at":"2020-01-01T00:00:00Z"}`
	good := filepath.Join(b.dir, "good")
	if err := os.WriteFile(good, []byte(forged), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(string) error{
		"0": write("0"), "abc": write("abc"), "-1": write("-1"), "256": write("256"), "0x0": write("0x0"), "0 0": write("0 0"),
		"two lines": write("0\n1"), "NUL": write("\x00\x00\x00"), "10 MB": write(strings.Repeat("0", 10<<20)),
		"a code that is none": write(strings.Replace(forged, `"state"`, `"code":256,"state"`, 1)), "another's": write(forged),
		"a link": instead(func(p string) error { return os.Symlink(good, p) }), "a directory": instead(func(p string) error { return os.Mkdir(p, 0o700) }),
		"a pipe": instead(func(p string) error { return syscall.Mkfifo(p, 0o600) }), "a device": instead(func(p string) error { return os.Symlink("/dev/zero", p) }),
		"open to others": func(path string) error { return os.Chmod(path, 0o666) },
	} {
		a := b.launch("echo $$ > pid; sleep 300")
		child := b.pidIn("pid")
		if err := spoil(b.marker(a.ID)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := b.becomes(a.ID, task.Crashed); got.Reason != task.ReasonMalformed || !strings.Contains(got.Outcome.Detail, "malformed marker") {
			t.Errorf("%s: %+v", name, got.Outcome)
		}
		b.until("what ran is ended: "+name, func() bool { return !alive(child) })
		b.freed(a.ID)
		if err := os.Remove(b.file("pid")); err != nil {
			t.Fatal(err)
		}
	}
}

func TestT26_T27_WhatAnAgentDoesInItsWorkTreeChangesNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.ended("git init -q . 2>/dev/null; echo 0 > marker; echo 0 > .exit; git clean -fdxq . 2>/dev/null; rm -rf ./* .exit; exit 0", task.Succeeded)
	a := b.launch("echo 0 > marker; echo 0 > exit-code; echo ready > ready; sleep 300")
	b.written("ready")
	if got := b.get(a.ID); got.State != task.Running {
		t.Errorf("%v", got.State)
	}
}

func TestT28_AnEndThatCouldNotBeRecordedIsNoSuccess(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for script, want := range map[string]task.State{"exit 0": task.Crashed, "exit 7": task.Failed} {
		a := b.launch("while [ ! -e go ]; do sleep 0.01; done\n" + script)
		b.stop()
		place := filepath.Dir(b.marker(a.ID))
		if err := os.Rename(place, place+"-away"); err != nil { // now nothing can be written there
			t.Fatal(err)
		}
		if err := os.WriteFile(b.file("go"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		b.until("it has ended", func() bool { return !alive(a.Pane.Wrapper.Pid) })
		if err := errors.Join(os.Rename(place+"-away", place), os.Remove(b.file("go"))); err != nil {
			t.Fatal(err)
		}
		b.open()
		got := b.becomes(a.ID, want)
		if want == task.Crashed && got.Reason != task.ReasonNotRecorded || want == task.Failed && (!got.Outcome.SecondHand || got.Outcome.End.N != 7) {
			t.Errorf("%+v", got.Outcome)
		}
	}
}

func TestT30_T31_T33_SignalsAreRecordedAsSignals(t *testing.T) {
	t.Parallel()
	b := newBench(t, agent)
	for script, want := range map[string]struct {
		signal int
		says   string
	}{"kill -INT $$": {2, "interrupted"}, "kill -KILL $$": {9, "SIGKILL"}, "kill -SEGV $$": {11, "SIGSEGV"}} {
		got := b.ended(script, task.Failed)
		if got.Outcome.End != (task.End{How: task.BySignal, N: want.signal}) || !strings.Contains(got.Outcome.Detail, want.says) || got.Reason != task.ReasonSignal {
			t.Errorf("%s: %+v", script, got.Outcome)
		}
	}
	raised := b.launch("zz:raise=2", func(r *attempt.LaunchRequest) { r.Harness = "fakeagent" })
	if got := b.becomes(raised.ID, task.Failed); got.Outcome.End != (task.End{How: task.BySignal, N: 2}) || !strings.Contains(got.Outcome.Detail, "130") {
		t.Errorf("%+v", got.Outcome)
	}
	a := b.launch("echo ready > ready; sleep 300")
	b.written("ready")
	b.person(a.Target, "send-keys", "-t", "="+a.Target+":", "C-c")
	if got := b.becomes(a.ID, task.Failed); got.Outcome.End != (task.End{How: task.BySignal, N: 2}) || !strings.Contains(got.Outcome.Detail, "130") {
		t.Errorf("%+v", got.Outcome)
	}
}

func TestT32_ASuspendedCommandGoesOn(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	a := b.launch("echo ready > ready; while [ ! -e go ]; do sleep 0.05; done; exit 0")
	b.written("ready")
	b.person(a.Target, "send-keys", "-t", "="+a.Target+":", "C-z")
	if got := b.get(a.ID); got.State != task.Running {
		t.Errorf("%v", got.State)
	}
	if err := os.WriteFile(b.file("go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b.becomes(a.ID, task.Succeeded)
}

func TestT35_ACommandThatEndsAtOnceIsNotMissed(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(b *bench) {
		e := b.entries["sh"]
		e.Binary, e.Task = "/bin/true", []string{"x"}
		b.entries["true"] = e
	})
	for range 10 {
		a := b.launch("x", func(r *attempt.LaunchRequest) { r.Harness = "true" })
		b.becomes(a.ID, task.Succeeded)
	}
}
