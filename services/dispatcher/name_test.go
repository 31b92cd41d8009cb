package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"muxpost.dev/muxpost/internal/rpc"
	"muxpost.dev/muxpost/internal/rpc/rpctest"
	teamv1 "muxpost.dev/muxpost/proto/gen/muxpost/team/v1"
)

func TestOpenInstance_OneThatLivesHasItAndTheNextHasTheSame(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	first, lock, err := openInstance(dir)
	if err != nil || first == "" {
		t.Fatal(first, err)
	}
	if second, _, err := openInstance(dir); err == nil || second != "" || !strings.Contains(err.Error(), "another dispatcher") {
		t.Errorf("two at once: %q, %v", second, err)
	}
	lock.Close()
	next, lock, err := openInstance(dir)
	if err != nil || next != first {
		t.Errorf("%q after %q, %v", next, first, err)
	}
	lock.Close()
	for _, damaged := range []string{"", first[:5], "%", "a.b"} {
		if err := os.WriteFile(filepath.Join(dir, instanceFile), []byte(damaged), 0o600); err != nil {
			t.Fatal(err)
		}
		made, lock, err := openInstance(dir)
		if err != nil || made == first || !instanceForm.MatchString(made) {
			t.Errorf("%q: %q, %v", damaged, made, err)
		}
		lock.Close()
	}
	if other, lock, err := openInstance(filepath.Join(dir, "other")); err != nil || other == first {
		t.Errorf("%q, %v", other, err)
	} else {
		lock.Close()
	}
	if _, _, err := openInstance("/dev/null/x"); err == nil {
		t.Error("where nothing can be kept there is an instance")
	}
}

// held is who has a run, under which epoch.
func (c *crews) held(run string) (holder string, epoch int64) {
	c.t.Helper()
	if err := c.pool.QueryRow(c.t.Context(), "select holder, epoch from dispatcher.team_runs where run_id = $1", run).Scan(&holder, &epoch); err != nil {
		c.t.Fatal(err)
	}
	return holder, epoch
}

// long begins a run of which the first task waits for the file go, and returns it once that task runs.
func (c *crews) long() string {
	c.t.Helper()
	run := c.run(c.spec("crew", "a", "echo a >> order; while ! test -e go; do sleep 0.05; done", "b<a", "echo b >> order")).GetRunId()
	c.until("a runs", func() bool { return len(c.lines("order")) == 1 })
	return run
}

func TestT134_AKilledDispatcherThatComesBackHasItsRunsAtOnce(t *testing.T) {
	t.Parallel()
	c := newCrews(t, 1)
	_, end := c.dispatcher()
	c.answers()
	run := c.long()
	holder, epoch := c.held(run)
	end(syscall.SIGKILL)
	// Without more than that, another one would wait for longer than this test does.
	if _, err := c.pool.Exec(t.Context(), "update dispatcher.team_runs set lease_until = clock_timestamp() + interval '1 hour'"); err != nil {
		t.Fatal(err)
	}
	c.dispatcher()
	c.answers()
	c.until("it has the run under another epoch", func() bool {
		now, later := c.held(run)
		return now != "" && now != holder && later > epoch
	})
	c.write("go", "")
	c.once(c.over(run), "a", "b")
}

func TestT134_ADispatcherThatStoppedInGoodOrderHoldsNothing(t *testing.T) {
	t.Parallel()
	c := newCrews(t, 1)
	_, end := c.dispatcher()
	c.answers()
	run := c.long()
	if holder, _ := c.held(run); holder == "" {
		t.Fatal("nobody has it")
	}
	end(syscall.SIGTERM)
	if holder, _ := c.held(run); holder != "" {
		t.Errorf("%s still has it", holder)
	}
	// Another one, of another data directory, has it next.
	c.second()
	c.write("go", "")
	c.until("it is over", func() bool {
		var phase string
		return c.pool.QueryRow(t.Context(), "select phase from dispatcher.team_runs").Scan(&phase) == nil && phase == "complete"
	})
}

func TestT134_ASecondDispatcherOfOneDataDirectoryTakesNothingFromTheFirst(t *testing.T) {
	t.Parallel()
	c := newCrews(t, 1)
	first, _ := c.dispatcher()
	c.answers()
	run := c.long()
	// The first stands still, so that all that is done now is the second's.
	if err := first.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = first.Process.Signal(syscall.SIGCONT) })
	if _, err := c.pool.Exec(t.Context(), "update dispatcher.team_runs set lease_until = clock_timestamp() + interval '1 hour'"); err != nil {
		t.Fatal(err)
	}
	holder, epoch := c.held(run)
	data, err := os.ReadFile(filepath.Join(c.dir, "d.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	config, log := filepath.Join(c.dir, "d3.yaml"), filepath.Join(c.dir, "d3.log")
	if err := os.WriteFile(config, []byte(strings.Replace(string(data), "unix:"+c.dir+"/d\n", "unix:"+c.dir+"/d3\n", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := c.start(log, []string{"MUXPOST_DATABASE_URL=" + c.url}, "muxpost-dispatcher", "--config", config, "--data-dir", c.dir)
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGKILL)
		_ = cmd.Wait()
	})
	// Another run is taken and ended by it: so it has looked for what it may take, and more than once.
	second := teamv1.NewTeamServiceClient(rpctest.Dial(t, "unix:"+filepath.Join(c.dir, "d3"), rpc.DialOptions{Name: "the second dispatcher"}))
	c.until("the second begins a run", func() bool {
		_, err := second.StartRun(t.Context(), &teamv1.StartRunRequest{Spec: c.spec("other", "x", "true")})
		return err == nil
	})
	c.until("and ends it", func() bool {
		got, err := second.GetRun(t.Context(), &teamv1.GetRunRequest{Run: "other"})
		return err == nil && got.GetRun().GetPhase() == teamv1.Phase_PHASE_COMPLETE
	})
	if now, later := c.held(run); now != holder || later != epoch {
		t.Errorf("%s has it under %d, after %s under %d", now, later, holder, epoch)
	}
	if text, err := os.ReadFile(log); err != nil || !strings.Contains(string(text), "another dispatcher uses the data directory") {
		t.Errorf("it does not say that it is the second: %s, %v", text, err)
	}
	if err := first.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	c.write("go", "")
	if got := c.over(run); got.GetRun().GetPhase() != teamv1.Phase_PHASE_COMPLETE || got.GetRun().GetEpoch() != epoch {
		t.Errorf("%v", got.GetRun())
	}
}
