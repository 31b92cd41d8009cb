package hook

import (
	"context"
	"slices"
	"time"

	"muxpost.dev/muxpost/services/poller/internal/poll"
)

// Arrival is a message that came in, and that its source has signed.
type Arrival struct {
	Source string
	// GUID is the sender's own id of the message: sent again, it is the same.
	GUID string
	Envelope
	// Payload is the body, byte by byte.
	Payload []byte
}

// Envelope is what has to be known of a message before it is handled.
type Envelope struct {
	// Event and Action are the sender's words; Action is empty where there is none.
	Event, Action string
	// Repository is as owner/repo, Number the or pull request's, 0 where it is about a commit, and SHA that commit, where it is
	// known.
	Repository string
	Number     uint64
	SHA        string
	// Object is the provider's own id of what it is about, as in natural keys; empty where it has none.
	Object string
}

// Hook is a message that is ours to handle, until its lease ends.
type Hook struct {
	ID    int64
	Lease string
	Arrival
	// Tries counts how often it was taken in hand, with this time.
	Tries int
	// ReceivedAt is when it was written down, and Age how long ago that was, on the database's clock.
	ReceivedAt time.Time
	Age        time.Duration
	// Limited is for how much longer its source wants to be left alone; zero when it may be asked.
	Limited time.Duration
}

// State is the state of a message.
type State string

// The states, as they are stored.
const (
	Waiting State = "waiting"
	Done    State = "done"
	// Failed is not tried again, unless it is sent again; a look finds what it would have told.
	Failed State = "failed"
)

// End is what became of a message that was taken in hand.
type End struct {
	State State
	// Wait is how long one that is still Waiting does.
	Wait time.Duration
	// Problem is for a person; empty when there was none.
	Problem string
	// Limited is true when the source named a limit, and Limit for how long; zero when it did not say.
	Limited bool
	Limit   time.Duration
}

// Gap is a number of events that looks found and that no webhook had told.
type Gap struct {
	Count int
	// From and To are when the first and the last of them happened, on the source's clock.
	From, To time.Time
}

// SourceState is what is on record of a source's webhooks. Every time is zero where there is none.
type SourceState struct {
	// LastReceived is when the latest message was written down.
	LastReceived time.Time
	// Waiting and Failed count those that wait to be handled, and those that could not be. OldestWaiting is when the first that waits came in.
	Waiting, Failed int
	OldestWaiting   time.Time
	// LastError is why the latest of those that failed did, for a person.
	LastError string
	// Gap is the latest one, and GapFound when it was found.
	Gap      Gap
	GapFound time.Time
}

// Inbox keeps messages. Its errors are faults.
type Inbox interface {
	// Put writes messages down, all or none, and reports of each whether it was there before. One that had failed waits again. When it
	// returns nil, they are there for good.
	Put(ctx context.Context, arrivals []Arrival) (known []bool, err error)
	// Watch says which sources' webhooks are taken from now on, and which are no more.
	Watch(ctx context.Context, on, off []string) error
	// ClaimHooks leases up to n messages that are due, each the first of its thread that waits.
	ClaimHooks(ctx context.Context, sources []string, n int, lease time.Duration) ([]Hook, error)
	// EndHook writes down what became of one. A lease that was lost is fault.Fenced, and nothing is changed, except that a limit of the
	// source's always counts.
	EndHook(ctx context.Context, h Hook, end End) error
	// FindGap returns what looks at a source found a grace ago, since the last call, and which no message has told since it happened. What
	// is found is in the stream of events as well.
	FindGap(ctx context.Context, source string, grace time.Duration) (Gap, error)
}

// Reader reads the payloads of a source.
type Reader interface {
	// Read returns what a message tells. What cannot be read is fault.Invalid.
	Read(h Arrival) (poll.Change, error)
}

// Taker takes what a message told into the ledger.
type Taker interface {
	// Take has a change written down as a look would have done it; taken twice, it changes nothing. Errors are faults: Unavailable and
	// Throttled, and a lease that somebody else holds, have it asked again later; any other means that it cannot be taken.
	Take(ctx context.Context, source string, c poll.Change) error
}

// Wanted reports whether a kind of message is one that is written down. All others are not: a new kind of GitHub's must never be taken
// for one that we know.
func Wanted(event, action string) bool {
	actions, ok := wanted()[event]
	return ok && slices.Contains(actions, action)
}

// wanted are the events, with their actions. Those that cannot change what a work item needs are left out: a reaction, an assignment of a
// reviewer, a check that begins.
func wanted() map[string][]string {
	return map[string][]string{
		"issues": {"opened", "edited", "deleted", "transferred", "closed", "reopened", "labeled", "unlabeled", "assigned", "unassigned"},
		"pull_request": {"opened", "edited", "closed", "reopened", "labeled", "unlabeled", "assigned", "unassigned", "synchronize",
			"ready_for_review", "converted_to_draft"},
		"issue_comment":               {"created", "edited", "deleted"},
		"pull_request_review":         {"submitted", "edited", "dismissed"},
		"pull_request_review_comment": {"created", "edited", "deleted"},
		"check_run":                   {"completed"},
		"workflow_run":                {"completed"},
		"status":                      {""},
	}
}
