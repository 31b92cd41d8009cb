package task

import "muxpost.dev/muxpost/core/session"

// Marker is what the marker of an attempt says.
type Marker uint8

// What a marker can say.
const (
	// Unreadable means that it could not be read, or is of a later version: nothing is known, not even that it is absent.
	Unreadable Marker = iota
	// Absent means that there is none.
	Absent
	// Empty means that there is a file with nothing in it: not yet, unless it stays so.
	Empty
	// Open means that the wrapper has begun and has not said how the command ended.
	Open
	// Ended means that the command ended; Facts.End says how.
	Ended
	// NotLaunched means that the command could not be started.
	NotLaunched
	// Malformed means that it holds what the wrapper of this attempt does not write.
	Malformed
)

// Pane is what was seen of the attempt's pane.
type Pane uint8

// What can be seen of a pane.
const (
	// NoAnswer means that tmux did not answer, or has not been asked.
	NoAnswer Pane = iota
	// Alive means that the pane is there and tmux holds its process for alive.
	Alive
	// Dead means that the pane is retained; Facts.PaneEnd says what tmux reports of its process.
	Dead
	// Gone means that tmux answered, and there is no such pane.
	Gone
	// ServerLost means that the tmux server's process is proven gone.
	ServerLost
)

// Cause is why the wrapper ended the command, as the marker has it.
type Cause uint8

// The causes.
const (
	NoCause Cause = iota
	// LimitOver: the time limit was over.
	LimitOver
	// HungUp: the terminal was closed under it.
	HungUp
)

// Facts are what is known of an attempt. The zero value knows nothing.
type Facts struct {
	Marker Marker
	// End is how the command ended, and Cause why the wrapper ended it, with Ended.
	End   End
	Cause Cause
	// Pane is what was seen of the pane, after the marker was read.
	Pane    Pane
	PaneEnd End
	// Wrapper is the pane's process, as the marker or the launch named it.
	Wrapper session.Process
	// Again is true when the marker was read once more after the pane was looked at.
	Again bool
	// Overdue is true when what is missing (the content of an empty marker, or how a dead pane's process ended) has been missing for longer
	// than its grace period.
	Overdue bool
	// Order is why tmuxd is ending it.
	Order Order
}

// Action is what follows from a judgement.
type Action uint8

// The actions.
const (
	// Wait means to look again later.
	Wait Action = iota
	// ReadAgain means to read the marker once more and judge again: it may have been written between the two looks.
	ReadAgain
	// Settle means that the state is final.
	Settle
)

var actionNames = [...]string{Wait: "wait", ReadAgain: "read the marker again", Settle: "settle"}

// String returns the action's name.
func (a Action) String() string {
	if int(a) < len(actionNames) {
		return actionNames[a]
	}
	return actionNames[Wait]
}

// Judgement is what Facts prove.
type Judgement struct {
	Action Action
	State  State
	Reason Reason
	// End is how the command ended, as far as it is known.
	End End
	// SecondHand is true when tmux reported the end, and not the marker.
	SecondHand bool
}

// Exit codes by which a shell says that it could not run a command.
const (
	codeCannotRun = 126
	codeNotFound  = 127
)

// Exit codes of a wrapper that cannot record what it has to say. The marker, where there is one, tells them from the command's.
const (
	wrapperFirst  = 120 // up to codeNotFound
	wrapperRecord = 123 // the start could not be recorded, or an exit with 0 could not
	wrapperLost   = 124 // the end of the command could not be learned
)

const signalKill = 9

// Judge says what became of an attempt. It is total: every set of facts has one judgement.
func Judge(f Facts) Judgement {
	if j, final := byMarker(f); final {
		return ordered(f, j)
	}
	switch {
	case f.Marker == Unreadable:
		return Judgement{State: Unknown, Reason: ReasonUnreadable}
	case f.Wrapper == session.ProcessAlive, f.Pane == Alive:
		return Judgement{State: Running}
	case f.Pane == NoAnswer:
		return Judgement{State: Unknown, Reason: ReasonNoAnswer}
	case f.Wrapper == session.ProcessUnclear:
		return Judgement{State: Unknown, Reason: ReasonUnclear}
	case !f.Again:
		return Judgement{Action: ReadAgain, State: Unknown}
	case f.Marker == Empty && !f.Overdue:
		return Judgement{State: Unknown, Reason: ReasonTruncated}
	case f.Pane == Dead && f.PaneEnd.How == Unsaid && !f.Overdue:
		// tmux can miss the end of a child, and learn of it later.
		return Judgement{State: Unknown, Reason: ReasonNotRecorded}
	}
	return ordered(f, byPane(f))
}

// byMarker judges what the marker alone decides.
func byMarker(f Facts) (Judgement, bool) {
	j := Judgement{Action: Settle, End: f.End}
	switch f.Marker {
	case Ended:
		j.State, j.Reason = ended(f.End)
		switch {
		case f.Cause == LimitOver:
			j.State, j.Reason = TimedOut, ReasonTimeLimit
		case f.Cause == HungUp && j.State == Failed:
			j.Reason = ReasonHangUp
		}
	case NotLaunched:
		j.State, j.Reason, j.End = LaunchFailed, ReasonNotLaunched, End{}
	case Malformed:
		j.State, j.Reason, j.End = Crashed, ReasonMalformed, End{}
	case Unreadable, Absent, Empty, Open:
		return Judgement{}, false
	}
	return j, true
}

// ended judges an end that the marker vouches for.
func ended(e End) (State, Reason) {
	switch {
	case e.How == BySignal:
		return Failed, ReasonSignal
	case e.How == Unsaid:
		return Crashed, ReasonNotRecorded
	case e.N == 0:
		return Succeeded, ReasonNone
	case e.N == codeCannotRun || e.N == codeNotFound:
		return LaunchFailed, ReasonNotLaunched
	}
	return Failed, ReasonExit
}

// byPane judges an attempt that ended without a marker that says how. Success is never among it.
func byPane(f Facts) Judgement {
	crash := func(r Reason) Judgement { return Judgement{Action: Settle, State: Crashed, Reason: r} }
	switch {
	case f.Marker == Empty:
		return crash(ReasonTruncated)
	case f.Pane == Gone:
		return crash(ReasonPaneGone)
	case f.Pane == ServerLost:
		return crash(ReasonServerLost)
	case f.PaneEnd.How == Unsaid:
		return crash(ReasonNotRecorded)
	}
	j := Judgement{Action: Settle, State: Failed, Reason: ReasonExit, End: f.PaneEnd, SecondHand: true}
	if f.PaneEnd.How == BySignal {
		j.Reason = ReasonSignal
		if f.PaneEnd.N == signalKill {
			j.Reason = ReasonSupervisor
		}
		return j
	}
	switch n := f.PaneEnd.N; {
	case f.Marker == Absent && n >= wrapperFirst && n <= codeNotFound:
		j.State, j.Reason = LaunchFailed, ReasonNotLaunched
	case n == 0 || n == wrapperRecord || n == wrapperLost:
		return crash(ReasonNotRecorded)
	}
	return j
}

// ordered gives an attempt that has ended the state that its end was ordered with: whoever stopped it is told no failure.
func ordered(f Facts, j Judgement) Judgement {
	switch f.Order {
	case OrderStop:
		j.State, j.Reason = Stopped, ReasonStop
	case OrderTime:
		j.State, j.Reason = TimedOut, ReasonTimeLimit
	case OrderStall:
		j.State, j.Reason = Stalled, ReasonStall
	case NoOrder:
	}
	return j
}
