package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
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

func TestT88_T93_ARunIsTakenWhenItsLeaseEndsAndAnOlderEpochChangesNothing(t *testing.T) {
	r := newRig(t)
	a := r.claimed("a")
	if all, err := r.TakeRuns(t.Context(), "two", 10); err != nil || len(all) != 0 {
		t.Fatalf("what is held was taken: %v, %v", all, err)
	}
	if _, err := r.pool.Exec(t.Context(), "update dispatcher.team_runs set lease_until = clock_timestamp()"); err != nil {
		t.Fatal(err)
	}
	if r.known().Run.Held {
		t.Error("its lease has ended")
	}
	old := r.epoch
	r.take("two")
	if r.epoch <= old {
		t.Errorf("the epoch %d is not above %d", r.epoch, old)
	}
	before := r.rows()
	now := r.epoch
	r.epoch = old
	for name, act := range map[string]func() error{
		"claim": func() error { _, _, err := r.claim("c", r.task("c").Version); return err },
		"saw":   func() error { _, err := r.SawAttempt(t.Context(), a, old, team.Sight{}, time.Minute); return err },
		"end":   func() error { _, err := r.end(a, rules.Succeeded); return err },
		"move":  func() error { _, err := r.move(rules.Exec, rules.Decision{To: rules.Failed}); return err },
		"token": func() error { _, err := r.RenewToken(t.Context(), a, old); return err },
		"fence": func() error { _, err := r.FenceAttempt(t.Context(), a, old, "x"); return err },
		"renew": func() error { return r.RenewRun(t.Context(), r.run.ID, old) },
	} {
		if err := act(); !errors.Is(err, fault.Fenced) {
			t.Errorf("%s under an older epoch: %v", name, err)
		}
	}
	if err := r.ReleaseRun(t.Context(), r.run.ID, old); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(before, r.rows()); diff != "" {
		t.Error(diff)
	}
	r.epoch = now
	if err := r.RenewRun(t.Context(), r.run.ID, now); err != nil {
		t.Error(err)
	}
	if ok, err := r.end(a, rules.Succeeded); !ok || err != nil {
		t.Error("the new coordinator has what the old one left:", ok, err)
	}
}

func TestTakeRuns_OneThatCannotBeReadKeepsNoOther(t *testing.T) {
	s := New(dbtest.New(t))
	var ids []string
	for i := range 2 {
		made, _, err := s.CreateRun(t.Context(), crew(fmt.Sprint("crew-", i)))
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, made.ID)
	}
	if _, err := s.pool.Exec(t.Context(), "update dispatcher.team_runs set spec = 'of a later release' where run_id = $1", ids[0]); err != nil {
		t.Fatal(err)
	}
	if all, err := s.TakeRuns(t.Context(), "one", 10); err != nil || len(all) != 2 {
		t.Errorf("%d were taken, %v", len(all), err)
	}
	if _, err := s.KnownRun(t.Context(), ids[0]); err == nil {
		t.Error("what cannot be read is taken for something")
	}
	if _, err := s.KnownRun(t.Context(), ids[1]); err != nil {
		t.Error(err)
	}
}

func TestT133_TwoThatTakeAtOnceShareTheRuns(t *testing.T) {
	s := New(dbtest.New(t))
	for i := range 20 {
		if _, _, err := s.CreateRun(t.Context(), crew(fmt.Sprint("crew-", i))); err != nil {
			t.Fatal(err)
		}
	}
	var group sync.WaitGroup
	var got [4][]team.Run
	for i := range got {
		group.Go(func() {
			for range 10 {
				all, err := s.TakeRuns(context.Background(), fmt.Sprint("d", i), 3)
				if err != nil {
					t.Error(err)
				}
				got[i] = append(got[i], all...)
			}
		})
	}
	group.Wait()
	seen := map[string]bool{}
	for _, all := range got {
		for _, r := range all {
			if seen[r.ID] {
				t.Errorf("%s was taken twice", r.ID)
			}
			seen[r.ID] = true
		}
	}
	if len(seen) != 20 {
		t.Errorf("%d were taken", len(seen))
	}
}

func TestT88_AnAbandonedRunHasEndedAndOwesItsStops(t *testing.T) {
	r := newRig(t)
	a := r.claimed("a")
	got, ok, err := r.AbandonRun(t.Context(), r.run.ID, "ann", "its machine burned")
	if err != nil || !ok || got.Phase != rules.Failed || got.Reason != rules.ReasonAbandoned || got.EndedBy != "ann" || got.Epoch <= r.epoch || got.Held {
		t.Fatalf("%+v, %v, %v", got, ok, err)
	}
	if _, err := r.end(a, rules.Succeeded); !errors.Is(err, fault.Fenced) {
		t.Errorf("who was abandoned goes on: %v", err)
	}
	if again, ok, err := r.AbandonRun(t.Context(), r.run.ID, "bob", "again"); ok || err != nil || again.EndedBy != "ann" {
		t.Errorf("%+v, %v, %v", again, ok, err)
	}
	owed, err := r.TakeOwed(t.Context(), 10)
	if err != nil || len(owed) != 1 || owed[0].ID != a.ID || owed[0].Token <= a.Token {
		t.Fatalf("%+v, %v", owed, err)
	}
	if twice, err := r.TakeOwed(t.Context(), 10); err != nil || len(twice) != 0 {
		t.Errorf("two have it at once: %+v, %v", twice, err)
	}
	if err := r.PaidAttempt(t.Context(), a.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := r.pool.Exec(t.Context(), "update dispatcher.team_attempts set owed_look = now()"); err != nil {
		t.Fatal(err)
	}
	if paid, err := r.TakeOwed(t.Context(), 10); err != nil || len(paid) != 0 {
		t.Errorf("%+v, %v", paid, err)
	}
	if _, _, err := r.CreateRun(t.Context(), crew("crew")); err != nil {
		t.Errorf("there is room for another: %v", err)
	}
}

func TestT89_T115_ADatabaseThatDoesNotAnswerRefusesAndListsNothing(t *testing.T) {
	pool := dbtest.New(t)
	r := &rig{Store: New(pool), t: t}
	r.begin("crew")
	// Each fault is one that the server itself reports, or a lost connection.
	for name, begin := range map[string]func() (context.Context, func()){
		"57014, cancelled": func() (context.Context, func()) {
			tx, err := pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.Exec(t.Context(), "lock table dispatcher.team_runs, dispatcher.team_tasks in access exclusive mode"); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			return ctx, func() { cancel(); _ = tx.Rollback(t.Context()) }
		},
		"the tables are not there": func() (context.Context, func()) {
			if _, err := pool.Exec(t.Context(), "alter schema dispatcher rename to gone"); err != nil {
				t.Fatal(err)
			}
			return t.Context(), func() { _, _ = pool.Exec(t.Context(), "alter schema gone rename to dispatcher") }
		},
	} {
		ctx, end := begin()
		_, live, err := r.CreateRun(ctx, crew("crew"))
		if err == nil || live != nil {
			t.Errorf("%s: a run was created, or said to be there: %v", name, err)
		}
		if known, err := r.KnownRun(ctx, r.run.ID); err == nil {
			t.Errorf("%s: %+v", name, known)
		}
		if all, err := r.Runs(ctx, team.RunQuery{Limit: 10}); err == nil {
			t.Errorf("%s: %+v", name, all)
		}
		if _, err := r.TakeRuns(ctx, "x", 1); err == nil {
			t.Errorf("%s: something was taken", name)
		}
		end()
	}
	if known := r.known(); len(known.Tasks) != 5 {
		t.Errorf("%+v", known)
	}
}

func TestT110_T111_WhatCannotBeReadIsShownAsCorruptAndWhatIsGoneIsMissed(t *testing.T) {
	r := newRig(t)
	if _, err := r.pool.Exec(t.Context(), "update dispatcher.team_tasks set state = 'from a later release' where task_id = 'c'"); err != nil {
		t.Fatal(err)
	}
	decide := func() rules.Decision {
		k := r.known()
		run := rules.Run{Phase: k.Run.Phase, Total: k.Run.Total, Parallel: 4}
		for _, t := range k.Tasks {
			run.Tasks = append(run.Tasks, t.Item)
		}
		return rules.Decide(run)
	}
	if d := decide(); d.Action != rules.Wait || d.Reason != rules.ReasonCorrupt || !strings.Contains(d.Detail, "task c") {
		t.Errorf("%+v", d)
	}
	if _, err := r.pool.Exec(t.Context(), "delete from dispatcher.team_tasks where task_id = 'c'"); err != nil {
		t.Fatal(err)
	}
	if d := decide(); d.Action != rules.Wait || d.Reason != rules.ReasonMissing {
		t.Errorf("%+v", d)
	}
}

func TestForget_ARunGoesLongAfterItsEndUnlessItStillOwesAStop(t *testing.T) {
	r := newRig(t)
	r.claimed("a")
	if _, ok, err := r.AbandonRun(t.Context(), r.run.ID, "ann", ""); !ok || err != nil {
		t.Fatal(ok, err)
	}
	owing := r.run.ID
	r.begin("another")
	if _, ok, err := r.AbandonRun(t.Context(), r.run.ID, "ann", ""); !ok || err != nil {
		t.Fatal(ok, err)
	}
	old := r.run.ID
	r.begin("goes-on")
	if _, err := r.pool.Exec(t.Context(), "update dispatcher.team_runs set created_at = now() - interval '100 days', ended_at = ended_at - interval '100 days'"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.ForgetDeliveries(t.Context(), 90*24*time.Hour); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]bool{owing: true, old: false, r.run.ID: true} {
		if _, err := r.Run(t.Context(), id); (err == nil) != want {
			t.Errorf("%s: %v, want it kept: %v", id, err, want)
		}
	}
	var left int
	if err := r.pool.QueryRow(t.Context(), "select count(*) from dispatcher.team_tasks where run_id = $1", old).Scan(&left); err != nil || left != 0 {
		t.Errorf("%d tasks are left, %v", left, err)
	}
}

func TestT75_T78_T118_T121_EachFactHasAVoucherOfItsOwn(t *testing.T) {
	r := newRig(t)
	a := r.claimed("a")
	now := func() team.Attempt {
		t.Helper()
		got, err := r.Attempt(t.Context(), a.ID)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	saw := func(s team.Sight) {
		t.Helper()
		if ok, err := r.SawAttempt(t.Context(), a, r.epoch, s, time.Minute); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	if got := now(); got.Lapsed || got.Gone || !got.HostAt.IsZero() || !got.ProcessAt.IsZero() || !got.ProgressAt.IsZero() {
		t.Errorf("before anything was heard: %+v", got)
	}
	saw(team.Sight{})
	if got := now(); got.HostAt.IsZero() || !got.ProcessAt.IsZero() {
		t.Errorf("the host answered, and saw no process: %+v", got)
	}
	saw(team.Sight{Alive: true, ProgressAt: time.Now()})
	if got := now(); got.ProcessAt.IsZero() || got.ProgressAt.IsZero() {
		t.Errorf("%+v", got)
	}
	// The coordinator is well, and that vouches for nobody else.
	if _, err := r.pool.Exec(t.Context(), "update dispatcher.team_attempts set lease_until = now()"); err != nil {
		t.Fatal(err)
	}
	if err := r.RenewRun(t.Context(), r.run.ID, r.epoch); err != nil {
		t.Fatal(err)
	}
	if got := now(); !got.Lapsed {
		t.Errorf("a coordinator's sign of life counts for an attempt: %+v", got)
	}
	saw(team.Sight{Alive: true})
	if got := now(); got.Lapsed {
		t.Errorf("%+v", got)
	}
	// T77: a worker has one attempt at a time, whoever hands it out.
	_, ok, err := r.ClaimTask(t.Context(), team.Claim{RunID: r.run.ID, Epoch: r.epoch, TaskID: "c", Version: r.task("c").Version, Phase: rules.Exec, Lease: time.Minute, GoneAfter: time.Hour,
		Attempt: team.Attempt{ID: uuid.NewString(), Host: a.Host, Worker: a.Worker, Harness: "sh", Directory: "/w", Prompt: "p"}})
	if ok || !errors.Is(err, fault.AlreadyExists) {
		t.Errorf("%v, %v", ok, err)
	}
	if ok, err := r.end(a, rules.Succeeded); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if open := r.known().Open; len(open) != 0 {
		t.Errorf("a worker that has nothing to do cannot be stale: %+v", open)
	}
}

func TestT83_T148_AFailedItemIsRetriedWithBackoffUpToItsCap(t *testing.T) {
	r := &rig{Store: New(dbtest.New(t)), t: t}
	first := crew("loop-octo-widget-7")
	first.WorkItem, first.Retries, first.Backoff = item, 2, time.Hour
	made, _, err := r.CreateRun(t.Context(), first)
	if err != nil || made.Try != 1 {
		t.Fatal(made, err)
	}
	ids := map[string]bool{made.ID: true}
	r.run = made
	for try := 1; try <= 3; try++ {
		r.take("one")
		r.exec()
		a := r.claimed("a")
		if ok, err := r.end(a, rules.RanAndFailed); !ok || err != nil {
			t.Fatal(ok, err)
		}
		if ok, err := r.move(rules.Exec, rules.Decision{To: rules.Failed, Reason: rules.ReasonFixBound}); !ok || err != nil {
			t.Fatal(ok, err)
		}
		over, err := r.Run(t.Context(), r.run.ID)
		if err != nil {
			t.Fatal(err)
		}
		if try == 3 {
			if !over.RetryAt.IsZero() {
				t.Errorf("the cap is passed: %+v", over)
			}
			break
		}
		if wait := over.RetryAt.Sub(over.EndedAt); wait < time.Duration(try)*time.Hour-time.Minute || wait > time.Duration(try)*time.Hour+time.Minute {
			t.Errorf("after try %d it waits %v", try, wait)
		}
		if _, ok, err := r.RetryRun(t.Context()); ok || err != nil {
			t.Errorf("it is begun before its time: %v, %v", ok, err)
		}
		if _, err := r.pool.Exec(t.Context(), "update dispatcher.team_runs set retry_at = now() where retry_at is not null"); err != nil {
			t.Fatal(err)
		}
		var group sync.WaitGroup
		var got [4]team.Run
		var won [4]bool
		for i := range got {
			group.Go(func() {
				var err error
				if got[i], won[i], err = r.RetryRun(context.Background()); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		n := 0
		for i := range got {
			if won[i] {
				n++
				r.run = got[i]
			}
		}
		if n != 1 || r.run.Try != try+1 || r.run.WorkItem != item || ids[r.run.ID] || r.run.Phase != rules.Plan || r.run.FixLoops != 0 {
			t.Fatalf("%d were begun: %+v", n, r.run)
		}
		ids[r.run.ID] = true
		for _, task := range r.known().Tasks {
			if want := map[bool]rules.State{true: rules.Completed, false: rules.Pending}[task.Kind == rules.FixStep]; task.State != want {
				t.Errorf("%+v", task)
			}
		}
		if len(r.known().Open) != 0 {
			t.Error("something of the older run goes on in the new one")
		}
	}
}

func TestT147_ARunThatWasBegunByHandEndsTheRetry(t *testing.T) {
	r := &rig{Store: New(dbtest.New(t)), t: t}
	failing := func(name string) {
		t.Helper()
		run := crew(name)
		run.WorkItem, run.Retries = item, 2
		made, _, err := r.CreateRun(t.Context(), run)
		if err != nil {
			t.Fatal(err)
		}
		r.run = made
		r.take("one")
		if ok, err := r.move(rules.Plan, rules.Decision{To: rules.Failed, Reason: rules.ReasonStepFailed}); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	failing("one")
	other := r.run
	failing("two")
	if _, _, err := r.CreateRun(t.Context(), crew("one")); err != nil {
		t.Fatal(err)
	}
	begun := map[string]bool{}
	for range 3 {
		if run, ok, err := r.RetryRun(t.Context()); err != nil {
			t.Fatal(err)
		} else if ok {
			begun[run.Spec.Team] = true
		}
	}
	if begun["one"] || !begun["two"] {
		t.Errorf("begun again: %v", begun)
	}
	if over, err := r.Run(t.Context(), other.ID); err != nil || !over.RetryAt.IsZero() {
		t.Errorf("%+v, %v", over, err)
	}
}
