// Package place chooses the host on which a session starts.
//
// It is a rule alone: what is known of the hosts goes in, and a name or the reasons come out.
package place

import (
	"cmp"
	"slices"
)

// unlimitedRoom is the room that a host without a capacity counts as having, before its living agents are taken off.
const unlimitedRoom = 64

// Host is what is known of a host.
type Host struct {
	Name   string
	Labels map[string]string
	// Reached is false when it does not answer now.
	Reached bool
	// Draining is true when an operator wants nothing more to start there.
	Draining bool
	// Starts is true when it can start the harness that is wanted.
	Starts bool
	// Live is how many agents live there or are being started; Capacity how many may, zero for any number.
	Live, Capacity int
	// Near is how many agents of the same repository live there.
	Near int
}

// room is how many more agents may live there.
func (h Host) room() int {
	limit := h.Capacity
	if limit == 0 {
		limit = max(unlimitedRoom, h.Live+1)
	}
	return limit - h.Live
}

// Why says why a host was not chosen.
type Why string

// The reasons, for people.
const (
	Draining   Why = "draining"
	OtherLabel Why = "other labels"
	Silent     Why = "not reached"
)

// Choice is where to start.
type Choice struct {
	// Host is the name; empty when none may take it now.
	Host string
	// Passing is true when no host was chosen and one would do that only does not answer: it is worth waiting for.
	Passing bool
	// Left says of each host that may not take it why.
	Left map[string]Why
}

// Choose returns the host to start on: of those that answer, are not drained and have the labels, one that can start the harness and has room;
// among these one where agents of the same repository live already, for what they share is there; then the one with the most room; then the
// first by name. Where none can start the harness, or all are full, one is chosen all the same: it says itself what a person can do.
func Choose(labels map[string]string, hosts []Host) Choice {
	out := Choice{Left: map[string]Why{}}
	var fit []Host
	for _, h := range hosts {
		switch why := h.unfit(labels); why {
		case "":
			fit = append(fit, h)
		default:
			out.Left[h.Name] = why
			out.Passing = out.Passing || why == Silent
		}
	}
	if len(fit) == 0 {
		return out
	}
	best := slices.MinFunc(fit, func(a, b Host) int {
		return cmp.Or(-compareBool(a.Starts, b.Starts), -compareBool(a.room() > 0, b.room() > 0), -compareBool(a.Near > 0, b.Near > 0), -cmp.Compare(a.room(), b.room()),
			cmp.Compare(a.Name, b.Name))
	})
	out.Host, out.Passing = best.Name, false
	return out
}

// unfit says why a host may not take it; empty when it may. That it does not answer comes last: then nothing else is in the way.
func (h Host) unfit(labels map[string]string) Why {
	for name, value := range labels {
		if have, ok := h.Labels[name]; !ok || have != value {
			return OtherLabel
		}
	}
	switch {
	case h.Draining:
		return Draining
	case !h.Reached:
		return Silent
	}
	return ""
}

// compareBool orders false before true.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}
