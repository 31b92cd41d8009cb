package obs

// Keys of log records, and of span attributes and span events that say the same thing: one name for one thing, everywhere.
// Values are ids and words from closed lists; text of events, prompts and secrets is never among them.
const (
	// KeyService is the service that speaks, such as "dispatcher".
	KeyService = "service"
	// KeyVersion is the build that speaks.
	KeyVersion = "version"
	// KeyTraceID is the trace that a record belongs to; added by the handler.
	KeyTraceID = "trace_id"
	// KeySpanID is the span that a record was made in; added by the handler.
	KeySpanID = "span_id"
	// KeyEvent is the kind of event in hand, such as "issue_comment.created".
	KeyEvent = "event"
	// KeyEventID is the id of an event in the ledger.
	KeyEventID = "event_id"
	// KeyAction is the next step that a decision chose.
	KeyAction = "action"
	// KeyReason is the stable reason, from a closed list.
	KeyReason = "reason"
	// KeyOutcome is how a delivery or an attempt ended.
	KeyOutcome = "outcome"
	// KeyWorkItem is the canonical ref of the work item.
	KeyWorkItem = "work_item"
	// KeyDeliveryID is the id of one delivery.
	KeyDeliveryID = "delivery_id"
	// KeyTarget is the session's name.
	KeyTarget = "target"
	// KeyHost is the host where a session lives.
	KeyHost = "host"
	// KeyHarness is the program that runs the agent.
	KeyHarness = "harness"
	// KeyState is what a probe found.
	KeyState = "state"
	// KeyIncarnation is the stamp of one life of a session.
	KeyIncarnation = "incarnation"
	// KeyPhase is how far a delivery got at the session.
	KeyPhase = "phase"
	// KeyToken is the fencing token.
	KeyToken = "token"
	// KeyTokenID is the id of a bearer token, which is no secret.
	KeyTokenID = "token_id"
	// KeyTry counts the tries of a delivery, from 1.
	KeyTry = "try"
	// KeyRunID, KeyTaskID and KeyAttemptID name parts of a team's run.
	KeyRunID     = "run_id"
	KeyTaskID    = "task_id"
	KeyAttemptID = "attempt_id"
	// KeySource is where events come from, such as "github:octo/repo".
	KeySource = "source"
	// KeyMethod is the full name of an RPC, or an HTTP route.
	KeyMethod = "method"
	// KeyCode is the status code an RPC ended with.
	KeyCode = "code"
	// KeyWho is the person or program that an order came from.
	KeyWho = "who"
	// KeyPeer is the other end of a connection.
	KeyPeer = "peer"
	// KeyDuration is how long something took.
	KeyDuration = "duration"
	// KeyAddress is an address that is listened on or called.
	KeyAddress = "address"
	// KeyPath is a file or directory.
	KeyPath = "path"
	// KeyRoutine is true on spans of what is done again and again.
	KeyRoutine = "routine"
	// KeyPID is a process id.
	KeyPID = "pid"
	// KeyCount is how many.
	KeyCount = "count"
	// KeyError is an error's text, with its causes.
	KeyError = "error"
	// KeyStack is the stack of a panic.
	KeyStack = "stack"
)
