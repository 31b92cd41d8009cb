package model

// The promises, each in the words in which it is found broken.
const (
	typedTwice     = "an event was typed twice into one conversation"
	answeredDialog = "a CR of ours answered a dialog"
	typedOver      = "an event was typed into a person's draft"
	mergedDraft    = "an event was submitted together with a person's draft"
	mergedEvents   = "two events were submitted as one"
	killedLive     = "a live agent was killed"
	doubledAgent   = "two agents of one work item live"
	olderToken     = "an act under an older token changed something" //nolint:gosec // a promise, and no credential
	reportedLost   = "an event was reported as delivered and is in no conversation"
	endedUnsaid    = "an event ended without a reason"
	droppedFree    = "an event was dropped although nothing but its own session holds the name"
	belowFloor     = "an order below the floor was let in"
	crossed        = "something of an older lease was typed after something of a newer one"
	refusedAgain   = "a delivery was refused more often than there is a cause for"
	startedParked  = "a session was started although its item is parked"
	stuck          = "faults have stopped, and the events do not end"
)
