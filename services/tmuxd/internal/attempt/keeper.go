package attempt

import (
	"context"
	"fmt"
	"time"

	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/core/task"
	"muxpost.dev/muxpost/internal/failpoint"
	"muxpost.dev/muxpost/internal/obs"
)

const (
	// quickTick and tick are how often an attempt is looked at, in its first seconds and while it is being ended, and later; slowTick is how
	// often at least, while nothing is known of it.
	quickTick  = 50 * time.Millisecond
	quickTime  = 5 * time.Second
	tick       = 500 * time.Millisecond
	slowTick   = 5 * time.Second
	missingFor = 5 * time.Second
	// alertTime is how long nothing may be known of an attempt until it is said aloud.
	alertTime = time.Minute
)

// keeping is what a keeper knows beyond the memory. Its times are on the clock that nobody sets.
type keeping struct {
	r *Runner
	a *attempt

	began time.Time
	// missing is when something that should be there was first found missing: the content of a marker, how a dead pane ended.
	missing time.Time
	// unknown is when nothing was known first; alerted is true once that was said.
	unknown time.Time
	alerted bool
	ending  ending
	pace    pace
	closing closing
}

// keeper looks after an attempt until there is nothing left to do for it, or ctx ends.
func (r *Runner) keeper(ctx context.Context, a *attempt) {
	k := &keeping{r: r, a: a, began: time.Now()}
	for {
		next, done := k.step(ctx)
		if done {
			return
		}
		t := time.NewTimer(next)
		select {
		case <-t.C:
		case <-a.wake:
		case <-ctx.Done():
		}
		t.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// step looks, judges and acts once. It returns when to do so again.
func (k *keeping) step(ctx context.Context) (next time.Duration, done bool) {
	r, a := k.r, k.a
	a.turn.Lock()
	defer a.turn.Unlock()
	m := a.recall()
	if m.Outcome == nil && m.Pane.ID == "" {
		// tmuxd ended in the middle of its launch, or tmux did not answer it.
		r.takeBack(ctx, a, "its launch was interrupted, and was taken back")
		m = a.recall()
	}
	if m.Outcome == nil {
		mark, j := k.judge(ctx, m)
		if m = a.recall(); j.Action == task.Settle {
			r.settle(ctx, a, j, mark)
		} else {
			k.tell(ctx, m, mark, j)
			k.enforce(ctx, m, mark)
		}
		m = a.recall()
	}
	if m.Outcome != nil {
		return k.close(ctx, m)
	}
	return k.next(m), false
}

// next is how long to wait until the next look.
func (k *keeping) next(m Memory) time.Duration {
	switch {
	case !k.unknown.IsZero():
		return min(max(time.Since(k.unknown)/4, quickTick), slowTick)
	case m.Order != nil || time.Since(k.began) < quickTime:
		return quickTick
	}
	return tick
}

// judge reads the marker, looks at the pane, and reads the marker again where the rules ask for that.
func (k *keeping) judge(ctx context.Context, m Memory) (Marker, task.Judgement) {
	mark := k.r.Disk.Marker(m)
	f := task.Facts{}
	if m.Order != nil {
		f.Order = m.Order.Kind
	}
	f.Marker, f.End, f.Cause = mark.Kind, mark.End, mark.Cause
	k.witness(ctx, m, &f)
	k.overdue(&f)
	j := task.Judge(f)
	if j.Action == task.ReadAgain {
		mark = k.r.Disk.Marker(m)
		f.Marker, f.End, f.Cause, f.Again = mark.Kind, mark.End, mark.Cause, true
		k.overdue(&f)
		j = task.Judge(f)
	}
	return mark, j
}

// overdue says whether what is missing has been missing for too long.
func (k *keeping) overdue(f *task.Facts) {
	empty := f.Marker == task.Empty && f.Pane != task.Alive
	unsaid := f.Pane == task.Dead && f.PaneEnd.How == task.Unsaid && f.Marker <= task.Open
	switch {
	case !empty && !unsaid:
		k.missing = time.Time{}
	case k.missing.IsZero():
		k.missing = time.Now()
	}
	f.Overdue = !k.missing.IsZero() && time.Since(k.missing) > missingFor
}

// witness looks at the pane, unless the marker has decided or the pane's process is seen to live.
func (k *keeping) witness(ctx context.Context, m Memory, f *task.Facts) {
	r := k.r
	if f.Marker >= task.Ended {
		return
	}
	if f.Wrapper = r.Disk.Alive(m); f.Wrapper == session.ProcessAlive {
		f.Pane = task.Alive
		return
	}
	lookCtx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	seen, err := r.Tmux.Look(lookCtx, m.Target, m.Stamp)
	switch {
	case err != nil || seen.Answer == session.NoAnswer:
		return
	case seen.Answer == session.NoServer:
		f.Pane = k.withoutServer(m)
		return
	}
	f.Pane, f.PaneEnd = seen.Pane, seen.End
	if f.Pane == task.Gone && m.Pane.ID == "" && time.Since(k.began) < launchTime {
		f.Pane = task.NoAnswer // its launch may still be under way
	}
	if seen.Found.ID != "" && m.Pane.ID == "" {
		// A tmuxd that died just after the launch did not come to write down which pane it was.
		if err := r.change(k.a, func(m *Memory) bool { m.Pane = seen.Found; return true }); err == nil {
			f.Wrapper = r.Disk.Alive(k.a.recall())
		}
	}
	if f.Wrapper == session.ProcessGone && f.Pane == task.Alive || f.Pane == task.Dead && f.PaneEnd.How == task.Unsaid {
		r.Tmux.Nudge(seen.Found.Server.Pid)
	}
}

// withoutServer judges a socket on which nobody listens.
func (k *keeping) withoutServer(m Memory) task.Pane {
	switch k.r.Disk.ServerLives(m) {
	case session.ProcessAlive:
		k.r.Tmux.Reopen(m.Pane.Server.Pid)
		return task.NoAnswer
	case session.ProcessGone:
		return task.ServerLost
	case session.ProcessNone:
		// Its launch was not seen to end: it may be under way for as long as a launch takes.
		if time.Since(k.began) > launchTime {
			return task.ServerLost
		}
	case session.ProcessUnclear:
	}
	return task.NoAnswer
}

// tell tells what is known of an attempt that is not over.
func (k *keeping) tell(ctx context.Context, m Memory, mark Marker, j task.Judgement) {
	a := k.a
	a.mu.Lock()
	if a.state != j.State || a.reason != j.Reason {
		a.state, a.reason, a.since = j.State, j.Reason, k.r.Now()
	}
	if a.started.IsZero() {
		a.started = mark.StartedAt
	}
	started := !a.started.IsZero()
	a.mu.Unlock()
	if started {
		a.begin()
	}
	k.r.tell(a)
	if j.State != task.Unknown {
		k.unknown, k.alerted = time.Time{}, false
		return
	}
	if k.unknown.IsZero() {
		k.unknown = time.Now()
	}
	if !k.alerted && time.Since(k.unknown) > alertTime {
		k.alerted = true
		k.r.Logger.ErrorContext(ctx, "nothing is known of an attempt for too long", obs.KeyAttemptID, m.ID, obs.KeyTarget, m.Target,
			obs.KeyReason, string(j.Reason), obs.KeyDuration, alertTime, obs.KeyError, mark.Detail)
	}
}

// begin says that the attempt runs, or is over.
func (a *attempt) begin() {
	select {
	case <-a.begun:
	default:
		close(a.begun)
	}
}

// settle writes down how an attempt ended, once. What cannot be written is judged again. The turn is held.
func (r *Runner) settle(ctx context.Context, a *attempt, j task.Judgement, mark Marker) {
	m := a.recall()
	if m.Outcome != nil {
		return
	}
	o := Outcome{State: j.State, Reason: j.Reason, End: j.End, SecondHand: j.SecondHand, Detail: explain(j, mark), StartedAt: mark.StartedAt,
		EndedAt: mark.EndedAt, SettledAt: r.Now(), Remains: mark.Remains}
	// What the pane shows is taken first: whoever hears of the end can read it.
	r.keepOutput(ctx, m)
	failpoint.Hit("tmuxd.attempt.judged")
	if err := r.change(a, func(m *Memory) bool { m.Outcome = &o; return true }); err != nil {
		r.Logger.ErrorContext(ctx, "the end of an attempt could not be written down", obs.KeyAttemptID, m.ID, obs.KeyError, err)
		return
	}
	failpoint.Hit("tmuxd.attempt.settled")
	r.Metrics.Attempts.Add(ctx, 1, o.State.String(), string(o.Reason))
	r.Logger.InfoContext(ctx, "attempt", obs.KeyAttemptID, m.ID, obs.KeyTarget, m.Target, obs.KeyHarness, m.Harness, obs.KeyToken, m.Token,
		obs.KeyOutcome, o.State.String(), obs.KeyReason, string(o.Reason))
	r.tell(a)
	a.begin()
	close(a.over)
}

// explain says in one line how an attempt ended.
func explain(j task.Judgement, mark Marker) string {
	text := map[task.Reason]string{
		task.ReasonNone:        "it exited with 0",
		task.ReasonExit:        "it ended: " + j.End.String(),
		task.ReasonSignal:      "it was ended by a signal: " + signalName(j.End.N),
		task.ReasonHangUp:      "its terminal was closed under it: its tmux server ended, or somebody closed its session",
		task.ReasonNotLaunched: "it was not started",
		task.ReasonSupervisor:  "its wrapper was killed, and it with it",
		task.ReasonStop:        "it was stopped",
		task.ReasonTimeLimit:   "its time limit was over",
		task.ReasonStall:       "nothing of it made progress for longer than its stall limit",
		task.ReasonNotRecorded: "it ended, and nothing recorded how",
		task.ReasonPaneGone:    "its pane is gone, and nothing recorded how it ended",
		task.ReasonServerLost:  "its tmux server is gone (server lost), and nothing recorded how it ended",
		task.ReasonTruncated:   "its marker is empty (truncated marker)",
		task.ReasonMalformed:   "its marker holds what its wrapper does not write (malformed marker)",
	}[j.Reason]
	if j.SecondHand {
		text += " (second-hand: tmux says so, and no marker)"
	}
	if mark.Detail != "" {
		text = fmt.Sprintf("%s: %s", text, mark.Detail)
	}
	return text
}

// signalName names a signal, and says how a shell would put it.
func signalName(n int) string {
	names := map[int]string{1: "SIGHUP", 2: "SIGINT, interrupted", 3: "SIGQUIT", 6: "SIGABRT", 9: "SIGKILL, killed", 11: "SIGSEGV",
		13: "SIGPIPE", 15: "SIGTERM"}
	name := names[n]
	if name == "" {
		name = fmt.Sprintf("signal %d", n)
	}
	return fmt.Sprintf("%s (a shell would say %d)", name, 128+n)
}
