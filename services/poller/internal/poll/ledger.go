package poll

import (
	"context"
	"strings"
	"time"

	"muxpost.dev/muxpost/core/ledger"
	"muxpost.dev/muxpost/core/workitem"
)

// The kinds of events.
const (
	KindOpened  = "opened"
	KindComment = "comment"
	KindMessage = "message"
)

// Ledger keeps items, events and how far each source was read. Its errors are faults.
type Ledger interface {
	// BeginLook takes the lease of a source for a while. While another holder has it, that is fault.Conflict with
	// ReasonLeaseHeld; before the end of a limit of the source's, it is fault.Throttled.
	BeginLook(ctx context.Context, source, holder string, lease time.Duration) (Look, error)
	// EndLook records how a look went and gives the lease back. A lease that was lost changes nothing.
	EndLook(ctx context.Context, source, holder string, end LookEnd) error
	// Known returns the items that were last seen in a place and are not closed, and those with one of the node ids.
	Known(ctx context.Context, place string, nodeIDs []string) ([]Known, error)
	// Record writes an item, how far it was read, and its events, all or nothing. What an object said when it was last seen is no
	// event again; what it says now takes the place of what it said (Revise). What a complete record lacks is missing from then on,
	// and what is Gone is cancelled, or marked where it has ended.
	Record(ctx context.Context, r Record) (Recorded, error)
	// Submit writes an event by hand and returns the row, and whether it was there before; with dryRun it writes nothing and
	// returns the row as it would be.
	Submit(ctx context.Context, e Event, dryRun bool) (row Entry, existed bool, err error)
}

// Look is what is known of a source when a look at it begins.
type Look struct {
	// Throttles is how often in a row the source named a limit without saying for how long.
	Throttles int
}

// LookEnd is how a look went.
type LookEnd struct {
	// Problem is for a person; empty when the look succeeded.
	Problem string
	// Wait is how long the source must not be asked; zero when it may be.
	Wait time.Duration
	// Throttles replaces Look.Throttles.
	Throttles int
	// Read lists the repositories that were read without an error.
	Read []string
}

// SourceState is what is on record of a source. Every time is zero where there is none.
type SourceState struct {
	// LastLook is when the latest look began.
	LastLook time.Time
	// LastSuccess is when a look last ended with everything read.
	LastSuccess time.Time
	// LastError is why the latest look that ended failed, for a person; empty when it did not.
	LastError string
	// LastErrorAt is when that look began; zero while the next one is under way.
	LastErrorAt time.Time
	// NotBefore is until when the source is not asked, while a limit of its own is being waited out.
	NotBefore time.Time
	// Items is how many open work items it has shown.
	Items int
	// NoticeError is why the latest write to it failed, for a person, and NoticeErrorAt since when writes fail; empty and zero when
	// it did not.
	NoticeError   string
	NoticeErrorAt time.Time
}

// Known is an item as the ledger knows it.
type Known struct {
	// WorkItem is its canonical ref, for good.
	WorkItem string
	NodeID   string
	Number   uint64
	// Baselined is true once its opening event is in the ledger.
	Baselined bool
	// Closed is true when it was closed or gone at its last sight.
	Closed bool
	// SeenAt, SeenUpdatedAt and SeenComments are what it looked like when its comments were last read.
	SeenAt        time.Time
	SeenUpdatedAt time.Time
	SeenComments  int
	// CommentsSince is the newest change among the comments that were read.
	CommentsSince time.Time
	// Waiting is true while a comment of it is on its way, or gave up: one that its deletion upstream would cancel.
	Waiting bool
	// Missing are its comments that the latest complete listing lacked.
	Missing []Missing
}

// Missing is a comment that a complete listing lacked, though it was there before.
type Missing struct {
	// Object is its natural key without the revision, and ID the provider's number of it.
	Object string
	ID     int64
	// Since is when it was first missing, on the source's clock.
	Since time.Time
}

// Record is what a look found out about one item.
type Record struct {
	// Source is the name of the source, and LookBegan when the look began: their traces begin there.
	Source    string
	LookBegan time.Time
	// WorkItem is the item's canonical ref.
	WorkItem string
	// Place is where the item was seen, as PlaceOf names it.
	Place string
	// Item is what the source shows; its title and URL are kept.
	Item Item
	// FirstSight is true when the events are the opening event and the baseline. Then nothing is written if the item was
	// baselined meanwhile.
	FirstSight bool
	// SeenAt and CommentsSince are as in Known.
	SeenAt        time.Time
	CommentsSince time.Time
	// Closed is true when the item is closed or gone.
	Closed bool
	Events []Event
	// Complete is true when the events are those of every comment that the listing has: one that they lack is missing.
	Complete bool
	// Gone are the objects that were missing for long enough and are gone when asked for by themselves.
	Gone []string
}

// Recorded counts what was new.
type Recorded struct {
	// Pending is the number of new events that will be delivered.
	Pending int
	// Settled is the number of new events that were refused by policy; the baseline is not counted.
	Settled int
}

// Rearmer has events that gave up tried again when another version sees their items.
type Rearmer interface {
	// See re-arms what is to be re-armed of items that this process did not see before, and returns those that had any.
	See(ctx context.Context, items []string) ([]string, error)
}

// PlaceOf returns the repository part of a canonical ref. A renamed repository's items keep their refs, and change their place.
func PlaceOf(r workitem.Ref) string {
	place, _, _ := strings.Cut(r.String(), "#")
	return place
}

// Event is an event on its way into the ledger.
type Event struct {
	DeliveryID string
	Key        ledger.Key
	WorkItem   string
	NodeID     string
	Source     string
	Kind       string
	Author     string
	URL        string
	Title      string
	// Text is what the agent is to read; empty for an event that is settled.
	Text string
	// EditedText takes the place of Text, and EditedAt that of UpstreamAt, when an earlier revision may be in the conversation.
	EditedText string
	EditedAt   time.Time
	// Excerpt is what was written, up to a length, for the context of later events; empty when its author may not steer.
	Excerpt string
	Harness string
	// UpstreamAt and UpstreamOrder order the events of an item; the zero time means now, on the database's clock.
	UpstreamAt    time.Time
	UpstreamOrder int64
	// Together names what becomes one text whenever two or more of it wait, such as the results of CI at one commit; empty for nothing.
	Together string
	// Command is the order to muxpost itself that it is; empty for any other event.
	Command string
	// State is pending, or settled with a reason.
	State  ledger.State
	Reason string
	Detail string
	// Budget is how many tries it may spend.
	Budget int
}

// Entry is an event as the ledger has it, without its text.
type Entry struct {
	// ID orders rows by when they came in.
	ID         int64
	DeliveryID string
	WorkItem   string
	Source     string
	Kind       string
	Author     string
	URL        string
	Title      string
	State      ledger.State
	Reason     string
	Detail     string
	Tries      int
	Budget     int
	// NextLook is zero for a state that does not wait.
	NextLook time.Time
	// HeldSince is zero for an event that is not held.
	HeldSince time.Time
	// GaveUpVersions are the versions that spent a budget on it, or were given one.
	GaveUpVersions []string
	// DeletedAt is when it was seen to be deleted upstream; zero when it was not.
	DeletedAt time.Time
	// SupersededBy is the delivery of the revision that took its place; empty when none did.
	SupersededBy string
	// Edited is true when its text says that it is an edit of something that the agent may know.
	Edited bool
	// UpstreamAt is zero for an event by hand.
	UpstreamAt time.Time
	CreatedAt  time.Time
	UpdatedAt  time.Time
	TraceID    string
	// WaitsBehind is the event of the same item that has to end first; nil when there is none.
	WaitsBehind *Ahead
}

// Ahead is an event that holds another of its item back.
type Ahead struct {
	DeliveryID string
	State      ledger.State
	Reason     string
	Detail     string
}

// Filter chooses rows of the ledger. The zero value chooses all.
type Filter struct {
	WorkItem   string
	DeliveryID string
	// State chooses one state when it is not nil.
	State *ledger.State
	// Before chooses rows with a lower ID; zero means from the newest.
	Before int64
	// Limit is how many rows at most.
	Limit int
}

// EventQuery chooses events of the poller's own. The zero value, with a limit, chooses the oldest.
type EventQuery struct {
	// After chooses events with a higher sequence number.
	After                        int64
	WorkItem, DeliveryID, Source string
	// Types chooses events of these types; empty for all.
	Types []ledger.EventType
	Limit int
	// Latest chooses the newest instead of the oldest, in the same order.
	Latest bool
}

// Followed is an event of the poller's own, from ledger.EventTypes.
type Followed struct {
	Sequence                     int64
	Type                         ledger.EventType
	Time                         time.Time
	WorkItem, DeliveryID, Source string
	Fields                       map[string]string
	TraceID                      string
}
