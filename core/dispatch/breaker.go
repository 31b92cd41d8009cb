package dispatch

import (
	"slices"
	"time"
)

// Breaker says how often the agents of a work item may die before none is started again by itself. It counts what was seen dead, each
// incarnation once: a host that goes down takes each of its agents along once, and parks none.
type Breaker struct {
	// Deaths is how many within Within are too many; zero parks nothing.
	Deaths int
	Within time.Duration
	// Parked is how long an item stays parked; zero is until a person, or another version, takes it back.
	Parked time.Duration
}

// Record is what is known of the deaths of a work item's agents.
type Record struct {
	// Deaths is how many were seen within Breaker.Within that count.
	Deaths int
	// Parked is true when the item is parked, and Since how long it has been.
	Parked bool
	Since  time.Duration
	// Versions are those under which it was parked, or that took that back.
	Versions []string
}

// Version is the version that runs, as one name. Distinct is false when the name does not say which code runs: it takes nothing back.
type Version struct {
	Name     string
	Distinct bool
}

// Lift says why a parked item is not parked any more.
type Lift string

// Why an item is not parked any more.
const (
	// LiftNone means that it stays parked.
	LiftNone Lift = ""
	// LiftCommand: a person said so.
	LiftCommand Lift = "command"
	// LiftVersion: a version is running that had no part in it.
	LiftVersion Lift = "version"
	// LiftTime: it has been parked for as long as the configuration wants.
	LiftTime Lift = "time"
	// LiftConfiguration: the configuration does not want it any more.
	LiftConfiguration Lift = "configuration"
)

// Lifts says whether, and why, a parked item is to be tried again.
func (b Breaker) Lifts(r Record, running Version) Lift {
	switch {
	case b.Deaths == 0:
		return LiftConfiguration
	case b.Parked > 0 && r.Since >= b.Parked:
		return LiftTime
	case running.Distinct && !slices.Contains(r.Versions, running.Name):
		return LiftVersion
	}
	return LiftNone
}

// Judge says whether a session that is dead or absent may be started.
func (b Breaker) Judge(r Record, running Version) Starts {
	switch {
	case r.Parked && b.Lifts(r, running) != LiftNone:
		return StartsDue
	case r.Parked:
		return StartsParked
	case b.Deaths > 0 && r.Deaths >= b.Deaths:
		return StartsSpent
	}
	return StartsAllowed
}
