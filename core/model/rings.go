package model

import (
	"path"

	"muxpost.dev/muxpost/core/session"
)

// ids are the delivery ids of the two events.
var ids = [events]string{"delivery-1", "delivery-2"}

// rings numbers the session.Rings that two deliveries can make, with what the real functions say of each, so that a state holds a
// ring in one byte. Number 0 is the empty ring.
type rings struct {
	all   []session.Ring
	with  [][events][phases]uint8
	phase [][events]session.Phase
	// has and any are what tmux's guard finds in a ring: session.Mark and session.MarkAny, as fnmatch reads them.
	has [][events][phases]bool
	any [][events]bool
	// without is the ring that has forgotten an event.
	without [][events]uint8
}

const phases = int(session.Handing) + 1

func newRings() *rings {
	r := &rings{all: []session.Ring{{}}}
	number := map[string]uint8{"": 0}
	for i := 0; i < len(r.all); i++ {
		ring, text := r.all[i], r.all[i].String()
		var with [events][phases]uint8
		var has [events][phases]bool
		var phase [events]session.Phase
		var some [events]bool
		for e, id := range ids {
			phase[e], some[e] = ring.Phase(id), matches(session.MarkAny(id), text)
			for _, p := range session.Phases() {
				has[e][p] = matches(session.Mark(id, p), text)
				next := ring.With(id, p)
				n, known := number[next.String()]
				if !known {
					n = uint8(len(r.all))
					number[next.String()] = n
					r.all = append(r.all, next)
				}
				with[e][p] = n
			}
		}
		r.with, r.phase, r.has, r.any = append(r.with, with), append(r.phase, phase), append(r.has, has), append(r.any, some)
	}
	for i := range r.all {
		r.without = append(r.without, [events]uint8{r.with0(1, r.phase[i][1]), r.with0(0, r.phase[i][0])})
	}
	return r
}

// with0 is the ring that has one event alone, or nothing.
func (r *rings) with0(e int, p session.Phase) uint8 {
	if p == session.None {
		return 0
	}
	return r.with[0][e][p]
}

// matches is fnmatch as tmux's #{m:} has it; the texts hold nothing that path.Match reads in another way.
func matches(pattern, text string) bool {
	ok, err := path.Match(pattern, text)
	return ok && err == nil
}
