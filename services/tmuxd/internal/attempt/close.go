package attempt

import (
	"context"
	"time"

	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/core/task"
	"muxpost.dev/muxpost/internal/obs"
)

// closing is how far what is left of an attempt that is over was put away.
type closing struct {
	began  time.Time
	output bool
	tries  int
}

const (
	// sweepingTime is how long a wrapper may go on after the end of its command: it ends what that left behind.
	sweepingTime = 5 * time.Second
	// freeTick is how long to wait after the first failure to free a pane, and freeMax at most.
	freeTick = 250 * time.Millisecond
	freeMax  = time.Minute
)

// close puts away what is left of an attempt that is over: its processes, what its pane showed last, the pane. The turn is held.
func (k *keeping) close(ctx context.Context, m Memory) (next time.Duration, done bool) {
	r, c := k.r, &k.closing
	if c.began.IsZero() {
		c.began = time.Now()
	}
	if r.Disk.Alive(m) == session.ProcessAlive {
		if m.Outcome.Reason == task.ReasonMalformed || time.Since(c.began) > sweepingTime {
			_, _ = r.Disk.End(m, true)
			_ = r.Disk.EndWrapper(m)
		}
		return quickTick, false
	}
	if !c.output {
		// Only once the pane is dead has tmux read all that was written.
		c.output = r.keepOutput(ctx, m) || time.Since(c.began) > sweepingTime
		if !c.output {
			return quickTick, false
		}
		close(k.a.shown)
	}
	left, _ := r.Disk.End(m, true)
	retained := r.retains(*m.Outcome)
	if !retained && !r.release(ctx, m) {
		c.tries++
		return min(freeTick<<min(c.tries, 10), freeMax), false
	}
	err := r.change(k.a, func(m *Memory) bool {
		o := *m.Outcome
		o.Retained = retained
		if mark := r.Disk.Marker(*m); len(o.Remains) == 0 {
			o.Remains = mark.Remains
		}
		if len(o.Remains) == 0 {
			o.Remains = left
		}
		m.Outcome, m.Freed = &o, true
		return true
	})
	return freeMax, err == nil
}

// retains says whether the pane of an attempt with this outcome is kept for a look.
func (r *Runner) retains(o Outcome) bool {
	return r.cfg.KeepFailed && o.State != task.Succeeded && o.State != task.Stopped && o.State.Final()
}

// release ends the attempt's tmux server, if it still is there. It returns false when that has to be tried again.
func (r *Runner) release(ctx context.Context, m Memory) bool {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	seen, err := r.Tmux.Look(ctx, m.Target, m.Stamp)
	switch {
	case err != nil || seen.Answer == session.NoAnswer:
		return false
	case seen.Answer == session.NoServer:
		if r.Disk.ServerLives(m) == session.ProcessAlive {
			r.Tmux.Reopen(m.Pane.Server.Pid)
			return false
		}
		if m.Pane.ID == "" && r.Now().Sub(m.CreatedAt) < launchTime+lookTime {
			return false // what was sent to start it may still be under way
		}
		r.Tmux.Tidy(m.Target)
		return true
	}
	if seen.Respawned {
		// Whoever looks into it is left alone for as long as what he runs there lives.
		freed, err := r.Tmux.Free(ctx, m.Target, m.Pane)
		return err == nil && freed && r.gone(ctx, m)
	}
	if seen.Found.ID == "" {
		return true // what is there is not its own
	}
	if seen.Pane == task.Alive {
		r.Tmux.Nudge(seen.Found.Server.Pid)
		return false
	}
	_, err = r.Tmux.Free(ctx, m.Target, seen.Found)
	return err == nil && r.gone(ctx, m)
}

// gone waits a moment for the end of a server whose last session was ended.
func (r *Runner) gone(ctx context.Context, m Memory) bool {
	for range 40 {
		seen, err := r.Tmux.Look(ctx, m.Target, m.Stamp)
		switch {
		case err != nil || seen.Answer == session.NoAnswer:
		case seen.Answer == session.Answered && seen.Found.ID == "":
			return true
		case seen.Answer == session.NoServer && r.Disk.ServerLives(m) != session.ProcessAlive:
			r.Tmux.Tidy(m.Target)
			return true
		}
		if !pause(ctx, 10*time.Millisecond) {
			break
		}
	}
	return false
}

// keepOutput keeps what the pane shows. It returns true when there is nothing more to be had.
func (r *Runner) keepOutput(ctx context.Context, m Memory) bool {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	seen, err := r.Tmux.Look(ctx, m.Target, m.Stamp)
	if err != nil || seen.Answer == session.NoAnswer {
		return false
	}
	if seen.Answer == session.NoServer || seen.Found.ID == "" {
		return true
	}
	out, ok, err := r.Tmux.Output(ctx, m.Target, seen.Found)
	if err == nil && ok && out.Text != "" {
		err = r.Disk.Keep(m.ID, out)
	}
	if err != nil {
		r.Logger.WarnContext(ctx, "the output of an attempt could not be kept", obs.KeyAttemptID, m.ID, obs.KeyError, err)
	}
	if seen.Pane == task.Alive {
		r.Tmux.Nudge(seen.Found.Server.Pid)
	}
	return err == nil && seen.Pane != task.Alive
}
