package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/services/tmuxd/internal/host"
)

// Facts of tmux whose answer lies outside of its commands: the shortcut fails, and beside it our way holds. The others are in
// internal/tmux/facts_*.

// Fact 10, L37, R53: a session that was killed is absent at once, and what it started in another process group lives on.
func TestFact_AKilledSessionLeavesProcesses(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	// agent starts a process that leaves its group and says which one it is.
	agent := func(name string) string {
		return fmt.Sprintf(`setsid sh -c 'echo $$ > %s; exec sleep 300' & wait`, filepath.Join(r.dir, name))
	}
	pid := func(name string) int {
		var pid int
		r.until(name+" has started", func() bool {
			data, err := os.ReadFile(filepath.Join(r.dir, name))
			if err == nil && strings.HasSuffix(string(data), "\n") {
				pid, err = strconv.Atoi(strings.TrimSpace(string(data)))
			}
			return err == nil && pid > 0
		})
		t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
		return pid
	}
	r.entry.Binary, r.entry.Fresh = "/bin/sh", []string{"-c", agent("ours"), "{conversation_id}"}
	r.restart()
	r.started("", "")
	ours := pid("ours")

	r.person("new-session", "-d", "-s", "shortcut", agent("theirs"))
	theirs := pid("theirs")
	r.person("kill-session", "-t", "=shortcut:")
	if _, err := r.cmd("has-session", "-t", "=shortcut:"); err == nil {
		t.Error("the session is there")
	}
	r.person("kill-session", "-t", "="+r.item.Target()+":")
	r.until("ours has ended", func() bool { return syscall.Kill(ours, 0) != nil })
	if err := syscall.Kill(theirs, 0); err != nil {
		t.Errorf("what the shortcut left: %v", err)
	}
	r.becomes(session.Absent)
}

// Fact 8: a directory that is not there is replaced by another one, without a word.
func TestFact_AMissingDirectoryIsReplaced(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.started("", "")
	missing := filepath.Join(r.dir, "work", "missing")
	r.person("new-session", "-d", "-s", "shortcut", "-c", missing, "sleep", "300")
	out, err := r.cmd("display-message", "-p", "-t", "=shortcut:", "#{pane_current_path}")
	if err != nil || strings.TrimSpace(out) == missing {
		t.Errorf("it works in %s: %v", out, err)
	}
	_, err = r.Spawn(r.ctx(), host.SpawnRequest{Item: r.item, Harness: "fakeagent", Directory: missing, Token: r.token()})
	if !errors.Is(err, fault.Invalid) || fault.ReasonOf(err) != fault.ReasonDirectoryMissing {
		t.Errorf("ours: %v", err)
	}
}
