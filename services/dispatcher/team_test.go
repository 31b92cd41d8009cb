package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"muxpost.dev/muxpost/core/fault"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	teamv1 "muxpost.dev/muxpost/proto/gen/muxpost/team/v1"
)

func TestTeam_ARunGoesThroughItsPhasesAndIsVerified(t *testing.T) {
	t.Parallel()
	c := newCrews(t, 2)
	_, end := c.dispatcher()
	c.answers()
	s := c.spec("crew", "a", "echo a >> order", "b<a", "echo b >> order; grep -c 'plan is [s]imple' $PROMPT > b.plan; grep -c 'must be [f]ast' $PROMPT > b.prd", "c<a", "echo c >> order", "d<b,c", "echo d >> order")
	s.Plan = &teamv1.Step{Prompt: script("echo the plan is simple")}
	s.Prd = &teamv1.Step{Prompt: script("grep -q 'plan is [s]imple' $PROMPT && echo it must be fast")}
	got := c.ends(s, teamv1.Phase_PHASE_COMPLETE)
	order := c.lines("order")
	if len(order) != 4 || order[0] != "a" || order[3] != "d" {
		t.Errorf("they ran in the order %v", order)
	}
	if got := slices.Concat(c.lines("b.plan"), c.lines("b.prd")); !slices.Equal(got, []string{"1", "1"}) {
		t.Errorf("the prompt of b had %v of the artifacts", got)
	}
	var phases, hosts []string
	for _, e := range got.GetHistory() {
		if e.GetWhat() == "phase" {
			phases = append(phases, e.GetTo())
		}
	}
	if want := []string{"prd", "exec", "verify", "complete"}; !slices.Equal(phases, want) {
		t.Errorf("%v", phases)
	}
	for _, a := range got.GetAttempts() {
		if a.GetResult() != "succeeded" || a.GetExitCode() != 0 || a.GetStartTime() == nil || a.GetEndTime() == nil || a.GetProcessTime() == nil && a.GetTaskId() == "x" {
			t.Errorf("%v", a)
		}
		if !strings.HasPrefix(a.GetWorker(), a.GetHost()+"/tmux-worker-") {
			t.Errorf("T74, T77: the worker is %q", a.GetWorker())
		}
		hosts = append(hosts, a.GetHost())
	}
	if !slices.Contains(hosts, "h1") || !slices.Contains(hosts, "h2") {
		t.Errorf("all ran on %v", hosts)
	}
	events, err := c.seen.ListEvents(t.Context(), &dispatcherv1.ListEventsRequest{Types: []string{"team.started", "team.phase", "team.ended", "task.started", "task.ended"}})
	if err != nil || len(events.GetEvents()) != 1+3+1+7+7 {
		t.Errorf("%d events, %v", len(events.GetEvents()), err)
	}
	trace := got.GetRun().GetTraceId()
	for _, e := range events.GetEvents() {
		if e.GetTraceId() != trace || e.GetFields()["run_id"] != got.GetRun().GetRunId() {
			t.Errorf("%v", e)
		}
	}
	end(syscall.SIGTERM)
	spans := map[string]int{}
	files, _ := filepath.Glob(filepath.Join(c.dir, "traces", "*"))
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.SplitSeq(string(data), "\n") {
			if !strings.Contains(line, trace) {
				continue
			}
			for _, name := range []string{"team.Run", "team.Phase exec", "team.Task a", "team.Attempt a", "team.Attempt @verify"} {
				if strings.Contains(line, `"`+name+`"`) {
					spans[name]++
				}
			}
		}
	}
	if len(spans) != 5 {
		t.Errorf("the trace of the run has %v", spans)
	}
}

func TestT97_T99_T107_WhatFailedIsRunAgainWithTheReasonAndThenWhatNeedsIt(t *testing.T) {
	t.Parallel()
	c := newCrews(t, 1)
	c.dispatcher()
	c.answers()
	s := c.spec("crew", "a", "echo a >> order; grep -c 'tests are [r]ed' $PROMPT >> a.told; test -e second && exit 0; touch second; echo the tests are $(echo red); exit 7",
		"b<a", "echo b >> order", "c<b", "echo c >> order", "d", "echo d >> order")
	got := c.ends(s, teamv1.Phase_PHASE_COMPLETE)
	order := c.lines("order")
	slices.Sort(order)
	if want := []string{"a", "a", "b", "c", "d"}; !slices.Equal(order, want) {
		t.Errorf("T109: %v", order)
	}
	if told := c.lines("a.told"); len(told) != 2 || told[0] != "0" || told[1] == "0" {
		t.Errorf("T107: the prompts had the reason %v times", told)
	}
	if got.GetRun().GetFixLoops() != 1 {
		t.Errorf("%v", got.GetRun())
	}
	var first *teamv1.AttemptStatus
	for _, a := range got.GetAttempts() {
		if a.GetTaskId() == "a" && a.GetNumber() == 1 {
			first = a
		}
	}
	if first.GetExitCode() != 7 || first.GetResult() != "failed" {
		t.Errorf("%v", first)
	}
	log, err := c.team.GetLog(t.Context(), &teamv1.GetLogRequest{Run: "crew", TaskId: "a", Number: 1})
	if err != nil || !strings.Contains(log.GetOutput(), "the tests are red") || !strings.Contains(log.GetPrompt(), "task a of the team crew") {
		t.Errorf("%v, %v", log, err)
	}
}

func TestT100_T108_TheFixLoopIsBounded(t *testing.T) {
	t.Parallel()
	c := newCrews(t, 1)
	c.dispatcher()
	c.answers()
	for loops, name := range map[int32]string{0: "none", 2: "two"} {
		s := c.spec(name, "a", "echo a >> "+name+"; exit 1", "b<a", "echo b >> "+name)
		s.MaxFixLoops = &loops
		got := c.ends(s, teamv1.Phase_PHASE_FAILED)
		if lines := c.lines(name); len(lines) != int(loops)+1 || slices.Contains(lines, "b") {
			t.Errorf("%d loops: %v", loops, lines)
		}
		if r := got.GetRun(); r.GetReason() != "fix_loop_bound" || !strings.Contains(r.GetDetail(), fmt.Sprintf("bound of %d fix loops", loops)) {
			t.Errorf("%v", r)
		}
	}
}

func TestTeam_AVerdictDecides(t *testing.T) {
	t.Parallel()
	c := newCrews(t, 1)
	c.dispatcher()
	c.answers()
	loops := int32(1)
	for name, row := range map[string]struct {
		verify, fix *teamv1.Step
		phase       teamv1.Phase
		reason      string
		verified    int
	}{
		"fails":        {&teamv1.Step{Prompt: says("fail: it leaks")}, nil, teamv1.Phase_PHASE_FAILED, "fix_loop_bound", 2},
		"says-nothing": {&teamv1.Step{Prompt: script("echo fine")}, nil, teamv1.Phase_PHASE_FAILED, "fix_loop_bound", 2},
		"is-fixed": {&teamv1.Step{Prompt: script(`w=$(grep -o "VERDICT-[0-9a-f]\{12\}" "$PROMPT" | tail -1); test -e fixed && echo "$w: pass" || echo "$w: fail: not yet"`)},
			&teamv1.Step{Prompt: script("touch fixed")}, teamv1.Phase_PHASE_COMPLETE, "verified", 2},
		"check-is-red":   {&teamv1.Step{Check: "good"}, nil, teamv1.Phase_PHASE_FAILED, "fix_loop_bound", 2},
		"check-is-fixed": {&teamv1.Step{Check: "good"}, &teamv1.Step{Prompt: script("touch good")}, teamv1.Phase_PHASE_COMPLETE, "verified", 2},
	} {
		if name == "check-is-fixed" {
			continue // after check-is-red, below
		}
		s := c.spec(name, "a", "true")
		s.Verify, s.Fix, s.MaxFixLoops = row.verify, row.fix, &loops
		if row.fix == nil {
			s.Fix = &teamv1.Step{Prompt: script("true")}
		}
		got := c.ends(s, row.phase)
		if got.GetRun().GetReason() != row.reason || ran(got)["@verify"] != row.verified || ran(got)["@fix"] != 1 || ran(got)["a"] != 1 {
			t.Errorf("%s: %v, %v", name, ran(got), got.GetRun())
		}
		if name == "fails" && !strings.Contains(got.GetRun().GetDetail(), "it leaks") {
			t.Errorf("%v", got.GetRun())
		}
	}
	s := c.spec("check-is-fixed", "a", "true")
	s.Verify, s.Fix, s.MaxFixLoops = &teamv1.Step{Check: "good"}, &teamv1.Step{Prompt: script("touch good")}, &loops
	if got := c.ends(s, teamv1.Phase_PHASE_COMPLETE); !strings.Contains(got.GetRun().GetDetail(), "the check good exited with 0") {
		t.Errorf("%v", got.GetRun())
	}
	// What a caller sends is never a command: a check is one that the host itself has marked.
	s = c.spec("no-check", "a", "true")
	s.Verify = &teamv1.Step{Check: "sh"}
	if got := c.ends(s, teamv1.Phase_PHASE_FAILED); got.GetRun().GetReason() != "launch_failed" {
		t.Errorf("%v", got.GetRun())
	}
}

func TestTeam_LaunchFailuresSpendNoFixLoop(t *testing.T) {
	t.Parallel()
	c := newCrews(t, 1)
	c.dispatcher()
	c.answers()
	for name, change := range map[string]func(*teamv1.Spec){
		"unknown":   func(s *teamv1.Spec) { s.Tasks[0].Harness = "what" },
		"missing":   func(s *teamv1.Spec) { s.Tasks[0].Harness = "missing" },
		"nowhere":   func(s *teamv1.Spec) { s.Tasks[0].Directory = c.work + "/nowhere" },
		"outside":   func(s *teamv1.Spec) { s.Tasks[0].Directory = "/" },
		"126":       func(s *teamv1.Spec) { s.Tasks[0].Harness = "cannot" },
		"127":       func(s *teamv1.Spec) { s.Tasks[0].Prompt = script("exit 127") },
		"in-a-plan": func(s *teamv1.Spec) { s.Plan = &teamv1.Step{Prompt: "x", Harness: "what"} },
	} {
		s := c.spec(name, "a", "true", "b<a", "touch b."+name, "c", "touch c."+name)
		change(s)
		got := c.ends(s, teamv1.Phase_PHASE_FAILED)
		if r := got.GetRun(); r.GetReason() != "launch_failed" || r.GetFixLoops() != 0 {
			t.Errorf("%s: %v", name, r)
		}
		launches := 0
		for _, a := range got.GetAttempts() {
			if a.GetResult() == "launch_failed" {
				launches++
			}
		}
		if launches != 3 || len(c.lines("b."+name)) != 0 {
			t.Errorf("%s: it was tried %d times, and what needs it ran: %v", name, launches, c.lines("b."+name))
		}
	}
}

func TestT145_ARefusedRunSaysWhichOneIsInTheWayAndHowItIsGivenUp(t *testing.T) {
	t.Parallel()
	c := newCrews(t, 1)
	_, end := c.dispatcher()
	c.answers()
	s := c.spec("crew", "a", "echo $$ > a.pid; sleep 300")
	first := c.run(s)
	c.until("it runs", func() bool { return len(c.lines("a.pid")) == 1 })
	_, err := c.team.StartRun(t.Context(), &teamv1.StartRunRequest{Spec: s})
	if fault.KindOf(err) != fault.AlreadyExists || fault.ReasonOf(err) != fault.ReasonRunExists {
		t.Fatalf("%v", err)
	}
	for _, want := range []string{"team crew", first.GetRunId(), "in exec since", "by ann", "coordinated by", "sign of life", "muxpost team abandon " + first.GetRunId(), "--take-over"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("it does not say %q: %v", want, err)
		}
	}
	// T88: one that was crashed is refused too, until somebody says so.
	end(syscall.SIGKILL)
	if _, err := c.pool.Exec(t.Context(), "update dispatcher.team_runs set lease_until = now()"); err != nil {
		t.Fatal(err)
	}
	c.dispatcher()
	c.answers()
	if _, err := c.team.StartRun(t.Context(), &teamv1.StartRunRequest{Spec: s}); fault.KindOf(err) != fault.AlreadyExists {
		t.Errorf("%v", err)
	}
	pid := c.lines("a.pid")[0]
	out, err := c.team.StartRun(t.Context(), &teamv1.StartRunRequest{Spec: c.spec("crew", "b", "echo b >> b"), Who: "bob", TakeOver: true})
	if err != nil || out.GetAbandonedRunId() != first.GetRunId() {
		t.Fatalf("%v, %v", out, err)
	}
	if got := c.over("crew"); got.GetRun().GetPhase() != teamv1.Phase_PHASE_COMPLETE || !slices.Equal(c.lines("b"), []string{"b"}) {
		t.Errorf("T83: only the new run's tasks run: %v", got.GetRun())
	}
	old := c.over(first.GetRunId())
	if r := old.GetRun(); r.GetPhase() != teamv1.Phase_PHASE_FAILED || r.GetReason() != "abandoned" || r.GetEndedBy() != "bob" {
		t.Errorf("T87: %v", r)
	}
	c.until("what it had under way is stopped", func() bool { return !livesBy(pid) })
	c.until("nothing is owed any more", func() bool { return !c.over(first.GetRunId()).GetAttempts()[0].GetOwed() })
	if n := len(c.lines("a.pid")); n != 1 {
		t.Errorf("a ran %d times", n)
	}
}

func TestT91_ACancelledRunStopsWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	c := newCrews(t, 1)
	c.dispatcher()
	c.answers()
	for name, change := range map[string]func(*teamv1.Spec){
		"exec":   func(*teamv1.Spec) {},
		"plan":   func(s *teamv1.Spec) { s.Plan = &teamv1.Step{Prompt: s.Tasks[0].GetPrompt()} },
		"prd":    func(s *teamv1.Spec) { s.Prd = &teamv1.Step{Prompt: s.Tasks[0].GetPrompt()} },
		"verify": func(s *teamv1.Spec) { s.Verify.Prompt, s.Tasks[0].Prompt = s.Tasks[0].GetPrompt(), script("true") },
		"fix": func(s *teamv1.Spec) {
			s.Verify.Prompt, s.Fix, s.Tasks[0].Prompt = says("fail"), &teamv1.Step{Prompt: s.Tasks[0].GetPrompt()}, script("true")
		},
	} {
		s := c.spec(name, "a", "echo $$ > "+name+".pid; sleep 300")
		change(s)
		run := c.run(s)
		c.until(name+" runs", func() bool { return len(c.lines(name+".pid")) == 1 })
		out, err := c.team.CancelRun(t.Context(), &teamv1.CancelRunRequest{Run: name, Who: "bob", Reason: "enough"})
		if err != nil || !out.GetOrdered() {
			t.Fatalf("%v, %v", out, err)
		}
		got := c.over(run.GetRunId())
		if r := got.GetRun(); r.GetPhase() != teamv1.Phase_PHASE_CANCELLED || r.GetReason() != "cancelled" || r.GetEndedBy() != "bob" || r.GetDetail() != "enough" {
			t.Errorf("%s: %v", name, r)
		}
		if livesBy(c.lines(name + ".pid")[0]) {
			t.Errorf("%s: what was under way lives on", name)
		}
		last := got.GetAttempts()[len(got.GetAttempts())-1]
		if last.GetResult() != "stopped" {
			t.Errorf("%s: %v", name, last)
		}
		if out, err := c.team.CancelRun(t.Context(), &teamv1.CancelRunRequest{Run: name}); err != nil || out.GetOrdered() {
			t.Errorf("a second time: %v, %v", out, err)
		}
	}
}

func TestT123_WhatStallsIsHandedOutAgainOnce(t *testing.T) {
	t.Parallel()
	c := newCrews(t, 1)
	c.dispatcher()
	c.answers()
	// T122: the agent itself stands stopped, and everything around it is well.
	s := c.spec("crew", "a", "echo $$ >> pids; kill -STOP $$", "b", "sleep 0.1")
	s.Stall, s.MaxFixLoops = durationpb.New(5*time.Second), new(int32)
	got := c.ends(s, teamv1.Phase_PHASE_FAILED)
	if n := len(c.lines("pids")); n != 2 {
		t.Errorf("it was handed out %d times", n)
	}
	for _, a := range got.GetAttempts() {
		if a.GetTaskId() == "a" && a.GetResult() != "stalled" {
			t.Errorf("%v", a)
		}
	}
	for _, pid := range c.lines("pids") {
		if livesBy(pid) {
			t.Errorf("%s lives on", pid)
		}
	}
}

func TestTeam_LabelsChooseTheHostAndFullHostsAreWaitedFor(t *testing.T) {
	t.Parallel()
	c := newCrews(t, 2, func(*crews, int) string { return "\n  tasks: {max_running: 1}" })
	c.dispatcher()
	c.answers()
	s := c.spec("crew", "a", "true", "b", "true", "c", "true", "d", "true")
	s.Labels = map[string]string{"name": "h2"}
	got := c.ends(s, teamv1.Phase_PHASE_COMPLETE)
	for _, a := range got.GetAttempts() {
		if a.GetHost() != "h2" {
			t.Errorf("%v", a)
		}
	}
	for _, task := range got.GetTasks() {
		if task.GetNumber() > 1 {
			t.Errorf("what a host did not take on counts as no execution: %v", task)
		}
	}
	s = c.spec("nowhere", "a", "true")
	s.Labels = map[string]string{"name": "h3"}
	run := c.run(s)
	c.until("it says what it waits for", func() bool {
		got, err := c.team.GetRun(t.Context(), &teamv1.GetRunRequest{Run: run.GetRunId()})
		return err == nil && strings.Contains(got.GetRun().GetWaits(), "h1: other labels, h2: other labels")
	})
	if _, err := c.team.CancelRun(t.Context(), &teamv1.CancelRunRequest{Run: "nowhere"}); err != nil {
		t.Fatal(err)
	}
	c.over(run.GetRunId())
}

// livesBy reports whether a process lives that a script wrote the id of.
func livesBy(pid string) bool {
	var n int
	if _, err := fmt.Sscan(pid, &n); err != nil {
		return false
	}
	return len(commandLine(n)) > 0
}

func TestTeam_WhatIsCutOfWhatAStepShowedIsTold(t *testing.T) {
	t.Parallel()
	c := newCrews(t, 1)
	c.dispatcher()
	c.answers()
	const much = "head -c 70000 /dev/zero | tr '\\0' x; echo; "
	s := c.spec("crew", "a", `grep -c "^\[…\] x" "$PROMPT" > told`)
	s.Plan = &teamv1.Step{Prompt: script("echo begins; " + much + "echo the end of the plan")}
	loops := int32(0)
	s.Verify, s.MaxFixLoops = &teamv1.Step{Prompt: script(`w=$(grep -o "VERDICT-[0-9a-f]\{12\}" "$PROMPT" | tail -1); echo "$w: pass"; ` + much)}, &loops
	got := c.ends(s, teamv1.Phase_PHASE_FAILED)
	// A verdict that is not at the end is none, and why it was not found is said.
	if d := got.GetRun().GetDetail(); !strings.Contains(d, "without a verdict in the end of what it showed") {
		t.Errorf("%q", d)
	}
	if lines := c.lines("told"); len(lines) != 1 || lines[0] != "1" {
		t.Errorf("the next prompt does not say that the beginning is missing: %v", lines)
	}
	said := ""
	for _, e := range got.GetHistory() {
		if e.GetTaskId() == "@plan" && e.GetWhat() == "succeeded" {
			said = e.GetDetail()
		}
	}
	if !strings.Contains(said, "more than the end that is kept") {
		t.Errorf("its history says %q", said)
	}
	for _, a := range got.GetAttempts() {
		if a.GetOutputCut() != (a.GetTaskId() != "a") {
			t.Errorf("%v", a)
		}
	}
	log, err := c.team.GetLog(t.Context(), &teamv1.GetLogRequest{Run: "crew", TaskId: "@plan"})
	if err != nil || !log.GetAttempt().GetOutputCut() || !strings.HasSuffix(log.GetOutput(), "the end of the plan") {
		t.Errorf("%v, %.100v", err, log)
	}
}
