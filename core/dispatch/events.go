package dispatch

// EventType is the type of something that people and programs can follow: stored in order, and listed and streamed by the dispatcher.
type EventType string

// The events that the dispatcher emits. The list is closed: a test fails on one that is emitted and not listed, or listed and
// never emitted. EventFields says what stands in each.
const (
	// DispatchQueued: a delivery was asked for the first time.
	DispatchQueued EventType = "dispatch.queued"
	// DispatchSucceeded: a delivery is in its conversation.
	DispatchSucceeded EventType = "dispatch.succeeded"
	// DispatchFailed: a delivery was answered with a failure and may be tried again.
	DispatchFailed EventType = "dispatch.failed"
	// DispatchDropped: a delivery was ended with a reason.
	DispatchDropped EventType = "dispatch.dropped"
	// DispatchPaused: an operator paused the deliveries of a work item, or of all (without a work item).
	DispatchPaused EventType = "dispatch.paused"
	// DispatchUnpaused: an operator ended a pause.
	DispatchUnpaused EventType = "dispatch.unpaused"
	// DispatchReopened: an operator took back that a delivery was dropped.
	DispatchReopened EventType = "dispatch.reopened"
	// SessionSpawned: a first session was started.
	SessionSpawned EventType = "session.spawned"
	// SessionSpawnFailed: a first session could not be started.
	SessionSpawnFailed EventType = "session.spawn_failed"
	// SessionRespawned: a session came back.
	SessionRespawned EventType = "session.respawned"
	// SessionRespawnAverted: a respawn found a living occupant of ours, and the delivery went into it.
	SessionRespawnAverted EventType = "session.respawn_averted"
	// SessionResumeFailed: a conversation could not be resumed; a fresh one is started.
	SessionResumeFailed EventType = "session.resume_failed"
	// SessionRegistered: a session was recorded because its stamp, or what the host knows of it, proves it ours.
	SessionRegistered EventType = "session.registered"
	// SessionStopped: an operator had an agent ended.
	SessionStopped EventType = "session.stopped"
	// SessionSuperseded: a work item was moved away from the host of its session, which is left there.
	SessionSuperseded EventType = "session.superseded"
	// HostAdded: an operator named a host and its address.
	HostAdded EventType = "host.added"
	// HostDraining: an operator lets nothing more start on a host.
	HostDraining EventType = "host.draining"
	// HostUndrained: an operator ended that.
	HostUndrained EventType = "host.undrained"
	// HostAccepted: an operator gave the name of a host to the next tmuxd that answers under it.
	HostAccepted EventType = "host.accepted"
	// HostForgotten: an operator had a host forgotten.
	HostForgotten EventType = "host.forgotten"
	// SessionClosed: an operator closed a work item's session.
	SessionClosed EventType = "session.closed"
	// SessionEndOrdered: an operator ordered an agent's end, which waits for its host.
	SessionEndOrdered EventType = "session.end_ordered"
	// SessionEndCancelled: an operator took such an order back.
	SessionEndCancelled EventType = "session.end_cancelled"
	// SessionEndLapsed: such an order came to nothing, because what it names does not live there any more.
	SessionEndLapsed EventType = "session.end_lapsed"
	// SessionParked: a session died too often to be started again by itself.
	SessionParked EventType = "session.parked"
	// SessionUnparked: a parked session may be started again.
	SessionUnparked EventType = "session.unparked"
	// TeamStarted: a run of a team was begun.
	TeamStarted EventType = "team.started"
	// TeamPhase: a run came to another phase.
	TeamPhase EventType = "team.phase"
	// TeamEnded: a run is over.
	TeamEnded EventType = "team.ended"
	// TaskStarted: a task of a run was handed to a worker.
	TaskStarted EventType = "task.started"
	// TaskEnded: an attempt at a task is over.
	TaskEnded EventType = "task.ended"
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
		SessionClosed:         "an operator closed a work item's session",
		SessionEndOrdered:     "an operator ordered an agent's end, which waits for its host",
		SessionEndCancelled:   "an operator took back the order to end an agent",
		SessionEndLapsed:      "an order to end an agent came to nothing: what it names does not live there any more",
		SessionParked:         "a session died too often to be started again by itself",
		SessionUnparked:       "a parked session may be started again",
		TeamStarted:           "a run of a team was begun",
		TeamPhase:             "a run of a team came to another phase",
		TeamEnded:             "a run of a team is over",
		TaskStarted:           "a task of a run was handed to a worker",
		TaskEnded:             "an attempt at a task of a run is over",
	}
}

// CommonFields are the fields of every event. One that is not known, or concerns nothing, is empty.
func CommonFields() []string {
	return []string{"work_item", "target", "host", "harness", "delivery_id"}
}

// EventFields lists the fields of every event type, beside the common ones. A field is always there, and may be empty.
func EventFields() map[EventType][]string {
	return map[EventType][]string{
		DispatchQueued:        {"kind"},
		DispatchSucceeded:     {"kind", "how", "conversation_id"},
		DispatchFailed:        {"kind", "reason", "detail"},
		DispatchDropped:       {"kind", "reason", "remedy"},
		DispatchPaused:        {"reason", "who"},
		DispatchUnpaused:      {"who"},
		DispatchReopened:      {"kind", "reason", "who"},
		SessionSpawned:        {"kind", "conversation_id", "incarnation"},
		SessionSpawnFailed:    {"kind", "reason", "remedy"},
		SessionRespawned:      {"kind", "resumed", "conversation_id", "incarnation"},
		SessionRespawnAverted: {"kind"},
		SessionResumeFailed:   {"kind", "reason", "conversation_id"},
		SessionRegistered:     {"kind", "reason", "incarnation", "who"},
		SessionStopped:        {"reason", "who", "incarnation"},
		SessionClosed:         {"reason", "who", "incarnation", "conversation_id"},
		SessionEndOrdered:     {"order", "reason", "detail", "who", "incarnation"},
		SessionEndCancelled:   {"order", "detail", "who", "incarnation"},
		SessionEndLapsed:      {"order", "detail", "who", "incarnation"},
		SessionParked:         {"kind", "deaths", "within", "detail"},
		SessionUnparked:       {"kind", "reason", "who"},
		SessionSuperseded:     {"who", "conversation_id", "incarnation"},
		TeamStarted:           {"team", "run_id", "who"},
		TeamPhase:             {"team", "run_id", "from", "phase", "reason", "detail"},
		TeamEnded:             {"team", "run_id", "from", "phase", "reason", "detail", "who"},
		TaskStarted:           {"team", "run_id", "task_id", "attempt_id", "worker", "number"},
		TaskEnded:             {"team", "run_id", "task_id", "attempt_id", "worker", "number", "outcome", "reason", "detail"},
		HostAdded:             {"reason", "who"},
		HostDraining:          {"reason", "who"},
		HostUndrained:         {"reason", "who"},
		HostAccepted:          {"reason", "who"},
		HostForgotten:         {"reason", "who"},
	}
}
