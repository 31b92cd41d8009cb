package pidfd

import (
	"errors"
	"os"
	"os/exec"
	"sync/atomic"
	"testing"
	"time"

	"muxpost.dev/muxpost/internal/wrapper"
)

func newWatcher(t *testing.T) *Watcher {
	t.Helper()
	w, err := New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	return w
}

// sleeper starts a process that lives until it is ended.
func sleeper(t *testing.T) (*exec.Cmd, wrapper.Process) {
	t.Helper()
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	p, err := wrapper.Find(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return cmd, p
}

// follow watches and returns where the callback is told.
func follow(t *testing.T, w *Watcher, pid int, start uint64) (told chan struct{}, stop func()) {
	t.Helper()
	told = make(chan struct{}, 16)
	stop, err := w.Watch(pid, start, func() { told <- struct{}{} })
	if err != nil {
		t.Fatal(err)
	}
	return told, stop
}

func await(t *testing.T, what string, told <-chan struct{}) {
	t.Helper()
	select {
	case <-told:
	case <-time.After(10 * time.Second):
		t.Fatalf("waited in vain: %s", what)
	}
}

// settled makes sure that every callback that was due has come: one that is asked for now comes after them.
func settled(t *testing.T, w *Watcher) {
	t.Helper()
	_, self := sleeper(t)
	told, _ := follow(t, w, self.Pid, self.Start+1)
	await(t, "the loop goes round", told)
}

func quiet(t *testing.T, what string, told <-chan struct{}) {
	t.Helper()
	select {
	case <-told:
		t.Errorf("called back: %s", what)
	default:
	}
}

func TestWatch_CallsBackOnceWhenTheProcessEnds(t *testing.T) {
	t.Parallel()
	w := newWatcher(t)
	cmd, p := sleeper(t)
	told, stop := follow(t, w, p.Pid, p.Start)
	settled(t, w)
	quiet(t, "it lives", told)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	// Nobody has waited for it yet: it is a zombie, and has ended.
	await(t, "the end", told)
	_ = cmd.Wait()
	stop()
	settled(t, w)
	quiet(t, "a second time", told)
}

func TestWatch_AProcessThatEndedBeforeIsToldAtOnce(t *testing.T) {
	t.Parallel()
	w := newWatcher(t)
	cmd, p := sleeper(t)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	told, _ := follow(t, w, p.Pid, p.Start)
	await(t, "it was gone", told)
}

func TestWatch_AZombieHasEnded(t *testing.T) {
	t.Parallel()
	w := newWatcher(t)
	cmd, p := sleeper(t)
	_ = cmd.Process.Kill()
	first, _ := follow(t, w, p.Pid, p.Start)
	await(t, "the end", first)
	told, _ := follow(t, w, p.Pid, p.Start)
	await(t, "the zombie", told)
}

func TestWatch_AnotherProcessUnderThePidIsNotIt(t *testing.T) {
	t.Parallel()
	w := newWatcher(t)
	cmd, p := sleeper(t)
	told, _ := follow(t, w, p.Pid, p.Start-1)
	await(t, "the one that was meant is gone", told)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	settled(t, w)
	quiet(t, "for the end of the other one", told)
}

func TestWatch_StoppedIsNeverCalledBack(t *testing.T) {
	t.Parallel()
	w := newWatcher(t)
	cmd, p := sleeper(t)
	told, stop := follow(t, w, p.Pid, p.Start)
	stop()
	stop()
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	settled(t, w)
	quiet(t, "after stop", told)
}

func TestWatch_ACallbackMayWatchAgain(t *testing.T) {
	t.Parallel()
	w := newWatcher(t)
	first, p := sleeper(t)
	second, q := sleeper(t)
	told := make(chan struct{}, 1)
	if _, err := w.Watch(p.Pid, p.Start, func() {
		if _, err := w.Watch(q.Pid, q.Start, func() { told <- struct{}{} }); err != nil {
			t.Error(err)
		}
		_ = second.Process.Kill()
	}); err != nil {
		t.Fatal(err)
	}
	_ = first.Process.Kill()
	await(t, "the second", told)
}

// Two thousand watches end at once, while others are stopped.
func TestWatch_ThousandsAreEachToldOnce(t *testing.T) {
	const count = 2000
	w := newWatcher(t)
	cmd, p := sleeper(t)
	var calls, stopped atomic.Int64
	all := make(chan struct{})
	for i := range count {
		stop, err := w.Watch(p.Pid, p.Start, func() {
			if calls.Add(1) == count/2 {
				close(all)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			stop()
			stopped.Add(1)
		}
	}
	_ = cmd.Process.Kill()
	await(t, "all are told", all)
	settled(t, w)
	if calls.Load()+stopped.Load() != count {
		t.Errorf("%d calls and %d stopped", calls.Load(), stopped.Load())
	}
}

func TestClose_NothingIsCalledAfterwardsAndNoDescriptorIsLeft(t *testing.T) {
	before := descriptors(t)
	w, err := New()
	if err != nil {
		t.Fatal(err)
	}
	cmd, p := sleeper(t)
	told, stop := follow(t, w, p.Pid, p.Start)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	quiet(t, "after Close", told)
	stop()
	if _, err := w.Watch(p.Pid, p.Start, func() {}); !errors.Is(err, ErrClosed) {
		t.Errorf("%v", err)
	}
	if err := w.Close(); !errors.Is(err, ErrClosed) {
		t.Errorf("%v", err)
	}
	if after := descriptors(t); after != before {
		t.Errorf("%d descriptors, and there were %d", after, before)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}
