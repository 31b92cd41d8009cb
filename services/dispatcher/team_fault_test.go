package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	teamv1 "muxpost.dev/muxpost/proto/gen/muxpost/team/v1"
)

// many are tasks in pairs of which the second needs the first.
func many(n int) (tasks, ids []string) {
	for i := range n {
		id := fmt.Sprintf("t%02d", i)
		ids = append(ids, id)
		if i%2 == 1 {
			tasks = append(tasks, fmt.Sprintf("%s<t%02d", id, i-1))
		} else {
			tasks = append(tasks, id)
		}
		tasks = append(tasks, "echo "+id+" >> order; sleep 0.2")
	}
	return tasks, ids
}

func TestT115_ARunGoesOnThroughTheFaultsOfItsDatabase(t *testing.T) {
	t.Parallel()
	c := newCrews(t, 1)
	c.dispatcher()
	c.answers()
	tasks, ids := many(16)
	run := c.run(c.spec("crew", tasks...))
	for i := range 12 {
		if i%4 == 3 {
			// Nobody gets at the records for longer than a call may take.
			tx, err := c.pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.Exec(t.Context(), "lock table dispatcher.team_runs, dispatcher.team_tasks, dispatcher.team_attempts in access exclusive mode"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			_ = tx.Rollback(t.Context())
		}
		if _, err := c.pool.Exec(t.Context(), "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'muxpost-dispatcher' and datname = current_database()"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(150 * time.Millisecond)
	}
	got := c.over(run.GetRunId())
	if got.GetRun().GetPhase() != teamv1.Phase_PHASE_COMPLETE {
		c.logs()
		t.Fatalf("%v", got)
	}
	c.once(got, ids...)
	var locks int
	if err := c.pool.QueryRow(context.Background(), "select count(*) from pg_locks where locktype = 'advisory' and database = (select oid from pg_database where datname = current_database())").
		Scan(&locks); err != nil || locks > 0 {
		t.Errorf("T130: %d advisory locks are left, %v", locks, err)
	}
}

func TestT113_AHostThatIsShortOfDescriptorsLosesNothing(t *testing.T) {
	t.Parallel()
	c := newCrews(t, 1)
	c.dispatcher()
	c.answers()
	h := c.hosts[0]
	var tasks, ids []string
	for i := range 16 {
		id := fmt.Sprintf("t%02d", i)
		tasks, ids = append(tasks, id, "echo "+id+" >> order; sleep 2"), append(ids, id)
	}
	s := c.spec("crew", tasks...)
	s.Parallel = 4
	run := c.run(s)
	c.until("some run", func() bool { return len(c.lines("order")) > 0 })
	// It has what it has, and one for the next: more are to come than there are now.
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", h.process.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	few := unix.Rlimit{Cur: uint64(len(open)) + 1, Max: uint64(len(open)) + 1}
	if err := unix.Prlimit(h.process.Process.Pid, unix.RLIMIT_NOFILE, &few, nil); err != nil {
		t.Fatal(err)
	}
	c.until("it is short of them", func() bool {
		data, err := os.ReadFile(h.dir + ".log")
		return err == nil && strings.Contains(string(data), "too many open files")
	})
	// With more of them it goes on, if it did not so far.
	c.down(0, syscall.SIGKILL)
	c.up(0)
	got := c.over(run.GetRunId())
	lines := c.lines("order")
	slices.Sort(lines)
	for _, id := range ids {
		if !slices.Contains(lines, id) {
			t.Errorf("%s never ran", id)
		}
	}
	recorded := ran(got)
	for _, id := range ids {
		n := 0
		for _, l := range lines {
			if l == id {
				n++
			}
		}
		if n > recorded[id] {
			t.Errorf("%s ran %d times, and %d are recorded", id, n, recorded[id])
		}
	}
	if got.GetRun().GetPhase() != teamv1.Phase_PHASE_COMPLETE {
		t.Errorf("%v", got.GetRun())
	}
}

func TestT72_TheLastPaneOfAHostIsKilledAndTheRunGoesOn(t *testing.T) {
	t.Parallel()
	c := newCrews(t, 1)
	c.dispatcher()
	c.answers()
	run := c.run(c.spec("crew", "a", "echo a >> order; test $(wc -l < order) -gt 1 || sleep 300", "b<a", "echo b >> order"))
	c.until("it is at work", func() bool { return len(c.lines("order")) == 1 })
	sockets, err := filepath.Glob(filepath.Join(c.hosts[0].dir, "task-*"))
	if err != nil || len(sockets) != 1 {
		t.Fatalf("%v, %v", sockets, err)
	}
	if out, err := exec.Command("tmux", "-N", "-S", sockets[0], "kill-pane", "-t", "%0").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	got := c.over(run.GetRunId())
	if got.GetRun().GetPhase() != teamv1.Phase_PHASE_COMPLETE || got.GetRun().GetFixLoops() != 1 || strings.Join(c.lines("order"), " ") != "a a b" {
		c.logs()
		t.Errorf("%v: %v", c.lines("order"), got)
	}
	if a := got.GetAttempts()[0]; a.GetResult() != "failed" || a.GetReason() != "hang_up" {
		t.Errorf("%v", a)
	}
}

func TestTeam_ThePersonsCommandRunsOne(t *testing.T) {
	t.Parallel()
	c := newCrews(t, 1)
	c.dispatcher()
	c.answers()
	if out, err := exec.Command("go", "build", "-o", filepath.Join(c.dir, "muxpost"), "muxpost.dev/muxpost/cmd/muxpost").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	file := filepath.Join(c.dir, "team.yaml")
	text := fmt.Sprintf("team: crew\nharness: sh\ndirectory: %s\nmax_fix_loops: 0\nverify: {check: good}\ntasks:\n  - {id: a, prompt: \"#!\\ntouch good\\n#end\"}\n"+
		"  - {id: b, needs: [a], prompt: \"#!\\ntest -e good\\n#end\"}\n", c.work)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	muxpost := func(args ...string) (string, int) {
		cmd := exec.Command(filepath.Join(c.dir, "muxpost"), append([]string{"--config", filepath.Join(c.dir, "d.yaml"), "--data-dir", c.dir}, args...)...)
		out, _ := cmd.CombinedOutput()
		return string(out), cmd.ProcessState.ExitCode()
	}
	if out, code := muxpost("team", "run", file); code != 0 {
		t.Errorf("exit code %d:\n%s", code, out)
	}
	if err := os.Remove(filepath.Join(c.work, "good")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text+"  - {id: c, needs: [b], prompt: \"#!\\necho it broke; exit 3\\n#end\"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, code := muxpost("team", "run", file)
	if code != 1 {
		t.Errorf("exit code %d:\n%s", code, out)
	}
	if out, code := muxpost("team", "logs", "crew", "c"); code != 0 || out != "it broke\n" {
		t.Errorf("exit code %d:\n%s", code, out)
	}
}
