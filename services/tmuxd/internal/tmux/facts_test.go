package tmux

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace/noop"

	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/internal/needs"
	"muxpost.dev/muxpost/services/tmuxd/internal/host"
)

// The facts of tmux on which this package stands, in the files facts_*: in each test the plausible shortcut fails on a real server, and
// beside it our way holds. Who would like to make the package simpler finds here what that costs.

// reader is a program that takes everything as it comes, and shows it.
const reader = "stty raw -echo; printf 'ready '; exec cat -v"

// raw is a tmux server that is driven as its manual suggests.
type raw struct {
	t      *testing.T
	socket string
}

// raw is the server of the rig, driven like that.
func (r *rig) raw() raw { return raw{r.t, r.Socket(target)} }

// newRaw starts a server of its own with one session, keeper, which keeps it alive.
func newRaw(t *testing.T, conf string) raw {
	t.Helper()
	needs.Program(t, "tmux")
	dir, err := os.MkdirTemp("", "mux")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	file := filepath.Join(dir, "conf")
	if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	s := raw{t, filepath.Join(dir, "s")}
	s.must("-f", file, "new-session", "-d", "-s", "keeper", "-x", "200", "-y", "50", "sleep", "300")
	s.endLater()
	return s
}

// endLater ends the server with the test, by its own pid.
func (s raw) endLater() {
	pid := s.pid()
	s.t.Cleanup(func() {
		_ = syscall.Kill(pid, syscall.SIGCONT)
		_ = syscall.Kill(pid, syscall.SIGTERM)
	})
}

func (s raw) command(ctx context.Context, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "tmux", append([]string{"-S", s.socket}, args...)...)
}

// run runs one tmux command, and returns what it printed and its exit status.
func (s raw) run(args ...string) (out string, status int) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	cmd := s.command(ctx, args...)
	text, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) || ctx.Err() != nil {
		s.t.Fatalf("tmux %q: %v", args, err)
	}
	return strings.TrimSuffix(string(text), "\n"), cmd.ProcessState.ExitCode()
}

// must runs one that has to succeed.
func (s raw) must(args ...string) string {
	s.t.Helper()
	out, status := s.run(args...)
	if status != 0 {
		s.t.Fatalf("tmux %q: exit status %d: %s", args, status, out)
	}
	return out
}

func (s raw) pid() int {
	s.t.Helper()
	pid, err := strconv.Atoi(s.must("display-message", "-p", "#{pid}"))
	if err != nil {
		s.t.Fatal(err)
	}
	return pid
}

// paste puts text into a pane as the manual suggests.
func (s raw) paste(pane, text string, flags ...string) (status int) {
	s.t.Helper()
	s.must("set-buffer", "-b", "shortcut", "--", text)
	_, status = s.run(append(append([]string{"paste-buffer", "-b", "shortcut"}, flags...), "-t", pane)...)
	return status
}

func (s raw) shows(pane, text string) bool {
	s.t.Helper()
	out, _ := s.run("capture-pane", "-p", "-t", pane)
	return strings.Contains(out, text)
}

// waitFor waits until a pane shows a text.
func (s raw) waitFor(pane, text string) {
	s.t.Helper()
	s.until(fmt.Sprintf("%s shows %q", pane, text), func() bool { return s.shows(pane, text) })
}

func (s raw) until(what string, ok func() bool) {
	s.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			screen, _ := s.run("capture-pane", "-p", "-t", "%0")
			s.t.Fatalf("waited in vain until %s; %%0 shows:\n%s", what, screen)
		}
	}
}

// since says whether the tmux under test is of this version or newer. One that names no number is taken for the newest.
func since(t *testing.T, major, minor int) bool {
	t.Helper()
	out, err := exec.Command("tmux", "-V").Output()
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(\d+)\.(\d+)`).FindStringSubmatch(string(out))
	if m == nil {
		return true
	}
	has, _ := strconv.Atoi(m[1])
	part, _ := strconv.Atoi(m[2])
	return has > major || has == major && part >= minor
}

// reading is a rig whose agent reads.
func reading(t *testing.T) *rig {
	t.Helper()
	r := newRig(t, reader)
	r.until("it reads", func() bool { return strings.Contains(r.screen(), "ready") })
	return r
}

// ours pastes in our way, at the screen as it is now.
func (r *rig) ours(text string) host.Ruling {
	r.t.Helper()
	return r.oursAt(r.guard, r.seen(), text)
}

func (r *rig) oursAt(g host.Guard, look host.Look, text string) host.Ruling {
	r.t.Helper()
	ruling, err := r.Paste(r.ctx(), target, g, host.Text{ID: del, Typed: text, Look: look, Ring: session.Ring{}.With(del, session.Pasted)})
	if err != nil {
		r.t.Fatal(err)
	}
	return ruling
}

// Fact 3, L2, L3, L23: status 0 was given for what was not done, and for what is not there.
func TestFact_AnExitStatusProvesNothing(t *testing.T) {
	r := reading(t)
	s := r.raw()
	if out, status := s.run("display-message", "-p", "-t", "=nosuch:", "#{session_name}"); status != 0 || out != "" {
		t.Errorf("asked about a session that is not there: %d %q", status, out)
	}
	if v := r.view(); slices.Contains(v.Sessions, "nosuch") || !slices.Contains(v.Sessions, target) {
		t.Errorf("ours: %+v", v)
	}

	s.must("select-pane", "-d", "-t", "%0")
	if status := s.paste("%0", "LOST"); status != 0 {
		t.Errorf("a paste where input is off: %d", status)
	}
	if ruling := r.ours("KEPT"); ruling != host.InputOff {
		t.Errorf("ours: %v", ruling)
	}
	s.must("select-pane", "-e", "-t", "%0")
	if ruling := r.ours("LAST"); ruling != host.Done {
		t.Errorf("ours, with input on again: %v", ruling)
	}
	s.waitFor("%0", "ready LAST")

	missing := filepath.Join(filepath.Dir(s.socket), "gone")
	if out, status := (raw{t, missing + "/s"}).run("-f", "/dev/null", "new-session", "-d", "-s", "x", "sleep", "300"); status != 0 {
		t.Errorf("a start that made nothing: %d %s", status, out)
	}
	if err := os.Mkdir(missing, 0o700); err != nil {
		t.Fatal(err)
	}
	c, err := New(Config{Bin: "tmux", Dir: missing, Tracer: noop.NewTracerProvider().Tracer("")})
	if err != nil {
		t.Fatal(err)
	}
	os.RemoveAll(missing)
	if made, err := c.Create(r.ctx(), r.session("sleep 300")); err == nil {
		t.Errorf("ours: %+v", made)
	}
}

// Fact 3, L27: a client that is told to end while a stopped server keeps it waiting says 0.
func TestFact_AClientThatGotNoAnswerSaysSuccess(t *testing.T) {
	r := newRig(t, "sleep 300")
	r.view()
	s := r.raw()
	if err := syscall.Kill(r.made.Server.Pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	cmd := s.command(context.Background(), "has-session", "-t", "=nosuch:")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s.until("the client handles the signal", func() bool {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
		m := regexp.MustCompile(`SigCgt:\s+([0-9a-f]+)`).FindSubmatch(data)
		if err != nil || m == nil {
			return false
		}
		caught, _ := strconv.ParseUint(string(m[1]), 16, 64)
		return caught>>(uint(syscall.SIGTERM)-1)&1 == 1
	})
	_ = cmd.Process.Signal(syscall.SIGTERM)
	if err := cmd.Wait(); err != nil {
		t.Errorf("the client that was ended: %v", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	if v, err := r.Observe(ctx, target); !errors.Is(err, host.ErrNoAnswer) {
		t.Errorf("ours: %+v %v", v, err)
	}
}

// Fact 4, R27: what a client asked for is done after its end, unless it was fenced.
func TestFact_TheEndOfAClientCancelsNothing(t *testing.T) {
	r := reading(t)
	s := r.raw()
	s.must("set-buffer", "-b", "shortcut", "LATE")
	look := r.seen()
	if err := syscall.Kill(r.made.Server.Pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second) // long enough to have asked
	defer cancel()
	if err := s.command(ctx, "paste-buffer", "-b", "shortcut", "-t", "%0").Run(); err == nil || ctx.Err() == nil {
		t.Fatalf("a stopped server answered: %v", err)
	}
	ours, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	text := host.Text{ID: del, Typed: "OURS", Look: look, Ring: session.Ring{}.With(del, session.Pasted)}
	if ruling, err := r.Paste(ours, target, r.guard, text); !errors.Is(err, host.ErrNoAnswer) {
		t.Fatalf("a stopped server answered: %v %v", ruling, err)
	}
	r.conn().end(errLost) // what it was sent lies in the server's pipe
	if err := syscall.Kill(r.made.Server.Pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	s.waitFor("%0", "LATE")

	if err := r.Advance(r.ctx(), target, "g2"); err != nil {
		t.Fatal(err)
	}
	ran := session.ParseRing(r.view().Panes[0].Ring).Phase(del) == session.Pasted
	if ran {
		s.waitFor("%0", "OURS")
	}
	stale := host.Text{ID: "delivery-0002", Typed: "STALE", Look: r.seen()}
	if ruling, err := r.Paste(r.ctx(), target, r.guard, stale); err != nil || ruling != host.NotGeneration {
		t.Errorf("ours, of the old generation: %v %v", ruling, err)
	}
	if s.shows("%0", "STALE") || s.shows("%0", "OURS") != ran {
		t.Errorf("ours: it ran is %v", ran)
	}
}

// L25, R36: the address is gone and the server lives; a new one beside it hides every agent of the old.
func TestFact_ADeletedSocketAndAStartMakeTwoServers(t *testing.T) {
	s := newRaw(t, "")
	first := s.pid()
	if err := os.Remove(s.socket); err != nil {
		t.Fatal(err)
	}
	if _, status := s.run("has-session", "-t", "=keeper:"); status != 1 {
		t.Errorf("the session that lives: %d", status)
	}
	s.must("-f", "/dev/null", "new-session", "-d", "-s", "keeper", "sleep", "300")
	s.endLater()
	if second := s.pid(); second == first || syscall.Kill(first, 0) != nil {
		t.Errorf("the servers are %d and %d", first, second)
	}

	r := newRig(t, "sleep 300")
	r.view()
	r.lines.closeIdle(-1)
	if err := os.Remove(r.Socket(target)); err != nil {
		t.Fatal(err)
	}
	if got := r.Dial(target); got != session.NoServer {
		t.Errorf("ours: %v", got)
	}
	r.Reopen(r.made.Server)
	r.until("ours: it listens again", func() bool { return r.Dial(target) == session.Answered })
	if v := r.view(); v.Server.Pid != r.made.Server.Pid {
		t.Errorf("ours: the server is %d, and was %d", v.Server.Pid, r.made.Server.Pid)
	}
}
