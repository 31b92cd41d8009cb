package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"muxpost.dev/muxpost/core/dispatch"
	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/lease"
	rules "muxpost.dev/muxpost/core/team"
	"muxpost.dev/muxpost/db"
	"muxpost.dev/muxpost/services/dispatcher/internal/team"
)

var _ team.Store = (*Store)(nil)

const (
	runOpen = "phase not in ('complete', 'failed', 'cancelled')"

	runColumns = `run_id, team, spec, total, phase, phase_since, version, fix_loops, ending, reason, detail, ended_by, waits, who, work_item, try, retries, backoff, retry_at, holder, epoch,
	holder <> '' and lease_until > clock_timestamp(), beat_at, traceparent, trace_id, created_at, ended_at`
)

const createRunSQL = `
with made as (
	insert into dispatcher.team_runs (run_id, team, spec, total, who, order_key, work_item, retries, backoff, traceparent, trace_id)
	values (@run_id, @team, @spec, @total, @who, @order, @work_item, @retries, @backoff, @traceparent, @trace_id)
	returning *
), tasks as (
	insert into dispatcher.team_tasks (run_id, task_id, position, kind, needs, state, number)
	select made.run_id, t.task_id, t.position, t.kind, t.needs, t.state, t.number
	from made, jsonb_to_recordset(@tasks::jsonb) as t (task_id text, position integer, kind text, needs text[], state text, number integer)
), history as (
	insert into dispatcher.team_history (run_id, what, phase_to, who) select run_id, 'created', phase, who from made
), told as (
	insert into dispatcher.events (type, work_item, fields, trace_id)
	select @told, work_item, ` + "%s" + ` || jsonb_build_object('who', who), trace_id from made
)
select ` + runColumns + ` from made`

// OrderedRun returns the run that a named order began; false when it began none.
func (s *Store) OrderedRun(ctx context.Context, order string) (team.Run, bool, error) {
	r, err := one(s, ctx, "select "+runColumns+" from dispatcher.team_runs where order_key = $1 and order_key <> ''", scanRun, order)
	if errors.Is(err, fault.NotFound) {
		return r, false, nil
	}
	return r, err == nil, err
}

// CreateRun records a run with its tasks and its event, all of it or nothing, or returns the one that its order began before. Where the team has
// one that is not over it is fault.AlreadyExists, and live is that; it is left as it is.
func (s *Store) CreateRun(ctx context.Context, r team.Run) (made team.Run, live *team.Run, err error) {
	spec, err := json.Marshal(r.Spec)
	if err != nil {
		return made, nil, fault.Wrap(fault.Internal, "", "the spec of a run cannot be written", err)
	}
	type row struct {
		TaskID   string   `json:"task_id"`
		Position int      `json:"position"`
		Kind     string   `json:"kind"`
		Needs    []string `json:"needs"`
		State    string   `json:"state"`
		Number   int      `json:"number"`
	}
	var rows []row
	for i, t := range r.Spec.Steps() {
		rows = append(rows, row{t.ID, i, t.Kind.String(), append([]string{}, t.Needs...), t.State.String(), t.Number})
	}
	tasks, err := json.Marshal(rows)
	if err != nil {
		return made, nil, fault.Wrap(fault.Internal, "", "the tasks of a run cannot be written", err)
	}
	made, err = one(s, ctx, fmt.Sprintf(createRunSQL, toldOf("made")), scanRun, pgx.NamedArgs{
		"run_id": r.ID, "team": r.Spec.Team, "spec": string(spec), "total": len(r.Spec.Tasks), "who": r.Who, "order": r.Order, "work_item": r.WorkItem, "retries": r.Retries, "backoff": r.Backoff,
		"traceparent": r.Traceparent, "trace_id": r.TraceID, "tasks": string(tasks), "told": string(dispatch.TeamStarted),
	})
	if !errors.Is(err, fault.AlreadyExists) {
		return made, nil, err
	}
	if r.Order != "" {
		if made, ok, findErr := s.OrderedRun(ctx, r.Order); ok || findErr != nil {
			return made, nil, findErr
		}
	}
	standing, findErr := one(s, ctx, "select "+runColumns+" from dispatcher.team_runs where team = $1 and "+runOpen, scanRun, r.Spec.Team)
	switch {
	case findErr == nil:
		return made, &standing, err
	case errors.Is(findErr, fault.NotFound):
		return made, nil, fault.New(fault.Unavailable, fault.ReasonDatabase, "the team had a run that has ended just now").WithRemedy("ask again")
	}
	return made, nil, findErr
}

// A run that is begun again has the tasks of the first as they were then: nothing of the older run's is run again.
var retryRunSQL = `
with due as (
	select * from dispatcher.team_runs where retry_at <= clock_timestamp() order by retry_at limit 1 for update skip locked
), old as (
	update dispatcher.team_runs r set retry_at = null from due where r.run_id = due.run_id
	returning r.*, not exists (select from dispatcher.team_runs n where n.team = r.team and (n.created_at, n.run_id) > (r.created_at, r.run_id)) as last
), made as (
	insert into dispatcher.team_runs (run_id, team, spec, total, who, work_item, try, retries, backoff, traceparent, trace_id)
	select gen_random_uuid()::text, team, spec, total, who, work_item, try + 1, retries, backoff, traceparent, trace_id from old where last
	returning *
), tasks as (
	insert into dispatcher.team_tasks (run_id, task_id, position, kind, needs, state, number)
	select made.run_id, t.task_id, t.position, t.kind, t.needs, case t.kind when 'fix' then 'completed' else 'pending' end, case t.kind when 'fix' then 0 else 1 end
	from made, old, dispatcher.team_tasks t where t.run_id = old.run_id
), history as (
	insert into dispatcher.team_history (run_id, what, phase_to, detail, who)
	select made.run_id, 'created', 'plan', 'try ' || made.try || ', since the run ' || old.run_id || ' failed', made.who from made, old
), told as (
	insert into dispatcher.events (type, work_item, fields, trace_id)
	select @told, work_item, ` + toldOf("made") + ` || jsonb_build_object('who', who), trace_id from made
)
select ` + runColumns + ` from made`

// RetryRun begins a run again that failed and whose time has come; false when there is none. Two that ask at once begin one.
func (s *Store) RetryRun(ctx context.Context) (team.Run, bool, error) {
	r, err := one(s, ctx, retryRunSQL, scanRun, pgx.NamedArgs{"told": string(dispatch.TeamStarted)})
	if errors.Is(err, fault.NotFound) {
		return r, false, nil
	}
	return r, err == nil, err
}

// toldOf are the fields that every event of a run has, from a row of the run.
func toldOf(row string) string {
	return strings.ReplaceAll("jsonb_build_object('work_item', $.work_item, 'target', '', 'host', '', 'harness', '', 'delivery_id', '', 'team', $.team, 'run_id', $.run_id)",
		"$", row)
}

const takeRunsSQL = `
update dispatcher.team_runs set holder = @holder, epoch = dispatcher.next_token(), lease_until = clock_timestamp() + @time::interval,
	beat_at = clock_timestamp()
where run_id in (
	select run_id from dispatcher.team_runs where ` + runOpen + ` and (holder = '' or lease_until <= clock_timestamp())
	order by lease_until limit @most for update skip locked
)
returning run_id, epoch, traceparent`

// TakeRuns takes runs that are not over and that nobody holds, each with a new epoch: at most so many. Of each it tells the id, the epoch and the
// trace alone: one whose record cannot be read must not keep the others from being taken.
func (s *Store) TakeRuns(ctx context.Context, holder string, most int) ([]team.Run, error) {
	scan := func(row pgx.CollectableRow) (r team.Run, err error) {
		err = row.Scan(&r.ID, &r.Epoch, &r.Traceparent)
		return r, err
	}
	return many(s, ctx, takeRunsSQL, scan, pgx.NamedArgs{"holder": holder, "time": lease.Time, "most": most})
}

// RenewRun keeps a run for the length of a lease more.
func (s *Store) RenewRun(ctx context.Context, id string, epoch int64) error {
	tag, err := s.pool.Exec(ctx, `update dispatcher.team_runs set lease_until = clock_timestamp() + $3::interval, beat_at = clock_timestamp()
		where run_id = $1 and epoch = $2 and holder <> '' and lease_until > clock_timestamp() and `+runOpen, id, epoch, lease.Time)
	if err == nil && tag.RowsAffected() == 0 {
		return lostRun(id)
	}
	return db.Fault(err)
}

// ReleaseRun lets a run go, so that another may take it at once.
func (s *Store) ReleaseRun(ctx context.Context, id string, epoch int64) error {
	_, err := s.pool.Exec(ctx, `update dispatcher.team_runs set holder = '', lease_until = clock_timestamp() where run_id = $1 and epoch = $2`, id, epoch)
	return db.Fault(err)
}

// ReleaseRuns lets all runs of a holder go.
func (s *Store) ReleaseRuns(ctx context.Context, holder string) error {
	_, err := s.pool.Exec(ctx, `update dispatcher.team_runs set holder = '', lease_until = clock_timestamp() where holder = $1`, holder)
	return db.Fault(err)
}

// ReleaseFormer lets the runs go of every other holder of an instance. Whoever is one of them and lives changes nothing any more: a change needs a
// holder, and then the epoch that whoever takes the run draws.
func (s *Store) ReleaseFormer(ctx context.Context, instance, holder string) (int64, error) {
	tag, err := s.pool.Exec(ctx, `update dispatcher.team_runs set holder = '', lease_until = clock_timestamp()
		where holder <> $2 and right(holder, length($1) + 1) = '.' || $1 and `+runOpen, instance, holder)
	return tag.RowsAffected(), db.Fault(err)
}

func lostRun(id string) error {
	return fault.Newf(fault.Fenced, fault.ReasonLeaseLost, "another coordinator has the run %s, or it is over", id)
}

// KnownRun returns a run with its tasks and its open attempts. The run is read first: what is read after it can only be newer than its version
// says, and then no decision on it counts.
func (s *Store) KnownRun(ctx context.Context, id string) (known team.Known, err error) {
	if known.Run, err = s.Run(ctx, id); err != nil {
		return known, err
	}
	var batch pgx.Batch
	batch.Queue(`select task_id, kind, state, class, why, needs, number, launches, requeues, not_before > clock_timestamp(), version, updated_at
		from dispatcher.team_tasks where run_id = $1 order by position`, id).Query(func(rows pgx.Rows) (err error) {
		known.Tasks, err = pgx.CollectRows(rows, scanTask)
		return err
	})
	batch.Queue("select "+attemptColumns("")+" from dispatcher.team_attempts where run_id = $1 and state <> 'ended' order by claimed_at, attempt_id", id).
		Query(func(rows pgx.Rows) (err error) {
			known.Open, err = pgx.CollectRows(rows, scanAttempt)
			return err
		})
	batch.Queue(pausedSQL, known.Run.WorkItem).Query(func(rows pgx.Rows) (err error) {
		known.Pauses, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (team.Pause, error) {
			p, err := scanPause(row)
			return team.Pause{WorkItem: p.WorkItem, Who: p.Who, Reason: p.Reason, Since: p.Since}, err
		})
		return err
	})
	return known, db.Fault(s.pool.SendBatch(ctx, &batch).Close())
}

// Run returns a run; one that is not known is fault.NotFound.
func (s *Store) Run(ctx context.Context, id string) (team.Run, error) {
	r, err := one(s, ctx, "select "+runColumns+" from dispatcher.team_runs where run_id = $1", scanRun, id)
	if errors.Is(err, fault.NotFound) {
		err = fault.Newf(fault.NotFound, fault.ReasonRunNotFound, "there is no run %.64q", id).WithRemedy("`muxpost team status` lists the runs")
	}
	return r, err
}

// Runs returns runs, newest first.
func (s *Store) Runs(ctx context.Context, q team.RunQuery) ([]team.Run, error) {
	f := newFilter(q.Limit)
	f.and(q.Team != "", "team = @team", "team", q.Team)
	f.and(q.WorkItem != "", "work_item = @work_item", "work_item", q.WorkItem)
	f.and(q.BeforeID != "", "(created_at, run_id) < (@before_time, @before_id)", "before_time", q.BeforeTime)
	f.args["before_id"] = q.BeforeID
	if q.Open {
		f.where += " and " + runOpen
	}
	return many(s, ctx, fmt.Sprintf("select %s from dispatcher.team_runs where %s order by created_at desc, run_id desc limit @limit", runColumns, f.where),
		scanRun, f.args)
}

// Attempts returns the attempts of a run, or of one of its tasks, oldest first, without what they were told and what they showed.
func (s *Store) Attempts(ctx context.Context, runID, taskID string) ([]team.Attempt, error) {
	return many(s, ctx, "select "+attemptColumns("short")+` from dispatcher.team_attempts where run_id = $1 and ($2::text = '' or task_id = $2::text)
		order by claimed_at, attempt_id`, scanAttempt, runID, taskID)
}

// Attempt returns one attempt with everything.
func (s *Store) Attempt(ctx context.Context, id string) (team.Attempt, error) {
	return one(s, ctx, "select "+attemptColumns("")+" from dispatcher.team_attempts where attempt_id = $1", scanAttempt, id)
}

// History returns what became of a run, oldest first.
func (s *Store) History(ctx context.Context, runID string) ([]team.Entry, error) {
	return many(s, ctx, `select time, what, task_id, attempt_id, phase_from, phase_to, reason, detail, who, epoch from dispatcher.team_history
		where run_id = $1 order by seq`, func(row pgx.CollectableRow) (e team.Entry, err error) {
		err = row.Scan(&e.At, &e.What, &e.TaskID, &e.AttemptID, &e.From, &e.To, &e.Reason, &e.Detail, &e.Who, &e.Epoch)
		return e, err
	}, runID)
}

// Artifacts returns what the steps of a run left.
func (s *Store) Artifacts(ctx context.Context, runID string) ([]team.Artifact, error) {
	return many(s, ctx, `select name, attempt_id, text, coalesce((select cut from dispatcher.team_attempts a where a.attempt_id = t.attempt_id), false), created_at
		from dispatcher.team_artifacts t where run_id = $1 order by created_at, name`,
		func(row pgx.CollectableRow) (a team.Artifact, err error) {
			err = row.Scan(&a.Name, &a.AttemptID, &a.Text, &a.Cut, &a.CreatedAt)
			return a, err
		}, runID)
}

// BeforeAttempt returns what is told to the next attempt of a task.
func (s *Store) BeforeAttempt(ctx context.Context, runID, taskID string) (out team.Before, err error) {
	if out.Artifacts, err = s.Artifacts(ctx, runID); err != nil {
		return out, err
	}
	out.Attempts, err = many(s, ctx, "select "+attemptColumns("shown")+` from dispatcher.team_attempts where run_id = $1 and task_id = $2 and state = 'ended'
		order by claimed_at, attempt_id`, scanAttempt, runID, taskID)
	return out, err
}

// scanRun reads a run. What of its record cannot be read is said in Unread, and is no error: a list must not go with one of its rows, and who ends
// such a run must see that it ended.
func scanRun(row pgx.CollectableRow) (r team.Run, err error) {
	var name, spec, phase, ending, reason string
	var beat, ended, retry *time.Time
	err = row.Scan(&r.ID, &name, &spec, &r.Total, &phase, &r.PhaseSince, &r.Version, &r.FixLoops, &ending, &reason, &r.Detail, &r.EndedBy, &r.Waits, &r.Who, &r.WorkItem,
		&r.Try, &r.Retries, &r.Backoff, &retry, &r.Holder, &r.Epoch, &r.Held, &beat, &r.Traceparent, &r.TraceID, &r.CreatedAt, &ended)
	if err != nil {
		return r, err
	}
	r.Reason, r.Beat, r.EndedAt = rules.Reason(reason), when(beat), when(ended)
	r.RetryAt = when(retry)
	r.Ending, _ = rules.ParsePhase(ending)
	var known bool
	if r.Phase, known = rules.ParsePhase(phase); !known {
		r.Unread = fmt.Sprintf("its phase %.40q is none", phase)
	}
	if why := unreadable(spec, name, &r.Spec); why != "" {
		r.Unread, r.Spec = why, rules.Spec{Team: name}
	}
	return r, nil
}

// unreadable reads the spec of a team's run, and says why it cannot; empty when it can. What is in it is not told: a prompt may be.
func unreadable(text, name string, spec *rules.Spec) string {
	switch err := json.Unmarshal([]byte(text), spec); {
	case err != nil:
		return "what it was asked to do cannot be read"
	case spec.Team != name:
		return "what it was asked to do is not for its team"
	case len(spec.Tasks) == 0 || spec.Verify == nil:
		return "what it was asked to do has no task or no verification"
	}
	return ""
}

func scanTask(row pgx.CollectableRow) (t team.Task, err error) {
	var kind, state, class string
	err = row.Scan(&t.ID, &kind, &state, &class, &t.Why, &t.Needs, &t.Number, &t.Launches, &t.Requeues, &t.Early, &t.Version, &t.UpdatedAt)
	t.Kind, t.State, t.Class = rules.ParseKind(kind), rules.ParseState(state), rules.ParseClass(class)
	return t, err
}

// attemptColumns are the columns of an attempt: in short without its texts, shown with what it showed alone.
func attemptColumns(form string) string {
	texts := "prompt, output"
	switch form {
	case "short":
		texts = "'', ''"
	case "shown":
		texts = "'', output"
	}
	return `attempt_id, run_id, task_id, number, epoch, token, host, worker, harness, directory, is_check, repository, branch, needs, head, uncommitted, ` + texts + `, state, fenced, fence_reason, result,
	reason, detail, exit_code, exit_signal, second_hand, pane_id, target, socket_path, started_at, ended_at, claimed_at, settled_at, host_at,
	process_at, progress_at, lease_until <= clock_timestamp(), gone_at <= clock_timestamp(), owed, cut, clock_timestamp() - claimed_at`
}

func scanAttempt(row pgx.CollectableRow) (a team.Attempt, err error) {
	var started, ended, settled, host, process, progress *time.Time
	err = row.Scan(&a.ID, &a.RunID, &a.TaskID, &a.Number, &a.Epoch, &a.Token, &a.Host, &a.Worker, &a.Harness, &a.Directory, &a.Check, &a.Repository, &a.Branch, &a.Needs, &a.Head, &a.Uncommitted, &a.Prompt, &a.Output,
		&a.State, &a.Fenced, &a.FenceReason, &a.Result, &a.Reason, &a.Detail, &a.Code, &a.Signal, &a.SecondHand, &a.PaneID, &a.Target, &a.SocketPath,
		&started, &ended, &a.ClaimedAt, &settled, &host, &process, &progress, &a.Lapsed, &a.Gone, &a.Owed, &a.Cut, &a.SinceClaim)
	a.StartedAt, a.EndedAt, a.SettledAt = when(started), when(ended), when(settled)
	a.HostAt, a.ProcessAt, a.ProgressAt = when(host), when(process), when(progress)
	return a, err
}

// when is a time that may be missing.
func when(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}
