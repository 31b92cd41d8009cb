package team

import (
	"fmt"
	"slices"
)

// Run is what is known of a run. Its zero value is decided to wait.
type Run struct {
	Phase Phase
	// Ending is the terminal phase that it is to end in once nothing of it is under way; NoPhase while it goes on.
	Ending Phase
	// EndingReason and EndingDetail say why.
	EndingReason Reason
	EndingDetail string
	// FixLoops are spent of MaxFixLoops.
	FixLoops, MaxFixLoops int
	// Total is how many tasks the run was created with.
	Total    int
	Parallel int
	// Unread says why the run's record cannot be read, and Paused who holds back what is handed out; empty where that is not so.
	Unread, Paused string
	// Tasks are the tasks of the graph in their order, and the steps.
	Tasks []Item
}

// Item is a task or a step as it stands.
type Item struct {
	ID    string
	Kind  Kind
	State State
	Class Class
	// Why is how its last attempt ended, for people.
	Why   string
	Needs []string
	// Number counts its executions from 1, the coming one included; Launches the tries to start the present one that failed, and Requeues how
	// often it was handed out again.
	Number, Launches, Requeues int
	// Early is true while it must not be tried again yet.
	Early bool
}

// Action is what a run needs next.
type Action uint8

// The actions.
const (
	// Wait means that nothing is to be done until something changes.
	Wait Action = iota
	// Claim means to hand out tasks.
	Claim
	// Move means to go to another phase.
	Move
	// Drain means to end the attempts that are under way.
	Drain
)

var actionNames = [...]string{Wait: "wait", Claim: "claim", Move: "move", Drain: "drain"}

// String returns the action's name.
func (a Action) String() string { return nameOf(actionNames[:], int(a)) }

// Decision is the next step of a run.
type Decision struct {
	Action Action
	// Tasks are to be claimed, in this order.
	Tasks []string
	// To is the phase to go to, FixLoops how many are spent then, and Reset what becomes pending with it, under a new number.
	To       Phase
	FixLoops int
	Reset    []string
	// Reason and Detail say why, of Wait too where the run stands still until a person acts.
	Reason Reason
	Detail string
}

// Decide says what a run needs next. It is total: every run has one decision.
func Decide(r Run) Decision {
	d := decide(r)
	// What is under way goes on, and so does what needs nobody.
	if d.Action == Claim && r.Paused != "" {
		return Decision{Reason: ReasonPaused, Detail: r.Paused}
	}
	return d
}

func decide(r Run) Decision {
	g := newGraph(r)
	// One that is ended needs nothing of what was asked for.
	if r.Unread != "" && (r.Phase == NoPhase || !r.Phase.Terminal() && !r.Ending.Terminal()) {
		return Decision{Reason: ReasonUnread, Detail: r.Unread}
	}
	if r.Phase == NoPhase || r.Phase.Terminal() {
		return Decision{}
	}
	if r.Ending.Terminal() {
		if g.count(InProgress) > 0 {
			return Decision{Action: Drain, Reason: r.EndingReason, Detail: r.EndingDetail}
		}
		return g.move(r.Ending, r.EndingReason, r.EndingDetail)
	}
	switch r.Phase {
	case Plan:
		return g.before(PlanStep, PRD)
	case PRD:
		return g.before(PRDStep, Exec)
	case Exec:
		return g.exec()
	case Verify:
		return g.verify()
	case Fix:
		return g.fix()
	case NoPhase, Complete, Failed, Cancelled:
	}
	return Decision{}
}

// graph is a run with what follows from it.
type graph struct {
	Run
	byID map[string]int
	// blocked is derived: the pending tasks that can only wait for what failed.
	blocked map[string]bool
}

func newGraph(r Run) *graph {
	g := &graph{Run: r, byID: map[string]int{}, blocked: map[string]bool{}}
	dependents := map[string][]string{}
	var reached []string
	for i, t := range r.Tasks {
		g.byID[t.ID] = i
		for _, need := range t.Needs {
			dependents[need] = append(dependents[need], t.ID)
		}
		if t.Kind == Task && t.State == TaskFailed {
			reached = append(reached, t.ID)
		}
	}
	// Each task is reached once, so it takes linear time, and a circle ends it.
	for len(reached) > 0 {
		last := reached[len(reached)-1]
		reached = reached[:len(reached)-1]
		for _, id := range dependents[last] {
			if t := r.Tasks[g.byID[id]]; t.Kind == Task && t.State == Pending && !g.blocked[id] {
				g.blocked[id] = true
				reached = append(reached, id)
			}
		}
	}
	return g
}

// Blocked returns the ids of the tasks that are pending and depend, directly or through other pending ones, on one that failed.
func Blocked(r Run) (ids []string) {
	g := newGraph(r)
	for _, t := range r.Tasks {
		if g.blocked[t.ID] {
			ids = append(ids, t.ID)
		}
	}
	return ids
}

// ready reports whether a pending task may be claimed: what it needs is completed. Early tells only whether it may be now.
func (g *graph) ready(t Item) bool {
	if t.Kind != Task || t.State != Pending {
		return false
	}
	for _, need := range t.Needs {
		if j, ok := g.byID[need]; !ok || g.Tasks[j].State != Completed {
			return false
		}
	}
	return true
}

func (g *graph) count(s State) (n int) {
	for _, t := range g.Tasks {
		if t.State == s {
			n++
		}
	}
	return n
}

// whole says whether every task that the run was created with is there and can be read; otherwise why the run stands still.
func (g *graph) whole() (stands Decision, ok bool) {
	n := 0
	for _, t := range g.Tasks {
		if t.State == Corrupt || t.Kind == NoKind {
			return Decision{Reason: ReasonCorrupt, Detail: fmt.Sprintf("the record of the task %s cannot be read", t.ID)}, false
		}
		if t.Kind == Task {
			n++
		}
	}
	if n != g.Total || n == 0 {
		return Decision{Reason: ReasonMissing, Detail: fmt.Sprintf("%d tasks are there, and the run was created with %d", n, g.Total)}, false
	}
	return Decision{}, true
}

// settled is the gate of exec and verify: no task can get any further. A task that needs what is not there is not settled by it.
func (g *graph) settled() bool {
	for _, t := range g.Tasks {
		if t.Kind == Task && t.State != Completed && t.State != TaskFailed && !g.blocked[t.ID] {
			return false
		}
	}
	return true
}

// step returns the step of a kind.
func (g *graph) step(k Kind) (Item, bool) {
	for _, t := range g.Tasks {
		if t.Kind == k {
			return t, true
		}
	}
	return Item{}, false
}

func (g *graph) move(to Phase, why Reason, detail string, reset ...string) Decision {
	return Decision{Action: Move, To: to, FixLoops: g.FixLoops, Reason: why, Detail: detail, Reset: reset}
}

// claim hands a step out.
func (g *graph) claim(t Item) Decision {
	if t.Early {
		return Decision{}
	}
	return Decision{Action: Claim, Tasks: []string{t.ID}}
}

// before is a phase before the tasks: its step, if there is one, has to succeed.
func (g *graph) before(k Kind, then Phase) Decision {
	t, ok := g.step(k)
	if !ok {
		return g.move(then, ReasonNoStep, "")
	}
	switch t.State {
	case Pending:
		return g.claim(t)
	case Completed:
		return g.move(then, ReasonStepDone, "")
	case TaskFailed:
		if t.Class == Launch {
			return g.move(Failed, ReasonLaunch, t.Why)
		}
		return g.move(Failed, ReasonStepFailed, t.Why)
	case InProgress:
		return Decision{}
	case Corrupt:
	}
	return Decision{Reason: ReasonCorrupt, Detail: "the record of " + t.ID + " cannot be read"}
}

func (g *graph) exec() Decision {
	if stands, ok := g.whole(); !ok {
		return stands
	}
	if g.settled() {
		return g.move(Verify, ReasonSettled, "", VerifyStep.StepID())
	}
	d := Decision{Action: Claim}
	free := g.Parallel - g.count(InProgress)
	for _, t := range g.Tasks {
		if len(d.Tasks) < free && g.ready(t) && !t.Early {
			d.Tasks = append(d.Tasks, t.ID)
		}
	}
	if len(d.Tasks) == 0 {
		return Decision{}
	}
	return d
}

func (g *graph) verify() Decision {
	if stands, ok := g.whole(); !ok {
		return stands
	}
	if !g.settled() {
		return Decision{Reason: ReasonCorrupt, Detail: "a task can get further, and the run is past that"}
	}
	var failed []string
	why := ""
	for _, t := range g.Tasks {
		if t.Kind != Task || t.State != TaskFailed {
			continue
		}
		said := fmt.Sprintf("the task %s failed: %s", t.ID, t.Why)
		if t.Class == Launch {
			return g.move(Failed, ReasonLaunch, said)
		}
		if failed = append(failed, t.ID); why == "" {
			why = said
		}
	}
	if len(failed) > 0 {
		return g.again(ReasonTaskFailed, why, failed)
	}
	t, _ := g.step(VerifyStep)
	switch t.State {
	case Pending:
		return g.claim(t)
	case InProgress:
		return Decision{}
	case Completed:
		return g.move(Complete, ReasonVerified, t.Why)
	case TaskFailed:
		if t.Class == Launch {
			return g.move(Failed, ReasonLaunch, "the verification could not be started: "+t.Why)
		}
		return g.again(ReasonVerdict, t.Why, []string{FixStep.StepID()})
	case Corrupt:
	}
	return Decision{Reason: ReasonCorrupt, Detail: "the record of " + VerifyStep.StepID() + " cannot be read"}
}

// again begins a fix loop, with what is to be done again set back by the same step, or ends the run when every loop is spent.
func (g *graph) again(reason Reason, why string, reset []string) Decision {
	if g.FixLoops >= g.MaxFixLoops {
		return g.move(Failed, ReasonFixBound, fmt.Sprintf("%s; the bound of %d fix loops (max_fix_loops) is reached", why, g.MaxFixLoops))
	}
	d := g.move(Fix, reason, why, reset...)
	d.FixLoops++
	return d
}

// fix has its step done when the verification did not hold; where tasks failed, they were set back already.
func (g *graph) fix() Decision {
	t, ok := g.step(FixStep)
	switch {
	case !ok || t.State == Corrupt:
		return Decision{Reason: ReasonCorrupt, Detail: "the record of " + FixStep.StepID() + " cannot be read"}
	case t.State == Pending:
		return g.claim(t)
	case t.State == InProgress:
		return Decision{}
	case t.State == TaskFailed && t.Class == Launch:
		return g.move(Failed, ReasonLaunch, "the fix could not be started: "+t.Why)
	}
	return g.move(Exec, ReasonFixed, "")
}

// Steps returns the items that a run begins with: the tasks of the spec in their order, then the steps.
func (s Spec) Steps() []Item {
	var out []Item
	for _, t := range s.Tasks {
		out = append(out, Item{ID: t.ID, Kind: Task, State: Pending, Needs: slices.Clone(t.Needs), Number: 1})
	}
	step := func(k Kind, state State) {
		out = append(out, Item{ID: k.StepID(), Kind: k, State: state, Number: 1})
	}
	if s.Plan != nil {
		step(PlanStep, Pending)
	}
	if s.PRD != nil {
		step(PRDStep, Pending)
	}
	step(VerifyStep, Pending)
	// Nothing is owed until a verification does not hold.
	return append(out, Item{ID: FixStep.StepID(), Kind: FixStep, State: Completed})
}
