package main

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/services/tmuxd/internal/host"
)

// kill removes a session under a new token.
func (r *rig) kill(stamp string, force bool) host.EndResult {
	r.t.Helper()
	res, err := r.Kill(r.ctx(), host.KillRequest{Item: r.item, Stamp: stamp, Token: r.token(), Force: force, Reason: "alice: it is in the way"})
	if err != nil {
		r.t.Fatal(err)
	}
	return res
}

// guest has a person open a pane of their own in the session, and returns its process.
func (r *rig) guest(command string) int {
	r.t.Helper()
	out, err := r.cmd("split-window", "-d", "-P", "-F", "#{pane_pid}", "-t", "="+r.item.Target()+":", command)
	pid, convErr := strconv.Atoi(strings.TrimSpace(out))
	if err != nil || convErr != nil {
		r.t.Fatalf("%v %v: %s", err, convErr, out)
	}
	return pid
}

func TestKill_OfTheLivingIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	of, _ := r.running(waits)
	if res := r.kill(of.Stamp, false); res.Outcome != host.EndRefused || res.Cause != host.RefusedLive {
		t.Errorf("%+v", res)
	}
	if res := r.kill("s0000000000", false); res.Outcome != host.EndRefused || res.Cause != host.RefusedIncarnation {
		t.Errorf("another: %+v", res)
	}
	if st := r.state(); st.State != session.Live || st.Incarnation.Stamp != of.Stamp {
		t.Errorf("%+v", st)
	}
}

func TestKill_OfTheDeadFreesTheName(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	of, _ := r.running(ending + "exit 7")
	r.finish()
	if res := r.kill("s0000000000", false); res.Outcome != host.EndRefused || res.Cause != host.RefusedIncarnation {
		t.Errorf("another: %+v", res)
	}
	if res := r.kill(of.Stamp, false); res.Outcome != host.EndDone || res.Already {
		t.Errorf("%+v", res)
	}
	if st := r.state(); st.State != session.Absent || st.Exit.Code != 7 {
		t.Errorf("how it ended is known all the same: %+v", st)
	}
	if res := r.kill(of.Stamp, false); res.Outcome != host.EndDone || !res.Already {
		t.Errorf("again: %+v", res)
	}
	if res := r.started("", ""); res.Incarnation.Stamp == of.Stamp {
		t.Errorf("%+v", res)
	}
}

func TestKill_WhereGuestsLiveIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	of, _ := r.running(waits)
	guest := r.guest("sleep 300")
	r.terminate(of.Stamp, time.Minute)
	if res := r.kill(of.Stamp, false); res.Outcome != host.EndRefused || res.Cause != host.RefusedGuests {
		t.Errorf("%+v", res)
	}
	if st := r.state(); st.State != session.Dead || !st.Flags.Has(session.Guests) || !r.alive(guest) {
		t.Errorf("%+v", st)
	}
}

// A guest that comes between the look and the act is seen by the guard, inside the server.
func TestKill_AGuestThatComesAtTheLastMomentIsSeen(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	of, _ := r.running(ending)
	r.finish()
	w := r.watch()
	guest := 0
	w.clear = func(ctx context.Context, m host.Removal) (bool, error) {
		if guest == 0 {
			guest = r.guest("sleep 300")
		}
		return w.Tmux.Remove(ctx, r.item.Target(), m)
	}
	if res := r.kill(of.Stamp, false); res.Outcome != host.EndRefused || res.Cause != host.RefusedGuests || !r.alive(guest) {
		t.Errorf("%+v", res)
	}
}

func TestKill_ByForceEndsTheAgentAndWhateverLivesInItsSession(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	of, pids := r.running("trap '' TERM HUP INT; " + leaves + waits)
	r.until("it left something", func() bool { return strings.Contains(r.screen(), "left") })
	guest := r.guest("sleep 300")
	r.person("new-session", "-d", "-s", "notes", "sleep 300")
	out, err := r.cmd("list-panes", "-t", "=notes:", "-F", "#{pane_pid}")
	notes, convErr := strconv.Atoi(strings.TrimSpace(out))
	if err != nil || convErr != nil {
		t.Fatalf("%v %v", err, convErr)
	}
	if res := r.kill(of.Stamp, true); res.Outcome != host.EndDone || res.Already || res.Whole != r.grouped(of.Stamp) {
		t.Errorf("%+v", res)
	}
	r.allGone(append(pids(), of.PanePid, guest)...)
	if st := r.state(); st.State != session.Absent {
		t.Errorf("%+v", st)
	}
	// What a person has beside it on the same server is not touched.
	if out, err := r.cmd("list-sessions", "-F", "#{session_name}"); err != nil || out != "notes\n" || !r.alive(notes) {
		t.Errorf("%q, %v", out, err)
	}
	if res := r.kill(of.Stamp, true); res.Outcome != host.EndDone || !res.Already {
		t.Errorf("again: %+v", res)
	}
}

func TestKill_ByForceOfAnotherIncarnationIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	of, _ := r.running(waits)
	if res := r.kill("s0000000000", true); res.Outcome != host.EndRefused || res.Cause != host.RefusedIncarnation {
		t.Errorf("%+v", res)
	}
	// Without a stamp it would be by name alone.
	_, err := r.Kill(r.ctx(), host.KillRequest{Item: r.item, Token: r.token(), Force: true, Reason: "alice"})
	if !errors.Is(err, fault.Invalid) || !strings.Contains(err.Error(), of.Stamp) {
		t.Errorf("%v", err)
	}
	if st := r.state(); st.State != session.Live || st.Incarnation.Stamp != of.Stamp || !r.alive(of.PanePid) {
		t.Errorf("%+v", st)
	}
}

func TestKill_ByForceOfASessionThatIsNotOurs(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.foreigner("sleep 300")
	out, err := r.cmd("list-panes", "-a", "-F", "#{pane_pid}")
	theirs, convErr := strconv.Atoi(strings.TrimSpace(out))
	if err != nil || convErr != nil {
		t.Fatalf("%v %v", err, convErr)
	}
	for _, force := range []bool{false, true} {
		if res := r.kill("s0000000000", force); res.Outcome != host.EndRefused || res.Cause != host.RefusedForeign {
			t.Errorf("force %v: %+v", force, res)
		}
	}
	if !r.alive(theirs) {
		t.Fatal("it was ended")
	}
	if res := r.kill("", true); res.Outcome != host.EndDone || res.Already {
		t.Errorf("%+v", res)
	}
	r.allGone(theirs)
	r.becomes(session.Absent)
	if res := r.kill("", true); res.Outcome != host.EndDone || !res.Already {
		t.Errorf("again: %+v", res)
	}
}

func TestKill_WhatOutlivesItsSessionIsNamed(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	of, _ := r.running(waits)
	guest := r.guest("trap '' HUP; echo armed; " + waits)
	defer func() { _ = syscall.Kill(guest, syscall.SIGKILL) }()
	r.until("the guest ignores a hang-up", func() bool {
		out, _ := r.cmd("capture-pane", "-p", "-t", "%1")
		return strings.Contains(out, "armed")
	})
	res := r.kill(of.Stamp, true)
	if res.Outcome != host.EndRemains || len(res.Pids) == 0 || res.Pids[len(res.Pids)-1] != guest && res.Pids[0] != guest || res.Detail == "" {
		t.Errorf("%+v, want %d", res, guest)
	}
	if st := r.becomes(session.Absent); st.Incarnation.Stamp != of.Stamp || r.alive(of.PanePid) {
		t.Errorf("%+v", st)
	}
}

func TestKill_WithoutAnAnswerOfTmuxIsAnError(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	of, _ := r.running(waits)
	r.stopServer()
	for _, force := range []bool{false, true} {
		_, err := r.Kill(r.ctx(), host.KillRequest{Item: r.item, Stamp: of.Stamp, Token: r.token(), Force: force, Reason: "alice"})
		if !errors.Is(err, fault.Unavailable) {
			t.Errorf("force %v: %v", force, err)
		}
		// By force the agent is ended first, which needs no tmux.
		if r.alive(of.PanePid) == force {
			t.Errorf("force %v: the agent lives: %v", force, !force)
		}
	}
	r.signal(of.Server.Pid, syscall.SIGCONT)
	r.becomes(session.Dead)
	if res := r.kill(of.Stamp, false); res.Outcome != host.EndDone || res.Already {
		t.Errorf("%+v", res)
	}
}

// removing has something happen right before a session is removed.
type removing struct {
	host.Tmux
	before func()
}

func (x *removing) Remove(ctx context.Context, target string, m host.Removal) (bool, error) {
	x.before()
	return x.Tmux.Remove(ctx, target, m)
}

// The guard names the incarnation: what was looked at and what is there when the act comes may be two.
func TestKill_ByForceDoesNotHitWhatCameMeanwhile(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	of, _ := r.running(waits)
	r.Tmux = &removing{r.Tmux, sync.OnceFunc(func() {
		r.person("kill-session", "-t", "="+r.item.Target()+":")
		r.until("the server is gone", func() bool { return r.tmux.Dial(r.item.Target()) == session.NoServer })
		r.another("sleep 300")
	})}
	res, err := r.Kill(r.ctx(), host.KillRequest{Item: r.item, Stamp: of.Stamp, Token: r.token(), Force: true, Reason: "alice"})
	if err != nil || res.Outcome != host.EndRefused || res.Cause != host.RefusedIncarnation {
		t.Errorf("%+v, %v", res, err)
	}
	if st := r.state(); st.State != session.Live || st.Incarnation.Stamp == of.Stamp {
		t.Errorf("%+v", st)
	}
}

func TestKill_AskedForBadlyIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	of, _ := r.running(waits)
	for name, req := range map[string]host.KillRequest{
		"force without a reason":   {Item: r.item, Stamp: of.Stamp, Token: 10, Force: true},
		"no force and no stamp":    {Item: r.item, Token: 10},
		"a path as a stamp":        {Item: r.item, Stamp: "../../x/yyyy", Token: 10, Force: true, Reason: "alice"},
		"no token":                 {Item: r.item, Stamp: of.Stamp, Force: true, Reason: "alice"},
		"a token below the latest": {Item: r.item, Stamp: of.Stamp, Token: -1},
	} {
		if res, err := r.Kill(r.ctx(), req); !errors.Is(err, fault.Invalid) {
			t.Errorf("%s: %+v, %v", name, res, err)
		}
	}
	r.tokens = 30
	r.kill("s0000000000", false)
	if _, err := r.Kill(r.ctx(), host.KillRequest{Item: r.item, Stamp: of.Stamp, Token: 30, Force: true, Reason: "alice"}); !errors.Is(err, fault.Fenced) {
		t.Errorf("%v", err)
	}
	if st := r.state(); st.State != session.Live {
		t.Errorf("%+v", st)
	}
}
