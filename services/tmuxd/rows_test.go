package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace/noop"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/services/tmuxd/internal/host"
	"muxpost.dev/muxpost/services/tmuxd/internal/tmux"
)

// Rows of docs/cases.md, table A: what is seen of a real tmux, and the state that it proves.

// watched is the rig's tmux, with what is asked of it written down, and with what a test has happen between two commands.
type watched struct {
	host.Tmux
	// acts are the new-sessions and kills, asked everything, in order.
	acts, asked []string
	// create, clear and observe stand in for the real one where they are set, and may call it.
	create  func(context.Context, host.NewSession) (host.Created, error)
	clear   func(context.Context, host.Removal) (bool, error)
	observe func(context.Context) (host.View, error)
}

// watch has the rig's host go through a watched tmux.
func (r *rig) watch() *watched {
	w := &watched{Tmux: r.Tmux}
	r.Tmux = w
	return w
}

func (w *watched) Create(ctx context.Context, s host.NewSession) (host.Created, error) {
	w.acts, w.asked = append(w.acts, "new"), append(w.asked, "create")
	if w.create != nil {
		return w.create(ctx, s)
	}
	return w.Tmux.Create(ctx, s)
}

func (w *watched) Remove(ctx context.Context, target string, m host.Removal) (bool, error) {
	w.acts, w.asked = append(w.acts, "kill"), append(w.asked, "clear")
	if w.clear != nil {
		return w.clear(ctx, m)
	}
	return w.Tmux.Remove(ctx, target, m)
}

func (w *watched) Observe(ctx context.Context, target string) (host.View, error) {
	w.asked = append(w.asked, "observe")
	if w.observe != nil {
		return w.observe(ctx)
	}
	return w.Tmux.Observe(ctx, target)
}

func (w *watched) Dial(target string) session.Answer {
	w.asked = append(w.asked, "dial")
	return w.Tmux.Dial(target)
}

// did are the new-sessions and kills so far.
func (w *watched) did() string { return strings.Join(w.acts, " ") }

// standIn has the rig's host run a script in the place of tmux, whose server cannot be spoken to by its own program meanwhile. It returns
// where the script lies, and what puts the real one back.
func (r *rig) standIn(script string, mode os.FileMode) (path string, restore func()) {
	r.t.Helper()
	path = filepath.Join(r.dir, "tmux-stand-in")
	_ = os.Remove(path)
	// It says truly of which release it and the server are: else it would not be asked anything more.
	truly := `case "$*" in -V | *"tmux #{version}") exec tmux "$@" ;; esac`
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+truly+"\n"+script+"\n"), 0o700); err != nil {
		r.t.Fatal(err)
	}
	client, err := tmux.New(tmux.Config{Bin: path, Dir: filepath.Join(r.dir, "state"), Tracer: noop.NewTracerProvider().Tracer(""),
		Env: []string{"PATH=" + os.Getenv("PATH"), "TERM=xterm-256color"}})
	if err != nil {
		r.t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		r.t.Fatal(err)
	}
	real := r.Tmux
	r.Tmux = client
	r.runnable(false)
	return path, func() { r.Tmux = real; r.runnable(true) }
}

// runnable says whether the rig's own tmux can be run.
func (r *rig) runnable(yes bool) {
	r.t.Helper()
	mode := os.FileMode(0o600)
	if yes {
		mode = 0o755
	}
	if err := os.Chmod(r.program, mode); err != nil {
		r.t.Fatal(err)
	}
}

// TestState_NobodyAnsweredIsUnknown has tmux not answer in every way that there is, while the agent lives: each is unknown, starts and
// ends nothing, and the agent is there afterwards as it was.
func TestState_NobodyAnsweredIsUnknown(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	res := r.started("", "")
	r.ready()
	server := res.Incarnation.Server.Pid
	for name, silence := range map[string]func() (end func()){
		"timeout": func() func() {
			r.signal(server, syscall.SIGSTOP)
			return func() { r.signal(server, syscall.SIGCONT) }
		},
		"the tmux program is gone": func() func() {
			path, end := r.standIn("", 0o700)
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			return end
		},
		"the tmux program cannot be run": func() func() { _, end := r.standIn("", 0o600); return end },
		"protocol mismatch": func() func() {
			_, end := r.standIn(`echo "protocol version mismatch (client 8, server 7)" >&2; exit 1`, 0o700)
			return end
		},
		"the server exited":          func() func() { _, end := r.standIn(`echo "server exited unexpectedly" >&2; exit 1`, 0o700); return end },
		"fork failed":                func() func() { _, end := r.standIn(`echo "fork failed" >&2; exit 1`, 0o700); return end },
		"status zero and not a word": func() func() { _, end := r.standIn(`exit 0`, 0o700); return end },
		"no such session, by no one": func() func() { _, end := r.standIn(`echo "can't find session" >&2; exit 1`, 0o700); return end },
		"the socket cannot be reached": func() func() {
			socket := r.tmux.Socket(r.item.Target())
			if err := errors.Join(os.Rename(socket, socket+".away"), os.Symlink(socket, socket)); err != nil {
				t.Fatal(err)
			}
			r.restart() // a connection that is open needs no socket
			return func() {
				if err := os.Rename(socket+".away", socket); err != nil {
					t.Fatal(err)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			end := silence()
			if st := r.state(); st.State != session.Unknown || st.Detail == "" {
				t.Errorf("%+v", st)
			}
			if got := r.spawn(d1, "over it"); got.Outcome != host.SpawnFailed || got.Reason != "tmux_no_answer" {
				t.Errorf("a spawn: %+v", got)
			}
			_, err := r.Paste(r.ctx(), host.PasteRequest{Item: r.item, DeliveryID: d1, Text: "over it", Token: r.token()})
			if !errors.Is(err, fault.Unavailable) {
				t.Errorf("a paste: %v", err)
			}
			end()
			if st := r.state(); st.State != session.Live || st.Incarnation != res.Incarnation {
				t.Errorf("afterwards: %+v", st)
			}
		})
	}
	r.took(res.Conversation)
}

func TestState_AServerThatDiesWhileItIsAskedIsUnknown(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	server := r.started("", "").Incarnation.Server.Pid
	w := r.watch()
	w.observe = func(ctx context.Context) (host.View, error) {
		r.signal(server, syscall.SIGSTOP) // it takes the question, and dies before the answer
		time.AfterFunc(200*time.Millisecond, func() { _ = syscall.Kill(server, syscall.SIGKILL) })
		return w.Tmux.Observe(ctx, r.item.Target())
	}
	if st := r.state(); st.State != session.Unknown {
		t.Errorf("the look in which it died: %+v", st)
	}
	w.observe = nil
	r.becomes(session.Absent)
}

// TestState_AbsentIsWhatAServerSaysOrItsEndProves goes through what proves that there is no session.
func TestState_AbsentIsWhatAServerSaysOrItsEndProves(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(*rig){
		"no server was ever known": func(*rig) {},
		"the server is gone, and tmuxd was restarted": func(r *rig) {
			server := r.started("", "").Incarnation.Server.Pid
			r.signal(server, syscall.SIGKILL)
			r.until("nobody listens", func() bool { return r.tmux.Dial(r.item.Target()) == session.NoServer })
			r.restart()
		},
		"the server is gone, and its socket too": func(r *rig) {
			server := r.started("", "").Incarnation.Server.Pid
			r.signal(server, syscall.SIGKILL)
			r.until("nobody listens", func() bool { return r.tmux.Dial(r.item.Target()) == session.NoServer })
			if err := os.Remove(r.tmux.Socket(r.item.Target())); err != nil {
				t.Fatal(err)
			}
		},
		"the server has sessions of other names alone": func(r *rig) { r.neighbours() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, nil)
			leave(r)
			if st := r.becomes(session.Absent); st.Flags != 0 {
				t.Errorf("%+v", st)
			}
			if got := r.paste(d1, "hello there"); got.Verdict != host.Refused || got.Cause != host.RefusedAbsent {
				t.Errorf("%+v", got)
			}
		})
	}
}

// neighbours leaves on the item's own server only sessions whose names are like its target, and returns their names.
func (r *rig) neighbours() []string {
	r.t.Helper()
	r.started("", "")
	target := r.item.Target()
	names := []string{target + "0", target + "-2", "x" + target, "loop-*"}
	for _, name := range names {
		r.person("new-session", "-d", "-s", name, "cat -v")
	}
	r.person("kill-session", "-t", "="+target+":")
	return names
}

func TestState_ANameThatIsLikeItIsAnotherSession(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	names := r.neighbours()
	st := r.becomes(session.Absent)
	if r.tmux.Dial(r.item.Target()) != session.Answered {
		t.Fatalf("the server does not answer: %+v", st)
	}
	res := r.started(d1, "hello there")
	r.took(res.Conversation, typed(d1, "hello there"))
	for _, name := range names {
		out, err := r.cmd("list-panes", "-t", "="+name+":", "-F", "#{session_name} #{pane_dead}")
		if err != nil || strings.TrimSpace(out) != name+" 0" {
			t.Errorf("%s: %q, %v", name, out, err)
		}
		if strings.Contains(r.shown("="+name+":"), "hello") {
			t.Errorf("it went into %s", name)
		}
	}
}

func TestState_TheDeadTellHowTheyEnded(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		end  func(*rig)
		want host.Exit
	}{
		"status 0":   {func(r *rig) { r.started(d1, "zz:exit=0") }, host.Exit{Known: true}},
		"status 7":   {func(r *rig) { r.started(d1, "zz:exit=7") }, host.Exit{Known: true, Code: 7}},
		"status 143": {func(r *rig) { r.started(d1, "zz:exit=143") }, host.Exit{Known: true, Code: 143}},
		"signal 9": {func(r *rig) {
			r.started(d1, "hello there")
			r.signal(r.agentPid(), syscall.SIGKILL)
		}, host.Exit{Known: true, Signal: 9}},
		"tmux knows alone": {func(r *rig) { // the wrapper was killed before it could record an end
			r.started(d1, "hello there")
			r.signal(r.state().Incarnation.PanePid, syscall.SIGKILL)
		}, host.Exit{Known: true, Signal: 9}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, nil)
			row.end(r)
			var st host.Status
			r.until("the end is known", func() bool {
				st = r.state()
				return st.State == session.Dead && st.Exit.Known
			})
			st.Exit.At = time.Time{}
			if st.Flags != 0 || st.Exit != row.want {
				t.Errorf("%+v, want %+v", st, row.want)
			}
		})
	}
}

// screens is what all panes of the server show.
func (r *rig) screens() string {
	r.t.Helper()
	panes, err := r.cmd("list-panes", "-a", "-F", "#{pane_id}")
	if err != nil {
		r.t.Fatalf("%v: %s", err, panes)
	}
	var all strings.Builder
	for id := range strings.FieldsSeq(panes) {
		all.WriteString(r.shown(id))
	}
	return all.String()
}

// TestState_GuestsAreNeitherTypedAtNorCleared has somebody else live in the session when the agent no longer does.
func TestState_GuestsAreNeitherTypedAtNorCleared(t *testing.T) {
	t.Parallel()
	for name, come := range map[string]func(*rig){
		"the agent is dead beside a split": func(r *rig) {
			r.person("split-window", "-d", "-t", "%0", "cat -v")
			r.signal(r.agentPid(), syscall.SIGKILL)
		},
		"the agent's pane is gone beside a split": func(r *rig) {
			r.person("split-window", "-d", "-t", "%0", "cat -v")
			r.person("kill-pane", "-t", "%0")
		},
		"another process was put into the agent's pane": func(r *rig) { r.person("respawn-pane", "-k", "-t", "%0", "cat -v") },
		"a window of the person's own": func(r *rig) {
			r.person("new-window", "-d", "-t", "="+r.item.Target()+":", "cat -v")
			r.signal(r.agentPid(), syscall.SIGKILL)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, nil)
			r.started("", "")
			r.ready()
			come(r)
			r.until("it is dead, with guests", func() bool { st := r.state(); return st.State == session.Dead && st.Flags == session.Guests })
			w := r.watch()
			if got := r.paste(d1, "touch /tmp/pwned"); got.Verdict != host.Refused || got.Cause != host.RefusedDead {
				t.Errorf("%+v", got)
			}
			if got := r.spawn(d1, "x y"); got.Outcome != host.SpawnOccupied || got.Occupant != host.OccupantUnclearable || got.Remedy == "" {
				t.Errorf("%+v", got)
			}
			if len(w.acts) > 0 {
				t.Errorf("%v", w.acts)
			}
			out, err := r.cmd("list-panes", "-a", "-F", "#{pane_dead} #{pane_start_command}")
			if err != nil || !strings.Contains(out, `0 "cat -v"`) {
				t.Errorf("the guest is gone: %q, %v", out, err)
			}
			if strings.Contains(r.screens(), "pwned") {
				t.Error("it was typed at a guest")
			}
		})
	}
}

// TestState_WhatDoesNotCarryOurStampIsForeign has the name belong to somebody else.
func TestState_WhatDoesNotCarryOurStampIsForeign(t *testing.T) {
	t.Parallel()
	for name, take := range map[string]func(*rig){
		"a person's session":        func(r *rig) { r.foreigner("cat -v") },
		"a person's session, ended": func(r *rig) { r.foreigner("sleep 0") },
		"the stamp of another item": func(r *rig) {
			r.started("", "")
			r.ready()
			r.person("set-option", "-t", "="+r.item.Target()+":", "@mux_item", "github:octo/widget#8")
			r.person("set-option", "-pt", "%0", "@mux_item", "github:octo/widget#8")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, nil)
			take(r)
			st := r.becomes(session.Live)
			if st.Flags != session.Foreign || st.Incarnation.Server.Pid > 0 && st.Conversation != "" {
				t.Fatalf("%+v", st)
			}
			w := r.watch()
			if got := r.paste(d1, "touch /tmp/pwned"); got.Verdict != host.Refused || got.Cause != host.RefusedForeign {
				t.Errorf("%+v", got)
			}
			if got := r.spawn(d1, "x y"); got.Outcome != host.SpawnOccupied || got.Occupant != host.OccupantForeign {
				t.Errorf("%+v", got)
			}
			if out := r.screens(); strings.Contains(out, "pwned") || len(w.acts) > 0 {
				t.Errorf("%v, and the screens are\n%s", w.acts, out)
			}
		})
	}
}

// foreigner has a person take the item's name on the item's socket, with a program of their own.
func (r *rig) foreigner(command string) {
	r.t.Helper()
	conf := filepath.Join(r.dir, "state", "tmux.conf")
	out, err := exec.Command("tmux", "-S", r.tmux.Socket(r.item.Target()), "-f", conf, "new-session", "-d", "-s", r.item.Target(), "-x", "200",
		"-y", "50", command, ";", "display-message", "-p", "#{pid}").CombinedOutput()
	pid, pidErr := strconv.Atoi(strings.TrimSpace(string(out)))
	if err != nil || pidErr != nil {
		r.t.Fatalf("%v %v: %s", err, pidErr, out)
	}
	r.endLater(pid)
}

// endLater ends a tmux server of which tmuxd knows nothing.
func (r *rig) endLater(server int) {
	r.t.Cleanup(func() {
		_ = syscall.Kill(server, syscall.SIGCONT)
		_ = syscall.Kill(server, syscall.SIGTERM)
	})
}

func TestState_PanesThatCannotBeReadProveNoDeath(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.started("", "")
	r.signal(r.agentPid(), syscall.SIGKILL)
	r.becomes(session.Dead)
	w := r.watch()
	w.observe = func(ctx context.Context) (host.View, error) {
		v, err := w.Tmux.Observe(ctx, r.item.Target())
		v.Panes, v.PanesRead = nil, false // an answer that broke off behind the names of the sessions
		return v, err
	}
	if st := r.state(); st.State != session.Unknown || !strings.Contains(st.Detail, "the session exists") {
		t.Errorf("%+v", st)
	}
	if got := r.spawn(d1, "x y"); got.Outcome != host.SpawnFailed || len(w.acts) > 0 {
		t.Errorf("%+v after %v", got, w.acts)
	}
}
