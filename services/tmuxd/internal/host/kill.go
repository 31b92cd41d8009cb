package host

import (
	"context"
	"fmt"
	"slices"
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/core/workitem"
	"muxpost.dev/muxpost/internal/failpoint"
)

// KillRequest names the session to remove.
type KillRequest struct {
	Item workitem.Ref
	// Stamp is the incarnation; empty only with Force, for a session that carries none.
	Stamp string
	Token int64
	// Force removes what lives: a person's order. Reason says whose and why.
	Force  bool
	Reason string
}

// removes is how often a session that changed just before it was removed is looked at again.
const removes = 3

// Kill removes a session, so that its name is free. Without force that is an incarnation that is proven dead, with nobody else in its session.
// With force it is the named incarnation and whatever lives in its session: first what the agent started is ended, then the session, and with
// it what a person has in it. What outlives that is named. The tmux server itself is never signalled: a person may have other sessions on it,
// and it ends by itself with its last one.
func (h *Host) Kill(ctx context.Context, req KillRequest) (EndResult, error) {
	if !req.Force || req.Stamp != "" {
		if err := checkStamp(req.Stamp); err != nil {
			return EndResult{}, err
		}
	}
	if req.Force && req.Reason == "" {
		return EndResult{}, fault.New(fault.Invalid, fault.ReasonBadArgument,
			"a reason is required with force: what lives is ended by a person's order, and the log says whose")
	}
	e := &ending{h: h, item: req.Item, target: req.Item.Target(), stamp: req.Stamp, token: req.Token, grace: DefaultGrace}
	release, err := e.begin(ctx)
	if err != nil {
		return EndResult{}, err
	}
	defer release()
	ctx = context.WithoutCancel(ctx)
	var r EndResult
	if req.Force {
		r, err = e.force(ctx)
	} else {
		r, err = e.clear(ctx)
	}
	r.Target = e.target
	return r, err
}

// clear removes a dead incarnation.
func (e *ending) clear(ctx context.Context) (EndResult, error) {
	for try := 1; ; try++ {
		if r, done, err := e.unclearable(); done || err != nil {
			return r, err
		}
		ruled, err := e.remove(ctx, func(ctx context.Context) (bool, error) {
			return e.h.Tmux.Remove(ctx, e.target, Removal{Stamp: e.stamp, Generation: e.slot.generation, Dead: true})
		})
		if err != nil {
			return EndResult{}, err
		}
		if e.sight.state == session.Absent {
			return EndResult{Outcome: EndDone}, nil
		}
		if try == removes {
			return EndResult{}, notRemoved(ruled)
		}
	}
}

// unclearable answers where there is nothing to clear: it is gone already, or it is not proven dead.
func (e *ending) unclearable() (r EndResult, done bool, err error) {
	s := e.sight
	refuse := func(c Cause, detail string) (EndResult, bool, error) {
		return EndResult{Outcome: EndRefused, Cause: c, Detail: detail}, true, nil
	}
	switch {
	case s.state == session.Unknown:
		return EndResult{}, false, silence(fmt.Errorf("%s", s.why))
	case s.state == session.Absent:
		return EndResult{Outcome: EndDone, Already: true}, true, nil
	case s.flags.Has(session.Foreign):
		return refuse(RefusedForeign, s.why)
	case s.pane != nil && !e.shown():
		return refuse(RefusedIncarnation, "another incarnation is there: "+s.pane.Stamp)
	case s.state == session.Live:
		return refuse(RefusedLive, s.why)
	case s.flags.Has(session.Guests):
		return refuse(RefusedGuests, s.why)
	case !e.shown():
		return refuse(RefusedIncarnation, "the session does not say which incarnation it is")
	}
	tree, err := e.h.Disk.Tree(e.target, e.stamp)
	if err != nil {
		return EndResult{}, false, unclear(err)
	}
	if len(tree.Pids) > 0 {
		return refuse(RefusedLive, fmt.Sprintf("its pane is dead, and %d processes that it started live on: terminate it first", len(tree.Pids)))
	}
	return EndResult{}, false, nil
}

// force removes the session with whatever lives in it.
func (e *ending) force(ctx context.Context) (EndResult, error) {
	h := e.h
	if r, refused, err := e.another(); refused || err != nil {
		return r, err
	}
	var ended EndResult
	if e.stamp != "" {
		var err error
		if ended, err = e.terminate(ctx); err != nil {
			return EndResult{}, err
		}
	}
	failpoint.Hit("tmuxd.kill.terminated")
	for try := 1; ; try++ {
		if e.sight = h.look(ctx, e.item); e.sight.state == session.Unknown {
			return EndResult{}, fault.Newf(fault.Unavailable, fault.ReasonTmuxNoAnswer, "the session was not removed: %s", e.sight.why).
				WithRemedy("if its tmux server is stopped, continue it with kill -CONT, then ask again")
		}
		if !e.there() {
			return e.freed(ctx, nil, ended, try == 1)
		}
		if r, refused, err := e.another(); refused || err != nil {
			return r, err
		}
		others, err := e.inSession()
		if err != nil {
			return EndResult{}, unclear(err)
		}
		ruled, err := e.remove(ctx, func(ctx context.Context) (bool, error) {
			return h.Tmux.Remove(ctx, e.target, Removal{Stamp: e.stamp, SessionID: e.sessionID(), Server: e.sight.view.Server,
				Generation: e.slot.generation})
		})
		if err != nil {
			return EndResult{}, err
		}
		if e.sight.state != session.Unknown && !e.there() {
			return e.freed(ctx, others, ended, false)
		}
		if try == removes {
			return EndResult{}, notRemoved(ruled)
		}
	}
}

// another refuses to remove by force what is not what was named.
func (e *ending) another() (r EndResult, refused bool, err error) {
	s := e.sight
	switch {
	case e.stamp == "" && s.pane != nil:
		return EndResult{}, false, fault.Newf(fault.Invalid, fault.ReasonBadArgument, "the session says that it is the incarnation %s: name it",
			s.pane.Stamp).WithRemedy("a stamp may be left out only where the session carries none")
	case e.stamp != "" && s.flags.Has(session.Foreign) && e.stampOfForeign() != e.stamp:
		return EndResult{Outcome: EndRefused, Cause: RefusedForeign, Detail: s.why}, true, nil
	case e.stamp != "" && s.pane != nil && !e.shown():
		return EndResult{Outcome: EndRefused, Cause: RefusedIncarnation, Detail: "another incarnation is there: " + s.pane.Stamp}, true, nil
	}
	return EndResult{}, false, nil
}

// stampOfForeign is the stamp that a session of somebody else's carries: of another work item, say.
func (e *ending) stampOfForeign() string {
	for _, p := range e.panes() {
		if p.Stamp != "" {
			return p.Stamp
		}
	}
	return ""
}

// there reports whether the server has a session of the name.
func (e *ending) there() bool { return slices.Contains(e.sight.view.Sessions, e.target) }

// panes are the panes of the session, as they were seen.
func (e *ending) panes() []Pane {
	return slices.DeleteFunc(slices.Clone(e.sight.view.Panes), func(p Pane) bool { return p.Session != e.target })
}

// sessionID is the id of the session; empty when it was not seen.
func (e *ending) sessionID() string {
	for _, p := range e.panes() {
		return p.SessionID
	}
	return ""
}

// inSession names what lives in the session's panes, and not in those that it shares with another one: these stay.
func (e *ending) inSession() ([]Life, error) {
	var pids []int
	for _, p := range e.panes() {
		shared := slices.ContainsFunc(e.sight.view.Panes, func(q Pane) bool { return q.ID == p.ID && q.Session != e.target })
		if !p.Dead && !shared {
			pids = append(pids, p.Pid)
		}
	}
	return e.h.Disk.Below(e.sight.view.Server.Pid, pids)
}

// freed answers once the name is free: what was in the session has a moment to end with it. ended is what came of its agent, and nothing says
// that there was no session.
func (e *ending) freed(ctx context.Context, others []Life, ended EndResult, nothing bool) (EndResult, error) {
	left := ended.Pids
	for end := time.Now().Add(noticeTime); ; {
		living, err := e.h.Disk.Living(others)
		if err != nil {
			return EndResult{}, unclear(err)
		}
		if len(living) == 0 || !time.Now().Before(end) {
			left = append(left, living...)
			break
		}
		pause(ctx, endTick)
	}
	if len(left) > 0 {
		return remains(left, "the session is gone, and what lived in it or was started by its agent lives on: end it by hand if nobody needs it"), nil
	}
	wasLive := ended.Outcome == EndDone && !ended.Already && e.stamp != ""
	return EndResult{Outcome: EndDone, Already: nothing && !wasLive, Whole: ended.Whole}, nil
}

// remove has an act of tmux remove the session, guarded, and looks what came of it. ruled is false when the guard refused, or when nobody
// knows what it said.
func (e *ending) remove(ctx context.Context, act func(context.Context) (bool, error)) (ruled bool, err error) {
	h := e.h
	if e.slot.generation == "" || e.slot.generation != e.sight.view.Generation {
		if err := h.advance(ctx, e.slot, e.target); err != nil {
			return false, err
		}
	}
	actCtx, cancel := context.WithTimeout(ctx, actTime)
	ruled, err = act(actCtx)
	cancel()
	failpoint.Hit("tmuxd.kill.removed")
	if noAnswer(err) {
		// It may still run: with the generation moved on it cannot, and the look tells what it did.
		if err := h.advance(ctx, e.slot, e.target); err != nil && h.Tmux.Dial(e.target) != session.NoServer {
			return false, err
		}
	} else if err != nil {
		return false, err
	}
	for range 40 {
		e.sight = h.seen(ctx, e.item)
		// The server ends a moment after its last session: until its process is gone, nothing is proven.
		if e.sight.state != session.Unknown || !pause(ctx, 25*time.Millisecond) {
			break
		}
	}
	return ruled, nil
}

// notRemoved is the error for a session that stood there after every try.
func notRemoved(ruled bool) error {
	what := "it changed just before every try"
	if ruled {
		what = "tmux said that it was"
	}
	return fault.New(fault.Unavailable, fault.ReasonTmuxNoAnswer, "the session was not removed: "+what).WithRemedy("ask again")
}
