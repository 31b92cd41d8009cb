package host

import (
	"context"
	"time"

	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/core/workitem"
)

// Activity is what a living agent does, as its screen shows it.
type Activity uint8

// The activities. The zero value says nothing: there is no living agent of ours, or nobody can tell.
const (
	ActivityUnknown Activity = iota
	// ActivityStarting: its composer has not shown yet.
	ActivityStarting
	// ActivityIdle: it waits for a message.
	ActivityIdle
	// ActivityWorking: a turn runs.
	ActivityWorking
	// ActivityDialog: a dialog waits for a person's answer.
	ActivityDialog
	// ActivityDraft: a person has text in its composer.
	ActivityDraft
	// ActivityUnclear: what it shows is not understood.
	ActivityUnclear
)

// slowStart is how long an agent that shows no composer counts as starting.
const slowStart = 2 * time.Minute

// Activity says what the agent of a work item does, and a line on it for a person, in the agent's words. It reads the screen and changes
// nothing; nothing that acts may follow from it, for a screen changes from moment to moment.
func (h *Host) Activity(ctx context.Context, item workitem.Ref) (Activity, string) {
	s := h.seen(ctx, item)
	if s.state != session.Live || s.flags.Has(session.Foreign) || s.flags.Has(session.Detached) || s.pane == nil {
		return ActivityUnknown, ""
	}
	hn, err := h.Table.Find(s.status().Harness)
	if err != nil || !hn.Interactive() {
		return ActivityUnknown, ""
	}
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	screen, ok, err := h.Tmux.Capture(ctx, s.target, s.guard("", 0, time.Time{}))
	if err != nil || !ok || screen.Dead {
		return ActivityUnknown, ""
	}
	switch r := hn.Read(screen.Screen); {
	case r.Dialog:
		return ActivityDialog, r.DialogRow
	case r.Busy:
		return ActivityWorking, ""
	case r.Ready && r.Text != "":
		return ActivityDraft, ""
	case r.Ready:
		return ActivityIdle, ""
	case !s.memory.CreatedAt.IsZero() && h.Now().Sub(s.memory.CreatedAt) < slowStart:
		return ActivityStarting, ""
	}
	return ActivityUnclear, "no composer, no turn and no dialog that its entry in the harness table knows"
}
