package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"muxpost.dev/muxpost/internal/needs"
	"muxpost.dev/muxpost/internal/wrapper"
)

// nobody is a user without any rights, the same everywhere.
const nobody = 65534

// asNobody runs the wrapper as a user who may make no control group and lower no score, and returns its record, with a place to write to.
func asNobody(t *testing.T, line func(dir string) string) (cmd *exec.Cmd, record func() (wrapper.Record, error), dir string) {
	t.Helper()
	if os.Geteuid() != 0 {
		needs.Unmet(t, "only root can become another user; run by one without rights, the other tests show the same")
	}
	public, err := os.MkdirTemp("", "muxpost") // the directories of tests are closed to others
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(public) })
	dir = filepath.Join(public, "mine")
	binary := filepath.Join(public, "muxpost-exec")
	// Not written by this process: a child that another test is starting would hold it open for a moment, and it could not be run.
	if out, err := exec.Command("cp", os.Args[0], binary).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, err := range []error{os.Chmod(public, 0o755), os.Chmod(binary, 0o755), os.Mkdir(dir, 0o700), os.Chown(dir, nobody, nobody)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(dir, "record")
	cmd, spec, _ := runSpec(t, line(dir), func(s *wrapper.Spec) { s.Dir, s.RecordFile = dir, file })
	mine := filepath.Join(dir, "spec")
	if err := os.Rename(spec, mine); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(mine, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	cmd.Path, cmd.Args = binary, []string{binary, mine}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	return cmd, func() (wrapper.Record, error) {
		// A record is read by who wrote it alone.
		if err := os.Chown(file, 0, 0); err != nil {
			return wrapper.Record{}, err
		}
		return wrapper.ReadRecord(file)
	}, dir
}

func TestRun_WithoutRightsTheTreeEndsAllTheSame(t *testing.T) {
	t.Parallel()
	for way := range ways {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			cmd, record, dir := asNobody(t, func(dir string) string {
				line, _ := leaving(way, "", "exit 7")
				return "F=" + dir + "/pids; L='" + lingers + "'; export F L; " + line
			})
			_ = cmd.Run()
			r, err := record()
			if err != nil || r.Group != "" {
				t.Fatalf("%+v, %v: a control group was made", r, err)
			}
			left := pids(t, filepath.Join(dir, "pids"))
			if code := cmd.ProcessState.ExitCode(); code != 7 || len(left) == 0 || r.LeftBehind < len(left) || !r.Swept {
				t.Errorf("exit %d, left behind %v: %+v", code, left, r)
			}
			for _, pid := range left {
				if !gone(t, pid) {
					_ = syscall.Kill(pid, syscall.SIGKILL)
					t.Errorf("%d lives on", pid)
				}
			}
		})
	}
}

func TestRun_WithoutRightsTheHarnessIsTakenBeforeItsWrapper(t *testing.T) {
	t.Parallel()
	cmd, _, _ := asNobody(t, func(string) string { return tellsScores })
	takenFirst(t, cmd)
}

func TestRun_WithoutRightsAKilledWrapperLeavesWhatCanBeFound(t *testing.T) {
	t.Parallel()
	cmd, record, dir := asNobody(t, func(dir string) string {
		line, _ := leaving("immune", "", lingers)
		return "F=" + dir + "/pids; L='" + lingers + "'; export F L; " + line
	})
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "pids")
	until(t, "it runs", func() bool { return len(pids(t, file)) > 0 })
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	r, err := record()
	if err != nil {
		t.Fatal(err)
	}
	finds(t, r, pids(t, file))
	if left, err := r.KillLeft(10 * time.Second); err != nil || len(left) > 0 || !gone(t, pids(t, file)[0]) {
		t.Errorf("%v, %v", left, err)
	}
}
