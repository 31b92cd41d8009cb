package tmux

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"muxpost.dev/muxpost/core/prompt"
	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/internal/needs"
	"muxpost.dev/muxpost/services/tmuxd/internal/host"
)

func TestParseRelease_ReadsWhatTmuxSaysOfItself(t *testing.T) {
	for text, want := range map[string]release{
		"tmux 3.3a": {3, 3}, "3.3a": {3, 3}, "tmux 3.4": {3, 4}, "3.7c": {3, 7}, "tmux next-3.8": {3, 8}, "3.6-rc": {3, 6}, "3.6-rc2": {3, 6},
		"tmux 4.10": {4, 10},
	} {
		if got, known := parseRelease(text); !known || got != want {
			t.Errorf("%s: %v %v", text, got, known)
		}
	}
	for _, text := range []string{"", "tmux", "tmux master", "tmux openbsd-7.5", "openbsd-7.5", "3", "3.", "tmux 3.3aa", "tmux 3.4; x",
		"screen 4.0", "3.4\n", "99999.1"} {
		if got, known := parseRelease(text); known {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func TestRelease_Order(t *testing.T) {
	ordered := []release{{2, 9}, {3, 0}, {3, 2}, {3, 3}, {3, 10}, {4, 0}}
	for i, a := range ordered {
		for j, b := range ordered {
			if a.before(b) != (i < j) {
				t.Errorf("%v before %v: %v", a, b, a.before(b))
			}
		}
	}
}

func TestVersion_OneThatIsTooOldIsRefused(t *testing.T) {
	dir, err := os.MkdirTemp("", "mux")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	for text, ok := range map[string]bool{
		"tmux 3.2a": false, "tmux 2.9": false, "tmux 3.3": true, "tmux 3.7c": true, "tmux openbsd-7.5": true, "busybox": false,
	} {
		bin := filepath.Join(dir, "tmux")
		if err := os.WriteFile(bin, []byte("#!/bin/sh\necho '"+text+"'\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		c, err := New(Config{Bin: bin, Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := c.Version(t.Context()); (err == nil) != ok || got != text {
			t.Errorf("%s: %q, %v", text, got, err)
		}
	}
}

// releases are the tmux binaries that the environment lists, as a PATH is written; without that, the installed one.
func releases() []string {
	if list := os.Getenv("MUXPOST_TEST_TMUX"); list != "" {
		return filepath.SplitList(list)
	}
	return []string{"tmux"}
}

// releaseOf is the release of a binary, as it says it.
func releaseOf(t *testing.T, bin string) string {
	t.Helper()
	text, err := new(Client).versionOf(t.Context(), needs.Program(t, bin))
	if err != nil {
		t.Fatalf("%s: %v", bin, err)
	}
	return strings.TrimPrefix(text, "tmux ")
}

// copied puts a copy of a tmux in the place of a path, as an upgrade does.
func copied(t *testing.T, bin, path string) {
	t.Helper()
	// Not written by this process: a child that is just being started would hold it open for a moment, and it could not be run.
	if out, err := exec.Command("cp", needs.Program(t, bin), path+".new").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// releaseReader is the program of a pane that asks for bracketed pastes and writes what it reads into a file.
func releaseReader(file string) string {
	return "stty raw -echo; printf '\\033[?2004hready'; cat > " + file
}

// typedText is text of every kind that may be typed.
func typedText(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for r := rune(1); r <= 0x10FFFF; r++ {
		if r > 0x3000 {
			r += 96
		}
		if r < 0xD800 || r > 0xDFFF {
			b.WriteRune(r)
		}
	}
	clean, _, err := prompt.Clean(b.String() + "\n\tline; #{x} \\n ' \" \U0001F468\u200D\U0001F469\n.")
	if err != nil {
		t.Fatal(err)
	}
	return clean
}

// holds expects a file to have exactly this content, or to get it.
func (r *rig) holds(file, want string) {
	r.t.Helper()
	var got []byte
	r.until("the program has read it", func() bool { got, _ = os.ReadFile(file); return len(got) >= len(want) })
	if string(got) != want {
		r.t.Fatalf("%d bytes were read instead of %d, and they differ", len(got), len(want))
	}
}

// deliver pastes and submits a text.
func (r *rig) deliver(id, text string) {
	r.t.Helper()
	pasted := session.Ring{}.With(id, session.Pasted)
	r.rules(host.Done)(r.Paste(r.ctx(), target, r.guard, host.Text{ID: id, Typed: text, Look: r.seen(), Ring: pasted}))
	r.rules(host.Done)(r.Submit(r.ctx(), target, r.guard, id, session.Pasted, r.seen(), pasted.With(id, session.Submitted)))
	if got := session.ParseRing(r.view().Panes[0].Ring).Phase(id); got != session.Submitted {
		r.t.Fatalf("phase %v", got)
	}
}

// rules expects an act to be answered with this ruling.
func (r *rig) rules(want host.Ruling) func(host.Ruling, error) {
	r.t.Helper()
	return func(got host.Ruling, err error) {
		r.t.Helper()
		if err != nil || got != want {
			r.t.Fatalf("ruling %v instead of %v, %v", got, want, err)
		}
	}
}

func releaseBracketed(text string) string { return "\x1b[200~" + text + "\x1b[201~\r" }

// TestReleases_HoldWhatTheDriverStandsOn goes through the driver's life on each tmux.
func TestReleases_HoldWhatTheDriverStandsOn(t *testing.T) {
	for _, bin := range releases() {
		t.Run(releaseOf(t, bin), func(t *testing.T) { life(t, bin) })
	}
}

func life(t *testing.T, bin string) {
	file, text := filepath.Join(t.TempDir(), "read"), typedText(t)
	r := newRigOf(t, bin, releaseReader(file))
	r.until("the program reads", func() bool { return strings.Contains(r.screen(), "ready") })
	if v := r.view(); v.Server.Pid != r.made.Server.Pid || len(v.Panes) != 1 || v.Panes[0].Stamp != stamp || v.Panes[0].Fence != 5 {
		t.Fatalf("%+v", v)
	}
	r.deliver(del, text)
	r.holds(file, releaseBracketed(text))
	stale := r.guard
	stale.Token = 4
	r.rules(host.OlderToken)(r.Paste(r.ctx(), target, stale, host.Text{ID: "delivery-0002", Typed: "WRONG", Look: r.seen()}))

	r.person("copy-mode", "-t", r.guard.Pane)
	r.deliver("delivery-0003", "short")
	r.holds(file, releaseBracketed(text)+releaseBracketed("short"))

	r.person("rename-session", "-t", "="+target+":", "mine")
	r.lines.closeIdle(-1)
	if v := r.view(); v.Sessions[0] != "mine" || v.Panes[0].Stamp != stamp {
		t.Fatalf("renamed: %+v", v)
	}
	r.person("rename-session", "-t", "=mine:", target)

	if err := syscall.Kill(r.made.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	r.until("the pane is dead, and says how", func() bool {
		v := r.view()
		r.Nudge(v.Server)
		return v.Panes[0].Dead && v.Panes[0].Signal == "9"
	})
	r.rules(host.PaneDead)(r.Paste(r.ctx(), target, r.guard, host.Text{ID: "delivery-0004", Typed: "WRONG", Look: r.seen()}))
	if done, err := r.Remove(r.ctx(), target, r.dead()); err != nil || !done {
		t.Fatalf("%v %v", done, err)
	}
	r.until("nobody listens", func() bool { return r.Dial(target) == session.NoServer })
}

// person runs the server's own tmux, as somebody at a terminal would.
func (r *rig) person(args ...string) {
	r.t.Helper()
	cmd := exec.Command(fmt.Sprintf("/proc/%d/exe", r.made.Server.Pid), append([]string{"-N", "-S", r.Socket(target)}, args...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		r.t.Fatalf("tmux %v: %v: %s", args, err, out)
	}
}

// upgraded is a rig whose server was started from a file that another tmux has replaced since, and whose client is that one.
func upgraded(t *testing.T, from, to, shellLine string) *rig {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "tmux")
	copied(t, from, bin)
	r := newRigOf(t, bin, shellLine)
	r.view()
	copied(t, to, bin)
	r.open(bin, filepath.Dir(r.Socket(target)))
	return r
}

func TestProgram_TheConfiguredOneWhereNothingWasReplaced(t *testing.T) {
	r := newRig(t, "sleep 300")
	if r.view(); r.conn().cmd.Path != r.bin {
		t.Errorf("it was spoken to with %s", r.conn().cmd.Path)
	}
}

func TestProgram_NothingIsRunThatIsNoTmux(t *testing.T) {
	dir, err := os.MkdirTemp("", "mux")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	c := &Client{bin: "/nowhere/tmux", dir: dir}
	if path, err := c.program(t.Context(), target); path != c.bin || err != nil {
		t.Errorf("with nobody there: %s, %v", path, err)
	}
	listener, err := net.Listen("unix", c.Socket(target))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	// The server is this very test.
	if path, err := c.program(t.Context(), target); !errors.Is(err, host.ErrNoAnswer) {
		t.Errorf("%s, %v", path, err)
	}
}

// lame makes the file that the server runs one that cannot be run, or takes that back.
func (r *rig) lame(yes bool) {
	r.t.Helper()
	mode := os.FileMode(0o755)
	if yes {
		mode = 0o600
	}
	if err := os.Chmod(fmt.Sprintf("/proc/%d/exe", r.made.Server.Pid), mode); err != nil {
		r.t.Fatal(err)
	}
}

// unreachable expects that the server is not reached, that a person is told what to do, and that it does not count as absent.
func (r *rig) unreachable() {
	r.t.Helper()
	_, err := r.Observe(r.ctx(), target)
	if !errors.Is(err, host.ErrNoAnswer) || !strings.Contains(err.Error(), "set tmuxd.tmux to the release") {
		r.t.Errorf("observed: %v", err)
	}
	if _, err := r.Create(r.ctx(), r.session("sleep 300")); !errors.Is(err, host.ErrNoAnswer) {
		r.t.Errorf("created: %v", err)
	}
	if got := r.Dial(target); got != session.Answered {
		r.t.Errorf("dialled: %v", got)
	}
}

func TestUpgrade_AnAgentOnAServerWhoseFileWasReplacedIsReached(t *testing.T) {
	for _, from := range releases() {
		for _, to := range releases() {
			t.Run(releaseOf(t, from)+" to "+releaseOf(t, to), func(t *testing.T) { outlive(t, from, to) })
		}
	}
}

func outlive(t *testing.T, from, to string) {
	file := filepath.Join(t.TempDir(), "read")
	r := upgraded(t, from, to, releaseReader(file))
	r.until("the program reads", func() bool { return strings.Contains(r.screen(), "ready") })
	if got, want := r.conn().cmd.Path, fmt.Sprintf("/proc/%d/exe", r.made.Server.Pid); got != want {
		t.Errorf("it was spoken to with %s", got)
	}
	r.deliver(del, "text")
	r.holds(file, releaseBracketed("text"))
	if _, err := r.Create(r.ctx(), r.session("sleep 300")); !errors.Is(err, host.ErrDuplicate) {
		t.Fatalf("a second one of this name: %v", err)
	}

	r.lame(true)
	r.lines.closeIdle(-1)
	if releaseOf(t, from) != releaseOf(t, to) {
		r.unreachable()
	} else if r.view(); r.conn().cmd.Path != r.bin {
		// As where an emulator runs the server, or a script finds its libraries.
		t.Errorf("one of the same release was spoken to with %s", r.conn().cmd.Path)
	}
	r.lame(false)
	if v := r.view(); v.Server.Pid != r.made.Server.Pid {
		t.Fatalf("%+v", v)
	}

	// Somebody else's session keeps the server there: the agent comes back on it, and no second server takes its socket.
	r.person("new-session", "-d", "-s", "guest", "sleep", "300")
	if err := syscall.Kill(r.made.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	r.until("it is cleared", func() bool { done, err := r.Remove(r.ctx(), target, r.dead()); return err == nil && done })
	if made, err := r.Create(r.ctx(), r.session("sleep 300")); err != nil || made.Server.Pid != r.made.Server.Pid {
		t.Fatalf("%+v %v", made, err)
	}
}

// Before 3.7 a server does not survive a control client that is killed while it says who it is. It takes many tries to see that.
func TestReleases_SurviveTmuxdsThatComeAndGo(t *testing.T) {
	for _, bin := range releases() {
		t.Run(releaseOf(t, bin), func(t *testing.T) {
			r := newRigOf(t, bin, "sleep 300")
			for i := range 100 {
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i%40)*250*time.Microsecond)
				_, _ = r.Observe(ctx, target)
				cancel()
				r.open(bin, filepath.Dir(r.Socket(target)))
			}
			if v := r.view(); v.Server.Pid != r.made.Server.Pid {
				t.Fatalf("%+v", v)
			}
		})
	}
}

func TestConn_AClientThatMayNotHaveSaidYetWhoItIsIsAskedToEnd(t *testing.T) {
	dir := t.TempDir()
	script := "trap 'echo >" + dir + "/asked; exit' TERM; echo >" + dir + "/ready; while :; do sleep 0.01; done"
	c, err := dial(&starter{}, "/bin/sh", os.Environ(), []string{"-c", script}, func() {}, func(*conn) {})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t}
	there := func(name string) func() bool {
		return func() bool { _, err := os.Stat(filepath.Join(dir, name)); return err == nil }
	}
	r.until("it runs", there("ready"))
	c.kill()
	<-c.gone
	if !there("asked")() {
		t.Error("it was killed")
	}
}
