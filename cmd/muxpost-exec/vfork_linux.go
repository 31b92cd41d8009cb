package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"muxpost.dev/muxpost/internal/wrapper"
)

// lookTime is how often a harness is looked at for a child that it cannot start. It is twice that until the child goes on.
const lookTime = 2 * time.Second

// goOn continues the harness where it waits for a child that was stopped before it became another program: seen is that child, if this look
// finds the one of the last. A harness in vfork(2) does not stop by the key that stops its child, so nobody is told of it, and both would
// wait for ever. A child that somebody stopped later is no affair of ours: nobody waits uninterruptibly for that.
func (r *runner) goOn(last int) (seen int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.child <= 1 {
		return 0
	}
	seen = stoppedInVfork(r.child)
	if seen != 0 && seen == last {
		_ = syscall.Kill(-r.child, syscall.SIGCONT)
	}
	return seen
}

// stoppedInVfork returns the stopped child, of the process's own group, of a thread that waits uninterruptibly; 0 when there is none.
func stoppedInVfork(pid int) int {
	threads, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*")
	for _, thread := range threads {
		tid, _ := strconv.Atoi(filepath.Base(thread))
		if s, err := wrapper.StatFields(tid); err != nil || s[0] != "D" {
			continue
		}
		children, _ := os.ReadFile(filepath.Join(thread, "children"))
		for _, c := range strings.Fields(string(children)) {
			child, _ := strconv.Atoi(c)
			if s, err := wrapper.StatFields(child); err == nil && s[0] == "T" && s[2] == strconv.Itoa(pid) {
				return child
			}
		}
	}
	return 0
}
