package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"muxpost.dev/muxpost/core/fault"
	rules "muxpost.dev/muxpost/core/team"
	"muxpost.dev/muxpost/db/dbtest"
	"muxpost.dev/muxpost/services/dispatcher/internal/team"
)

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
	if k, err := s.KnownRun(t.Context(), ids[0]); err != nil || k.Run.Unread == "" || len(k.Run.Spec.Tasks) != 0 {
		t.Errorf("what cannot be read is taken for something: %+v, %v", k.Run, err)
	}
	if k, err := s.KnownRun(t.Context(), ids[1]); err != nil || k.Run.Unread != "" {
		t.Error(k.Run.Unread, err)
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
