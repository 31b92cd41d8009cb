package ledger

import (
	"slices"
	"strings"
	"time"
)

// ArmedTime is how long a re-armed event is kept for the version that re-armed it. After that anybody may take it: that version may
// be gone for good, and the event must not hold back its item.
const ArmedTime = 5 * time.Minute

// Build is one program that takes part in deliveries, as it names itself.
type Build struct {
	// Program is its name, such as "poller".
	Program string
	// Release is what it was stamped with; empty in a build that nobody stamped.
	Release string
	// Commit is the commit it was built from; empty when it is not known.
	Commit string
	// Dirty is true when it was built from a tree with changes that were not committed.
	Dirty bool
}

// Version is what is running: the builds that take part, as one.
type Version struct {
	// Name is how it stands in records, such as "dispatcher v0.1.0, poller v0.1.0".
	Name string
	// Rearms is false when the name does not say which code runs, because a build is dirty or has no name. Such a version re-arms
	// nothing: two of them may be alike in name and not in what they do.
	Rearms bool
}

// VersionOf returns the version that builds make together, in whatever order they come and however often each runs. A build without a stamp
// counts as its commit.
func VersionOf(builds ...Build) Version {
	v := Version{Rearms: len(builds) > 0}
	var names []string
	for _, b := range builds {
		name := b.Release
		if name == "" {
			name = b.Commit
		}
		if name == "" {
			name, v.Rearms = "unknown", false
		}
		if b.Dirty {
			name, v.Rearms = name+"+dirty", false
		}
		names = append(names, b.Program+" "+name)
	}
	slices.Sort(names)
	v.Name = strings.Join(slices.Compact(names), ", ")
	return v
}

// AddVersion returns a record of versions with one more in it, sorted, each once. Versions get into the record of an event when a
// budget ends under them, and when they are given one by Rearm: so each gets at most one.
func AddVersion(record []string, v Version) []string {
	if v.Name == "" {
		return record
	}
	out := append(slices.Clone(record), v.Name)
	slices.Sort(out)
	return slices.Compact(out)
}

// Rearmable reports whether an event in this state is tried again by a version that had no part in it, so that its record of versions is
// kept: it gave up, or its session's name belonged to somebody else.
func (p Progress) Rearmable() bool { return p.State == GaveUp || p.Occupied() }

// Rearm returns the progress and the record of an event that the running version sees. A rearmable one that this version had no part in is
// pending again, and rearmed is true: one that gave up with a full budget, one of an occupied name with what it had left. Anything else is
// returned as it is: what is not rearmable, what has no record of versions, and what this version was tried on before, whichever versions
// were running in between.
func Rearm(p Progress, record []string, running Version, now time.Time) (after Progress, tried []string, rearmed bool) {
	if !p.Rearmable() || len(record) == 0 || !running.Rearms || slices.Contains(record, running.Name) {
		return p, record, false
	}
	after = Progress{State: Pending, Budget: p.Budget, NextLook: now, Reason: ReasonRearmed}
	if p.Occupied() {
		after.Tries = p.Tries
	}
	return after, AddVersion(record, running), true
}
