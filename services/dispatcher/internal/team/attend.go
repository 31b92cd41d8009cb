package team

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"muxpost.dev/muxpost/core/fault"
	rules "muxpost.dev/muxpost/core/team"
	"muxpost.dev/muxpost/internal/failpoint"
	"muxpost.dev/muxpost/internal/obs"
)

// Reasons of our own for the end of an attempt, beside those of core/task.
const (
	reasonLost      = "host_lost"
	reasonForgotten = "attempt_not_found"
	reasonRefused   = "refused"
	reasonFull      = "no_capacity"
	reasonStale     = "stale"
	reasonLate      = "late"
)

// maxUnread is how often it is asked for what an attempt showed that needs nothing of it.
const maxUnread = 3

// attendant sees one attempt to its end. The driver's lock guards what it is told.
type attendant struct {
	*driver
	wake    chan struct{}
	attempt Attempt
	item    rules.Item
	// startBy is until when its host may be asked to begin it, on the clock of this process that nobody sets.
	startBy time.Time
	// vouched is when it was recorded last that it goes on; only the attendant itself has it.
	vouched time.Time
	// unread counts in how many looks what it showed could not be had; likewise.
	unread int
}

// attend looks after the attempt until it is over, or ctx ends.
func (at *attendant) attend(ctx context.Context) {
	pause := 100 * time.Millisecond
	for {
		at.mu.Lock()
		a, item, stopping, startBy := at.attempt, at.item, at.stopping, at.startBy
		at.mu.Unlock()
		over, again, err := at.look(ctx, a, item, stopping, startBy)
		switch {
		case over:
			at.mu.Lock()
			delete(at.attended, a.ID)
			at.mu.Unlock()
			poke(at.driver.wake)
			return
		case isFenced(err):
			at.lost()
			return
		case err != nil && ctx.Err() == nil:
			at.Logger.WarnContext(ctx, "an attempt could not be looked after, and is looked at again", obs.KeyRunID, a.RunID, obs.KeyAttemptID, a.ID, obs.KeyError, err)
		}
		wait := at.LookEvery
		if again {
			wait = min(pause, at.LookEvery)
			pause *= 2
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		case <-at.wake:
		}
		timer.Stop()
	}
}

// look asks the host once, by what is known, and records what it says. again asks to look soon.
func (at *attendant) look(ctx context.Context, a Attempt, item rules.Item, stopping string, startBy time.Time) (over, again bool, err error) {
	var answer Answer
	switch {
	case stopping != "":
		answer = at.Hosts.StopAttempt(ctx, a.Host, a.ID, a.Token, stopping)
	case a.Fenced:
		answer = at.Hosts.StopAttempt(ctx, a.Host, a.ID, a.Token, "it was taken from its worker: "+a.FenceReason)
	case a.State == Claimed && !a.Gone && time.Now().Before(startBy):
		answer = at.launch(ctx, a, startBy)
	default:
		answer = at.Hosts.Attempt(ctx, a.Host, a.ID, false)
	}
	switch answer.Kind {
	case Silent:
		if !a.Gone {
			return false, false, nil
		}
		answer = Answer{Kind: Done, Result: rules.Lost, Reason: reasonLost, Detail: "its host does not answer, and it must have ended by itself by now, or the host was given up"}
		return at.end(ctx, a, item, stopping, answer)
	case Fenced:
		token, err := at.Store.RenewToken(ctx, a, at.run.Epoch)
		if err == nil {
			at.retoken(a.ID, token, false, "")
		}
		return false, err == nil, err
	case Going:
		if a.Gone && !a.Fenced {
			return at.fence(ctx, a, reasonLost)
		}
		return false, false, at.saw(ctx, a, answer)
	case Unclear:
		if (a.Lapsed || a.Gone) && !a.Fenced {
			return at.fence(ctx, a, reasonStale)
		}
		return false, false, nil
	case Unknown:
		if a.State == Claimed && !a.Fenced && stopping == "" {
			// It is too late to begin it. A call that asked for it may be under way still, so its host has to know that.
			return at.fence(ctx, a, reasonLate)
		}
		answer = Answer{Kind: Done, Result: rules.Crashed, Reason: reasonForgotten, Detail: "its host does not know it any more"}
		return at.end(ctx, a, item, stopping, answer)
	case Refused:
		answer.Result, answer.Reason = rules.LaunchFailed, cmp.Or(answer.Reason, reasonRefused)
		return at.end(ctx, a, item, stopping, answer)
	case Full:
		answer.Result, answer.Reason = rules.NotBegun, cmp.Or(answer.Reason, reasonFull)
		return at.end(ctx, a, item, stopping, answer)
	case Done:
	}
	// What it showed is read once it is over: it may hold a verdict, or what the next prompts need, and a tree has a commit. Of another it is not waited for long.
	whole := at.Hosts.Attempt(ctx, a.Host, a.ID, true)
	needed := answer.Result == rules.Succeeded && (a.Branch != "" || !a.Check && item.Kind != rules.Task && item.Kind != rules.FixStep)
	switch {
	case whole.Kind == Done:
		answer = whole
	case whole.Kind == Unknown:
	case needed || at.unread < maxUnread:
		at.unread++
		return false, true, nil
	}
	if a.FenceReason == reasonLate && answer.Result == rules.WasStopped && answer.Sight.StartedAt.IsZero() {
		answer.Result, answer.Reason = rules.LaunchFailed, reasonLate
		answer.Detail = "its host did not answer until it was too late to begin it"
	}
	return at.end(ctx, a, item, stopping, answer)
}

// launch asks the host to begin an attempt, by startBy: the moment at which its host's silence gives its task to another was reckoned from there
// when it was claimed. No call for it is under way later than that.
func (at *attendant) launch(ctx context.Context, a Attempt, startBy time.Time) Answer {
	asking, cancel := context.WithDeadline(ctx, startBy)
	defer cancel()
	answer := at.Hosts.RunTask(asking, a.Host, Launch{ID: a.ID, Harness: a.Harness, Directory: a.Directory, Prompt: a.Prompt, Check: a.Check, Repository: a.Repository, Branch: a.Branch, Needs: a.Needs, Token: a.Token,
		Limit: limitOf(at.whole), Stall: at.whole.Spec.Stall})
	failpoint.Hit("dispatcher.team.launched")
	if answer.Kind == Refused || answer.Kind == Full {
		answer = at.certain(ctx, a, answer)
	}
	return answer
}

// certain makes sure that a launch which a host turned down never was nor will be: an earlier call may be under way.
func (at *attendant) certain(ctx context.Context, a Attempt, refused Answer) Answer {
	if found := at.Hosts.Attempt(ctx, a.Host, a.ID, false); found.Kind != Unknown {
		return found
	}
	switch stopped := at.Hosts.StopAttempt(ctx, a.Host, a.ID, a.Token, "its launch was refused"); stopped.Kind {
	case Done, Unknown:
		return refused
	default:
		return stopped
	}
}

// retoken has what is known name the token that was drawn.
func (at *attendant) retoken(id string, token int64, fenced bool, reason string) {
	at.mu.Lock()
	defer at.mu.Unlock()
	if at.attempt.ID == id {
		at.attempt.Token = token
		if fenced {
			at.attempt.Fenced, at.attempt.FenceReason = true, reason
		}
	}
}

// fence takes the attempt from its worker: it is stopped then, and its task handed out again.
func (at *attendant) fence(ctx context.Context, a Attempt, reason string) (over, again bool, err error) {
	token, err := at.Store.FenceAttempt(ctx, a, at.run.Epoch, reason)
	if err != nil {
		return false, false, err
	}
	at.Logger.WarnContext(ctx, "an attempt was taken from its worker", obs.KeyRunID, a.RunID, obs.KeyTaskID, a.TaskID, obs.KeyAttemptID, a.ID, obs.KeyHost, a.Host,
		obs.KeyReason, reason)
	at.retoken(a.ID, token, true, reason)
	return false, true, nil
}

// saw records that an attempt goes on: at once when that is new, and before a third of its lease is over.
func (at *attendant) saw(ctx context.Context, a Attempt, answer Answer) error {
	known := a.State == Running && a.PaneID == answer.Sight.PaneID && a.StartedAt.IsZero() == answer.Sight.StartedAt.IsZero()
	if known && time.Since(at.vouched) < claimLease/3 {
		return nil
	}
	answer.Sight.GoneAfter = limitOf(at.whole) + endMargin
	ok, err := at.Store.SawAttempt(ctx, a, at.run.Epoch, answer.Sight, claimLease)
	if err != nil || !ok {
		return err
	}
	at.vouched = time.Now()
	at.mu.Lock()
	defer at.mu.Unlock()
	at.attempt.State, at.attempt.PaneID, at.attempt.StartedAt = Running, answer.Sight.PaneID, answer.Sight.StartedAt
	return nil
}

// end records how an attempt ended and what that makes of its task.
func (at *attendant) end(ctx context.Context, a Attempt, item rules.Item, stopping string, answer Answer) (over, again bool, err error) {
	e := End{RunID: a.RunID, AttemptID: a.ID, Epoch: at.run.Epoch, Result: answer.Result, Reason: answer.Reason, Detail: answer.Detail, Code: answer.Code,
		Signal: answer.Signal, SecondHand: answer.SecondHand, Sight: answer.Sight, EndedAt: answer.EndedAt, Output: answer.Output, Cut: answer.Cut, Head: answer.Head, Uncommitted: answer.Uncommitted,
		Why: cmp.Or(answer.Detail, string(answer.Result)), Owed: answer.Result == rules.Lost}
	if e.Result == rules.Succeeded && a.Branch != "" && e.Head == "" {
		// What needs it would not find its work.
		e.Result, e.Reason, e.Why = rules.Crashed, string(fault.ReasonTreeUnusable), "it exited with 0, and its working tree cannot be read any more"
		e.Detail = e.Why
	}
	ended := rules.Ended{Result: e.Result, Fenced: a.Fenced, Draining: stopping != ""}
	if item.Kind == rules.VerifyStep && e.Result == rules.Succeeded {
		ended.Holds, e.Why = holds(a, answer)
	}
	if e.Result == rules.Succeeded && (item.Kind == rules.PlanStep || item.Kind == rules.PRDStep) {
		e.Artifact, e.ArtifactText = item.Kind.String(), answer.Output
		if e.Cut {
			e.Why += "; it showed more than the end that is kept, which is what the prompts after it have: have it write less, or into a file"
		}
	}
	e.Task = rules.After(item, ended)
	failpoint.Hit("dispatcher.team.judged")
	recorded, err := at.Store.EndAttempt(ctx, e)
	if err != nil {
		return false, true, err
	}
	failpoint.Hit("dispatcher.team.ended")
	if recorded {
		at.ended(ctx, a, e)
	}
	return true, false, nil
}

// holds reads the verdict of a verification that succeeded.
func holds(a Attempt, answer Answer) (bool, string) {
	if a.Check {
		return true, "the check " + a.Harness + " exited with 0"
	}
	pass, why, said := rules.ReadVerdict(nonceOf(a.ID), answer.Output)
	switch {
	case !said && answer.Cut:
		return false, "the verification ended without a verdict in the end of what it showed, and more is not kept: it has to be its last line"
	case !said:
		return false, "the verification ended without a verdict"
	case pass:
		return true, cmp.Or(why, "it holds")
	}
	return false, "it does not hold: " + cmp.Or(why, "no reason was given")
}

// ended tells of an attempt that is over.
func (at *attendant) ended(ctx context.Context, a Attempt, e End) {
	attrs := []slog.Attr{slog.String(obs.KeyRunID, a.RunID), slog.String(obs.KeyTaskID, a.TaskID), slog.String(obs.KeyAttemptID, a.ID), slog.String(obs.KeyHost, a.Host),
		slog.Int(obs.KeyTry, a.Number), slog.String(obs.KeyOutcome, string(e.Result)), slog.String(obs.KeyReason, e.Reason), slog.String(obs.KeyState, e.Task.State.String())}
	at.Logger.LogAttrs(ctx, slog.LevelInfo, "an attempt is over", attrs...)
	failed := ""
	if e.Result != rules.Succeeded {
		failed = string(e.Result)
	}
	now := time.Now()
	obs.Past(ctx, at.Tracer, "team.Attempt "+a.TaskID, a.ClaimedAt, now, failed, attrs...)
	if s := e.Task.State; s == rules.Completed || s == rules.TaskFailed {
		if s == rules.Completed {
			failed = ""
		}
		obs.Past(ctx, at.Tracer, "team.Task "+a.TaskID, at.whole.CreatedAt, now, failed, attrs...)
	}
}
