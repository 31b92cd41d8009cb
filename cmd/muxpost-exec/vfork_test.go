package main

import (
	"os"
	"syscall"
	"testing"

	"muxpost.dev/muxpost/internal/wrapper"
)

// vforks is a harness whose child is stopped before it becomes another program. It says so when it goes on.
func vforks() {
	startStopped()
	os.Stdout.WriteString("went on\n")
	var line [1]byte
	_, _ = os.Stdin.Read(line[:])
}

// startStopped starts a child as vfork(2) does, but with a copy of the memory, that stops itself and then exits.
//
//go:norace
//go:nosplit
func startStopped() {
	pid, _, errno := syscall.RawSyscall6(syscall.SYS_CLONE, syscall.CLONE_VFORK|uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
	if errno == 0 && pid == 0 {
		self, _, _ := syscall.RawSyscall(syscall.SYS_GETPID, 0, 0, 0)
		_, _, _ = syscall.RawSyscall(syscall.SYS_KILL, self, uintptr(syscall.SIGSTOP), 0)
		_, _, _ = syscall.RawSyscall(syscall.SYS_EXIT, 0, 0, 0)
	}
}

// A shell that starts a program does not stop by the Ctrl-Z that stops what is not that program yet, so its wrapper is not told.
func TestPane_AChildThatIsStoppedBeforeItIsAProgramHoldsNothing(t *testing.T) {
	t.Parallel()
	p := inPane(t, "", func(s *wrapper.Spec) {
		s.Argv = []string{os.Args[0], "vforks"}
		s.Env = append(s.Env, "MUXPOST_EXEC_VFORKS=1")
	})
	p.shows("went on")
}

// Whom somebody stopped on purpose stays so.
func TestPane_AProgramThatWasStoppedOnPurposeStaysStopped(t *testing.T) {
	t.Parallel()
	p := inPane(t, "sleep 300 & kill -STOP $!; echo stopped $!; cat", nil)
	p.shows("stopped")
	until(t, "its start is on record", func() bool { return read(t, p.recording).State == wrapper.Running })
	if pid := stoppedInVfork(read(t, p.recording).Child.Pid); pid != 0 {
		t.Errorf("%d would be continued", pid)
	}
}
