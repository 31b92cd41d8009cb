package deliver_test

import (
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/trace/noop"

	"muxpost.dev/muxpost/core/dispatch"
	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/services/dispatcher/internal/deliver"
	"muxpost.dev/muxpost/services/dispatcher/internal/deliver/delivertest"
)

const (
	item   = "github:octo/widget#7"
	target = "loop-octo-widget-7"
	id     = "delivery-1"
)

// bench is a deliverer on a store and a host in memory.
type bench struct {
	store     *delivertest.Store
	host      *delivertest.Host
	deliverer *deliver.Deliverer
}

func newBench(w delivertest.World, change func(*deliver.Config)) bench {
	b := bench{store: delivertest.NewStore(time.Now), host: delivertest.NewHost("a", w)}
	config := deliver.Config{
		Store: b.store, Hosts: delivertest.Hosts{b.host}, Logger: slog.New(slog.DiscardHandler), Tracer: noop.NewTracerProvider().Tracer(""),
		Process: "p1", Harness: "claude", Resume: true,
	}
	if change != nil {
		change(&config)
	}
	b.deliverer = deliver.New(config)
	return b
}

func (b bench) ask(t *testing.T, id string) deliver.Result {
	t.Helper()
	result, err := b.deliverer.Deliver(t.Context(), request(id))
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func request(id string) deliver.Request {
	return deliver.Request{
		DeliveryID: id, WorkItem: "github:Octo/Widget#7", Kind: deliver.Comment, Text: "please look at " + id, NodeID: "I_7",
	}
}

func (b bench) events() string {
	var out []string
	for _, e := range b.store.Events() {
		out = append(out, string(e.Type))
	}
	return strings.TrimPrefix(strings.Join(out, " "), "dispatch.queued")
}

func recorded(conversation string) *deliver.Session {
	return &deliver.Session{
		WorkItem: item, Target: target, Host: "a", Harness: "claude", ConversationID: conversation, Directory: "/d",
		Incarnation: deliver.Incarnation{Stamp: "old"},
	}
}

func live(w delivertest.World) delivertest.World {
	w.State, w.Stamp, w.Harness, w.Conversation = session.Live, "old", "claude", "c1"
	return w
}

func dead(w delivertest.World) delivertest.World {
	w.State, w.Stamp, w.Harness, w.Conversation = session.Dead, "old", "claude", "c1"
	return w
}

// row is one line of the tables of deliveries and of respawns.
type row struct {
	name   string
	record *deliver.Session
	world  delivertest.World
	config func(*deliver.Config)
	before func(b bench, act string)

	outcome dispatch.Outcome
	reason  dispatch.Reason
	how     dispatch.How
	events  string
	// typed and prompts count deliveries typed and started with; resumed and fresh count sessions started.
	typed, prompts, resumed, fresh int
	// conversation and lineage are those of the record afterwards.
	conversation, lineage string
}

func TestDeliver_ByTheTable(t *testing.T) {
	for _, r := range append(deliverRows(), respawnRows()...) {
		t.Run(r.name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { r.check(t) }) })
	}
}

func (r row) check(t *testing.T) {
	b := newBench(r.world, r.config)
	if r.record != nil {
		b.store.Put(*r.record)
	}
	if r.before != nil {
		b.host.Before = func(act string) { r.before(b, act) }
	}
	started := time.Now()
	d := b.ask(t, id).Delivery
	if took := time.Since(started); took > deliver.Limit {
		t.Errorf("it took %v", took)
	}
	if d.Outcome != r.outcome || d.Reason != r.reason || d.How != r.how {
		t.Errorf("%v (%s) by %q, want %v (%s) by %q\n%s", d.Outcome, d.Reason, d.How, r.outcome, r.reason, r.how, strings.Join(d.Steps, "\n"))
	}
	w := b.host.World()
	if len(w.Typed) != r.typed || len(w.Prompts) != r.prompts || w.Resumed != r.resumed || w.Fresh != r.fresh {
		t.Errorf("typed %v, prompts %v, resumed %d, fresh %d; want %d, %d, %d, %d", w.Typed, w.Prompts, w.Resumed, w.Fresh,
			r.typed, r.prompts, r.resumed, r.fresh)
	}
	if got := strings.TrimSpace(b.events()); got != r.events {
		t.Errorf("events %q, want %q", got, r.events)
	}
	record, _ := b.store.Session(item)
	if lineage := strings.Join(record.Lineage, " "); record.ConversationID != r.conversation || lineage != r.lineage {
		t.Errorf("the record has %q after %q, want %q after %q", record.ConversationID, lineage, r.conversation, r.lineage)
	}
	if stored := b.store.Stored(id); stored.Outcome != d.Outcome || stored.Detail == "" {
		t.Errorf("stored %+v", stored)
	}
	r.checkWords(t, b, d)
}

// haveTheirFields holds events to the lists of their types' fields.
func haveTheirFields(t *testing.T, events []deliver.Event) {
	t.Helper()
	for _, e := range events {
		want := append(dispatch.CommonFields(), dispatch.EventFields()[e.Type]...)
		slices.Sort(want)
		if got := slices.Sorted(maps.Keys(e.Fields)); !slices.Equal(got, want) {
			t.Errorf("%s has the fields %v, and those listed are %v", e.Type, got, want)
		}
	}
}

// checkWords holds what every delivery must say and must not say.
func (r row) checkWords(t *testing.T, b bench, d deliver.Delivery) {
	t.Helper()
	if d.Detail == "" || d.Detail == string(d.Reason) || len(d.Steps) < 2 {
		t.Errorf("detail %q, steps %q", d.Detail, d.Steps)
	}
	// What failed for want of a session says whether one was to come back.
	spawn := slices.Contains([]dispatch.Reason{dispatch.ReasonSpawnRefused, dispatch.ReasonSpawnError, dispatch.ReasonHarnessExited}, d.Reason)
	if respawn := spawn && r.record != nil; respawn != strings.HasPrefix(d.Detail, "respawn: ") {
		t.Errorf("detail %q", d.Detail)
	}
	if d.Outcome == dispatch.Dropped && d.Remedy == "" {
		t.Error("a drop without a remedy")
	}
	secret := request(id).Text
	if strings.Contains(d.Detail+d.Remedy+strings.Join(d.Steps, " "), secret) {
		t.Errorf("the record repeats the text: %+v", d)
	}
	haveTheirFields(t, b.store.Events())
	for _, e := range b.store.Events() {
		for name, value := range e.Fields {
			if strings.Contains(value, secret) {
				t.Errorf("%s.%s repeats the text", e.Type, name)
			}
		}
		if e.WorkItem != item || e.DeliveryID != id || e.Fields["target"] != target {
			t.Errorf("event %+v", e)
		}
	}
}

const (
	succeeded = "dispatch.succeeded"
	failed    = "dispatch.failed"
	dropped   = "dispatch.dropped"
	adopted   = "session.registered session.respawned " + succeeded
)

func deliverRows() []row {
	type w = delivertest.World
	foreign := live(w{})
	foreign.Flags = session.Foreign
	other := live(w{})
	other.Stamp = "another"
	stale := recorded("c1")
	stale.Target = "loop-stale"
	elsewhere := recorded("c1")
	elsewhere.Host = "b"
	return []row{
		{name: "none, absent: first spawn", world: w{State: session.Absent}, outcome: dispatch.Delivered, how: dispatch.HowSpawned,
			events: "session.spawned " + succeeded, prompts: 1, fresh: 1, conversation: "fresh-1"},
		{name: "none, dead: first spawn", world: w{State: session.Dead, Stamp: "old"}, outcome: dispatch.Delivered, how: dispatch.HowSpawned,
			events: "session.spawned " + succeeded, prompts: 1, fresh: 1, conversation: "fresh-1"},
		{name: "none, dead, the host knows its conversation: adopted and resumed", world: dead(w{}), outcome: dispatch.Delivered,
			how: dispatch.HowResumed, events: adopted, prompts: 1, resumed: 1, conversation: "c1"},
		{name: "none, absent, the host knows its conversation: adopted and resumed", world: w{State: session.Absent, Harness: "other",
			Conversation: "c1"}, outcome: dispatch.Delivered, how: dispatch.HowResumed, events: adopted, prompts: 1, resumed: 1,
			conversation: "c1"},
		{name: "none, dead after the submit, the host knows: resumed without it, then settled", world: dead(w{Phases: map[string]session.Phase{
			id: session.Submitted}}), outcome: dispatch.Delivered, how: dispatch.HowResumed, events: adopted, resumed: 1, conversation: "c1"},
		{name: "none, dead, the host knows, the resume dies: fresh", world: dead(w{ResumeEnds: dispatch.SpawnDied}), outcome: dispatch.Delivered,
			how: dispatch.HowFresh, events: "session.registered session.resume_failed session.respawned " + succeeded, typed: 1, fresh: 1,
			conversation: "fresh-1", lineage: "c1"},
		{name: "none, dead, the host knows, its harness cannot resume: fresh", world: dead(w{Resumes: map[string]bool{"claude": false}}),
			outcome: dispatch.Delivered, how: dispatch.HowFresh, events: "session.registered session.resume_failed session.respawned " + succeeded,
			prompts: 1, fresh: 1, conversation: "fresh-1", lineage: "c1"},
		{name: "none, dead, the host knows, and it lives again: averted", world: dead(w{}), before: at("spawn", func(w *delivertest.World) {
			w.State, w.Stamp = session.Live, "back"
		}), outcome: dispatch.Delivered, how: dispatch.HowAverted,
			events: "session.registered session.respawn_averted " + succeeded, typed: 1, conversation: "c1"},
		{name: "none, absent, started and not seen yet", world: w{State: session.Absent, NoEvidence: true}, outcome: dispatch.InProgress,
			reason: dispatch.ReasonStarting, events: "session.spawned", prompts: 1, fresh: 1, conversation: "fresh-1"},
		{name: "none, live, ours: adopt and paste", world: live(w{}), outcome: dispatch.Delivered, how: dispatch.HowPasted,
			events: "session.registered " + succeeded, typed: 1, conversation: "c1"},
		{name: "none, live, foreign: dropped", world: foreign, outcome: dispatch.Dropped, reason: dispatch.ReasonSessionOccupied,
			events: "session.spawn_failed " + dropped},
		{name: "none, unknown: waits", world: w{Mute: true}, outcome: dispatch.Waiting, reason: dispatch.ReasonTmuxNoAnswer},
		{name: "none, unreachable: waits", world: w{Unreachable: true}, outcome: dispatch.Waiting, reason: dispatch.ReasonHostUnreachable},
		{name: "none, the first spawn is refused", world: w{State: session.Absent, FreshEnds: dispatch.SpawnRefused},
			outcome: dispatch.Failed, reason: dispatch.ReasonSpawnRefused, events: "session.spawn_failed " + failed},
		{name: "none, the harness ends at once", world: w{State: session.Absent, FreshEnds: dispatch.SpawnDied,
			LastLines: []string{"Error: no key", "> please look at delivery-1", "bye"}}, outcome: dispatch.Failed,
			reason: dispatch.ReasonHarnessExited, events: "session.spawn_failed " + failed},
		{name: "none, the spawn gets no answer", world: w{State: session.Absent, LosesAnswers: true}, outcome: dispatch.Waiting,
			reason: dispatch.ReasonSpawnNoAnswer, prompts: 1, fresh: 1},
		{name: "none, no room on the host: waits", world: w{State: session.Absent, FreshEnds: dispatch.SpawnNoCapacity}, outcome: dispatch.Waiting,
			reason: dispatch.ReasonNoCapacity},
		{name: "none, a limit of use: waits", world: w{State: session.Absent, FreshEnds: dispatch.SpawnLimited}, outcome: dispatch.Waiting,
			reason: dispatch.ReasonUsageLimit},
		{name: "resume, a limit of use: waits", record: recorded("c1"), world: dead(w{ResumeEnds: dispatch.SpawnLimited}),
			outcome: dispatch.Waiting, reason: dispatch.ReasonUsageLimit, conversation: "c1"},
		{name: "resume, the conversation is open elsewhere: waits", record: recorded("c1"), world: dead(w{ResumeEnds: dispatch.SpawnInUse}),
			outcome: dispatch.Waiting, reason: dispatch.ReasonConversationInUse, conversation: "c1"},
		{name: "none, nobody is logged in: dropped", world: w{State: session.Absent, FreshEnds: dispatch.SpawnNotLoggedIn}, outcome: dispatch.Dropped,
			reason: dispatch.ReasonNotLoggedIn, events: "session.spawn_failed " + dropped},
		{name: "resume, nobody is logged in: dropped, and its conversation stays", record: recorded("c1"),
			world: dead(w{ResumeEnds: dispatch.SpawnNotLoggedIn}), outcome: dispatch.Dropped, reason: dispatch.ReasonNotLoggedIn,
			events: dropped, conversation: "c1"},
		{name: "resume, no room on the host: waits", record: recorded("c1"), world: dead(w{ResumeEnds: dispatch.SpawnNoCapacity}),
			outcome: dispatch.Waiting, reason: dispatch.ReasonNoCapacity, conversation: "c1"},
		{name: "recorded, live: pasted", record: recorded("c1"), world: live(w{}), outcome: dispatch.Delivered, how: dispatch.HowPasted,
			events: succeeded, typed: 1, conversation: "c1"},
		{name: "recorded, live, a dialog is open: held", record: recorded("c1"), world: live(w{Hold: dispatch.PasteHeld}),
			outcome: dispatch.Held, reason: dispatch.ReasonSessionHolds, conversation: "c1"},
		{name: "recorded, live, not ready: held", record: recorded("c1"), world: live(w{Hold: dispatch.PasteNotReady}),
			outcome: dispatch.Held, reason: dispatch.ReasonNotReady, conversation: "c1"},
		{name: "recorded, live, no evidence: unconfirmed", record: recorded("c1"), world: live(w{NoEvidence: true}),
			outcome: dispatch.Unconfirmed, reason: dispatch.ReasonNoEvidence, typed: 1, conversation: "c1"},
		{name: "recorded, live, the paste gets no answer", record: recorded("c1"), world: live(w{LosesAnswers: true}),
			outcome: dispatch.Waiting, reason: dispatch.ReasonTmuxNoAnswer, typed: 1, conversation: "c1"},
		{name: "recorded, live, paste answered dead", record: recorded("c1"), world: live(w{}), outcome: dispatch.Failed,
			reason: dispatch.ReasonSessionEnded, events: failed, conversation: "c1",
			before: at("paste", func(w *delivertest.World) { w.State = session.Dead })},
		{name: "recorded, unknown, paste answered absent", record: recorded("c1"), world: live(w{Mute: true}), outcome: dispatch.Failed,
			reason: dispatch.ReasonSessionEnded, events: failed, conversation: "c1", before: at("paste", func(w *delivertest.World) {
				w.Mute, w.State = false, session.Absent
			})},
		{name: "recorded, unknown, the paste lands", record: recorded("c1"), world: live(w{Mute: true}), outcome: dispatch.Delivered,
			how: dispatch.HowPasted, events: succeeded, typed: 1, conversation: "c1",
			before: at("paste", func(w *delivertest.World) { w.Mute = false })},
		{name: "recorded, unknown: waits", record: recorded("c1"), world: w{Mute: true}, outcome: dispatch.Waiting,
			reason: dispatch.ReasonTmuxNoAnswer, conversation: "c1"},
		{name: "recorded, unreachable: waits", record: recorded("c1"), world: w{Unreachable: true}, outcome: dispatch.Waiting,
			reason: dispatch.ReasonHostUnreachable, conversation: "c1"},
		{name: "recorded on a host that is not configured: waits", record: elsewhere, world: w{State: session.Absent},
			outcome: dispatch.Waiting, reason: dispatch.ReasonHostUnreachable, conversation: "c1"},
		{name: "recorded, stale name, live: healed", record: stale, world: live(w{}), outcome: dispatch.Delivered, how: dispatch.HowPasted,
			events: "session.registered " + succeeded, typed: 1, conversation: "c1"},
		{name: "recorded, another incarnation: healed", record: recorded("c1"), world: other, outcome: dispatch.Delivered,
			how: dispatch.HowPasted, events: "session.registered " + succeeded, typed: 1, conversation: "c1"},
		{name: "recorded, live, foreign: dropped", record: recorded("c1"), world: foreign, outcome: dispatch.Dropped,
			reason: dispatch.ReasonSessionOccupied, events: dropped, conversation: "c1"},
		{name: "recorded, the conversation is learned", record: recorded(""), world: live(w{}), outcome: dispatch.Delivered,
			how: dispatch.HowPasted, events: succeeded, typed: 1, conversation: "c1"},
	}
}

// at changes the world right before an act, as another process would.
func at(when string, change func(*delivertest.World)) func(bench, string) {
	return func(b bench, act string) {
		if act == when {
			b.host.Change(change)
		}
	}
}

func respawnRows() []row {
	type w = delivertest.World
	const failedFresh = "session.resume_failed session.respawned " + succeeded
	back := func(w *delivertest.World) { w.State, w.Flags, w.Stamp = session.Live, 0, "back" }
	takenAway := func(w *delivertest.World) { w.State, w.Flags = session.Live, session.Foreign }
	detached, guests := live(w{}), dead(w{})
	detached.Flags, guests.Flags = session.Detached, session.Guests
	bad := dead(w{})
	bad.Conversation = "--help"
	noID := dead(w{})
	noID.Conversation = ""
	arrived := func(p session.Phase) w { return dead(w{Phases: map[string]session.Phase{id: p}}) }
	return []row{
		{name: "resume survives", record: recorded("c1"), world: dead(w{}), outcome: dispatch.Delivered, how: dispatch.HowResumed,
			events: "session.respawned " + succeeded, prompts: 1, resumed: 1, conversation: "c1"},
		{name: "absent: resume survives", record: recorded("c1"), world: w{State: session.Absent}, outcome: dispatch.Delivered,
			how: dispatch.HowResumed, events: "session.respawned " + succeeded, prompts: 1, resumed: 1, conversation: "c1"},
		{name: "absent, and a person had begun another conversation: that one is resumed", record: recorded("c0"), world: w{State: session.Absent,
			Stamp: "old", Conversation: "c1"}, outcome: dispatch.Delivered, how: dispatch.HowResumed, events: "session.respawned " + succeeded,
			prompts: 1, resumed: 1, conversation: "c1", lineage: "c0"},
		{name: "absent, and the host remembers an older incarnation: the recorded one is resumed", record: recorded("c1"),
			world: w{State: session.Absent, Stamp: "older", Conversation: "c0"}, outcome: dispatch.Delivered, how: dispatch.HowResumed,
			events: "session.respawned " + succeeded, prompts: 1, resumed: 1, conversation: "c1"},
		{name: "resume dies: fresh, without the prompt, then pasted", record: recorded("c1"), world: dead(w{ResumeEnds: dispatch.SpawnDied}),
			outcome: dispatch.Delivered, how: dispatch.HowFresh, events: failedFresh, typed: 1, fresh: 1, conversation: "fresh-1", lineage: "c1"},
		{name: "the host will not start it: failed, and nothing else is tried", record: recorded("c1"),
			world: dead(w{ResumeEnds: dispatch.SpawnRefused}), outcome: dispatch.Failed, reason: dispatch.ReasonSpawnRefused, events: failed,
			conversation: "c1"},
		{name: "resume refused: fresh", record: recorded("c1"), world: dead(w{ResumeEnds: dispatch.SpawnCannotResume}),
			outcome: dispatch.Delivered, how: dispatch.HowFresh, events: failedFresh, prompts: 1, fresh: 1, conversation: "fresh-1", lineage: "c1"},
		{name: "the harness cannot resume", record: recorded("c1"), world: dead(w{Resumes: map[string]bool{"claude": false}}),
			outcome: dispatch.Delivered, how: dispatch.HowFresh, events: failedFresh, prompts: 1, fresh: 1, conversation: "fresh-1", lineage: "c1"},
		{name: "resume is off", record: recorded("c1"), world: dead(w{}), config: func(c *deliver.Config) { c.Resume = false },
			outcome: dispatch.Delivered, how: dispatch.HowFresh, events: "session.respawned " + succeeded, prompts: 1, fresh: 1,
			conversation: "fresh-1", lineage: "c1"},
		{name: "no conversation is known", record: recorded(""), world: noID, outcome: dispatch.Delivered, how: dispatch.HowFresh,
			events: "session.respawned " + succeeded, prompts: 1, fresh: 1, conversation: "fresh-1"},
		{name: "the conversation of the dead is learned", record: recorded(""), world: dead(w{}), outcome: dispatch.Delivered,
			how: dispatch.HowResumed, events: "session.respawned " + succeeded, prompts: 1, resumed: 1, conversation: "c1"},
		{name: "the id is flag-shaped", record: recorded("--help"), world: bad, outcome: dispatch.Delivered, how: dispatch.HowFresh,
			events: failedFresh, prompts: 1, fresh: 1, conversation: "fresh-1", lineage: "--help"},
		{name: "name taken, live: averted", record: recorded("c1"), world: dead(w{}), before: at("spawn", back), outcome: dispatch.Delivered,
			how: dispatch.HowAverted, events: "session.respawn_averted " + succeeded, typed: 1, conversation: "c1"},
		{name: "name taken, live, and the paste fails", record: recorded("c1"), world: dead(w{Hold: dispatch.PasteFailed}),
			before: at("spawn", back), outcome: dispatch.Failed, reason: dispatch.ReasonPasteError, events: failed, conversation: "c1"},
		{name: "name taken, unclearable: dropped", record: recorded("c1"), world: dead(w{}), before: at("spawn", takenAway),
			outcome: dispatch.Dropped, reason: dispatch.ReasonSessionOccupied, events: dropped, conversation: "c1"},
		{name: "fresh, name taken, live: averted", record: recorded(""), world: noID, before: at("spawn", back), outcome: dispatch.Delivered,
			how: dispatch.HowAverted, events: "session.respawn_averted " + succeeded, typed: 1},
		{name: "first spawn, name taken, live: adopted", world: w{State: session.Absent}, before: at("spawn", back),
			outcome: dispatch.Delivered, how: dispatch.HowPasted, events: "session.registered " + succeeded, typed: 1},
		{name: "resume fails: fresh, without the prompt, then pasted", record: recorded("c1"), world: dead(w{ResumeEnds: dispatch.SpawnFailed}),
			outcome: dispatch.Delivered, how: dispatch.HowFresh, events: failedFresh, typed: 1, fresh: 1, conversation: "fresh-1", lineage: "c1"},
		{name: "any other error", record: recorded("c1"), world: dead(w{ResumeEnds: dispatch.SpawnFailed, FreshEnds: dispatch.SpawnFailed}),
			outcome: dispatch.Failed, reason: dispatch.ReasonSpawnError, events: "session.resume_failed " + failed, conversation: "c1"},
		{name: "resume and fresh die", record: recorded("c1"), world: dead(w{ResumeEnds: dispatch.SpawnDied, FreshEnds: dispatch.SpawnDied}),
			outcome: dispatch.Failed, reason: dispatch.ReasonHarnessExited, events: "session.resume_failed " + failed, conversation: "c1"},
		{name: "dead with guests: dropped", record: recorded("c1"), world: guests, outcome: dispatch.Dropped,
			reason: dispatch.ReasonSessionOccupied, events: dropped, conversation: "c1"},
		{name: "detached: waits", record: recorded("c1"), world: detached, outcome: dispatch.Waiting,
			reason: dispatch.ReasonSessionDetached, conversation: "c1"},
		{name: "dead, and it had arrived before", record: recorded("c1"), world: arrived(session.Taken), outcome: dispatch.Delivered,
			how: dispatch.HowAlready, events: succeeded, conversation: "c1"},
		{name: "dead after the submit: resumed without it, then settled", record: recorded("c1"), world: arrived(session.Submitted),
			outcome: dispatch.Delivered, how: dispatch.HowResumed, events: "session.respawned " + succeeded, resumed: 1, conversation: "c1"},
		{name: "dead, and the journal is lost: resumed without it, then settled", record: recorded("c1"), world: dead(w{JournalLost: true,
			Phases: map[string]session.Phase{id: session.Submitted}}), outcome: dispatch.Delivered, how: dispatch.HowResumed,
			events: "session.respawned " + succeeded, resumed: 1, conversation: "c1"},
	}
}
