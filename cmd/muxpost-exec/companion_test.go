package main

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"muxpost.dev/muxpost/internal/wrapper"
)

// serveWord makes the test binary a companion.
const serveWord = "serve"

// serve listens on a socket for ever.
func serve(path string) {
	listener, err := net.Listen("unix", path)
	if err != nil {
		panic(err)
	}
	for {
		if conn, err := listener.Accept(); err == nil {
			_ = conn.Close()
		}
	}
}

// accompanied has a companion, below a shell that tells the pids of both in $F: many servers run below the program that is started.
func accompanied(t *testing.T, then string) (change func(*wrapper.Spec), pidFile string) {
	t.Helper()
	dir := t.TempDir()
	socket, file := filepath.Join(dir, "s"), filepath.Join(dir, "pids")
	return func(s *wrapper.Spec) {
		s.Env = append(s.Env, "F="+file, "SOCKET="+socket)
		s.CompanionSocket = socket
		s.Companion = []string{"sh", "-c", `echo $$ >> "$F"; "$0" ` + serveWord + ` "$SOCKET" & echo $! >> "$F"; ` + then, os.Args[0]}
	}, file
}

func TestCompanion_ListensBeforeTheHarnessStartsAndEndsWithIt(t *testing.T) {
	t.Parallel()
	change, file := accompanied(t, "wait")
	cmd, _, record := runSpec(t, `test -S "$SOCKET" && echo listens`, change)
	out, err := cmd.Output()
	if err != nil || string(out) != "listens\n" {
		t.Errorf("%q, %v", out, err)
	}
	if r := read(t, record); r.State != wrapper.Exited || !r.Swept || r.LeftBehind != 0 || r.Cause != "" {
		t.Errorf("%+v", r)
	}
	for _, pid := range pids(t, file) {
		if !gone(t, pid) {
			t.Errorf("%d lives on", pid)
		}
	}
}

func TestCompanion_WithoutItTheHarnessIsEndedAndTheReasonTold(t *testing.T) {
	t.Parallel()
	change, file := accompanied(t, `while [ ! -s "$F.go" ]; do sleep 0.01; done; echo "no space left" >&2; exit 3`)
	cmd, _, record := runSpec(t, `echo go > "$F.go"; exec sleep 60`, change)
	_ = cmd.Run()
	r := read(t, record)
	if r.State != wrapper.Signaled || r.Cause != wrapper.CompanionEnded || !strings.Contains(r.Detail, "exit 3: no space left") || !r.Swept {
		t.Errorf("%+v", r)
	}
	for _, pid := range pids(t, file) {
		if !gone(t, pid) {
			t.Errorf("%d lives on", pid)
		}
	}
}

func TestCompanion_OneThatDoesNotServeStartsNoHarness(t *testing.T) {
	t.Parallel()
	marker := filepath.Join(t.TempDir(), "ran")
	cmd, _, record := runSpec(t, "touch "+marker, func(s *wrapper.Spec) {
		s.Companion, s.CompanionSocket = []string{"sh", "-c", "echo unknown option --listen >&2; exit 2"}, marker+".sock"
	})
	_ = cmd.Run()
	if r := read(t, record); r.State != wrapper.LaunchFailed || !strings.Contains(r.Detail, "exit 2: unknown option --listen") {
		t.Errorf("%+v", r)
	}
	if _, err := os.Stat(marker); err == nil {
		t.Error("the harness was started")
	}
}

// The companion is there by the time that the harness turns out to be none: all that it started ends too, and is not said to be gone before.
func TestCompanion_AHarnessThatCannotBeRunLeavesNothingOfItBehind(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	socket, file := filepath.Join(dir, "s"), filepath.Join(dir, "pids")
	cmd, _, record := runSpec(t, "", func(s *wrapper.Spec) {
		s.Argv = []string{"/dev/null"}
		s.Env = append(s.Env, "F="+file, "SOCKET="+socket, "L="+lingers)
		s.CompanionSocket = socket
		s.Companion = []string{"sh", "-c", ways["immune"] + ` while [ ! -s "$F" ]; do sleep 0.01; done; exec "$0" ` + serveWord + ` "$SOCKET"`, os.Args[0]}
	})
	_ = cmd.Run()
	r := read(t, record)
	if cmd.ProcessState.ExitCode() != exitCannotRun || r.State != wrapper.LaunchFailed || !r.Swept || r.LeftBehind == 0 || len(r.Remains) > 0 {
		t.Errorf("exit %d, %+v", cmd.ProcessState.ExitCode(), r)
	}
	left := pids(t, file)
	if len(left) == 0 {
		t.Fatal("it started nothing, so nothing is shown")
	}
	for _, pid := range left {
		if !gone(t, pid) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
			t.Errorf("%d lives on", pid)
		}
	}
	if _, err := os.Stat(string(r.Group)); r.Group != "" && err == nil {
		t.Error("the control group is left")
	}
}

func TestCompanion_AKilledWrapperTakesItAndTheHarness(t *testing.T) {
	t.Parallel()
	change, file := accompanied(t, "wait")
	cmd, _, _ := runSpec(t, `echo $$ >> "$F"; sh -c 'echo $$ >> "$F"; exec sleep 60'`, change)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	until(t, "all of it runs", func() bool { return len(pids(t, file)) == 4 })
	if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	for _, pid := range pids(t, file) {
		until(t, "it is gone", func() bool { return gone(t, pid) })
	}
}
