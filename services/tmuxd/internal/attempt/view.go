package attempt

import (
	"context"
	"strings"
	"time"

	"muxpost.dev/muxpost/core/task"
)

// Attempt is what is known of an attempt.
type Attempt struct {
	Memory
	// State and Reason are those of the outcome, or what is known before there is one, since Since.
	State  task.State
	Reason task.Reason
	Since  time.Time
	// StartedAt is when the command was started; zero when it was not, or that is not known.
	StartedAt time.Time
	// ProgressAt is when it was last seen to make progress; zero while that is not known.
	ProgressAt time.Time
	// Head and Uncommitted say how the worktree of one that is over was left; only Get with output tells them.
	Head        string
	Uncommitted int
	// Cut is true when it showed more than what is kept of it, which is the end; likewise.
	Cut bool
}

// showTime is how long whoever asks for the output of an attempt that is over waits for the last of it.
const showTime = sweepingTime + time.Second

// view is the attempt as it is told.
func (a *attempt) view() Attempt {
	a.mu.Lock()
	defer a.mu.Unlock()
	v := Attempt{Memory: a.memory, State: a.state, Reason: a.reason, Since: a.since, StartedAt: a.started, ProgressAt: a.moved}
	if o := a.memory.Outcome; o != nil {
		v.State, v.Reason, v.Since, v.StartedAt = o.State, o.Reason, o.SettledAt, o.StartedAt
	}
	return v
}

// same reports whether a reader would be told the same.
func (a Attempt) same(b Attempt) bool {
	return a.State == b.State && a.Reason == b.Reason && a.StartedAt.Equal(b.StartedAt) && (a.Order == nil) == (b.Order == nil) &&
		a.Pane.ID == b.Pane.ID
}

// Running returns how many attempts are not over.
func (r *Runner) Running() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range r.attempts {
		if a.recall().Outcome == nil {
			n++
		}
	}
	return n
}

// Get returns an attempt, with output what its pane showed last: of a running one now, of one that is over at its end.
func (r *Runner) Get(ctx context.Context, id string, output bool) (a Attempt, text string, err error) {
	found, err := r.find(id)
	if err != nil {
		return Attempt{}, "", err
	}
	v := found.view()
	if !output {
		return v, "", nil
	}
	if v.Outcome == nil && v.Pane.ID != "" {
		ctx, cancel := context.WithTimeout(ctx, lookTime)
		defer cancel()
		if out, ok, err := r.Tmux.Output(ctx, v.Target, v.Pane); err == nil && ok {
			v.Cut = out.Cut
			return v, out.Text, nil
		}
		return v, "", nil
	}
	// It is told to be over as soon as its end is known, and only afterwards has tmux read all that it wrote.
	shown, cancel := context.WithTimeout(ctx, showTime)
	defer cancel()
	select {
	case <-found.shown:
	case <-shown.Done():
	}
	if v.Worktree && v.Outcome != nil {
		if v.Head, v.Uncommitted, err = r.Worktrees.Left(ctx, v.Directory); err != nil {
			return v, "", err
		}
	}
	out, err := r.Disk.Kept(id)
	if err != nil {
		return v, "", storage(err)
	}
	v.Cut = out.Cut
	return v, out.Text, nil
}

// WorksBelow returns the id of an attempt that is not over and works in a directory or below it; empty when none does. A nil runner has none.
func (r *Runner) WorksBelow(dir string) string {
	if r == nil {
		return ""
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, a := range r.attempts {
		if m := a.recall(); m.Outcome == nil && (m.Directory == dir || strings.HasPrefix(m.Directory, strings.TrimSuffix(dir, "/")+"/")) {
			return id
		}
	}
	return ""
}
