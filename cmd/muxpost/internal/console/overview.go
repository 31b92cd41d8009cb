package console

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"muxpost.dev/muxpost/cmd/muxpost/internal/attention"
	"muxpost.dev/muxpost/cmd/muxpost/internal/view"
	pollerv1 "muxpost.dev/muxpost/proto/gen/muxpost/poller/v1"
)

const (
	// shownOldest, shownPauses and shownMatters are how many events that wait, pauses, and things that need a person the overview has.
	shownOldest  = 10
	shownPauses  = 10
	shownMatters = 5
	// mostMatters is how many things that need a person their own page has.
	mostMatters = 200
)

// overviewBody is how everything stands.
type overviewBody struct {
	Services         grid
	Ledger, Sessions counts
	Sources          []view.Fact
	Agents           string
	// Pauses are the first, and MorePauses how many more there are.
	Pauses     []Pause
	MorePauses int
	// AllPaused is true while everything is held back.
	AllPaused bool
	Shadow    bool
	Oldest    grid
	Needs     needsBody
}

// counts are how many there are in each state, if that is known.
type counts struct {
	Known  bool
	States []tally
}

// tally is how many there are in a state.
type tally struct {
	State, URL string
	Count      int
}

// needsBody is what needs a person.
type needsBody struct {
	// Count is how many things do, of which Matters may be the first few, and Hidden how many more somebody has acknowledged.
	Count, Hidden int
	Matters       []matter
	// Complete is false where a service did not answer.
	Complete bool
	// Full is true where what can be done stands beside each.
	Full bool
}

// matter is an entry of the attention list.
type matter struct {
	attention.Entry
	Word, Tone, URL string
	Since           *stamp
	// Acts are what can be done with its delivery, and Again is true where that may be typed once more.
	Acts  []act
	Again bool
	// Unpark and Unpause are true where that is what can be done.
	Unpark, Unpause bool
}

// act is an order about a delivery: the last part of its address, and the words on the button.
type act struct{ Name, Label string }

func (c *Console) overview(w http.ResponseWriter, r *http.Request) {
	var status Status
	var needs Attention
	var at, other time.Time
	q := ask(r)
	q.about(func(context.Context) error {
		status, at = c.status.get(r, c.Now, c.Reports.Status)
		return status.Away
	})
	q.about(func(context.Context) error {
		needs, other = c.matters.get(r, c.Now, c.Reports.Attention)
		return needs.Away
	})
	problems := lacking(q.problems(), slices.Concat(status.Problems, needs.Problems))
	for i, n := range problems {
		if who, ok := strings.CutPrefix(n.Text, "away: "); ok {
			problems[i].Word, problems[i].Text = "Away", who
		}
	}
	if other.Before(at) {
		at = other
	}
	p, now := c.printer(), c.Now()
	body := overviewBody{
		Services: gridOf("Services", status.Services, now), Sources: status.Sources, Agents: status.Agents, Shadow: status.Shadow,
		Pauses: status.Pauses[:min(len(status.Pauses), shownPauses)], MorePauses: max(0, len(status.Pauses)-shownPauses),
		Ledger: tallies(status.Ledger, status.LedgerStates, "/ledger?state="), Sessions: tallies(status.Sessions, status.SessionStates, ""),
		AllPaused: slices.ContainsFunc(status.Pauses, func(p Pause) bool { return p.WorkItem == "" }),
		Oldest:    gridOf("The events that have waited longest", p.LedgerTable(oldest(needs.Waiting)), now, "BY", "TRIES"),
		Needs:     c.needs(needs, shownMatters),
	}
	body.Oldest.None = "nothing waits"
	if needs.Away != nil && len(needs.Waiting) == 0 {
		body.Oldest.None = "not known"
	}
	c.show(w, r, page{name: "overview", Title: "Overview", Live: true, Made: stampOf(at, now), Problems: problems, Body: body})
}

// lacking adds what could not be found out to problems that may tell the same already.
func lacking(problems []notice, more []string) []notice {
	for _, text := range more {
		if !slices.ContainsFunc(problems, func(n notice) bool { return strings.HasSuffix(text, n.Text) }) {
			problems = append(problems, notice{Text: text, Bad: true})
		}
	}
	return problems
}

// tallies are counts in the order of their states, without those of which there are none.
func tallies(found map[string]int, order []string, under string) counts {
	out := counts{Known: found != nil}
	for _, state := range order {
		if found[state] == 0 {
			continue
		}
		t := tally{State: state, Count: found[state]}
		if under != "" {
			t.URL = under + state
		}
		out.States = append(out.States, t)
	}
	return out
}

// oldest are those that have waited longest.
func oldest(waiting []*pollerv1.LedgerEntry) []*pollerv1.LedgerEntry {
	out := slices.Clone(waiting)
	slices.SortStableFunc(out, func(a, b *pollerv1.LedgerEntry) int {
		return cmp.Or(a.GetCreateTime().AsTime().Compare(b.GetCreateTime().AsTime()), cmp.Compare(a.GetDeliveryId(), b.GetDeliveryId()))
	})
	return out[:min(len(out), shownOldest)]
}

func (c *Console) attention(w http.ResponseWriter, r *http.Request) {
	found, at := c.matters.get(r, c.Now, c.Reports.Attention)
	q := ask(r)
	q.problem(found.Away)
	body := c.needs(found, mostMatters)
	body.Full = true
	c.show(w, r, page{name: "attention", Title: "Attention", Live: true, Made: stampOf(at, c.Now()), Problems: lacking(q.problems(), found.Problems), Body: body})
}

// needs is what needs a person, as far as it is shown.
func (c *Console) needs(found Attention, most int) needsBody {
	out := needsBody{Count: len(found.Entries), Hidden: found.Hidden, Complete: found.Away == nil}
	for _, e := range found.Entries[:min(len(found.Entries), most)] {
		out.Matters = append(out.Matters, c.matter(e))
	}
	return out
}

func (c *Console) matter(e attention.Entry) matter {
	m := matter{Entry: e, Word: strings.ReplaceAll(string(e.Kind), "_", " "), Tone: toneClass(view.ToneOf(string(e.Kind))), URL: itemURL(e.Subject)}
	if m.Tone == "" {
		m.Tone = "warn"
	}
	if e.Since != nil {
		at := stampOf(*e.Since, c.Now())
		m.Since = &at
	}
	retry, done, cancel := act{"retry", "Retry"}, act{"done", "Done"}, act{"cancel", "Cancel"}
	switch e.Kind {
	case attention.Dropped:
		m.Acts = []act{retry, done}
	case attention.GaveUp:
		m.Acts = []act{retry, done, cancel}
	case attention.Unconfirmed:
		m.Acts, m.Again = []act{retry, done}, true
	case attention.Held, attention.Waiting:
		m.Acts = []act{{"retry", "Look again now"}, cancel}
	case attention.Parked:
		m.Unpark = true
	case attention.Paused:
		m.Unpause = true
	case attention.Source, attention.Run:
		m.URL = map[attention.Kind]string{attention.Source: "/sources", attention.Run: "/teams"}[e.Kind]
	case attention.Host:
		m.URL = "/hosts"
	}
	return m
}
