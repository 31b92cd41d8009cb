package host

import (
	"context"
	"slices"
	"time"

	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/core/workitem"
	"muxpost.dev/muxpost/internal/failpoint"
	"muxpost.dev/muxpost/internal/obs"
)

// Retain says how long what has ended is kept.
type Retain struct {
	// Age is how long the remains of an agent that ended are kept: its pane, and what is remembered of it.
	Age time.Duration
	// Count is how many panes of agents that ended are kept at most; the oldest go first. Each of them has a tmux server.
	Count int
	// Journal is how long the journal and the highest fencing token of a session are kept of which nothing else is; zero is for good.
	Journal time.Duration
}

const (
	// reapTime is how often what has ended is looked after.
	reapTime = 10 * time.Minute
	// reapWait is how long the reaper waits for its turn: who is at work on a session has no use for its end.
	reapWait = time.Second
	// leftGrace is what an agent left behind when its wrapper was killed has between TERM and KILL.
	leftGrace = 2 * time.Second
)

// closed is an incarnation that has ended.
type closed struct {
	target string
	item   workitem.Ref
	stamp  string
	// at is when it ended, or, where that is not known, when it began.
	at    time.Time
	state session.State
	// kept is why it is not removed whatever its age; empty when nothing speaks for it.
	kept string
}

// Reaping reaps at once and then every ten minutes, until ctx ends.
func (h *Host) Reaping(ctx context.Context, keep Retain) error {
	tick := time.NewTicker(reapTime)
	defer tick.Stop()
	for {
		h.Reap(ctx, keep)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// Reap removes what has ended and is too old, or too much: the sessions, and everything that is remembered of them but the highest fencing
// token and the journal, which go once they are old. What is not proven to be over is never touched: a session that lives or does not answer, one with guests, one that
// somebody looks at. It also ends what an agent left behind whose wrapper was killed before it could.
func (h *Host) Reap(ctx context.Context, keep Retain) {
	targets, err := h.Disk.Targets()
	if err != nil {
		h.Logger.WarnContext(ctx, "the sessions on disk cannot be listed", obs.KeyError, err)
	}
	unsettled, err := h.Disk.Unsettled()
	if err != nil {
		h.Logger.WarnContext(ctx, "the records on disk cannot be listed", obs.KeyError, err)
	}
	var over []closed
	for _, target := range targets {
		if ctx.Err() != nil {
			return
		}
		if c, ok := h.closed(ctx, target, unsettled[target]); ok {
			over = append(over, c)
		}
	}
	slices.SortFunc(over, func(a, b closed) int { return b.at.Compare(a.at) })
	var due []closed
	var reasons []string
	panes := 0
	for _, c := range over {
		if c.state == session.Dead {
			panes++
		}
		switch {
		case h.Now().Sub(c.at) > keep.Age:
			due, reasons = append(due, c), append(reasons, "age")
		case c.state == session.Dead && panes > keep.Count:
			due, reasons = append(due, c), append(reasons, "count")
		}
	}
	for i := len(due) - 1; i >= 0 && ctx.Err() == nil; i-- { // the oldest first
		h.reap(ctx, due[i], reasons[i])
	}
	removed, err := h.Disk.Tidy(h.Now(), keep.Age)
	for _, path := range removed {
		h.Logger.InfoContext(ctx, "a file that nobody owns any more was removed", obs.KeyPath, path)
	}
	if err != nil {
		h.Logger.WarnContext(ctx, "the state directory cannot be tidied", obs.KeyError, err)
	}
	if keep.Journal > 0 {
		h.retire(ctx, h.Now().Add(-keep.Journal))
	}
}

// retire removes what is left of targets to which nothing was delivered since a time, under the turn of each: nothing is delivered meanwhile.
func (h *Host) retire(ctx context.Context, since time.Time) {
	targets, err := h.Disk.Retired(since)
	if err != nil {
		h.Logger.WarnContext(ctx, "the journals on disk cannot be listed", obs.KeyError, err)
	}
	for _, target := range targets {
		_, release, ok := h.turn(ctx, closed{target: target})
		if !ok {
			continue
		}
		gone, err := h.Disk.Retire(target, since)
		release()
		switch {
		case err != nil:
			h.Logger.WarnContext(ctx, "a journal cannot be removed", obs.KeyTarget, target, obs.KeyError, err)
		case gone:
			h.Logger.InfoContext(ctx, "what was delivered to a session long ago is forgotten", obs.KeyTarget, target)
		}
	}
}

// closed settles what a target's killed wrappers left, and looks whether its last incarnation is over; ok is false when it is not. tmux is not
// asked about one that lives.
func (h *Host) closed(ctx context.Context, target string, unsettled []string) (c closed, ok bool) {
	m, known, err := h.Disk.Recall(target)
	item, parseErr := workitem.Parse(m.WorkItem)
	if err != nil || !known || parseErr != nil || item.Target() != target {
		return closed{}, false // Adopt has said so
	}
	c = closed{target: target, item: item, stamp: m.Stamp, at: m.CreatedAt}
	if over, err := h.settle(ctx, &c, unsettled); err != nil || !over {
		if err != nil {
			h.Logger.WarnContext(ctx, "whether an agent has ended cannot be told", obs.KeyTarget, target, obs.KeyIncarnation, m.Stamp,
				obs.KeyError, err)
		}
		return closed{}, false
	}
	s := h.seen(ctx, item)
	c.state = s.state
	switch {
	case s.flags.Has(session.Guests):
		c.kept = "somebody else lives in the session"
	case s.state == session.Dead && (s.pane == nil || s.pane.Stamp != m.Stamp):
		c.kept = "the session shows another incarnation than is remembered"
	}
	return c, s.state == session.Dead || s.state == session.Absent
}

// settle ends what the target's agents left behind whose wrapper was killed, as the wrapper would have done, and records that they were found so.
// Then it says whether the last one is over, and when it ended. What may be an agent that lives without its wrapper is not touched.
func (h *Host) settle(ctx context.Context, c *closed, unsettled []string) (over bool, err error) {
	for _, stamp := range unsettled {
		if err := h.conclude(ctx, *c, stamp); err != nil {
			return false, err
		}
	}
	if c.stamp == "" {
		return true, nil
	}
	ran, err := h.Disk.Ran(c.target, c.stamp)
	if err != nil || ran.Process == session.ProcessAlive || ran.Process == session.ProcessUnclear {
		return false, err
	}
	tree, err := h.Disk.Tree(c.target, c.stamp)
	if tree.Recorded {
		c.at = tree.EndedAt
	}
	return err == nil && len(tree.Pids) == 0, err
}

// conclude settles one incarnation, if its target's turn is to be had soon.
func (h *Host) conclude(ctx context.Context, c closed, stamp string) error {
	c.stamp = stamp
	e, release, ok := h.turn(ctx, c)
	if !ok {
		return nil
	}
	defer release()
	tree, err := h.Disk.Tree(c.target, stamp)
	if err != nil || tree.Wrapper || tree.Harness {
		return err
	}
	if left := len(tree.Pids); left > 0 {
		if tree, err = e.endLeft(ctx); err != nil {
			return err
		}
		h.Logger.InfoContext(ctx, "what an agent left behind whose wrapper was killed was ended", obs.KeyTarget, c.target, obs.KeyIncarnation, stamp,
			obs.KeyCount, left-len(tree.Pids))
	}
	if len(tree.Pids) > 0 {
		return nil
	}
	return h.Disk.Conclude(c.target, stamp, h.Now())
}

// endLeft ends what is left of an incarnation without a wrapper.
func (e *ending) endLeft(ctx context.Context) (Tree, error) {
	if err := e.h.Disk.Term(e.target, e.stamp); err != nil {
		return Tree{}, err
	}
	over, err := e.over(ctx, leftGrace)
	if err == nil && !over {
		err = e.h.Disk.Kill(e.target, e.stamp, true)
	}
	if err != nil {
		return Tree{}, err
	}
	return e.h.Disk.Tree(e.target, e.stamp)
}

// turn takes the turn of a target, if that is to be had soon.
func (h *Host) turn(ctx context.Context, c closed) (e *ending, release func(), ok bool) {
	ctx, cancel := context.WithTimeout(ctx, reapWait)
	defer cancel()
	slot, release, err := h.acquire(ctx, c.target)
	if err != nil {
		return nil, nil, false
	}
	return &ending{h: h, slot: slot, item: c.item, target: c.target, stamp: c.stamp}, release, true
}

// reap removes one incarnation that is over, if a look under the turn says so once more.
func (h *Host) reap(ctx context.Context, c closed, reason string) {
	kept := c.kept
	if kept == "" {
		e, release, ok := h.turn(ctx, c)
		if !ok {
			return
		}
		defer release()
		var err error
		if kept, err = e.reap(context.WithoutCancel(ctx)); err != nil {
			h.Logger.WarnContext(ctx, "a session that has ended could not be removed", obs.KeyTarget, c.target, obs.KeyIncarnation, c.stamp,
				obs.KeyError, err)
			return
		}
	}
	log := h.Logger.With(obs.KeyWorkItem, c.item.String(), obs.KeyTarget, c.target, obs.KeyIncarnation, c.stamp, obs.KeyReason, reason)
	if kept != "" {
		log.InfoContext(ctx, "a session that has ended is kept", obs.KeyOutcome, kept)
		return
	}
	if c.stamp != "" { // else a token was all that was remembered
		log.InfoContext(ctx, "a session that has ended was removed")
	}
}

// reap removes the session and what is remembered of it; kept says why it did not.
func (e *ending) reap(ctx context.Context) (kept string, err error) {
	h := e.h
	if e.sight, err = h.lookOwned(ctx, e.slot, e.item); err != nil {
		return "", err
	}
	if e.sight.memory.Stamp != e.stamp {
		return "it was started again", nil
	}
	token := e.sight.memory.Token
	if e.sight.pane != nil {
		token = max(token, e.sight.pane.Fence)
	}
	if e.sight.state == session.Dead {
		r, done, err := e.unclearable()
		if done || err != nil {
			return r.Detail, err
		}
		ruled, err := e.remove(ctx, func(ctx context.Context) (bool, error) {
			return h.Tmux.Remove(ctx, e.target, Removal{Stamp: e.stamp, Generation: e.slot.generation, Dead: true, Unattached: true})
		})
		if err != nil {
			return "", err
		}
		failpoint.Hit("tmuxd.reap.removed")
		if !ruled && e.sight.state == session.Dead {
			return "somebody looks at it, or it changed just now", nil
		}
	}
	if e.sight.state != session.Absent {
		return e.sight.why, nil
	}
	h.Tmux.Unlink(e.target)
	if stamp := e.sight.memory.Stamp; stamp != "" {
		h.Channels.Clear(stamp)
	}
	if err := h.Disk.Forget(e.target, token); err != nil {
		return "", err
	}
	e.slot.generation = "" // its server is gone
	return "", nil
}
