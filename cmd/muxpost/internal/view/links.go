package view

import (
	"cmp"

	pollerv1 "muxpost.dev/muxpost/proto/gen/muxpost/poller/v1"
)

// Links writes how pull requests came to their work items.
func (p Printer) Links(links []*pollerv1.PullLink) { p.Write(p.LinksTable(links)) }

// LinksTable is the table of how pull requests came to their work items.
func (p Printer) LinksTable(links []*pollerv1.PullLink) Table {
	rows := make([][]Cell, 0, len(links))
	for _, l := range links {
		holds := "now"
		if !l.GetCurrent() {
			holds = "before"
		}
		rows = append(rows, []Cell{
			Text(l.GetPull()), Text(cmp.Or(l.GetWorkItem(), "(none)")), Text(holds), p.since(l.GetCreateTime()),
			Text(l.GetDetail()), Text(l.GetWho()),
		})
	}
	return Table{"no pull request belongs to a work item", []string{"PULL REQUEST", "ITEM", "HOLDS", "SINCE", "HOW", "BY"}, rows}
}
