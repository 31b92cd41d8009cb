package server

import (
	"cmp"
	"context"
	"regexp"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"muxpost.dev/muxpost/core/fault"
	rules "muxpost.dev/muxpost/core/team"
	teamv1 "muxpost.dev/muxpost/proto/gen/muxpost/team/v1"
	"muxpost.dev/muxpost/proto/gen/muxpost/team/v1/teamv1connect"
	"muxpost.dev/muxpost/services/dispatcher/internal/hints"
	"muxpost.dev/muxpost/services/dispatcher/internal/team"
)

// defaultLoops is how often what failed is run again where nothing is said.
const defaultLoops = 3

// TeamOperator begins and ends runs.
type TeamOperator interface {
	Start(ctx context.Context, spec rules.Spec, who string, takeOver bool) (made team.Run, abandoned string, err error)
	StartItem(ctx context.Context, order, workItem, name, who string) (team.Run, error)
	Cancel(ctx context.Context, o team.Order) (team.Run, bool, error)
	Abandon(ctx context.Context, o team.Order) (team.Run, bool, error)
	Clean(ctx context.Context, o team.Cleaning) ([]team.Tree, error)
}

// TeamRecords list what is stored of runs. A run that is not known is fault.NotFound.
type TeamRecords interface {
	Run(ctx context.Context, id string) (team.Run, error)
	Runs(ctx context.Context, q team.RunQuery) ([]team.Run, error)
	KnownRun(ctx context.Context, id string) (team.Known, error)
	Attempts(ctx context.Context, runID, taskID string) ([]team.Attempt, error)
	Attempt(ctx context.Context, id string) (team.Attempt, error)
	History(ctx context.Context, runID string) ([]team.Entry, error)
}

// AttemptShower asks a host what an attempt shows.
type AttemptShower interface {
	Attempt(ctx context.Context, host, id string, output bool) team.Answer
}

// Teams implements the service of teams.
type Teams struct {
	operator TeamOperator
	records  TeamRecords
	hosts    AttemptShower
	news     *hints.Hub
}

var _ teamv1connect.TeamServiceHandler = (*Teams)(nil)

// NewTeams returns a server. news tells, with hints.Any, that there may be more events.
func NewTeams(operator TeamOperator, records TeamRecords, hosts AttemptShower, news *hints.Hub) *Teams {
	return &Teams{operator: operator, records: records, hosts: hosts, news: news}
}

// StartRun begins a run.
func (t *Teams) StartRun(ctx context.Context, r *teamv1.StartRunRequest) (*teamv1.StartRunResponse, error) {
	spec, err := SpecOf(r.GetSpec())
	if err != nil {
		return nil, err
	}
	made, abandoned, err := t.operator.Start(ctx, spec, r.GetWho(), r.GetTakeOver())
	if err != nil {
		return nil, err
	}
	return &teamv1.StartRunResponse{Run: runTo(made), AbandonedRunId: abandoned}, nil
}

// StartItemRun begins the run that is configured for a work item.
func (t *Teams) StartItemRun(ctx context.Context, r *teamv1.StartItemRunRequest) (*teamv1.StartItemRunResponse, error) {
	made, err := t.operator.StartItem(ctx, r.GetOrderId(), r.GetWorkItem(), r.GetTeam(), r.GetWho())
	if err != nil {
		return nil, err
	}
	return &teamv1.StartItemRunResponse{Run: runTo(made)}, nil
}

// GetRun returns a run with all that belongs to it.
func (t *Teams) GetRun(ctx context.Context, r *teamv1.GetRunRequest) (*teamv1.GetRunResponse, error) {
	id, err := t.find(ctx, r.GetRun(), false)
	if err != nil {
		return nil, err
	}
	known, err := t.records.KnownRun(ctx, id)
	if err != nil {
		return nil, err
	}
	attempts, err := t.records.Attempts(ctx, id, "")
	if err != nil {
		return nil, err
	}
	history, err := t.records.History(ctx, id)
	if err != nil {
		return nil, err
	}
	out := &teamv1.GetRunResponse{Spec: specTo(known.Run.Spec)}
	out.Run, out.Tasks = standing(known)
	for _, a := range attempts {
		out.Attempts = append(out.Attempts, attemptTo(a))
	}
	for _, e := range history {
		out.History = append(out.History, &teamv1.HistoryEntry{Time: timestamppb.New(e.At), What: e.What, TaskId: e.TaskID, AttemptId: e.AttemptID, From: e.From, To: e.To,
			Reason: e.Reason, Detail: e.Detail, Who: e.Who})
	}
	return out, nil
}

// ListRuns returns runs, newest first.
func (t *Teams) ListRuns(ctx context.Context, r *teamv1.ListRunsRequest) (*teamv1.ListRunsResponse, error) {
	_, limit, err := listOf("", r.GetPageSize(), pageSize)
	if err != nil {
		return nil, err
	}
	q := team.RunQuery{Team: r.GetTeam(), Open: r.GetOpen(), Limit: limit + 1}
	if q.BeforeTime, q.BeforeID, err = readRunToken(r.GetPageToken()); err != nil {
		return nil, err
	}
	found, err := t.records.Runs(ctx, q)
	if err != nil {
		return nil, err
	}
	out := &teamv1.ListRunsResponse{}
	if len(found) > limit {
		found = found[:limit]
		out.NextPageToken = encode(runPrefix + strconv.FormatInt(found[limit-1].CreatedAt.UnixMicro(), 10) + "|" + found[limit-1].ID)
	}
	for _, run := range found {
		out.Runs = append(out.Runs, runTo(run))
	}
	return out, nil
}

// readRunToken reads a token; an empty one is the first page.
func readRunToken(token string) (at time.Time, id string, err error) {
	if token == "" {
		return time.Time{}, "", nil
	}
	text, err := decode(token, runPrefix)
	if err != nil {
		return time.Time{}, "", err
	}
	micros, id, _ := strings.Cut(text, "|")
	n, err := strconv.ParseInt(micros, 10, 64)
	if at = time.UnixMicro(n).UTC(); err != nil || at.Year() < 1 || at.Year() > 9999 || !runID.MatchString(id) {
		return time.Time{}, "", badToken()
	}
	return at, id, nil
}

// WatchRun streams a run as it is now whenever it has changed, until it is over, or whoever asked or the service goes.
func (t *Teams) WatchRun(ctx context.Context, r *teamv1.WatchRunRequest, stream teamv1connect.TeamServiceWatchRunServerStream) error {
	id, err := t.find(ctx, r.GetRun(), false)
	if err != nil {
		return err
	}
	follower := t.news.Follow()
	defer follower.Close()
	told, shown := int64(-1), ""
	open := map[string]bool{}
	for {
		known, err := t.records.KnownRun(ctx, id)
		if err != nil {
			return err
		}
		if known.Run.Version != told || known.Run.Waits != shown {
			out := &teamv1.WatchRunResponse{}
			out.Run, out.Tasks = standing(known)
			if out.Attempts, err = t.since(ctx, known, open); err != nil {
				return err
			}
			if err := stream.Send(out); err != nil {
				return err
			}
			told, shown = known.Run.Version, known.Run.Waits
		}
		if known.Run.Phase.Terminal() {
			return nil
		}
		wait, cancel := context.WithTimeout(ctx, beat/5)
		_, _ = follower.Next(wait) // that its time is over is a reason to look as well
		cancel()
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// since returns the attempts that are not over, and those that have ended since they were told to be open.
func (t *Teams) since(ctx context.Context, known team.Known, open map[string]bool) (out []*teamv1.AttemptStatus, err error) {
	now := map[string]bool{}
	for _, a := range known.Open {
		now[a.ID] = true
		out = append(out, attemptTo(a))
	}
	for id := range open {
		if !now[id] {
			a, err := t.records.Attempt(ctx, id)
			if err != nil {
				return nil, err
			}
			out = append(out, attemptTo(a))
		}
	}
	clear(open)
	for id := range now {
		open[id] = true
	}
	return out, nil
}

// CancelRun orders the end of a run.
func (t *Teams) CancelRun(ctx context.Context, r *teamv1.CancelRunRequest) (*teamv1.CancelRunResponse, error) {
	id, err := t.find(ctx, r.GetRun(), true)
	if err != nil {
		return nil, err
	}
	run, ordered, err := t.operator.Cancel(ctx, team.Order{RunID: id, Who: r.GetWho(), Reason: r.GetReason()})
	if err != nil {
		return nil, err
	}
	return &teamv1.CancelRunResponse{Run: runTo(run), Ordered: ordered}, nil
}

// AbandonRun ends a run at once, whoever coordinates it.
func (t *Teams) AbandonRun(ctx context.Context, r *teamv1.AbandonRunRequest) (*teamv1.AbandonRunResponse, error) {
	id, err := t.find(ctx, r.GetRun(), true)
	if err != nil {
		return nil, err
	}
	run, abandoned, err := t.operator.Abandon(ctx, team.Order{RunID: id, Who: r.GetWho(), Reason: r.GetReason()})
	if err != nil {
		return nil, err
	}
	return &teamv1.AbandonRunResponse{Run: runTo(run), Abandoned: abandoned}, nil
}

// CleanRun removes the working trees of a run that is over, where nothing would be lost with them.
func (t *Teams) CleanRun(ctx context.Context, r *teamv1.CleanRunRequest) (*teamv1.CleanRunResponse, error) {
	id, err := t.find(ctx, r.GetRun(), false)
	if err != nil {
		return nil, err
	}
	found, err := t.operator.Clean(ctx, team.Cleaning{Order: team.Order{RunID: id, Who: r.GetWho(), Reason: r.GetReason()}, Unmerged: r.GetUnmerged(), Dry: r.GetDryRun()})
	if err != nil {
		return nil, err
	}
	out := &teamv1.CleanRunResponse{}
	for _, tree := range found {
		out.Trees = append(out.Trees, &teamv1.RunTree{Host: tree.Host, Directory: tree.Directory, Branch: tree.Branch, Kept: tree.Kept})
	}
	return out, nil
}

// GetLog returns what an attempt at a task showed last.
func (t *Teams) GetLog(ctx context.Context, r *teamv1.GetLogRequest) (*teamv1.GetLogResponse, error) {
	id, err := t.find(ctx, r.GetRun(), false)
	if err != nil {
		return nil, err
	}
	if r.GetTaskId() == "" {
		return nil, fault.New(fault.Invalid, fault.ReasonBadArgument, "no task is named")
	}
	all, err := t.records.Attempts(ctx, id, r.GetTaskId())
	if err != nil {
		return nil, err
	}
	var chosen *team.Attempt
	for i, a := range all {
		if r.GetNumber() == 0 || int(r.GetNumber()) == a.Number {
			chosen = &all[i]
		}
	}
	if chosen == nil {
		return nil, fault.Newf(fault.NotFound, fault.ReasonAttemptNotFound, "the run %s has no such attempt at the task %.64q", id, r.GetTaskId()).
			WithRemedy("`muxpost team status " + id + "` lists its tasks and attempts")
	}
	a, err := t.records.Attempt(ctx, chosen.ID)
	if err != nil {
		return nil, err
	}
	out := &teamv1.GetLogResponse{Attempt: attemptTo(a), Output: a.Output, Prompt: a.Prompt}
	if a.State != team.Over {
		answer := t.hosts.Attempt(ctx, a.Host, a.ID, true)
		out.Output, out.Attempt.OutputCut = answer.Output, answer.Cut
		if answer.Kind == team.Silent {
			out.Problem = "its host does not answer: " + answer.Detail
		}
	}
	return out, nil
}

var runID = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)

// find returns the id of a run that is named by it, or by its team: the newest one, and where an order is meant for one, that which is not over.
func (t *Teams) find(ctx context.Context, name string, open bool) (string, error) {
	switch {
	case name == "":
		return "", fault.New(fault.Invalid, fault.ReasonBadArgument, "no run is named").WithRemedy("name a team, or the id of a run")
	case runID.MatchString(name):
		return name, nil
	case !rules.ValidName(name):
		return "", fault.Newf(fault.Invalid, fault.ReasonBadArgument, "%.80q is neither the name of a team nor the id of a run", name)
	}
	for _, q := range []team.RunQuery{{Team: name, Open: true, Limit: 1}, {Team: name, Limit: 1}} {
		if !open && q.Open {
			continue
		}
		found, err := t.records.Runs(ctx, q)
		if err != nil {
			return "", err
		}
		if len(found) == 1 {
			return found[0].ID, nil
		}
	}
	return "", fault.Newf(fault.NotFound, fault.ReasonRunNotFound, "the team %s has no run", name).WithRemedy("`muxpost team status` lists the runs")
}

// SpecOf reads what a run is asked to do.
func SpecOf(s *teamv1.Spec) (rules.Spec, error) {
	if s == nil {
		return rules.Spec{}, fault.New(fault.Invalid, fault.ReasonBadArgument, "there is no spec")
	}
	out := rules.Spec{Team: s.GetTeam(), Harness: s.GetHarness(), Directory: s.GetDirectory(), Labels: s.GetLabels(), Parallel: int(s.GetParallel()),
		Trees: rules.Trees(s.GetTrees()), MaxFixLoops: defaultLoops, Plan: stepOf(s.GetPlan()), PRD: stepOf(s.GetPrd()), Verify: stepOf(s.GetVerify()), Fix: stepOf(s.GetFix())}
	if s.MaxFixLoops != nil {
		out.MaxFixLoops = int(s.GetMaxFixLoops())
	}
	for _, d := range []struct {
		name string
		in   *durationpb.Duration
		out  *time.Duration
	}{{"limit", s.GetLimit(), &out.Limit}, {"stall", s.GetStall(), &out.Stall}} {
		if d.in == nil {
			continue
		}
		if d.in.CheckValid() != nil || d.in.AsDuration() <= 0 {
			return out, fault.Newf(fault.Invalid, fault.ReasonBadArgument, "%s is not a duration above zero", d.name)
		}
		*d.out = d.in.AsDuration()
	}
	for _, t := range s.GetTasks() {
		out.Tasks = append(out.Tasks, rules.Job{ID: t.GetId(), Prompt: t.GetPrompt(), Needs: t.GetNeeds(), Harness: t.GetHarness(), Labels: t.GetLabels(), Directory: t.GetDirectory()})
	}
	return out, nil
}

func stepOf(s *teamv1.Step) *rules.Step {
	if s == nil {
		return nil
	}
	return &rules.Step{Prompt: s.GetPrompt(), Check: s.GetCheck(), Harness: s.GetHarness(), Labels: s.GetLabels()}
}

func specTo(s rules.Spec) *teamv1.Spec {
	loops := int32(s.MaxFixLoops)                                                                                                                                             //nolint:gosec // checked when it was taken
	out := &teamv1.Spec{Team: s.Team, Harness: s.Harness, Directory: s.Directory, Labels: s.Labels, Parallel: int32(s.Parallel), MaxFixLoops: &loops, Trees: string(s.Trees), //nolint:gosec // likewise
		Plan: stepTo(s.Plan), Prd: stepTo(s.PRD), Verify: stepTo(s.Verify), Fix: stepTo(s.Fix)}
	if s.Limit > 0 {
		out.Limit = durationpb.New(s.Limit)
	}
	if s.Stall > 0 {
		out.Stall = durationpb.New(s.Stall)
	}
	for _, t := range s.Tasks {
		out.Tasks = append(out.Tasks, &teamv1.Task{Id: t.ID, Prompt: t.Prompt, Needs: t.Needs, Harness: t.Harness, Labels: t.Labels, Directory: t.Directory})
	}
	return out
}

func stepTo(s *rules.Step) *teamv1.Step {
	if s == nil {
		return nil
	}
	return &teamv1.Step{Prompt: s.Prompt, Check: s.Check, Harness: s.Harness, Labels: s.Labels}
}

// standing is a run with its tasks as they stand.
func standing(k team.Known) (*teamv1.Run, []*teamv1.TaskStatus) {
	run := runTo(k.Run)
	items := make([]rules.Item, 0, len(k.Tasks))
	for _, t := range k.Tasks {
		items = append(items, t.Item)
	}
	blocked := map[string]bool{}
	for _, id := range rules.Blocked(rules.Run{Tasks: items}) {
		blocked[id] = true
	}
	var out []*teamv1.TaskStatus
	for _, t := range k.Tasks {
		state := taskStates[t.State]
		if blocked[t.ID] {
			state = teamv1.TaskState_TASK_STATE_BLOCKED
		}
		if t.Kind == rules.Task && t.State == rules.Completed {
			run.Completed++
		}
		out = append(out, &teamv1.TaskStatus{TaskId: t.ID, Kind: t.Kind.String(), State: state, Why: t.Why, Needs: t.Needs, Number: int32(t.Number), //nolint:gosec // small
			Launches: int32(t.Launches), Class: t.Class.String()}) //nolint:gosec // small
	}
	return run, out
}

var taskStates = map[rules.State]teamv1.TaskState{rules.Pending: teamv1.TaskState_TASK_STATE_PENDING, rules.InProgress: teamv1.TaskState_TASK_STATE_IN_PROGRESS,
	rules.Completed: teamv1.TaskState_TASK_STATE_COMPLETED, rules.TaskFailed: teamv1.TaskState_TASK_STATE_FAILED}

var runPhases = map[rules.Phase]teamv1.Phase{rules.Plan: teamv1.Phase_PHASE_PLAN, rules.PRD: teamv1.Phase_PHASE_PRD, rules.Exec: teamv1.Phase_PHASE_EXEC,
	rules.Verify: teamv1.Phase_PHASE_VERIFY, rules.Fix: teamv1.Phase_PHASE_FIX, rules.Complete: teamv1.Phase_PHASE_COMPLETE, rules.Failed: teamv1.Phase_PHASE_FAILED,
	rules.Cancelled: teamv1.Phase_PHASE_CANCELLED}

func runTo(r team.Run) *teamv1.Run {
	return &teamv1.Run{RunId: r.ID, Team: r.Spec.Team, Phase: runPhases[r.Phase], PhaseSince: moment(r.PhaseSince), FixLoops: int32(r.FixLoops), //nolint:gosec // small
		MaxFixLoops: int32(r.Spec.MaxFixLoops), Ending: r.Ending != rules.NoPhase && !r.Phase.Terminal(), Reason: string(r.Reason), Detail: r.Detail, //nolint:gosec // small
		Waits: r.Waits, Who: r.Who, EndedBy: r.EndedBy, WorkItem: r.WorkItem, Coordinator: r.Holder, Coordinated: r.Held, BeatAt: moment(r.Beat), Epoch: r.Epoch,
		TraceId: r.TraceID, CreateTime: moment(r.CreatedAt), EndTime: moment(r.EndedAt), Tasks: int32(r.Total), Version: r.Version, Try: int32(r.Try), RetryAt: moment(r.RetryAt), Problem: r.Problem()} //nolint:gosec // small
}

func attemptTo(a team.Attempt) *teamv1.AttemptStatus {
	out := &teamv1.AttemptStatus{AttemptId: a.ID, TaskId: a.TaskID, Number: int32(a.Number), Worker: a.Worker, Host: a.Host, Harness: a.Harness, Directory: a.Directory, //nolint:gosec // small
		State: a.State, Result: string(a.Result), Reason: a.Reason, Detail: a.Detail, Fenced: a.Fenced, ClaimTime: moment(a.ClaimedAt), StartTime: moment(a.StartedAt),
		EndTime: moment(cmp.Or(a.EndedAt, a.SettledAt)), HostTime: moment(a.HostAt), ProcessTime: moment(a.ProcessAt), ProgressTime: moment(a.ProgressAt), Owed: a.Owed,
		Branch: a.Branch, Head: a.Head, Uncommitted: int32(a.Uncommitted), OutputCut: a.Cut} //nolint:gosec // small
	if a.State != team.Over {
		out.SocketPath = a.SocketPath
	}
	small := func(n *int) *int32 {
		if n == nil {
			return nil
		}
		v := int32(*n) //nolint:gosec // an exit code or a signal
		return &v
	}
	out.ExitCode, out.ExitSignal = small(a.Code), small(a.Signal)
	return out
}
