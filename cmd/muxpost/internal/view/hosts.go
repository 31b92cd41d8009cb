package view

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
)

// HostState says in a word how a host stands.
func HostState(h *dispatcherv1.Host) string {
	switch {
	case !h.GetReached():
		return "away"
	case h.GetKeptAwayUntil() != nil:
		return "silent"
	case h.GetDraining():
		return "draining"
	}
	return "reached"
}

// Hosts writes a table of hosts.
func (p Printer) Hosts(hosts []*dispatcherv1.Host) { p.Write(p.HostsTable(hosts)) }

// HostsTable is the table of hosts.
func (p Printer) HostsTable(hosts []*dispatcherv1.Host) Table {
	rows := make([][]Cell, 0, len(hosts))
	for _, h := range hosts {
		state := Cell{Text: HostState(h), Tone: Good}
		switch {
		case !h.GetReached():
			state.Tone = Bad
		case h.GetDraining() || h.GetKeptAwayUntil() != nil:
			state.Tone = Warn
		}
		since := Cell{}
		if t := h.GetSince(); t != nil {
			since = p.since(t)
		}
		agents := fmt.Sprint(h.GetLive())
		if h.GetCapacity() > 0 {
			agents = fmt.Sprintf("%d of %d", h.GetLive(), h.GetCapacity())
		}
		rows = append(rows, []Cell{Text(h.GetName()), state, since, Text(agents), Text(labelsOf(h.GetLabels())), Text(buildName(h.GetBuild())),
			Text(h.GetAddress()), Text(hostDetail(h))})
	}
	return Table{"there is no host", []string{"HOST", "STATE", "SINCE", "AGENTS", "LABELS", "TMUXD", "ADDRESS", "DETAIL"}, rows}
}

func hostDetail(h *dispatcherv1.Host) string {
	var words []string
	if d := h.GetDetail(); d != "" {
		words = append(words, d)
	}
	if h.GetKeptAwayUntil() != nil {
		words = append(words, "it did not answer some calls in a row, and further ones are kept away for a time")
	}
	if h.GetDraining() {
		drained := "draining"
		if who := h.GetDrainWho(); who != "" {
			drained += " by " + who
		}
		if why := h.GetDrainReason(); why != "" {
			drained += ": " + why
		}
		words = append(words, drained)
	}
	if n := len(h.GetWarnings()); n > 0 {
		words = append(words, fmt.Sprintf("%d warnings: --json shows them", n))
	}
	return strings.Join(words, "; ")
}

func labelsOf(labels map[string]string) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		out = append(out, name+"="+labels[name])
	}
	return strings.Join(out, " ")
}

// buildName is a build in one word.
func buildName(b *dispatcherv1.Build) string {
	switch {
	case b.GetRelease() != "":
		return b.GetRelease()
	case b.GetCommit() != "":
		return b.GetCommit()[:min(len(b.GetCommit()), 9)]
	case b != nil:
		return "devel"
	}
	return ""
}

// Superseded writes a table of sessions that were left behind.
func (p Printer) Superseded(all []*dispatcherv1.Superseded) { p.Write(p.SupersededTable(all)) }

// SupersededTable is the table of sessions that were left behind.
func (p Printer) SupersededTable(all []*dispatcherv1.Superseded) Table {
	rows := make([][]Cell, 0, len(all))
	for _, s := range all {
		rows = append(rows, []Cell{Text(s.GetWorkItem()), Text(s.GetHost()), Text(s.GetTarget()), Text(s.GetHarness()), Text(s.GetConversationId()),
			p.since(s.GetCreateTime()), Text(s.GetDirectory())})
	}
	return Table{"no session was left behind", []string{"ITEM", "HOST", "TARGET", "HARNESS", "CONVERSATION", "SINCE", "DIRECTORY"}, rows}
}
