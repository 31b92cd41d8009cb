package main

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/core/workitem"
	"muxpost.dev/muxpost/internal/wrapper"
	"muxpost.dev/muxpost/services/tmuxd/internal/host"
)

// forEver keeps everything.
var forEver = host.Retain{Age: 100 * 365 * 24 * time.Hour, Count: 1000}

// ended starts and ends the session of an item, and waits until it is seen dead.
func (r *rig) ended(item workitem.Ref) host.Incarnation {
	r.t.Helper()
	res, err := r.Spawn(r.ctx(), host.SpawnRequest{Item: item, Harness: "fakeagent", Token: r.token()})
	if err != nil || res.Outcome != host.SpawnStarted {
		r.t.Fatalf("%+v, %v", res, err)
	}
	end, err := r.Terminate(r.ctx(), host.TerminateRequest{Item: item, Stamp: res.Incarnation.Stamp, Token: r.token(), Grace: time.Minute})
	if err != nil || end.Outcome != host.EndDone {
		r.t.Fatalf("%+v, %v", end, err)
	}
	r.isNow(item, session.Dead)
	return res.Incarnation
}

func (r *rig) isNow(item workitem.Ref, want session.State) {
	r.t.Helper()
	r.until(item.String()+" is "+want.String(), func() bool {
		st, err := r.State(r.ctx(), item, "")
		return err == nil && st.State == want
	})
}

// files are the names of the files below the state directory that name a target or a stamp.
func (r *rig) files(of ...string) []string {
	r.t.Helper()
	var out []string
	err := filepath.Walk(filepath.Join(r.dir, "state"), func(path string, info os.FileInfo, err error) error {
		name, _ := filepath.Rel(filepath.Join(r.dir, "state"), path)
		// Of a working tree it is remembered whose it is, as long as it is there.
		tree := strings.HasPrefix(name, "trees/")
		if err == nil && !tree && slices.ContainsFunc(of, func(s string) bool { return strings.Contains(name, s) }) {
			out = append(out, name)
		}
		return nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return out
}

// logged has the host write its log into a buffer.
func (r *rig) logged() *bytes.Buffer {
	log := &bytes.Buffer{}
	r.Logger = slog.New(slog.NewJSONHandler(log, nil))
	return log
}

// later has the host's clock go ahead.
func (r *rig) later(d time.Duration) { r.Now = func() time.Time { return time.Now().Add(d) } }

func (r *rig) waiting() {
	r.t.Helper()
	r.entry.Binary, r.entry.Fresh, r.entry.PromptArgs = "/bin/sh", []string{"-c", waits, "{conversation_id}"}, nil
	r.entry.Survival, r.entry.Transcript = 300*time.Millisecond, ""
	r.restart()
}

func TestReap_RemovesWhatIsOldAndNothingElse(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.waiting()
	old, lives := itemNo(t, 7), itemNo(t, 8)
	of := r.ended(old)
	beside, err := r.Spawn(r.ctx(), host.SpawnRequest{Item: lives, Harness: "fakeagent", Token: r.token()})
	if err != nil || beside.Outcome != host.SpawnStarted {
		t.Fatalf("%+v, %v", beside, err)
	}
	log := r.logged()
	keep := host.Retain{Age: time.Hour, Count: 10}
	r.Reap(r.ctx(), keep)
	r.isNow(old, session.Dead)
	r.later(2 * time.Hour)
	r.Reap(r.ctx(), keep)
	r.isNow(old, session.Absent)
	r.isNow(lives, session.Live)
	// Of the one nothing is left but what keeps an older act from coming back; of the other nothing is missing.
	if got := r.files(old.Target(), of.Stamp); !slices.Equal(got, []string{"tokens/" + old.Target() + ".json"}) {
		t.Errorf("left: %v", got)
	}
	if got := r.files(lives.Target()); len(got) < 3 {
		t.Errorf("left: %v", got)
	}
	if r.disk.ServerLives(host.Memory{Server: of.Server}) == session.ProcessAlive {
		t.Error("its server lives")
	}
	if text := log.String(); !strings.Contains(text, of.Stamp) || !strings.Contains(text, `"reason":"age"`) || strings.Contains(text, lives.Target()) {
		t.Errorf("logged: %s", text)
	}
	r.restart()
	if _, err := r.Spawn(r.ctx(), host.SpawnRequest{Item: old, Harness: "fakeagent", Token: 1}); !errors.Is(err, fault.Fenced) {
		t.Errorf("an older act came back: %v", err)
	}
	r.Reap(r.ctx(), keep) // what was forgotten is forgotten
	if got := r.files(old.Target()); !slices.Equal(got, []string{"tokens/" + old.Target() + ".json"}) {
		t.Errorf("left: %v", got)
	}
	if res, err := r.Spawn(r.ctx(), host.SpawnRequest{Item: old, Harness: "fakeagent", Token: r.token()}); err != nil || res.Outcome != host.SpawnStarted {
		t.Errorf("%+v, %v", res, err)
	}
}

func TestReap_TheOldestGoFirstWhenThereAreTooMany(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.waiting()
	for n := 1; n <= 4; n++ {
		r.ended(itemNo(t, n))
	}
	log := r.logged()
	r.Reap(r.ctx(), host.Retain{Age: forEver.Age, Count: 2})
	for n, want := range map[int]session.State{1: session.Absent, 2: session.Absent, 3: session.Dead, 4: session.Dead} {
		if st, err := r.State(r.ctx(), itemNo(t, n), ""); err != nil || st.State != want {
			t.Errorf("%d: %+v, %v", n, st, err)
		}
	}
	first, second := strings.Index(log.String(), itemNo(t, 1).Target()), strings.Index(log.String(), itemNo(t, 2).Target())
	if strings.Count(log.String(), `"reason":"count"`) != 2 || first < 0 || second < first {
		t.Errorf("logged: %s", log)
	}
}

func TestReap_WhatIsNotProvenToBeOverStays(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		script string
		make   func(*rig, host.Incarnation)
		state  session.State
	}{
		"it lives":                {waits, func(*rig, host.Incarnation) {}, session.Live},
		"it does not answer":      {ending, func(r *rig, _ host.Incarnation) { r.finish(); r.stopServer() }, session.Unknown},
		"somebody lives there":    {ending, func(r *rig, _ host.Incarnation) { r.finish(); r.guest("sleep 300") }, session.Dead},
		"somebody looks at it":    {ending, func(r *rig, _ host.Incarnation) { r.finish(); r.attach() }, session.Dead},
		"somebody looks, only":    {ending, func(r *rig, _ host.Incarnation) { r.finish(); r.attach("-r") }, session.Dead},
		"it was respawned":        {ending, func(r *rig, _ host.Incarnation) { r.finish(); r.person("respawn-pane", "-t", "%0", "sleep 300") }, session.Dead},
		"its record says nothing": {waits, (*rig).unreadable, session.Unknown},
		"it lives elsewhere":      {waits, func(r *rig, _ host.Incarnation) { r.person("rename-session", "-t", "="+r.item.Target()+":", "mine") }, session.Live},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, nil)
			of, _ := r.running(row.script)
			row.make(r, of)
			r.later(2 * time.Hour)
			before := r.files(r.item.Target(), of.Stamp)
			r.Reap(r.ctx(), host.Retain{Age: time.Minute})
			if after := r.files(r.item.Target(), of.Stamp); !slices.Equal(before, after) {
				t.Errorf("there were %v, and are %v", before, after)
			}
			if st := r.state(); st.State != row.state {
				t.Errorf("%+v", st)
			}
		})
	}
}

// unreadable ends a session of which a later version has written the record.
func (r *rig) unreadable(of host.Incarnation) {
	r.t.Helper()
	r.person("kill-server")
	r.until("its wrapper is gone", func() bool { return !r.alive(of.PanePid) })
	if err := os.WriteFile(r.recordFile(of.Stamp), []byte(`{"version":99}`), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

func TestReap_AClientOfOursIsNobodyWhoLooks(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.running(ending)
	r.finish()
	r.state() // over a connection that is attached to the session
	if out, err := r.cmd("display-message", "-p", "-t", "="+r.item.Target()+":", "#{session_attached}"); err != nil || out != "1\n" {
		t.Fatalf("%q, %v: nothing is attached, so nothing is shown", out, err)
	}
	r.later(2 * time.Hour)
	r.Reap(r.ctx(), host.Retain{Age: time.Hour})
	r.becomes(session.Absent)
}

func TestReap_WhatIsGoneAnywayIsForgottenByItsAge(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.running(waits)
	r.person("kill-server")
	r.becomes(session.Absent)
	r.Reap(r.ctx(), host.Retain{Age: time.Hour, Count: 0})
	if got := r.files(r.item.Target()); len(got) < 2 {
		t.Errorf("it was forgotten: %v", got)
	}
	r.later(2 * time.Hour)
	r.Reap(r.ctx(), host.Retain{Age: time.Hour, Count: 0})
	if got := r.files(r.item.Target()); !slices.Equal(got, []string{"tokens/" + r.item.Target() + ".json"}) {
		t.Errorf("left: %v", got)
	}
	// And what keeps an older act away, once none can come any more.
	keep := host.Retain{Age: time.Hour, Journal: 48 * time.Hour}
	r.Reap(r.ctx(), keep)
	if got := r.files(r.item.Target()); len(got) != 1 {
		t.Errorf("left: %v", got)
	}
	r.later(49 * time.Hour)
	r.Reap(r.ctx(), keep)
	if got := r.files(r.item.Target()); len(got) > 0 {
		t.Errorf("left: %v", got)
	}
}

// What the record of an incarnation alone knew is in the journal before it goes: a first prompt that may have been read is not typed again.
func TestReap_AFirstPromptThatMayHaveBeenReadStaysSo(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.entry.Transcript = "" // nothing else could tell
	r.restart()
	res := r.started(d1, "hello there")
	r.terminate(res.Incarnation.Stamp, time.Minute)
	r.later(2 * time.Hour)
	r.Reap(r.ctx(), host.Retain{Age: time.Hour})
	if got := r.files(res.Incarnation.Stamp); len(got) > 0 {
		t.Fatalf("left: %v", got)
	}
	st, err := r.State(r.ctx(), r.item, d1)
	if err != nil || st.State != session.Absent || !st.Phase.MayHaveArrived() {
		t.Errorf("%+v, %v", st, err)
	}
	if again := r.spawn(d1, "hello there"); again.Outcome != host.SpawnFailed || again.Reason != "prompt_may_have_arrived" {
		t.Errorf("%+v", again)
	}
}

func TestReap_EndsWhatAKilledWrapperLeftBehind(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"with what there is", "without a control group"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, nil)
			of, pids := r.running(leaves + waits)
			r.until("it left something", func() bool { return strings.Contains(r.screen(), "left") })
			agent := r.record(of.Stamp).Child.Pid
			if r.grouped(of.Stamp) && name == "without a control group" {
				defer r.withoutGroup(of.Stamp)()
			}
			log := r.logged()
			r.Reap(r.ctx(), forEver)
			if st := r.state(); st.State != session.Live || st.Flags != 0 || len(pids()) != 3 || !r.alive(pids()[0]) {
				t.Fatalf("it lived, and was harmed: %+v", st)
			}
			r.signal(of.PanePid, syscall.SIGKILL)
			r.until("the agent is dead", func() bool { return !r.alive(agent) && !r.alive(of.PanePid) })
			r.Reap(r.ctx(), forEver)
			r.allGone(pids()...)
			if st := r.becomes(session.Dead); st.Flags != 0 {
				t.Errorf("%+v", st)
			}
			if rec := r.record(of.Stamp); rec.State != wrapper.Lost || rec.EndedAt.IsZero() || !rec.Swept {
				t.Errorf("%+v", rec)
			}
			if !strings.Contains(log.String(), "whose wrapper was killed") || !strings.Contains(log.String(), of.Stamp) {
				t.Errorf("logged: %s", log)
			}
			if res := r.started("", ""); res.Incarnation.Stamp == of.Stamp {
				t.Errorf("%+v", res)
			}
		})
	}
}

func TestReap_AnAgentThatLivesWithoutItsWrapperIsNotTouched(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	of, _ := r.running(waits)
	rec := r.record(of.Stamp)
	r.terminate(of.Stamp, time.Minute)
	// As where a harness shook off the signal that ends it with its wrapper.
	agent := r.bystander()
	rec.Child, rec.Group = agent, ""
	if err := wrapper.WriteRecord(r.recordFile(of.Stamp), rec); err != nil {
		t.Fatal(err)
	}
	r.later(2 * time.Hour)
	r.Reap(r.ctx(), host.Retain{Age: time.Hour})
	if st := r.state(); st.State != session.Live || !st.Flags.Has(session.Detached) || !r.alive(agent.Pid) {
		t.Errorf("%+v", st)
	}
}
