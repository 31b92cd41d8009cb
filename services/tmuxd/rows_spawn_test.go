package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/services/tmuxd/internal/host"
)

// Rows of docs/cases.md, tables B and C: what a real tmux holds under a name, and what a spawn makes of it.

// spawnRow is one spawn: what is there before it and what happens meanwhile, and what must come out.
type spawnRow struct {
	arrange  func(*rig, *watched)
	outcome  host.SpawnOutcome
	occupant host.Occupant
	reason   string
	// acts are the new-sessions and the kills, in order.
	acts string
}

func TestSpawn_ByTheTable(t *testing.T) {
	t.Parallel()
	for name, row := range spawnRows() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, nil)
			w := r.watch()
			row.arrange(r, w)
			w.acts = nil
			got := r.spawn(d1, "hello there")
			w.create, w.clear, w.observe = nil, nil, nil
			if got.Outcome != row.outcome || got.Occupant != row.occupant || got.Reason != row.reason || w.did() != row.acts {
				t.Errorf("%+v after %v, want %v by %v (%s) after %s", got, w.acts, row.outcome, row.occupant, row.reason, row.acts)
			}
			if row.outcome == host.SpawnStarted {
				r.took(got.Conversation, typed(d1, "hello there"))
			} else if all, _ := filepath.Glob(r.conversation("*").Path()); len(all) > len(r.lived()) {
				t.Errorf("an agent was started: %v", all)
			}
		})
	}
}

func spawnRows() map[string]spawnRow {
	lives := func(r *rig, _ *watched) { r.started("", "") }
	dies := func(r *rig, w *watched) { lives(r, w); r.dead() }
	return map[string]spawnRow{
		"absent":         {func(*rig, *watched) {}, host.SpawnStarted, 0, "", "new"},
		"live":           {lives, host.SpawnOccupied, host.OccupantLive, "", ""},
		"live, foreign":  {func(r *rig, _ *watched) { r.foreigner("cat -v") }, host.SpawnOccupied, host.OccupantForeign, "", ""},
		"dead, cleared":  {dies, host.SpawnStarted, 0, "", "kill new"},
		"unknown: waits": {func(r *rig, w *watched) { lives(r, w); r.stopServer() }, host.SpawnFailed, 0, "tmux_no_answer", ""},
		"dead, the kill's answer is lost and it is gone": {func(r *rig, w *watched) {
			dies(r, w)
			w.clear = func(ctx context.Context, m host.Removal) (bool, error) {
				_, err := w.Tmux.Remove(ctx, r.item.Target(), m)
				return false, errors.Join(host.ErrNoAnswer, err)
			}
		}, host.SpawnStarted, 0, "", "kill new"},
		"dead, the kill is refused and it is still there": {func(r *rig, w *watched) {
			dies(r, w)
			w.clear = func(ctx context.Context, m host.Removal) (bool, error) {
				m.Generation = "g-another"
				return w.Tmux.Remove(ctx, r.item.Target(), m)
			}
		}, host.SpawnOccupied, host.OccupantUnclearable, "", "kill"},
		"dead, the kill is answered and it is still there": {func(r *rig, w *watched) {
			dies(r, w)
			w.clear = func(context.Context, host.Removal) (bool, error) { return true, nil }
		}, host.SpawnOccupied, host.OccupantUnclearable, "", "kill"},
		"dead, a guest comes before the kill": {func(r *rig, w *watched) {
			dies(r, w)
			w.clear = func(ctx context.Context, m host.Removal) (bool, error) {
				r.person("split-window", "-d", "-t", "%0", "cat -v")
				return w.Tmux.Remove(ctx, r.item.Target(), m)
			}
		}, host.SpawnOccupied, host.OccupantUnclearable, "", "kill"},
		"dead, alive again before the kill": {func(r *rig, w *watched) {
			dies(r, w)
			w.clear = func(ctx context.Context, m host.Removal) (bool, error) {
				r.person("kill-session", "-t", "="+r.item.Target()+":")
				r.until("the server is gone", func() bool { return r.tmux.Dial(r.item.Target()) == session.NoServer })
				r.another("cat -v")
				return w.Tmux.Remove(ctx, r.item.Target(), m)
			}
		}, host.SpawnOccupied, host.OccupantLive, "", "kill"},
		"absent, duplicate, absent": {func(r *rig, w *watched) {
			w.create = r.duplicates(w, func() (after func()) { return r.another("cat -v") }, nil)
		}, host.SpawnStarted, 0, "", "new new"},
		"absent, duplicate, dead, cleared": {func(r *rig, w *watched) {
			w.create = r.duplicates(w, func() func() { r.another("exit 3"); return nil }, nil)
		}, host.SpawnStarted, 0, "", "new kill new"},
		"absent, duplicate, live": {func(r *rig, w *watched) {
			w.create = r.duplicates(w, func() func() { r.another("cat -v"); return nil }, nil)
		}, host.SpawnOccupied, host.OccupantLive, "", "new"},
		"absent, duplicate, foreign": {func(r *rig, w *watched) {
			w.create = r.duplicates(w, func() func() { r.foreigner("cat -v"); return nil }, nil)
		}, host.SpawnOccupied, host.OccupantForeign, "", "new"},
		"absent, duplicate, unknown": {func(r *rig, w *watched) {
			w.create = r.duplicates(w, func() func() { r.another("cat -v"); return r.stopServer }, nil)
		}, host.SpawnOccupied, host.OccupantLive, "", "new"},
		"absent, duplicate, dead, unclearable": {func(r *rig, w *watched) {
			w.create = r.duplicates(w, func() func() { r.another("exit 3"); return nil }, nil)
			w.clear = func(context.Context, host.Removal) (bool, error) { return true, nil }
		}, host.SpawnOccupied, host.OccupantUnclearable, "", "new kill"},
		"absent, duplicate, dead, cleared, duplicate": {func(r *rig, w *watched) {
			w.create = r.duplicates(w, func() func() { r.another("exit 3"); return nil }, func() { r.another("cat -v") })
		}, host.SpawnFailed, 0, "duplicate", "new kill new"},
		"the server is not as it has to be": {func(r *rig, _ *watched) {
			conf := filepath.Join(r.dir, "state", "tmux.conf")
			text, err := os.ReadFile(conf)
			if err == nil {
				err = os.WriteFile(conf, append(text, "set-hook -g after-new-session copy-mode\n"...), 0o600)
			}
			if err != nil {
				r.t.Fatal(err)
			}
		}, host.SpawnFailed, 0, "tmux_error", "new"},
		"another error": {func(r *rig, _ *watched) {
			if err := os.MkdirAll(filepath.Join(r.tmux.Socket(r.item.Target()), "full"), 0o700); err != nil {
				r.t.Fatal(err)
			}
		}, host.SpawnFailed, 0, "tmux_error", "new"},
	}
}

// lived are the conversations that the rig's own agents had before.
func (r *rig) lived() (all []string) {
	if id := r.state().Conversation; id != "" {
		all = append(all, id)
	}
	return all
}

// dead ends the agent.
func (r *rig) dead() {
	r.t.Helper()
	r.signal(r.agentPid(), syscall.SIGKILL)
	r.becomes(session.Dead)
}

// stopServer has the server of the item not answer until the test ends.
func (r *rig) stopServer() {
	r.t.Helper()
	server := r.serverPid()
	r.signal(server, syscall.SIGSTOP)
	r.endLater(server)
}

func (r *rig) serverPid() int {
	r.t.Helper()
	v, err := r.tmux.Observe(r.ctx(), r.item.Target())
	if err != nil {
		r.t.Fatal(err)
	}
	return v.Server.Pid
}

// another has a spawn of this item that nobody here asked for take effect, with a shell line as its program. It returns what ends it.
func (r *rig) another(line string) (end func()) {
	r.t.Helper()
	made, err := r.tmux.Create(r.ctx(), host.NewSession{Target: r.item.Target(), Argv: []string{"/bin/sh", "-c", line}, Dir: "/", Width: 200,
		Height: 50, Stamp: "another-" + fmt.Sprint(time.Now().UnixNano()), Item: r.item.String(), Harness: "fakeagent", Conversation: "c",
		Generation: "g0", Token: 1})
	if err != nil {
		r.t.Fatal(err)
	}
	r.endLater(made.Server.Pid)
	if strings.HasPrefix(line, "exit") {
		r.until("it is dead", func() bool {
			v, err := r.tmux.Observe(r.ctx(), r.item.Target())
			return err == nil && len(v.Panes) == 1 && v.Panes[0].Dead
		})
	}
	return func() {
		r.person("kill-session", "-t", "="+r.item.Target()+":")
		r.until("the server is gone", func() bool { return r.tmux.Dial(r.item.Target()) == session.NoServer })
	}
}

// duplicates has the name be taken right before the first new-session, so that the real tmux says that it is a duplicate, and before the
// second one with again. What take returns happens behind the first.
func (r *rig) duplicates(w *watched, take func() (after func()),
	again func()) func(context.Context, host.NewSession) (host.Created, error) {
	n := 0
	return func(ctx context.Context, s host.NewSession) (host.Created, error) {
		n++
		var after func()
		if n == 1 {
			after = take()
		} else if again != nil {
			again()
		}
		made, err := w.Tmux.Create(ctx, s)
		if n == 1 && !errors.Is(err, host.ErrDuplicate) {
			r.t.Errorf("tmux said %v", err)
		}
		if after != nil {
			after()
		}
		return made, err
	}
}

func TestSpawn_SilenceAfterAKillWaits(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	first := r.started("", "")
	r.dead()
	w := r.watch()
	w.clear = func(ctx context.Context, m host.Removal) (bool, error) {
		r.stopServer()
		return w.Tmux.Remove(ctx, r.item.Target(), m)
	}
	got, err := r.Spawn(r.ctx(), host.SpawnRequest{Item: r.item, Harness: "fakeagent", DeliveryID: d1, Text: "hello there", Token: r.token()})
	waits := errors.Is(err, fault.Unavailable) || err == nil && got.Outcome == host.SpawnFailed
	if !waits || w.did() != "kill" {
		t.Errorf("%+v, %v after %v", got, err, w.acts)
	}
	r.signal(first.Incarnation.Server.Pid, syscall.SIGCONT)
	w.clear = nil
	r.until("it is started", func() bool { got = r.spawn(d1, "hello there"); return got.Outcome == host.SpawnStarted })
	r.took(got.Conversation, typed(d1, "hello there"))
}

func TestSpawn_AWordingThatIsNotKnownIsAnOrdinaryFailure(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	_, restore := r.standIn(`tmux "$@" 2>"$0.err"; status=$?; sed s/duplicate/doppelte/ "$0.err" >&2; exit $status`, 0o700)
	w := r.watch()
	w.create = func(ctx context.Context, s host.NewSession) (host.Created, error) {
		r.runnable(true)
		r.another("cat -v")
		r.runnable(false)
		return w.Tmux.Create(ctx, s)
	}
	if got := r.spawn(d1, "hello there"); got.Outcome != host.SpawnFailed || got.Reason != "tmux_error" || w.did() != "new" {
		t.Errorf("%+v after %v", got, w.acts)
	}
	restore()
	if st := r.state(); st.State != session.Live || !strings.HasPrefix(st.Incarnation.Stamp, "another-") {
		t.Errorf("%+v", st)
	}
}

// TestSpawn_WithoutAnAnswerIsResolvedBeforeAnythingElse loses the answer to a new-session, in both orders: tmux made the session, or it
// makes it later, when nobody waits any more.
func TestSpawn_WithoutAnAnswerIsResolvedBeforeAnythingElse(t *testing.T) {
	t.Parallel()
	t.Run("it was made", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, nil)
		w := r.watch()
		w.create = func(ctx context.Context, s host.NewSession) (host.Created, error) {
			if _, err := w.Tmux.Create(ctx, s); err != nil {
				t.Error(err)
			}
			r.until("the wrapper has begun", func() bool { ran, err := r.disk.Ran(s.Target, s.Stamp); return err == nil && ran.Known })
			return host.Created{}, host.ErrNoAnswer
		}
		got := r.spawn(d1, "hello there")
		if got.Outcome != host.SpawnStarted || got.Incarnation.PaneID != "%0" || w.did() != "new" {
			t.Errorf("%+v after %v", got, w.acts)
		}
		r.took(got.Conversation, typed(d1, "hello there"))
	})
	t.Run("it is made too late", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, nil)
		r.neighbours() // their server is used
		r.becomes(session.Absent)
		lived := r.lived()
		server := r.serverPid()
		w := r.watch()
		w.create = func(ctx context.Context, s host.NewSession) (host.Created, error) {
			r.signal(server, syscall.SIGSTOP)
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			return w.Tmux.Create(ctx, s)
		}
		if got := r.spawn(d1, "hello there"); got.Outcome != host.SpawnFailed || got.Reason != "tmux_no_answer" || w.did() != "new" {
			t.Errorf("%+v after %v", got, w.acts)
		}
		r.signal(server, syscall.SIGCONT)
		// What tmux makes late, if it came to that, is a wrapper that finds nothing to run.
		r.until("nothing lives there", func() bool { st := r.state().State; return st == session.Dead || st == session.Absent })
		if all, _ := filepath.Glob(r.conversation("*").Path()); len(all) != max(1, len(lived)) {
			t.Errorf("an agent was started: %v", all)
		}
		w.create = nil
		res := r.started(d1, "hello there")
		r.took(res.Conversation, typed(d1, "hello there"))
	})
}

// TestSpawn_WhatEndsInItsSurvivalWindowWasNotStarted has harnesses that end at once, each in its own way.
func TestSpawn_WhatEndsInItsSurvivalWindowWasNotStarted(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		line string
		want host.Exit
		last string
	}{
		"at once, with status 0": {"echo bye", host.Exit{Known: true}, "bye"},
		"with status 7":          {"echo no key; exit 7", host.Exit{Known: true, Code: 7}, "no key"},
		"by a signal":            {"echo ouch; kill -9 $$", host.Exit{Known: true, Signal: 9}, "ouch"},
		"after a while":          {"echo hm; sleep 1; exit 1", host.Exit{Known: true, Code: 1}, "hm"},
		"leaving something that does not end by itself": {"(trap '' HUP TERM; sleep 60) & echo there; exit 1",
			host.Exit{Known: true, Code: 1}, "there"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, nil)
			r.entry.Binary, r.entry.Fresh, r.entry.PromptArgs = "/bin/sh", []string{"-c", row.line, "{conversation_id}"}, []string{"{prompt_file}"}
			r.restart()
			got := r.spawn(d1, "hello there")
			got.Exit.At = time.Time{}
			if got.Outcome != host.SpawnNotStarted || got.Exit != row.want || !strings.Contains(strings.Join(got.LastLines, "\n"), row.last) {
				t.Errorf("%+v", got)
			}
			// Once it is said it is over: what is asked for next must not meet what is left of it.
			st, err := r.State(r.ctx(), r.item, d1)
			if err != nil || st.Incarnation.Stamp == "" || st.Incarnation.Stamp != got.Incarnation.Stamp {
				t.Errorf("%+v is dead, and %+v was started", st.Incarnation, got.Incarnation)
			}
			if st.State != session.Dead || st.Phase == session.Taken || st.Phase == session.Submitted {
				t.Errorf("%+v, %v", st, err)
			}
		})
	}
}

func TestSpawn_ARepeatAsksTmuxForNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	w := r.watch()
	first := r.started(d1, "hello there")
	w.acts = nil
	again := r.started(d1, "hello there")
	if !again.AlreadyDone || again.Incarnation != first.Incarnation || len(w.acts) > 0 {
		t.Errorf("%+v after %v", again, w.acts)
	}
	r.took(first.Conversation, typed(d1, "hello there"))
}

func TestSpawn_WhatAHostCannotDoIsRefusedBeforeTmuxIsAsked(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.entry.Resume = nil
	r.restart()
	w := r.watch()
	for want, q := range map[fault.Reason]host.SpawnRequest{
		fault.ReasonCannotResume:     {Harness: "fakeagent", Resume: "00000000-0000-4000-8000-000000000000"},
		fault.ReasonUnknownHarness:   {Harness: "codx"},
		fault.ReasonDirectoryMissing: {Harness: "fakeagent", Directory: filepath.Join(r.dir, "work", "none")},
	} {
		q.Item, q.Token = r.item, r.token()
		if _, err := r.Spawn(r.ctx(), q); !errors.Is(err, fault.Invalid) || fault.ReasonOf(err) != want {
			t.Errorf("%s: %v", want, err)
		}
	}
	if len(w.asked) > 0 {
		t.Errorf("tmux was asked: %v", w.asked)
	}
}

func TestSpawn_AMebibyteIsAFirstPrompt(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	text := strings.TrimRight(strings.Repeat("0123456789abcdef é\n", 1<<20/21), "\n")
	res := r.started(d1, text)
	r.took(res.Conversation, typed(d1, text))
	if res.PromptPhase != session.Taken {
		t.Errorf("%+v", res)
	}
}

// TestSpawn_NoCommandLineShowsAPromptOrASecret looks at every process that there is while an agent starts, for a text that only the prompt
// and a passed variable hold.
func TestSpawn_NoCommandLineShowsAPromptOrASecret(t *testing.T) {
	t.Parallel()
	secret := fmt.Sprintf("hush-%d", time.Now().UnixNano())
	r := newRig(t, map[string]string{"API_KEY": secret})
	r.entry.PassEnv = append(r.entry.PassEnv, "API_KEY")
	r.restart()
	var over atomic.Bool
	seen := make(chan []string)
	go func() {
		var shown []string
		for last := false; !last; { // and once more when it is over
			last = over.Load()
			lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
			for _, path := range lines {
				if data, _ := os.ReadFile(path); strings.Contains(string(data), secret) {
					shown = append(shown, string(data))
				}
			}
		}
		seen <- shown
	}()
	res := r.started(d1, "the word is "+secret)
	over.Store(true)
	if shown := <-seen; len(shown) > 0 {
		t.Errorf("it stands in %q", shown)
	}
	r.took(res.Conversation, typed(d1, "the word is "+secret))
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", r.agentPid()))
	if err != nil || !strings.Contains(string(env), "API_KEY="+secret) {
		t.Errorf("the agent does not have it: %v", err)
	}
}

func TestSpawn_AHarnessWithoutAPromptFileGetsItsFirstPromptPasted(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.entry.PromptArgs = nil
	r.restart()
	res := r.started(d1, "hello there")
	if res.PromptPhase != session.None {
		t.Errorf("%+v", res)
	}
	r.took(res.Conversation)
	r.until("it is pasted", func() bool { return r.goesIn(d1, "hello there") })
	r.took(res.Conversation, typed(d1, "hello there"))
}

// TestSpawn_TheRemedyFreesTheName does what a refusal says that a person can do.
func TestSpawn_TheRemedyFreesTheName(t *testing.T) {
	t.Parallel()
	for name, take := range map[string]func(*rig){
		"a person's session": func(r *rig) { r.foreigner("cat -v") },
		"a person's split": func(r *rig) {
			r.started("", "")
			r.ready()
			r.person("split-window", "-d", "-t", "%0", "cat -v")
			r.dead()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, nil)
			take(r)
			got := r.spawn(d1, "hello there")
			_, command, _ := strings.Cut(got.Remedy, "`tmux ")
			command, _, found := strings.Cut(command, "`")
			if got.Outcome != host.SpawnOccupied || !found {
				t.Fatalf("%+v", got)
			}
			if again := r.spawn(d1, "hello there"); again.Outcome != host.SpawnOccupied || again.Remedy != got.Remedy {
				t.Errorf("while it is taken: %+v", again)
			}
			line := "tmux " + strings.ReplaceAll(command, "<socket>", r.tmux.Socket(r.item.Target()))
			if out, err := exec.Command("/bin/sh", "-c", line).CombinedOutput(); err != nil {
				t.Fatalf("%s: %v: %s", line, err, out)
			}
			r.becomes(session.Absent)
			res := r.started(d1, "hello there")
			r.took(res.Conversation, typed(d1, "hello there"))
		})
	}
}

// TestSpawn_WhatCannotBeToldToHaveEndedIsKept has the wrapper's record be unreadable for as long as a start is watched.
func TestSpawn_WhatCannotBeToldToHaveEndedIsKept(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	first := r.started(d1, "hello there")
	r.idle()
	r.dead()
	w := r.watch()
	var record string
	w.create = func(ctx context.Context, s host.NewSession) (host.Created, error) {
		made, err := w.Tmux.Create(ctx, s)
		r.until("the agent runs", func() bool { ran, err := r.disk.Ran(s.Target, s.Stamp); return err == nil && ran.Reached })
		record = filepath.Join(r.dir, "state", "records", s.Target+"."+s.Stamp+".json")
		// The wrapper may be writing it anew just now.
		r.until("something is in its way", func() bool {
			return os.RemoveAll(record) == nil && os.MkdirAll(filepath.Join(record, "in the way"), 0o700) == nil
		})
		return made, err
	}
	got, err := r.Spawn(r.ctx(), host.SpawnRequest{Item: r.item, Harness: "fakeagent", Resume: first.Conversation, Token: r.token()})
	if err != nil || got.Outcome != host.SpawnStarted || !got.Resumed || got.Conversation != first.Conversation {
		t.Errorf("%+v, %v", got, err)
	}
	if w.did() != "kill new" {
		t.Errorf("after %v", w.acts)
	}
	if err := os.RemoveAll(record); err != nil {
		t.Fatal(err)
	}
	if st := r.state(); st.State != session.Live {
		t.Errorf("%+v", st)
	}
}
