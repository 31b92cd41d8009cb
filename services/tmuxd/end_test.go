package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/internal/wrapper"
	"muxpost.dev/muxpost/services/tmuxd/internal/host"
)

const (
	// waits is a program that waits until it is ended, immune one that takes nothing but a KILL, and ending one that ends when finish says so.
	waits  = "while :; do sleep 0.1; done"
	immune = "trap '' TERM HUP INT; " + waits
	ending = "while [ ! -e $F.end ]; do sleep 0.05; done; "
)

// running starts a session whose program is a script of the shell. What its lines write into $F are process ids.
func (r *rig) running(script string) (host.Incarnation, func() []int) {
	r.t.Helper()
	file := filepath.Join(r.dir, "pids")
	r.entry.Binary, r.entry.Fresh = "/bin/sh", []string{"-c", "F=" + file + "; export F; echo ready; " + script, "{conversation_id}"}
	r.entry.PromptArgs, r.entry.Survival, r.entry.Transcript = nil, 300*time.Millisecond, ""
	r.restart()
	res := r.started("", "")
	pids := func() []int {
		data, _ := os.ReadFile(file)
		var out []int
		for f := range strings.FieldsSeq(string(data)) {
			pid, err := strconv.Atoi(f)
			if err != nil {
				r.t.Fatal(err)
			}
			out = append(out, pid)
		}
		return out
	}
	return res.Incarnation, pids
}

// finish has the program end, and waits until that is seen.
func (r *rig) finish() {
	r.t.Helper()
	if err := os.WriteFile(filepath.Join(r.dir, "pids.end"), nil, 0o600); err != nil {
		r.t.Fatal(err)
	}
	r.becomes(session.Dead)
	if err := os.Remove(filepath.Join(r.dir, "pids.end")); err != nil {
		r.t.Fatal(err)
	}
}

// alive reports whether a process lives.
func (r *rig) alive(pid int) bool {
	r.t.Helper()
	p, err := wrapper.Find(pid)
	if err != nil {
		return false
	}
	alive, err := p.Alive()
	if err != nil {
		r.t.Fatal(err)
	}
	return alive
}

// allGone expects that none of these lives.
func (r *rig) allGone(pids ...int) {
	r.t.Helper()
	if len(pids) == 0 {
		r.t.Error("nothing was there, so nothing is shown")
	}
	for _, pid := range pids {
		if pid <= 1 || r.alive(pid) {
			r.t.Errorf("%d lives on", pid)
		}
	}
}

// terminate ends an incarnation under a new token, with a short grace.
func (r *rig) terminate(stamp string, grace time.Duration) host.EndResult {
	r.t.Helper()
	res, err := r.Terminate(r.ctx(), host.TerminateRequest{Item: r.item, Stamp: stamp, Token: r.token(), Grace: grace})
	if err != nil {
		r.t.Fatal(err)
	}
	return res
}

// grouped reports whether agents have control groups here.
func (r *rig) grouped(stamp string) bool {
	r.t.Helper()
	return r.record(stamp).Group != ""
}

func (r *rig) record(stamp string) wrapper.Record {
	r.t.Helper()
	rec, err := wrapper.ReadRecord(r.recordFile(stamp))
	if err != nil {
		r.t.Fatal(err)
	}
	return rec
}

// removeGroups removes the control groups that are left where a test killed a wrapper.
func (r *rig) removeGroups() {
	files, _ := filepath.Glob(filepath.Join(r.dir, "state", "records", "*.json"))
	for _, file := range files {
		if rec, err := wrapper.ReadRecord(file); err == nil {
			_, _ = rec.KillLeft(time.Second)
			_ = rec.Group.Remove()
		}
	}
}

func (r *rig) recordFile(stamp string) string {
	return filepath.Join(r.dir, "state", "records", r.item.Target()+"."+stamp+".json")
}

// leaves starts what outlives a hang-up, in three ways, each telling its process id.
const leaves = `nohup sh -c 'trap "" TERM; echo $$ >> $F; ` + waits + `' >/dev/null 2>&1 &
	setsid sh -c 'echo $$ >> $F; ` + waits + `' &
	( ( sh -c 'trap "" HUP; echo $$ >> $F; ` + waits + `' & ) & )
	while [ "$(wc -l < $F 2>/dev/null)" != 3 ]; do sleep 0.05; done; echo left; `

func TestTerminate_EndsALivingAgentWithAllThatItStarted(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	neighbour := itemNo(t, 8)
	beside, err := r.Spawn(r.ctx(), host.SpawnRequest{Item: neighbour, Harness: "fakeagent", Token: r.token()})
	if err != nil || beside.Outcome != host.SpawnStarted {
		t.Fatalf("%+v, %v", beside, err)
	}
	of, pids := r.running(leaves + "trap 'echo bye; exit 3' TERM; " + waits)
	r.until("it left something", func() bool { return strings.Contains(r.screen(), "left") })
	agent := r.record(of.Stamp).Child.Pid
	res := r.terminate(of.Stamp, time.Minute)
	if res.Outcome != host.EndDone || res.Already || res.Killed || !res.Exit.Known || res.Exit.Code != 3 || res.Whole != r.grouped(of.Stamp) {
		t.Errorf("%+v", res)
	}
	r.allGone(append(pids(), agent, of.PanePid)...)
	if got := len(pids()); got != 3 {
		t.Errorf("%d of 3 were there", got)
	}
	// The pane stays, and with it what it showed.
	if st := r.state(); st.State != session.Dead || st.Flags != 0 || st.Exit.Code != 3 || !strings.Contains(r.screen(), "bye") {
		t.Errorf("%+v\n%s", st, r.screen())
	}
	if again := r.terminate(of.Stamp, time.Minute); again.Outcome != host.EndDone || !again.Already || again.Killed || again.Exit.Code != 3 {
		t.Errorf("again: %+v", again)
	}
	if st, err := r.State(r.ctx(), neighbour, ""); err != nil || st.State != session.Live || st.Incarnation.Stamp != beside.Incarnation.Stamp {
		t.Errorf("the neighbour: %+v, %v", st, err)
	}
}

func TestTerminate_KillsWhatDoesNotTakeATerm(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	of, pids := r.running("trap '' TERM HUP INT; " + leaves + waits)
	r.until("it left something", func() bool { return strings.Contains(r.screen(), "left") })
	began := time.Now()
	res := r.terminate(of.Stamp, 700*time.Millisecond)
	if res.Outcome != host.EndDone || !res.Killed || res.Exit.Signal != int(syscall.SIGKILL) || res.Whole != r.grouped(of.Stamp) {
		t.Errorf("%+v", res)
	}
	if took := time.Since(began); took < 700*time.Millisecond {
		t.Errorf("it was killed after %v", took)
	}
	r.allGone(append(pids(), of.PanePid)...)
	if st := r.becomes(session.Dead); st.Exit.Signal != int(syscall.SIGKILL) {
		t.Errorf("%+v", st)
	}
}

func TestTerminate_AStoppedAgentIsEndedToo(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	of, pids := r.running("sh -c 'echo $$ >> $F; " + waits + "'; exit 3")
	r.until("it runs", func() bool { return len(pids()) == 1 })
	r.signal(pids()[0], syscall.SIGSTOP)
	if res := r.terminate(of.Stamp, time.Minute); res.Outcome != host.EndDone || res.Killed {
		t.Errorf("%+v", res)
	}
	r.allGone(append(pids(), of.PanePid)...)
}

func TestTerminate_TouchesNothingElseThanWhatWasNamed(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	first, _ := r.running(immune)
	r.terminate(first.Stamp, 100*time.Millisecond)
	second := r.started("", "").Incarnation
	// R41: an order to end the first life comes late.
	for name, stamp := range map[string]string{"the earlier one": first.Stamp, "one that never was": "s0000000000"} {
		if res := r.terminate(stamp, 0); res.Outcome != host.EndRefused || res.Cause != host.RefusedIncarnation || res.Detail == "" {
			t.Errorf("%s: %+v", name, res)
		}
	}
	if st := r.state(); st.State != session.Live || st.Flags != 0 || st.Incarnation.Stamp != second.Stamp {
		t.Errorf("%+v", st)
	}
}

func TestTerminate_ASessionThatIsNotOursIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	if res := r.terminate("s0000000000", 0); res.Outcome != host.EndRefused || res.Cause != host.RefusedAbsent {
		t.Errorf("absent: %+v", res)
	}
	r.foreigner("sleep 300")
	if res := r.terminate("s0000000000", 0); res.Outcome != host.EndRefused || res.Cause != host.RefusedForeign {
		t.Errorf("foreign: %+v", res)
	}
	if st := r.state(); st.State != session.Live || !st.Flags.Has(session.Foreign) {
		t.Errorf("%+v", st)
	}
}

func TestTerminate_OfWhatHasEndedSaysSo(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	of, _ := r.running(ending + "exit 7")
	r.finish()
	if res := r.terminate(of.Stamp, 0); res.Outcome != host.EndDone || !res.Already || res.Killed || res.Exit.Code != 7 {
		t.Errorf("dead: %+v", res)
	}
	r.person("kill-server")
	r.becomes(session.Absent)
	if res := r.terminate(of.Stamp, 0); res.Outcome != host.EndDone || !res.Already || res.Exit.Code != 7 {
		t.Errorf("absent: %+v", res)
	}
}

func TestTerminate_AskedForBadlyIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	of, _ := r.running(waits)
	for name, req := range map[string]host.TerminateRequest{
		"no stamp":          {Item: r.item, Token: 10},
		"a path as a stamp": {Item: r.item, Stamp: "../../x/yyyy", Token: 10},
		"no token":          {Item: r.item, Stamp: of.Stamp},
		"too long a grace":  {Item: r.item, Stamp: of.Stamp, Token: 10, Grace: 2 * time.Minute},
		"a grace below 0":   {Item: r.item, Stamp: of.Stamp, Token: 10, Grace: -1},
	} {
		if res, err := r.Terminate(r.ctx(), req); !errors.Is(err, fault.Invalid) {
			t.Errorf("%s: %+v, %v", name, res, err)
		}
	}
	if st := r.state(); st.State != session.Live {
		t.Errorf("%+v", st)
	}
}

func TestTerminate_AnOlderTokenIsFenced(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	of, _ := r.running(waits)
	r.tokens = 20
	if res := r.terminate("s0000000000", 0); res.Outcome != host.EndRefused { // the token that it saw binds, whatever came of it
		t.Fatalf("%+v", res)
	}
	if _, err := r.Terminate(r.ctx(), host.TerminateRequest{Item: r.item, Stamp: of.Stamp, Token: 20}); !errors.Is(err, fault.Fenced) {
		t.Errorf("%v", err)
	}
	if st := r.state(); st.State != session.Live || st.Incarnation.Stamp != of.Stamp {
		t.Errorf("%+v", st)
	}
}

// A tmux server that does not answer stops nobody: the processes are on disk.
func TestTerminate_WithoutAnAnswerOfTmux(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	of, pids := r.running("trap '' TERM HUP INT; " + leaves + waits)
	r.until("it left something", func() bool { return strings.Contains(r.screen(), "left") })
	r.stopServer()
	res := r.terminate(of.Stamp, 100*time.Millisecond)
	if res.Outcome != host.EndDone || res.Already || res.Exit.Signal != int(syscall.SIGKILL) {
		t.Errorf("%+v", res)
	}
	r.allGone(append(pids(), of.PanePid)...)
	if st := r.state(); st.State != session.Unknown {
		t.Errorf("a server that does not answer says nothing: %+v", st)
	}
	if again := r.terminate(of.Stamp, 0); again.Outcome != host.EndDone || !again.Already {
		t.Errorf("again: %+v", again)
	}
	if res := r.terminateErr("s0000000000"); !errors.Is(res, fault.Unavailable) {
		t.Errorf("another one, of which nothing is known: %v", res)
	}
	r.signal(of.Server.Pid, syscall.SIGCONT)
	if st := r.becomes(session.Dead); st.Incarnation.Stamp != of.Stamp || !strings.Contains(r.screen(), "left") {
		t.Errorf("%+v", st)
	}
}

func (r *rig) terminateErr(stamp string) error {
	_, err := r.Terminate(r.ctx(), host.TerminateRequest{Item: r.item, Stamp: stamp, Token: r.token()})
	return err
}

// Where tmux alone could tell who the agent is, its silence is an error, and nothing is touched.
func TestTerminate_WithoutARecordTmuxHasToAnswer(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	of, _ := r.running(waits)
	if err := os.Remove(r.recordFile(of.Stamp)); err != nil {
		t.Fatal(err)
	}
	r.stopServer()
	if err := r.terminateErr(of.Stamp); !errors.Is(err, fault.Unavailable) {
		t.Errorf("%v", err)
	}
	if !r.alive(of.PanePid) {
		t.Error("it was ended")
	}
	r.signal(of.Server.Pid, syscall.SIGCONT)
	r.becomes(session.Live)
	if res := r.terminate(of.Stamp, time.Minute); res.Outcome != host.EndDone || res.Already {
		t.Errorf("%+v", res)
	}
	r.allGone(of.PanePid)
}

func TestTerminate_ARecordThatCannotBeReadIsNoEnd(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	of, _ := r.running(waits)
	for name, content := range map[string]string{"a later version": `{"version":99,"state":"exited"}`, "half": `{"version":1,`,
		"of another": `{"version":1,"stamp":"s0000000000","state":"exited"}`} {
		if err := os.WriteFile(r.recordFile(of.Stamp), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := r.terminateErr(of.Stamp); !errors.Is(err, fault.Unavailable) {
			t.Errorf("%s: %v", name, err)
		}
		if st := r.state(); st.State != session.Live || !r.alive(of.PanePid) {
			t.Errorf("%s: %+v", name, st)
		}
	}
}

// A wrapper that was killed leaves what its agent started. It is found by the control group, and without one by the stamp.
func TestTerminate_WhatAKilledWrapperLeftIsFound(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"with what there is", "without a control group"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, nil)
			of, pids := r.running(leaves + waits)
			r.until("it left something", func() bool { return strings.Contains(r.screen(), "left") })
			grouped := r.grouped(of.Stamp)
			agent := r.record(of.Stamp).Child.Pid
			r.signal(of.PanePid, syscall.SIGKILL)
			r.until("the agent is dead", func() bool { return !r.alive(agent) && !r.alive(of.PanePid) })
			if name == "without a control group" && grouped {
				grouped = false
				defer r.withoutGroup(of.Stamp)()
			}
			for _, pid := range pids() {
				if !r.alive(pid) {
					t.Fatalf("%d is gone already, so nothing is shown", pid)
				}
			}
			if st := r.state(); st.State != session.Live || !st.Flags.Has(session.Detached) {
				t.Errorf("something of it lives: %+v", st)
			}
			res := r.terminate(of.Stamp, 300*time.Millisecond)
			if res.Outcome != host.EndDone || res.Already || !res.Killed || res.Whole != grouped {
				t.Errorf("%+v", res)
			}
			r.allGone(pids()...)
			if st := r.becomes(session.Dead); st.Exit.Signal != int(syscall.SIGKILL) {
				t.Errorf("%+v", st)
			}
			if rec := r.record(of.Stamp); rec.State != wrapper.Lost || rec.EndedAt.IsZero() || !rec.Swept {
				t.Errorf("%+v", rec)
			}
		})
	}
}

// withoutGroup takes the control group out of a record, as of a host that has none, and returns what removes it.
func (r *rig) withoutGroup(stamp string) (remove func()) {
	r.t.Helper()
	rec := r.record(stamp)
	group := rec.Group
	rec.Group = ""
	if err := wrapper.WriteRecord(r.recordFile(stamp), rec); err != nil {
		r.t.Fatal(err)
	}
	return func() {
		if err := group.Remove(); err != nil {
			r.t.Error(err)
		}
	}
}

func TestTerminate_APidThatIsUsedAgainIsNotHit(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	of, _ := r.running(ending)
	r.finish()
	victim := r.bystander()
	rec := r.record(of.Stamp)
	rec.State, rec.Code, rec.Signal, rec.Swept = wrapper.Running, 0, 0, false
	rec.Wrapper.Pid, rec.Child.Pid = victim.Pid, victim.Pid
	if err := wrapper.WriteRecord(r.recordFile(of.Stamp), rec); err != nil {
		t.Fatal(err)
	}
	if res := r.terminate(of.Stamp, 100*time.Millisecond); res.Outcome != host.EndDone || !res.Already {
		t.Errorf("%+v", res)
	}
	if !r.alive(victim.Pid) {
		t.Error("it was hit")
	}
}

// bystander is a process that has nothing to do with any session.
func (r *rig) bystander() wrapper.Process {
	r.t.Helper()
	cmd := exec.Command("sleep", "300")
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	p, err := wrapper.Find(cmd.Process.Pid)
	if err != nil {
		r.t.Fatal(err)
	}
	return p
}

func TestTerminate_AnAgentThatLostItsSessionIsEnded(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.outlived()
	st := r.state()
	if st.State != session.Live || !st.Flags.Has(session.Detached) {
		t.Fatalf("%+v", st)
	}
	pid := st.Incarnation.PanePid
	if res := r.terminate(st.Incarnation.Stamp, 100*time.Millisecond); res.Outcome != host.EndDone || res.Already {
		t.Errorf("%+v", res)
	}
	r.allGone(pid)
	r.becomes(session.Absent)
}

func TestTerminate_FollowsAnAgentToAnotherName(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	of, _ := r.running(waits)
	r.person("rename-session", "-t", "="+r.item.Target()+":", "mine")
	if res := r.terminate(of.Stamp, time.Minute); res.Outcome != host.EndDone || res.Already {
		t.Errorf("%+v", res)
	}
	r.allGone(of.PanePid)
	if out, err := r.cmd("list-sessions", "-F", "#{session_name}"); err != nil || out != "mine\n" {
		t.Errorf("%q, %v", out, err)
	}
}

// What a person has in the session is not the agent's, and stays.
func TestTerminate_LeavesThePersonsPaneAlone(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	of, _ := r.running(waits)
	guest := r.guest("sleep 300")
	if res := r.terminate(of.Stamp, time.Minute); res.Outcome != host.EndDone || res.Already {
		t.Errorf("%+v", res)
	}
	if st := r.state(); st.State != session.Dead || !st.Flags.Has(session.Guests) || !r.alive(guest) {
		t.Errorf("%+v", st)
	}
}

func TestTerminate_AStartThatNobodyBeganNeverBegins(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	m := host.Memory{Target: r.item.Target(), WorkItem: r.item.String(), Stamp: "s0000000001", Harness: "fakeagent", CreatedAt: time.Now()}
	if err := r.disk.Remember(m); err != nil {
		t.Fatal(err)
	}
	if _, err := r.disk.Prepare(host.Run{Target: m.Target, Stamp: m.Stamp, Argv: []string{"/bin/true", "x"}, NotAfter: time.Now().Add(time.Minute)}); err != nil {
		t.Fatal(err)
	}
	if res := r.terminate(m.Stamp, 0); res.Outcome != host.EndDone || !res.Already || res.Exit.Known {
		t.Errorf("%+v", res)
	}
	if r.disk.Revoke(m.Stamp) {
		t.Error("its spec still lies there")
	}
}

func TestTerminate_ManyAtOnceAgree(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	of, _ := r.running(immune)
	results := make(chan host.EndResult, 4)
	token := r.token()
	for range cap(results) {
		go func() {
			res, err := r.Terminate(r.ctx(), host.TerminateRequest{Item: r.item, Stamp: of.Stamp, Token: token, Grace: 200 * time.Millisecond})
			if err != nil {
				t.Error(err)
			}
			results <- res
		}()
	}
	already := 0
	for range cap(results) {
		res := <-results
		if res.Outcome != host.EndDone || res.Exit.Signal != int(syscall.SIGKILL) {
			t.Errorf("%+v", res)
		}
		if res.Already {
			already++
		}
	}
	if already != cap(results)-1 {
		t.Errorf("%d of %d found it ended already", already, cap(results))
	}
}
