package local

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestStart_PostmasterDiesWithItsParent(t *testing.T) {
	needPostgres(t)
	for _, how := range []string{"tied", "temporary"} {
		t.Run(how, func(t *testing.T) {
			helper, _, pid := startHelper(t, how, filepath.Join(scratch(t), "pg"))
			began := time.Now()
			if err := helper.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = helper.Wait()
			waitDone(t, processGone(pid), "the postmaster outlived its parent")
			t.Logf("gone %v after its parent", time.Since(began).Round(time.Millisecond))
		})
	}
}

func TestStart_DetachedPostmasterOutlivesItsParent(t *testing.T) {
	needPostgres(t)
	dir := filepath.Join(scratch(t), "pg")
	helper, in, pid := startHelper(t, "detached", dir)
	t.Cleanup(func() { _ = Stop(bounded(t), dir) })
	_ = in.Close()
	if err := helper.Wait(); err != nil {
		t.Fatal(err)
	}
	c, err := Attach(bounded(t), dir)
	if err != nil {
		t.Fatal(err)
	}
	if c.Pid() != pid || c.Started() || query(t, c, "select 'up'") != "up" {
		t.Errorf("attached to %d, started %v; the parent said %d", c.Pid(), c.Started(), pid)
	}
	if sid, err := getsid(pid); err != nil || sid != pid {
		t.Errorf("the postmaster's session is %d, %v, not its own", sid, err)
	}
	if err := Stop(bounded(t), dir); err != nil {
		t.Fatal(err)
	}
	waitDone(t, processGone(pid), "Stop returned and the postmaster is there")
}

func getsid(pid int) (int, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	return strconv.Atoi(fields[3])
}

// A dead postmaster keeps its number until init reaps it, and Postgres alone would take it to be alive.
func TestStart_RecoversBeforeInitHasReapedADeadPostmaster(t *testing.T) {
	needPostgres(t)
	opts := Options{Dir: filepath.Join(scratch(t), "pg")}
	helper, in, pid := startHelper(t, "detached", opts.Dir)
	_ = in.Close()
	if err := helper.Wait(); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if again := start(t, opts); !again.Started() || query(t, again, "select 'up'") != "up" {
		t.Error("it did not come up again")
	}
}
