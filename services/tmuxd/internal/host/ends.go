package host

import (
	"context"
	"time"
)

// Ends is the part of Disk that knows the processes of an incarnation by what its wrapper recorded, and can end them. Every one of them is
// named by its pid and its start, so that another one with the same pid is never meant.
type Ends interface {
	// Tree looks for everything that lives of an incarnation. It looks at every process of the host.
	Tree(target, stamp string) (Tree, error)
	// Term asks an incarnation to end: its wrapper, which passes it on, or where that is gone whatever else lives of it.
	Term(target, stamp string) error
	// Kill ends with KILL what lives of an incarnation, its wrapper only with wrapperToo: it is to record the end of the others.
	Kill(target, stamp string, wrapperToo bool) error
	// Enroll writes the record of a living incarnation that has none: its wrapper has this pid and is a child of its tmux server's.
	Enroll(target, stamp string, pid, server int) error
	// Conclude records of an incarnation of which nothing lives that it was found so, unless its wrapper recorded how it ended.
	Conclude(target, stamp string, at time.Time) error
	// Unsettled returns, by target, the stamps of incarnations whose wrapper is gone and did not record that nothing is left.
	Unsettled() (map[string][]string, error)
	// Below names the processes of panes, by their pids and that of their tmux server, and what descends from them.
	Below(server int, panes []int) ([]Life, error)
	// Living returns the pids of those that live.
	Living(lives []Life) ([]int, error)
	Litter
}

// Litter is the part of Disk that removes what is no longer needed.
type Litter interface {
	// Forget removes what is kept of a target of which nothing lives, its journal and the highest fencing token excepted, which is token.
	Forget(target string, token int64) error
	// Tidy removes files that have no owner any more, and returns their names. Records of targets that nobody remembers are kept for an age.
	Tidy(now time.Time, age time.Duration) (removed []string, err error)
	// Retired returns the targets that were forgotten, and to which nothing was delivered since a time.
	Retired(since time.Time) ([]string, error)
	// Retire removes the journal and the highest fencing token of such a target, if it still is one.
	Retire(target string, since time.Time) (bool, error)
}

// Tree is what lives of an incarnation.
type Tree struct {
	// Known is false when nothing was recorded of it.
	Known bool
	// Wrapper is true while its wrapper lives, and Harness while the process does that it started.
	Wrapper, Harness bool
	// Pids are the processes that live, the wrapper's among them.
	Pids []int
	// Whole is true when these are certain to be all: it has a control group of its own. Otherwise they are those that descend from the
	// wrapper or, once that is gone, carry its stamp.
	Whole bool
	// Recorded is true when its end was recorded, at EndedAt.
	Recorded bool
	EndedAt  time.Time
}

// Ender is the part of Tmux that ends sessions.
type Ender interface {
	// Remove ends the session of a name if inside the server it still is the one that was seen, and whatever else is asked for holds. A false
	// without an error means that it was not.
	Remove(ctx context.Context, target string, r Removal) (bool, error)
	// Unlink removes the socket of a server that is gone.
	Unlink(target string)
}

// Removal is what must hold inside the server for a session to be removed.
type Removal struct {
	// Stamp names a session by what it says of itself. One that says nothing is named by its id and its server.
	Stamp     string
	SessionID string
	Server    Server
	// Generation is the server's generation.
	Generation string
	// Dead asks that every pane of it is dead, and Unattached that nobody looks at it in a terminal.
	Dead, Unattached bool
}

// Why something was not ended, beside the causes of a paste.
const (
	RefusedLive = RefusedIncarnation + 1 + iota
	RefusedGuests
	// RefusedNeeded: somebody or something may need it.
	RefusedNeeded
)
