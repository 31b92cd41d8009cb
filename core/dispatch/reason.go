package dispatch

// Reason is a stable name for why a step was taken or a delivery ended as it did. The list is closed: docs/runbook.md explains
// each, and a test holds the two together.
type Reason string

// Reasons of steps.
const (
	// ReasonNone needs no explanation: it was delivered.
	ReasonNone Reason = ""
	// ReasonStart: nothing is known yet.
	ReasonStart Reason = "start"
	// ReasonFirst: the work item has no session yet.
	ReasonFirst Reason = "first"
	// ReasonNoConversation: no conversation id is recorded, so there is nothing to resume.
	ReasonNoConversation Reason = "no_conversation"
	// ReasonByConfiguration: the configuration wants fresh conversations.
	ReasonByConfiguration Reason = "by_configuration"
	// ReasonEvacuated: the work item was moved away from the host of its conversation by an operator's order.
	ReasonEvacuated Reason = "evacuated"
	// ReasonCannotResume: the harness has no interactive resume.
	ReasonCannotResume Reason = "cannot_resume"
	// ReasonBadConversationID: the recorded conversation id is malformed and never reaches a command line.
	ReasonBadConversationID Reason = "bad_conversation_id"
	// ReasonResumeFailed: the resume was tried and the agent did not come up with it.
	ReasonResumeFailed Reason = "resume_failed"
	// ReasonStarted: a session was started.
	ReasonStarted Reason = "started"
	// ReasonStampProvesOurs: a living session without a record carries our stamp.
	ReasonStampProvesOurs Reason = "stamp_proves_ours"
	// ReasonAnotherIncarnation: the living session is ours and another incarnation than the recorded one.
	ReasonAnotherIncarnation Reason = "another_incarnation"
	// ReasonSessionLives: the agent lives.
	ReasonSessionLives Reason = "session_lives"
	// ReasonConversationKnown: the session has no record and is gone, and the host knows its conversation.
	ReasonConversationKnown Reason = "conversation_known"
	// ReasonOccupantLives: the name was taken by a living session of ours when a respawn was about to start.
	ReasonOccupantLives Reason = "occupant_lives"
	// ReasonSessionUnparked: the item was parked, and its time is over or another version is running.
	ReasonSessionUnparked Reason = "session_unparked"
)

// Reasons of outcomes that are not delivered.
const (
	// ReasonStarting: the agent was started and has not shown its composer or its evidence yet.
	ReasonStarting Reason = "starting"
	// ReasonSessionHolds: the living session cannot take it now; the detail names the draft or the dialog.
	ReasonSessionHolds Reason = "session_holds"
	// ReasonNotReady: the agent's composer is not there yet.
	ReasonNotReady Reason = "not_ready"
	// ReasonBusy: the agent is at work on a turn, and takes the next message after it.
	ReasonBusy Reason = "busy"
	// ReasonHostUnreachable: the host did not answer.
	ReasonHostUnreachable Reason = "host_unreachable"
	// ReasonNoHost: no host may take the work item; the detail says why of each.
	ReasonNoHost Reason = "no_host"
	// ReasonHostDraining: the session ended on a host on which nothing more is to be started, and its conversation is there.
	ReasonHostDraining Reason = "host_draining"
	// ReasonTmuxNoAnswer: the tmux server of the session did not answer.
	ReasonTmuxNoAnswer Reason = "tmux_no_answer"
	// ReasonSpawnNoAnswer: the spawn got no answer, or could not be done now.
	ReasonSpawnNoAnswer Reason = "spawn_no_answer"
	// ReasonNoCapacity: as many agents live on the host as it may have, so none was started.
	ReasonNoCapacity Reason = "no_capacity"
	// ReasonSessionDetached: the agent's process lives on without its session; nothing is started beside it.
	ReasonSessionDetached Reason = "session_detached"
	// ReasonSessionEnded: the session is dead or absent, or was when it was to be pasted into.
	ReasonSessionEnded Reason = "session_ended"
	// ReasonHarnessExited: the harness ended right after its start.
	ReasonHarnessExited Reason = "harness_exited"
	// ReasonConversationInUse: the conversation is open in another process, so the agent did not come up with it.
	ReasonConversationInUse Reason = "conversation_in_use"
	// ReasonUsageLimit: the harness has reached a limit of use, and did not start.
	ReasonUsageLimit Reason = "usage_limit"
	// ReasonNotLoggedIn: the harness did not start, because nobody is logged in or its key is refused.
	ReasonNotLoggedIn Reason = "not_logged_in"
	// ReasonSpawnRefused: the host will not start what was asked for.
	ReasonSpawnRefused Reason = "spawn_refused"
	// ReasonSpawnError: the spawn was answered with an error.
	ReasonSpawnError Reason = "spawn_error"
	// ReasonPasteRefused: the session did not take the paste.
	ReasonPasteRefused Reason = "paste_refused"
	// ReasonPasteError: the paste was answered with an error.
	ReasonPasteError Reason = "paste_error"
	// ReasonNoEvidence: it was typed, and nothing shows whether it arrived.
	ReasonNoEvidence Reason = "no_evidence"
	// ReasonSessionOccupied: the session's name belongs to something that is not ours or cannot be cleared.
	ReasonSessionOccupied Reason = "session-occupied"
	// ReasonSpawnForbidden: policy allows no first spawn for this event.
	ReasonSpawnForbidden Reason = "spawn_forbidden"
	// ReasonTargetCollision: another work item's session is recorded under the name that this one would have.
	ReasonTargetCollision Reason = "target_collision"
	// ReasonSessionParked: the item's agents died so often within so short a time that none is started again by itself.
	ReasonSessionParked Reason = "session_parked"
	// ReasonSessionEnding: a person ordered the end of the session, and its host has not been there to carry it out.
	ReasonSessionEnding Reason = "session_ending"
	// ReasonPaused: an operator holds back the deliveries of this work item, or of all.
	ReasonPaused Reason = "paused"
	// ReasonShadow: the dispatcher runs in shadow mode and did nothing of what it would have done.
	ReasonShadow Reason = "shadow"
	// ReasonReopened: an operator took back that it was dropped, and nobody has asked for it again since.
	ReasonReopened Reason = "reopened"
	// ReasonLeaseHeld: another process is at work on this work item.
	ReasonLeaseHeld Reason = "lease_held"
	// ReasonDeadline: the delivery ran out of its 20 seconds; asking again goes on.
	ReasonDeadline Reason = "deadline"
)

// Reasons lists every reason but ReasonNone, for tests that must cover them all.
func Reasons() []Reason {
	return []Reason{
		ReasonStart, ReasonFirst, ReasonNoConversation, ReasonEvacuated, ReasonByConfiguration, ReasonCannotResume, ReasonBadConversationID,
		ReasonResumeFailed, ReasonStarted, ReasonStampProvesOurs, ReasonAnotherIncarnation, ReasonSessionLives,
		ReasonConversationKnown, ReasonOccupantLives, ReasonSessionUnparked,
		ReasonStarting, ReasonSessionHolds, ReasonNotReady, ReasonBusy, ReasonHostUnreachable, ReasonNoHost, ReasonHostDraining, ReasonTmuxNoAnswer,
		ReasonSpawnNoAnswer, ReasonNoCapacity, ReasonSessionDetached, ReasonSessionEnded, ReasonHarnessExited, ReasonConversationInUse,
		ReasonUsageLimit, ReasonNotLoggedIn, ReasonSpawnRefused,
		ReasonSpawnError, ReasonPasteRefused, ReasonPasteError, ReasonNoEvidence, ReasonSessionOccupied,
		ReasonSpawnForbidden, ReasonTargetCollision, ReasonSessionParked, ReasonSessionEnding, ReasonPaused, ReasonShadow, ReasonReopened, ReasonLeaseHeld, ReasonDeadline,
	}
}
