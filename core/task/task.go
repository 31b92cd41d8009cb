// Package task holds the rules about one attempt, the launch of a task that runs to completion: what became of it, given what the marker
// (the wrapper's record) says and what was seen of its pane.
//
// The marker decides, the pane is only a witness: success is never second-hand, and silence is never an end. The package performs nothing
// and reads no clock; it knows nothing of files, of tmux or of processes beyond what Facts say.
package task

import "fmt"

// State is how far an attempt has come.
type State uint8

// The states. The zero value is the harmless one.
const (
	// Unknown means that nothing proves what became of it: it may run, it may have ended.
	Unknown State = iota
	// Running means that it has not ended.
	Running
	// Succeeded means that the command exited with 0, and that the marker says so.
	Succeeded
	// Failed means that the command ended otherwise.
	Failed
	// LaunchFailed means that the command was not started.
	LaunchFailed
	// Stopped means that it was ended because somebody asked for it.
	Stopped
	// TimedOut means that it was ended because its time limit was over.
	TimedOut
	// Stalled means that it was ended because nothing of it made progress for longer than allowed.
	Stalled
	// Crashed means that it ended and nothing trustworthy says how.
	Crashed
)

var stateNames = [...]string{
	Unknown: "unknown", Running: "running", Succeeded: "succeeded", Failed: "failed", LaunchFailed: "launch_failed", Stopped: "stopped",
	TimedOut: "timed_out", Stalled: "stalled", Crashed: "crashed",
}

// States lists every state, for tests that must cover them all.
func States() []State {
	out := make([]State, len(stateNames))
	for i := range out {
		out[i] = State(i)
	}
	return out
}

// String returns the state's name, for the log.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return stateNames[Unknown]
}

// Final reports whether the attempt is over. A final state is never left.
func (s State) Final() bool { return s >= Succeeded && int(s) < len(stateNames) }

// How says in which way a process ended.
type How uint8

// The ways. A code, a signal and not knowing are three things: none is guessed from another.
const (
	Unsaid How = iota
	ByCode
	BySignal
)

// End is how a process ended: with the exit code N, by the signal N, or nobody says how.
type End struct {
	How How
	N   int
}

// String returns the end for a person.
func (e End) String() string {
	switch e.How {
	case ByCode:
		return fmt.Sprintf("exit code %d", e.N)
	case BySignal:
		return fmt.Sprintf("signal %d", e.N)
	case Unsaid:
	}
	return "nobody says how"
}

// Order is why tmuxd ends an attempt. It is recorded before anything is signalled.
type Order uint8

// The orders.
const (
	NoOrder Order = iota
	// OrderStop is a caller's.
	OrderStop
	// OrderTime is tmuxd's own, when the wrapper has not kept the time limit.
	OrderTime
	// OrderStall is tmuxd's own, when nothing of the attempt made progress.
	OrderStall
)

var orderNames = [...]string{NoOrder: "", OrderStop: "stop", OrderTime: "time_limit", OrderStall: "stall"}

// String returns the order's name, for the log; empty for none.
func (o Order) String() string {
	if int(o) < len(orderNames) {
		return orderNames[o]
	}
	return orderNames[NoOrder]
}

// Reason is why an attempt is in its state: what people search for and alert on. The list is closed.
type Reason string

// The reasons.
const (
	ReasonNone Reason = ""
	// ReasonExit: the command exited with another code than 0.
	ReasonExit Reason = "exit_code"
	// ReasonSignal: a signal ended the command.
	ReasonSignal Reason = "signal"
	// ReasonHangUp: its terminal was closed under it, by the end of its tmux server or by a person.
	ReasonHangUp Reason = "hang_up"
	// ReasonNotLaunched: the command could not be started, or says itself that it could not start what it should.
	ReasonNotLaunched Reason = "not_launched"
	// ReasonSupervisor: the wrapper itself was killed, and with it the command.
	ReasonSupervisor Reason = "supervisor_killed"
	// ReasonStop, ReasonTimeLimit and ReasonStall: it was ended for that.
	ReasonStop      Reason = "stopped"
	ReasonTimeLimit Reason = "time_limit"
	ReasonStall     Reason = "stall"
	// ReasonNotRecorded: it ended with 0, or in a way that could not be recorded, and there is no marker that says so.
	ReasonNotRecorded Reason = "not_recorded"
	// ReasonPaneGone: its pane is gone, and there is no marker that says how it ended.
	ReasonPaneGone Reason = "pane_gone"
	// ReasonServerLost: its tmux server is gone, and there is no marker that says how it ended.
	ReasonServerLost Reason = "server_lost"
	// ReasonTruncated: the marker is empty and stays so.
	ReasonTruncated Reason = "truncated_marker"
	// ReasonMalformed: the marker holds what no wrapper writes for this attempt.
	ReasonMalformed Reason = "malformed_marker"
	// ReasonUnreadable: the marker cannot be read.
	ReasonUnreadable Reason = "unreadable_marker"
	// ReasonNoAnswer: the tmux server did not answer.
	ReasonNoAnswer Reason = "tmux_no_answer"
	// ReasonUnclear: whether the wrapper lives cannot be told.
	ReasonUnclear Reason = "process_unclear"
)

// Reasons lists every reason but none, for tests that must cover them all.
func Reasons() []Reason {
	return []Reason{ReasonExit, ReasonSignal, ReasonHangUp, ReasonNotLaunched, ReasonSupervisor, ReasonStop, ReasonTimeLimit, ReasonStall,
		ReasonNotRecorded, ReasonPaneGone, ReasonServerLost, ReasonTruncated, ReasonMalformed, ReasonUnreadable, ReasonNoAnswer, ReasonUnclear}
}
