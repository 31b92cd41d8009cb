package store

import (
	"context"
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

// oursSQL begins every change by a coordinator: the run's row is locked, and is ours only under the epoch that holds it now.
const oursSQL = `
with ours as (
	update dispatcher.team_runs set version = version + 1, beat_at = clock_timestamp()
	where run_id = @run_id and epoch = @epoch and holder <> '' and lease_until > clock_timestamp() and ` + runOpen + `%s
	returning *
)`

// changed runs a statement that begins with oursSQL and returns a row when it changed what it is about. Where it did not, it is found out whether
// that has changed meanwhile (false) or the run is another's (fault.Fenced). Two that collide are tried again.
func changed[T any](s *Store, ctx context.Context, sql string, scan pgx.RowToFunc[T], args pgx.NamedArgs) (out T, ok bool, err error) {
	for try := 0; ; try++ {
		out, err = one(s, ctx, sql, scan, args)
		if state := db.SQLState(err); try == 3 || state != "40001" && state != "40P01" {
			break
		}
	}
	if err == nil {
		return out, true, nil
	}
	if !errors.Is(err, fault.NotFound) {
		return out, false, err
	}
	held, err := one(s, ctx, `select epoch = @epoch and holder <> '' and lease_until > clock_timestamp() and `+runOpen+
		" from dispatcher.team_runs where run_id = @run_id", pgx.RowTo[bool], pgx.NamedArgs{"run_id": args["run_id"], "epoch": args["epoch"]})
	if err == nil && !held || errors.Is(err, fault.NotFound) {
		err = lostRun(fmt.Sprint(args["run_id"]))
	}
	return out, false, err
}

var claimSQL = fmt.Sprintf(oursSQL, ` and phase = @phase and ending = ''`) + `, task as (
	update dispatcher.team_tasks t set state = 'in_progress', version = t.version + 1, updated_at = clock_timestamp()
	from ours where t.run_id = ours.run_id and t.task_id = @task_id and t.version = @version and t.state = 'pending' and t.not_before <= clock_timestamp()
		and not exists (
			select from unnest(t.needs) as need
			left join dispatcher.team_tasks d on d.run_id = @run_id and d.task_id = need
			where d.state is distinct from 'completed'
		)
		and not exists (select from dispatcher.pauses where work_item in ('', ours.work_item))
	returning t.*
), claimed as (
	insert into dispatcher.team_attempts (attempt_id, run_id, task_id, number, epoch, token, host, worker, harness, directory, is_check, repository, branch, needs, prompt, lease_until, gone_at)
	select @attempt_id, run_id, task_id, number, @epoch, dispatcher.next_token(), @host, @worker, @harness, @directory, @is_check, @repository, @branch, @needs::text[], @prompt,
		clock_timestamp() + @lease::interval, clock_timestamp() + @gone::interval
	from task
	returning *
), history as (
	insert into dispatcher.team_history (run_id, what, task_id, attempt_id, detail, epoch)
	select run_id, 'claimed', task_id, attempt_id, worker, epoch from claimed
), told as (
	insert into dispatcher.events (type, work_item, fields, trace_id)
	select @told, ours.work_item, ` + toldOf("ours") + ` || jsonb_build_object('host', c.host, 'harness', c.harness, 'target', '', 'task_id', c.task_id,
		'attempt_id', c.attempt_id, 'worker', c.worker, 'number', c.number::text), ours.trace_id
	from ours, claimed c
)
select ` + attemptColumns("") + ` from claimed`

// ClaimTask hands a task out: one that is pending at the expected version, whose needs are completed, in a run that goes on in that phase
// and that no pause holds back.
func (s *Store) ClaimTask(ctx context.Context, c team.Claim) (team.Attempt, bool, error) {
	a := c.Attempt
	return changed(s, ctx, claimSQL, scanAttempt, pgx.NamedArgs{
		"run_id": c.RunID, "epoch": c.Epoch, "phase": c.Phase.String(), "task_id": c.TaskID, "version": c.Version, "attempt_id": a.ID, "host": a.Host,
		"worker": a.Worker, "harness": a.Harness, "directory": a.Directory, "is_check": a.Check, "repository": a.Repository, "branch": a.Branch, "needs": append([]string{}, a.Needs...), "prompt": a.Prompt, "lease": c.Lease, "gone": c.GoneAfter,
		"told": string(dispatch.TaskStarted),
	})
}

// It counts as no change of the run: nothing is decided by it.
var sawSQL = strings.Replace(fmt.Sprintf(oursSQL, ""), "version + 1", "version", 1) + `
update dispatcher.team_attempts a set state = 'running', epoch = @epoch, lease_until = clock_timestamp() + @lease::interval,
	gone_at = case when @gone::interval > interval '0' and a.state = 'claimed' then clock_timestamp() + @gone::interval else a.gone_at end,
	pane_id = @pane_id, target = @target, socket_path = @socket_path, started_at = @started_at, host_at = clock_timestamp(),
	process_at = case when @alive then clock_timestamp() else a.process_at end, progress_at = coalesce(@progress_at, a.progress_at)
from ours where a.run_id = ours.run_id and a.attempt_id = @attempt_id and a.state <> 'ended'
returning true`

// SawAttempt records what a host said of an attempt that is not over, and vouches for it for the length of a lease.
func (s *Store) SawAttempt(ctx context.Context, a team.Attempt, epoch int64, sight team.Sight, length time.Duration) (bool, error) {
	_, ok, err := changed(s, ctx, sawSQL, pgx.RowTo[bool], pgx.NamedArgs{
		"run_id": a.RunID, "attempt_id": a.ID, "epoch": epoch, "lease": length, "gone": sight.GoneAfter, "pane_id": sight.PaneID, "target": sight.Target,
		"socket_path": sight.SocketPath, "started_at": orNull(sight.StartedAt), "progress_at": orNull(sight.ProgressAt), "alive": sight.Alive,
	})
	return ok, err
}

var tokenSQL = fmt.Sprintf(oursSQL, "") + `, a as (
	update dispatcher.team_attempts a set token = dispatcher.next_token(), epoch = @epoch, fenced = a.fenced or @fence,
		fence_reason = case when @fence and not a.fenced then @reason else a.fence_reason end
	from ours where a.run_id = ours.run_id and a.attempt_id = @attempt_id and a.state <> 'ended'
	returning a.*
), history as (
	insert into dispatcher.team_history (run_id, what, task_id, attempt_id, reason, epoch)
	select run_id, 'fenced', task_id, attempt_id, @reason, @epoch from a where @fence
)
select token from a`

// RenewToken draws a new fencing token for an attempt.
func (s *Store) RenewToken(ctx context.Context, a team.Attempt, epoch int64) (int64, error) {
	return s.drawToken(ctx, a, epoch, false, "")
}

// FenceAttempt takes an attempt from its worker: under the new token it can be stopped, and nothing under the older one any more.
func (s *Store) FenceAttempt(ctx context.Context, a team.Attempt, epoch int64, reason string) (int64, error) {
	return s.drawToken(ctx, a, epoch, true, reason)
}

func (s *Store) drawToken(ctx context.Context, a team.Attempt, epoch int64, fence bool, reason string) (int64, error) {
	token, ok, err := changed(s, ctx, tokenSQL, pgx.RowTo[int64], pgx.NamedArgs{"run_id": a.RunID, "attempt_id": a.ID, "epoch": epoch, "fence": fence, "reason": reason})
	if err == nil && !ok {
		err = fault.Newf(fault.Conflict, "", "the attempt %s is over", a.ID)
	}
	return token, err
}

var endAttemptSQL = fmt.Sprintf(oursSQL, "") + `, a as (
	update dispatcher.team_attempts a set state = 'ended', result = @result, reason = @reason, detail = @detail, exit_code = @code, exit_signal = @signal,
		second_hand = @second_hand, head = @head, uncommitted = @uncommitted, settled_at = clock_timestamp(), output = @output, cut = @cut, owed = @owed, epoch = @epoch,
		pane_id = coalesce(nullif(@pane_id, ''), a.pane_id), target = coalesce(nullif(@target, ''), a.target),
		started_at = coalesce(@started_at, a.started_at), ended_at = @ended_at
	from ours where a.run_id = ours.run_id and a.attempt_id = @attempt_id and a.state <> 'ended'
	returning a.*
), task as (
	update dispatcher.team_tasks t set state = @state, class = @class, why = @why, number = t.number + @again, launches = @launches, requeues = @requeues,
		not_before = clock_timestamp() + @pause::interval, version = t.version + 1, updated_at = clock_timestamp()
	from a where t.run_id = a.run_id and t.task_id = a.task_id and t.state = 'in_progress'
), artifact as (
	insert into dispatcher.team_artifacts (run_id, name, attempt_id, text)
	select run_id, @artifact, attempt_id, @artifact_text from a where @artifact <> ''
	on conflict (run_id, name) do update set attempt_id = excluded.attempt_id, text = excluded.text, created_at = now()
), history as (
	insert into dispatcher.team_history (run_id, what, task_id, attempt_id, reason, detail, epoch)
	select run_id, @result, task_id, attempt_id, @reason, @why, @epoch from a
), told as (
	insert into dispatcher.events (type, work_item, fields, trace_id)
	select @told, ours.work_item, ` + toldOf("ours") + ` || jsonb_build_object('host', a.host, 'harness', a.harness, 'target', a.target, 'task_id', a.task_id,
		'attempt_id', a.attempt_id, 'worker', a.worker, 'number', a.number::text, 'outcome', a.result, 'reason', a.reason, 'detail', @why::text), ours.trace_id
	from ours, a
)
select true from a`

// EndAttempt records how an attempt ended and what that makes of its task, once: false when it was recorded already.
func (s *Store) EndAttempt(ctx context.Context, e team.End) (bool, error) {
	again := 0
	if e.Task.Again {
		again = 1
	}
	_, ok, err := changed(s, ctx, endAttemptSQL, pgx.RowTo[bool], pgx.NamedArgs{
		"run_id": e.RunID, "epoch": e.Epoch, "attempt_id": e.AttemptID, "result": string(e.Result), "reason": e.Reason, "detail": e.Detail, "code": e.Code,
		"signal": e.Signal, "second_hand": e.SecondHand, "head": e.Head, "uncommitted": e.Uncommitted, "output": e.Output, "cut": e.Cut, "owed": e.Owed, "pane_id": e.Sight.PaneID, "target": e.Sight.Target,
		"started_at": orNull(e.Sight.StartedAt), "ended_at": orNull(e.EndedAt), "state": e.Task.State.String(), "class": e.Task.Class.String(), "why": e.Why,
		"again": again, "launches": e.Task.Launches, "requeues": e.Task.Requeues, "pause": e.Task.Pause, "artifact": e.Artifact, "artifact_text": e.ArtifactText,
		"told": string(dispatch.TaskEnded),
	})
	return ok, err
}

var moveSQL = fmt.Sprintf(oursSQL, ` and version = @version and phase = @from`) + `, moved as (
	select * from ours
), done as (
	insert into dispatcher.team_history (run_id, what, phase_from, phase_to, reason, detail, epoch, who)
	select run_id, 'phase', @from, @to, @reason, @detail, @epoch, ended_by from moved
), reset as (
	update dispatcher.team_tasks t set state = 'pending', class = '', number = t.number + (t.state <> 'pending')::integer, launches = 0, requeues = 0,
		not_before = clock_timestamp(), version = t.version + 1, updated_at = clock_timestamp()
	from moved where t.run_id = moved.run_id and t.task_id = any(@reset::text[])
), told as (
	insert into dispatcher.events (type, work_item, fields, trace_id)
	select @told, work_item, ` + toldOf("moved") + ` || jsonb_build_object('from', @from::text, 'phase', @to::text, 'reason', @reason::text, 'detail', @detail::text) ||
		case when @over then jsonb_build_object('who', ended_by) else '{}' end, trace_id
	from moved
)
select true from moved`

// MoveRun takes a run to another phase, with what is set back and how many fix loops are spent, in one statement, if nothing of it has changed
// since it was decided.
func (s *Store) MoveRun(ctx context.Context, step team.Step) (bool, error) {
	d := step.Decision
	if !rules.MayFollow(step.From, d.To) {
		return false, fault.Newf(fault.Internal, "", "a run cannot go from %s to %s", step.From, d.To)
	}
	told := dispatch.TeamPhase
	set := `phase = @to, phase_since = clock_timestamp(), fix_loops = @fix_loops, waits = '', `
	if d.To.Terminal() {
		told = dispatch.TeamEnded
		set += `reason = @reason, detail = @detail, ended_at = clock_timestamp(), holder = '', lease_until = clock_timestamp(), `
		if d.To == rules.Failed {
			set += `retry_at = case when try <= retries then clock_timestamp() + backoff * (2 ^ (try - 1)) end, `
		}
	}
	_, ok, err := changed(s, ctx, setting(moveSQL, set), pgx.RowTo[bool], pgx.NamedArgs{
		"run_id": step.RunID, "epoch": step.Epoch, "version": step.Version, "from": step.From.String(), "to": d.To.String(), "fix_loops": d.FixLoops,
		"reason": string(d.Reason), "detail": d.Detail, "reset": append([]string{}, d.Reset...), "told": string(told), "over": d.To.Terminal(),
	})
	return ok, err
}

// setting has the update of the run set more.
func setting(sql, more string) string {
	const begins = "update dispatcher.team_runs set "
	i := len("\nwith ours as (\n\t") + len(begins)
	return sql[:i] + more + sql[i:]
}

// NoteWait records what a run waits for, for people.
func (s *Store) NoteWait(ctx context.Context, id string, epoch int64, waits string) error {
	_, err := s.pool.Exec(ctx, "update dispatcher.team_runs set waits = $3 where run_id = $1 and epoch = $2 and waits <> $3", id, epoch, waits)
	return db.Fault(err)
}

const orderEndSQL = `
with ours as (
	update dispatcher.team_runs set ending = 'cancelled', reason = @reason, detail = @detail, ended_by = @who, version = version + 1
	where run_id = @run_id and ending = '' and ` + runOpen + `
	returning *
), history as (
	insert into dispatcher.team_history (run_id, what, reason, detail, who, epoch) select run_id, 'end_ordered', @reason, @detail, @who, epoch from ours
)
select ` + runColumns + ` from ours`

// OrderEnd orders that a run is cancelled: whoever coordinates it stops what is under way, then it is over.
func (s *Store) OrderEnd(ctx context.Context, id, who, detail string) (team.Run, bool, error) {
	return s.ordered(ctx, orderEndSQL, id, pgx.NamedArgs{"run_id": id, "who": who, "detail": detail, "reason": string(rules.ReasonCancelled)})
}

var abandonSQL = `
with ours as (
	update dispatcher.team_runs r set phase = 'failed', phase_since = clock_timestamp(), version = version + 1, epoch = dispatcher.next_token(), holder = '',
		lease_until = clock_timestamp(), reason = @reason, detail = @detail, ended_by = @who, ended_at = clock_timestamp()
	where run_id = @run_id and ` + runOpen + `
	returning *
), was as (
	select run_id, phase from dispatcher.team_runs where run_id = @run_id
), attempts as (
	update dispatcher.team_attempts a set state = 'ended', fenced = true, fence_reason = @reason, result = 'lost', reason = @reason, settled_at = clock_timestamp(),
		owed = true, owed_look = clock_timestamp()
	from ours where a.run_id = ours.run_id and a.state <> 'ended'
), tasks as (
	update dispatcher.team_tasks t set state = 'failed', class = 'stopped', why = 'the run was abandoned', version = t.version + 1, updated_at = clock_timestamp()
	from ours where t.run_id = ours.run_id and t.state = 'in_progress'
), history as (
	insert into dispatcher.team_history (run_id, what, phase_from, phase_to, reason, detail, who, epoch)
	select ours.run_id, 'phase', was.phase, 'failed', @reason, @detail, @who, ours.epoch from ours, was
), told as (
	insert into dispatcher.events (type, work_item, fields, trace_id)
	select @told, ours.work_item, ` + toldOf("ours") + ` || jsonb_build_object('from', was.phase, 'phase', 'failed', 'reason', @reason::text, 'detail', @detail::text,
		'who', @who::text), ours.trace_id
	from ours, was
)
select ` + runColumns + ` from ours`

// AbandonRun ends a run at once under a new epoch, whoever holds it. What is under way of it is owed a stop.
func (s *Store) AbandonRun(ctx context.Context, id, who, detail string) (team.Run, bool, error) {
	return s.ordered(ctx, abandonSQL, id, pgx.NamedArgs{"run_id": id, "who": who, "detail": detail, "reason": string(rules.ReasonAbandoned),
		"told": string(dispatch.TeamEnded)})
}

// ordered runs an operator's order; where it changes nothing, the run is returned as it stands.
func (s *Store) ordered(ctx context.Context, sql, id string, args pgx.NamedArgs) (team.Run, bool, error) {
	r, err := one(s, ctx, sql, scanRun, args)
	if !errors.Is(err, fault.NotFound) {
		return r, err == nil, err
	}
	r, err = s.Run(ctx, id)
	return r, false, err
}

// NoteTree records that a working tree of a run was removed.
func (s *Store) NoteTree(ctx context.Context, runID, taskID, detail, who string) error {
	_, err := s.pool.Exec(ctx, `insert into dispatcher.team_history (run_id, what, task_id, detail, who) values ($1, 'tree_removed', $2, $3, $4)`, runID, taskID, detail, who)
	return db.Fault(err)
}

// TakeOwed takes attempts whose hosts still have to be told that they are over, for as long as a lease lasts.
func (s *Store) TakeOwed(ctx context.Context, most int) ([]team.Attempt, error) {
	return many(s, ctx, `update dispatcher.team_attempts set owed_look = clock_timestamp() + @time::interval, token = dispatcher.next_token()
		where attempt_id in (
			select attempt_id from dispatcher.team_attempts where owed and owed_look <= clock_timestamp() order by owed_look limit @most for update skip locked
		)
		returning `+attemptColumns("short"), scanAttempt, pgx.NamedArgs{"time": lease.Time, "most": most})
}

// PaidAttempt says that the host of an attempt knows that it is over.
func (s *Store) PaidAttempt(ctx context.Context, id string) error {
	_, err := s.pool.Exec(ctx, "update dispatcher.team_attempts set owed = false where attempt_id = $1", id)
	return db.Fault(err)
}

// GiveUpAttempts has the attempts on a host that are not over be handed out again elsewhere: an operator gave the host up.
func (s *Store) GiveUpAttempts(ctx context.Context, host string) error {
	_, err := s.pool.Exec(ctx, "update dispatcher.team_attempts set gone_at = least(gone_at, clock_timestamp()) where host = $1 and state <> 'ended'", host)
	return db.Fault(err)
}
