package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
)

// maxWords is how much is kept of what a companion said last, in bytes.
const maxWords = 400

// accompany starts the companion, where there is to be one, and waits until it listens. code is the wrapper's exit code when it fails; what was
// started by then is for launchFailed to end.
func (r *runner) accompany() (code int, err error) {
	spec := r.spec
	if len(spec.Companion) == 0 {
		return 0, nil
	}
	path, err := lookPath(spec.Companion[0], spec.Env)
	if err != nil {
		return exitNotFound, err
	}
	nothing, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return exitCannotRun, err
	}
	defer nothing.Close()
	out, in, err := os.Pipe()
	if err != nil {
		return exitCannotRun, err
	}
	defer in.Close()
	pid, err := r.exec(path, spec.Companion, &os.ProcAttr{
		Dir: spec.Dir, Env: environment(spec), Files: []*os.File{nothing, nothing, in},
		Sys: &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL},
	})
	if err != nil {
		out.Close()
		return exitOf(err), err
	}
	heard := make(chan struct{})
	r.words.heard = heard
	go func() {
		defer close(heard)
		_, _ = io.Copy(&r.words, out) // it ends with the last process that has the other end
		out.Close()
	}()
	r.mu.Lock()
	r.companion = pid
	r.mu.Unlock()
	if err := r.startKeeper(); err != nil {
		return exitCannotRun, fmt.Errorf("cannot start what ends the harness after us: %w", err)
	}
	for end := time.Now().Add(companionTime); ; time.Sleep(10 * time.Millisecond) {
		if info, err := os.Stat(spec.CompanionSocket); err == nil && info.Mode()&os.ModeSocket != 0 {
			return 0, nil
		}
		var status syscall.WaitStatus
		if got, err := syscall.Wait4(pid, &status, syscall.WNOHANG, nil); got == pid && err == nil {
			r.mu.Lock()
			r.companion = 0
			r.mu.Unlock()
			return exitCannotRun, errors.New("what is to serve the harness ended: " + r.words.say(status))
		}
		if time.Now().After(end) {
			return exitCannotRun, fmt.Errorf("what is to serve the harness does not listen at %s after %v: %s", spec.CompanionSocket, companionTime, r.words.String())
		}
	}
}

// dismiss ends the keeper and the companion: what it started and it did not end by itself is for sweep.
func (r *runner) dismiss() {
	r.mu.Lock()
	pid, keeper := r.companion, r.keeper
	r.companion, r.keeper = 0, 0
	r.mu.Unlock()
	if keeper > 1 {
		_ = syscall.Kill(keeper, syscall.SIGKILL) // before it could take our end of the pipe for our end
		_, _ = syscall.Wait4(keeper, nil, 0, nil)
		_ = r.life.Close()
	}
	if pid <= 1 {
		return
	}
	_ = syscall.Kill(-pid, syscall.SIGTERM)
	_ = syscall.Kill(-pid, syscall.SIGCONT)
	for end := time.Now().Add(sweepGrace); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		reap()
		if errors.Is(syscall.Kill(-pid, 0), syscall.ESRCH) {
			return
		}
	}
}

// wordsTime is how long is waited for the last words of a process that has ended: they are in the pipe, and only have to be read. Longer
// waits would be for a process that it left behind.
const wordsTime = 50 * time.Millisecond

// lastWords keeps the end of what is written to it.
type lastWords struct {
	// heard is closed once there is nothing more to come.
	heard <-chan struct{}

	mu   sync.Mutex
	text []byte
}

func (w *lastWords) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text = append(w.text, p...)
	w.text = bytes.Clone(w.text[max(0, len(w.text)-maxWords):])
	return len(p), nil
}

// String returns the last line, in printable characters.
func (w *lastWords) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	lines := strings.Split(strings.TrimSpace(strings.ToValidUTF8(string(w.text), "")), "\n")
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7F {
			return -1
		}
		return r
	}, lines[len(lines)-1])
}

// say tells how it ended, with its last words.
func (w *lastWords) say(status syscall.WaitStatus) string {
	select {
	case <-w.heard:
	case <-time.After(wordsTime):
	}
	how := fmt.Sprintf("exit %d", status.ExitStatus())
	if status.Signaled() {
		how = status.Signal().String()
	}
	if words := w.String(); words != "" {
		how += ": " + words
	}
	return how
}
