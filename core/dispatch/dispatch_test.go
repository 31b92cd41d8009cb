package dispatch

import (
	"flag"
	"fmt"
	"os"
	"reflect"
	"sort"
	"strings"
	"testing"

	"muxpost.dev/muxpost/core/session"
)

var update = flag.Bool("update", false, "write the golden file")

// results returns every set of facts that performing d can lead to.
func results(f Facts, d Decision) []Facts {
	var out []Facts
	with := func(change func(*Facts)) {
		g := f
		change(&g)
		out = append(out, g)
	}
	switch d.Action {
	case LookUp:
		for _, forbidden := range []bool{false, true} {
			with(func(g *Facts) { g.Registry, g.SpawnForbidden = NoSession, forbidden })
		}
		with(func(g *Facts) { g.Registry, g.TargetTaken = NoSession, true })
		for _, r := range []Registry{NoSession, Recorded} {
			with(func(g *Facts) { g.Registry, g.Ending = r, true })
		}
		for r := ResumeYes; r <= ResumeMalformed; r++ {
			with(func(g *Facts) { g.Registry, g.Resumable = Recorded, r })
		}
		with(func(g *Facts) { g.Registry, g.Resumable, g.LeftBehind = Recorded, ResumeElsewhere, true })
	case ProbeHost:
		bools := []bool{false, true}
		for p := ProbeNowhere; p <= ProbeAbsent; p++ {
			for _, phase := range session.Phases() {
				for _, unreadable := range bools {
					for _, same := range bools {
						with(func(g *Facts) { g.Probe, g.Phase, g.SameIncarnation, g.JournalUnreadable = p, phase, same, unreadable })
					}
					if p == ProbeDead || p == ProbeAbsent {
						with(func(g *Facts) { g.Probe, g.Phase, g.JournalUnreadable, g.Draining = p, phase, unreadable, true })
					}
					for r := ResumeYes; r <= ResumeMalformed && f.Registry == NoSession && (p == ProbeDead || p == ProbeAbsent); r++ {
						with(func(g *Facts) {
							g.Probe, g.Phase, g.JournalUnreadable, g.HostKnows, g.Resumable = p, phase, unreadable, true, r
						})
					}
				}
			}
		}
	case Adopt, Heal, Register:
		with(func(g *Facts) { *g = g.WithRecord() })
	case CountDeaths:
		for s := StartsAllowed; s <= StartsDue; s++ {
			with(func(g *Facts) { g.Starts = s })
		}
	case Park:
		with(func(g *Facts) { g.Starts = StartsParked })
	case Unpark:
		with(func(g *Facts) { g.Starts = StartsAllowed })
	case SpawnResume:
		for s := SpawnStarted; s <= SpawnNotLoggedIn; s++ {
			with(func(g *Facts) { g.Resume = s })
		}
	case SpawnFresh:
		for s := SpawnStarted; s <= SpawnNotLoggedIn; s++ {
			with(func(g *Facts) { g.Fresh = s })
		}
	case PasteText:
		for p := PasteSubmitted; p <= PasteFailed; p++ {
			with(func(g *Facts) { g.Paste = p })
		}
	case Finish:
	}
	return out
}

// walk calls visit for every node that can be reached, with the path of decisions that led there.
func walk(visit func(path []Facts, d Decision)) {
	var step func(path []Facts)
	step = func(path []Facts) {
		f := path[len(path)-1]
		d := Decide(f)
		visit(path, d)
		for _, g := range results(f, d) {
			step(append(path[:len(path):len(path)], g))
		}
	}
	for _, start := range []Facts{{}, {Paused: true}, {Shadow: true}, {Paused: true, Shadow: true}} {
		step([]Facts{start})
	}
}

func TestDecide_EveryPathEndsWithinItsBounds(t *testing.T) {
	paths := 0
	walk(func(path []Facts, d Decision) {
		counts := map[Action]int{}
		for _, f := range path {
			counts[Decide(f).Action]++
		}
		for action, limit := range map[Action]int{
			LookUp: 1, ProbeHost: 1, Adopt: 1, Heal: 1, Register: 1, CountDeaths: 1, Park: 1, Unpark: 1, SpawnResume: 1, SpawnFresh: 1, PasteText: 1, Finish: 1,
		} {
			if counts[action] > limit {
				t.Fatalf("%d times %v on the path to %+v", counts[action], action, path[len(path)-1])
			}
		}
		if d.Action == Finish {
			paths++
			if d.Outcome != Delivered && d.Reason == ReasonNone {
				t.Fatalf("%+v ends as %v without a reason", path[len(path)-1], d.Outcome)
			}
			if (d.Outcome == Delivered) != (d.How != "") {
				t.Fatalf("%+v ends as %v by %q", path[len(path)-1], d.Outcome, d.How)
			}
		}
	})
	if paths == 0 {
		t.Fatal("no path ends")
	}
}

func TestDecide_OnlyProvenDeathSpawns(t *testing.T) {
	walk(func(path []Facts, d Decision) {
		f := path[len(path)-1]
		if (d.Action == SpawnResume || d.Action == SpawnFresh) && f.Probe != ProbeDead && f.Probe != ProbeAbsent {
			t.Fatalf("%v for %+v", d.Action, f)
		}
	})
}

func TestDecide_NothingStartsOnADrainedHost(t *testing.T) {
	walk(func(path []Facts, d Decision) {
		f := path[len(path)-1]
		if f.Draining && (d.Action == SpawnResume || d.Action == SpawnFresh || d.Action == Finish && d.Outcome == Dropped) {
			t.Fatalf("%v for %+v", d.Action, f)
		}
	})
}

func TestDecide_WhatMayHaveArrivedIsNeverAFirstPrompt(t *testing.T) {
	walk(func(path []Facts, d Decision) {
		f := path[len(path)-1]
		if d.WithPrompt && (f.Phase.MayHaveArrived() || f.JournalUnreadable || f.Resume == SpawnDied || f.Resume == SpawnFailed ||
			f.Resume >= SpawnInUse) {
			t.Fatalf("%v with the prompt for %+v", d.Action, f)
		}
	})
}

func TestDecide_SilenceNeverFailsOrDrops(t *testing.T) {
	walk(func(path []Facts, d Decision) {
		f := path[len(path)-1]
		none := func(s Spawn) bool { return s == SpawnSilent || s == SpawnNoCapacity }
		silent := f.Probe == ProbeUnreachable || f.Probe == ProbeNowhere || f.Paste == PasteSilent || none(f.Fresh) || f.Fresh == SpawnNotTried && none(f.Resume)
		if silent && d.Action == Finish && d.Outcome != Waiting {
			t.Fatalf("%+v ends as %v (%s)", f, d.Outcome, d.Reason)
		}
	})
}

// A limit that passes, a login that is missing and a conversation that somebody else has open are no reason to give the conversation up.
func TestDecide_AResumeThatMeetsALimitIsNeverMadeUpForByAFreshConversation(t *testing.T) {
	walk(func(path []Facts, d Decision) {
		if f := path[len(path)-1]; f.Resume >= SpawnInUse && d.Action != Finish {
			t.Fatalf("%v for %+v", d.Action, f)
		}
	})
}

func TestDecide_DeadAndAbsentAreTheSame(t *testing.T) {
	walk(func(path []Facts, d Decision) {
		f := path[len(path)-1]
		if f.Probe == ProbeDead {
			f.Probe = ProbeAbsent
			if got := Decide(f); !reflect.DeepEqual(got, d) {
				t.Fatalf("%+v: dead gives %+v, absent gives %+v", f, d, got)
			}
		}
	})
}

// TestDecide_IsTotal asks about facts that no path leads to as well: a bug elsewhere must not make this package panic, spawn over
// the living, or go round for ever.
func TestDecide_IsTotal(t *testing.T) {
	var f Facts
	for bits := range 8 {
		f.Shadow, f.HostKnows, f.TargetTaken = bits&1 != 0, bits&2 != 0, bits&4 != 0
		for f.Starts = StartsNotAsked; f.Starts <= StartsDue+1; f.Starts++ {
			checkTotal(t, f)
		}
	}
}

func checkTotal(t *testing.T, f Facts) {
	bools := []bool{false, true}
	for f.Registry = RegistryNotAsked; f.Registry <= Recorded+1; f.Registry++ {
		for f.Probe = ProbeNotAsked; f.Probe <= ProbeAbsent+1; f.Probe++ {
			for f.Resume = SpawnNotTried; f.Resume <= SpawnNotLoggedIn+1; f.Resume++ {
				for f.Fresh = SpawnNotTried; f.Fresh <= SpawnNotLoggedIn+1; f.Fresh++ {
					for f.Paste = PasteNotTried; f.Paste <= PasteFailed+1; f.Paste++ {
						for _, f.Stored = range bools {
							if d := Decide(f); d.Action == Finish && d.Outcome == InProgress && d.Reason != ReasonStarting {
								t.Fatalf("Decide(%+v) = %+v", f, d)
							}
						}
					}
				}
			}
		}
	}
}

func TestDecide_EmitsEveryListedEventAndNoOther(t *testing.T) {
	// One is emitted when a delivery is first stored, before anything is decided, and the others when an operator says something.
	seen := map[EventType]bool{DispatchQueued: true, DispatchPaused: true, DispatchUnpaused: true, DispatchReopened: true, SessionStopped: true,
		SessionSuperseded: true, HostAdded: true, HostDraining: true, HostUndrained: true, HostAccepted: true, HostForgotten: true,
		SessionClosed: true, SessionEndOrdered: true, SessionEndCancelled: true, SessionEndLapsed: true}
	for _, e := range []EventType{TeamStarted, TeamPhase, TeamEnded, TaskStarted, TaskEnded} {
		seen[e] = true // a run's, not a delivery's: the store's tests show them
	}
	walk(func(_ []Facts, d Decision) {
		for _, e := range d.Events {
			seen[e] = true
		}
	})
	listed := EventTypes()
	for e := range seen {
		if listed[e] == "" {
			t.Errorf("%s is emitted and not listed", e)
		}
	}
	for e := range listed {
		if !seen[e] {
			t.Errorf("%s is listed and never emitted", e)
		}
	}
}

func TestDecide_UsesEveryReason(t *testing.T) {
	// These are the dispatcher's own: no lease, no time, an operator's word.
	seen := map[Reason]bool{ReasonLeaseHeld: true, ReasonDeadline: true, ReasonReopened: true}
	walk(func(_ []Facts, d Decision) { seen[d.Reason] = true })
	for _, r := range Reasons() {
		if !seen[r] {
			t.Errorf("reason %q is listed and never given", r)
		}
		delete(seen, r)
	}
	delete(seen, ReasonNone)
	for r := range seen {
		t.Errorf("reason %q is given and not listed", r)
	}
}

func TestOutcome_NamesReadBack(t *testing.T) {
	for _, o := range Outcomes() {
		if got, ok := ParseOutcome(o.String()); got != o || !ok {
			t.Errorf("%v reads back as %v", o, got)
		}
		if o != Waiting && o.Final() != (LookAgain(o, ReasonStart) == 0) {
			t.Errorf("%v: final %v, look again %v", o, o.Final(), LookAgain(o, ReasonStart))
		}
	}
}

var (
	registryNames = []string{"?", "no session", "recorded"}
	probeNames    = []string{"?", "nowhere", "unreachable", "unknown", "live", "foreign", "detached", "dead", "dead+guests", "absent"}
	startsNames   = []string{", not counted", "", ", too often", ", parked", ", parked, due"}
	resumeNames   = []string{"", "no id", "resume off", "no resume", "evacuated", "bad id"}
	spawnNames    = []string{"-", "started", "taken", "occupied", "unclearable", "died", "refused", "cannot", "silent", "failed", "no capacity", "in use", "limited", "no login"}
	pasteNames    = []string{"-", "submitted", "already", "held", "not ready", "busy", "gone", "foreign", "refused", "unconfirmed", "silent", "failed"}
)

// TestDecide_Golden writes the decisions out as a table that people can review. It leaves out what other tests prove to be the
// same: absent beside dead, and facts that the decision does not read.
func TestDecide_Golden(t *testing.T) {
	lines := map[string]bool{}
	walk(func(path []Facts, d Decision) {
		f := path[len(path)-1]
		plain := f.Phase == session.None || f.Phase == session.Submitted && f.Probe == ProbeDead && f.Resume == 0 && f.Fresh == 0 ||
			f.Phase == session.Taken && f.Resume == 0 && f.Fresh == 0 && f.Paste == 0
		counts := d.Action == CountDeaths || f.Starts > StartsAllowed
		if f.Probe == ProbeAbsent || !plain || counts && (f.Phase != session.None || f.Resumable != ResumeYes) || f.JournalUnreadable || f.SpawnForbidden && f.Probe != ProbeDead ||
			f.HostKnows && f.Registry == Recorded || // the same as recorded, which a test proves
			f.HostKnows && (f.SpawnForbidden || f.Resumable != ResumeYes) || f.Shadow && (f.Paused || f.Resumable != ResumeYes) ||
			f.Probe != ProbeLive && f.SameIncarnation || f.Resumable != ResumeYes && (f.Probe != ProbeDead || f.Fresh != 0) {
			return
		}
		lines[goldenLine(f, d)] = true
	})
	var rows []string
	for line := range lines {
		rows = append(rows, line)
	}
	sort.Strings(rows)
	got := fmt.Sprintf("%-34s | %-22s | %-11s | %-11s | %-11s | %s\n", "registry", "probe", "resume", "fresh", "paste", "decision") +
		strings.Join(rows, "\n") + "\n"
	const file = "testdata/decide.golden"
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the decisions changed: review them with\n\tgo test ./core/dispatch -run Golden -update && git diff core/dispatch/testdata")
	}
}

func goldenLine(f Facts, d Decision) string {
	registry := registryNames[f.Registry]
	for _, note := range []struct {
		on   bool
		text string
	}{{f.Registry == Recorded && f.Resumable != ResumeYes, resumeNames[f.Resumable]}, {f.SpawnForbidden, "spawn forbidden"},
		{f.TargetTaken, "name taken"}, {f.Ending, "ending"}, {f.HostKnows, "host knows"}, {f.Stored, "stored"}, {f.Draining, "draining"},
		{f.LeftBehind, "left behind"}, {f.Paused, "paused"}, {f.Shadow, "shadow"}} {
		if note.on {
			registry += ", " + note.text
		}
	}
	probe := probeNames[f.Probe]
	if f.Probe == ProbeLive && f.Registry == Recorded && !f.SameIncarnation {
		probe += ", another"
	}
	if f.Resume == SpawnNotTried && f.Fresh == SpawnNotTried && (f.Starts != StartsNotAsked || d.Action == CountDeaths) {
		probe += startsNames[f.Starts]
	}
	if f.Phase != session.None {
		probe += ", " + f.Phase.String()
	}
	return fmt.Sprintf("%-34s | %-22s | %-11s | %-11s | %-11s | %s", registry, probe, spawnNames[f.Resume], spawnNames[f.Fresh],
		pasteNames[f.Paste], decisionText(d))
}

func decisionText(d Decision) string {
	decision := d.Action.String()
	if d.WithPrompt {
		decision += " with the event as prompt"
	}
	if d.Action == Finish {
		decision = d.Outcome.String()
	}
	if d.Reason != ReasonNone {
		decision += " (" + string(d.Reason) + ")"
	}
	if d.How != "" {
		decision += " by " + string(d.How)
	}
	for _, e := range d.Events {
		decision += " +" + string(e)
	}
	for i, w := range d.Withheld {
		decision += []string{", would ", ", then "}[min(i, 1)]
		if w.Action == Finish {
			decision += "end as "
		}
		decision += decisionText(w)
	}
	return decision
}
