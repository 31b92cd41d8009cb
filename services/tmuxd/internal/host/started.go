package host

import (
	"context"
	"time"

	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/internal/failpoint"
	"muxpost.dev/muxpost/services/tmuxd/internal/harness"
)

// watch looks after a start for the survival window: a program that ends within it was not started. The agent's own record of its
// prompt ends the watch early.
func (sp *spawning) watch(ctx context.Context, m Memory, boots bool) (SpawnResult, error) {
	h := sp.h
	r := SpawnResult{Outcome: SpawnStarted, Conversation: m.Conversation, Resumed: sp.req.Resume != "", Directory: m.Directory,
		Incarnation: m.incarnation()}
	if boots {
		r.PromptPhase = session.Boot
	}
	// Once started, a start is watched to its end: a caller that went away must not leave a half-known one.
	ctx = context.WithoutCancel(ctx)
	var begun time.Time
	var sr search
	for tries, sent := 0, time.Now(); ; tries++ {
		ran, err := h.Disk.Ran(sp.target, m.Stamp)
		if err == nil && ran.Known && (ran.Ended || ran.Process == session.ProcessGone) {
			return sp.notStarted(ctx, m, ran), nil
		}
		if boots {
			if p, conversation := h.evidence(sp.harness, sp.target, m.Directory, sp.req.DeliveryID, &sr); p == recorded {
				failpoint.Hit("tmuxd.spawn.proven")
				r.PromptPhase = session.Taken
				sp.taken(ctx, m)
				if sp.harness.Learns() {
					h.learn(ctx, sp.target, m.Stamp, conversation)
					r.Conversation = conversation
				}
				return r, nil
			}
		}
		switch {
		case ran.Known && begun.IsZero():
			// A slow machine takes nothing from the time that the program is watched.
			begun = time.Now()
		case ran.Known && time.Since(begun) >= sp.harness.Survival, time.Since(sent) > bootTime+sp.harness.Survival:
			return r, nil
		case !ran.Known && (time.Since(sent) > bootTime || tries%lookEvery == lookEvery-1 && h.look(ctx, sp.req.Item).state == session.Dead):
			// A wrapper that has not begun is told not to; one that was quicker has begun, and is watched on.
			if h.Disk.Revoke(m.Stamp) {
				return sp.notStarted(ctx, m, ran), nil
			}
		}
		pause(ctx, startTick)
	}
}

// incarnation is the one that is remembered.
func (m Memory) incarnation() Incarnation {
	return Incarnation{Stamp: m.Stamp, SessionID: m.SessionID, PaneID: m.PaneID, PanePid: m.PanePid, Server: m.Server}
}

// taken records that the agent's own record has the first prompt. If that cannot be written, the next question finds out again.
func (sp *spawning) taken(ctx context.Context, m Memory) {
	h, id := sp.h, sp.req.DeliveryID
	_ = h.Disk.Append(sp.target, sp.entry(session.Taken, m.Stamp, m.Conversation), false)
	actCtx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	g := Guard{Stamp: m.Stamp, Pane: m.PaneID, Pid: m.PanePid, Session: m.SessionID, Generation: sp.slot.generation, Token: sp.req.Token}
	_, _ = h.Tmux.Record(actCtx, sp.target, g, id, session.Boot, session.Ring{}.With(id, session.Taken))
}

// notStarted reports the end of a program that did not survive its start.
func (sp *spawning) notStarted(ctx context.Context, m Memory, ran Ran) SpawnResult {
	h := sp.h
	// What is asked for next must not meet what is left of it: the wrapper ends what the program left behind, and then itself.
	for end := time.Now().Add(sweepWait); ran.Known && ran.Process != session.ProcessGone && time.Now().Before(end); pause(ctx, startTick) {
		if again, err := h.Disk.Ran(sp.target, m.Stamp); err == nil {
			ran = again
		}
	}
	r := SpawnResult{Outcome: SpawnNotStarted, Incarnation: m.incarnation(), Exit: ran.Exit, Detail: ran.Detail}
	h.Disk.Discard(m.Stamp)
	ctx, cancel := context.WithTimeout(ctx, 3*lookTime)
	defer cancel()
	g := Guard{Stamp: m.Stamp, Pane: m.PaneID, Pid: m.PanePid, Session: m.SessionID}
	if screen, ok, err := h.Tmux.Capture(ctx, sp.target, g); err == nil && ok {
		r.LastLines = lastLines(screen.Rows, 20)
	}
	if r.Exit.Known && r.Exit.Signal == 0 && r.Exit.Code != 0 {
		r.Failure = sp.harness.Failed(r.LastLines)
	}
	if r.Detail != "" && len(sp.harness.CompanionArgv(harness.Vars{})) > 0 {
		r.Detail += "; to do without its server, set tmuxd.harnesses." + sp.harness.Name + ".channel to paste"
	}
	if r.Detail == "" && !ran.Known {
		r.Detail = "the session's process ended before it could start the program"
	}
	return r
}
