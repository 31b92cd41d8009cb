package attention

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	pollerv1 "muxpost.dev/muxpost/proto/gen/muxpost/poller/v1"
	teamv1 "muxpost.dev/muxpost/proto/gen/muxpost/team/v1"
)

var now = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) *timestamppb.Timestamp { return timestamppb.New(now.Add(-d)) }

const (
	pending = pollerv1.LedgerState_LEDGER_STATE_PENDING
	leased  = pollerv1.LedgerState_LEDGER_STATE_LEASED
	held    = pollerv1.LedgerState_LEDGER_STATE_HELD
	dropped = pollerv1.LedgerState_LEDGER_STATE_DROPPED
	gaveUp  = pollerv1.LedgerState_LEDGER_STATE_GAVE_UP
	settled = pollerv1.LedgerState_LEDGER_STATE_SETTLED
)

// row is an event that came in some time ago and was last looked at a moment ago.
func row(id, item string, state pollerv1.LedgerState, reason string, came time.Duration) *pollerv1.LedgerEntry {
	return &pollerv1.LedgerEntry{DeliveryId: id, WorkItem: item, State: state, Reason: reason, CreateTime: ago(came),
		UpdateTime: ago(time.Second)}
}

// looped is an event that was dropped because too much was written about its item.
func looped(id, item string, since time.Duration) *pollerv1.LedgerEntry {
	e := row(id, item, dropped, "loop", since)
	e.UpdateTime, e.Author = ago(since), "loopbot"
	return e
}

// TestFind_TellsOfALoopOnceAndOfWhereAnEventHappened has many of one flood.
func TestFind_TellsOfALoopOnceAndOfWhereAnEventHappened(t *testing.T) {
	var flood []*pollerv1.LedgerEntry
	for i := range 40 {
		flood = append(flood, looped("d"+strconv.Itoa(i), "github:o/r#1", time.Hour-time.Duration(i)*time.Minute))
	}
	entries := Find(Known{Ended: flood}, now)
	if len(entries) != 1 || !strings.Contains(entries[0].Why, "40 posts") || !strings.Contains(entries[0].Why, "loopbot") ||
		!strings.Contains(entries[0].Look, "--reason loop") || !strings.Contains(entries[0].Remedy, "muxpost retry d0") {
		t.Errorf("%+v", entries)
	}
	inline := row("d1", "github:o/r#1", dropped, "spawn_forbidden", time.Hour)
	inline.Kind, inline.Pull = "review_comment", "github:o/r#2"
	entries = Find(Known{Ended: []*pollerv1.LedgerEntry{inline}}, now)
	if len(entries) != 1 || entries[0].Pull != "github:o/r#2" || !strings.Contains(entries[0].Why, "a review comment on pull request github:o/r#2") {
		t.Errorf("%+v", entries)
	}
}

func delivery(id string, outcome dispatcherv1.Outcome, reason string, since time.Duration) *dispatcherv1.Delivery {
	return &dispatcherv1.Delivery{DeliveryId: id, Outcome: outcome, Reason: reason, Detail: "the detail", Remedy: "the remedy",
		UpdateTime: ago(since)}
}

// told is the list in short: kind, subject, delivery and since.
func told(entries []Entry) string {
	var out []string
	for _, e := range entries {
		text := strings.TrimSpace(string(e.Kind) + " " + e.Subject + " " + e.DeliveryID)
		if e.Since != nil {
			text += " " + now.Sub(*e.Since).String()
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}

func TestFind_ByTheTable(t *testing.T) {
	const unconfirmedOutcome = dispatcherv1.Outcome_OUTCOME_UNCONFIRMED
	heldOutcome := dispatcherv1.Outcome_OUTCOME_HELD
	waiting := func(rows ...*pollerv1.LedgerEntry) Known { return Known{Waiting: rows} }
	with := func(k Known, deliveries ...*dispatcherv1.Delivery) Known { k.Deliveries = deliveries; return k }
	for name, r := range map[string]struct {
		known Known
		want  string
	}{
		"nothing": {Known{},
			""},
		"held for 15 minutes": {with(waiting(row("d1", "i", held, "session_holds", time.Hour)), delivery("d1", heldOutcome, "", MaxHeld)),
			""},
		"held for longer": {with(waiting(row("d1", "i", held, "session_holds", time.Hour)), delivery("d1", heldOutcome, "", MaxHeld+time.Second)),
			"held i d1 15m1s"},
		"held, and being looked at": {with(waiting(row("d1", "i", leased, "session_holds", time.Hour)), delivery("d1", heldOutcome, "", time.Hour)),
			"held i d1 1h0m0s"},
		"held, and the ledger knows since when": {waiting(&pollerv1.LedgerEntry{WorkItem: "i", DeliveryId: "d1", State: held,
			HeldSince: ago(time.Hour), UpdateTime: ago(time.Second)}),
			"held i d1 1h0m0s"},
		"held, the dispatcher is away": {waiting(row("d1", "i", held, "session_holds", 9*time.Hour)),
			""},
		"on its way for an hour": {waiting(row("d1", "i", pending, "host_unreachable", MaxWaiting)),
			""},
		"on its way for longer": {waiting(row("d1", "i", pending, "host_unreachable", 2*time.Hour)),
			"waiting i d1 2h0m0s"},
		"never asked about": {waiting(row("d1", "i", pending, "", 2*time.Hour)),
			"waiting i d1 2h0m0s"},
		"only the head of an item": {waiting(row("d1", "i", pending, "", 2*time.Hour), row("d2", "i", pending, "tmux_no_answer", 2*time.Hour),
			row("d3", "i", pending, "", 5*time.Hour)),
			"waiting i d2 2h0m0s"},
		"two items": {waiting(row("d1", "b", pending, "", 2*time.Hour), row("d2", "a", pending, "", 3*time.Hour)),
			"waiting a d2 3h0m0s, waiting b d1 2h0m0s"},
		"paused": {waiting(row("d1", "i", pending, "paused", 90*time.Hour)),
			""},
		"shadowed for a moment": {waiting(row("d1", "i", pending, "shadow", time.Minute)),
			""},
		"shadowed for long": {waiting(row("d1", "i", pending, "shadow", 2*time.Hour), row("d2", "j", pending, "shadow", 3*time.Hour)),
			"shadow all 3h0m0s"},
		"typed, evidence is looked for": {with(waiting(row("d1", "i", pending, "no_evidence", time.Minute)),
			delivery("d1", unconfirmedOutcome, "no_evidence", time.Minute)),
			"unconfirmed i d1 1m0s"},
		"typed, the dispatcher is away": {waiting(row("d1", "i", pending, "no_evidence", time.Minute)),
			"unconfirmed i d1 1s"},
		"settled as unconfirmed": {Known{Ended: []*pollerv1.LedgerEntry{row("d1", "i", settled, "unconfirmed", time.Hour)}},
			"unconfirmed i d1 1s"},
		"settled by policy": {Known{Ended: []*pollerv1.LedgerEntry{row("d1", "i", settled, "unauthorised", time.Hour)}},
			""},
		"dropped and given up": {Known{Ended: []*pollerv1.LedgerEntry{row("d1", "i", gaveUp, "harness_exited", time.Hour),
			row("d2", "i", dropped, "session-occupied", time.Hour)}},
			"dropped i d2 1s, gave_up i d1 1s"},
		"too much was written about items": {Known{Ended: []*pollerv1.LedgerEntry{looped("d1", "i", 3*time.Hour), looped("d2", "i", 150*time.Minute),
			looped("d3", "i", 10*time.Minute), looped("d4", "j", 9*time.Minute), row("d5", "j", dropped, "session-occupied", time.Hour)}},
			"dropped i d1 3h0m0s, dropped i d3 10m0s, dropped j d4 9m0s, dropped j d5 1s"},
		"ended too long ago": {Known{Ended: []*pollerv1.LedgerEntry{row("d1", "i", dropped, "session-occupied", time.Hour)}, EndedAfter: now},
			""},
		"an agent that works": {Known{Sessions: []*dispatcherv1.Session{{WorkItem: "i", Activity: dispatcherv1.SessionActivity_SESSION_ACTIVITY_WORKING}}},
			""},
		"agents that wait for a person": {Known{Sessions: []*dispatcherv1.Session{
			{WorkItem: "i", Activity: dispatcherv1.SessionActivity_SESSION_ACTIVITY_NEEDS_HUMAN, ActivitySince: ago(time.Hour)},
			{WorkItem: "j", Activity: dispatcherv1.SessionActivity_SESSION_ACTIVITY_AWAITING_INPUT, ActivitySince: ago(2 * time.Hour)},
			{WorkItem: "k", Activity: dispatcherv1.SessionActivity_SESSION_ACTIVITY_AWAITING_APPROVAL, ActivitySince: ago(time.Minute), ActivityAsOf: ago(time.Second)},
			{WorkItem: "l", Activity: dispatcherv1.SessionActivity_SESSION_ACTIVITY_DRAFT, ActivitySince: ago(time.Minute)}}},
			"approval k 1m0s, needs_human j 2h0m0s, needs_human i 1h0m0s"},
		"an agent that waits for an answer": {Known{Sessions: []*dispatcherv1.Session{{WorkItem: "i", ActivityDetail: "1. Yes",
			Activity: dispatcherv1.SessionActivity_SESSION_ACTIVITY_AWAITING_APPROVAL}}},
			"approval i"},
		"a pause of a day": {Known{Pauses: []*dispatcherv1.Pause{{CreateTime: ago(MaxPaused)}}},
			""},
		"longer pauses": {Known{Pauses: []*dispatcherv1.Pause{{CreateTime: ago(25 * time.Hour)}, {WorkItem: "i", CreateTime: ago(26 * time.Hour)}}},
			"paused i 26h0m0s, paused all 25h0m0s"},
		"a source that was read": {Known{Sources: []*pollerv1.Source{{Name: "s", LastSuccessTime: ago(time.Hour)}}},
			""},
		"a source that fails": {Known{Sources: []*pollerv1.Source{{Name: "s", LastError: "x", LastErrorTime: ago(time.Minute),
			LastSuccessTime: ago(time.Hour)}}},
			"source s 1h0m0s"},
		"a source that was never read": {Known{Sources: []*pollerv1.Source{{Name: "s", LastError: "x", LastErrorTime: ago(time.Minute)}}},
			"source s 1m0s"},
		"a source that waits out a limit": {Known{Sources: []*pollerv1.Source{{Name: "s", LastError: "x", NotBefore: ago(-time.Minute)}}},
			""},
		"a source that cannot be written to": {Known{Sources: []*pollerv1.Source{{Name: "s", NoticeError: "x", NoticeErrorTime: ago(time.Hour)}}},
			"source s 1h0m0s"},
		"a living session": {Known{Sessions: []*dispatcherv1.Session{{WorkItem: "i", State: dispatcherv1.SessionState_SESSION_STATE_LIVE}}},
			""},
		"an agent that lost its session": {Known{Sessions: []*dispatcherv1.Session{{WorkItem: "i", Flags: []dispatcherv1.SessionFlag{
			dispatcherv1.SessionFlag_SESSION_FLAG_DETACHED}}}},
			"detached i"},
		"by kind, and the longest of each": {with(waiting(row("d1", "i", pending, "x", 2*time.Hour), row("d2", "j", held, "y", time.Hour)),
			delivery("d2", heldOutcome, "", time.Hour)),
			"held j d2 1h0m0s, waiting i d1 2h0m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			entries := Find(r.known, now)
			if got := told(entries); got != r.want {
				t.Errorf("%q, want %q", got, r.want)
			}
			for _, e := range entries {
				if e.Why == "" || e.Remedy == "" || !strings.HasPrefix(e.Look, "muxpost ") || strings.HasSuffix(e.Why, ".") {
					t.Errorf("%+v", e)
				}
			}
		})
	}
}

func TestFind_TellsOfAgentsThatHaveBeenIdleForLong(t *testing.T) {
	idle := func(item string, d time.Duration) *dispatcherv1.Session {
		return &dispatcherv1.Session{WorkItem: item, State: dispatcherv1.SessionState_SESSION_STATE_LIVE,
			Activity: dispatcherv1.SessionActivity_SESSION_ACTIVITY_IDLE, ActivitySince: ago(d)}
	}
	works := idle("github:o/r#3", 99*time.Hour)
	works.Activity = dispatcherv1.SessionActivity_SESSION_ACTIVITY_WORKING
	k := Known{IdleAfter: 24 * time.Hour, Sessions: []*dispatcherv1.Session{idle("github:o/r#1", 25*time.Hour), idle("github:o/r#2", 23*time.Hour), works}}
	if got := told(Find(k, now)); got != "idle github:o/r#1 25h0m0s" {
		t.Errorf("%s", got)
	}
	k.IdleAfter = 0
	if got := told(Find(k, now)); got != "" {
		t.Errorf("%s", got)
	}
}

func TestFind_TellsOfTeamsWhoseLatestRunNeedsAPerson(t *testing.T) {
	run := func(team string, phase teamv1.Phase, change func(*teamv1.Run)) *teamv1.Run {
		r := &teamv1.Run{RunId: "r-" + team, Team: team, Phase: phase, PhaseSince: ago(2 * time.Hour), Reason: "fix_loop_bound", Detail: "it does not hold"}
		if phase >= teamv1.Phase_PHASE_COMPLETE {
			r.EndTime = ago(2 * time.Hour)
		}
		if change != nil {
			change(r)
		}
		return r
	}
	failed := teamv1.Phase_PHASE_FAILED
	got := told(Find(Known{EndedAfter: now.Add(-24 * time.Hour), Runs: []*teamv1.Run{
		run("again", teamv1.Phase_PHASE_EXEC, nil), run("again", failed, nil),
		run("done", teamv1.Phase_PHASE_COMPLETE, nil),
		run("failed", failed, nil),
		run("given-up", failed, func(r *teamv1.Run) { r.EndedBy = "ann" }),
		run("long-ago", failed, func(r *teamv1.Run) { r.EndTime = ago(48 * time.Hour) }),
		run("retried", failed, func(r *teamv1.Run) { r.RetryAt = ago(-time.Hour) }),
		run("short", teamv1.Phase_PHASE_EXEC, func(r *teamv1.Run) { r.Waits, r.PhaseSince = "no host", ago(time.Minute) }),
		run("stands", teamv1.Phase_PHASE_EXEC, func(r *teamv1.Run) { r.Waits = "no host" }),
		run("unread", teamv1.Phase_PHASE_EXEC, func(r *teamv1.Run) { r.Problem, r.PhaseSince = "its record cannot be read", ago(time.Minute) }),
	}}, now))
	if want := "run failed 2h0m0s, run stands 2h0m0s, run unread 1m0s"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestFind_TellsOfHostsThatAreAwayAndOfWhatWasLeftBehindOnThoseThatAreBack(t *testing.T) {
	k := Known{Hosts: []*dispatcherv1.Host{
		{Name: "here", Reached: true, Since: ago(time.Hour)}, {Name: "gone", Since: ago(time.Hour), Detail: "nobody answers"},
		{Name: "just", Since: ago(time.Minute)}, {Name: "new"},
	}, Superseded: []*dispatcherv1.Superseded{
		{WorkItem: "github:o/r#1", Host: "here", Directory: "/w d", CreateTime: ago(2 * time.Hour)}, {WorkItem: "github:o/r#2", Host: "gone", CreateTime: ago(time.Hour)},
	}}
	found := Find(k, now)
	if got, want := told(found), "host gone 1h0m0s, superseded github:o/r#1 2h0m0s"; got != want {
		t.Fatalf("%s", got)
	}
	if e := found[0]; !strings.Contains(e.Why, "nobody answers") || !strings.Contains(e.Remedy, "evacuate gone") {
		t.Errorf("%+v", e)
	}
	if e := found[1]; !strings.Contains(e.Remedy, "muxpost stop 'github:o/r#1' --superseded-on here") || !strings.Contains(e.Remedy, "'/w d'") {
		t.Errorf("%+v", e)
	}
}

func TestFind_TakesTheDispatchersWords(t *testing.T) {
	k := Known{Ended: []*pollerv1.LedgerEntry{row("daaaa1111", "github:o/r#1", dropped, "session-occupied", time.Hour)},
		Deliveries: []*dispatcherv1.Delivery{delivery("daaaa1111", dispatcherv1.Outcome_OUTCOME_DROPPED, "session-occupied", time.Hour)}}
	e := Find(k, now)[0]
	if e.Why != "the detail" || e.Remedy != "the remedy; then muxpost retry daaaa1111" || e.Look != "muxpost explain daaaa1111" {
		t.Errorf("%+v", e)
	}
	k.Deliveries = nil
	if e := Find(k, now)[0]; !strings.Contains(e.Why, "belongs to something") || !strings.Contains(e.Remedy, "free the name") {
		t.Errorf("without them: %+v", e)
	}
}

func TestFind_NamesTheRetryOfWhatEnded(t *testing.T) {
	for reason, state := range map[string]pollerv1.LedgerState{
		"session-occupied": dropped, "target_collision": dropped, "harness_exited": pollerv1.LedgerState_LEDGER_STATE_GAVE_UP,
		"unconfirmed": pollerv1.LedgerState_LEDGER_STATE_SETTLED,
	} {
		e := Find(Known{Ended: []*pollerv1.LedgerEntry{row("daaaa1111", "github:o/r#1", state, reason, time.Hour)}}, now)[0]
		want := "muxpost retry daaaa1111"
		if reason == "unconfirmed" {
			want = "muxpost retry --type-again daaaa1111"
		}
		if strings.Count(e.Remedy, want) != 1 || strings.Contains(e.Remedy, "DELIVERY-ID") {
			t.Errorf("%s: %q", reason, e.Remedy)
		}
	}
}

func TestFind_AStateIsTheSameAsLongAsItLasts(t *testing.T) {
	look := func(k Known, later time.Duration) string {
		e := Find(k, now.Add(later))[0]
		return e.ID + " " + e.State
	}
	waits := row("d1", "i", pending, "host_unreachable", 3*time.Hour)
	unproven := row("d2", "i", pending, "no_evidence", time.Hour)
	source := &pollerv1.Source{Name: "gh", LastError: "one", LastErrorTime: ago(time.Minute)}
	for name, k := range map[string]Known{
		"waiting": {Waiting: []*pollerv1.LedgerEntry{waits}}, "unproven": {Waiting: []*pollerv1.LedgerEntry{unproven}},
		"never read": {Sources: []*pollerv1.Source{source}},
	} {
		before := look(k, 0)
		for _, r := range []*pollerv1.LedgerEntry{waits, unproven} {
			r.UpdateTime = timestamppb.New(now.Add(time.Minute)) // looked at again
		}
		source.LastErrorTime, source.LastError = timestamppb.New(now.Add(time.Minute)), "two"
		if after := look(k, 2*time.Minute); after != before {
			t.Errorf("%s: %q and then %q", name, before, after)
		}
	}
	before := look(Known{Waiting: []*pollerv1.LedgerEntry{waits}}, 0)
	waits.Reason = "dispatcher_unreachable"
	if after := look(Known{Waiting: []*pollerv1.LedgerEntry{waits}}, 0); after == before {
		t.Errorf("another reason: %q", after)
	}
	refused := &pollerv1.Source{Name: "gh", LastError: "one", NoticeError: "two"}
	if both := Find(Known{Sources: []*pollerv1.Source{refused}}, now); both[0].ID == both[1].ID {
		t.Errorf("two matters of a source are one entry: %+v", both)
	}
}

func TestFind_CountsWhatWaitsBehind(t *testing.T) {
	k := Known{Waiting: []*pollerv1.LedgerEntry{row("d1", "i", pending, "host_unreachable", 3*time.Hour), row("d2", "i", pending, "", 2*time.Hour),
		row("d3", "i", pending, "", 2*time.Hour)}}
	if e := Find(k, now)[0]; !strings.Contains(e.Why, "2 more events of it wait behind it") {
		t.Errorf("%+v", e)
	}
}

func TestKinds_AreEachOnce(t *testing.T) {
	seen := map[Kind]bool{}
	for _, k := range Kinds() {
		if seen[k] {
			t.Errorf("%s twice", k)
		}
		seen[k] = true
	}
}
