package main

import (
	"cmp"
	"errors"
	"os"
	"syscall"
	"time"

	"muxpost.dev/muxpost/internal/wrapper"
)

// obey passes signals on to the harness's process group, ends the run when its terminal was closed or its time is over, and looks after a
// harness that cannot go on by itself.
func (r *runner) obey(signals <-chan os.Signal, overdue <-chan struct{}) {
	look, stuck := time.NewTicker(lookTime), 0
	defer look.Stop()
	for {
		select {
		case <-look.C:
			stuck = r.goOn(stuck)
		case s := <-signals:
			sig, ok := s.(syscall.Signal)
			if !ok {
				continue
			}
			r.toHarness(sig)
			if sig == syscall.SIGHUP {
				go r.end(wrapper.HangUp, "its terminal was closed", hangUpGrace)
			}
		case <-overdue:
			overdue = nil
			go r.end(wrapper.TimeLimit, "its time limit of "+r.spec.Limit.String()+" was over", cmp.Or(r.spec.Grace, wrapper.DefaultGrace))
		}
	}
}

// toHarness signals the process group of the harness, or the harness alone where it left that, unless it has ended. One that is stopped takes a
// signal only once it goes on.
func (r *runner) toHarness(sig syscall.Signal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.child <= 1 { // 0 and 1 would be our own group and everybody
		return
	}
	whom := -r.child
	if errors.Is(syscall.Kill(whom, sig), syscall.ESRCH) {
		whom = r.child
		_ = syscall.Kill(whom, sig)
	}
	if sig == syscall.SIGTERM || sig == syscall.SIGHUP {
		_ = syscall.Kill(whom, syscall.SIGCONT)
	}
}

// end makes sure that the run ends: TERM, a grace, then KILL for all that it started. After a hang-up the harness has a grace before the
// TERM too. The first cause is the one that is recorded.
func (r *runner) end(cause wrapper.Cause, detail string, grace time.Duration) {
	r.mu.Lock()
	first := r.record.Cause == "" && !r.record.Ended()
	if first {
		r.record.Cause, r.record.Detail = cause, detail
	}
	r.mu.Unlock()
	if !first {
		return
	}
	if cause == wrapper.HangUp {
		time.Sleep(grace)
	}
	r.toHarness(syscall.SIGTERM)
	time.Sleep(grace)
	// Whether something remains is for sweep to say: the harness has ended by then.
	_, _ = r.now().KillLeft(killTime)
}

// wait reaps until the harness ends. A harness that stops has no shell to bring it back, so it is continued, with the terminal if it was
// for the terminal that it stopped.
func (r *runner) wait() (syscall.WaitStatus, error) {
	for {
		pid, err := peek()
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil {
			return 0, err
		}
		status, ended, err := r.take(pid)
		if ended || err != nil {
			return status, err
		}
	}
}

// take takes what became of a child. ended is true when it was the harness, and it has ended.
func (r *runner) take(pid int) (status syscall.WaitStatus, ended bool, err error) {
	// Nobody signals the harness between its reaping and our knowing of it.
	r.mu.Lock()
	defer r.mu.Unlock()
	_, err = syscall.Wait4(pid, &status, syscall.WUNTRACED|syscall.WNOHANG, nil)
	if err == nil && pid == r.companion && !status.Stopped() {
		r.companion = 0
		how := status // the result is another one
		go func() { r.end(wrapper.CompanionEnded, "what served it ended: "+r.words.say(how), hangUpGrace) }()
	}
	if err == nil && pid == r.keeper && !status.Stopped() {
		r.keeper = 0 // somebody killed it
	}
	if err != nil || pid != r.child {
		return 0, false, err
	}
	if !status.Stopped() {
		r.child = 0
		return status, true, nil
	}
	if sig := status.StopSignal(); sig == syscall.SIGTTIN || sig == syscall.SIGTTOU {
		giveTerminal(0, pid)
	}
	_ = syscall.Kill(-pid, syscall.SIGCONT)
	return 0, false, nil
}

// sweep ends what the harness left behind, and records it: without the harness nobody drives it, and a second life of the session must not
// meet it. TERM, a grace, then KILL, until nothing is left.
func (r *runner) sweep() {
	rec := r.now()
	left, err := rec.Left()
	count := len(left)
	for _, p := range left {
		_ = p.Signal(syscall.SIGTERM) // what cannot be signalled remains, and is recorded
		_ = p.Signal(syscall.SIGCONT)
	}
	for end := time.Now().Add(sweepGrace); err == nil && len(left) > 0 && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
		reap()
		left, err = rec.Left()
	}
	if err != nil || len(left) > 0 {
		left, err = rec.KillLeft(killTime)
	}
	reap()
	if err != nil {
		complain("cannot tell whether the harness left something behind", err)
	}
	if err == nil && len(left) == 0 {
		err = rec.Group.Remove()
	}
	writeErr := r.update(func(rec *wrapper.Record) {
		rec.LeftBehind, rec.Swept, rec.Remains = count, err == nil && len(left) == 0, nil
		for _, p := range left {
			rec.Remains = append(rec.Remains, p.Pid)
		}
	})
	if writeErr != nil {
		complain("cannot write the record", writeErr)
	}
}

// reap takes the end of what came back to us.
func reap() {
	for {
		if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 || err != nil {
			return
		}
	}
}
