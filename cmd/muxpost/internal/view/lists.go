package view

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	pollerv1 "muxpost.dev/muxpost/proto/gen/muxpost/poller/v1"
)

// Word returns an enum's value as people say it: LEDGER_STATE_GAVE_UP with the prefix LEDGER_STATE_ is gave_up.
func Word(name, prefix string) string { return strings.ToLower(strings.TrimPrefix(name, prefix)) }

// LedgerState names a state of the ledger.
func LedgerState(s pollerv1.LedgerState) string { return Word(s.String(), "LEDGER_STATE_") }

// Outcome names an outcome.
func Outcome(o dispatcherv1.Outcome) string { return Word(o.String(), "OUTCOME_") }

// activityCell writes what an agent does and for how long; of one whose host is away, until when that is known.
func (p Printer) activityCell(s *dispatcherv1.Session) Cell {
	text, at := Activity(s.GetActivity()), time.Time{}
	switch since, asOf := s.GetActivitySince(), s.GetActivityAsOf(); {
	case s.GetActivity() == dispatcherv1.SessionActivity_SESSION_ACTIVITY_UNSPECIFIED:
		return Cell{Text: "-", Tone: Dim}
	case asOf != nil:
		return Cell{Text: text + " (as of " + p.Ago(asOf.AsTime()) + ")", Tone: Dim, At: asOf.AsTime()}
	case since != nil:
		at = since.AsTime()
		text += " " + Short(max(p.Now.Sub(since.AsTime()), 0).Truncate(time.Second))
	}
	if NeedsPerson(s.GetActivity()) || s.GetActivity() == dispatcherv1.SessionActivity_SESSION_ACTIVITY_UNCLEAR {
		return Cell{Text: text, Tone: Warn, At: at}
	}
	return Cell{Text: text, At: at}
}

// NeedsPerson reports whether an agent waits for a person.
func NeedsPerson(a dispatcherv1.SessionActivity) bool {
	return a == dispatcherv1.SessionActivity_SESSION_ACTIVITY_AWAITING_APPROVAL || a == dispatcherv1.SessionActivity_SESSION_ACTIVITY_AWAITING_INPUT ||
		a == dispatcherv1.SessionActivity_SESSION_ACTIVITY_NEEDS_HUMAN
}

// Activity is what an agent does, in words.
func Activity(a dispatcherv1.SessionActivity) string { return Word(a.String(), "SESSION_ACTIVITY_") }

// SessionState names a state of a session.
func SessionState(s dispatcherv1.SessionState) string { return Word(s.String(), "SESSION_STATE_") }

// ToneOf returns the tone of a state, an outcome or a level.
func ToneOf(word string) Tone {
	switch word {
	case "delivered", "live", "healthy", "ok", "running":
		return Good
	case "held", "waiting", "in_progress", "leased", "pending", "unconfirmed", "unknown", "warn", "paused", "shadow", "detached":
		return Warn
	case "dropped", "gave_up", "failed", "dead", "down", "fail", "unhealthy", "source":
		return Bad
	case "settled", "cancelled", "absent", "unspecified", "skip":
		return Dim
	}
	return Plain
}

// flagged puts flags beside a state.
func flagged(state Cell, flags []dispatcherv1.SessionFlag) Cell {
	for _, f := range flags {
		state.Text += ", " + Word(f.String(), "SESSION_FLAG_")
	}
	return state
}

func stateCell(word string) Cell { return Cell{Text: word, Tone: ToneOf(word)} }

// Ledger writes rows of the ledger.
func (p Printer) Ledger(entries []*pollerv1.LedgerEntry) { p.Write(p.LedgerTable(entries)) }

// LedgerTable is the table of rows of the ledger.
func (p Printer) LedgerTable(entries []*pollerv1.LedgerEntry) Table {
	rows := make([][]Cell, 0, len(entries))
	for _, e := range entries {
		next := Text(p.Next(e))
		if next.Text != "" {
			next.At = e.GetNextLook().AsTime()
		}
		tries := fmt.Sprintf("%d/%d", e.GetTries(), e.GetBudget())
		if e.GetTries() == 0 && !Waits(e.GetState()) {
			tries = "-"
		}
		rows = append(rows, []Cell{
			Text(e.GetDeliveryId()), Text(e.GetWorkItem()), stateCell(LedgerState(e.GetState())), Text(kind(e)), Text(by(e)),
			Text(tries), next, p.since(e.GetCreateTime()), Text(Why(e)),
		})
	}
	return Table{"no event in the ledger",
		[]string{"DELIVERY", "ITEM", "STATE", "KIND", "BY", "TRIES", "NEXT LOOK", "CAME IN", "REASON"}, rows}
}

// Counts writes how many events are in each state, and for which reasons.
func (p Printer) Counts(counts *pollerv1.CountLedgerResponse) {
	var rows [][]Cell
	for _, c := range counts.GetCounts() {
		if c.GetCount() == 0 {
			continue
		}
		rows = append(rows, []Cell{stateCell(LedgerState(c.GetState())), Text(""), Text(fmt.Sprint(c.GetCount()))})
		for _, r := range counts.GetReasons() {
			if r.GetState() == c.GetState() && r.GetReason() != "" {
				rows = append(rows, []Cell{Text(""), Text(r.GetReason()), Text(fmt.Sprint(r.GetCount()))})
			}
		}
	}
	p.Table("no event in the ledger", []string{"STATE", "REASON", "EVENTS"}, rows)
}

// Waits reports whether an event is still on its way.
func Waits(s pollerv1.LedgerState) bool {
	return s == pollerv1.LedgerState_LEDGER_STATE_PENDING || s == pollerv1.LedgerState_LEDGER_STATE_LEASED ||
		s == pollerv1.LedgerState_LEDGER_STATE_HELD
}

// Next writes when an event is looked at next; empty for one that is being delivered or has to wait for another.
func (p Printer) Next(e *pollerv1.LedgerEntry) string {
	if e.GetWaitsBehind() != nil || e.GetState() == pollerv1.LedgerState_LEDGER_STATE_LEASED {
		return ""
	}
	return p.Due(e.GetNextLook())
}

// Behind says what an event waits behind: "waits behind d… (held: the composer holds a draft)"; empty when it is the first of its item.
func Behind(e *pollerv1.LedgerEntry) string {
	a := e.GetWaitsBehind()
	if a == nil {
		return ""
	}
	state := LedgerState(a.GetState())
	if text := cmp.Or(a.GetDetail(), a.GetReason()); text != "" {
		state += ": " + Clean(text)
	}
	return "waits behind " + Clean(a.GetDeliveryId()) + " (" + state + ")"
}

// Why is the reason of an event's state, and what it waits behind.
func Why(e *pollerv1.LedgerEntry) string { return cmp.Or(Behind(e), e.GetReason()) }

// How says by which way an event got into its conversation; empty when it did not.
func How(h dispatcherv1.How) string {
	switch h {
	case dispatcherv1.How_HOW_PASTED:
		return "by paste"
	case dispatcherv1.How_HOW_SPAWNED:
		return "by start"
	case dispatcherv1.How_HOW_RESUMED:
		return "by resume"
	case dispatcherv1.How_HOW_RESPAWNED_FRESH:
		return "by start, with a new conversation"
	case dispatcherv1.How_HOW_AVERTED:
		return "by paste, into an agent that was found living"
	case dispatcherv1.How_HOW_ALREADY:
		return "it was there already"
	case dispatcherv1.How_HOW_UNSPECIFIED:
	}
	return ""
}

// by says who caused an event.
func by(e *pollerv1.LedgerEntry) string {
	if e.GetAuthor() != "" {
		return e.GetAuthor()
	}
	return e.GetSource()
}

// Where says at which pull request an event happened, and what it is about; empty for one of the item's own thread.
func Where(e *pollerv1.LedgerEntry) string {
	var parts []string
	if pull := elsewhere(e); pull != "" {
		parts = append(parts, "on pull request "+pull)
	}
	if about := e.GetAbout(); about != "" && e.GetCommit() != "" {
		parts = append(parts, "of "+about)
	} else if about != "" {
		parts = append(parts, "at "+about)
	}
	return strings.Join(parts, ", ")
}

// elsewhere is the pull request of an event, where that is not the item itself.
func elsewhere(e *pollerv1.LedgerEntry) string {
	if e.GetPull() == e.GetWorkItem() {
		return ""
	}
	return e.GetPull()
}

// kind is what happened, and the number of the pull request where it did.
func kind(e *pollerv1.LedgerEntry) string {
	if _, number, ok := strings.Cut(elsewhere(e), "#"); ok {
		return e.GetKind() + " #" + number
	}
	return e.GetKind()
}

// Deliveries writes deliveries.
func (p Printer) Deliveries(deliveries []*dispatcherv1.Delivery) {
	rows := make([][]Cell, 0, len(deliveries))
	for _, d := range deliveries {
		how := d.GetReason()
		if d.GetHow() != dispatcherv1.How_HOW_UNSPECIFIED {
			how = How(d.GetHow())
		}
		rows = append(rows, []Cell{
			Text(d.GetDeliveryId()), Text(d.GetWorkItem()), stateCell(Outcome(d.GetOutcome())), Text(how),
			Text(fmt.Sprint(d.GetAsked())), Text(d.GetHost()), Text(p.Ago(d.GetUpdateTime().AsTime())), Text(d.GetDetail()),
		})
	}
	p.Table("no delivery", []string{"DELIVERY", "ITEM", "OUTCOME", "HOW OR WHY", "ASKED", "HOST", "CHANGED", "DETAIL"}, rows)
}

// Orphans writes sessions without a record and records without a session, and which hosts could not be asked.
func (p Printer) Orphans(all *dispatcherv1.ListOrphansResponse) {
	rows := make([][]Cell, 0, len(all.GetOrphans()))
	for _, o := range all.GetOrphans() {
		rows = append(rows, []Cell{
			Text(Orphan(o)), Text(o.GetWorkItem()), stateCell(SessionState(o.GetState())), Text(o.GetHarness()), Text(o.GetHost()),
			Text(o.GetRecordedOn()), Text(o.GetConversationId()), Text(o.GetDetail()),
		})
	}
	p.Table("every living session is recorded, and every record has a session", []string{"ORPHAN", "ITEM", "STATE", "HARNESS", "HOST", "RECORDED ON",
		"CONVERSATION", "DETAIL"}, rows)
	if hosts := all.GetSilentHosts(); len(hosts) > 0 {
		p.Line("%s", p.Paint(Warn, "not known: "+Clean(strings.Join(hosts, ", "))+" did not answer"))
	}
	if all.GetMore() {
		p.Line("%s", p.Paint(Warn, "there are more"))
	}
}

// Orphan is in which way a session and the record do not fit.
func Orphan(o *dispatcherv1.Orphan) string {
	return strings.ToLower(strings.TrimPrefix(o.GetKind().String(), "ORPHAN_KIND_"))
}

// Ending is what a person ordered: stop or close.
func Ending(e *dispatcherv1.Ending) string {
	return strings.ToLower(strings.TrimPrefix(e.GetVerb().String(), "ENDING_VERB_"))
}

// Sessions writes sessions.
func (p Printer) Sessions(sessions []*dispatcherv1.Session) { p.Write(p.SessionsTable(sessions)) }

// SessionsTable is the table of sessions.
func (p Printer) SessionsTable(sessions []*dispatcherv1.Session) Table {
	rows := make([][]Cell, 0, len(sessions))
	for _, s := range sessions {
		state, detail := SessionState(s.GetState()), s.GetStateDetail()
		if s.GetClosed() {
			state = "closed"
		}
		if e := s.GetEnding(); e != nil {
			detail = "the order to " + Ending(e) + " it waits for its host; " + detail
		}
		rows = append(rows, []Cell{
			Text(s.GetWorkItem()), Text(s.GetTarget()), flagged(stateCell(state), s.GetFlags()), p.activityCell(s), Text(s.GetHarness()), Text(s.GetHost()),
			Text(s.GetConversationId()), p.since(s.GetUpdateTime()), Text(detail),
		})
	}
	return Table{"no session is recorded", []string{"ITEM", "TARGET", "STATE", "DOES", "HARNESS", "HOST", "CONVERSATION", "CHANGED", "DETAIL"}, rows}
}

// Events writes events, one line each, so that a stream of them can be followed.
func (p Printer) Events(events []*dispatcherv1.Event) {
	for _, e := range events {
		p.Line("%s  %s  %-24s %s  %s  %s", p.Paint(Dim, fmt.Sprintf("%6d", e.GetSequence())),
			e.GetTime().AsTime().In(p.Now.Location()).Format("Jan 2 15:04:05.000"), Clean(e.GetType()), Clean(e.GetWorkItem()),
			cmp.Or(Clean(e.GetDeliveryId()), "-"), p.fields(e))
	}
}

// fields are an event's own, without those that have a place of their own.
func (p Printer) fields(e *dispatcherv1.Event) string {
	var words []string
	for _, key := range slices.Sorted(maps.Keys(e.GetFields())) {
		if value := e.GetFields()[key]; value != "" && !slices.Contains([]string{"work_item", "delivery_id"}, key) {
			words = append(words, p.Paint(Dim, key+"=")+Clip(value, maxCell))
		}
	}
	return strings.Join(words, " ")
}

// EventsTable is the table of events, the newest first.
func (p Printer) EventsTable(events []*dispatcherv1.Event) Table {
	rows := make([][]Cell, 0, len(events))
	for _, e := range slices.Backward(events) {
		at := e.GetTime().AsTime()
		rows = append(rows, []Cell{{Text: at.In(p.Now.Location()).Format("Jan 2 15:04:05.000"), At: at}, Text(e.GetType()), Text(e.GetWorkItem()),
			Text(e.GetDeliveryId()), Text(p.fields(e)), Text(fmt.Sprint(e.GetSequence()))})
	}
	return Table{"no event", []string{"WHEN", "TYPE", "ITEM", "DELIVERY", "FIELDS", "NUMBER"}, rows}
}

// Polls writes what looks at sources found.
func (p Printer) Polls(sources []*pollerv1.SourcePoll) {
	rows := make([][]Cell, 0, len(sources))
	for _, s := range sources {
		state := Cell{Text: "ok", Tone: Good}
		if s.GetError() != "" {
			state = Cell{Text: "fail", Tone: Bad}
		}
		rows = append(rows, []Cell{
			Text(s.GetSource()), state, Text(fmt.Sprint(s.GetItems())), Text(fmt.Sprint(s.GetNewEvents())),
			Text(fmt.Sprint(s.GetSettledEvents())), Text(Short(s.GetTook().AsDuration())), Text(s.GetError()),
		})
	}
	p.Table("no source is configured", []string{"SOURCE", "LOOK", "ITEMS", "NEW", "SETTLED", "TOOK", "ERROR"}, rows)
}
