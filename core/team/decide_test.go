package team

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// run is a run whose tasks are written as id:state, or id:state<need,need. Steps are @verify and @fix, and others where they are named.
func run(phase Phase, tasks ...string) Run {
	r := Run{Phase: phase, MaxFixLoops: 3, Parallel: 4}
	for _, text := range tasks {
		left, needs, _ := strings.Cut(text, "<")
		id, state, _ := strings.Cut(left, ":")
		t := Item{ID: id, Kind: Task, State: ParseState(state), Number: 1}
		if needs != "" {
			t.Needs = strings.Split(needs, ",")
		}
		if name, ok := strings.CutPrefix(id, "@"); ok {
			t.Kind = ParseKind(name)
		} else {
			r.Total++
		}
		if t.State == TaskFailed {
			t.Class, t.Why = Execution, "exit code 7"
		}
		r.Tasks = append(r.Tasks, t)
	}
	for _, k := range []Kind{VerifyStep, FixStep} {
		if !slices.ContainsFunc(r.Tasks, func(t Item) bool { return t.Kind == k }) {
			state := Pending
			if k == FixStep {
				state = Completed
			}
			r.Tasks = append(r.Tasks, Item{ID: k.StepID(), Kind: k, State: state})
		}
	}
	return r
}

// short is a decision in short: what it claims, or where it goes with which reason and what is reset.
func short(d Decision) string {
	switch d.Action {
	case Claim:
		return "claim " + strings.Join(d.Tasks, ",")
	case Move:
		out := fmt.Sprintf("%s: %s", d.To, d.Reason)
		if len(d.Reset) > 0 {
			out += ", reset " + strings.Join(d.Reset, ",")
		}
		return out
	case Wait, Drain:
	}
	return strings.TrimSuffix(d.Action.String()+": "+string(d.Reason), ": ")
}

func TestDecide_ByCase(t *testing.T) {
	launch := func(r Run, id string) Run {
		for i := range r.Tasks {
			if r.Tasks[i].ID == id {
				r.Tasks[i].Class = Launch
			}
		}
		return r
	}
	for _, row := range []struct {
		name string
		run  Run
		want string
	}{
		{"nothing to plan", run(Plan, "a:pending"), "prd: no_step"},
		{"the plan is made", run(Plan, "@plan:pending", "a:pending"), "claim @plan"},
		{"the plan is under way", run(Plan, "@plan:in_progress", "a:pending"), "wait"},
		{"the plan is there", run(Plan, "@plan:completed", "a:pending"), "prd: step_done"},
		{"T90: the plan fails", run(Plan, "@plan:failed", "a:pending"), "failed: step_failed"},
		{"T90: the requirements fail", run(PRD, "@prd:failed", "a:pending"), "failed: step_failed"},
		{"the plan cannot be started", launch(run(Plan, "@plan:failed", "a:pending"), "@plan"), "failed: launch_failed"},
		{"both at once", run(Exec, "a:pending", "b:pending"), "claim a,b"},
		{"one after the other", run(Exec, "a:pending", "b:pending<a"), "claim a"},
		{"its need is done", run(Exec, "a:completed", "b:pending<a"), "claim b"},
		{"all are done", run(Exec, "a:completed", "b:completed<a"), "verify: tasks_settled, reset @verify"},
		{"T97: a failed, and b needs it", run(Exec, "a:failed", "b:pending<a"), "verify: tasks_settled, reset @verify"},
		{"T97: and so to the fix loop", run(Verify, "a:failed", "b:pending<a"), "fix: task_failed, reset a"},
		{"T97: and so to exec", run(Fix, "a:pending", "b:pending<a"), "exec: fix_loop"},
		{"T98: through two hops", run(Exec, "a:failed", "b:pending<a", "c:pending<b"), "verify: tasks_settled, reset @verify"},
		{"T99: a succeeds on the second try", run(Exec, "a:completed", "b:pending<a", "c:pending<b"), "claim b"},
		{"T101: verify has the same gate", run(Verify, "a:failed", "b:pending<a", "c:pending"), "wait: corrupt_task"},
		{"T102: what failed is waited for while something else runs", run(Exec, "a:failed", "b:in_progress"), "wait"},
		{"T103: pending with everything done is not settled", run(Exec, "a:completed", "b:failed", "c:pending<a"), "claim c"},
		{"T104: a need that is not there", run(Exec, "a:failed", "b:pending<x"), "wait"},
		{"T105: a circle ends", run(Exec, "a:pending<b", "b:pending<a", "c:failed"), "wait"},
		{"T105: a circle behind a failure", run(Exec, "a:pending<b,c", "b:pending<a", "c:failed"), "verify: tasks_settled, reset @verify"},
		{"T109: what is completed is not reset", run(Verify, "a:failed", "b:completed", "c:failed"), "fix: task_failed, reset a,c"},
		{"T111: corrupt", run(Exec, "a:completed", "b:what"), "wait: corrupt_task"},
		{"T111: corrupt in verify", run(Verify, "a:completed", "b:what"), "wait: corrupt_task"},
		{"a task that could not be started", launch(run(Verify, "a:failed", "b:completed"), "a"), "failed: launch_failed"},
		{"it is verified", run(Verify, "a:completed", "@verify:pending"), "claim @verify"},
		{"it holds", run(Verify, "a:completed", "@verify:completed"), "complete: verified"},
		{"it does not hold", run(Verify, "a:completed", "@verify:failed"), "fix: verdict, reset @fix"},
		{"the verification cannot be started", launch(run(Verify, "a:completed", "@verify:failed"), "@verify"), "failed: launch_failed"},
		{"it is fixed", run(Fix, "a:completed", "@verify:failed", "@fix:pending"), "claim @fix"},
		{"whatever the fix came to, it is verified again", run(Fix, "a:completed", "@verify:failed", "@fix:failed"), "exec: fix_loop"},
		{"the fix cannot be started", launch(run(Fix, "a:completed", "@fix:failed"), "@fix"), "failed: launch_failed"},
	} {
		t.Run(row.name, func(t *testing.T) {
			if got := short(Decide(row.run)); got != row.want {
				t.Errorf("%s, want %s", got, row.want)
			}
		})
	}
}

func TestT116_AnEmptyOrShortListIsNeverAllCompleted(t *testing.T) {
	for _, phase := range []Phase{Exec, Verify} {
		r := run(phase, "a:completed", "@verify:completed")
		r.Total = 2
		if d := Decide(r); d.Action != Wait || d.Reason != ReasonMissing {
			t.Errorf("%v, short: %+v", phase, d)
		}
		if d := Decide(Run{Phase: phase, Parallel: 1}); d.Action != Wait || d.Reason != ReasonMissing {
			t.Errorf("%v, empty: %+v", phase, d)
		}
	}
}

func TestDecide_APauseHoldsBackWhatIsHandedOutAndNothingElse(t *testing.T) {
	for want, r := range map[string]Run{
		"wait: paused":                         run(Exec, "a:in_progress", "b:pending"),
		"wait":                                 run(Exec, "a:in_progress"),
		"prd: no_step":                         run(Plan, "a:pending"),
		"verify: tasks_settled, reset @verify": run(Exec, "a:completed"),
		"complete: verified":                   run(Verify, "a:completed", "@verify:completed"),
		"fix: task_failed, reset a":            run(Verify, "a:failed"),
	} {
		r.Paused = "by ann"
		if got := short(Decide(r)); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	r := run(Exec, "a:pending")
	r.Paused, r.Ending, r.EndingReason = "by ann", Cancelled, ReasonCancelled
	if got := short(Decide(r)); got != "cancelled: cancelled" {
		t.Errorf("one that is to end: %s", got)
	}
}

func TestDecide_ARunThatCannotBeReadStandsStillUntilItIsEnded(t *testing.T) {
	for _, phase := range append(Phases(), NoPhase) {
		r := run(phase, "a:pending", "@plan:pending", "@prd:pending", "@verify:pending", "@fix:pending")
		r.Unread = "nobody knows it"
		want := "wait: corrupt_run"
		if phase.Terminal() {
			want = "wait"
		}
		if d := Decide(r); short(d) != want || !phase.Terminal() && d.Detail != r.Unread {
			t.Errorf("%v: %+v", phase, d)
		}
		r.Ending, r.EndingReason = Cancelled, ReasonCancelled
		if d := Decide(r); phase != NoPhase && !phase.Terminal() && d.To != Cancelled {
			t.Errorf("%v, which is to end: %+v", phase, d)
		}
	}
}

func TestT108_NoFixLoopsMeansNoRetries(t *testing.T) {
	r := run(Verify, "a:failed", "b:pending<a")
	r.MaxFixLoops = 0
	d := Decide(r)
	if d.To != Failed || d.Reason != ReasonFixBound || !strings.Contains(d.Detail, "bound of 0 fix loops") || !strings.Contains(d.Detail, "exit code 7") {
		t.Errorf("%+v", d)
	}
}

func TestDecide_AnEndingRunIsDrainedFirst(t *testing.T) {
	for _, phase := range Phases() {
		r := run(phase, "a:in_progress", "b:what")
		r.Ending, r.EndingReason, r.EndingDetail = Cancelled, ReasonCancelled, "enough"
		d := Decide(r)
		if want := map[bool]Action{true: Wait, false: Drain}[phase.Terminal()]; d.Action != want {
			t.Errorf("%v: %+v", phase, d)
		}
		r.Tasks[0].State = TaskFailed
		if d = Decide(r); !phase.Terminal() && (d.To != Cancelled || d.Reason != ReasonCancelled || d.Detail != "enough") {
			t.Errorf("%v: %+v", phase, d)
		}
	}
}

func TestMayFollow_IsTheMachine(t *testing.T) {
	var got []string
	for _, from := range append(Phases(), NoPhase) {
		for _, to := range append(Phases(), NoPhase) {
			if MayFollow(from, to) {
				got = append(got, from.String()+">"+to.String())
			}
		}
	}
	want := "plan>prd plan>failed plan>cancelled prd>exec prd>failed prd>cancelled exec>verify exec>failed exec>cancelled " +
		"verify>fix verify>complete verify>failed verify>cancelled fix>exec fix>failed fix>cancelled"
	slices.Sort(got)
	sorted := strings.Fields(want)
	slices.Sort(sorted)
	if !slices.Equal(got, sorted) {
		t.Errorf("%v", got)
	}
}

// every visits each run of three tasks in each graph, state, phase and count.
func every(visit func(Run)) {
	states := []State{Corrupt, Pending, InProgress, Completed, TaskFailed}
	graphs := [][3][]string{{nil, nil, nil}, {nil, {"a"}, {"b"}}, {nil, {"a"}, {"a"}}, {nil, nil, {"a", "b"}}, {{"b"}, {"a"}, nil}, {{"x"}, nil, nil}}
	for _, phase := range append(Phases(), NoPhase) {
		for i, g := range graphs {
			if i > 0 && phase != Exec && phase != Verify {
				break // the tasks decide nothing there
			}
			for n := range 5 * 5 * 5 * 5 * 5 {
				pick := func() State { s := states[n%5]; n /= 5; return s }
				for bits := range 16 {
					r := Run{Phase: phase, MaxFixLoops: 2, FixLoops: 1 + bits&1, Total: 3, Parallel: 1 + bits&2}
					class := []Class{Execution, Launch}[bits>>2&1]
					m := n
					for i, id := range []string{"a", "b", "c"} {
						r.Tasks = append(r.Tasks, Item{ID: id, Kind: Task, State: pick(), Needs: g[i], Class: class, Early: bits&8 != 0})
					}
					step := map[Phase]Kind{Plan: PlanStep, PRD: PRDStep}[phase]
					if step == NoKind {
						step = FixStep
					}
					r.Tasks = append(r.Tasks, Item{ID: VerifyStep.StepID(), Kind: VerifyStep, State: pick(), Class: class}, Item{ID: step.StepID(), Kind: step, State: pick(), Class: class})
					n = m
					visit(r)
				}
			}
		}
	}
}

func TestDecide_KeepsItsPromisesInEveryState(t *testing.T) {
	seen := map[Reason]bool{}
	every(func(r Run) {
		d := Decide(r)
		seen[d.Reason] = true
		fail := func(why string) { t.Fatalf("%s: %+v\n%+v", why, d, r) }
		state := map[string]State{}
		broken, running := false, 0
		for _, i := range r.Tasks {
			state[i.ID] = i.State
			broken = broken || i.State == Corrupt && i.Kind == Task
			if i.State == InProgress {
				running++
			}
		}
		if d.Action == Move && !MayFollow(r.Phase, d.To) {
			fail("there is no such edge")
		}
		if r.Phase.Terminal() && d.Action != Wait {
			fail("a terminal phase is left")
		}
		if broken && (r.Phase == Exec || r.Phase == Verify) && d.Action != Wait {
			fail("a run with a corrupt task goes on")
		}
		if d.To == Complete && (state["a"] != Completed || state["b"] != Completed || state["c"] != Completed || state["@verify"] != Completed) {
			fail("a success that was not seen")
		}
		if r.Phase == Exec && d.Action == Move && d.To != Verify {
			fail("exec routes")
		}
		if d.Action == Move && d.FixLoops > r.MaxFixLoops {
			fail("a fix loop too many")
		}
		if d.Action == Move && d.FixLoops != r.FixLoops && (d.To != Fix || d.FixLoops != r.FixLoops+1) {
			fail("the counter moves with the fix alone")
		}
		for _, id := range d.Reset {
			if state[id] == Completed && !strings.HasPrefix(id, "@") {
				fail("what is completed is run again")
			}
		}
		if d.Action != Claim {
			return
		}
		if len(d.Tasks) == 0 || r.Phase == Exec && running+len(d.Tasks) > r.Parallel {
			fail("more than may run at once, or nothing")
		}
		for _, id := range d.Tasks {
			i := slices.IndexFunc(r.Tasks, func(t Item) bool { return t.ID == id })
			if r.Tasks[i].State != Pending || r.Tasks[i].Early {
				fail("it is not to be claimed")
			}
			for _, need := range r.Tasks[i].Needs {
				if state[need] != Completed {
					fail("a need is not completed")
				}
			}
		}
	})
	for _, r := range Reasons() {
		if !seen[r] && !slices.Contains([]Reason{ReasonCancelled, ReasonAbandoned, ReasonNoStep, ReasonMissing, ReasonUnread, ReasonPaused}, r) {
			t.Errorf("%s is never given", r)
		}
	}
}

// TestDecide_EveryRunEnds plays runs with outcomes by chance to their end, and counts the executions.
func TestDecide_EveryRunEnds(t *testing.T) {
	for seed := range uint64(2000) {
		rng := rand.New(rand.NewPCG(seed, 7)) //nolint:gosec // chance for a test
		n := 1 + rng.IntN(8)
		s := Spec{MaxFixLoops: rng.IntN(4), Parallel: 1 + rng.IntN(3)}
		for i := range n {
			j := Job{ID: fmt.Sprint("t", i)}
			for k := range i {
				if rng.IntN(3) == 0 {
					j.Needs = append(j.Needs, fmt.Sprint("t", k))
				}
			}
			s.Tasks = append(s.Tasks, j)
		}
		if rng.IntN(2) == 0 {
			s.Plan, s.PRD = &Step{}, &Step{}
		}
		r := Run{Phase: Plan, MaxFixLoops: s.MaxFixLoops, Parallel: s.Parallel, Total: n, Tasks: s.Steps()}
		ran, luck := map[string]int{}, 1+rng.IntN(8)
		for steps := 0; !r.Phase.Terminal(); steps++ {
			if steps > 2000 {
				t.Fatalf("seed %d does not end: %+v", seed, r)
			}
			if rng.IntN(200) == 0 && r.Ending == NoPhase {
				r.Ending, r.EndingReason = Cancelled, ReasonCancelled
			}
			play(&r, Decide(r), rng, luck, ran)
		}
		for i := range r.Tasks {
			item := r.Tasks[i]
			// Each execution may fail to start twice, and be handed out once more.
			if bound := (s.MaxFixLoops + 1) * 2; item.Kind == Task && ran[item.ID] > bound {
				t.Errorf("seed %d: %s ran %d times", seed, item.ID, ran[item.ID])
			}
			if r.Phase == Complete && item.Kind == Task && item.State != Completed {
				t.Errorf("seed %d: complete with %+v", seed, item)
			}
		}
	}
}

func play(r *Run, d Decision, rng *rand.Rand, luck int, ran map[string]int) {
	at := func(id string) *Item {
		return &r.Tasks[slices.IndexFunc(r.Tasks, func(t Item) bool { return t.ID == id })]
	}
	switch d.Action {
	case Claim:
		for _, id := range d.Tasks {
			at(id).State = InProgress
		}
	case Move:
		r.Phase, r.FixLoops = d.To, d.FixLoops
		for _, id := range d.Reset {
			at(id).State, at(id).Requeues, at(id).Launches = Pending, 0, 0
		}
	case Wait, Drain:
		for i := range r.Tasks {
			t := &r.Tasks[i]
			t.Early = false
			if t.State != InProgress || rng.IntN(2) == 0 {
				continue
			}
			e := Ended{Result: Results()[rng.IntN(len(Results()))], Holds: rng.IntN(2) == 0, Draining: r.Ending != NoPhase}
			if rng.IntN(10) < luck {
				e.Result, e.Holds = Succeeded, true
			}
			if e.Result != LaunchFailed && e.Result != NotBegun {
				ran[t.ID]++
			}
			c := After(*t, e)
			t.State, t.Class, t.Launches, t.Requeues = c.State, c.Class, c.Launches, c.Requeues
		}
	}
}

func TestT100_WhatAlwaysFailsIsRunOnceMoreThanThereAreLoops(t *testing.T) {
	r := run(Plan, "a:pending", "b:pending<a")
	executions := map[string]int{}
	for steps := 0; !r.Phase.Terminal() && steps < 100; steps++ {
		d := Decide(r)
		switch d.Action {
		case Claim:
			for i := range r.Tasks {
				if slices.Contains(d.Tasks, r.Tasks[i].ID) {
					executions[r.Tasks[i].ID]++
					c := After(r.Tasks[i], Ended{Result: RanAndFailed})
					r.Tasks[i].State, r.Tasks[i].Class = c.State, c.Class
				}
			}
		case Move:
			r.Phase, r.FixLoops, r.EndingDetail = d.To, d.FixLoops, d.Detail
			for i := range r.Tasks {
				if slices.Contains(d.Reset, r.Tasks[i].ID) {
					r.Tasks[i].State = Pending
				}
			}
		case Wait, Drain:
		}
	}
	if r.Phase != Failed || executions["a"] != 4 || executions["b"] != 0 || executions["@verify"] != 0 || !strings.Contains(r.EndingDetail, "bound of 3 fix loops") {
		t.Errorf("%v after %v: %s", r.Phase, executions, r.EndingDetail)
	}
}

func TestBlocked_IsDerived(t *testing.T) {
	r := run(Exec, "a:failed", "b:pending<a", "c:pending<b", "d:pending", "e:completed<a")
	if got := Blocked(r); !slices.Equal(got, []string{"b", "c"}) {
		t.Errorf("%v", got)
	}
	// A deep ladder, each rung needing both before it: each is asked once.
	var tasks []string
	for i := range 2000 {
		text := fmt.Sprintf("t%d:pending", i)
		if i > 1 {
			text += fmt.Sprintf("<t%d,t%d", i-1, i-2)
		}
		tasks = append(tasks, text)
	}
	tasks[0] = "t0:failed"
	if got := Blocked(run(Exec, tasks...)); len(got) != 1998 {
		t.Errorf("%d", len(got))
	}
}
