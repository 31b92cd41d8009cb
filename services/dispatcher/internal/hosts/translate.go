package hosts

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	"google.golang.org/protobuf/types/known/timestamppb"

	"muxpost.dev/muxpost/core/dispatch"
	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/session"
	tmuxdv1 "muxpost.dev/muxpost/proto/gen/muxpost/tmuxd/v1"
	"muxpost.dev/muxpost/services/dispatcher/internal/deliver"
)

// buildOf reads which build answers; one that says it in a line for people alone is known by that.
func buildOf(info *tmuxdv1.InfoResponse) deliver.Build {
	out := deliver.Build{Release: plain(info.GetRelease()), Commit: plain(info.GetCommit()), Dirty: info.GetDirty()}
	if out.Release == "" && out.Commit == "" && !strings.HasPrefix(info.GetVersion(), "devel") {
		out.Release = plain(info.GetVersion())
	}
	return out
}

func sightOf(a *tmuxdv1.SessionStateResponse) deliver.Sight {
	return deliver.Sight{
		Probe:       dispatch.ProbeOf(stateOf(a.GetState()), flagsOf(a.GetFlags())),
		Incarnation: incarnationOf(a.GetIncarnation()), Harness: plain(a.GetHarness()), ConversationID: plain(a.GetConversationId()),
		SocketPath: plain(a.GetSocketPath()), Directory: plain(a.GetDirectory()), Phase: phaseOf(a.GetDeliveryPhase()),
		JournalUnreadable: a.GetJournalUnreadable(), Detail: also(plain(a.GetDetail()), exitOf(a.GetExit())),
		Doing: doingOf(a),
	}
}

// telling is what says what an agent does: an answer, or a session that is told.
type telling interface {
	GetActivity() tmuxdv1.Activity
	GetActivityDetail() string
	GetActivitySince() *timestamppb.Timestamp
	GetActivitySeenAt() *timestamppb.Timestamp
}

func doingOf(t telling) deliver.Doing {
	return deliver.Doing{Activity: activityOf(t.GetActivity()), Detail: plain(t.GetActivityDetail()), Since: timeOf(t.GetActivitySince()),
		SeenAt: timeOf(t.GetActivitySeenAt())}
}

// timeOf reads a time; one that is unset or makes no sense is zero.
func timeOf(t *timestamppb.Timestamp) time.Time {
	if !t.IsValid() {
		return time.Time{}
	}
	return t.AsTime()
}

// activityOf reads an activity; one that is not known here is unclear.
func activityOf(a tmuxdv1.Activity) deliver.Activity {
	switch a {
	case tmuxdv1.Activity_ACTIVITY_UNSPECIFIED:
		return ""
	case tmuxdv1.Activity_ACTIVITY_STARTING:
		return deliver.Starting
	case tmuxdv1.Activity_ACTIVITY_IDLE:
		return deliver.Idle
	case tmuxdv1.Activity_ACTIVITY_WORKING:
		return deliver.Working
	case tmuxdv1.Activity_ACTIVITY_AWAITING_APPROVAL:
		return deliver.AwaitingApproval
	case tmuxdv1.Activity_ACTIVITY_DRAFT:
		return deliver.Draft
	case tmuxdv1.Activity_ACTIVITY_AWAITING_INPUT:
		return deliver.AwaitingInput
	case tmuxdv1.Activity_ACTIVITY_NEEDS_HUMAN:
		return deliver.NeedsHuman
	case tmuxdv1.Activity_ACTIVITY_UNCLEAR:
	}
	return deliver.Unclear
}

// stateOf reads a state; one that is not known here is Unknown, which permits nothing.
func stateOf(s tmuxdv1.State) session.State {
	switch s {
	case tmuxdv1.State_STATE_LIVE:
		return session.Live
	case tmuxdv1.State_STATE_DEAD:
		return session.Dead
	case tmuxdv1.State_STATE_ABSENT:
		return session.Absent
	case tmuxdv1.State_STATE_UNKNOWN, tmuxdv1.State_STATE_UNSPECIFIED:
	}
	return session.Unknown
}

func flagsOf(flags []tmuxdv1.Flag) (out session.Flags) {
	for _, f := range flags {
		switch f {
		case tmuxdv1.Flag_FLAG_GUESTS:
			out |= session.Guests
		case tmuxdv1.Flag_FLAG_FOREIGN:
			out |= session.Foreign
		case tmuxdv1.Flag_FLAG_DETACHED:
			out |= session.Detached
		case tmuxdv1.Flag_FLAG_MOVED:
			out |= session.Moved
		case tmuxdv1.Flag_FLAG_UNSPECIFIED:
		}
	}
	return out
}

func phaseOf(p tmuxdv1.Phase) session.Phase {
	switch p {
	case tmuxdv1.Phase_PHASE_PASTING:
		return session.Pasting
	case tmuxdv1.Phase_PHASE_PASTED:
		return session.Pasted
	case tmuxdv1.Phase_PHASE_SUBMITTED:
		return session.Submitted
	case tmuxdv1.Phase_PHASE_TAKEN:
		return session.Taken
	case tmuxdv1.Phase_PHASE_BOOT:
		return session.Boot
	case tmuxdv1.Phase_PHASE_HANDING:
		return session.Handing
	case tmuxdv1.Phase_PHASE_UNSPECIFIED:
	}
	return session.None
}

func incarnationOf(i *tmuxdv1.Incarnation) deliver.Incarnation {
	out := deliver.Incarnation{
		Stamp: plain(i.GetStamp()), SessionID: plain(i.GetSessionId()), PaneID: plain(i.GetPaneId()),
		PanePID: i.GetPanePid(), ServerPID: i.GetServerPid(),
	}
	out.ServerStarted = timeOf(i.GetServerStarted())
	return out
}

// exitOf says in words how an agent ended; empty when nothing is known of an end.
func exitOf(e *tmuxdv1.Exit) string {
	if e == nil {
		return ""
	}
	switch end := e.GetEnd().(type) {
	case *tmuxdv1.Exit_Code:
		return fmt.Sprintf("exit code %d", end.Code)
	case *tmuxdv1.Exit_Signal:
		return fmt.Sprintf("ended by signal %d", end.Signal)
	}
	return "ended, and nobody knows how"
}

func spawnOf(a *tmuxdv1.SpawnResponse) deliver.SpawnReport {
	switch o := a.GetOutcome().(type) {
	case *tmuxdv1.SpawnResponse_Started:
		return startedOf(o.Started)
	case *tmuxdv1.SpawnResponse_Occupied:
		spawn := dispatch.SpawnOccupied
		if by := o.Occupied.GetOccupant(); by == tmuxdv1.Occupant_OCCUPANT_FOREIGN || by == tmuxdv1.Occupant_OCCUPANT_UNCLEARABLE {
			spawn = dispatch.SpawnUnclearable
		}
		return deliver.SpawnReport{
			Spawn: spawn, Incarnation: incarnationOf(o.Occupied.GetIncarnation()),
			Detail: plain(o.Occupied.GetDetail()), Remedy: plain(o.Occupied.GetRemedy()),
		}
	case *tmuxdv1.SpawnResponse_NotStarted:
		lines := make([]string, 0, len(o.NotStarted.GetLastLines()))
		for _, l := range o.NotStarted.GetLastLines() {
			lines = append(lines, plain(l))
		}
		return deliver.SpawnReport{
			Spawn: diedOf(o.NotStarted.GetFailure()), Incarnation: incarnationOf(o.NotStarted.GetIncarnation()), LastLines: lines,
			Detail: also(exitOf(o.NotStarted.GetExit()), plain(o.NotStarted.GetFailureLine())),
		}
	case *tmuxdv1.SpawnResponse_Failed:
		return deliver.SpawnReport{Spawn: failedOf(o.Failed.GetReason()), Detail: also(plain(o.Failed.GetReason()), plain(o.Failed.GetDetail()))}
	}
	return deliver.SpawnReport{
		Spawn: dispatch.SpawnFailed, Detail: "the host's answer has no outcome; see that tmuxd and the dispatcher are of one release",
	}
}

// diedOf reads why a program ended right after its start. One that does not know its conversation just did not come up with it.
func diedOf(f tmuxdv1.Failure) dispatch.Spawn {
	switch f {
	case tmuxdv1.Failure_FAILURE_CONVERSATION_IN_USE:
		return dispatch.SpawnInUse
	case tmuxdv1.Failure_FAILURE_USAGE_LIMIT:
		return dispatch.SpawnLimited
	case tmuxdv1.Failure_FAILURE_AUTH:
		return dispatch.SpawnNotLoggedIn
	case tmuxdv1.Failure_FAILURE_UNSPECIFIED, tmuxdv1.Failure_FAILURE_CONVERSATION_UNKNOWN:
	}
	return dispatch.SpawnDied
}

func startedOf(s *tmuxdv1.Started) deliver.SpawnReport {
	out := deliver.SpawnReport{
		Spawn: dispatch.SpawnStarted, Incarnation: incarnationOf(s.GetIncarnation()), ConversationID: plain(s.GetConversationId()),
		SocketPath: plain(s.GetSocketPath()), Directory: plain(s.GetDirectory()), Detail: "incarnation " + plain(s.GetIncarnation().GetStamp()),
	}
	if s.GetPromptPhase() == tmuxdv1.Phase_PHASE_TAKEN {
		out.Spawn = dispatch.SpawnTaken
	}
	if s.GetAlreadyDone() {
		out.Detail = also(out.Detail, "started by an earlier call")
	}
	return out
}

// failedOf tells a spawn that tmux answered with an error from one that could not be tried now, which spends nothing.
func failedOf(reason string) dispatch.Spawn {
	switch reason {
	case "duplicate", "tmux_error":
		return dispatch.SpawnFailed
	}
	return dispatch.SpawnSilent
}

func pasteOf(a *tmuxdv1.PasteResponse) (dispatch.Paste, string) {
	switch v := a.GetVerdict().(type) {
	case *tmuxdv1.PasteResponse_Submitted:
		return dispatch.PasteSubmitted, evidenceOf(v.Submitted.GetEvidence())
	case *tmuxdv1.PasteResponse_AlreadyDelivered:
		return dispatch.PasteAlready, evidenceOf(v.AlreadyDelivered.GetEvidence())
	case *tmuxdv1.PasteResponse_Held:
		switch v.Held.GetReason() {
		case tmuxdv1.HoldReason_HOLD_REASON_NOT_READY:
			return dispatch.PasteNotReady, plain(v.Held.GetDetail())
		case tmuxdv1.HoldReason_HOLD_REASON_BUSY:
			return dispatch.PasteBusy, plain(v.Held.GetDetail())
		}
		return dispatch.PasteHeld, also(word(v.Held.GetReason().String(), "HOLD_REASON_"), plain(v.Held.GetDetail()))
	case *tmuxdv1.PasteResponse_Refused:
		detail := also(word(v.Refused.GetReason().String(), "REFUSAL_REASON_"), plain(v.Refused.GetDetail()))
		switch v.Refused.GetReason() {
		case tmuxdv1.RefusalReason_REFUSAL_REASON_DEAD, tmuxdv1.RefusalReason_REFUSAL_REASON_ABSENT:
			return dispatch.PasteRefusedGone, detail
		case tmuxdv1.RefusalReason_REFUSAL_REASON_FOREIGN:
			return dispatch.PasteRefusedForeign, detail
		case tmuxdv1.RefusalReason_REFUSAL_REASON_INCARNATION, tmuxdv1.RefusalReason_REFUSAL_REASON_NO_BRACKETED_PASTE,
			tmuxdv1.RefusalReason_REFUSAL_REASON_UNSPECIFIED:
		}
		return dispatch.PasteRefusedOther, detail
	case *tmuxdv1.PasteResponse_Unconfirmed:
		return dispatch.PasteUnconfirmed, plain(v.Unconfirmed.GetDetail())
	}
	return dispatch.PasteFailed, "the host's answer has no verdict; see that tmuxd and the dispatcher are of one release"
}

func evidenceOf(e tmuxdv1.Evidence) string {
	switch e {
	case tmuxdv1.Evidence_EVIDENCE_TRANSCRIPT:
		return "the agent's own transcript names it"
	case tmuxdv1.Evidence_EVIDENCE_SCREEN:
		return "the text left the composer"
	case tmuxdv1.Evidence_EVIDENCE_UNSPECIFIED:
	}
	return ""
}

// word turns the name of an enum's value into a word for people.
func word(name, prefix string) string {
	return strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(name, prefix), "_", " "))
}

// words is an error as a detail: what it says, without its remedy, which has a place of its own.
func words(err error) string {
	var f *fault.Error
	if errors.As(err, &f) {
		return plain(f.WithRemedy("").Error())
	}
	return plain(err.Error())
}

func remedy(err error) string {
	var f *fault.Error
	if errors.As(err, &f) {
		return plain(f.Remedy)
	}
	return ""
}

// also joins two details, either of which may be empty.
func also(a, b string) string {
	switch {
	case a == "":
		return b
	case b == "":
		return a
	}
	return a + ", " + b
}

// plain drops control characters from what a host says: it is shown to people and stored.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return -1
		}
		return r
	}, s)
}
