package view

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	pollerv1 "muxpost.dev/muxpost/proto/gen/muxpost/poller/v1"
)

// Word returns an enum's value as people say it: LEDGER_STATE_GAVE_UP with the prefix LEDGER_STATE_ is gave_up.
func Word(name, prefix string) string { return strings.ToLower(strings.TrimPrefix(name, prefix)) }

// LedgerState names a state of the ledger.
func LedgerState(s pollerv1.LedgerState) string { return Word(s.String(), "LEDGER_STATE_") }

// Outcome names an outcome.
func Outcome(o dispatcherv1.Outcome) string { return Word(o.String(), "OUTCOME_") }

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

func stateCell(word string) Cell { return Cell{word, ToneOf(word)} }

// Ledger writes rows of the ledger.
func (p Printer) Ledger(entries []*pollerv1.LedgerEntry) {
	rows := make([][]Cell, 0, len(entries))
	for _, e := range entries {
		next := ""
		if e.GetNextLook() != nil {
			next = p.Ago(e.GetNextLook().AsTime())
		}
		rows = append(rows, []Cell{
			Text(e.GetDeliveryId()), Text(e.GetWorkItem()), stateCell(LedgerState(e.GetState())), Text(e.GetKind()), Text(by(e)),
			Text(fmt.Sprintf("%d/%d", e.GetTries(), e.GetBudget())), Text(next), Text(p.Ago(e.GetCreateTime().AsTime())), Text(e.GetReason()),
		})
	}
	p.Table("no event in the ledger",
		[]string{"DELIVERY", "ITEM", "STATE", "KIND", "BY", "TRIES", "NEXT LOOK", "CAME IN", "REASON"}, rows)
}

// by says who caused an event.
func by(e *pollerv1.LedgerEntry) string {
	if e.GetAuthor() != "" {
		return e.GetAuthor()
	}
	return e.GetSource()
}

// Deliveries writes deliveries.
func (p Printer) Deliveries(deliveries []*dispatcherv1.Delivery) {
	rows := make([][]Cell, 0, len(deliveries))
	for _, d := range deliveries {
		how := d.GetReason()
		if d.GetHow() != dispatcherv1.How_HOW_UNSPECIFIED {
			how = "by " + Word(d.GetHow().String(), "HOW_")
		}
		rows = append(rows, []Cell{
			Text(d.GetDeliveryId()), Text(d.GetWorkItem()), stateCell(Outcome(d.GetOutcome())), Text(how),
			Text(fmt.Sprint(d.GetAsked())), Text(d.GetHost()), Text(p.Ago(d.GetUpdateTime().AsTime())), Text(d.GetDetail()),
		})
	}
	p.Table("no delivery", []string{"DELIVERY", "ITEM", "OUTCOME", "HOW OR WHY", "ASKED", "HOST", "CHANGED", "DETAIL"}, rows)
}

// Sessions writes sessions.
func (p Printer) Sessions(sessions []*dispatcherv1.Session) {
	rows := make([][]Cell, 0, len(sessions))
	for _, s := range sessions {
		rows = append(rows, []Cell{
			Text(s.GetWorkItem()), Text(s.GetTarget()), stateCell(SessionState(s.GetState())), Text(s.GetHarness()), Text(s.GetHost()),
			Text(s.GetConversationId()), Text(p.Ago(s.GetUpdateTime().AsTime())), Text(s.GetStateDetail()),
		})
	}
	p.Table("no session is recorded", []string{"ITEM", "TARGET", "STATE", "HARNESS", "HOST", "CONVERSATION", "CHANGED", "DETAIL"}, rows)
}

// Events writes events, one line each, so that a stream of them can be followed.
func (p Printer) Events(events []*dispatcherv1.Event) {
	for _, e := range events {
		fields := e.GetFields()
		var words []string
		for _, key := range slices.Sorted(maps.Keys(fields)) {
			if value := fields[key]; value != "" && !slices.Contains([]string{"work_item", "delivery_id"}, key) {
				words = append(words, p.Paint(Dim, key+"=")+Clip(value, maxCell))
			}
		}
		p.Line("%s  %s  %-24s %s  %s  %s", p.Paint(Dim, fmt.Sprintf("%6d", e.GetSequence())),
			e.GetTime().AsTime().In(p.Now.Location()).Format("Jan 2 15:04:05.000"), Clean(e.GetType()), Clean(e.GetWorkItem()),
			cmp.Or(Clean(e.GetDeliveryId()), "-"), strings.Join(words, " "))
	}
}

// Polls writes what looks at sources found.
func (p Printer) Polls(sources []*pollerv1.SourcePoll) {
	rows := make([][]Cell, 0, len(sources))
	for _, s := range sources {
		state := Cell{"ok", Good}
		if s.GetError() != "" {
			state = Cell{"fail", Bad}
		}
		rows = append(rows, []Cell{
			Text(s.GetSource()), state, Text(fmt.Sprint(s.GetItems())), Text(fmt.Sprint(s.GetNewEvents())),
			Text(fmt.Sprint(s.GetSettledEvents())), Text(Short(s.GetTook().AsDuration())), Text(s.GetError()),
		})
	}
	p.Table("no source is configured", []string{"SOURCE", "LOOK", "ITEMS", "NEW", "SETTLED", "TOOK", "ERROR"}, rows)
}
