package host

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

const (
	// burstTime is within what time deaths count as one event, and burstSettles how long no further one must have come for it to be judged.
	burstTime    = 10 * time.Second
	burstSettles = time.Second
	// A burst is a mass death when it has manyDeaths, or someDeaths that are at least half of what lived.
	manyDeaths = 20
	someDeaths = 5
)

// burst counts the ends of sessions that nobody ordered.
type burst struct{ deaths []death }

// death is the end of a session.
type death struct {
	// at is when it ended, told when that was learned.
	at, told time.Time
	target   string
	harness  string
	exit     Exit
	serverUp bool
}

// add takes a death, and forgets those that are too old to be of one event with it.
func (b *burst) add(d death) {
	b.deaths = append(slices.DeleteFunc(b.deaths, func(old death) bool { return d.at.Sub(old.at) > burstTime }), d)
}

// due returns when the burst is to be judged: once nothing more was learned for a moment, and in any case before that takes too long.
func (b *burst) due() time.Time {
	if len(b.deaths) == 0 {
		return time.Time{}
	}
	settled, tooLong := b.deaths[len(b.deaths)-1].told.Add(burstSettles), b.deaths[0].told.Add(burstTime)
	if tooLong.Before(settled) {
		return tooLong
	}
	return settled
}

// judge returns the burst if it is a mass death, given how many sessions still live; then it begins anew.
func (b *burst) judge(live int) []death {
	if n := len(b.deaths); n < manyDeaths && (n < someDeaths || n < live) {
		return nil
	}
	deaths := b.deaths
	b.deaths = nil
	return deaths
}

// massDeath sums deaths up for the stream.
func massDeath(deaths []death) MassDeath {
	byTime := func(a, b death) int { return a.at.Compare(b.at) }
	return MassDeath{Sessions: len(deaths), Within: slices.MaxFunc(deaths, byTime).at.Sub(slices.MinFunc(deaths, byTime).at)}
}

// common says in one line what deaths have in common.
func common(deaths []death) string {
	var parts []string
	for _, of := range []func(death) string{
		func(d death) string {
			if d.serverUp {
				return "the agents ended and their tmux servers live on"
			}
			return "the tmux servers are gone"
		},
		func(d death) string {
			switch {
			case !d.exit.Known:
				return "nothing recorded how they ended"
			case d.exit.Signal > 0:
				return fmt.Sprintf("ended by signal %d", d.exit.Signal)
			}
			return fmt.Sprintf("exit code %d", d.exit.Code)
		},
		func(d death) string { return "harness " + d.harness },
	} {
		counts := map[string]int{}
		for _, d := range deaths {
			counts[of(d)]++
		}
		for _, what := range slices.Sorted(maps.Keys(counts)) {
			if n := counts[what]; n == len(deaths) {
				parts = append(parts, "all: "+what)
			} else {
				parts = append(parts, fmt.Sprintf("%d: %s", n, what))
			}
		}
	}
	return strings.Join(parts, "; ")
}
