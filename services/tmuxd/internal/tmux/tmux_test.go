package tmux

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
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

const (
	target = "loop-octo-widget-7"
	stamp  = "stamp0001"
	del    = "delivery-0001"
)

// rig is one real tmux server with one session, whose pane runs a shell line.
type rig struct {
	*Client
	t     *testing.T
	guard host.Guard
	made  host.Created
}

func newRig(t *testing.T, shellLine string) *rig {
	t.Helper()
	return newRigOf(t, "tmux", shellLine)
}

// newRigOf is newRig with a tmux of one's own choice.
func newRigOf(t *testing.T, bin, shellLine string) *rig {
	t.Helper()
	bin = needs.Program(t, bin)
	dir, err := os.MkdirTemp("", "mux") // t.TempDir is too long for a socket's address
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t}
	t.Cleanup(func() {
		if r.Client != nil {
			r.Close()
		}
		if r.made.Server.Pid > 0 {
			_ = syscall.Kill(r.made.Server.Pid, syscall.SIGCONT)
			_ = syscall.Kill(r.made.Server.Pid, syscall.SIGTERM)
		}
		os.RemoveAll(dir)
	})
	r.open(bin, dir)
	r.made, err = r.Create(r.ctx(), r.session(shellLine))
	if err != nil {
		t.Fatal(err)
	}
	r.guard = host.Guard{Stamp: stamp, Pane: r.made.Pane, Pid: r.made.Pid, Session: r.made.SessionID, Generation: "g1", Token: 5, NotAfter: time.Now().Add(time.Minute)}
	return r
}

// open makes the client, as a start of tmuxd does.
func (r *rig) open(bin, dir string) {
	r.t.Helper()
	if r.Client != nil {
		r.Close()
	}
	var err error
	r.Client, err = New(Config{Bin: bin, Dir: dir, Env: []string{"PATH=" + os.Getenv("PATH"), "TERM=xterm-256color"},
		Tracer: noop.NewTracerProvider().Tracer("")})
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) session(shellLine string) host.NewSession {
	return host.NewSession{Target: target, Argv: []string{"/bin/sh", "-c", shellLine}, Dir: "/tmp", Width: 200, Height: 50,
		Stamp: stamp, Item: "github:octo/widget#7", Harness: "h", Conversation: "c", Generation: "g1", Token: 5}
}

func (r *rig) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	r.t.Cleanup(cancel)
	return ctx
}

func (r *rig) view() host.View {
	r.t.Helper()
	v, err := r.Observe(r.ctx(), target)
	if err != nil {
		r.t.Fatal(err)
	}
	return v
}

// until asks again until ok, or fails: the other side is a real process.
func (r *rig) until(what string, ok func() bool) {
	r.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			r.t.Fatalf("waited in vain until %s; view: %+v", what, r.view())
		}
	}
}

func (r *rig) screen() string {
	r.t.Helper()
	s, ok, err := r.Capture(r.ctx(), target, r.guard)
	if err != nil || !ok {
		r.t.Fatalf("capture: %v %v", ok, err)
	}
	return strings.Join(s.Rows, "\n")
}

// seen is the screen as it is now, with these dialog patterns.
func (r *rig) seen(dialogs ...string) host.Look {
	r.t.Helper()
	s, ok, err := r.Capture(r.ctx(), target, r.guard)
	if err != nil || !ok {
		r.t.Fatalf("capture: %v %v", ok, err)
	}
	return host.Look{Cursor: host.Cursor{X: s.CursorX, Y: s.CursorY}, Dialogs: dialogs}
}

func TestCreate_SaysEverythingOfItself(t *testing.T) {
	r := newRig(t, "sleep 300")
	v := r.view()
	if len(v.Panes) != 1 || len(v.Sessions) != 1 || !v.PanesRead || v.Generation != "g1" || v.Server.Pid != r.made.Server.Pid {
		t.Fatalf("%+v", v)
	}
	p := v.Panes[0]
	if p.Session != target || p.Stamp != stamp || p.Item != "github:octo/widget#7" || p.AgentPane != p.ID || p.Pid != r.made.Pid ||
		p.Harness != "h" || p.Conversation != "c" || p.Fence != 5 || p.Dead || v.Server.Started.IsZero() {
		t.Fatalf("%+v", p)
	}
}

func TestCreate_AProgramThatEndsAtOnceLeavesItsStatus(t *testing.T) {
	r := newRig(t, "exit 7")
	// Its end can be missed until the server is told to look: that is what Nudge is for.
	r.until("the status shows", func() bool {
		v := r.view()
		r.Nudge(v.Server)
		return len(v.Panes) == 1 && v.Panes[0].Dead && v.Panes[0].Status == "7" && v.Panes[0].Stamp == stamp
	})
}

func TestCreate_ASecondOneOfThisNameIsADuplicate(t *testing.T) {
	r := newRig(t, "sleep 300")
	if _, err := r.Create(r.ctx(), r.session("sleep 300")); err != host.ErrDuplicate {
		t.Fatalf("got %v", err)
	}
}

func TestCreate_NamesAndDirectoriesAreNotFormats(t *testing.T) {
	dir := t.TempDir()
	r := newRig(t, "sleep 300")
	s := r.session("sleep 300")
	s.Target, s.Dir = "loop-other-1", "/tmp/#(touch "+dir+"/pwned)"
	made, err := r.Create(r.ctx(), s)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Kill(made.Server.Pid, syscall.SIGTERM) }()
	if v, err := r.Observe(r.ctx(), "loop-other-1"); err != nil || len(v.Panes) != 1 {
		t.Fatalf("%+v, %v", v, err)
	}
	if _, err := os.Stat(dir + "/pwned"); err == nil {
		t.Fatal("the directory was run as a command")
	}
}

func TestObserve_ANameMayHoldTheSeparator(t *testing.T) {
	r := newRig(t, "sleep 300")
	// A session's own ring, as it stands after two deliveries.
	ring := session.Ring{}.With("delivery-1", session.Pasted).With("delivery-2", session.Taken)
	r.raw().must("set-option", "-p", "-t", r.made.Pane, optRing, ring.String())
	for _, name := range []string{"a|b", "|", "ü|" + target, "1|$0|%0"} {
		r.raw().must("rename-session", "-t", "=$0:", name)
		if v := r.view(); !slices.Equal(v.Sessions, []string{name}) || len(v.Panes) != 1 || v.Panes[0].Stamp != stamp ||
			v.Panes[0].Ring != ring.String() {
			t.Errorf("%q: %+v", name, v)
		}
	}
}

func TestObserve_ALongerNameIsAnotherSession(t *testing.T) {
	r := newRig(t, "sleep 300")
	const longer = target + "7"
	r.raw().must("rename-session", "-t", "="+target+":", longer)
	if v := r.view(); !slices.Equal(v.Sessions, []string{longer}) || len(v.Panes) != 1 || v.Panes[0].Session != longer {
		t.Errorf("%+v", v)
	}
	if names, err := r.Names(r.ctx(), target); err != nil || !slices.Equal(names, []string{longer}) {
		t.Errorf("%q, %v", names, err)
	}
	of := r.removal()
	if removed, err := r.Remove(r.ctx(), target, of); err != nil || removed {
		t.Errorf("removed: %v, %v", removed, err)
	}
}

func TestPaste_IsExactAndRecordsItsPhase(t *testing.T) {
	r := newRig(t, "stty raw -echo; cat -v")
	r.until("cat runs", func() bool { return r.pasteProbe() })
	ring := session.Ring{}.With(del, session.Pasted)
	done, err := r.Paste(r.ctx(), target, r.guard, host.Text{ID: del, Typed: "a;b #{x} $(id) \\ ' \" é;", Look: r.seen(), Ring: ring})
	if err != nil || done != host.Done {
		t.Fatalf("%v %v", done, err)
	}
	r.until("the text shows", func() bool { return strings.Contains(r.screen(), "a;b #{x} $(id) \\ ' \" M-CM-);") })
	if got := session.ParseRing(r.view().Panes[0].Ring).Phase(del); got != session.Pasted {
		t.Fatalf("phase %v", got)
	}
	// The same delivery is not pasted a second time.
	if done, err := r.Paste(r.ctx(), target, r.guard, host.Text{ID: del, Typed: "again", Look: r.seen(), Ring: ring}); err != nil || done == host.Done {
		t.Fatalf("second paste: %v %v", done, err)
	}
	if strings.Contains(r.screen(), "again") {
		t.Fatal("typed twice")
	}
}

// pasteProbe waits until the program of the pane reads: the terminal's settings are its own.
func (r *rig) pasteProbe() bool {
	out, err := exec.Command("ps", "-o", "args=", "--ppid", strconv.Itoa(r.made.Pid)).Output()
	return err == nil && strings.Contains(string(out), "cat -v")
}

func TestPaste_EveryPartOfTheGuardRefuses(t *testing.T) {
	r := newRig(t, "stty raw -echo; cat -v")
	r.until("cat runs", func() bool { return r.pasteProbe() })
	ring := session.Ring{}.With(del, session.Pasted)
	for name, change := range map[string]func(*host.Guard){
		"another stamp":      func(g *host.Guard) { g.Stamp = "stamp0002" },
		"no stamp":           func(g *host.Guard) { g.Stamp = "" },
		"another pane":       func(g *host.Guard) { g.Pane = "%9" },
		"another pid":        func(g *host.Guard) { g.Pid++ },
		"another generation": func(g *host.Guard) { g.Generation = "g0" },
		"an older token":     func(g *host.Guard) { g.Token = 4 },
		"too late":           func(g *host.Guard) { g.NotAfter = time.Now().Add(-3 * time.Second) },
	} {
		g := r.guard
		change(&g)
		if done, err := r.Paste(r.ctx(), target, g, host.Text{ID: del, Typed: "WRONG", Look: r.seen(), Ring: ring}); err != nil || done == host.Done {
			t.Errorf("%s: done %v, %v", name, done, err)
		}
	}
	if out, err := exec.Command("tmux", "-S", r.Socket(target), "select-pane", "-d", "-t", r.guard.Pane).CombinedOutput(); err != nil {
		t.Fatalf("%s", out)
	}
	if done, err := r.Paste(r.ctx(), target, r.guard, host.Text{ID: del, Typed: "WRONG", Look: r.seen(), Ring: ring}); err != nil || done == host.Done {
		t.Errorf("input off: done %v, %v", done, err)
	}
	if strings.Contains(r.screen(), "WRONG") || r.view().Panes[0].Ring != "" {
		t.Error("something was typed or recorded")
	}
	if out, _ := exec.Command("tmux", "-S", r.Socket(target), "list-buffers").Output(); len(out) > 0 {
		t.Errorf("buffers are left: %s", out)
	}
}

// On tmux 3.3a an unguarded paste into a dead pane ends the server and every session on it.
func TestPaste_IntoADeadPaneHarmsNobody(t *testing.T) {
	r := newRig(t, "exit 0")
	if out, err := exec.Command("tmux", "-S", r.Socket(target), "new-session", "-d", "-s", "loop-other-1", "sleep", "300").CombinedOutput(); err != nil {
		t.Fatalf("%s", out)
	}
	r.until("the pane is dead", func() bool {
		for _, p := range r.view().Panes {
			if p.Session == target {
				return p.Dead
			}
		}
		return false
	})
	if done, err := r.Paste(r.ctx(), target, r.guard, host.Text{ID: del, Typed: "x", Look: r.seen(), Ring: session.Ring{}.With(del, session.Pasted)}); err != nil || done == host.Done {
		t.Fatalf("%v %v", done, err)
	}
	if len(r.view().Sessions) != 2 {
		t.Fatal("a session is gone")
	}
}

func TestSubmit_SendsOneCRAndLooksForDialogsInTheServer(t *testing.T) {
	r := newRig(t, "stty raw -echo; printf 'Do you want, really }?'; cat -v")
	r.until("cat runs", func() bool { return r.pasteProbe() })
	r.until("the question shows", func() bool { return strings.Contains(r.screen(), "really }?") })
	pasted := session.Ring{}.With(del, session.Pasted)
	if done, err := r.Paste(r.ctx(), target, r.guard, host.Text{ID: del, Typed: "text", Look: r.seen(), Ring: pasted}); err != nil || done != host.Done {
		t.Fatalf("%v %v", done, err)
	}
	r.until("the text shows", func() bool { return strings.Contains(r.screen(), "text") })
	submitted := pasted.With(del, session.Submitted)
	dialog := r.seen(`want, really }\?`)
	if done, err := r.Submit(r.ctx(), target, r.guard, del, session.Pasted, dialog, submitted); err != nil || done == host.Done {
		t.Fatalf("over a dialog: %v %v", done, err)
	}
	if done, err := r.Submit(r.ctx(), target, r.guard, del, session.Pasted, r.seen("^no such row"), submitted); err != nil || done != host.Done {
		t.Fatalf("%v %v", done, err)
	}
	r.until("the CR shows", func() bool { return strings.Contains(r.screen(), "text^M") })
	if done, err := r.Submit(r.ctx(), target, r.guard, del, session.Pasted, r.seen(), submitted); err != nil || done == host.Done {
		t.Fatalf("a second time from the same phase: %v %v", done, err)
	}
	if strings.Contains(r.screen(), "^M^M") {
		t.Fatal("submitted twice")
	}
}

func TestPasteAndSubmit_AreRefusedWhenSomebodyTypedMeanwhile(t *testing.T) {
	r := newRig(t, "stty raw -echo; cat -v")
	r.until("cat runs", func() bool { return r.pasteProbe() })
	look := r.seen()
	if out, err := exec.Command("tmux", "-S", r.Socket(target), "send-keys", "-t", r.guard.Pane, "-l", "draft").CombinedOutput(); err != nil {
		t.Fatalf("%s", out)
	}
	r.until("the draft shows", func() bool { return strings.Contains(r.screen(), "draft") })
	ring := session.Ring{}.With(del, session.Pasted)
	if done, err := r.Paste(r.ctx(), target, r.guard, host.Text{ID: del, Typed: "WRONG", Look: look, Ring: ring}); err != nil || done == host.Done {
		t.Fatalf("%v %v", done, err)
	}
	if done, err := r.Paste(r.ctx(), target, r.guard, host.Text{ID: del, Typed: "text", Look: r.seen(), Ring: ring}); err != nil || done != host.Done {
		t.Fatalf("%v %v", done, err)
	}
	if done, err := r.Submit(r.ctx(), target, r.guard, del, session.Pasted, look, ring.With(del, session.Submitted)); err != nil || done == host.Done {
		t.Fatalf("%v %v", done, err)
	}
	if strings.Contains(r.screen(), "WRONG") || strings.Contains(r.screen(), "^M") {
		t.Fatalf("typed over a draft:\n%s", r.screen())
	}
}

// A window that is linked into another session as well is the agent's all the same.
// A program that hides its cursor is typed at only while it hides, and where it stood.
func TestPasteAndSubmit_TakeAHiddenCursorForWhatItIs(t *testing.T) {
	r := newRig(t, "printf '\\033[?25l'; "+reader)
	r.until("it is ready", func() bool { return strings.Contains(r.screen(), "ready") })
	shown := r.seen()
	if ruling := r.oursAt(r.guard, shown, "x"); ruling != host.CursorMoved {
		t.Errorf("a look that saw the cursor: %v", ruling)
	}
	hidden := shown
	hidden.CursorHidden = true
	moved := hidden
	moved.Cursor.X++
	if ruling := r.oursAt(r.guard, moved, "x"); ruling != host.CursorMoved {
		t.Errorf("a look that saw it elsewhere: %v", ruling)
	}
	if ruling := r.oursAt(r.guard, hidden, "x"); ruling != host.Done {
		t.Fatalf("a look that saw it hidden: %v", ruling)
	}
	r.until("it is typed", func() bool { return strings.Contains(r.screen(), "ready x") })
	if ruling, err := r.Submit(r.ctx(), target, r.guard, del, session.Pasted, hidden, session.Ring{}.With(del, session.Submitted)); err != nil ||
		ruling != host.CursorMoved {
		t.Errorf("a submit after it moved: %v %v", ruling, err)
	}
	hidden.Cursor = r.seen().Cursor
	if ruling, err := r.Submit(r.ctx(), target, r.guard, del, session.Pasted, hidden, session.Ring{}.With(del, session.Submitted)); err != nil ||
		ruling != host.Done {
		t.Errorf("a submit: %v %v", ruling, err)
	}
}

func TestPaste_IntoALinkedWindow(t *testing.T) {
	r := newRig(t, "stty raw -echo; cat -v")
	r.until("cat runs", func() bool { return r.pasteProbe() })
	for _, args := range [][]string{{"new-session", "-d", "-s", "overview", "sleep", "300"}, {"link-window", "-s", "=" + target + ":0", "-t", "=overview:5"},
		{"new-session", "-d", "-t", "=" + target + ":"}} {
		if out, err := exec.Command("tmux", append([]string{"-S", r.Socket(target)}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", args, out)
		}
	}
	ring := session.Ring{}.With(del, session.Pasted)
	if done, err := r.Paste(r.ctx(), target, r.guard, host.Text{ID: del, Typed: "text", Look: r.seen(), Ring: ring}); err != nil || done != host.Done {
		t.Fatalf("%v %v", done, err)
	}
	r.until("the text shows", func() bool { return strings.Contains(r.screen(), "text") })
}

// A long text comes from a file that is whole before the server is asked to read it: our death cannot cut it.
func TestPaste_LeavesNoTextBehind(t *testing.T) {
	r := newRig(t, "stty raw -echo; cat > /dev/null")
	r.until("cat runs", func() bool {
		out, err := exec.Command("ps", "-o", "args=", "--ppid", strconv.Itoa(r.made.Pid)).Output()
		return err == nil && strings.Contains(string(out), "cat")
	})
	ring := session.Ring{}.With(del, session.Pasted)
	text := strings.Repeat("0123456789abcdef", 1<<16)
	if done, err := r.Paste(r.ctx(), target, r.guard, host.Text{ID: del, Typed: text, Look: r.seen(), Ring: ring}); err != nil || done != host.Done {
		t.Fatalf("%v %v", done, err)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(r.Socket(target)), textPattern)); len(left) > 0 {
		t.Errorf("%v is left behind", left)
	}
}

func TestUnread_TellsWhatTheProgramHasNotRead(t *testing.T) {
	r := newRig(t, "stty raw -echo; sleep 300")
	r.until("it sleeps", func() bool {
		out, err := exec.Command("ps", "-o", "args=", "--ppid", strconv.Itoa(r.made.Pid)).Output()
		return err == nil && strings.Contains(string(out), "sleep 300")
	})
	tty := r.view().Panes[0].TTY
	if n, ok := r.Unread(tty); !ok || n != 0 {
		t.Fatalf("%d %v", n, ok)
	}
	ring := session.Ring{}.With(del, session.Pasted)
	if done, err := r.Paste(r.ctx(), target, r.guard, host.Text{ID: del, Typed: "text", Look: r.seen(), Ring: ring}); err != nil || done != host.Done {
		t.Fatalf("%v %v", done, err)
	}
	r.until("it is there, unread", func() bool { n, ok := r.Unread(tty); return ok && n >= 4 })
	if _, ok := r.Unread("/dev/nowhere"); ok {
		t.Error("told of nothing")
	}
}

func TestReopen_BringsADeletedSocketBack(t *testing.T) {
	r := newRig(t, "sleep 300")
	if err := os.Remove(r.Socket(target)); err != nil {
		t.Fatal(err)
	}
	r.Reopen(r.made.Server)
	r.until("somebody listens", func() bool { return r.Dial(target) == session.Answered })
}

func TestSubmit_WorksInCopyMode(t *testing.T) {
	r := newRig(t, "stty raw -echo; cat -v")
	r.until("cat runs", func() bool { return r.pasteProbe() })
	if out, err := exec.Command("tmux", "-S", r.Socket(target), "copy-mode", "-t", r.guard.Pane).CombinedOutput(); err != nil {
		t.Fatalf("%s", out)
	}
	ring := session.Ring{}.With(del, session.Pasted)
	if done, err := r.Paste(r.ctx(), target, r.guard, host.Text{ID: del, Typed: "text", Look: r.seen(), Ring: ring}); err != nil || done != host.Done {
		t.Fatalf("%v %v", done, err)
	}
	r.until("the text shows", func() bool { return strings.Contains(r.screen(), "text") })
	if done, err := r.Submit(r.ctx(), target, r.guard, del, session.Pasted, r.seen(), ring.With(del, session.Submitted)); err != nil || done != host.Done {
		t.Fatalf("%v %v", done, err)
	}
	r.until("text and CR show", func() bool { return strings.Contains(r.screen(), "text^M") })
}

// A list that timed out here and runs late there does nothing, in both orders: the generation moved on before it ran, or it ran
// before the generation moved, and then the ring says so.
func TestAdvance_ResolvesATimedOutAct(t *testing.T) {
	r := newRig(t, "stty raw -echo; cat -v")
	r.until("cat runs", func() bool { return r.pasteProbe() })
	ring := session.Ring{}.With(del, session.Pasted)
	look := r.seen()
	if err := syscall.Kill(r.made.Server.Pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	if _, err := r.Paste(ctx, target, r.guard, host.Text{ID: del, Typed: "LATE", Look: look, Ring: ring}); !errors.Is(err, host.ErrNoAnswer) {
		t.Fatalf("a stopped server answered: %v", err)
	}
	if err := syscall.Kill(r.made.Server.Pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := r.Advance(r.ctx(), target, "g2"); err != nil {
		t.Fatal(err)
	}
	v := r.view()
	if v.Generation != "g2" {
		t.Fatalf("%+v", v)
	}
	ran := session.ParseRing(v.Panes[0].Ring).Phase(del) == session.Pasted
	r.guard.Generation = "g2"
	if shown := strings.Contains(r.screen(), "LATE"); shown && !ran {
		t.Fatal("the act ran and the ring does not say so")
	}
	old := r.guard
	old.Generation = "g1"
	if done, err := r.Paste(r.ctx(), target, old, host.Text{ID: "delivery-0002", Typed: "STALE", Look: r.seen(), Ring: ring}); err != nil || done == host.Done {
		t.Fatalf("an act of the old generation ran: %v %v", done, err)
	}
}

func TestDial_TellsNobodyFromNoAnswer(t *testing.T) {
	r := newRig(t, "sleep 300")
	if got := r.Dial(target); got != session.Answered {
		t.Errorf("live server: %v", got)
	}
	if got := r.Dial("loop-nobody-1"); got != session.NoServer {
		t.Errorf("no socket: %v", got)
	}
	if got := r.Dial("tmux.conf/x"); got != session.NoAnswer {
		t.Errorf("not a directory: %v", got)
	}
}

func TestClear_OnlyTheDeadIncarnation(t *testing.T) {
	r := newRig(t, "sleep 300")
	if done, err := r.Remove(r.ctx(), target, r.dead()); err != nil || done {
		t.Fatalf("a live session was cleared: %v %v", done, err)
	}
	if err := syscall.Kill(r.made.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	r.until("the pane is dead", func() bool { return r.view().Panes[0].Dead })
	another := r.dead()
	another.Stamp = "stamp0002"
	if done, err := r.Remove(r.ctx(), target, another); err != nil || done {
		t.Fatalf("another incarnation was cleared: %v %v", done, err)
	}
	if out, err := exec.Command("tmux", "-S", r.Socket(target), "split-window", "-t", "="+target+":", "sleep", "300").CombinedOutput(); err != nil {
		t.Fatalf("%s", out)
	}
	if done, err := r.Remove(r.ctx(), target, r.dead()); err != nil || done {
		t.Fatalf("a session with a guest was cleared: %v %v", done, err)
	}
	if out, err := exec.Command("tmux", "-S", r.Socket(target), "kill-pane", "-t", "%1").CombinedOutput(); err != nil {
		t.Fatalf("%s", out)
	}
	if done, err := r.Remove(r.ctx(), target, r.dead()); err != nil || !done {
		t.Fatalf("%v %v", done, err)
	}
	r.until("nobody listens", func() bool { return r.Dial(target) == session.NoServer })
}

func FuzzQuote(f *testing.F) {
	f.Add("a;b'\"$#{x}\n\x01")
	f.Fuzz(func(t *testing.T, s string) {
		for _, c := range []byte(strings.NewReplacer(`\`, "").Replace(quote(s))) {
			if c < ' ' || c > '~' || strings.IndexByte("#;$'`~*?{}()<>&", c) >= 0 {
				t.Fatalf("quote(%q) = %s", s, quote(s))
			}
		}
	})
}
