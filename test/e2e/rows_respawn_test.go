package e2e

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	tmuxdv1 "muxpost.dev/muxpost/proto/gen/muxpost/tmuxd/v1"
)

// Rows of docs/cases.md, table E. What happens between the probe and the respawn happens right before the spawn that the dispatcher orders.

func TestRespawn_ByTheTable(t *testing.T) {
	t.Parallel()
	s := startRows(t)
	rows := respawnRows()
	maps.Copy(rows, occupantRows())
	s.run(t, 300, "together", rows)
	s.run(t, 400, "alone", map[string]func(*row){
		// The host is greeted anew after that, and then takes no lease as old as those that others hold.
		"the answer to the resume is lost": func(r *row) {
			first := r.begun()
			r.dies()
			r.gate.lose(r.item, "Spawn")
			r.gets(true, waiting, "spawn_no_answer")
			stamp := r.state().GetIncarnation().GetStamp()
			r.gets(false, delivered, "already")
			r.has(first.GetConversationId(), 1, 2)
			r.ordered(2)
			r.harmless(2, stamp)
			if s := r.record(); s.GetConversationId() != first.GetConversationId() || len(s.GetLineage()) > 0 {
				r.t.Errorf("%v", s)
			}
		},
	})
	s.run(t, 500, "last", map[string]func(*row){
		"resume is off by configuration": func(r *row) {
			first := r.begun()
			r.dies()
			r.configure("  harness: fakeagent\n", "  harness: fakeagent\n  resume: false\n")
			pid := r.pid("dispatcher")
			r.signal(pid, syscall.SIGTERM)
			r.until("the dispatcher has ended", func() bool { return gone(pid) })
			if out, err := r.Run(r.ctx, "up"); err != nil {
				r.t.Fatalf("%v\n%s", err, out)
			}
			r.replaced(first, "")
		},
	})
}

// respawnRows are those in which nobody interferes.
func respawnRows() map[string]func(*row) {
	return map[string]func(*row){
		"dead, resumed":   func(r *row) { r.resumed(r.dies) },
		"absent, resumed": func(r *row) { r.resumed(r.vanishes) },
		"the resume dies": func(r *row) {
			first := r.begun()
			r.dies()
			// The agent's own record is gone: it does not know the conversation any more, and says so a second after its start.
			old := first.GetConversationId()
			if err := os.Rename(r.Conversation(old).Path(), r.Conversation(old).Path()+".away"); err != nil {
				r.t.Fatal(err)
			}
			d := r.gets(true, delivered, "respawned_fresh")
			var events []*dispatcherv1.Event
			if d.GetAsked() == 1 {
				events = r.told("session.resume_failed", "session.respawned", "dispatch.succeeded")
				r.ordered(3)
			} else { // on a slow machine there may be no time left for the fresh start in the same run
				events = r.happened()
			}
			if field(events, "session.resume_failed", "reason") != "resume_failed" || field(events, "session.respawned", "resumed") != "false" {
				r.t.Errorf("%v", events)
			}
			if s := r.record(); s.GetConversationId() != d.GetConversationId() || !slices.Equal(s.GetLineage(), []string{old}) {
				r.t.Errorf("%v", s)
			}
			r.has(d.GetConversationId(), 2)
		},
		"the harness cannot resume": func(r *row) {
			r.harness = noResume
			first := r.begun()
			r.dies()
			r.replaced(first, "cannot_resume")
			r.ordered(2)
		},
		"no conversation is known": func(r *row) {
			r.harness = noID
			first := r.begun()
			r.dies()
			r.replaced(first, "")
			r.ordered(2)
		},
		"the id is shaped like a flag": func(r *row) {
			r.harness = noID
			first := r.begun()
			r.dies()
			r.sql(`update dispatcher.sessions set conversation_id = '--help' where work_item = $1`, r.item)
			r.replaced(first, "bad_conversation_id")
			for _, pid := range []int{r.agent(), int(r.state().GetIncarnation().GetPanePid()), r.server()} {
				if line := commandLine(pid); line == "" || strings.Contains(line, "--help") {
					r.t.Errorf("%d was started as %q", pid, line)
				}
			}
		},
		"the host's table does not have the harness": func(r *row) {
			r.begun()
			r.vanishes()
			r.sql(`update dispatcher.sessions set harness = 'codx' where work_item = $1`, r.item)
			d := r.gets(true, failedOnce, "spawn_refused")
			r.told("dispatch.failed")
			if !strings.Contains(d.GetDetail(), "codx") {
				r.t.Errorf("%q", d.GetDetail())
			}
			if st := r.state(); st.GetState() != tmuxdv1.State_STATE_ABSENT {
				r.t.Errorf("%v", st)
			}
		},
		"another error": func(r *row) {
			first := r.begun()
			r.vanishes()
			if err := os.RemoveAll(r.socket()); err != nil {
				r.t.Fatal(err)
			}
			if err := os.MkdirAll(r.socket()+"/in the way", 0o700); err != nil {
				r.t.Fatal(err)
			}
			r.gets(true, failedOnce, "spawn_error")
			r.told("session.resume_failed", "dispatch.failed")
			r.ordered(3)
			if err := os.RemoveAll(r.socket()); err != nil {
				r.t.Fatal(err)
			}
			r.gets(false, delivered, "resumed")
			r.has(first.GetConversationId(), 1, 2)
		},
	}
}

// occupantRows are those in which the name is somebody's by the time of the respawn.
func occupantRows() map[string]func(*row) {
	return map[string]func(*row){
		"taken by a living session of ours": func(r *row) {
			first := r.begun()
			r.dies()
			r.gate.before(r.item, "Spawn", func() { r.revived(first.GetConversationId()) })
			r.averted(first)
		},
		"taken by a living session of ours, and the paste fails": func(r *row) {
			first := r.begun()
			r.dies()
			r.gate.before(r.item, "Spawn", func() { r.revived(first.GetConversationId()) })
			r.gate.before(r.item, "Paste", r.dies)
			r.gets(true, failedOnce, "session_ended")
			r.told("dispatch.failed")
			r.ordered(2)
			r.gets(false, delivered, "resumed")
			r.has(first.GetConversationId(), 1, 2)
		},
		"taken by somebody else": func(r *row) {
			r.begun()
			r.dies()
			r.gate.before(r.item, "Spawn", func() { r.free(); r.taken() })
			r.occupied(r.gets(true, droppedOnce, "session-occupied"))
			r.ordered(2)
		},
		"taken by a guest": func(r *row) {
			r.begun()
			r.dies()
			r.gate.before(r.item, "Spawn", func() { r.person("split-window", "-d", "-t", "%0", "cat -v") })
			r.occupied(r.gets(true, droppedOnce, "session-occupied"))
			r.ordered(2)
		},
		"dead with a guest from the start": func(r *row) {
			r.begun()
			r.person("split-window", "-d", "-t", "%0", "cat -v")
			r.dies()
			r.occupied(r.gets(true, droppedOnce, "session-occupied"))
			r.ordered(1)
		},
		"nobody answers by then": func(r *row) {
			first := r.begun()
			r.dies()
			server := r.server()
			r.gate.before(r.item, "Spawn", func() { r.signal(server, syscall.SIGSTOP) })
			r.gets(true, waiting, "spawn_no_answer")
			r.told()
			r.signal(server, syscall.SIGCONT)
			r.gets(false, delivered, "resumed")
			r.has(first.GetConversationId(), 1, 2)
		},
		"a fresh start, taken by a living session of ours": func(r *row) {
			r.harness = noID
			r.begun()
			r.dies()
			r.gate.before(r.item, "Spawn", func() { r.revived("") })
			r.gets(true, delivered, "averted")
			r.told("session.respawn_averted", "dispatch.succeeded")
			r.ordered(2)
		},
		"a fresh start, taken by somebody else": func(r *row) {
			r.harness = noID
			r.begun()
			r.dies()
			r.gate.before(r.item, "Spawn", func() { r.free(); r.taken() })
			r.occupied(r.gets(true, droppedOnce, "session-occupied"))
			r.ordered(2)
		},
		"a first spawn, taken by a living session of ours": func(r *row) {
			r.gate.before(r.item, "Spawn", func() { r.revived("") })
			r.gets(true, delivered, "pasted")
			r.told("session.registered", "dispatch.succeeded")
			r.ordered(1)
		},
		"a first spawn, taken by somebody else": func(r *row) {
			r.gate.before(r.item, "Spawn", r.taken)
			r.occupied(r.gets(true, droppedOnce, "session-occupied"), "session.spawn_failed")
			r.ordered(1)
		},
	}
}

// resumed has the session end, and expects the next delivery to bring it back with its conversation, under its name.
func (r *row) resumed(end func()) {
	r.t.Helper()
	first := r.begun()
	end()
	probes := r.gate.count(r.item, "SessionState")
	d := r.gets(true, delivered, "resumed")
	events := r.told("session.respawned", "dispatch.succeeded")
	conversation := first.GetConversationId()
	if field(events, "session.respawned", "resumed") != "true" || field(events, "session.respawned", "conversation_id") != conversation {
		r.t.Errorf("%v", events)
	}
	s := r.record()
	if s.GetConversationId() != conversation || len(s.GetLineage()) > 0 || s.GetTarget() != r.target || d.GetConversationId() != conversation {
		r.t.Errorf("%v", s)
	}
	if line := commandLine(r.agent()); !strings.Contains(line, "--resume "+conversation) {
		r.t.Errorf("it was started as %q", line)
	}
	if n := r.gate.count(r.item, "SessionState") - probes; n > 2 { // the delivery's own, and what this test asked for the agent
		r.t.Errorf("%d probes", n)
	}
	r.has(conversation, 1, 2)
	r.ordered(2)
}

// averted expects the next delivery to go into the occupant that a respawn found.
func (r *row) averted(first *dispatcherv1.Delivery) {
	r.t.Helper()
	before := r.record()
	probes := r.gate.count(r.item, "SessionState")
	r.gets(true, delivered, "averted")
	if n := r.gate.count(r.item, "SessionState") - probes; n != 1 {
		r.t.Errorf("%d probes", n)
	}
	r.told("session.respawn_averted", "dispatch.succeeded")
	r.has(first.GetConversationId(), 1, 2)
	r.ordered(2)
	after := r.record()
	if after.GetConversationId() != before.GetConversationId() || after.GetIncarnationStamp() != before.GetIncarnationStamp() {
		r.t.Errorf("the record was %v and is %v", before, after)
	}
}

// replaced expects the next delivery to go into a new conversation, and the old one to be kept as lineage. failed says why the resume
// failed; empty when none was wanted.
func (r *row) replaced(first *dispatcherv1.Delivery, failed string) {
	r.t.Helper()
	r.gets(true, delivered, "respawned_fresh")
	want := []string{"session.respawned", "dispatch.succeeded"}
	if failed != "" {
		want = append([]string{"session.resume_failed"}, want...)
	}
	events := r.told(want...)
	if field(events, "session.respawned", "resumed") != "false" || failed != "" && field(events, "session.resume_failed", "reason") != failed {
		r.t.Errorf("%v", events)
	}
	old, s := first.GetConversationId(), r.record()
	if old != "" && (s.GetConversationId() == old || !slices.Equal(s.GetLineage(), []string{old})) {
		r.t.Errorf("the record is %v", s)
	}
	if old != "" {
		r.has(old, 1)
		r.has(s.GetConversationId(), 2)
	}
}

// ordered expects so many spawns to have been ordered for the item in all.
func (r *row) ordered(want int) {
	r.t.Helper()
	if n := r.gate.count(r.item, "Spawn"); n != want {
		r.t.Errorf("%d spawns were ordered, not %d", n, want)
	}
}

// commandLine is how a process was started.
func commandLine(pid int) string {
	data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return strings.ReplaceAll(string(data), "\x00", " ")
}
