package store

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"muxpost.dev/muxpost/core/dispatch"
	"muxpost.dev/muxpost/core/fault"
	rules "muxpost.dev/muxpost/core/team"
	"muxpost.dev/muxpost/db/dbtest"
	"muxpost.dev/muxpost/services/dispatcher/internal/deliver"
	"muxpost.dev/muxpost/services/dispatcher/internal/team"
)

func TestRuns_OneThatCannotBeReadIsListedWithTheOthersAndCanBeEnded(t *testing.T) {
	for what, damage := range map[string]string{
		"cannot be read": "spec = 'of a later release'", "its team": `spec = '{"team": "another", "tasks": [{}], "verify": {}}'`, "no task": `spec = '{"team": "crew-1"}'`,
	} {
		s := New(dbtest.New(t))
		var ids []string
		for i := range 3 {
			made, _, err := s.CreateRun(t.Context(), crew(fmt.Sprint("crew-", i)))
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, made.ID)
		}
		if _, err := s.pool.Exec(t.Context(), "update dispatcher.team_runs set "+damage+" where run_id = $1", ids[1]); err != nil {
			t.Fatal(err)
		}
		all, err := s.Runs(t.Context(), team.RunQuery{Limit: 10})
		if err != nil || len(all) != 3 {
			t.Fatalf("%s: %d runs, %v", what, len(all), err)
		}
		for _, r := range all {
			problem := r.Problem()
			if bad := r.ID == ids[1]; bad != (problem != "") || bad && (r.Spec.Team != "crew-1" || !strings.Contains(problem, what) || !strings.Contains(problem, "muxpost team abandon "+r.ID)) {
				t.Errorf("%s: %+v: %q", what, r, problem)
			}
		}
		// It is in the way of another of its team, and says so.
		if _, live, err := s.CreateRun(t.Context(), crew("crew-1")); !errors.Is(err, fault.AlreadyExists) || live == nil || live.ID != ids[1] {
			t.Errorf("%s: %v, %+v", what, err, live)
		}
		if r, ok, err := s.AbandonRun(t.Context(), ids[1], "ann", "damaged"); err != nil || !ok || r.Phase != rules.Failed || strings.Contains(r.Problem(), "abandon") {
			t.Errorf("%s: %v, %v, %+v", what, ok, err, r)
		}
		if _, _, err := s.CreateRun(t.Context(), crew("crew-1")); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestClaim_NothingIsHandedOutWhileAPauseStands(t *testing.T) {
	r := newRig(t)
	for _, row := range []struct {
		paused, item string
		held         bool
	}{{"", "", true}, {"", "github:octo/widget#7", true}, {"github:octo/widget#7", "github:octo/widget#7", true}, {"github:octo/widget#8", "github:octo/widget#7", false}} {
		if _, err := r.pool.Exec(t.Context(), "update dispatcher.team_runs set work_item = $1", row.item); err != nil {
			t.Fatal(err)
		}
		if _, _, err := r.Pause(t.Context(), deliver.Pause{WorkItem: row.paused, Who: "ann", Reason: "lunch"}, deliver.Event{Type: dispatch.DispatchPaused, WorkItem: row.paused}); err != nil {
			t.Fatal(err)
		}
		if k := r.known(); row.held != (len(k.Pauses) == 1 && k.Pauses[0].Who == "ann" && k.Pauses[0].Reason == "lunch") {
			t.Errorf("%+v: %+v", row, k.Pauses)
		}
		a, ok, err := r.claim("a", r.task("a").Version)
		if err != nil || ok == row.held {
			t.Fatalf("%+v: %v, %v", row, ok, err)
		}
		if ok {
			if ended, err := r.end(a, rules.Succeeded); err != nil || !ended {
				t.Error(ended, err)
			}
		}
		if _, _, err := r.Unpause(t.Context(), row.paused, deliver.Event{Type: dispatch.DispatchUnpaused, WorkItem: row.paused}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestT134_AnInstanceFreesWhatItsFormerProcessesHeldAndNothingElse(t *testing.T) {
	r := newRig(t)
	hold := func(holder string) {
		t.Helper()
		if _, err := r.pool.Exec(t.Context(), "update dispatcher.team_runs set holder = $1, lease_until = clock_timestamp() + interval '1 hour'", holder); err != nil {
			t.Fatal(err)
		}
	}
	for holder, frees := range map[string]bool{"h-1-A.NAME": true, "h.org-2-B.NAME": true, "h-3-C.NAME": false, "h-1-A.OTHERNAME": false, "h-1-NAME": false, "NAME": false, "h-1-A.NAME.": false} {
		hold(holder)
		n, err := r.ReleaseFormer(t.Context(), "NAME", "h-3-C.NAME")
		all, takeErr := r.TakeRuns(t.Context(), "h-3-C.NAME", 10)
		if err != nil || takeErr != nil || frees != (n == 1) || frees != (len(all) == 1) {
			t.Errorf("%s: %d freed and %d taken, %v, %v", holder, n, len(all), err, takeErr)
		}
	}
	hold("h-1-A.NAME")
	_, err := r.ReleaseFormer(t.Context(), "NAME", "h-3-C.NAME")
	if err != nil {
		t.Fatal(err)
	}
	// Whoever held it and lives after all changes nothing any more, taken by another or not.
	if _, _, err := r.claim("a", r.task("a").Version); fault.KindOf(err) != fault.Fenced {
		t.Errorf("%v", err)
	}
	if err := r.RenewRun(t.Context(), r.run.ID, r.epoch); fault.KindOf(err) != fault.Fenced {
		t.Errorf("%v", err)
	}
	hold("h-3-C.NAME")
	if err := r.ReleaseRuns(t.Context(), "h-3-C.NAME"); err != nil {
		t.Fatal(err)
	}
	if all, err := r.TakeRuns(t.Context(), "another", 10); err != nil || len(all) != 1 {
		t.Errorf("%d taken, %v", len(all), err)
	}
}

func TestCreateRun_AnOrderThatHasANameBeginsOneRun(t *testing.T) {
	s := New(dbtest.New(t))
	ordered := func(name string) team.Run {
		r := crew("crew")
		r.Order = name
		return r
	}
	var all [4]team.Run
	var group sync.WaitGroup
	for i := range all {
		group.Go(func() {
			made, live, err := s.CreateRun(t.Context(), ordered("one"))
			if err != nil || live != nil {
				t.Error(live, err)
			}
			all[i] = made
		})
	}
	group.Wait()
	for _, r := range all {
		if r.ID != all[0].ID || r.ID == "" {
			t.Errorf("%s beside %s", r.ID, all[0].ID)
		}
	}
	if _, live, err := s.CreateRun(t.Context(), ordered("two")); !errors.Is(err, fault.AlreadyExists) || live == nil || live.ID != all[0].ID {
		t.Errorf("another order: %v, %v", live, err)
	}
	// Over or not, it is the order's run.
	if _, ok, err := s.AbandonRun(t.Context(), all[0].ID, "ann", ""); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if made, _, err := s.CreateRun(t.Context(), ordered("one")); err != nil || made.ID != all[0].ID || made.Phase != rules.Failed {
		t.Errorf("%+v, %v", made, err)
	}
	if found, ok, err := s.OrderedRun(t.Context(), "one"); err != nil || !ok || found.ID != all[0].ID {
		t.Errorf("%+v, %v, %v", found, ok, err)
	}
	// One without a name is an order of its own each time.
	if _, ok, err := s.OrderedRun(t.Context(), ""); ok || err != nil {
		t.Error(ok, err)
	}
	for range 2 {
		made, _, err := s.CreateRun(t.Context(), ordered(""))
		if err != nil || made.ID == all[0].ID {
			t.Errorf("%+v, %v", made, err)
		}
		if _, _, err := s.AbandonRun(t.Context(), made.ID, "ann", ""); err != nil {
			t.Fatal(err)
		}
	}
	if made, _, err := s.CreateRun(t.Context(), ordered("two")); err != nil || made.ID == all[0].ID {
		t.Errorf("an order that was refused before: %+v, %v", made, err)
	}
}
