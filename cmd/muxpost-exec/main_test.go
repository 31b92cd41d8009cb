package main

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"muxpost.dev/muxpost/internal/wrapper"
)

// runSpec runs the wrapper itself (this test binary, see TestMain) on a shell line, and returns its record and exit code.
func runSpec(t *testing.T, line string, change func(*wrapper.Spec)) (cmd *exec.Cmd, spec string, record string) {
	t.Helper()
	dir := t.TempDir()
	spec, record = filepath.Join(dir, "spec"), filepath.Join(dir, "record")
	s := wrapper.Spec{Stamp: "s" + strconv.FormatUint(rand.Uint64(), 36), Argv: []string{"sh", "-c", line}, Env: []string{"PATH=" + os.Getenv("PATH")}, Dir: dir,
		RecordFile: record, NotAfter: time.Now().Add(time.Minute)}
	if change != nil {
		change(&s)
	}
	if err := wrapper.WriteSpec(spec, s); err != nil {
		t.Fatal(err)
	}
	cmd = exec.Command(os.Args[0], spec)
	cmd.Env = append(os.Environ(), "MUXPOST_EXEC_UNDER_TEST=1")
	return cmd, spec, record
}

func TestMain(m *testing.M) {
	if way := os.Getenv("MUXPOST_EXEC_STRAY"); way != "" {
		stray(way == "immune")
		os.Exit(0)
	}
	if os.Getenv("MUXPOST_EXEC_VFORKS") != "" {
		vforks()
		os.Exit(0)
	}
	if os.Getenv("MUXPOST_EXEC_THIEF") != "" {
		thief()
		os.Exit(0)
	}
	if len(os.Args) == 3 && os.Args[1] == serveWord {
		serve(os.Args[2])
	}
	if os.Getenv("MUXPOST_EXEC_UNDER_TEST") != "" || len(os.Args) == 3 && os.Args[1] == keepFlag {
		main()
	}
	os.Exit(m.Run())
}

func read(t *testing.T, path string) wrapper.Record {
	t.Helper()
	r, err := wrapper.ReadRecord(path)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestRun_RecordsEveryKindOfEnd(t *testing.T) {
	for line, want := range map[string]struct {
		state        wrapper.State
		code, signal int
		exit         int
	}{
		"exit 0":           {wrapper.Exited, 0, 0, 0},
		"exit 7":           {wrapper.Exited, 7, 0, 7},
		"kill -9 $$":       {wrapper.Signaled, 0, 9, 137},
		"kill -STOP $$; :": {wrapper.Exited, 0, 0, 0},
	} {
		cmd, spec, record := runSpec(t, line, nil)
		_ = cmd.Run()
		r := read(t, record)
		if r.State != want.state || r.Code != want.code || r.Signal != want.signal || cmd.ProcessState.ExitCode() != want.exit || r.EndedAt.IsZero() {
			t.Errorf("%s: %+v, exit %d", line, r, cmd.ProcessState.ExitCode())
		}
		if _, err := os.Stat(spec); err == nil {
			t.Errorf("%s: the spec is left", line)
		}
	}
}

func TestRun_ThePromptGoesByFileAndIsRemoved(t *testing.T) {
	prompt := filepath.Join(t.TempDir(), "prompt")
	cmd, _, _ := runSpec(t, "cat "+prompt+"; stat -c %a "+prompt, func(s *wrapper.Spec) { s.Prompt, s.PromptFile = "do it; $(x)\n", prompt })
	out, err := cmd.Output()
	if err != nil || string(out) != "do it; $(x)\n600\n" {
		t.Errorf("%q, %v", out, err)
	}
	if _, err := os.Stat(prompt); err == nil {
		t.Error("the prompt is left")
	}
}

func TestRun_RefusesBeforeAnythingStarts(t *testing.T) {
	marker := filepath.Join(t.TempDir(), "ran")
	for name, row := range map[string]struct {
		change func(*wrapper.Spec)
		exit   int
	}{
		"too late":                        {func(s *wrapper.Spec) { s.NotAfter = time.Now().Add(-time.Second) }, exitTooLate},
		"no record":                       {func(s *wrapper.Spec) { s.RecordFile = "/nowhere/record" }, exitRecord},
		"no program":                      {func(s *wrapper.Spec) { s.Argv = []string{"no-such-program", "x"} }, exitNotFound},
		"no directory":                    {func(s *wrapper.Spec) { s.Dir = "/nowhere" }, exitNotFound},
		"not executable":                  {func(s *wrapper.Spec) { s.Argv = []string{"/dev/null", "x"} }, exitCannotRun},
		"a prompt that cannot be written": {func(s *wrapper.Spec) { s.Prompt, s.PromptFile = "p", "/nowhere/prompt" }, exitCannotRun},
	} {
		cmd, _, record := runSpec(t, "touch "+marker, row.change)
		_ = cmd.Run()
		if cmd.ProcessState.ExitCode() != row.exit {
			t.Errorf("%s: exit %d, want %d", name, cmd.ProcessState.ExitCode(), row.exit)
		}
		if row.exit != exitCannotRun && row.exit != exitNotFound {
			continue
		}
		if r := read(t, record); r.State != wrapper.LaunchFailed || r.Detail == "" || r.EndedAt.IsZero() || r.ReachedHarness() {
			t.Errorf("%s: %+v", name, r)
		}
	}
	if _, err := os.Stat(marker); err == nil {
		t.Error("something was run")
	}
}

func TestRun_ARevokedSpecStartsNothing(t *testing.T) {
	cmd, spec, record := runSpec(t, "exit 0", nil)
	if err := os.Remove(spec); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Run()
	if cmd.ProcessState.ExitCode() != exitSpec {
		t.Errorf("exit %d", cmd.ProcessState.ExitCode())
	}
	if _, err := os.Stat(record); err == nil {
		t.Error("there is a record")
	}
}

func TestRun_EndsWhatTheHarnessLeavesBehind(t *testing.T) {
	pids := filepath.Join(t.TempDir(), "pids")
	cmd, _, _ := runSpec(t, "setsid sh -c 'trap \"\" TERM HUP; echo $$ > "+pids+"; while :; do sleep 0.1; done' & while [ ! -s "+pids+" ]; do sleep 0.01; done", nil)
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(pids)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		t.Fatal(err)
	}
	if syscall.Kill(pid, 0) == nil {
		_ = syscall.Kill(pid, syscall.SIGKILL)
		t.Error("an orphan lives on")
	}
}

func TestRun_AHangUpEndsEvenWhatIgnoresIt(t *testing.T) {
	ready := filepath.Join(t.TempDir(), "ready")
	cmd, _, record := runSpec(t, "trap '' HUP TERM; touch "+ready+"; while :; do sleep 0.1; done", nil)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(ready); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("it does not start")
		}
	}
	if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if r := read(t, record); r.State != wrapper.Signaled || r.Signal != 9 || r.Cause != wrapper.HangUp {
		t.Errorf("%+v", r)
	}
}

func TestRun_UsageIsExplained(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "MUXPOST_EXEC_UNDER_TEST=1")
	out, _ := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != exitUsage || !strings.Contains(string(out), "usage") {
		t.Errorf("exit %d: %s", cmd.ProcessState.ExitCode(), out)
	}
}
