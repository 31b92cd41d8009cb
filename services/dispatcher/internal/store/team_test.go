package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"muxpost.dev/muxpost/core/fault"
	rules "muxpost.dev/muxpost/core/team"
	"muxpost.dev/muxpost/db/dbtest"
	"muxpost.dev/muxpost/services/dispatcher/internal/deliver"
	"muxpost.dev/muxpost/services/dispatcher/internal/team"
)

func crew(name string) team.Run {
	spec, err := rules.Spec{Team: name, Harness: "sh", Directory: "/w", MaxFixLoops: 3, Verify: &rules.Step{Check: "ok"}, Tasks: []rules.Job{
		{ID: "a", Prompt: "do a"}, {ID: "b", Prompt: "do b", Needs: []string{"a"}}, {ID: "c", Prompt: "do c"}}}.Check()
	if err != nil {
		panic(err)
	}
	return team.Run{ID: uuid.NewString(), Spec: spec, Who: "ann"}
}

// rig is a store with one run that is held, in exec.
type rig struct {
	*Store
	t     *testing.T
	run   team.Run
	epoch int64
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{Store: New(dbtest.New(t)), t: t}
	r.begin("crew")
	r.exec()
	return r
}

func (r *rig) begin(name string) {
	r.t.Helper()
	made, live, err := r.CreateRun(r.t.Context(), crew(name))
	if err != nil || live != nil {
		r.t.Fatal(err)
	}
	r.run = made
	r.take("one")
}

func (r *rig) take(holder string) {
	r.t.Helper()
	all, err := r.TakeRuns(r.t.Context(), holder, 10)
	if err != nil || len(all) != 1 {
		r.t.Fatalf("%d taken, %v", len(all), err)
	}
	r.epoch = all[0].Epoch
}

func (r *rig) known() team.Known {
	r.t.Helper()
	k, err := r.KnownRun(r.t.Context(), r.run.ID)
	if err != nil {
		r.t.Fatal(err)
	}
	return k
}

func (r *rig) move(from rules.Phase, d rules.Decision) (bool, error) {
	r.t.Helper()
	return r.MoveRun(r.t.Context(), team.Step{RunID: r.run.ID, Epoch: r.epoch, Version: r.known().Run.Version, From: from, Decision: d})
}

func (r *rig) exec() {
	r.t.Helper()
	for _, to := range []rules.Phase{rules.PRD, rules.Exec} {
		if ok, err := r.move(to-1, rules.Decision{To: to, Reason: rules.ReasonNoStep}); err != nil || !ok {
			r.t.Fatal(ok, err)
		}
	}
}

func (r *rig) task(id string) team.Task {
	r.t.Helper()
	all := r.known().Tasks
	return all[slices.IndexFunc(all, func(t team.Task) bool { return t.ID == id })]
}

func (r *rig) claim(id string, version int64) (team.Attempt, bool, error) {
	return r.ClaimTask(context.Background(), team.Claim{RunID: r.run.ID, Epoch: r.epoch, TaskID: id, Version: version, Phase: rules.Exec, Lease: time.Minute,
		GoneAfter: time.Hour, Attempt: team.Attempt{ID: uuid.NewString(), Host: "h", Worker: "h/tmux-worker-" + uuid.NewString(), Harness: "sh", Directory: "/w", Prompt: "p"}})
}

func (r *rig) claimed(id string) team.Attempt {
	r.t.Helper()
	a, ok, err := r.claim(id, r.task(id).Version)
	if err != nil || !ok {
		r.t.Fatal(ok, err)
	}
	return a
}

func (r *rig) end(a team.Attempt, result rules.Result) (bool, error) {
	return r.EndAttempt(context.Background(), team.End{RunID: a.RunID, AttemptID: a.ID, Epoch: r.epoch, Result: result, Why: "it " + string(result),
		Task: rules.After(r.task(a.TaskID).Item, rules.Ended{Result: result})})
}

// rows are all rows of the tables of teams, to be compared.
func (r *rig) rows() string {
	r.t.Helper()
	var out string
	for _, table := range []string{"team_runs", "team_tasks", "team_attempts", "team_artifacts", "team_history"} {
		var text string
		if err := r.pool.QueryRow(r.t.Context(), "select coalesce(string_agg(x::text, E'\n' order by x::text), '') from dispatcher."+table+" x").Scan(&text); err != nil {
			r.t.Fatal(err)
		}
		out += table + "\n" + text + "\n"
	}
	return out
}

func TestT79_T85_ARefusedCreateLeavesEveryRowOfTheLiveRun(t *testing.T) {
	r := newRig(t)
	a := r.claimed("a")
	if _, err := r.SawAttempt(t.Context(), a, r.epoch, team.Sight{Alive: true, StartedAt: time.Now()}, time.Minute); err != nil {
		t.Fatal(err)
	}
	before := r.rows()
	other := crew("crew")
	other.Spec.Tasks = other.Spec.Tasks[:1]
	_, live, err := r.CreateRun(t.Context(), other)
	if !errors.Is(err, fault.AlreadyExists) || live == nil || live.ID != r.run.ID || live.Phase != rules.Exec || !live.Held || live.Holder != "one" {
		t.Fatalf("%v, %+v", err, live)
	}
	if diff := cmp.Diff(before, r.rows()); diff != "" {
		t.Error(diff)
	}
}

func TestT80_T87_ARunThatIsOverMakesRoomAndStaysReadable(t *testing.T) {
	r := newRig(t)
	for i, end := range []rules.Phase{rules.Failed, rules.Cancelled, rules.Complete} {
		if i > 0 {
			r.begin("crew")
			r.exec()
		}
		old := r.run.ID
		if end == rules.Complete {
			if ok, err := r.move(rules.Exec, rules.Decision{To: rules.Verify, Reason: rules.ReasonSettled}); !ok || err != nil {
				t.Fatal(ok, err)
			}
			if ok, err := r.move(rules.Verify, rules.Decision{To: end, Reason: rules.ReasonVerified}); !ok || err != nil {
				t.Fatal(ok, err)
			}
		} else if ok, err := r.move(rules.Exec, rules.Decision{To: end, Reason: rules.ReasonLaunch}); !ok || err != nil {
			t.Fatal(ok, err)
		}
		fresh, live, err := r.CreateRun(t.Context(), crew("crew"))
		if err != nil || live != nil || fresh.Phase != rules.Plan || fresh.FixLoops != 0 || fresh.Version != 1 {
			t.Fatalf("after %v: %+v, %v", end, fresh, err)
		}
		if known, err := r.KnownRun(t.Context(), old); err != nil || known.Run.Phase != end || len(known.Tasks) != 5 || known.Run.EndedAt.IsZero() {
			t.Errorf("%+v, %v", known, err)
		}
		if history, err := r.History(t.Context(), old); err != nil || len(history) < 4 {
			t.Errorf("%v, %v", history, err)
		}
		if _, ok, err := r.AbandonRun(t.Context(), fresh.ID, "ann", "make room"); err != nil || !ok {
			t.Fatal(ok, err)
		}
	}
}

func TestT82_ARunInAnyPhaseRefusesAnother(t *testing.T) {
	r := &rig{Store: New(dbtest.New(t)), t: t}
	r.begin("crew")
	path := []rules.Phase{rules.Plan, rules.PRD, rules.Exec, rules.Verify, rules.Fix}
	for i, phase := range path {
		_, live, err := r.CreateRun(t.Context(), crew("crew"))
		if !errors.Is(err, fault.AlreadyExists) || live == nil || live.Phase != phase || live.PhaseSince.IsZero() {
			t.Errorf("%v: %v, %+v", phase, err, live)
		}
		if i+1 < len(path) {
			if ok, err := r.move(phase, rules.Decision{To: path[i+1]}); !ok || err != nil {
				t.Fatal(ok, err)
			}
		}
	}
}

func TestT86_OfTwoCreatorsExactlyOneWins(t *testing.T) {
	s := New(dbtest.New(t))
	for round := range 200 {
		var group sync.WaitGroup
		errs := make([]error, 2)
		runs := [2]team.Run{crew(fmt.Sprint("crew-", round)), crew(fmt.Sprint("crew-", round))}
		for i := range errs {
			group.Go(func() { _, _, errs[i] = s.CreateRun(context.Background(), runs[i]) })
		}
		group.Wait()
		won := 0
		for _, err := range errs {
			if err == nil {
				won++
			} else if !errors.Is(err, fault.AlreadyExists) {
				t.Fatalf("round %d: %v", round, err)
			}
		}
		if won != 1 {
			t.Fatalf("round %d: %d won", round, won)
		}
	}
}

func TestClaim_OfTwoClaimersExactlyOneHasTheTask(t *testing.T) {
	r := newRig(t)
	for round := range 400 {
		version := r.task("a").Version
		var group sync.WaitGroup
		var won [2]bool
		var got [2]team.Attempt
		for i := range won {
			group.Go(func() {
				var err error
				if got[i], won[i], err = r.claim("a", version); err != nil {
					t.Errorf("round %d: %v", round, err)
				}
			})
		}
		group.Wait()
		if won[0] == won[1] {
			t.Fatalf("round %d: %v", round, won)
		}
		a := got[0]
		if won[1] {
			a = got[1]
		}
		if open := r.known().Open; len(open) != 1 || open[0].ID != a.ID || open[0].Token != a.Token {
			t.Fatalf("round %d: %+v", round, open)
		}
		// Nothing of it ran, so it is pending again at once.
		if ok, err := r.EndAttempt(t.Context(), team.End{RunID: a.RunID, AttemptID: a.ID, Epoch: r.epoch, Result: rules.NotBegun, Task: rules.Change{State: rules.Pending}}); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
}

func TestClaim_NeedsAreCompletedAndTheVersionIsTheExpectedOne(t *testing.T) {
	r := newRig(t)
	refused := func(why, id string, version int64) {
		t.Helper()
		if _, ok, err := r.claim(id, version); ok || err != nil {
			t.Errorf("%s: %v, %v", why, ok, err)
		}
	}
	refused("a need is pending", "b", r.task("b").Version)
	refused("another version", "a", r.task("a").Version+1)
	refused("no such task", "x", 1)
	a := r.claimed("a")
	refused("it is claimed", "a", r.task("a").Version)
	refused("a need is under way", "b", r.task("b").Version)
	if ok, err := r.end(a, rules.Succeeded); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if _, ok, err := r.OrderEnd(t.Context(), r.run.ID, "ann", "enough"); !ok || err != nil {
		t.Fatal(ok, err)
	}
	refused("the run is to end", "b", r.task("b").Version)
}

func TestT36_AnEndIsRecordedOnceWithAllThatIsKnown(t *testing.T) {
	r := newRig(t)
	a := r.claimed("a")
	code, began := 7, time.Now().Add(-time.Minute).Truncate(time.Microsecond)
	e := team.End{RunID: a.RunID, AttemptID: a.ID, Epoch: r.epoch, Result: rules.RanAndFailed, Reason: "exit_code", Detail: "it ended: exit code 7", Code: &code,
		Sight: team.Sight{PaneID: "%3", Target: "task-x", StartedAt: began}, EndedAt: began.Add(time.Second), Output: "oh", Why: "exit code 7",
		Task: rules.Change{State: rules.TaskFailed, Class: rules.Execution}}
	var group sync.WaitGroup
	var won [8]bool
	for i := range won {
		group.Go(func() {
			var err error
			if won[i], err = r.EndAttempt(context.Background(), e); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if n := len(slices.DeleteFunc(won[:], func(w bool) bool { return !w })); n != 1 {
		t.Errorf("it was recorded %d times", n)
	}
	got, err := r.Attempt(t.Context(), a.ID)
	if err != nil || got.State != team.Over || *got.Code != 7 || got.Host != "h" || got.PaneID != "%3" || !got.StartedAt.Equal(began) || !got.EndedAt.Equal(e.EndedAt) || got.Output != "oh" {
		t.Errorf("%+v, %v", got, err)
	}
	events, err := r.Events(t.Context(), deliver.EventQuery{Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	ended := 0
	for _, event := range events.Events {
		if event.Type == "task.ended" {
			ended++
			if event.Fields["outcome"] != "failed" || event.Fields["task_id"] != "a" || event.Fields["attempt_id"] != a.ID || event.Fields["team"] != "crew" {
				t.Errorf("%+v", event)
			}
		}
	}
	if ended != 1 {
		t.Errorf("%d events", ended)
	}
}

func TestT106_AFixLoopIsCountedWithWhatItSetsBack(t *testing.T) {
	r := newRig(t)
	a := r.claimed("a")
	if ok, err := r.end(a, rules.RanAndFailed); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if ok, err := r.move(rules.Exec, rules.Decision{To: rules.Verify, Reset: []string{"@verify"}}); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if v := r.task("@verify"); v.Number != 1 {
		t.Errorf("what was not tried yet is at its %d. try", v.Number)
	}
	d := rules.Decision{To: rules.Fix, FixLoops: 1, Reset: []string{"a"}, Reason: rules.ReasonTaskFailed, Detail: "a failed"}
	step := team.Step{RunID: r.run.ID, Epoch: r.epoch, Version: r.known().Run.Version, From: rules.Verify, Decision: d}
	var group sync.WaitGroup
	var won [4]bool
	for i := range won {
		group.Go(func() {
			var err error
			if won[i], err = r.MoveRun(context.Background(), step); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	k := r.known()
	if n := len(slices.DeleteFunc(won[:], func(w bool) bool { return !w })); n != 1 || k.Run.FixLoops != 1 || k.Run.Phase != rules.Fix {
		t.Errorf("%d moves, %+v", n, k.Run)
	}
	if got := r.task("a"); got.State != rules.Pending || got.Number != 2 {
		t.Errorf("%+v", got)
	}
	if before, err := r.BeforeAttempt(t.Context(), r.run.ID, "a"); err != nil || len(before.Attempts) != 1 || before.Attempts[0].Number != 1 {
		t.Errorf("%+v, %v", before, err)
	}
	if ok, err := r.move(rules.Fix, rules.Decision{To: rules.Complete}); err == nil || ok {
		t.Error("there is no such edge")
	}
}
