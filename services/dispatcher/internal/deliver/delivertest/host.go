// Package delivertest has a host and a store in memory for tests of deliveries, and the suite that holds a store to its contract.
//
// Both answer by the state that they are in, never by how often they were asked. It is for tests alone.
package delivertest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"muxpost.dev/muxpost/core/dispatch"
	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/services/dispatcher/internal/deliver"
)

// World is the state of a host with one session. A test sets it before a delivery and reads it after.
type World struct {
	// Unreachable: the host does not answer. Mute: it does, and tmux does not. Slow: every answer takes this long.
	Unreachable, Mute bool
	// Needed is why the agent is not to be ended unless that is ordered; empty when nobody needs it.
	Needed string
	// Draining: nothing more is to be started there.
	Draining bool
	Slow     time.Duration
	// Token is the highest fencing token that was seen.
	Token int64
	// State and Flags are the session's; Stamp, Harness and Conversation those of its incarnation.
	State        session.State
	Flags        session.Flags
	Stamp        string
	Harness      string
	Conversation string
	// Phases are those of deliveries; JournalLost makes them unreadable.
	Phases      map[string]session.Phase
	JournalLost bool
	// Hold is what a paste into the living session meets; zero takes it.
	Hold dispatch.Paste
	// NoEvidence: what was typed or started with leaves no trace.
	NoEvidence bool
	// Immortal: nothing ends the agent.
	Immortal bool
	// Resumes says which harnesses can resume.
	Resumes map[string]bool
	// ResumeEnds and FreshEnds are what becomes of a spawn instead of a start.
	ResumeEnds, FreshEnds dispatch.Spawn
	LastLines             []string
	// LosesAnswers: the act is done and its answer does not arrive.
	LosesAnswers bool
	// Typed are the deliveries that were typed, Prompts those that became a first prompt, in order.
	Typed, Prompts []string
	// Resumed and Fresh count sessions started, Died those that ended right after their start.
	Resumed, Fresh, Died int
}

// Host is deliver.Host on a World.
type Host struct {
	mu    sync.Mutex
	world World
	name  string
	// Before and After, when set, run around each act ("probe", "spawn", "paste") without the world being locked.
	Before, After func(act string)
	deadlines     []time.Duration
}

var _ deliver.Host = (*Host)(nil)

// NewHost returns a host of that name.
func NewHost(name string, w World) *Host {
	if w.Phases == nil {
		w.Phases = map[string]session.Phase{}
	}
	return &Host{name: name, world: w}
}

// Change changes the world.
func (h *Host) Change(change func(*World)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change(&h.world)
}

// World returns the world as it is.
func (h *Host) World() World {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.world
}

// Budgets returns how long each act was allowed to take.
func (h *Host) Budgets() []time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.deadlines
}

// act runs fn on the world around which Before and After are called. It reports false when the host does not answer.
func (h *Host) act(ctx context.Context, name string, fn func(w *World)) bool {
	if h.Before != nil {
		h.Before(name)
	}
	if h.After != nil {
		defer h.After(name)
	}
	h.mu.Lock()
	w := h.world
	if deadline, ok := ctx.Deadline(); ok {
		h.deadlines = append(h.deadlines, time.Until(deadline))
	}
	h.mu.Unlock()
	if w.Slow > 0 {
		timer := time.NewTimer(w.Slow)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	if w.Unreachable || ctx.Err() != nil {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	fn(&h.world)
	return true
}

// Probe says what the world is.
func (h *Host) Probe(ctx context.Context, _, deliveryID string) (s deliver.Sight) {
	answered := h.act(ctx, "probe", func(w *World) {
		s = deliver.Sight{Host: h.name, Phase: w.Phases[deliveryID], JournalUnreadable: w.JournalLost}
		if w.JournalLost {
			s.Phase = session.None
		}
		if w.Mute {
			s.Probe, s.Detail = dispatch.ProbeUnknown, "the tmux server did not answer"
			return
		}
		s.Probe, s.Detail, s.SocketPath = dispatch.ProbeOf(w.State, w.Flags), "as the world is", "/run/x y.sock"
		// Its memory outlives the session.
		s.Incarnation, s.Harness, s.ConversationID = deliver.Incarnation{Stamp: w.Stamp}, w.Harness, w.Conversation
	})
	if !answered {
		return deliver.Sight{Host: h.name, Probe: dispatch.ProbeUnreachable, Detail: "nobody answers"}
	}
	return s
}

// Spawn starts the session unless the world says otherwise.
func (h *Host) Spawn(ctx context.Context, o deliver.SpawnOrder) (report deliver.SpawnReport, err error) {
	lost := false
	answered := h.act(ctx, "spawn", func(w *World) {
		lost = w.LosesAnswers
		if err = w.fence(o.Token); err == nil {
			report = w.spawn(o)
		}
	})
	if !answered || lost {
		return deliver.SpawnReport{Spawn: dispatch.SpawnSilent, Detail: "nobody answers"}, nil
	}
	return report, err
}

func (w *World) fence(token int64) error {
	if token < w.Token {
		return fault.Newf(fault.Fenced, fault.ReasonOlderToken, "the token %d is older than %d", token, w.Token)
	}
	w.Token = token
	return nil
}

func (w *World) spawn(o deliver.SpawnOrder) deliver.SpawnReport {
	ours := deliver.Incarnation{Stamp: w.Stamp}
	switch {
	case w.Mute:
		return deliver.SpawnReport{Spawn: dispatch.SpawnSilent, Detail: "tmux_no_answer"}
	case w.State == session.Live && w.Flags == 0:
		return deliver.SpawnReport{Spawn: dispatch.SpawnOccupied, Incarnation: ours, Detail: "a live session of this work item"}
	case w.State == session.Live, w.Flags.Has(session.Guests):
		return deliver.SpawnReport{Spawn: dispatch.SpawnUnclearable, Detail: "not ours", Remedy: "tmux -S /s kill-session"}
	case o.Resume != "" && w.ResumeEnds != dispatch.SpawnNotTried:
		return w.ended(w.ResumeEnds, "the resume ended")
	case o.Resume == "" && w.FreshEnds != dispatch.SpawnNotTried:
		return w.ended(w.FreshEnds, "the start ended")
	}
	w.State, w.Flags, w.Harness = session.Live, 0, o.Harness
	if o.Resume != "" {
		w.Resumed++
		w.Conversation = o.Resume
	} else {
		w.Fresh++
		w.Conversation = fmt.Sprintf("fresh-%d", w.Fresh)
	}
	w.Stamp = fmt.Sprintf("stamp-%d", w.Resumed+w.Fresh)
	report := deliver.SpawnReport{
		Spawn: dispatch.SpawnStarted, Incarnation: deliver.Incarnation{Stamp: w.Stamp}, ConversationID: w.Conversation, SocketPath: "/s",
	}
	if o.DeliveryID != "" {
		w.Prompts = append(w.Prompts, o.DeliveryID)
		w.Phases[o.DeliveryID] = session.Boot
		if !w.NoEvidence {
			w.Phases[o.DeliveryID], report.Spawn = session.Taken, dispatch.SpawnTaken
		}
	}
	return report
}

// ended is a spawn that came to something else than a living agent.
func (w *World) ended(as dispatch.Spawn, detail string) deliver.SpawnReport {
	report := deliver.SpawnReport{Spawn: as, Detail: detail, LastLines: w.LastLines}
	if as == dispatch.SpawnDied || as.HasCause() {
		w.Died++
		report.Incarnation.Stamp = fmt.Sprintf("died-%d", w.Died)
		w.State, w.Stamp = session.Dead, report.Incarnation.Stamp
	}
	return report
}

// Paste types the delivery unless the world says otherwise.
func (h *Host) Paste(ctx context.Context, o deliver.PasteOrder) (report deliver.PasteReport, err error) {
	lost := false
	answered := h.act(ctx, "paste", func(w *World) {
		lost = w.LosesAnswers || w.Mute
		if err = w.fence(o.Token); err == nil && !w.Mute {
			report.Paste = w.paste(o)
		}
	})
	if !answered || lost {
		return deliver.PasteReport{Paste: dispatch.PasteSilent, Detail: "nobody answers"}, nil
	}
	return report, err
}

func (w *World) paste(o deliver.PasteOrder) dispatch.Paste {
	phase := w.Phases[o.DeliveryID]
	switch {
	case phase == session.Taken, phase.MayHaveArrived() && !w.NoEvidence:
		w.Phases[o.DeliveryID] = session.Taken
		return dispatch.PasteAlready
	case phase.MayHaveArrived():
		return dispatch.PasteUnconfirmed
	case w.State == session.Dead, w.State == session.Absent:
		return dispatch.PasteRefusedGone
	case w.Flags.Has(session.Foreign):
		return dispatch.PasteRefusedForeign
	case o.Stamp != "" && o.Stamp != w.Stamp:
		return dispatch.PasteRefusedOther
	case w.Hold != dispatch.PasteNotTried:
		return w.Hold
	}
	w.Typed = append(w.Typed, o.DeliveryID)
	w.Phases[o.DeliveryID] = session.Submitted
	if w.NoEvidence {
		return dispatch.PasteUnconfirmed
	}
	w.Phases[o.DeliveryID] = session.Taken
	return dispatch.PasteSubmitted
}

// Terminate ends the living incarnation that is named.
func (h *Host) Terminate(ctx context.Context, o deliver.TerminateOrder) (report deliver.TerminateReport, err error) {
	answered := h.act(ctx, "terminate", func(w *World) {
		switch {
		case o.Token < w.Token:
			err = fault.New(fault.Fenced, fault.ReasonOlderToken, "a newer token was seen")
		case w.State != session.Live || w.Flags.Has(session.Foreign) || w.Stamp != o.Stamp:
			report.Detail = "another incarnation"
		case o.Unneeded && w.Needed != "":
			report.Detail = w.Needed
		case w.Immortal:
			report.Detail = "it still lives"
		default:
			w.Token, w.State, w.Flags, report = o.Token, session.Dead, 0, deliver.TerminateReport{Ended: true, Detail: "ended by signal 15"}
		}
	})
	if !answered {
		err = fault.New(fault.Unavailable, fault.ReasonHostUnreachable, "no answer")
	}
	return report, err
}

// Resumes reports what the world says of a harness.
func (h *Host) Resumes(harness string) (resumes, known bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	resumes, known = h.world.Resumes[harness]
	return resumes, known
}
