package team

import "time"

// Result is how an attempt ended for its run: as core/task judged it, or because the dispatcher gave it up.
type Result string

// The results.
const (
	Succeeded    Result = "succeeded"
	RanAndFailed Result = "failed"
	LaunchFailed Result = "launch_failed"
	WasStopped   Result = "stopped"
	TimedOut     Result = "timed_out"
	Stalled      Result = "stalled"
	Crashed      Result = "crashed"
	// Lost: its host does not answer for it, and by now it has ended itself, or the host was given up.
	Lost Result = "lost"
	// NotBegun: the host took nothing on now, and nothing of it ran.
	NotBegun Result = "not_begun"
)

// Results lists every result.
func Results() []Result {
	return []Result{Succeeded, RanAndFailed, LaunchFailed, WasStopped, TimedOut, Stalled, Crashed, Lost, NotBegun}
}

const (
	// maxLaunches is how often the start of one execution is tried.
	maxLaunches = 3
	// maxRequeues is how often a task is handed out again that stalled or was lost.
	maxRequeues = 1
	// pause is how long a start is put off after one that failed, doubled each time.
	pause = 2 * time.Second
	// fullPause is how long it is put off when a host takes nothing on.
	fullPause = 5 * time.Second
)

// Ended is the end of an attempt.
type Ended struct {
	Result Result
	// Holds is the verdict of a verification that ran to its end.
	Holds bool
	// Fenced is true when the dispatcher had it stopped to hand its task out again.
	Fenced bool
	// Draining is true when its run ends.
	Draining bool
}

// Change is what the end of an attempt makes of its task.
type Change struct {
	State State
	Class Class
	// Again is true when the task is handed out again as another execution.
	Again bool
	// Launches are the failed tries to start the present execution; Requeues how often it was handed out again.
	Launches, Requeues int
	// Pause is how long it is not to be tried again.
	Pause time.Duration
}

// After says what the end of an attempt makes of its task.
func After(t Item, e Ended) Change {
	c := Change{State: TaskFailed, Class: Execution, Launches: t.Launches, Requeues: t.Requeues}
	switch e.Result {
	case Succeeded:
		if t.Kind == VerifyStep && !e.Holds {
			c.Class = Verdict
			return c
		}
		return Change{State: Completed, Launches: t.Launches, Requeues: t.Requeues}
	case LaunchFailed:
		if c.Launches++; c.Launches >= maxLaunches || e.Draining {
			c.Class = Launch
			break
		}
		c.State, c.Class, c.Pause = Pending, NoClass, pause<<(c.Launches-1)
		return c
	case NotBegun:
		if !e.Draining {
			c.State, c.Class, c.Pause = Pending, NoClass, fullPause
			return c
		}
	case Stalled, Lost:
		return requeued(c, t, e)
	case WasStopped:
		if e.Fenced {
			return requeued(c, t, e)
		}
	case RanAndFailed, TimedOut, Crashed:
		if t.Kind == VerifyStep {
			c.Class = Verdict
		}
	}
	if e.Draining {
		c.Class = Stopped
	}
	return c
}

// requeued hands a task out again that was taken from whoever had it, once.
func requeued(c Change, t Item, e Ended) Change {
	switch {
	case e.Draining:
		c.Class = Stopped
	case t.Requeues < maxRequeues:
		c.State, c.Class, c.Again = Pending, NoClass, true
		c.Requeues, c.Launches = t.Requeues+1, 0
	case t.Kind == VerifyStep:
		c.Class = Verdict
	}
	return c
}
