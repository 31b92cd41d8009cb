package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	pollerv1 "muxpost.dev/muxpost/proto/gen/muxpost/poller/v1"
)

// Sources writes a table of sources.
func (p Printer) Sources(sources []*pollerv1.Source) { p.Write(p.SourcesTable(sources)) }

// SourcesTable is the table of sources.
func (p Printer) SourcesTable(sources []*pollerv1.Source) Table {
	rows := make([][]Cell, 0, len(sources))
	for _, s := range sources {
		failed := 0
		for _, r := range s.GetRepositoryStates() {
			if r.GetLastError() != "" {
				failed++
			}
		}
		state := Cell{Text: "not looked at yet", Tone: Plain}
		switch {
		case s.GetLastError() != "":
			state = Cell{Text: "failed", Tone: Bad}
		case s.GetNotBefore() != nil:
			state = Cell{Text: "limited", Tone: Warn}
		case s.GetLastSuccessTime() != nil:
			state = Cell{Text: "read " + p.Ago(s.GetLastSuccessTime().AsTime()), Tone: Good, At: s.GetLastSuccessTime().AsTime()}
		}
		repositories := Text(fmt.Sprint(len(s.GetRepositories())))
		if failed > 0 {
			repositories = Cell{Text: fmt.Sprintf("%d, %d failed", len(s.GetRepositories()), failed), Tone: Bad}
		}
		rows = append(rows, []Cell{Text(s.GetName()), state, Text(p.Due(s.GetNextLookTime())), repositories, Text(fmt.Sprint(s.GetKnownItems())),
			Text(s.GetCredential()), p.left(s.GetRateLimits()), Text(requests(s.GetRequests())), Text(detail(s))})
	}
	return Table{"no source is configured: events come by hand alone (muxpost send)",
		[]string{"SOURCE", "STATE", "NEXT LOOK", "REPOSITORIES", "ITEMS", "AS", "LEFT", "REQUESTS", "DETAIL"}, rows}
}

// left says how much of the limit of ordinary requests is left where that is least.
func (p Printer) left(limits []*pollerv1.RateLimit) Cell {
	core := slices.DeleteFunc(slices.Clone(limits), func(l *pollerv1.RateLimit) bool { return l.GetResource() != "core" || l.GetLimit() == 0 })
	if len(core) == 0 {
		return Text("")
	}
	least := slices.MinFunc(core, func(a, b *pollerv1.RateLimit) int {
		return cmp.Compare(int64(a.GetRemaining())*int64(b.GetLimit()), int64(b.GetRemaining())*int64(a.GetLimit()))
	})
	cell := Text(fmt.Sprintf("%d of %d", least.GetRemaining(), least.GetLimit()))
	if least.GetRemaining()*10 <= least.GetLimit() {
		cell.Tone = Warn
	}
	return cell
}

// requests says how many were sent, and how many of them cost nothing.
func requests(c *pollerv1.RequestCount) string {
	if c.GetTotal() == 0 {
		return ""
	}
	text := fmt.Sprintf("%d, %d%% free", c.GetTotal(), c.GetUnchanged()*100/c.GetTotal())
	if c.GetFailed() > 0 {
		text += fmt.Sprintf(", %d failed", c.GetFailed())
	}
	return text
}

func detail(s *pollerv1.Source) string {
	var words []string
	if s.GetLastError() != "" {
		words = append(words, s.GetLastError())
	}
	if skew := s.GetClockSkew(); skew != nil {
		words = append(words, skewed(skew.AsDuration()))
	}
	return strings.Join(words, "; ")
}

func skewed(d time.Duration) string {
	if d < 0 {
		return "this machine's clock is " + Short(-d) + " ahead of the source's"
	}
	return "this machine's clock is " + Short(d) + " behind the source's"
}

// Source writes everything about one source.
func (p Printer) Source(s *pollerv1.Source) {
	p.Sources([]*pollerv1.Source{s})
	p.Line("")
	p.Write(p.LimitsTable(s))
	p.Line("")
	p.Write(p.RepositoriesTable(s))
}

// LimitsTable is the table of a source's limits.
func (p Printer) LimitsTable(s *pollerv1.Source) Table {
	rows := [][]Cell{}
	for _, l := range s.GetRateLimits() {
		rows = append(rows, []Cell{Text(cmp.Or(l.GetCredential(), "(no token)")), Text(l.GetResource()), Text(fmt.Sprintf("%d of %d", l.GetRemaining(), l.GetLimit())),
			Text(p.When(l.GetResetTime()))})
	}
	return Table{"no limit is known yet", []string{"LIMIT OF", "FOR", "LEFT", "UNTIL"}, rows}
}

// RepositoriesTable is the table of a source's repositories.
func (p Printer) RepositoriesTable(s *pollerv1.Source) Table {
	var rows [][]Cell
	for _, r := range s.GetRepositoryStates() {
		state := Cell{Text: "not read yet", Tone: Plain}
		switch {
		case r.GetLastError() != "":
			state = Cell{Text: "failed", Tone: Bad}
		case r.GetLastSuccessTime() != nil:
			state = Cell{Text: "read " + p.Ago(r.GetLastSuccessTime().AsTime()), Tone: Good, At: r.GetLastSuccessTime().AsTime()}
		}
		next := "at the next look"
		if r.GetNextLookTime() != nil {
			next = p.Due(r.GetNextLookTime())
		}
		words := []string{}
		if r.GetLastError() != "" {
			words = append(words, r.GetLastError())
		}
		for _, k := range r.GetUnreadKinds() {
			words = append(words, k.GetKind()+" is not read: "+k.GetProblem())
			state.Tone = Warn
		}
		full := Cell{}
		if r.GetLastFullTime() != nil {
			full = p.since(r.GetLastFullTime())
		}
		rows = append(rows, []Cell{Text(r.GetRepository()), state, Text(next), full, Text(requests(r.GetRequests())), Text(strings.Join(words, "; "))})
	}
	return Table{"it has no repositories", []string{"REPOSITORY", "STATE", "NEXT LOOK", "IN FULL", "REQUESTS", "DETAIL"}, rows}
}
