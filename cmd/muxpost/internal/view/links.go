package view

import (
	"cmp"

	pollerv1 "muxpost.dev/muxpost/proto/gen/muxpost/poller/v1"
)

// Links writes how pull requests came to their work items.
func (p Printer) Links(links []*pollerv1.PullLink) {
	rows := make([][]Cell, 0, len(links))
	for _, l := range links {
		holds := "now"
		if !l.GetCurrent() {
			holds = "before"
		}
		rows = append(rows, []Cell{
			Text(l.GetPull()), Text(cmp.Or(l.GetWorkItem(), "(none)")), Text(holds), Text(p.Ago(l.GetCreateTime().AsTime())),
			Text(l.GetDetail()), Text(l.GetWho()),
		})
	}
	p.Table("no pull request belongs to a work item", []string{"PULL REQUEST", "ITEM", "HOLDS", "SINCE", "HOW", "BY"}, rows)
}
