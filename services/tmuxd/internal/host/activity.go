package host

import (
	"context"
	"time"

	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/core/workitem"
	"muxpost.dev/muxpost/services/tmuxd/internal/harness"
)

// Activity is what a living agent does.
type Activity uint8

// The activities. The zero value says nothing: there is no living agent of ours, or nobody can tell.
const (
	ActivityUnknown Activity = iota
	// ActivityStarting: its composer has not shown yet.
	ActivityStarting
	// ActivityIdle: it waits for a message. A turn that ended with a question in its text is over as well.
	ActivityIdle
	// ActivityWorking: a turn runs.
	ActivityWorking
	// ActivityApproval: a dialog waits for a person to allow or refuse something.
	ActivityApproval
	// ActivityInput: in the middle of a turn it asks a person something that is not an approval.
	ActivityInput
	// ActivityHuman: it cannot go on without a person, and that is no approval: a question of trust, a login.
	ActivityHuman
	// ActivityDraft: a person has text in its composer.
	ActivityDraft
	// ActivityUnclear: what it shows is not understood.
	ActivityUnclear
)

// Doing is what a living agent does, and since when. Nothing that is typed or ended may follow from it: it changes from moment to moment, and
// whatever runs as the agent's user can tell it.
type Doing struct {
	Activity Activity
	// Detail is a line on it for a person, in the agent's words.
	Detail string
	// Since is when it began, as far as is known.
	Since time.Time
	// SeenAt is when the agent's screen was seen so; zero where its program tells of each change.
	SeenAt time.Time
}

// told reports whether the program itself has told it.
func (d Doing) told() bool {
	return d.SeenAt.IsZero() && d.Activity != ActivityUnknown && d.Activity != ActivityStarting
}

// asks reports whether a person's answer is waited for.
func (d Doing) asks() bool {
	return d.Activity == ActivityApproval || d.Activity == ActivityInput || d.Activity == ActivityHuman
}

// after returns what is known of it after its screen was seen. What its program told is believed for a while before the screen, which lags behind,
// but where the screen shows what a program does not tell of: a draft, a question of trust.
func (d Doing) after(screen Doing, tells bool) Doing {
	settled := screen.Activity == ActivityIdle || screen.Activity == ActivityWorking
	switch {
	case !tells:
		return screen
	case d.told() && d.asks() && screen.Activity == d.Activity:
		d.Detail = screen.Detail // a title does not say what it is about
		return d
	case d.told() && settled && screen.Activity != d.Activity && screen.SeenAt.Sub(d.Since) > lateScreen:
		return screen // it is looked at again, for the program seems to have stopped telling
	case d.told() && (settled || d.asks() || screen.Activity == ActivityStarting),
		d.told() && d.Activity == ActivityWorking && screen.Activity == ActivityUnclear:
		return d
	case settled:
		screen.SeenAt = time.Time{} // its program tells of what comes next
	}
	return screen
}

// slowStart is how long an agent that shows no composer counts as starting.
const slowStart = 2 * time.Minute

// shown is what a screen shows of the agent of an incarnation that was started at a time.
func shown(hn *harness.Harness, r harness.Reading, started, now time.Time) Doing {
	d := Doing{Since: now, SeenAt: now}
	switch {
	case r.Failure != (harness.Failure{}):
		d.Activity, d.Detail = ActivityHuman, r.Failure.String()
	case r.Dialog && hn.AsksApproval(r.DialogRow):
		d.Activity, d.Detail = ActivityApproval, r.DialogRow
	case r.Dialog:
		d.Activity, d.Detail = ActivityHuman, r.DialogRow
	case r.Busy:
		d.Activity = ActivityWorking
	case r.Ready && r.Text != "":
		d.Activity = ActivityDraft
	case r.Ready:
		d.Activity = ActivityIdle
	case !started.IsZero() && now.Sub(started) < slowStart:
		d.Activity = ActivityStarting
	default:
		d.Activity, d.Detail = ActivityUnclear, "no composer, no turn and no dialog that its entry in the harness table knows"
	}
	return d
}

// Activity says what the agent of a work item does. Where its program tells that, it is what was told last, and costs nothing; else its screen is
// read, and with look in any case. It changes nothing.
func (h *Host) Activity(ctx context.Context, item workitem.Ref, look bool) Doing {
	if d := h.feed.doing(item.Target()); !look && d.told() {
		return d
	}
	s := h.seen(ctx, item)
	if s.state != session.Live || s.flags.Has(session.Foreign) || s.flags.Has(session.Detached) || s.pane == nil {
		return Doing{}
	}
	hn, err := h.Table.Find(s.status().Harness)
	if err != nil || !hn.Interactive() {
		return Doing{}
	}
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	screen, ok, err := h.Tmux.Capture(ctx, s.target, s.guard("", 0, time.Time{}))
	if err != nil || !ok || screen.Dead {
		return Doing{}
	}
	return h.saw(&s, hn, hn.Read(screen.Screen))
}

// saw takes what the screen of a session showed, and returns what is known of its agent by then.
func (h *Host) saw(s *sight, hn *harness.Harness, r harness.Reading) Doing {
	return h.feed.does(s.target, s.pane.Stamp, shown(hn, r, s.memory.CreatedAt, h.Now()), true)
}
