package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"muxpost.dev/muxpost/internal/failpoint"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	teamv1 "muxpost.dev/muxpost/proto/gen/muxpost/team/v1"
)

// crash is the environment that has a process end at a place.
func (c *crews) crash(place string) (env []string, happened func() bool) {
	once := filepath.Join(c.dir, "once")
	return []string{failpoint.Variable + "=" + place + "=kill", failpoint.OnceVariable + "=" + once}, func() bool {
		_, err := os.Stat(once)
		return err == nil
	}
}

// lapse ends the leases of all runs, as half a minute without a renewal does.
func (c *crews) lapse() {
	c.t.Helper()
	if _, err := c.pool.Exec(c.t.Context(), "update dispatcher.team_runs set lease_until = clock_timestamp()"); err != nil {
		c.t.Fatal(err)
	}
}

// once expects each task to have run once, by what the tasks themselves wrote and by what is recorded.
func (c *crews) once(got *teamv1.GetRunResponse, tasks ...string) {
	c.t.Helper()
	lines := c.lines("order")
	slices.Sort(lines)
	if !slices.Equal(lines, tasks) {
		c.t.Errorf("they ran as %v, and should as %v", lines, tasks)
	}
	if n := len(got.GetAttempts()); n != len(tasks)+1 {
		c.t.Errorf("%d attempts: %v", n, got.GetAttempts())
	}
}

func TestT129_T135_ADispatcherThatIsKilledAnywhereIsFollowedByOneThatGoesOn(t *testing.T) {
	t.Parallel()
	places := failpoint.Teams()
	for _, place := range append(places, places[0]+"@3", places[2]+"@2", places[4]+"@3") {
		t.Run(place, func(t *testing.T) {
			t.Parallel()
			c := newCrews(t, 1)
			env, happened := c.crash(place)
			_, end := c.dispatcher(env...)
			c.answers()
			run := c.run(c.spec("crew", "a", "echo a >> order", "b<a", "echo b >> order", "c", "echo c >> order; sleep 0.3"))
			c.until("it is killed", happened)
			end(syscall.SIGKILL)
			c.lapse()
			// Two come at once, and one of them has the run.
			c.dispatcher()
			c.second()
			c.answers()
			got := c.over(run.GetRunId())
			if got.GetRun().GetPhase() != teamv1.Phase_PHASE_COMPLETE {
				c.logs()
				t.Fatalf("%v", got)
			}
			c.once(got, "a", "b", "c")
		})
	}
}

// second starts a further dispatcher beside the one that is called.
func (c *crews) second() (end func(syscall.Signal)) {
	c.t.Helper()
	data, err := os.ReadFile(filepath.Join(c.dir, "d.yaml"))
	if err != nil {
		c.t.Fatal(err)
	}
	config := filepath.Join(c.dir, "d2.yaml")
	if err := os.WriteFile(config, []byte(strings.Replace(string(data), "unix:"+c.dir+"/d\n", "unix:"+c.dir+"/d2\n", 1)), 0o600); err != nil {
		c.t.Fatal(err)
	}
	cmd := c.start(filepath.Join(c.dir, "d2.log"), []string{"MUXPOST_DATABASE_URL=" + c.url}, "muxpost-dispatcher", "--config", config, "--data-dir", filepath.Join(c.dir, "d2-data"))
	ended := false
	end = func(sig syscall.Signal) {
		if ended {
			return
		}
		ended = true
		_ = cmd.Process.Signal(sig)
		_ = cmd.Wait()
	}
	c.t.Cleanup(func() { end(syscall.SIGKILL) })
	return end
}

func TestT135_ATmuxdThatIsKilledAnywhereStartsNothingTwice(t *testing.T) {
	t.Parallel()
	for _, place := range failpoint.Attempts() {
		if strings.HasSuffix(place, "ordered") || strings.HasSuffix(place, "asked") {
			continue // those are of a stop, which the next test has
		}
		t.Run(place, func(t *testing.T) {
			t.Parallel()
			c := newCrews(t, 1)
			c.dispatcher()
			c.answers()
			env, happened := c.crash(place)
			c.down(0, syscall.SIGTERM)
			c.up(0, env...)
			run := c.run(c.spec("crew", "a", "echo a >> order", "b<a", "echo b >> order"))
			c.until("it is killed", happened)
			_ = c.hosts[0].process.Wait()
			c.up(0)
			got := c.over(run.GetRunId())
			if got.GetRun().GetPhase() != teamv1.Phase_PHASE_COMPLETE {
				t.Fatalf("%v", got)
			}
			lines := c.lines("order")
			if !slices.Equal(lines, []string{"a", "b"}) {
				t.Errorf("%v", lines)
			}
		})
	}
}

func TestT93_ACoordinatorThatStoodStillChangesNothingOnceAnotherHasTheRun(t *testing.T) {
	t.Parallel()
	c := newCrews(t, 1)
	process, _ := c.dispatcher()
	c.answers()
	run := c.run(c.spec("crew", "a", "echo a >> order; while ! test -e go; do sleep 0.05; done", "b<a", "echo b >> order"))
	c.until("a runs", func() bool { return len(c.lines("order")) == 1 })
	first, err := c.team.GetRun(t.Context(), &teamv1.GetRunRequest{Run: run.GetRunId()})
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	c.second()
	c.lapse()
	c.until("another has it", func() bool {
		var epoch int64
		return c.pool.QueryRow(t.Context(), "select epoch from dispatcher.team_runs where run_id = $1 and holder <> ''", run.GetRunId()).Scan(&epoch) == nil && epoch > first.GetRun().GetEpoch()
	})
	c.write("go", "")
	c.until("it is over", func() bool {
		var phase string
		return c.pool.QueryRow(t.Context(), "select phase from dispatcher.team_runs where run_id = $1", run.GetRunId()).Scan(&phase) == nil && phase == "complete"
	})
	if err := process.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	c.answers()
	c.once(c.over(run.GetRunId()), "a", "b")
}

func TestT88_WhatWasAbandonedOnASilentHostIsStoppedWhenItComesBack(t *testing.T) {
	t.Parallel()
	c := newCrews(t, 2)
	c.dispatcher()
	c.answers()
	s := c.spec("crew", "a", "echo $$ > a.pid; sleep 300")
	s.Labels = map[string]string{"name": "h2"}
	run := c.run(s)
	c.until("a runs", func() bool { return len(c.lines("a.pid")) == 1 })
	if err := c.hosts[1].process.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if out, err := c.team.AbandonRun(t.Context(), &teamv1.AbandonRunRequest{Run: "crew", Who: "ann", Reason: "its host is away"}); err != nil || !out.GetAbandoned() {
		t.Fatalf("%v, %v", out, err)
	}
	if got := c.ends(c.spec("crew", "b", "true"), teamv1.Phase_PHASE_COMPLETE); len(got.GetAttempts()) != 2 {
		t.Errorf("%v", got)
	}
	if !livesBy(c.lines("a.pid")[0]) {
		t.Error("a should live on: nobody could stop it")
	}
	if err := c.hosts[1].process.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	c.until("a is stopped", func() bool { return !livesBy(c.lines("a.pid")[0]) })
	c.until("nothing is owed", func() bool { return !c.over(run.GetRunId()).GetAttempts()[0].GetOwed() })
}

func TestTeam_AHostThatIsGivenUpHasItsTasksHandedOutAgainOnce(t *testing.T) {
	t.Parallel()
	c := newCrews(t, 2)
	c.dispatcher()
	c.answers()
	s := c.spec("crew", "a", "echo $$ >> a.pids; test $(wc -l < a.pids) = 2 || sleep 300")
	run := c.run(s)
	c.until("a runs", func() bool { return len(c.lines("a.pids")) == 1 })
	got, err := c.team.GetRun(t.Context(), &teamv1.GetRunRequest{Run: run.GetRunId()})
	if err != nil {
		t.Fatal(err)
	}
	name := got.GetAttempts()[0].GetHost()
	i, _ := strconv.Atoi(strings.TrimPrefix(name, "h"))
	if err := c.hosts[i-1].process.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if _, err := c.seen.EvacuateHost(t.Context(), &dispatcherv1.EvacuateHostRequest{Name: name, Who: "ann", Reason: "it burnt"}); err != nil {
		t.Fatal(err)
	}
	got = c.over(run.GetRunId())
	if got.GetRun().GetPhase() != teamv1.Phase_PHASE_COMPLETE || len(c.lines("a.pids")) != 2 || got.GetRun().GetFixLoops() != 0 {
		t.Errorf("%v: %v", c.lines("a.pids"), got)
	}
	if a := got.GetAttempts()[0]; a.GetResult() != "lost" || got.GetAttempts()[1].GetHost() == name {
		t.Errorf("%v", got.GetAttempts())
	}
	if err := c.hosts[i-1].process.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	c.until("what was left there is stopped", func() bool { return !livesBy(c.lines("a.pids")[0]) })
}

// TestTeam_TwoHundredTasksOverThreeHostsWhileThingsAreKilled has dispatchers, tmuxds and attempts killed by chance, as the seed says.
func TestTeam_TwoHundredTasksOverThreeHostsWhileThingsAreKilled(t *testing.T) {
	t.Parallel()
	tasks := 200
	if testing.Short() {
		tasks = 30
	}
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("TEAM_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("TEAM_SEED=%d", seed)
	rng := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // chance for a test
	c := newCrews(t, 3)
	_, end := c.dispatcher()
	c.second()
	c.answers()
	s := &teamv1.Spec{Team: "crew", Harness: "sh", Directory: c.work, Parallel: 12, Verify: &teamv1.Step{Prompt: says("pass")}, Limit: durationpb.New(5 * time.Minute)}
	loops := int32(20)
	s.MaxFixLoops = &loops
	for i := range tasks {
		task := &teamv1.Task{Id: fmt.Sprint("t", i), Prompt: script(fmt.Sprintf("echo t%d $$ >> begun; sleep 0.%d; echo t%d >> done", i, rng.IntN(5), i))}
		for range rng.IntN(3) {
			if need := fmt.Sprint("t", rng.IntN(i+1)); need != task.GetId() && !slices.Contains(task.GetNeeds(), need) {
				task.Needs = append(task.Needs, need)
			}
		}
		s.Tasks = append(s.Tasks, task)
	}
	run := c.run(s)
	over := make(chan *teamv1.GetRunResponse, 1)
	go func() { over <- c.finished(run.GetRunId()) }()
	var got *teamv1.GetRunResponse
	kills := map[string]int{}
	for got == nil {
		select {
		case got = <-over:
			continue
		case <-time.After(time.Duration(200+rng.IntN(800)) * time.Millisecond):
		}
		switch n := rng.IntN(8); {
		case n == 0:
			kills["dispatcher"]++
			end(syscall.SIGKILL)
			_, end = c.dispatcher()
			c.lapse() // or each kill would cost half a minute
		case n < 4:
			kills["tmuxd"]++
			i := rng.IntN(3)
			c.down(i, syscall.SIGKILL)
			c.up(i)
		default:
			if lines := c.lines("begun"); len(lines) > 0 {
				_, pid, _ := strings.Cut(lines[len(lines)-1], " ")
				if n, err := strconv.Atoi(pid); err == nil && strings.Contains(string(commandLine(n)), "/bin/sh") {
					kills["attempt"]++
					_ = syscall.Kill(n, syscall.SIGKILL)
				}
			}
		}
	}
	t.Logf("killed: %v; %d attempts, %d fix loops", kills, len(got.GetAttempts()), got.GetRun().GetFixLoops())
	if got.GetRun().GetPhase() != teamv1.Phase_PHASE_COMPLETE {
		c.logs()
		t.Fatalf("%v", got.GetRun())
	}
	c.counts(got, tasks)
}

// finished waits for the end of a run without failing the test.
func (c *crews) finished(run string) *teamv1.GetRunResponse {
	for deadline := time.Now().Add(8 * time.Minute); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		got, err := c.team.GetRun(c.t.Context(), &teamv1.GetRunRequest{Run: run})
		if err == nil && got.GetRun().GetPhase() >= teamv1.Phase_PHASE_COMPLETE {
			return got
		}
	}
	got, _ := c.team.GetRun(c.t.Context(), &teamv1.GetRunRequest{Run: run})
	if got == nil {
		got = &teamv1.GetRunResponse{}
	}
	return got
}

// counts holds what the tasks wrote to what is recorded: each begun as often as it was recorded to run, and done once.
func (c *crews) counts(got *teamv1.GetRunResponse, tasks int) {
	c.t.Helper()
	begun, done := map[string]int{}, map[string]int{}
	for _, line := range c.lines("begun") {
		id, _, _ := strings.Cut(line, " ")
		begun[id]++
	}
	for _, id := range c.lines("done") {
		done[id]++
	}
	succeeded := map[string]int{}
	for _, a := range got.GetAttempts() {
		if a.GetResult() == "succeeded" {
			succeeded[a.GetTaskId()]++
		}
	}
	recorded := ran(got)
	for i := range tasks {
		id := fmt.Sprint("t", i)
		if succeeded[id] != 1 || done[id] < 1 || begun[id] > recorded[id] {
			c.t.Errorf("%s: begun %d times, done %d times; recorded as run %d times and succeeded %d times", id, begun[id], done[id], recorded[id], succeeded[id])
		}
	}
	// Nothing is done before what it needs.
	place := map[string]int{}
	for i, line := range c.lines("begun") {
		id, _, _ := strings.Cut(line, " ")
		if _, ok := place[id]; !ok {
			place[id] = i
		}
	}
	for _, t := range got.GetTasks() {
		for _, need := range t.GetNeeds() {
			if place[t.GetTaskId()] < place[need] {
				c.t.Errorf("%s began before %s, which it needs", t.GetTaskId(), need)
			}
		}
	}
}
