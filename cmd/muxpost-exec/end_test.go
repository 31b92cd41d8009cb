package main

import (
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"muxpost.dev/muxpost/internal/needs"
	"muxpost.dev/muxpost/internal/wrapper"
)

// until asks again until ok, or fails: the other side is a real process.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain until %s", what)
		}
	}
}

// pids reads the process ids that a harness wrote into a file, one a line.
func pids(t *testing.T, file string) []int {
	t.Helper()
	data, _ := os.ReadFile(file)
	var out []int
	for field := range strings.FieldsSeq(string(data)) {
		pid, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, pid)
	}
	return out
}

// gone reports whether a process has ended, reaped or not.
func gone(t *testing.T, pid int) bool {
	t.Helper()
	p, err := wrapper.Find(pid)
	if err != nil {
		return true
	}
	alive, err := p.Alive()
	if err != nil {
		t.Fatal(err)
	}
	return !alive
}

// ways are the ways in which a harness leaves something behind. Each writes the process id of what it leaves into $F; $L keeps it there.
var ways = map[string]string{
	"nohup":                      `nohup sh -c 'echo $$ >> "$F"; eval "$L"' >/dev/null 2>&1 &`,
	"setsid":                     `setsid sh -c 'echo $$ >> "$F"; eval "$L"' &`,
	"double fork":                `( ( sh -c 'echo $$ >> "$F"; eval "$L"' & ) & );`,
	"daemon":                     `setsid sh -c 'setsid sh -c "echo \$\$ >> \"\$F\"; eval \"\$L\"" </dev/null >/dev/null 2>&1 & exit' &`,
	"a group of its own":         `set -m; sh -c 'echo $$ >> "$F"; eval "$L"' & set +m;`,
	"without the environment":    `F="$F" setsid env -i "F=$F" "L=$L" PATH="$PATH" sh -c 'echo $$ >> "$F"; eval "$L"' &`,
	"immune":                     `setsid sh -c 'trap "" TERM HUP INT; echo $$ >> "$F"; eval "$L"' &`,
	"stopped":                    `setsid sh -c 'echo $$ >> "$F"; kill -STOP $$; eval "$L"' &`,
	"with children of their own": `setsid sh -c 'trap "" TERM; echo $$ >> "$F"; sh -c "trap \"\" TERM; echo \$\$ >> \"\$F\"; eval \"\$L\"" & eval "$L"' &`,
}

// lingers is the body of what is left behind.
const lingers = "while :; do sleep 0.1; done"

// leaving is a spec that leaves something behind in one way, and then does what the last line says.
func leaving(way, file, last string) (line string, change func(*wrapper.Spec)) {
	line = ways[way] + ` while [ ! -s "$F" ]; do sleep 0.01; done; ` + last
	return line, func(s *wrapper.Spec) { s.Env = append(s.Env, "F="+file, "L="+lingers) }
}

func TestRun_WhateverTheHarnessLeavesBehindEndsWithIt(t *testing.T) {
	t.Parallel()
	for way := range ways {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "pids")
			line, change := leaving(way, file, "exit 7")
			cmd, _, record := runSpec(t, line, change)
			_ = cmd.Run()
			if code := cmd.ProcessState.ExitCode(); code != 7 {
				t.Errorf("exit %d", code)
			}
			left := pids(t, file)
			if len(left) == 0 {
				t.Fatal("nothing was left behind, so nothing is shown")
			}
			for _, pid := range left {
				if !gone(t, pid) {
					_ = syscall.Kill(pid, syscall.SIGKILL)
					t.Errorf("%d lives on", pid)
				}
			}
			r := read(t, record)
			if r.State != wrapper.Exited || r.Code != 7 || r.LeftBehind < len(left) || !r.Swept || len(r.Remains) > 0 || r.Cause != "" {
				t.Errorf("%+v", r)
			}
			if _, err := os.Stat(string(r.Group)); r.Group != "" && err == nil {
				t.Error("the control group is left")
			}
		})
	}
}

// T1: what lives on beside the command does not hold back that it has ended.
func TestRun_TheEndIsRecordedBeforeWhatIsLeftBehindIsEnded(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "pids")
	line, change := leaving("immune", file, "exit 0")
	cmd, _, record := runSpec(t, line, change)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Wait() }()
	until(t, "the end is recorded while something is left", func() bool {
		r, err := wrapper.ReadRecord(record)
		if err == nil && r.Swept {
			t.Fatal("the end was recorded only once nothing was left")
		}
		return err == nil && r.State == wrapper.Exited && len(pids(t, file)) > 0 && !gone(t, pids(t, file)[0])
	})
}

func TestRun_AKilledWrapperTakesTheHarnessAndTheRestIsFound(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"nohup", "setsid", "double fork", "daemon", "immune", "with children of their own"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			file, harness := filepath.Join(t.TempDir(), "pids"), filepath.Join(t.TempDir(), "harness")
			line, change := leaving(way, file, "echo $$ > "+harness+"; trap '' TERM HUP; "+lingers)
			cmd, _, record := runSpec(t, line, change)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			until(t, "it runs", func() bool { return len(pids(t, harness)) > 0 && read(t, record).State == wrapper.Running })
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			until(t, "the harness is dead", func() bool { return gone(t, pids(t, harness)[0]) })
			r := read(t, record)
			if r.Ended() {
				t.Errorf("an end was recorded that nobody saw: %+v", r)
			}
			// Without a control group it is found by its stamp.
			bare := r
			bare.Group = ""
			finds(t, bare, pids(t, file))
			finds(t, r, pids(t, file))
			if left, err := r.KillLeft(10 * time.Second); err != nil || len(left) > 0 {
				t.Errorf("%v, %v", left, err)
			}
			for _, pid := range pids(t, file) {
				if !gone(t, pid) {
					_ = syscall.Kill(pid, syscall.SIGKILL)
					t.Errorf("%d lives on", pid)
				}
			}
			if populated, err := r.Group.Populated(); err != nil || populated {
				t.Errorf("%v, %v", populated, err)
			}
			if err := r.Group.Remove(); err != nil {
				t.Error(err)
			}
		})
	}
}

// finds expects that these processes are among what is left of a run.
func finds(t *testing.T, r wrapper.Record, want []int) {
	t.Helper()
	found := map[int]bool{}
	left, err := r.Left()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range left {
		found[p.Pid] = true
	}
	for _, pid := range want {
		if !found[pid] {
			t.Errorf("%d is not found; group %q", pid, r.Group)
		}
	}
}

func TestRun_ATermGoesToTheHarnessAndNotFurther(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ready := filepath.Join(dir, "ready")
	cmd, _, record := runSpec(t, "trap 'exit 3' TERM; touch "+ready+"; "+lingers, nil)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	until(t, "it runs", func() bool { _, err := os.Stat(ready); return err == nil })
	_ = cmd.Process.Signal(syscall.SIGTERM)
	_ = cmd.Wait()
	if r := read(t, record); r.State != wrapper.Exited || r.Code != 3 || r.Cause != "" || !r.Swept {
		t.Errorf("%+v", r)
	}
}

func TestRun_AStoppedHarnessIsEndedByATerm(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "pids")
	// The inner shell stops; nobody continues it but the TERM, which goes to the whole process group.
	cmd, _, record := runSpec(t, "sh -c 'echo $$ > "+file+"; kill -STOP $$; "+lingers+"'; exit 3", nil)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	until(t, "it stands", func() bool {
		p := pids(t, file)
		return len(p) > 0 && strings.Contains(stat(t, p[0]), ") T ")
	})
	_ = cmd.Process.Signal(syscall.SIGTERM)
	_ = cmd.Wait()
	if r := read(t, record); r.State != wrapper.Signaled || r.Signal != int(syscall.SIGTERM) || !r.Swept {
		t.Errorf("%+v", r)
	}
}

func stat(t *testing.T, pid int) string {
	t.Helper()
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestRun_TheTimeLimitEndsTheWholeTreeAndSaysSo(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		trap   string
		state  wrapper.State
		code   int
		signal int
	}{
		"it takes the TERM": {"trap 'exit 3' TERM", wrapper.Exited, 3, 0},
		"it takes nothing":  {"trap '' TERM HUP INT", wrapper.Signaled, 0, 9},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "pids")
			line, change := leaving("immune", file, row.trap+"; "+lingers)
			cmd, _, record := runSpec(t, line, func(s *wrapper.Spec) {
				change(s)
				s.Limit, s.Grace = 1500*time.Millisecond, 300*time.Millisecond
			})
			_ = cmd.Run()
			r := read(t, record)
			if r.State != row.state || r.Code != row.code || r.Signal != row.signal || r.Cause != wrapper.TimeLimit || !strings.Contains(r.Detail, "1.5s") || !r.Swept {
				t.Errorf("%+v", r)
			}
			if ran := r.EndedAt.Sub(r.StartedAt); ran < time.Second {
				t.Errorf("it ended after %v", ran)
			}
			for _, pid := range pids(t, file) {
				if !gone(t, pid) {
					_ = syscall.Kill(pid, syscall.SIGKILL)
					t.Errorf("%d lives on", pid)
				}
			}
		})
	}
}

// stray is a harness that leaves its process group, and exits with 3 on a TERM, or takes none.
func stray(immune bool) {
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	group, err := syscall.Getpgid(os.Getppid())
	if err == nil {
		err = syscall.Setpgid(0, group)
	}
	if err != nil {
		os.Exit(99)
	}
	os.Stdout.WriteString("strayed\n")
	for range term {
		if !immune {
			os.Exit(3)
		}
	}
}

func TestRun_AHarnessThatLeftItsGroupIsEndedToo(t *testing.T) {
	t.Parallel()
	for way, want := range map[string]wrapper.Record{
		"polite": {State: wrapper.Exited, Code: 3}, "immune": {State: wrapper.Signaled, Signal: 9},
	} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			cmd, _, record := runSpec(t, "", func(s *wrapper.Spec) {
				s.Argv, s.Env = []string{os.Args[0], way}, append(s.Env, "MUXPOST_EXEC_STRAY="+way)
				s.Limit, s.Grace = 2*time.Second, time.Second
			})
			out, _ := cmd.Output()
			if r := read(t, record); string(out) != "strayed\n" || r.State != want.State || r.Code != want.Code || r.Signal != want.Signal || r.Cause != wrapper.TimeLimit {
				t.Errorf("%q: %+v", out, r)
			}
		})
	}
}

// A step of the wall clock changes nothing, and time that the machine is suspended counts: that is what the boot-time clock is for.
func TestRun_TheTimeLimitIsOnTheClockThatNobodySets(t *testing.T) {
	t.Parallel()
	cmd, _, record := runSpec(t, lingers, func(s *wrapper.Spec) { s.Limit = time.Hour })
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	until(t, "it runs", func() bool { r, err := wrapper.ReadRecord(record); return err == nil && r.State == wrapper.Running })
	clock := ""
	files, _ := filepath.Glob("/proc/" + strconv.Itoa(cmd.Process.Pid) + "/fdinfo/*")
	for _, file := range files {
		data, _ := os.ReadFile(file)
		for line := range strings.Lines(string(data)) {
			if strings.HasPrefix(line, "clockid:") {
				clock = strings.TrimSpace(strings.TrimPrefix(line, "clockid:"))
			}
		}
	}
	if clock != "7" {
		t.Errorf("the timer's clock is %q, and CLOCK_BOOTTIME is 7", clock)
	}
	_ = cmd.Process.Signal(syscall.SIGTERM)
	_ = cmd.Wait()
}

// tellsScores prints how soon the kernel takes the harness, and how soon its wrapper, which lowers its own a moment after the start.
const tellsScores = "i=0; while [ $i -lt 300 ] && [ \"$(cat /proc/$$/oom_score_adj)\" = \"$(cat /proc/$PPID/oom_score_adj)\" ]; do i=$((i+1)); done; " +
	"cat /proc/$$/oom_score_adj /proc/$PPID/oom_score_adj"

func TestRun_TheKernelTakesTheHarnessBeforeItsWrapper(t *testing.T) {
	t.Parallel()
	cmd, _, _ := runSpec(t, tellsScores, nil)
	takenFirst(t, cmd)
}

// takenFirst expects of a run of tellsScores that the wrapper is as it was started, and that the harness is taken rather.
func takenFirst(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	before, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		t.Fatal(err)
	}
	own, err := strconv.Atoi(strings.TrimSpace(string(before)))
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.Output()
	if want := strconv.Itoa(min(own+oomStep, 1000)) + "\n" + strconv.Itoa(own) + "\n"; err != nil || string(out) != want {
		t.Errorf("%q, %v; want %q", out, err, want)
	}
}

func TestRun_EverythingCarriesTheStamp(t *testing.T) {
	t.Parallel()
	stamp := ""
	cmd, _, _ := runSpec(t, "echo $"+wrapper.StampVariable, func(s *wrapper.Spec) {
		s.Env, stamp = append(s.Env, wrapper.StampVariable+"=another"), s.Stamp
	})
	if out, err := cmd.Output(); err != nil || string(out) != stamp+"\n" {
		t.Errorf("%q, %v", out, err)
	}
}

// full runs a shell line as a harness whose record lies where nothing more can be written, and returns the record as it was left there,
// and the wrapper's exit code. The line ends by itself.
func full(t *testing.T, line string) (wrapper.Record, int) {
	t.Helper()
	dir := t.TempDir()
	disk := filepath.Join(dir, "disk")
	if err := os.Mkdir(disk, 0o700); err != nil {
		t.Fatal(err)
	}
	kept := filepath.Join(dir, "kept")
	record := filepath.Join(disk, "record")
	// The record of the start takes the place of an earlier one, whose room is free afterwards.
	fill := "until grep -q '\"" + string(wrapper.Running) + "\"' " + record + "; do :; done; "
	if os.Geteuid() == 0 {
		fill += "cat /dev/zero > " + disk + "/fill 2>/dev/null; cat /dev/zero > " + disk + "/rest 2>/dev/null; " // permissions stop everybody but root
	} else {
		fill += "chmod 500 " + disk + "; "
	}
	cmd, _, _ := runSpec(t, fill+line, func(s *wrapper.Spec) { s.RecordFile = record })
	if os.Geteuid() == 0 {
		inside := exec.Command("unshare", append([]string{"--mount", "sh", "-c", "mount -t tmpfs -o size=64k none " + disk + " || exit 99; \"$@\"; code=$?; cp " +
			record + " " + kept + "; exit $code", "sh"}, cmd.Args...)...)
		inside.Env, cmd, record = cmd.Env, inside, kept
	}
	out, _ := cmd.CombinedOutput()
	_ = os.Chmod(disk, 0o700)
	code := cmd.ProcessState.ExitCode()
	if code == 99 || strings.Contains(string(out), "unshare failed") {
		needs.Unmet(t, "no file system can be mounted here")
	}
	if !strings.Contains(string(out), "cannot write the record") {
		t.Errorf("nothing is said: %s", out)
	}
	return read(t, record), code
}

// T28: a failure is still known by its exit code; a success that could not be recorded does not look like one.
func TestRun_AFullDiskNeverMakesASuccess(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]int{"exit 7": 7, "exit 0": exitRecord, "kill -9 $$": 137} {
		r, code := full(t, line)
		if r.Ended() {
			t.Errorf("%s: %+v", line, r)
		}
		if code != want {
			t.Errorf("%s: exit %d, want %d", line, code, want)
		}
	}
}
