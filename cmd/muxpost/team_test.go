package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/rpc"
	teamv1 "muxpost.dev/muxpost/proto/gen/muxpost/team/v1"
)

// fakeTeams answers by what it holds.
type fakeTeams struct {
	teamv1.UnimplementedTeamServiceServer
	started   *teamv1.StartRunRequest
	item      *teamv1.StartItemRunRequest
	steps     []*teamv1.WatchRunResponse
	whole     *teamv1.GetRunResponse
	cancelled *teamv1.CancelRunRequest
	log       *teamv1.GetLogResponse
	cleaned   []*teamv1.CleanRunRequest
	// hold is closed once a run is cancelled, held once it is waited for; nil does not wait for that.
	hold, held chan struct{}
}

func (f *fakeTeams) StartRun(_ context.Context, r *teamv1.StartRunRequest) (*teamv1.StartRunResponse, error) {
	f.started = r
	if r.GetSpec().GetTeam() == "taken" {
		return nil, fault.New(fault.AlreadyExists, fault.ReasonRunExists, "the team taken has a run that is not over").WithRemedy("muxpost team abandon r0")
	}
	return &teamv1.StartRunResponse{Run: f.whole.GetRun()}, nil
}

func (f *fakeTeams) StartItemRun(_ context.Context, r *teamv1.StartItemRunRequest) (*teamv1.StartItemRunResponse, error) {
	f.item = r
	return &teamv1.StartItemRunResponse{Run: f.whole.GetRun()}, nil
}

func (f *fakeTeams) WatchRun(_ *teamv1.WatchRunRequest, stream teamv1.TeamService_WatchRunServer) error {
	for i, step := range f.steps {
		if i == len(f.steps)-1 && f.hold != nil {
			if f.cancelled == nil {
				close(f.held)
			}
			select {
			case <-f.hold:
			case <-stream.Context().Done():
				return stream.Context().Err()
			}
		}
		if err := stream.Send(step); err != nil {
			return err
		}
	}
	return nil
}

func (f *fakeTeams) GetRun(context.Context, *teamv1.GetRunRequest) (*teamv1.GetRunResponse, error) {
	return f.whole, nil
}

func (f *fakeTeams) ListRuns(context.Context, *teamv1.ListRunsRequest) (*teamv1.ListRunsResponse, error) {
	return &teamv1.ListRunsResponse{Runs: []*teamv1.Run{f.whole.GetRun()}}, nil
}

func (f *fakeTeams) CancelRun(_ context.Context, r *teamv1.CancelRunRequest) (*teamv1.CancelRunResponse, error) {
	f.cancelled = r
	if f.hold != nil {
		close(f.hold)
	}
	return &teamv1.CancelRunResponse{Run: f.whole.GetRun(), Ordered: true}, nil
}

func (f *fakeTeams) AbandonRun(context.Context, *teamv1.AbandonRunRequest) (*teamv1.AbandonRunResponse, error) {
	return &teamv1.AbandonRunResponse{Run: f.whole.GetRun()}, nil
}

func (f *fakeTeams) GetLog(context.Context, *teamv1.GetLogRequest) (*teamv1.GetLogResponse, error) {
	return f.log, nil
}

func (f *fakeTeams) CleanRun(_ context.Context, r *teamv1.CleanRunRequest) (*teamv1.CleanRunResponse, error) {
	f.cleaned = append(f.cleaned, r)
	return &teamv1.CleanRunResponse{Trees: []*teamv1.RunTree{{Host: "h1", Directory: "/w/repo.trees/crew-1/a", Branch: "muxpost/crew-1/a"},
		{Host: "h1", Directory: "/w/repo.trees/crew-1/b", Branch: "muxpost/crew-1/b", Kept: "1 file not committed (left)"}}}, nil
}

func newFakeTeams(end teamv1.Phase) *fakeTeams {
	step := func(phase teamv1.Phase, a, b teamv1.TaskState, why string, completed int32) *teamv1.WatchRunResponse {
		return &teamv1.WatchRunResponse{
			Run: &teamv1.Run{RunId: "r1", Team: "crew", Phase: phase, Tasks: 2, Completed: completed, MaxFixLoops: 3, CreateTime: at(time.Hour), PhaseSince: at(time.Minute), Who: "ann",
				Coordinated: true, Coordinator: "d1"},
			Tasks: []*teamv1.TaskStatus{{TaskId: "a", State: a, Why: why, Number: 1}, {TaskId: "b", State: b, Needs: []string{"a"}, Number: 1},
				{TaskId: "@verify", Kind: "verify", State: teamv1.TaskState_TASK_STATE_PENDING, Number: 1}},
			Attempts: []*teamv1.AttemptStatus{{TaskId: "a", Worker: "h1/tmux-worker-1", State: "running", StartTime: at(2 * time.Minute), SocketPath: "/s/x.sock", Host: "h1"}},
		}
	}
	const pending, doing, done, failed, blocked = teamv1.TaskState_TASK_STATE_PENDING, teamv1.TaskState_TASK_STATE_IN_PROGRESS, teamv1.TaskState_TASK_STATE_COMPLETED,
		teamv1.TaskState_TASK_STATE_FAILED, teamv1.TaskState_TASK_STATE_BLOCKED
	f := &fakeTeams{steps: []*teamv1.WatchRunResponse{step(teamv1.Phase_PHASE_EXEC, pending, pending, "", 0), step(teamv1.Phase_PHASE_EXEC, doing, pending, "", 0)}}
	last := step(end, done, done, "it exited with 0", 2)
	if end != teamv1.Phase_PHASE_COMPLETE {
		last = step(end, failed, blocked, "exit code\x1b[31m 7", 0)
		last.Run.Reason, last.Run.Detail, last.Run.EndedBy = "fix_loop_bound", "the task a failed", "bob"
	}
	last.Run.EndTime, last.Attempts[0].State, last.Attempts[0].EndTime = at(0), "ended", at(time.Minute)
	last.Attempts[0].SocketPath = ""
	f.steps = append(f.steps, last)
	f.whole = &teamv1.GetRunResponse{Run: last.GetRun(), Tasks: last.GetTasks(), Attempts: last.GetAttempts(), History: []*teamv1.HistoryEntry{
		{Time: at(time.Hour), What: "created", To: "plan", Who: "ann"}, {Time: at(time.Minute), What: "phase", From: "plan", To: "exec", Reason: "no_step"}}}
	return f
}

func teamDesk(t *testing.T, f *fakeTeams) *desk {
	t.Helper()
	d := newDesk(t)
	d.serve(t, "d", func(s *rpc.Server) { teamv1.RegisterTeamServiceServer(s, f) })
	return d
}

const crewFile = `
team: crew
harness: sh
directory: /w
max_fix_loops: 0
limit: 1h30m
labels: {gpu: "yes"}
plan: {prompt: think}
tasks:
  - {id: a, prompt: do a}
  - {id: b, prompt: do b, needs: [a]}
verify: {check: good}
`

func (d *desk) file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(d.dir, "team.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestTeamRun_FollowsARunToItsEnd(t *testing.T) {
	f := newFakeTeams(teamv1.Phase_PHASE_COMPLETE)
	d := teamDesk(t, f)
	if err := d.run(t, "team", "run", d.file(t, crewFile), "--by", "ann"); err != nil {
		t.Fatal(err)
	}
	zero := int32(0)
	want := &teamv1.Spec{Team: "crew", Harness: "sh", Directory: "/w", MaxFixLoops: &zero, Limit: durationpb.New(90 * time.Minute), Labels: map[string]string{"gpu": "yes"},
		Plan: &teamv1.Step{Prompt: "think"}, Verify: &teamv1.Step{Check: "good"},
		Tasks: []*teamv1.Task{{Id: "a", Prompt: "do a"}, {Id: "b", Prompt: "do b", Needs: []string{"a"}}}}
	if !proto.Equal(f.started.GetSpec(), want) || f.started.GetWho() != "ann" || f.started.GetTakeOver() {
		t.Errorf("%v", f.started)
	}
	golden(t, "team-run", d.out.String())
	if err := d.run(t, "team", "run", "--item", "https://github.com/octo/widget/issues/7"); err != nil || f.item.GetWorkItem() != "github:octo/widget#7" {
		t.Errorf("%v, %v", f.item, err)
	}
	for _, line := range [][]string{{"team", "run"}, {"team", "run", "x.yaml", "--item", "github:octo/widget#7"}} {
		if err := d.run(t, line...); !errors.Is(err, fault.Invalid) {
			t.Errorf("%v: %v", line, err)
		}
	}
}

func TestTeamRun_FailsWhenTheRunDoes(t *testing.T) {
	for end, want := range map[teamv1.Phase]string{teamv1.Phase_PHASE_FAILED: "failed: the task a failed", teamv1.Phase_PHASE_CANCELLED: "was cancelled: the task a failed"} {
		d := teamDesk(t, newFakeTeams(end))
		err := d.run(t, "team", "run", d.file(t, crewFile))
		if !errors.Is(err, fault.Conflict) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", end, err)
		}
		if out := d.out.String(); !strings.Contains(out, "a failed: exit code [31m 7") || strings.Contains(out, "\x1b") {
			t.Errorf("%s", out)
		}
		if err := d.run(t, "team", "watch", "crew"); !errors.Is(err, fault.Conflict) {
			t.Errorf("watch: %v", err)
		}
	}
}

func TestT91_AnInterruptedRunIsCancelled(t *testing.T) {
	f := newFakeTeams(teamv1.Phase_PHASE_CANCELLED)
	f.hold, f.held = make(chan struct{}), make(chan struct{})
	d := teamDesk(t, f)
	ctx, cancel := context.WithCancel(t.Context())
	root := newRoot(d.app)
	root.SetArgs([]string{"--data-dir", d.dir, "team", "run", d.file(t, crewFile)})
	done := make(chan error, 1)
	go func() { done <- root.ExecuteContext(ctx) }()
	<-f.held
	cancel()
	if err := <-done; !errors.Is(err, fault.Conflict) || !strings.Contains(err.Error(), "was cancelled") {
		t.Errorf("it ended with %v", err)
	}
	if f.cancelled.GetRun() != "r1" || !strings.Contains(f.cancelled.GetReason(), "interrupted") {
		t.Errorf("%v", f.cancelled)
	}
}

func TestTeamRun_RefusesAFileThatIsNoTeam(t *testing.T) {
	d := teamDesk(t, newFakeTeams(teamv1.Phase_PHASE_COMPLETE))
	for text, want := range map[string]string{
		"team: [":                         "cannot be read as a team",
		"teem: crew":                      `unknown field "teem"`,
		"team: crew\nteam: other":         "already defined",
		"team: crew\nlimit: soon":         "write a time as 90s",
		"tasks: [{id: a, prompts: do a}]": `unknown field "prompts"`,
	} {
		if err := d.run(t, "team", "run", d.file(t, text)); !errors.Is(err, fault.Invalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if err := d.run(t, "team", "run", filepath.Join(d.dir, "nothing.yaml")); !errors.Is(err, fault.Invalid) {
		t.Errorf("%v", err)
	}
	if err := d.run(t, "team", "run", d.file(t, "team: taken")); !errors.Is(err, fault.AlreadyExists) || !strings.Contains(err.Error(), "abandon r0") {
		t.Errorf("%v", err)
	}
	if err := d.run(t, "team", "run", "../../docs/examples/team.yaml"); err != nil {
		t.Errorf("the example: %v", err)
	}
}

func TestTeam_ShowsARunThatCannotBeReadInItsPlace(t *testing.T) {
	f := newFakeTeams(teamv1.Phase_PHASE_EXEC)
	f.whole.Run.Problem, f.whole.Run.EndTime, f.whole.Run.Detail = "its record cannot be read: it is damaged; end it with `muxpost team abandon r1`", nil, ""
	d := teamDesk(t, f)
	for _, line := range [][]string{{"team", "status"}, {"team", "status", "crew"}} {
		if err := d.run(t, line...); err != nil || !strings.Contains(d.out.String(), "unreadable") || !strings.Contains(d.out.String(), "muxpost team abandon r1") {
			t.Errorf("%v: %v\n%s", line, err, d.out)
		}
	}
}

func TestTeamLogs_SaysThatMoreWasShown(t *testing.T) {
	f := newFakeTeams(teamv1.Phase_PHASE_EXEC)
	f.log = &teamv1.GetLogResponse{Output: "the end\n", Prompt: "do a", Attempt: &teamv1.AttemptStatus{OutputCut: true}}
	d := teamDesk(t, f)
	if err := d.run(t, "team", "logs", "crew", "a"); err != nil || d.out.String() != "the end\n" || !strings.Contains(d.err.String(), "showed more before this") {
		t.Errorf("%v: %s%s", err, d.out, d.err)
	}
	if err := d.run(t, "team", "logs", "crew", "a", "--prompt"); err != nil || strings.Contains(d.err.String(), "showed more") {
		t.Errorf("%v: %s%s", err, d.out, d.err)
	}
}

func TestTeamClean_RemovesOfWhatIsOverAndSaysWhatIsKept(t *testing.T) {
	f := newFakeTeams(teamv1.Phase_PHASE_COMPLETE)
	d := teamDesk(t, f)
	if err := d.run(t, "team", "clean", "--dry-run"); err != nil || !strings.Contains(d.out.String(), "would go muxpost/crew-1/a  h1:/w/repo.trees/crew-1/a\n") ||
		!strings.Contains(d.out.String(), "kept     muxpost/crew-1/b  h1:/w/repo.trees/crew-1/b: 1 file not committed (left)\n") || !strings.Contains(d.out.String(), "1 would be removed, 1 kept") {
		t.Errorf("%v\n%s", err, d.out)
	}
	if r := f.cleaned[0]; len(f.cleaned) != 1 || r.GetRun() != "r1" || !r.GetDryRun() || r.GetUnmerged() {
		t.Errorf("%v", f.cleaned)
	}
	if err := d.run(t, "team", "clean", "crew", "other", "--unmerged", "--by", "ann", "--reason", "room"); err != nil || !strings.Contains(d.out.String(), "2 removed, 2 kept") {
		t.Errorf("%v\n%s", err, d.out)
	}
	if r := f.cleaned[2]; r.GetRun() != "other" || r.GetDryRun() || !r.GetUnmerged() || r.GetWho() != "ann" || r.GetReason() != "room" {
		t.Errorf("%v", r)
	}
	// One that goes on is left out where none is named.
	f.whole.Run.EndTime, f.cleaned = nil, nil
	if err := d.run(t, "team", "clean"); err != nil || len(f.cleaned) != 0 || !strings.Contains(d.out.String(), "0 removed, 0 kept") {
		t.Errorf("%v\n%s", err, d.out)
	}
}

func TestTeam_SaysHowARunStands(t *testing.T) {
	f := newFakeTeams(teamv1.Phase_PHASE_FAILED)
	f.log = &teamv1.GetLogResponse{Output: "one\ttwo\x1b[2J\nthree\n", Prompt: "do a"}
	d := teamDesk(t, f)
	var all strings.Builder
	for _, line := range [][]string{{"team", "status"}, {"team", "status", "crew", "--history"}, {"team", "cancel", "crew"}, {"team", "abandon", "r1"}, {"team", "logs", "crew", "a"},
		{"team", "logs", "crew", "a", "--prompt"}, {"team", "run", d.file(t, crewFile), "--detach"}} {
		if err := d.run(t, line...); err != nil {
			t.Errorf("%v: %v", line, err)
		}
		all.WriteString("$ muxpost " + strings.ReplaceAll(strings.Join(line, " "), d.dir, "DIR") + "\n" + d.out.String())
	}
	golden(t, "team-status", all.String())
	for _, line := range [][]string{{"team", "status"}, {"team", "status", "crew"}, {"team", "logs", "crew", "a"}} {
		if err := d.run(t, append(line, "--json")...); err != nil || !strings.HasPrefix(d.out.String(), "{") {
			t.Errorf("%v: %v, %s", line, err, d.out)
		}
	}
}
