// Command muxpost-exec is the process of an agent's pane. It reads what to run from a spec file, which it unlinks, starts it without
// a shell as the foreground process group of the terminal, and records its start and its end where a crash cannot lose them.
//
// It is a small program of its own, on the standard library alone, because every agent carries one. It knows nothing of tmux, of
// deliveries or of tmuxd beyond the two files of package wrapper.
//
// Usage: muxpost-exec SPEC
package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"muxpost.dev/muxpost/internal/wrapper"
)

// Exit codes of the wrapper's own failures, apart from those that harnesses use.
const (
	exitUsage     = 120
	exitSpec      = 121
	exitTooLate   = 122
	exitRecord    = 123
	exitNotFound  = 127
	exitCannotRun = 126

	// grace is how long the harness has between a hang-up, a TERM and a KILL.
	grace = 500 * time.Millisecond
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: muxpost-exec SPEC (tmuxd writes the spec; this program is not run by hand)")
		os.Exit(exitUsage)
	}
	os.Exit(run(os.Args[1]))
}

// run runs the spec and returns the exit code.
func run(specFile string) int {
	// Both the parent-death signal and waiting are per thread.
	runtime.LockOSThread()
	spec, err := wrapper.ReadSpec(specFile)
	// Unlinking is the claim: tmuxd unlinks a spec whose spawn timed out, and whoever comes second starts nothing.
	if unlinkErr := os.Remove(specFile); err == nil {
		err = unlinkErr
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "muxpost-exec: cannot read the spec:", err)
		return exitSpec
	}
	if time.Now().After(spec.NotAfter) {
		fmt.Fprintln(os.Stderr, "muxpost-exec: started too late, nothing was run")
		return exitTooLate
	}
	self, err := wrapper.Self()
	record := wrapper.Record{Stamp: spec.Stamp, State: wrapper.Launching, Wrapper: self}
	if err == nil {
		err = wrapper.WriteRecord(spec.RecordFile, record)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "muxpost-exec: cannot write the record, so nothing was run:", err)
		return exitRecord
	}
	if err := becomeSubreaper(); err != nil {
		fmt.Fprintln(os.Stderr, "muxpost-exec: cannot become a subreaper:", err)
	}
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGHUP, syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2)
	child, code, err := start(spec)
	if err != nil {
		record.State, record.Detail, record.EndedAt = wrapper.LaunchFailed, err.Error(), time.Now()
		fmt.Fprintln(os.Stderr, "muxpost-exec: cannot start the harness:", err)
		if err := wrapper.WriteRecord(spec.RecordFile, record); err != nil {
			fmt.Fprintln(os.Stderr, "muxpost-exec: cannot write the record:", err)
		}
		return code
	}
	record.State, record.StartedAt = wrapper.Running, time.Now()
	record.Child, _ = wrapper.Find(child)
	if err := wrapper.WriteRecord(spec.RecordFile, record); err != nil {
		fmt.Fprintln(os.Stderr, "muxpost-exec: cannot write the record:", err)
	}
	hungUp := make(chan struct{}, 1)
	go forward(signals, child, hungUp)
	status := wait(child)
	if spec.PromptFile != "" {
		os.Remove(spec.PromptFile)
	}
	record.EndedAt = time.Now()
	select {
	case <-hungUp:
		record.HungUp = true
	default:
	}
	record.State, record.Code = wrapper.Exited, status.ExitStatus()
	if status.Signaled() {
		record.State, record.Code, record.Signal = wrapper.Signaled, 0, int(status.Signal())
	}
	if err := wrapper.WriteRecord(spec.RecordFile, record); err != nil {
		fmt.Fprintln(os.Stderr, "muxpost-exec: cannot write the record:", err)
	}
	endOrphans()
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}

// start writes the prompt and starts the harness as the terminal's foreground process group. code is the wrapper's exit code when
// it fails.
func start(spec wrapper.Spec) (pid, code int, err error) {
	if spec.PromptFile != "" && spec.Prompt != "" {
		// O_EXCL: whatever lies under this name is not ours to write into.
		f, err := os.OpenFile(spec.PromptFile, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err == nil {
			_, err = f.WriteString(spec.Prompt)
			if closeErr := f.Close(); err == nil {
				err = closeErr
			}
		}
		if err != nil {
			return 0, exitCannotRun, fmt.Errorf("cannot write the prompt: %w", err)
		}
	}
	path, err := lookPath(spec.Argv[0], spec.Env)
	if err != nil {
		return 0, exitNotFound, err
	}
	attr := &os.ProcAttr{
		Dir: spec.Dir, Env: spec.Env, Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
		Sys: &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL},
	}
	if isTerminal(0) {
		attr.Sys.Foreground, attr.Sys.Ctty = true, 0
	}
	p, err := os.StartProcess(path, spec.Argv, attr)
	if err != nil {
		code := exitCannotRun
		if errors.Is(err, os.ErrNotExist) {
			code = exitNotFound
		}
		return 0, code, err
	}
	return p.Pid, 0, nil
}

// lookPath finds the program on the PATH of the environment that it will get, not on ours.
func lookPath(name string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	for _, kv := range env {
		list, ok := strings.CutPrefix(kv, "PATH=")
		if !ok {
			continue
		}
		for dir := range strings.SplitSeq(list, ":") {
			path := dir + "/" + name
			if info, err := os.Stat(path); dir != "" && err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
				return path, nil
			}
		}
	}
	return "", fmt.Errorf("%s is not on the PATH of the agent's environment", name)
}

// forward passes signals on to the harness's process group. A hang-up (the pane was closed) is made sure of: HUP, TERM, KILL.
func forward(signals <-chan os.Signal, child int, hungUp chan<- struct{}) {
	for s := range signals {
		sig, ok := s.(syscall.Signal)
		if !ok {
			continue
		}
		kill(child, sig)
		if sig != syscall.SIGHUP {
			continue
		}
		select {
		case hungUp <- struct{}{}:
		default:
		}
		go func() {
			time.Sleep(grace)
			kill(child, syscall.SIGTERM)
			time.Sleep(grace)
			kill(child, syscall.SIGKILL)
		}()
	}
}

// kill signals the process group of the harness. It may be gone, which is what was wanted.
func kill(pid int, sig syscall.Signal) { _ = syscall.Kill(-pid, sig) }

// wait reaps until the harness ends. A harness that stops itself (Ctrl-Z) has no shell to bring it back, so it is continued.
func wait(child int) syscall.WaitStatus {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			// The child was ours and nobody else waits, so this cannot happen; without a status the end is unknown.
			fmt.Fprintln(os.Stderr, "muxpost-exec: waiting failed:", err)
			return syscall.WaitStatus(0xff00)
		case pid == child && status.Stopped():
			kill(child, syscall.SIGCONT)
		case pid == child:
			return status
		}
	}
}

// becomeSubreaper makes what the harness leaves behind our children, so that it can be found and ended.
func becomeSubreaper() error {
	const prSetChildSubreaper = 36
	if _, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, prSetChildSubreaper, 1, 0); errno != 0 {
		return errno
	}
	return nil
}

// endOrphans ends what the harness left behind: without the harness nobody drives it, and a second life of the session must not
// meet it. TERM, a grace, then KILL, until nothing is left.
func endOrphans() {
	deadline := time.Now().Add(grace)
	for sig := syscall.SIGTERM; ; {
		children := orphans()
		if len(children) == 0 {
			return
		}
		if time.Now().After(deadline) {
			sig = syscall.SIGKILL
		}
		for _, pid := range children {
			_ = syscall.Kill(pid, sig)
		}
		if sig == syscall.SIGKILL && time.Now().After(deadline.Add(2*time.Second)) {
			return // a process that a KILL does not end hangs in the kernel
		}
		time.Sleep(10 * time.Millisecond)
		for {
			if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 || err != nil {
				break
			}
		}
	}
}

// orphans lists our children, over all threads: a child belongs to the thread that made or inherited it.
func orphans() []int {
	tasks, _ := os.ReadDir("/proc/self/task")
	var pids []int
	for _, task := range tasks {
		data, _ := os.ReadFile("/proc/self/task/" + task.Name() + "/children")
		for field := range strings.FieldsSeq(string(data)) {
			if pid, err := strconv.Atoi(field); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}
