package host

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/core/workitem"
	"muxpost.dev/muxpost/internal/failpoint"
	"muxpost.dev/muxpost/internal/obs"
)

// TerminateRequest names the incarnation to end.
type TerminateRequest struct {
	Item  workitem.Ref
	Stamp string
	Token int64
	// Grace is how long it has between TERM and KILL; zero means DefaultGrace, and MaxGrace is the most.
	Grace time.Duration
	// Unneeded ends it only if nobody needs it: it waits for a message, nobody looks at it in a terminal, its composer is empty, and the
	// repository's tree that it works in, if it has one, holds nothing that is not committed and pushed.
	Unneeded bool
}

// The times between TERM and KILL.
const (
	DefaultGrace = 5 * time.Second
	MaxGrace     = time.Minute
)

// EndOutcome says what came of ending something.
type EndOutcome uint8

// What can come of ending something. The zero value claims that something may still live.
const (
	EndRemains EndOutcome = iota
	EndDone
	EndRefused
)

// String returns the outcome's name, for the log.
func (o EndOutcome) String() string {
	return [...]string{EndRemains: "remains", EndDone: "ended", EndRefused: "refused"}[o]
}

// EndResult is what came of a Terminate or a Kill.
type EndResult struct {
	Target  string
	Outcome EndOutcome
	// Already is true with EndDone when there was nothing to end, or to remove, any more.
	Already bool
	// Exit is how the agent ended, with EndDone of a Terminate.
	Exit Exit
	// Killed is true when a TERM was not enough.
	Killed bool
	// Whole is true when it is proven that nothing is left that the agent started.
	Whole bool
	// Cause says why, with EndRefused.
	Cause Cause
	// Pids live on, with EndRemains.
	Pids   []int
	Detail string
}

const (
	// sweepWait is how long a wrapper may take to end what its harness left behind.
	sweepWait = 4 * time.Second
	// endTick is how often it is looked whether something has ended, and treeTick how often every process is looked at for that.
	endTick, treeTick = 20 * time.Millisecond, 200 * time.Millisecond
	// noticeTime is how long tmux may take to notice an end.
	noticeTime = 3 * time.Second
	// beginTime is how long a wrapper may take between taking its spec and its first record.
	beginTime = time.Second
	// mostPids bounds how many processes are named.
	mostPids = 20
)

// ending is one end under way.
type ending struct {
	h      *Host
	slot   *slot
	item   workitem.Ref
	target string
	stamp  string
	token  int64
	grace  time.Duration
	sight  sight
}

// Terminate ends one incarnation with all that it started: TERM, a grace, KILL, and a look whether it is gone. Its pane stays, so that what it
// showed can be read. An end that was ordered before, or came by itself, is told as done.
//
// A tmux server that does not answer stops nobody: the processes are known from the wrapper's record on disk, each by its pid and its start,
// and that they are gone is seen without tmux. Only where nothing was recorded of the incarnation, tmux alone could tell, and its silence is an
// error. What the pane shows then, and that it is dead, is to be seen once the server answers again.
func (h *Host) Terminate(ctx context.Context, req TerminateRequest) (EndResult, error) {
	e := &ending{h: h, item: req.Item, target: req.Item.Target(), stamp: req.Stamp, token: req.Token, grace: req.Grace}
	if e.grace == 0 {
		e.grace = DefaultGrace
	}
	if err := checkStamp(req.Stamp); err != nil {
		return EndResult{}, err
	}
	if e.grace < 0 || e.grace > MaxGrace {
		return EndResult{}, fault.Newf(fault.Invalid, fault.ReasonBadArgument, "a grace of %v is asked for; it must be above zero and at most %v",
			req.Grace, MaxGrace)
	}
	release, err := e.begin(ctx)
	if err != nil {
		return EndResult{}, err
	}
	defer release()
	if req.Unneeded {
		if why := e.needed(ctx); why != "" {
			return EndResult{Target: e.target, Outcome: EndRefused, Cause: RefusedNeeded, Detail: why}, nil
		}
	}
	r, err := e.terminate(context.WithoutCancel(ctx))
	failpoint.Hit("tmuxd.terminate.answering")
	r.Target = e.target
	return r, err
}

// needed says why an agent may be needed; empty when it is certain that it is not. It is asked in the session's turn, so that no delivery of ours
// comes between it and the end.
func (e *ending) needed(ctx context.Context) string {
	h, s := e.h, e.sight
	if s.state != session.Live || s.flags != 0 || !e.shown() {
		return "it is no living agent of ours that could be asked: " + s.why
	}
	hn, err := h.Table.Find(s.status().Harness)
	if err != nil || !hn.Interactive() {
		return "nobody knows how its program shows what it does"
	}
	lookCtx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	screen, ok, err := h.Tmux.Capture(lookCtx, s.target, s.guard("", 0, time.Time{}))
	if err != nil || !ok || screen.Dead {
		return "its screen cannot be read"
	}
	switch r := hn.Read(screen.Screen); {
	case screen.Attended:
		return "somebody looks at it in a terminal"
	case r.Dialog:
		return "a dialog waits for a person"
	case r.Busy:
		return "a turn is running"
	case !r.Ready:
		return "it does not show its composer"
	case r.Text != "":
		return "a person has text in its composer"
	case len(s.guests) > 0:
		return "something else runs in its session"
	}
	if unsaved := h.Trees.Unsaved(ctx, e.item, s.status().Directory); unsaved != "" {
		return "its working tree is not pushed: " + unsaved
	}
	return ""
}

func checkStamp(stamp string) error {
	if !session.ValidDeliveryID(stamp) { // the same alphabet: it is part of file names
		return fault.Newf(fault.Invalid, fault.ReasonBadArgument, "%q is no incarnation's stamp: name the one that is meant", stamp).
			WithRemedy("SessionState tells which incarnation there is")
	}
	return nil
}

// begin takes the turn, looks, and checks the token. Once begun, an end is brought to its end, whatever becomes of the caller.
func (e *ending) begin(ctx context.Context) (release func(), err error) {
	if e.slot, release, err = e.h.acquire(ctx, e.target); err != nil {
		return nil, err
	}
	// A server that falls silent in the middle of this has been seen as far as it was seen, which is all that a Terminate needs of it; a
	// Kill finds the generation missing and asks again.
	e.sight, _ = e.h.lookOwned(context.WithoutCancel(ctx), e.slot, e.item)
	if err = e.h.fence(e.sight, e.token); err != nil {
		release()
		return nil, err
	}
	return release, nil
}

// shown reports whether the session shows the incarnation that is meant.
func (e *ending) shown() bool { return e.sight.pane != nil && e.sight.pane.Stamp == e.stamp }

// terminate ends the incarnation if it is the one that lives, or says why not.
func (e *ending) terminate(ctx context.Context) (EndResult, error) {
	h, s := e.h, e.sight
	// A start of it that nobody has begun cannot be begun any more.
	revoked := h.Disk.Revoke(e.stamp)
	tree, err := e.tree(ctx)
	switch {
	case err != nil:
		return EndResult{}, fault.Wrap(fault.Unavailable, fault.ReasonStorage, "what lives of the incarnation cannot be told from its record", err)
	case len(tree.Pids) > 0:
		return e.end(ctx)
	case e.shown(), !s.flags.Has(session.Foreign) && s.pane == nil && s.memory.Stamp == e.stamp:
		if s.state == session.Unknown && !tree.Known && !revoked {
			return EndResult{}, silence(fmt.Errorf("%s", s.why))
		}
		r := e.gone(ctx, tree)
		r.Already = true
		return r, nil
	}
	return e.notThere()
}

// notThere answers for an incarnation of which nothing lives and that the session does not show.
func (e *ending) notThere() (EndResult, error) {
	s := e.sight
	refuse := func(c Cause, detail string) (EndResult, error) {
		return EndResult{Outcome: EndRefused, Cause: c, Detail: detail}, nil
	}
	switch {
	case s.state == session.Unknown:
		return EndResult{}, silence(fmt.Errorf("%s", s.why))
	case s.flags.Has(session.Foreign):
		return refuse(RefusedForeign, s.why)
	case s.pane == nil && (s.state == session.Absent || s.memory.Stamp == ""):
		return refuse(RefusedAbsent, s.why)
	}
	return refuse(RefusedIncarnation, "another incarnation is there: "+s.incarnation().Stamp)
}

// tree looks for what lives of the incarnation. One that lives in its pane and has no record (the state directory was lost, say) is given one;
// a wrapper that has only just taken its spec writes it itself.
func (e *ending) tree(ctx context.Context) (Tree, error) {
	h, s := e.h, e.sight
	for end := time.Now().Add(beginTime); ; {
		t, err := h.Disk.Tree(e.target, e.stamp)
		if err != nil || t.Known || !e.shown() || s.pane.Dead || !s.pane.isAgents() {
			return t, err
		}
		if time.Now().After(end) {
			if err := h.Disk.Enroll(e.target, e.stamp, s.pane.Pid, s.view.Server.Pid); err != nil {
				return t, err
			}
			return h.Disk.Tree(e.target, e.stamp)
		}
		pause(ctx, endTick)
	}
}

// isAgents reports whether a pane of ours is the agent's own: a person's respawn-pane keeps everything but the pid.
func (p *Pane) isAgents() bool { return p.ID == p.AgentPane && strconv.Itoa(p.Pid) == p.AgentPid }

// end ends what lives of the incarnation.
func (e *ending) end(ctx context.Context) (EndResult, error) {
	h := e.h
	if err := h.Disk.Term(e.target, e.stamp); err != nil {
		return EndResult{}, unclear(err)
	}
	failpoint.Hit("tmuxd.terminate.asked")
	over, err := e.over(ctx, e.grace)
	killed := false
	if err == nil && !over {
		// A harness that took the TERM has ended; its wrapper is at what it left behind.
		if ran, ranErr := h.Disk.Ran(e.target, e.stamp); ranErr == nil && ran.Ended {
			over, err = e.over(ctx, sweepWait)
		}
	}
	for _, wrapperToo := range []bool{false, true} {
		if err != nil || over {
			break
		}
		killed = true
		if err = h.Disk.Kill(e.target, e.stamp, wrapperToo); err == nil {
			over, err = e.over(ctx, sweepWait)
		}
		if !wrapperToo {
			failpoint.Hit("tmuxd.terminate.killed")
		}
	}
	if err != nil {
		return EndResult{}, unclear(err)
	}
	tree, err := h.Disk.Tree(e.target, e.stamp)
	if err != nil {
		return EndResult{}, unclear(err)
	}
	if len(tree.Pids) > 0 {
		return remains(tree.Pids, "they outlived a KILL: they hang in the kernel, or belong to another user"), nil
	}
	r := e.gone(ctx, tree)
	r.Killed = killed
	return r, nil
}

// over waits until nothing lives of the incarnation, or the time is over.
func (e *ending) over(ctx context.Context, limit time.Duration) (bool, error) {
	h := e.h
	for end := time.Now().Add(limit); ; {
		ran, err := h.Disk.Ran(e.target, e.stamp)
		if err != nil {
			return false, err
		}
		tick := endTick
		if ran.Process != session.ProcessAlive {
			tree, err := h.Disk.Tree(e.target, e.stamp)
			if err != nil || len(tree.Pids) == 0 {
				return err == nil, err
			}
			tick = treeTick
		}
		if !time.Now().Before(end) {
			return false, nil
		}
		pause(ctx, tick)
	}
}

// gone records an incarnation of which nothing lives, and has its tmux server notice.
func (e *ending) gone(ctx context.Context, tree Tree) EndResult {
	h := e.h
	if tree.Known {
		if err := h.Disk.Conclude(e.target, e.stamp, h.Now()); err != nil {
			// It has ended all the same, and the next look sees it so.
			h.Logger.WarnContext(ctx, "the end of an incarnation could not be recorded", obs.KeyTarget, e.target, obs.KeyError, err)
		}
	}
	e.sight = h.seen(ctx, e.item)
	for end := time.Now().Add(noticeTime); e.sight.state == session.Live && e.shown() && time.Now().Before(end); {
		h.Tmux.Nudge(e.sight.view.Server)
		pause(ctx, endTick)
		e.sight = h.seen(ctx, e.item)
	}
	r := EndResult{Outcome: EndDone, Whole: tree.Known && tree.Whole}
	if ran, err := h.Disk.Ran(e.target, e.stamp); err == nil && ran.Exit.Known {
		r.Exit = ran.Exit
	} else if e.shown() {
		r.Exit = e.sight.exit()
	}
	return r
}

func remains(pids []int, detail string) EndResult {
	return EndResult{Outcome: EndRemains, Pids: pids[:min(len(pids), mostPids)], Detail: detail}
}

// unclear is the error for processes of which nothing can be told.
func unclear(err error) error {
	return fault.Wrap(fault.Unavailable, fault.ReasonStorage, "whether the incarnation has ended cannot be told", err).
		WithRemedy("ask again; what was begun goes on from where it is")
}
