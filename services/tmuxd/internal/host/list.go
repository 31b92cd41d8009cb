package host

import (
	"slices"
	"time"

	"muxpost.dev/muxpost/core/session"
)

// summary is the sight as it is told to whoever follows, with when it began.
func (s *sight) summary(began time.Time) Summary {
	out := Summary{WorkItem: s.item.String(), Status: s.status(), SeenAt: began}
	if stamp := out.Incarnation.Stamp; stamp != "" && stamp == s.memory.Stamp {
		out.StartedAt, out.Tells = s.memory.CreatedAt, s.memory.Tells
	}
	return out
}

// List returns the sessions that are known, by target, from the first after a target on; more is true when there are others behind them.
func (h *Host) List(after string, limit int) (page []Summary, more bool) {
	f := h.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	targets := make([]string, 0, len(f.known))
	for target, c := range f.known {
		if target > after && !c.forgotten {
			targets = append(targets, target)
		}
	}
	slices.Sort(targets)
	for _, target := range targets[:min(limit, len(targets))] {
		page = append(page, f.known[target].session)
	}
	return page, len(targets) > limit
}

// among returns the targets of the sessions that are known in one of these states.
func (f *feed) among(states ...session.State) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []string
	for target, c := range f.known {
		if slices.Contains(states, c.session.State) {
			out = append(out, target)
		}
	}
	return out
}

// Servers are the processes of the tmux servers that are watched.
func (h *Host) Servers() (pids []int) {
	w := h.watcher
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range w.of {
		if t.server.stop != nil {
			pids = append(pids, t.server.life.Pid)
		}
	}
	return pids
}

// Counts are the sessions that are known, by state.
type Counts struct{ Live, Dead, Unknown int }

// Counts counts the sessions that are known.
func (h *Host) Counts() Counts {
	f := h.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	var n Counts
	for _, c := range f.known {
		switch c.session.State {
		case session.Live:
			n.Live++
		case session.Dead:
			n.Dead++
		case session.Unknown:
			n.Unknown++
		case session.Absent:
		}
	}
	return n
}
