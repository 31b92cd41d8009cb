package e2e

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"muxpost.dev/muxpost/core/prompt"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	tmuxdv1 "muxpost.dev/muxpost/proto/gen/muxpost/tmuxd/v1"
	"muxpost.dev/muxpost/test/fakegithub"
	"muxpost.dev/muxpost/test/stack"
)

// Rows of docs/cases.md, tables D and E: one delivery each, on an item of its own, through the real dispatcher, Postgres, tmuxd, tmux and
// agents.

const (
	delivered   = dispatcherv1.Outcome_OUTCOME_DELIVERED
	waiting     = dispatcherv1.Outcome_OUTCOME_WAITING
	failedOnce  = dispatcherv1.Outcome_OUTCOME_FAILED
	droppedOnce = dispatcherv1.Outcome_OUTCOME_DROPPED
	// noResume is a harness without an interactive resume, noID one whose conversations muxpost does not learn.
	noResume = "noresume"
	noID     = "noid"
	// exits is a program that ends at once.
	exits = "exits"
)

// rowStack is one stack for all rows.
type rowStack struct {
	*world
	gate *gate
	pool *pgxpool.Pool
}

// row is one item and what is told of it.
type row struct {
	*rowStack
	t       *testing.T
	item    string
	target  string
	harness string
	asked   int
}

func startRows(t *testing.T) *rowStack {
	t.Helper()
	s := &rowStack{gate: &gate{}}
	s.world = startBuild(t, &shipped, 6*time.Minute, fakegithub.Seed{}, func(w *world) {
		w.Env = []string{"FAKEAGENT_TURN=100ms"}
		s.gate.serve(w)
		w.configure(`address: "`+w.Address("tmuxd")+`"`, `address: "`+s.gate.address+`"`)
		w.configure("  host: laptop\n", "  host: laptop\n  harnesses:\n"+harnessEntry(w, noResume, "assigned", "")+
			harnessEntry(w, noID, "none", `["--resume", "{conversation_id}"]`)+
			strings.Replace(harnessEntry(w, exits, "none", ""), filepath.Join(w.Bin, "fakeagent"), "/bin/false", 1))
	})
	var err error
	if s.pool, err = pgxpool.New(s.ctx, s.databaseURL()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.pool.Close)
	return s
}

// harnessEntry is the bundled agent under another name, with the same home.
func harnessEntry(w *world, name, conversation, resume string) string {
	home := filepath.Join(w.Dir, "tmuxd", "harness", "fakeagent")
	fresh := `["--session-id", "{conversation_id}"]`
	if conversation == "none" {
		fresh = `["--fold", "1000"]`
	}
	if resume == "" {
		resume = "[]"
	}
	return fmt.Sprintf(`    %s:
      binary: %s
      conversation_id: %s
      fresh: %s
      resume: %s
      prompt_args: ["--prompt-file", "{prompt_file}"]
      env: {FAKEAGENT_HOME: "%s"}
      pass_env: [FAKEAGENT_TURN]
      prompt: '^› (.*)$'
      placeholder: '^Ask fakeagent to do anything'
      footer: '^  fake-1 · '
      busy: '^  fake-1 · .* · esc to interrupt'
      settle: 200ms
      survival: 1500ms
      transcript: "%s/sessions/*.jsonl"
      taken: '"type":"user"'
`, name, filepath.Join(w.Bin, "fakeagent"), conversation, fresh, resume, home, home)
}

// on is a row about an item that nobody else has.
func (s *rowStack) on(t *testing.T, number int) *row {
	w := *s.world
	w.t = t
	own := &rowStack{world: &w, gate: s.gate, pool: s.pool}
	item := stack.Item(number)
	return &row{rowStack: own, t: t, item: item, target: "loop-octo-widget-" + strconv.Itoa(number)}
}

// ask asks for the next delivery of the item, or again for the same one, until it is more than being worked on.
func (r *row) ask(next bool) *dispatcherv1.Delivery {
	r.t.Helper()
	if next {
		r.asked++
	}
	for {
		res, err := r.Dispatcher.Deliver(r.ctx, &dispatcherv1.DeliverRequest{DeliveryId: r.id(r.asked), WorkItem: r.item, Harness: r.harness,
			Kind: dispatcherv1.EventKind_EVENT_KIND_MESSAGE, Text: "hello " + r.id(r.asked)})
		if err != nil {
			r.t.Fatal(err)
		}
		// A turn that is running, an agent that is starting, and a lease that is too old for a host that was greeted anew.
		d := res.GetDelivery()
		soon := slices.Contains([]string{"busy", "not_ready", "lease_held"}, d.GetReason())
		if d.GetOutcome() != dispatcherv1.Outcome_OUTCOME_IN_PROGRESS && !soon {
			return d
		}
		r.t.Logf("asked again after %v (%s):\n%s", d.GetOutcome(), d.GetReason(), strings.Join(d.GetSteps(), "\n"))
		time.Sleep(min(res.GetLookAgain().AsDuration(), 200*time.Millisecond))
	}
}

func (r *row) id(n int) string { return fmt.Sprintf("%s-%d", r.target, n) }

// gets asks for a delivery, and expects an outcome with its reason, or by its way.
func (r *row) gets(next bool, o dispatcherv1.Outcome, why string) *dispatcherv1.Delivery {
	r.t.Helper()
	d := r.ask(next)
	how := strings.ToLower(strings.TrimPrefix(d.GetHow().String(), "HOW_"))
	if d.GetOutcome() != o || d.GetReason() != why && (o != delivered || how != why) {
		r.t.Fatalf("%v (%s) by %s, want %v %s:\n%s\n%s", d.GetOutcome(), d.GetReason(), how, o, why, d.GetDetail(),
			strings.Join(d.GetSteps(), "\n"))
	}
	return d
}

// begun has the item have a session that took one delivery.
func (r *row) begun() *dispatcherv1.Delivery {
	r.t.Helper()
	return r.gets(true, delivered, "spawned")
}

// happened are the events of the latest delivery.
func (r *row) happened() []*dispatcherv1.Event {
	r.t.Helper()
	res, err := r.Dispatcher.ListEvents(r.ctx, &dispatcherv1.ListEventsRequest{DeliveryId: r.id(r.asked), PageSize: 500})
	if err != nil {
		r.t.Fatal(err)
	}
	return res.GetEvents()
}

// told expects the events of the latest delivery to be exactly these, behind its being queued.
func (r *row) told(want ...string) []*dispatcherv1.Event {
	r.t.Helper()
	events := r.happened()
	var got []string
	for _, e := range events {
		got = append(got, e.GetType())
	}
	if want = append([]string{"dispatch.queued"}, want...); !slices.Equal(got, want) {
		r.t.Errorf("events %v, want %v", got, want)
	}
	return events
}

// field is a field of the event of a type.
func field(events []*dispatcherv1.Event, kind, name string) string {
	for _, e := range events {
		if e.GetType() == kind {
			return e.GetFields()[name]
		}
	}
	return "no " + kind
}

// has expects a conversation to hold exactly these deliveries of the item, each once.
func (r *row) has(conversation string, numbers ...int) {
	r.t.Helper()
	var texts []string
	r.until("the agent has recorded them", func() bool {
		var err error
		texts, err = r.Conversation(conversation).Texts("user")
		return err == nil && len(texts) >= len(numbers)
	})
	for i, text := range texts {
		if i >= len(numbers) || !strings.HasPrefix(text, prompt.Mark(r.id(numbers[i]))+"\n") {
			r.t.Errorf("message %d of %d is %q", i, len(numbers), text)
		}
	}
}

func (r *row) sql(statement string, args ...any) {
	r.t.Helper()
	if _, err := r.pool.Exec(r.ctx, statement, args...); err != nil {
		r.t.Fatal(err)
	}
}

func (r *row) record() *dispatcherv1.Session {
	r.t.Helper()
	s, err := r.Session(r.ctx, r.item)
	if err != nil || s == nil {
		r.t.Fatalf("%v, %v", s, err)
	}
	return s
}

func (r *row) state() *tmuxdv1.SessionStateResponse {
	r.t.Helper()
	st, err := r.Tmuxd.SessionState(r.ctx, &tmuxdv1.SessionStateRequest{WorkItem: r.item})
	if err != nil {
		r.t.Fatal(err)
	}
	return st
}

func (r *row) becomes(want tmuxdv1.State) {
	r.t.Helper()
	r.until("the session is "+want.String(), func() bool { return r.state().GetState() == want })
}

// agent is the process of the agent, the child of its wrapper.
func (r *row) agent() int {
	r.t.Helper()
	pid, err := r.AgentPid(r.ctx, r.item)
	if err != nil {
		r.t.Fatal(err)
	}
	return pid
}

func (r *row) signal(pid int, sig syscall.Signal) {
	r.t.Helper()
	if err := syscall.Kill(pid, sig); err != nil {
		r.t.Error(err)
	}
}

// dies ends the agent.
func (r *row) dies() {
	r.t.Helper()
	r.signal(r.agent(), syscall.SIGKILL)
	r.becomes(tmuxdv1.State_STATE_DEAD)
}

func (r *row) server() int { return int(r.state().GetIncarnation().GetServerPid()) }

// vanishes ends the session's tmux server with all that is in it.
func (r *row) vanishes() {
	r.t.Helper()
	r.signal(r.server(), syscall.SIGKILL)
	r.becomes(tmuxdv1.State_STATE_ABSENT)
}

func (r *row) socket() string { return filepath.Join(r.Dir, "tmuxd", r.target+".sock") }

// person runs tmux on the session's server, as a person would.
func (r *row) person(args ...string) string {
	r.t.Helper()
	out, err := exec.Command("tmux", append([]string{"-S", r.socket()}, args...)...).CombinedOutput()
	if err != nil {
		r.t.Errorf("tmux %v: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// taken has the name belong to a person's session.
func (r *row) taken() {
	r.t.Helper()
	pid, err := strconv.Atoi(r.person("new-session", "-d", "-s", r.target, "cat -v", ";", "display-message", "-p", "#{pid}"))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGTERM) })
}

// free has the dead session be gone, and its server.
func (r *row) free() {
	r.t.Helper()
	r.person("kill-session", "-t", "="+r.target+":")
	r.until("nobody listens", func() bool {
		conn, err := net.Dial("unix", r.socket())
		if err == nil {
			conn.Close()
		}
		return err != nil
	})
}

// revived has another spawn of this item take effect, with a conversation that it had, and waits until the agent takes input.
func (r *row) revived(conversation string) {
	r.t.Helper()
	var token int64
	if err := r.pool.QueryRow(r.ctx, `select token from dispatcher.leases where work_item = $1`, r.item).Scan(&token); err != nil {
		r.t.Error(err)
	}
	q := &tmuxdv1.SpawnRequest{WorkItem: r.item, Harness: "fakeagent", FencingToken: token,
		Conversation: &tmuxdv1.SpawnRequest_Fresh{Fresh: &tmuxdv1.Fresh{Reason: "first"}}}
	if conversation != "" {
		q.Conversation = &tmuxdv1.SpawnRequest_Resume{Resume: &tmuxdv1.Resume{ConversationId: conversation}}
	}
	if r.harness != "" {
		q.Harness = r.harness
	}
	if res, err := r.Tmuxd.Spawn(r.ctx, q); err != nil || res.GetStarted() == nil {
		r.t.Errorf("%v, %v", res, err)
		return
	}
	r.until("its composer is there", func() bool {
		return strings.Contains(r.person("capture-pane", "-p", "-t", "="+r.target+":"), "› Ask fakeagent to do anything")
	})
}

// harmless expects nothing to have been started for the latest delivery.
func (r *row) harmless(spawns int, stamp string) {
	r.t.Helper()
	if n := r.gate.count(r.item, "Spawn"); n != spawns {
		r.t.Errorf("%d spawns were ordered, not %d", n, spawns)
	}
	if got := r.state().GetIncarnation().GetStamp(); got != stamp {
		r.t.Errorf("the incarnation is %s, and was %s", got, stamp)
	}
}

// run runs rows, each on an item of its own from a number on: "together", or each "alone".
func (s *rowStack) run(t *testing.T, from int, how string, rows map[string]func(*row)) {
	t.Helper()
	t.Run(how, func(t *testing.T) {
		for name, run := range rows {
			from++
			number := from
			t.Run(name, func(t *testing.T) {
				if how == "together" {
					t.Parallel()
				}
				run(s.on(t, number))
			})
		}
	})
}

func TestDeliver_ByTheTable(t *testing.T) {
	t.Parallel()
	s := startRows(t)
	s.run(t, 100, "together", deliverRows())
	s.run(t, 200, "alone", map[string]func(*row){
		"recorded, the host is unreachable: waits": func(r *row) {
			first := r.begun()
			stamp, tmuxd := r.state().GetIncarnation().GetStamp(), r.pid("tmuxd")
			r.signal(tmuxd, syscall.SIGSTOP)
			r.gets(true, waiting, "host_unreachable")
			r.told()
			r.signal(tmuxd, syscall.SIGCONT)
			r.gets(false, delivered, "pasted")
			r.has(first.GetConversationId(), 1, 2)
			r.harmless(1, stamp)
		},
	})
}

func deliverRows() map[string]func(*row) {
	return map[string]func(*row){
		"no record, absent: first spawn": func(r *row) {
			d := r.begun()
			r.told("session.spawned", "dispatch.succeeded")
			r.has(d.GetConversationId(), 1)
			if s := r.record(); s.GetConversationId() != d.GetConversationId() || s.GetTarget() != r.target {
				r.t.Errorf("%v", s)
			}
		},
		"no record, dead and known to the host: it comes back": func(r *row) {
			first := r.begun()
			r.dies()
			r.sql(`delete from dispatcher.sessions where work_item = $1`, r.item)
			r.gets(true, delivered, "resumed")
			r.told("session.registered", "session.respawned", "dispatch.succeeded")
			r.has(first.GetConversationId(), 1, 2)
		},
		"no record, live, ours: adopted": func(r *row) {
			first := r.begun()
			stamp := r.state().GetIncarnation().GetStamp()
			r.sql(`delete from dispatcher.sessions where work_item = $1`, r.item)
			r.gets(true, delivered, "pasted")
			r.told("session.registered", "dispatch.succeeded")
			r.has(first.GetConversationId(), 1, 2)
			r.harmless(1, stamp)
			if s := r.record(); s.GetIncarnationStamp() != stamp || s.GetConversationId() != first.GetConversationId() {
				r.t.Errorf("%v", s)
			}
		},
		"no record, live, foreign: dropped": func(r *row) {
			r.taken()
			d := r.gets(true, droppedOnce, "session-occupied")
			r.occupied(d, "session.spawn_failed")
			if n := r.gate.count(r.item, "Spawn"); n != 0 {
				r.t.Errorf("%d spawns were ordered", n)
			}
		},
		"recorded, live: pasted": func(r *row) {
			first := r.begun()
			stamp := r.state().GetIncarnation().GetStamp()
			probes := r.gate.count(r.item, "SessionState")
			d := r.gets(true, delivered, "pasted")
			if n := r.gate.count(r.item, "SessionState") - probes; n != int(d.GetAsked()) {
				r.t.Errorf("%d probes for %d asks", n, d.GetAsked())
			}
			r.told("dispatch.succeeded")
			pastes := r.gate.count(r.item, "Paste")
			if again := r.gets(false, delivered, "pasted"); again.GetAsked() != d.GetAsked()+1 || r.gate.count(r.item, "Paste") != pastes {
				r.t.Errorf("it was not replayed: %v", again)
			}
			r.has(first.GetConversationId(), 1, 2)
			r.harmless(1, stamp)
		},
		"recorded, unknown: a paste is tried, and then it waits": func(r *row) {
			first := r.begun()
			stamp, server := r.state().GetIncarnation().GetStamp(), r.server()
			pastes := r.gate.count(r.item, "Paste")
			r.signal(server, syscall.SIGSTOP)
			r.gets(true, waiting, "tmux_no_answer")
			r.gets(false, waiting, "tmux_no_answer")
			r.told()
			r.signal(server, syscall.SIGCONT)
			if n := r.gate.count(r.item, "Paste"); n != pastes+2 {
				r.t.Errorf("%d pastes were tried", n-pastes)
			}
			r.gets(false, delivered, "pasted")
			r.has(first.GetConversationId(), 1, 2)
			r.harmless(1, stamp)
		},
		"recorded, live, the paste is answered dead": func(r *row) {
			first := r.begun()
			r.gate.before(r.item, "Paste", r.dies)
			r.gets(true, failedOnce, "session_ended")
			r.told("dispatch.failed")
			r.gets(false, delivered, "resumed")
			r.has(first.GetConversationId(), 1, 2)
		},
		"recorded, live, the paste is answered absent": func(r *row) {
			first := r.begun()
			r.gate.before(r.item, "Paste", r.vanishes)
			r.gets(true, failedOnce, "session_ended")
			r.gets(false, delivered, "resumed")
			r.has(first.GetConversationId(), 1, 2)
		},
		"recorded under a stale name: healed": func(r *row) {
			first := r.begun()
			r.sql(`update dispatcher.sessions set target = 'loop-stale-' || target where work_item = $1`, r.item)
			r.gets(true, delivered, "pasted")
			r.told("session.registered", "dispatch.succeeded")
			r.has(first.GetConversationId(), 1, 2)
			if s := r.record(); s.GetTarget() != r.target {
				r.t.Errorf("%v", s)
			}
		},
		"another incarnation than recorded: healed": func(r *row) {
			first := r.begun()
			stamp := r.state().GetIncarnation().GetStamp()
			r.sql(`update dispatcher.sessions set stamp = 'another' where work_item = $1`, r.item)
			r.gets(true, delivered, "pasted")
			if got := field(r.told("session.registered", "dispatch.succeeded"), "session.registered", "reason"); got != "another_incarnation" {
				r.t.Errorf("registered because of %s", got)
			}
			r.has(first.GetConversationId(), 1, 2)
			r.harmless(1, stamp)
			if s := r.record(); s.GetIncarnationStamp() != stamp {
				r.t.Errorf("%v", s)
			}
		},
		"recorded, live, foreign: dropped": func(r *row) {
			first := r.begun()
			agent := r.agent()
			for _, scope := range []string{"-t", "-pt"} {
				r.person("set-option", scope, "="+r.target+":", "@mux_item", "github:octo/other#1")
			}
			d := r.gets(true, droppedOnce, "session-occupied")
			r.occupied(d)
			r.has(first.GetConversationId(), 1)
			if gone(agent) {
				r.t.Error("the agent was ended")
			}
		},
	}
}

// occupied expects a drop to say loudly, once, how the name is freed, to be replayed, and to have ended nothing.
func (r *row) occupied(d *dispatcherv1.Delivery, also ...string) {
	r.t.Helper()
	events := r.told(append(also, "dispatch.dropped")...)
	for _, kind := range append(also, "dispatch.dropped") {
		if field(events, kind, "reason") != "session-occupied" || field(events, kind, "remedy") != d.GetRemedy() {
			r.t.Errorf("%s says %q and %q", kind, field(events, kind, "reason"), field(events, kind, "remedy"))
		}
	}
	if !strings.Contains(d.GetRemedy(), "kill-session -t '="+r.target+":'") || !strings.Contains(d.GetRemedy(), "-S "+r.socket()) {
		r.t.Errorf("the remedy is %q", d.GetRemedy())
	}
	r.person("has-session", "-t", "="+r.target+":")
	again := r.gets(false, droppedOnce, "session-occupied")
	if again.GetAsked() != d.GetAsked()+1 {
		r.t.Errorf("%v", again)
	}
	r.told(append(also, "dispatch.dropped")...)
	log, err := os.ReadFile(filepath.Join(r.Dir, "log", "dispatcher.log"))
	if err != nil || !slices.ContainsFunc(strings.Split(string(log), "\n"), func(line string) bool {
		return strings.Contains(line, `"level":"ERROR"`) && strings.Contains(line, r.id(r.asked)) && strings.Contains(line, "session-occupied")
	}) {
		r.t.Errorf("the log does not say it as an error: %v", err)
	}
}
