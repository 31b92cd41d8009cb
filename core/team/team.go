// Package team holds the rules about a team's run: a graph of tasks that agents do, each to its end, through the phases plan, prd, exec,
// verify and fix. It says what a run needs next (Decide), what the end of an attempt makes of its task (After), which runs may be asked for
// (Spec.Check), and what an agent is told (Compose).
//
// Success is only what was seen: a run is complete when a verification says so, and a phase is left by one rule in one place. The package
// performs nothing and reads no clock; it knows nothing of hosts, of databases or of how an attempt is judged (core/task does).
package team

// Phase is how far a run has come.
type Phase uint8

// The phases. The zero value is none.
const (
	NoPhase Phase = iota
	// Plan, PRD and Fix have one step each, Verify too; Exec has the tasks.
	Plan
	PRD
	Exec
	Verify
	Fix
	// Complete, Failed and Cancelled are terminal.
	Complete
	Failed
	Cancelled
)

var phaseNames = [...]string{NoPhase: "", Plan: "plan", PRD: "prd", Exec: "exec", Verify: "verify", Fix: "fix", Complete: "complete",
	Failed: "failed", Cancelled: "cancelled"}

// Phases lists every phase, for tests that must cover them all.
func Phases() []Phase {
	return []Phase{Plan, PRD, Exec, Verify, Fix, Complete, Failed, Cancelled}
}

// String returns the phase's name; it is stored and told by it.
func (p Phase) String() string { return nameOf(phaseNames[:], int(p)) }

// ParsePhase reads a name.
func ParsePhase(name string) (Phase, bool) {
	i, ok := parse(phaseNames[:], name)
	return Phase(i), ok
}

// Terminal reports whether the run is over. A terminal phase is never left.
func (p Phase) Terminal() bool { return p >= Complete }

// next are the phases that may follow one, beside Failed and Cancelled.
var next = map[Phase][]Phase{Plan: {PRD}, PRD: {Exec}, Exec: {Verify}, Verify: {Complete, Fix}, Fix: {Exec}}

// MayFollow reports whether a run may go from one phase to another.
func MayFollow(from, to Phase) bool {
	if from == NoPhase || from.Terminal() {
		return false
	}
	if to == Failed || to == Cancelled {
		return true
	}
	for _, p := range next[from] {
		if p == to {
			return true
		}
	}
	return false
}

// State is how far a task has come. Blocked is derived from the others, and never stored.
type State uint8

// The states. The zero value belongs to what cannot be read.
const (
	Corrupt State = iota
	Pending
	InProgress
	Completed
	TaskFailed
)

var stateNames = [...]string{Corrupt: "corrupt", Pending: "pending", InProgress: "in_progress", Completed: "completed", TaskFailed: "failed"}

// String returns the state's name.
func (s State) String() string { return nameOf(stateNames[:], int(s)) }

// ParseState reads a name; what is none is Corrupt.
func ParseState(name string) State {
	i, _ := parse(stateNames[:], name)
	return State(i)
}

// Kind is what a task is to its run.
type Kind uint8

// The kinds: a task of the graph, or the one step of a phase.
const (
	NoKind Kind = iota
	Task
	PlanStep
	PRDStep
	VerifyStep
	FixStep
)

var kindNames = [...]string{NoKind: "", Task: "task", PlanStep: "plan", PRDStep: "prd", VerifyStep: "verify", FixStep: "fix"}

// String returns the kind's name.
func (k Kind) String() string { return nameOf(kindNames[:], int(k)) }

// ParseKind reads a name; what is none is NoKind.
func ParseKind(name string) Kind {
	i, _ := parse(kindNames[:], name)
	return Kind(i)
}

// StepID is the id of a phase's step among the tasks of its run. No task of a graph can have it.
func (k Kind) StepID() string { return "@" + k.String() }

// Class is why a task failed, as far as it matters to what follows.
type Class uint8

// The classes.
const (
	NoClass Class = iota
	// Execution: it ran and did not succeed. A fix loop may run it again.
	Execution
	// Launch: it could not be started, on any try. No fix loop is spent on that.
	Launch
	// Verdict: it ran, and what it had to verify does not hold.
	Verdict
	// Stopped: it was ended because its run ends.
	Stopped
)

var classNames = [...]string{NoClass: "", Execution: "execution", Launch: "launch", Verdict: "verdict", Stopped: "stopped"}

// String returns the class's name.
func (c Class) String() string { return nameOf(classNames[:], int(c)) }

// ParseClass reads a name; what is none is Execution, which promises nothing.
func ParseClass(name string) Class {
	if i, ok := parse(classNames[:], name); ok {
		return Class(i)
	}
	return Execution
}

// Reason is why a run changed its phase, or stands still: what people search for. The list is closed.
type Reason string

// The reasons.
const (
	// ReasonNoStep: nothing was to be done in the phase.
	ReasonNoStep Reason = "no_step"
	// ReasonStepDone: the phase's step succeeded.
	ReasonStepDone Reason = "step_done"
	// ReasonStepFailed: the phase's step failed.
	ReasonStepFailed Reason = "step_failed"
	// ReasonSettled: no task can get any further.
	ReasonSettled Reason = "tasks_settled"
	// ReasonVerified: all tasks are completed, and the verification says that it holds.
	ReasonVerified Reason = "verified"
	// ReasonTaskFailed: a task failed, and may be run again.
	ReasonTaskFailed Reason = "task_failed"
	// ReasonVerdict: the verification says that it does not hold.
	ReasonVerdict Reason = "verdict"
	// ReasonFixed: the fix loop begins, with what failed set back.
	ReasonFixed Reason = "fix_loop"
	// ReasonFixBound: it failed, and every fix loop is spent.
	ReasonFixBound Reason = "fix_loop_bound"
	// ReasonLaunch: something could not be started on any host that may run it.
	ReasonLaunch Reason = "launch_failed"
	// ReasonCancelled: somebody cancelled the run.
	ReasonCancelled Reason = "cancelled"
	// ReasonAbandoned: somebody gave the run up.
	ReasonAbandoned Reason = "abandoned"
	// ReasonCorrupt: a task's record cannot be read. The run stands still until somebody ends it.
	ReasonCorrupt Reason = "corrupt_task"
	// ReasonMissing: there are fewer tasks than the run was created with. The run stands still until somebody ends it.
	ReasonMissing Reason = "task_missing"
	// ReasonUnread: the run's own record cannot be read. It stands still until somebody ends it.
	ReasonUnread Reason = "corrupt_run"
	// ReasonPaused: somebody holds back what is handed out. It goes on once that has ended.
	ReasonPaused Reason = "paused"
)

// Reasons lists every reason, for tests that must cover them all.
func Reasons() []Reason {
	return []Reason{ReasonNoStep, ReasonStepDone, ReasonStepFailed, ReasonSettled, ReasonVerified, ReasonTaskFailed, ReasonVerdict, ReasonFixed,
		ReasonFixBound, ReasonLaunch, ReasonCancelled, ReasonAbandoned, ReasonCorrupt, ReasonMissing, ReasonUnread, ReasonPaused}
}

func nameOf(names []string, i int) string {
	if i < len(names) {
		return names[i]
	}
	return names[0]
}

func parse(names []string, name string) (int, bool) {
	for i, n := range names {
		if n == name && (i > 0 || name != "") {
			return i, true
		}
	}
	return 0, false
}
