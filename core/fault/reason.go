package fault

// Reason is a stable name for a cause: what people search for, alert on and put in runbooks. The list is closed, and
// equal to the enum muxpost.fault.v1.Reason, which a test in internal/rpc proves.
type Reason string

// The reasons of errors. Outcomes of deliveries have reasons of their own (core/dispatch, core/session).
const (
	ReasonBadWorkItem       Reason = "bad_work_item"
	ReasonBadDeliveryID     Reason = "bad_delivery_id"
	ReasonBadText           Reason = "bad_text"
	ReasonTextEmpty         Reason = "text_empty"
	ReasonTextTooLarge      Reason = "text_too_large"
	ReasonBadArgument       Reason = "bad_argument"
	ReasonBadConfig         Reason = "bad_config"
	ReasonUnknownHarness    Reason = "unknown_harness"
	ReasonCannotResume      Reason = "cannot_resume"
	ReasonDirectoryMissing  Reason = "directory_missing"
	ReasonDirectoryOutside  Reason = "directory_outside_roots"
	ReasonTargetCollision   Reason = "target_collision"
	ReasonDeliveryMismatch  Reason = "delivery_mismatch"
	ReasonDeliveryNotFound  Reason = "delivery_not_found"
	ReasonSessionNotFound   Reason = "session_not_found"
	ReasonSourceNotFound    Reason = "source_not_found"
	ReasonOlderToken        Reason = "older_token"
	ReasonLeaseLost         Reason = "lease_lost"
	ReasonLeaseHeld         Reason = "lease_held"
	ReasonStorage           Reason = "storage"
	ReasonDatabase          Reason = "database"
	ReasonHostUnreachable   Reason = "host_unreachable"
	ReasonTmuxNoAnswer      Reason = "tmux_no_answer"
	ReasonTmuxMissing       Reason = "tmux_missing"
	ReasonDispatcherSilent  Reason = "dispatcher_unreachable"
	ReasonRateLimited       Reason = "rate_limited"
	ReasonSourceUnreachable Reason = "source_unreachable"
	ReasonSourceRefused     Reason = "source_refused"
	ReasonAddressTaken      Reason = "address_taken"
	ReasonNotLoopback       Reason = "not_loopback"
	ReasonDeadline          Reason = "deadline"
	ReasonPanic             Reason = "panic"
	ReasonNoTasks           Reason = "no_tasks"
	ReasonAttemptMismatch   Reason = "attempt_mismatch"
	ReasonAttemptNotFound   Reason = "attempt_not_found"
	ReasonNoCapacity        Reason = "no_capacity"
	ReasonUnknownCall       Reason = "unknown_call"
	ReasonTreePreparing     Reason = "tree_preparing"
	ReasonTreeUnusable      Reason = "tree_unusable"
	ReasonTreeNotFound      Reason = "tree_not_found"
	ReasonTreeInUse         Reason = "tree_in_use"
	ReasonOverloaded        Reason = "overloaded"
	ReasonRunExists         Reason = "run_exists"
	ReasonRunNotFound       Reason = "run_not_found"
)

// Reasons lists every reason, for tests that must cover them all.
func Reasons() []Reason {
	return []Reason{
		ReasonBadWorkItem, ReasonBadDeliveryID, ReasonBadText, ReasonTextEmpty, ReasonTextTooLarge, ReasonBadArgument,
		ReasonBadConfig, ReasonUnknownHarness, ReasonCannotResume, ReasonDirectoryMissing, ReasonDirectoryOutside,
		ReasonTargetCollision, ReasonDeliveryMismatch, ReasonDeliveryNotFound, ReasonSessionNotFound, ReasonSourceNotFound,
		ReasonOlderToken, ReasonLeaseLost, ReasonLeaseHeld, ReasonStorage, ReasonDatabase, ReasonHostUnreachable,
		ReasonTmuxNoAnswer, ReasonTmuxMissing, ReasonDispatcherSilent, ReasonRateLimited, ReasonSourceUnreachable,
		ReasonSourceRefused, ReasonAddressTaken, ReasonNotLoopback, ReasonDeadline, ReasonPanic,
		ReasonNoTasks, ReasonAttemptMismatch, ReasonAttemptNotFound, ReasonNoCapacity,
		ReasonUnknownCall, ReasonTreePreparing, ReasonTreeUnusable, ReasonTreeNotFound, ReasonTreeInUse, ReasonRunExists, ReasonRunNotFound,
		ReasonOverloaded,
	}
}
