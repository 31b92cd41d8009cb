package tmux

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"muxpost.dev/muxpost/core/workitem"
	"muxpost.dev/muxpost/services/tmuxd/internal/host"
)

// Fact 1, L1, R45: until 3.4 a paste into a pane that was retained after its program's end ends the server, with every session on it.
func TestFact_APasteIntoADeadPaneEndsTheServer(t *testing.T) {
	r := newRig(t, "exit 0")
	s := r.raw()
	s.must("new-session", "-d", "-s", "bystander", "sleep", "300")
	r.until("the pane is dead", func() bool { return s.must("display-message", "-p", "-t", "%0", "#{pane_dead}") == "1" })
	if _, status := s.run("send-keys", "-t", "%0", "Enter"); status != 0 {
		t.Errorf("a key into the dead pane: %d", status)
	}
	if ruling := r.ours("x"); ruling != host.PaneDead {
		t.Errorf("ours: %v", ruling)
	}
	if len(r.view().Sessions) != 2 {
		t.Fatal("ours: a session is gone")
	}
	s.paste("%0", "x")
	if since(t, 3, 4) {
		s.must("has-session", "-t", "=bystander:")
		return
	}
	s.until("the server is gone", func() bool { _, status := s.run("has-session", "-t", "=bystander:"); return status != 0 })
}

// L32, R29, R38: with a shell behind the agent, what somebody wrote is run once the agent has ended.
func TestFact_AShellBehindTheAgentRunsTheText(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pwned")
	s := newRaw(t, "")
	s.must("new-window", "-t", "=keeper:", "true; printf 'ready '; exec sh")
	s.waitFor("%1", "ready")
	s.paste("%1", "touch "+file+"\n")
	s.until("the text was run", func() bool { _, err := os.Stat(file); return err == nil })
	r := newRig(t, "true")
	r.until("the pane is dead", func() bool { return r.view().Panes[0].Dead })
	if ruling := r.ours("touch " + file); ruling != host.PaneDead {
		t.Errorf("ours: %v", ruling)
	}
}

// Section 3, R52: an end that is quicker than the second command leaves nothing. Which is quicker differs from time to time.
func TestFact_RetentionThatIsSetAfterwardsComesTooLate(t *testing.T) {
	const tries = 20
	s, lost := newRaw(t, ""), 0
	for i := range tries {
		name := fmt.Sprintf("s%d", i)
		s.must("new-session", "-d", "-s", name, "exit 3")
		if _, status := s.run("set-option", "-w", "-t", "="+name+":", "remain-on-exit", "on"); status != 0 {
			lost++
		}
	}
	r := newRig(t, "sleep 300")
	for i := range tries {
		one := r.session("exit 3")
		one.Target = target + strconv.Itoa(i)
		made, err := r.Create(r.ctx(), one)
		if err != nil {
			t.Fatalf("ours, after %d: %v", i, err)
		}
		t.Cleanup(func() { _ = syscall.Kill(made.Server.Pid, syscall.SIGTERM) })
		if v, err := r.Observe(r.ctx(), one.Target); err != nil || len(v.Panes) != 1 || v.Panes[0].Stamp != stamp {
			t.Errorf("ours: %+v %v", v, err)
		}
	}
	if lost == 0 {
		t.Skipf("none of %d sessions was lost: this machine starts commands quicker than programs end", tries)
	}
}

// Fact 7: one bad line discards the whole configuration, and until 3.4 puts the first pane into a mode that swallows what is typed.
func TestFact_ABadLineInTheConfigurationSwallowsInput(t *testing.T) {
	mode := []string{"display-message", "-p", "-t", "%0", "#{pane_in_mode} #{remain-on-exit}"}
	want := "1 off"
	if since(t, 3, 4) {
		want = "0 off"
	}
	if out := newRaw(t, "set -g remain-on-exit on\nno-such-command\n").must(mode...); out != want {
		t.Errorf("after a bad line: %s", out)
	}
	if out := reading(t).raw().must(mode...); out != "0 on" {
		t.Errorf("ours: %s", out)
	}
}

// Fact 8: names and directories are formats, in which #() is a command.
func TestFact_ANameIsACommand(t *testing.T) {
	dir := t.TempDir()
	// started starts a session, and waits with it: the server ends such a command when its client leaves.
	started := func(s raw, file string, args ...string) {
		wait := "until test -e " + filepath.Join(dir, file) + "; do sleep 0.01; done"
		s.must(append(append([]string{"new-session", "-d"}, args...), "sleep", "300", ";", "run-shell", wait)...)
	}
	s := newRaw(t, "")
	started(s, "name", "-s", "x#(touch "+dir+"/name)")
	started(s, "directory", "-s", "y", "-c", "/tmp/#(touch "+dir+"/directory)")

	if workitem.ValidTarget("x#(id)") {
		t.Error("ours: a command may be a target")
	}
	r := newRig(t, "sleep 300")
	one := r.session("sleep 300")
	one.Target, one.Dir = target+"1", "/tmp/#(touch "+dir+"/ours)"
	made, err := r.Create(r.ctx(), one)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(made.Server.Pid, syscall.SIGTERM) })
	started(raw{t, r.Socket(one.Target)}, "later", "-s", "x#(touch "+dir+"/later)")
	if _, err := os.Stat(filepath.Join(dir, "ours")); err == nil {
		t.Error("ours: the directory was run")
	}
}

// L34: a person's own configuration ends what nobody is attached to, at once.
func TestFact_ASessionThatNobodyIsAttachedToIsDestroyed(t *testing.T) {
	r := newRig(t, "sleep 300")
	s := r.raw()
	s.must("set-option", "-g", "destroy-unattached", "on")
	s.must("new-session", "-d", "-s", "another", "sleep", "300")
	s.until("it is gone", func() bool { _, status := s.run("has-session", "-t", "=another:"); return status != 0 })
	r.view()
	r.lines.closeIdle(-1)
	s.until("our client has left", func() bool { return s.must("list-clients") == "" })
	if v := r.view(); len(v.Sessions) != 1 {
		t.Errorf("ours: %+v", v)
	}
}

// L35, L36: panes inherit from whoever started the server, and what is given with -e is read by everybody.
func TestFact_TheServersEnvironmentLeaks(t *testing.T) {
	t.Setenv("MUX_LEAK", "a-secret")
	s := newRaw(t, "")
	t.Setenv("MUX_LEAK", "")
	s.must("new-window", "-t", "=keeper:", "sleep", "300")
	later := s.must("display-message", "-p", "-t", "%1", "#{pane_pid}")
	s.until("a later pane has it", func() bool { return holds(t, later, "environ", "a-secret") })
	other := raw{t, filepath.Join(filepath.Dir(s.socket), "other")}
	other.must("-f", "/dev/null", "new-session", "-d", "-e", "TOKEN=b-secret", "sleep", "300")
	other.endLater()
	if !holds(t, strconv.Itoa(other.pid()), "cmdline", "b-secret") {
		t.Error("the server does not show it")
	}

	t.Setenv("MUX_LEAK", "c-secret")
	r := reading(t)
	for _, pid := range []int{r.made.Pid, r.made.Server.Pid} {
		if holds(t, strconv.Itoa(pid), "environ", "c-secret") {
			t.Errorf("ours: %d has it", pid)
		}
	}
}

// holds says whether a file of a process holds a text.
func holds(t *testing.T, pid, file, text string) bool {
	t.Helper()
	data, err := os.ReadFile("/proc/" + pid + "/" + file)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(string(data), text)
}

// Fact 6, L28, R50: before 3.6 the server misses the end of some killed programs, where it was built with utempter as Debian does.
func TestFact_ADeathCanLoseItsStatus(t *testing.T) {
	tries, mended := 200, since(t, 3, 6)
	if mended {
		tries = 40
	}
	s := newRaw(t, "set -g remain-on-exit on")
	status := func(pane string) string {
		return s.must("display-message", "-p", "-t", pane, "#{pane_dead}|#{pane_dead_status}#{pane_dead_signal}")
	}
	for range tries {
		made := strings.Fields(s.must("new-session", "-d", "-P", "-F", "#{pane_id} #{pane_pid} #{session_id}", "sleep", "300"))
		pid, err := strconv.Atoi(made[1])
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		s.until("the pane is dead", func() bool { return strings.HasPrefix(status(made[0]), "1") })
		missed := true
		for range 20 { // each asks the server to look around once more
			missed = missed && status(made[0]) == "1|"
		}
		switch {
		case missed && mended:
			t.Fatal("a status is missing")
		case missed:
			(&Client{}).Nudge(host.Server{Pid: s.pid()})
			s.until("ours: the status shows", func() bool { return status(made[0]) == "1|9" })
			return
		}
		s.must("kill-session", "-t", made[2])
	}
	if !mended {
		t.Skipf("none of %d ends was missed: this tmux seems to be built without utempter", tries)
	}
}
