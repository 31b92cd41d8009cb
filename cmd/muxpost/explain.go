package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"

	"muxpost.dev/muxpost/cmd/muxpost/internal/view"
	"muxpost.dev/muxpost/cmd/muxpost/internal/why"
	"muxpost.dev/muxpost/core/fault"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	pollerv1 "muxpost.dev/muxpost/proto/gen/muxpost/poller/v1"
)

// byHand is the source of events that operators send.
const byHand = "manual"

// story is what is known of one delivery. Each part is nil when it is not known; the problems say why.
type story struct {
	id       string
	entry    *pollerv1.LedgerEntry
	delivery *dispatcherv1.Delivery
	session  *dispatcherv1.Session
	problems []error
}

func explainCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use: "explain DELIVERY-ID | ITEM", Short: "Say what became of an event and why, and what to do about it",
		Args: args(1, 1, "muxpost ledger lists the ids; of a work item it is the latest event"),
		RunE: func(cmd *cobra.Command, given []string) error {
			item := ""
			if isItem(given[0]) {
				ref, err := parseItem(given[0])
				if err != nil {
					return err
				}
				item = ref.String()
			} else if err := badDeliveryID(given[0]); err != nil {
				return err
			}
			s, err := a.dial()
			if err != nil {
				return err
			}
			defer s.close()
			id := given[0]
			if item != "" {
				if id, err = s.latest(cmd.Context(), item); err != nil {
					return err
				}
			}
			st, err := s.story(cmd.Context(), id)
			if err != nil {
				return err
			}
			if a.json {
				return a.storyJSON(st)
			}
			st.print(a.printer(), s.Tmuxd.Host)
			return nil
		},
	}
	a.jsonFlag(c)
	return c
}

// latest returns the delivery id of the newest event of a work item; fault.NotFound means that it has none.
func (s *services) latest(ctx context.Context, item string) (string, error) {
	rows, err := s.ledger(ctx, item, pollerv1.LedgerState_LEDGER_STATE_UNSPECIFIED, 1)
	if err != nil {
		return "", err
	}
	if len(rows.GetEntries()) == 0 {
		return "", fault.Newf(fault.NotFound, fault.ReasonDeliveryNotFound, "the ledger has no event of %s", item).
			WithRemedy("muxpost ledger lists the events that there are")
	}
	return rows.GetEntries()[0].GetDeliveryId(), nil
}

// story asks poller and dispatcher. One of them may be away; that both know nothing is fault.NotFound.
func (s *services) story(ctx context.Context, id string) (story, error) {
	st := story{id: id}
	var err error
	if st.entry, err = s.entry(ctx, id); err != nil {
		st.problems = append(st.problems, err)
	}
	err = s.dispatcher(ctx, func(ctx context.Context, c dispatcherv1.DispatcherServiceClient) error {
		answer, err := c.GetDelivery(ctx, &dispatcherv1.GetDeliveryRequest{DeliveryId: id})
		st.delivery = answer.GetDelivery()
		return err
	})
	if err != nil && !errors.Is(err, fault.NotFound) {
		st.problems = append(st.problems, err)
	}
	if st.entry == nil && st.delivery == nil {
		if len(st.problems) > 0 {
			return st, st.problems[0]
		}
		return st, fault.Newf(fault.NotFound, fault.ReasonDeliveryNotFound, "nobody knows a delivery %s", id).
			WithRemedy("muxpost ledger and muxpost deliveries list those that are known")
	}
	item := cmp.Or(st.entry.GetWorkItem(), st.delivery.GetWorkItem())
	if all, err := s.sessions(ctx, item, 1, false); err == nil && len(all.GetSessions()) > 0 {
		st.session = all.GetSessions()[0]
	}
	return st, nil
}

func (a *app) storyJSON(st story) error {
	out := map[string]any{}
	raw := func(key string, data []byte, err error) {
		if err == nil {
			out[key] = json.RawMessage(data)
		}
	}
	options := protojson.MarshalOptions{EmitDefaultValues: true}
	if st.entry != nil {
		data, err := options.Marshal(st.entry)
		raw("entry", data, err)
	}
	if st.delivery != nil {
		data, err := options.Marshal(st.delivery)
		raw("delivery", data, err)
	}
	if st.session != nil {
		data, err := options.Marshal(st.session)
		raw("session", data, err)
	}
	if e, ok := why.Of(st.reason()); ok {
		out["explanation"] = map[string]string{"reason": st.reason(), "meaning": e.Meaning, "remedy": st.withRetry(e.Remedy)}
	}
	problems := []string{}
	for _, err := range st.problems {
		problems = append(problems, err.Error())
	}
	out["problems"] = problems
	return a.values(out)
}

// reason is why the event is where it is: the ledger's reason, else the dispatcher's.
func (st story) reason() string { return cmp.Or(st.entry.GetReason(), st.delivery.GetReason()) }

// unknown labels what could not be asked for.
const unknown = "not known"

// facts are the lines of a story.
type facts []view.Fact

func (f *facts) add(label, format string, args ...any) {
	*f = append(*f, view.Fact{Label: label, Text: fmt.Sprintf(format, args...)})
}

// print writes the story. thisHost is the name of the host that it is read on.
func (st story) print(p view.Printer, thisHost string) {
	p.Line("%s  %s", p.Paint(view.Bold, "delivery "+st.id), view.Clean(cmp.Or(st.entry.GetWorkItem(), st.delivery.GetWorkItem())))
	for _, fact := range st.facts(p, thisHost) {
		tone := view.Dim
		if fact.Label == unknown {
			tone = view.Warn
		}
		p.Line("%s  %s", p.Paint(tone, pad(fact.Label)), fact.Text)
	}
}

// facts are what is known of the delivery, clean, in the colours of the printer.
func (st story) facts(p view.Printer, thisHost string) []view.Fact {
	var f facts
	st.eventFacts(&f, p)
	st.ledgerFacts(&f, p)
	st.dispatcherFacts(&f, p)
	if reason := st.reason(); reason != "" {
		e, ok := why.Of(reason)
		if !ok {
			e.Meaning = "this release has no explanation for it"
		}
		f.add("why", "%s: %s", view.Clean(reason), e.Meaning)
		if remedy := st.remedy(e); remedy != "" && st.outcomeNeedsCare() {
			f.add("what to do", "%s", view.Clean(st.withRetry(remedy)))
		}
	}
	st.sessionFacts(&f, p, thisHost)
	if trace := cmp.Or(st.entry.GetTraceId(), st.delivery.GetTraceId()); trace != "" {
		f.add("trace", "%s   muxpost trace %s shows every step", view.Clean(trace), st.id)
	}
	for _, err := range st.problems {
		f.add(unknown, "%s", view.Clean(err.Error()))
	}
	return f
}

// remedy is what a person can do. The dispatcher knows the case; what the ledger ended by itself, or by a person's word, is the ledger's.
func (st story) remedy(e why.Explanation) string {
	switch st.entry.GetState() {
	case pollerv1.LedgerState_LEDGER_STATE_SETTLED, pollerv1.LedgerState_LEDGER_STATE_CANCELLED:
		return e.Remedy
	}
	return cmp.Or(st.delivery.GetRemedy(), e.Remedy)
}

// withRetry puts the delivery's id into a remedy, and the retry behind it of an event that ended and that a retry is for.
func (st story) withRetry(remedy string) string {
	remedy = strings.ReplaceAll(remedy, why.DeliveryID, st.id)
	switch st.entry.GetState() {
	case pollerv1.LedgerState_LEDGER_STATE_DROPPED, pollerv1.LedgerState_LEDGER_STATE_GAVE_UP:
		return why.WithRetry(remedy, st.id)
	}
	return remedy
}

// outcomeNeedsCare reports whether a person may want to do something.
func (st story) outcomeNeedsCare() bool {
	return st.entry.GetState() != pollerv1.LedgerState_LEDGER_STATE_DELIVERED &&
		(st.entry != nil || st.delivery.GetOutcome() != dispatcherv1.Outcome_OUTCOME_DELIVERED)
}

func (st story) eventFacts(f *facts, p view.Printer) {
	e := st.entry
	if e == nil {
		return
	}
	kind := strings.ReplaceAll(e.GetKind(), "_", " ")
	text := kind + " from " + e.GetSource()
	if e.GetSource() == byHand {
		text = kind + " by hand"
	}
	if e.GetAuthor() != "" {
		text += " by " + e.GetAuthor()
	}
	if e.GetTitle() != "" {
		text += `, "` + view.Clip(e.GetTitle(), 60) + `"`
	}
	if e.GetEdited() {
		text += ", told as an edit"
	}
	f.add("event", "%s", view.Clean(text))
	if where := view.Where(e); where != "" {
		f.add("", "%s", view.Clean(where))
	}
	if e.GetCommit() != "" {
		f.add("", "commit %s", view.Clean(e.GetCommit()))
	}
	if e.GetUrl() != "" {
		f.add("", "%s", view.Clean(e.GetUrl()))
	}
	if at := p.When(e.GetUpstreamTime()); at != "" {
		f.add("", "happened %s", at)
	}
	f.add("", "came into the ledger %s", p.When(e.GetCreateTime()))
}

func (st story) ledgerFacts(f *facts, p view.Printer) {
	e := st.entry
	if e == nil {
		return
	}
	word := view.LedgerState(e.GetState())
	line := p.Paint(view.ToneOf(word), word) + " since " + p.When(e.GetUpdateTime())
	if e.GetTries() > 0 || waits(e.GetState()) {
		line += fmt.Sprintf("; %d of %d tries spent", e.GetTries(), e.GetBudget())
	}
	switch next := p.Next(e); next {
	case "":
	case view.DueNow:
		line += "; " + next
	default:
		line += "; looked at next " + next
	}
	f.add("ledger", "%s", line)
	if behind := view.Behind(e); behind != "" {
		f.add("", "%s", behind)
	}
	if at := p.When(e.GetHeldSince()); at != "" {
		f.add("", "held back since %s", at)
	}
	if versions := e.GetGaveUpVersions(); len(versions) > 0 {
		f.add("", "tried under %s", view.Clean(strings.Join(versions, "; ")))
	}
	if at := p.When(e.GetDeleteTime()); at != "" {
		f.add("", "deleted upstream %s", at)
	}
	if e.GetDetail() != "" {
		f.add("", "%s", view.Clean(e.GetDetail()))
	}
	if later := e.GetSupersededBy(); later != "" && !strings.Contains(e.GetDetail(), later) {
		f.add("", "in its place: %s", view.Clean(later))
	}
}

func (st story) dispatcherFacts(f *facts, p view.Printer) {
	d := st.delivery
	if d == nil {
		if len(st.problems) == 0 {
			f.add("dispatcher", "was not asked about it")
		}
		return
	}
	word := view.Outcome(d.GetOutcome())
	line := p.Paint(view.ToneOf(word), word)
	if d.GetHow() != dispatcherv1.How_HOW_UNSPECIFIED {
		line += " " + view.How(d.GetHow())
	}
	f.add("dispatcher", "%s since %s; asked %s", line, p.When(d.GetUpdateTime()), view.Count(int(d.GetAsked()), "time", "times"))
	if d.GetDetail() != "" && !strings.Contains(st.entry.GetDetail(), d.GetDetail()) {
		f.add("", "%s", view.Clean(d.GetDetail()))
	}
	for i, step := range d.GetSteps() {
		f.add(map[bool]string{true: "decisions"}[i == 0], "%d. %s", i+1, view.Clean(step))
	}
}

func (st story) sessionFacts(f *facts, p view.Printer, thisHost string) {
	s := st.session
	if s == nil {
		return
	}
	word := view.SessionState(s.GetState())
	line := view.Clean(s.GetTarget()) + " on " + view.Clean(s.GetHost()) + ": " + p.Paint(view.ToneOf(word), word)
	if s.GetHarness() != "" {
		line += ", runs " + view.Clean(s.GetHarness())
	}
	if s.GetConversationId() != "" {
		line += ", conversation " + view.Clean(s.GetConversationId())
	}
	f.add("session", "%s", line)
	if d := st.delivery; d.GetConversationId() != "" && d.GetConversationId() != s.GetConversationId() {
		f.add("", "this delivery went into conversation %s", view.Clean(d.GetConversationId()))
	}
	how := "muxpost attach " + view.Quote(view.Clean(s.GetWorkItem()))
	if s.GetHost() != "" && s.GetHost() != thisHost {
		argv := attachArgs("tmux", view.Clean(s.GetSocketPath()), view.Clean(s.GetTarget()), false)
		how = "on " + view.Clean(s.GetHost()) + ": " + strings.Join(quoted(argv), " ")
	}
	f.add("look", "%s", how)
}

func label(p view.Printer, word string) string { return p.Paint(view.Dim, pad(word)) }

func pad(word string) string { return word + strings.Repeat(" ", max(0, 11-len(word))) }
