// Package pace decides how often something is read that has a price: what is quiet less often, what costs more than its share of a budget
// more slowly, and what is believed to be unchanged in full from time to time.
//
// It knows nothing of what is read, where, or how; it has no clock and keeps nothing.
package pace

import (
	"hash/fnv"
	"math"
	"time"
)

const (
	// growth is by how much each quiet look makes the next wait longer.
	growth = 1.5
	// reservePart of a limit is its reserve, and at least leastReserve; but never more than half of it.
	reservePart  = 10
	leastReserve = 50
	// floorPart of the reserve is left alone: for what people ask for, and for what is written.
	floorPart = 5
	// spread is how much a full read may come earlier or later, as a part of its interval.
	spread = 0.2
	// patience is how many intervals a full read may be put off while the budget is low.
	patience = 4
)

// Grow returns the wait after a number of quiet looks in a row: the interval after none, half as long again after each, up to a most.
func Grow(interval, most time.Duration, quiet int) time.Duration {
	wait := float64(interval) * math.Pow(growth, float64(quiet))
	if wait > float64(most) {
		return max(interval, most)
	}
	return time.Duration(wait)
}

// Budget is what may still be spent. The zero value is a budget that nobody knows, and limits nothing.
type Budget struct {
	// Remaining of Limit may be spent until Left has passed.
	Limit, Remaining int
	Left             time.Duration
}

// Reserve is what remains when spending begins to slow down.
func (b Budget) Reserve() int { return min(max(b.Limit/reservePart, leastReserve), b.Limit/2) }

// Low reports whether the reserve is reached.
func (b Budget) Low() bool { return b.Limit > 0 && b.Left > 0 && b.Remaining <= b.Reserve() }

// Wait returns how long something waits whose look costs so much, and that shares the budget with others, itself included; 0 while there
// is enough. Each may spend an equal share of what remains, so that what costs much becomes slow, what costs little hardly, and what
// costs nothing not at all until nothing remains.
func (b Budget) Wait(cost, sharers int) time.Duration {
	switch {
	case !b.Low():
		return 0
	case b.Remaining <= 0:
		return b.Left
	case cost <= 0:
		return 0
	}
	share := float64(b.Remaining-b.Reserve()/floorPart) / float64(max(1, sharers))
	if share <= 0 {
		return b.Left
	}
	return min(b.Left, time.Duration(float64(b.Left)*float64(cost)/share))
}

// FullDue reports whether something is to be read in full that was so a time ago. Each key has its own moment within the interval, so that
// not all are read at once; while the budget is low it is put off, but not for ever.
func FullDue(key string, interval, since time.Duration, b Budget) bool {
	h := fnv.New64a()
	_, _ = h.Write([]byte(key)) // never fails
	part := float64(h.Sum64()%1000) / 1000
	due := time.Duration(float64(interval) * (1 - spread + 2*spread*part))
	if b.Low() {
		due *= patience
	}
	return since >= due
}
