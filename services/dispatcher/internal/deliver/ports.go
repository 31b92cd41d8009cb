package deliver

import (
	"context"
	"time"

	"muxpost.dev/muxpost/core/dispatch"
	"muxpost.dev/muxpost/core/lease"
	"muxpost.dev/muxpost/core/session"
)

// Store keeps what outlives a run. Errors are faults: Unavailable means that it is not known whether the change was made.
type Store interface {
	// Begin inserts a delivery that was not asked for before, with its dispatch.queued event, or counts one more ask and returns
	// the delivery as it stands, with the pauses that hold its work item back: its own, that of all, both or none. Another fingerprint
	// under the same id is fault.Conflict, ReasonDeliveryMismatch.
	Begin(ctx context.Context, d Delivery, queued Event) (Delivery, []Pause, error)
	// TakeLease takes the lease of a work item for lease.Time with a new token; false when another holder has it.
	TakeLease(ctx context.Context, workItem, holder string) (lease.Lease, bool, error)
	// Look returns what is recorded of a work item and of a delivery of it.
	Look(ctx context.Context, workItem, deliveryID string) (Known, error)
	// Recorded returns what is recorded of a work item, as Look does.
	Recorded(ctx context.Context, workItem string) (Known, error)
	// Endings returns the orders that wait, by work item.
	Endings(ctx context.Context, q EndingQuery) ([]Ending, error)
	// Delivery returns one delivery; one that is not known is fault.NotFound.
	Delivery(ctx context.Context, id string) (Delivery, error)
	// Save makes a change, all of it or nothing, provided that the lease's token is still the item's. Otherwise it is
	// fault.Fenced, ReasonLeaseLost. A change with an outcome gives the lease back and sets the outcome's
	// UpdatedAt.
	Save(ctx context.Context, l lease.Lease, workItem string, c Change) error
	// Release gives the lease back if the token is still the item's.
	Release(ctx context.Context, workItem string, l lease.Lease) error
	// Postpone stores an outcome that needed no lease and sets its UpdatedAt, unless the delivery has ended or a run is at work on
	// the item: then it changes nothing and reports false.
	Postpone(ctx context.Context, d *Delivery) (bool, error)
	// Pause makes a pause with its event, or returns the one that stands, and then false.
	Pause(ctx context.Context, p Pause, told Event) (Pause, bool, error)
	// Unpause ends the pause of a work item (empty for all) with its event; false when none stands.
	Unpause(ctx context.Context, workItem string, told Event) (Pause, bool, error)
	// Sessions returns recorded sessions, by work item.
	Sessions(ctx context.Context, q SessionQuery) ([]Session, error)
	// Idle returns sessions after a work item, by work item, whose agents have been idle for longer than a time and for which nothing waits.
	Idle(ctx context.Context, longer time.Duration, after string, limit int) ([]Session, error)
	// Hosts returns what is recorded of hosts, by name.
	Hosts(ctx context.Context) ([]HostRecord, error)
	// PutHost records a host with its event, and returns the record with its times.
	PutHost(ctx context.Context, r HostRecord, told Event) (HostRecord, error)
	// DropHost removes the record of a host with its event. One that sessions are recorded on is fault.Conflict, one that is not known
	// fault.NotFound.
	DropHost(ctx context.Context, name string, told Event) error
	// EndSuperseded removes that a session was left behind, with its event; false when it is not known (any more).
	EndSuperseded(ctx context.Context, workItem, host string, told Event) (bool, error)
	// Died records that an incarnation of the item was seen dead, unless it is recorded already or the stamp is empty, and returns how many
	// such deaths within a time count, and whether the item is parked. Without the lease it is fault.Fenced, ReasonLeaseLost.
	Died(ctx context.Context, l lease.Lease, workItem, stamp string, within time.Duration) (Deaths, error)
	// Unpark ends a park with its event, so that no death until now counts, and returns it; false when the item is not parked.
	Unpark(ctx context.Context, workItem string, told Event) (Park, bool, error)
	// Reopen stores an outcome in place of dropped, with its event; false when the delivery is not dropped (any more).
	Reopen(ctx context.Context, d *Delivery, told Event) (bool, error)
}

// Known is what is recorded of a work item and of a delivery of it.
type Known struct {
	Delivery Delivery
	// Session is nil when none is recorded. Then TargetOf is another work item whose session is recorded under the name that this
	// one's would have; empty when there is none, as there should be.
	Session  *Session
	TargetOf string
	// Left are the hosts from which the item was moved away.
	Left []string
	// Ending is the order to end the session that waits; nil for none.
	Ending *Ending
}

// Change is what one step changes, together with the events that tell of it.
type Change struct {
	// Session is recorded; nil changes none. With one that is closed the item is not parked any more.
	Session *Session
	// Left is true when the session is moved away from the host that it has in the record. Then the item is not parked any more.
	Left bool
	// Park parks the item from now on, or, with its Lifted, ends that, so that no death until now counts; nil does neither.
	Park *Park
	// Ordered is an incarnation whose death does not count: a person had it ended, or it ended for a cause with a rule of its own; empty for none.
	Ordered string
	// Ending is an order that waits from now on, or goes on waiting; EndingOver ends the one that waits, if any.
	Ending     *Ending
	EndingOver bool
	// Outcome is the delivery with what became of it; nil for a change in the middle of a run.
	Outcome *Delivery
	// Events are added in this order.
	Events []Event
}

// Hosts are those that sessions live on.
type Hosts interface {
	// On returns the host of that name; false when there is none.
	On(name string) (Host, bool)
	// Seek finds the host of a work item for which none is recorded: one that knows its session, else the one on which to start it, as
	// it looks there. The host is nil when there is none, and then the sight says why: ProbeUnreachable where waiting helps, else
	// ProbeNowhere.
	Seek(ctx context.Context, w Want) (Host, Sight)
	// Listed returns the sessions of work items that hosts have, and the names of those that answered and of those that did not.
	Listed(ctx context.Context) (found []Found, answered, silent []string)
}

// Want is a work item that needs a host.
type Want struct {
	WorkItem   string
	DeliveryID string
	// Harness is what a session would be started with.
	Harness string
	// Left are the hosts from which the item was moved away: what lives there is not its agent any more.
	Left []string
}

// Host is one host that sessions live on. Its calls end within their context's deadline and return what became of them as a
// value. The one error is fault.Fenced: a newer lease than ours was seen there, or a floor above it was given.
type Host interface {
	// Name is its name; empty when it is not known yet.
	Name() string
	// Draining reports whether nothing more is to be started there.
	Draining() bool
	// Probe asks for the session of a work item, and for the phase of a delivery there (none with an empty id).
	Probe(ctx context.Context, workItem, deliveryID string) Sight
	// Spawn starts a session.
	Spawn(ctx context.Context, o SpawnOrder) (SpawnReport, error)
	// Paste has a delivery typed, or settled if it was typed before.
	Paste(ctx context.Context, o PasteOrder) (PasteReport, error)
	// Terminate ends an incarnation with all that it started.
	Terminate(ctx context.Context, o TerminateOrder) (TerminateReport, error)
	// Resumes reports whether a harness can resume a conversation there; known is false for a harness never heard of.
	Resumes(harness string) (resumes, known bool)
}

// Build is one program that takes part in deliveries. With neither release nor commit nothing is known of it.
type Build struct {
	Program, Release, Commit string
	// Dirty is true when it was built from a tree with changes that were not committed.
	Dirty bool
	// Host is where it runs; empty for our own.
	Host string
}

// Sight is what a host says of a session.
type Sight struct {
	// Host is its name; empty when it was never reached.
	Host              string
	Probe             dispatch.Probe
	Incarnation       Incarnation
	Harness           string
	ConversationID    string
	SocketPath        string
	Directory         string
	Phase             session.Phase
	JournalUnreadable bool
	// Detail is one line for a person: what this stands on.
	Detail string
	// Doing is what a living agent does, where that was asked for.
	Doing Doing
}

// Doing is what a living agent does.
type Doing struct {
	Activity Activity
	// Detail is a line on it, in the agent's words.
	Detail string
	// Since is when it began, on the host's clock; zero when that is not known.
	Since time.Time
	// SeenAt is when its screen was seen so, on the host's clock; zero where its program tells of each change.
	SeenAt time.Time
}

// Activity is what a living agent does; empty when it is not known.
type Activity string

// The activities.
const (
	Starting         Activity = "starting"
	Idle             Activity = "idle"
	Working          Activity = "working"
	AwaitingApproval Activity = "awaiting_approval"
	AwaitingInput    Activity = "awaiting_input"
	NeedsHuman       Activity = "needs_human"
	Draft            Activity = "draft"
	Unclear          Activity = "unclear"
)

// SpawnOrder asks for a session.
type SpawnOrder struct {
	WorkItem string
	Harness  string
	// Resume is the conversation to go on with; empty for a fresh one.
	Resume string
	// Reason says why it is a fresh one.
	Reason dispatch.Reason
	// Directory is where to start it; empty leaves it to the host.
	Directory string
	// DeliveryID and Text are the first prompt; both are empty for none.
	DeliveryID string
	Text       string
	Token      int64
}

// SpawnReport is what came of a spawn.
type SpawnReport struct {
	Spawn          dispatch.Spawn
	Incarnation    Incarnation
	ConversationID string
	SocketPath     string
	Directory      string
	// Detail is one line for a person; Remedy is a command that frees the name, where there is one.
	Detail string
	Remedy string
	// LastLines are the last lines of a pane whose harness ended at once. They may repeat the prompt.
	LastLines []string
}

// PasteOrder asks for a delivery to be typed.
type PasteOrder struct {
	WorkItem   string
	DeliveryID string
	Text       string
	// Stamp names the incarnation that it is meant for; empty for whichever is ours.
	Stamp string
	Token int64
}

// TerminateOrder asks for the end of an agent.
type TerminateOrder struct {
	WorkItem string
	// Stamp names the incarnation: a later one is not touched.
	Stamp string
	Token int64
	// Grace is how long it has to end by itself.
	Grace  time.Duration
	Reason string
	// Unneeded ends it only if nobody needs it, as far as the host can tell.
	Unneeded bool
}

// TerminateReport is what came of it.
type TerminateReport struct {
	// Ended is true when the agent and all that it started are gone, Already when they were before.
	Ended, Already bool
	// Detail is one line for a person: how it ended, or why it did not.
	Detail string
}

// PasteReport is the verdict on a delivery.
type PasteReport struct {
	Paste dispatch.Paste
	// Detail is one line for a person.
	Detail string
}
