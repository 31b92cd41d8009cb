package dispatch

// EventType is the type of something that people can follow: stored for good, and listed by the dispatcher.
type EventType string

// The events that the dispatcher emits. The list is closed: a test fails on one that is emitted and not listed, or listed and
// never emitted. Every event has the fields work_item, target, host, harness and delivery_id where they are known.
const (
	// DispatchQueued: a delivery was asked for the first time. Field kind.
	DispatchQueued EventType = "dispatch.queued"
	// DispatchSucceeded: a delivery is in its conversation. Fields kind, how, conversation_id.
	DispatchSucceeded EventType = "dispatch.succeeded"
	// DispatchFailed: a delivery was answered with a failure and may be tried again. Fields kind, reason, detail.
	DispatchFailed EventType = "dispatch.failed"
	// DispatchDropped: a delivery was ended with a reason. Fields kind, reason, remedy.
	DispatchDropped EventType = "dispatch.dropped"
	// DispatchPaused: an operator paused the deliveries of a work item, or of all (without a work item). Fields reason, who.
	DispatchPaused EventType = "dispatch.paused"
	// DispatchUnpaused: an operator ended a pause. Field who.
	DispatchUnpaused EventType = "dispatch.unpaused"
	// DispatchReopened: an operator took back that a delivery was dropped. Fields kind, reason (of the drop), who.
	DispatchReopened EventType = "dispatch.reopened"
	// SessionSpawned: a first session was started. Fields conversation_id, incarnation.
	SessionSpawned EventType = "session.spawned"
	// SessionSpawnFailed: a first session could not be started. Fields reason, remedy.
	SessionSpawnFailed EventType = "session.spawn_failed"
	// SessionRespawned: a session came back. Fields resumed, conversation_id, incarnation.
	SessionRespawned EventType = "session.respawned"
	// SessionRespawnAverted: a respawn found a living occupant of ours, and the delivery went into it. Field kind.
	SessionRespawnAverted EventType = "session.respawn_averted"
	// SessionResumeFailed: a conversation could not be resumed; a fresh one is started. Fields reason, conversation_id.
	SessionResumeFailed EventType = "session.resume_failed"
	// SessionRegistered: a session was recorded because its stamp, or what the host knows of it, proves it ours. Fields reason, incarnation.
	SessionRegistered EventType = "session.registered"
	// SessionStopped: an operator had an agent ended. Fields who, reason, incarnation.
	SessionStopped EventType = "session.stopped"
	// SessionSuperseded: a work item was moved away from the host of its session, which is left there. Fields who, conversation_id, incarnation.
	SessionSuperseded EventType = "session.superseded"
	// HostAdded: an operator named a host and its address. Fields who, reason.
	HostAdded EventType = "host.added"
	// HostDraining: an operator lets nothing more start on a host. Fields who, reason.
	HostDraining EventType = "host.draining"
	// HostUndrained: an operator ended that. Fields who, reason.
	HostUndrained EventType = "host.undrained"
	// HostAccepted: an operator gave the name of a host to the next tmuxd that answers under it. Fields who, reason.
	HostAccepted EventType = "host.accepted"
	// HostForgotten: an operator had a host forgotten. Fields who, reason.
	HostForgotten EventType = "host.forgotten"
)

// EventTypes lists every event type with what it means.
func EventTypes() map[EventType]string {
	return map[EventType]string{
		DispatchQueued:        "a delivery was asked for the first time",
		DispatchSucceeded:     "a delivery is in its conversation",
		DispatchFailed:        "a delivery was answered with a failure and may be tried again",
		DispatchDropped:       "a delivery was ended with a reason that a person can act on",
		DispatchPaused:        "an operator paused the deliveries of a work item, or of all",
		DispatchUnpaused:      "an operator ended a pause",
		DispatchReopened:      "an operator took back that a delivery was dropped",
		SessionSpawned:        "a first session was started",
		SessionSpawnFailed:    "a first session could not be started",
		SessionRespawned:      "a session came back",
		SessionRespawnAverted: "a respawn found a living occupant of ours, and the delivery went into it",
		SessionResumeFailed:   "a conversation could not be resumed, and a fresh one is started",
		SessionRegistered:     "a session was recorded because its stamp, or what the host knows of it, proves it ours",
		SessionStopped:        "an operator had an agent ended",
		SessionSuperseded:     "a work item was moved away from the host of its session, which is left there",
		HostAdded:             "an operator named a host and its address",
		HostDraining:          "an operator lets nothing more start on a host",
		HostUndrained:         "an operator ended the drain of a host",
		HostAccepted:          "an operator gave the name of a host to the next tmuxd that answers under it",
		HostForgotten:         "an operator had a host forgotten",
	}
}
