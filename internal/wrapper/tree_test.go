package wrapper

import (
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// sleeper starts a process that stays until it is ended.
func sleeper(t *testing.T, env ...string) (*exec.Cmd, Process) {
	t.Helper()
	cmd := exec.Command("sleep", "300")
	cmd.Env = append(os.Environ(), env...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	p, err := Find(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return cmd, p
}

func TestSignal_NeverReachesAnotherProcessOfTheSamePid(t *testing.T) {
	cmd, p := sleeper(t)
	for name, change := range map[string]func(*Process){
		"another start": func(p *Process) { p.Start++ },
		"another boot":  func(p *Process) { p.Boot = "x" },
		"no pid":        func(p *Process) { p.Pid = 0 },
		"a group":       func(p *Process) { p.Pid = -p.Pid },
	} {
		other := p
		change(&other)
		if err := other.Signal(syscall.SIGKILL); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := p.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // of whatever reached it first
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || ws.Signal() != syscall.SIGTERM {
		t.Errorf("%v: it was signalled before", cmd.ProcessState)
	}
}

func TestSignal_ReachesItsOwnAndForgivesTheGone(t *testing.T) {
	cmd, p := sleeper(t)
	if err := p.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || ws.Signal() != syscall.SIGKILL {
		t.Errorf("%v", cmd.ProcessState)
	}
	if err := p.Signal(syscall.SIGKILL); err != nil {
		t.Errorf("gone: %v", err)
	}
}

func TestLeft_IsWhatDescendsFromALivingWrapperAndNothingBesideIt(t *testing.T) {
	self, err := Self()
	if err != nil {
		t.Fatal(err)
	}
	_, beside := sleeper(t)
	shell := exec.Command("sh", "-c", "sleep 300 & sleep 300 & wait")
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = shell.Wait() }()
	wrapper, err := Find(shell.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	r := Record{Stamp: "s1", Wrapper: wrapper}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		left, err := r.Left()
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range left {
			if p == beside || p == self || p == wrapper {
				t.Fatalf("%+v is no descendant", p)
			}
		}
		if len(left) == 2 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("left: %v", left)
		}
	}
	another := r
	another.Wrapper.Start++
	if left, err := another.Left(); err != nil || len(left) > 0 {
		t.Errorf("what descends from another process of its pid is counted: %v %v", left, err)
	}
	another = r
	another.Wrapper.Boot = "x"
	if left, err := another.Left(); err != nil || len(left) > 0 {
		t.Errorf("something outlived a boot: %v %v", left, err)
	}
	if left, err := r.KillLeft(10 * time.Second); err != nil || len(left) > 0 {
		t.Errorf("%v %v", left, err)
	}
	if alive, err := beside.Alive(); err != nil || !alive {
		t.Errorf("what lived beside it was ended: %v", err)
	}
}

func TestLeft_OfADeadWrapperIsWhatCarriesItsStamp(t *testing.T) {
	stamp := "s" + strconv.FormatInt(time.Now().UnixNano(), 36)
	_, ours := sleeper(t, StampVariable+"="+stamp)
	_, longer := sleeper(t, StampVariable+"="+stamp+"x")
	_, named := sleeper(t, "X"+StampVariable+"="+stamp)
	self, err := Self()
	if err != nil {
		t.Fatal(err)
	}
	dead := self
	dead.Start++
	r := Record{Stamp: stamp, Wrapper: dead}
	left, err := r.Left()
	if err != nil || len(left) != 1 || left[0] != ours {
		t.Fatalf("%v %v, want %v and neither %v nor %v", left, err, ours, longer, named)
	}
	r.Stamp = ""
	if left, err := r.Left(); err != nil || len(left) > 0 {
		t.Errorf("without a stamp: %v %v", left, err)
	}
	r.Stamp, r.Child = "no-such-stamp", ours
	if left, err := r.Left(); err != nil || len(left) != 1 || left[0] != ours {
		t.Errorf("the harness: %v %v", left, err)
	}
	r.Child.Start++
	if left, err := r.Left(); err != nil || len(left) > 0 {
		t.Errorf("another process that has the harness's pid: %v %v", left, err)
	}
}
