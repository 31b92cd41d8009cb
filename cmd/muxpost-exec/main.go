// Command muxpost-exec is the process of an agent's pane. It reads what to run from a spec file, which it unlinks, starts it without
// a shell as the foreground process group of the terminal, and records its start and its end where a crash cannot lose them. What the
// harness leaves behind ends with it. A companion, which serves the harness, is started before it and ends with it; a keeper, a second process of
// this program, sees to that where this one is killed.
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
	"sync"
	"syscall"
	"time"

	"muxpost.dev/muxpost/internal/wrapper"
)

// Exit codes of the wrapper's own failures, apart from those that harnesses use. The record tells them apart for certain.
const (
	exitUsage     = 120
	exitSpec      = 121 // the spec could not be read, or was taken back
	exitTooLate   = 122
	exitRecord    = 123 // the start could not be recorded, or an end with 0 could not
	exitLost      = 124 // the harness's end could not be learned
	exitLimit     = 125 // the time limit could not be kept
	exitCannotRun = 126
	exitNotFound  = 127
)

const (
	// hangUpGrace is how long the harness has between a hang-up, a TERM and a KILL; sweepGrace what it left behind between TERM and KILL.
	hangUpGrace = 500 * time.Millisecond
	sweepGrace  = 500 * time.Millisecond
	// companionTime is how long a companion may take until it listens: a program on a busy machine needs seconds to start.
	companionTime = 20 * time.Second
	// killTime is how long a KILL may take until what it does not end is said to remain.
	killTime = 2 * time.Second
)

func main() {
	if len(os.Args) == 3 && os.Args[1] == keepFlag {
		os.Exit(keep(os.Args[2], os.Stdin))
	}
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: muxpost-exec SPEC (tmuxd writes the spec; this program is not run by hand)")
		os.Exit(exitUsage)
	}
	// The parent-death signal is per thread: the harness must not outlive the one that started it.
	runtime.LockOSThread()
	os.Exit(run(os.Args[1]))
}

// runner is one run.
type runner struct {
	spec wrapper.Spec

	mu     sync.Mutex
	record wrapper.Record
	// companion is the pid, and the process group, of what serves the harness; zero when there is none, and once it was reaped.
	companion int
	words     lastWords
	// keeper is the pid of the keeper, zero when there is none, and life what it holds the other end of: that ends with us.
	keeper int
	life   *os.File
	// child is the pid of the harness, and of its process group; zero once it was reaped, when both can be somebody else's.
	child int
	// began is true once anything was started.
	began bool
}

// run runs the spec and returns the exit code.
func run(specFile string) int {
	spec, err := wrapper.ReadSpec(specFile)
	// Unlinking is the claim: tmuxd unlinks a spec whose spawn timed out, and whoever comes second starts nothing.
	if unlinkErr := os.Remove(specFile); err == nil {
		err = unlinkErr
	}
	if err != nil {
		return failed(exitSpec, "cannot read the spec", err)
	}
	if time.Now().After(spec.NotAfter) {
		return failed(exitTooLate, "nothing was run", errors.New("it was started too late"))
	}
	r := &runner{spec: spec}
	if err := r.launching(); err != nil {
		return failed(exitRecord, "cannot write the record, so nothing was run", err)
	}
	if err := becomeSubreaper(); err != nil {
		complain("cannot become a subreaper", err)
	}
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGHUP, syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2)
	overdue, err := after(spec.Limit)
	if err != nil {
		return r.launchFailed(exitLimit, fmt.Errorf("cannot keep the time limit, so nothing was run: %w", err))
	}
	if code, err := r.start(); err != nil {
		return r.launchFailed(code, err)
	}
	go r.obey(signals, overdue)
	status, err := r.wait()
	if spec.PromptFile != "" {
		os.Remove(spec.PromptFile)
	}
	if err != nil {
		r.sweep()
		return failed(exitLost, "how the harness ended could not be learned", err)
	}
	// Usually nothing is left, and one writing says it all. Otherwise that the harness has ended is said first.
	left, err := r.now().Left()
	swept := err == nil && len(left) == 0 && r.now().Group.Remove() == nil
	code := r.ended(status, swept)
	if !swept {
		r.dismiss()
		r.sweep()
	}
	return code
}

// complain says on the terminal what went wrong.
func complain(what string, err error) { fmt.Fprintf(os.Stderr, "muxpost-exec: %s: %v\n", what, err) }

func failed(code int, what string, err error) int {
	complain(what, err)
	return code
}

// update changes the record and writes it.
func (r *runner) update(change func(*wrapper.Record)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.record)
	return wrapper.WriteRecord(r.spec.RecordFile, r.record)
}

// now is the record as it stands.
func (r *runner) now() wrapper.Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.record
}

// launching records that the wrapper is there, before anything is started: whoever finds it killed finds what it started. Where no control
// group can be made the descendants are walked through.
func (r *runner) launching() error {
	self, err := wrapper.Self()
	if err != nil {
		return err
	}
	group, _ := wrapper.NewGroup("muxpost-" + r.spec.Stamp)
	err = r.update(func(rec *wrapper.Record) {
		*rec = wrapper.Record{Stamp: r.spec.Stamp, State: wrapper.Launching, Wrapper: self, Group: group}
	})
	if err != nil {
		_ = group.Remove()
	}
	return err
}

// launchFailed ends what was started before the harness could not be, and records that nothing ran.
func (r *runner) launchFailed(code int, err error) int {
	if r.began {
		r.dismiss()
		r.sweep()
	} else {
		_ = r.now().Group.Remove() // nothing was in it
	}
	writeErr := r.update(func(rec *wrapper.Record) {
		rec.State, rec.Detail, rec.EndedAt, rec.Swept = wrapper.LaunchFailed, err.Error(), time.Now(), rec.Swept || !r.began
	})
	if writeErr != nil {
		complain("cannot write the record", writeErr)
	}
	return failed(code, "cannot start the harness", err)
}

// ended records how the harness ended, and whether it left anything behind, and returns the exit code that says the same.
func (r *runner) ended(status syscall.WaitStatus, swept bool) int {
	err := r.update(func(rec *wrapper.Record) {
		rec.EndedAt, rec.Swept = time.Now(), swept
		rec.State, rec.Code = wrapper.Exited, status.ExitStatus()
		if status.Signaled() {
			rec.State, rec.Code, rec.Signal = wrapper.Signaled, 0, int(status.Signal())
		}
	})
	code := status.ExitStatus()
	if status.Signaled() {
		code = 128 + int(status.Signal())
	}
	if err != nil {
		complain("cannot write the record", err)
		if code == 0 {
			return exitRecord // a success that nobody recorded must not look like one
		}
	}
	return code
}
