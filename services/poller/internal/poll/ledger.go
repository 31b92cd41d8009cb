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
	// KindReview is a review of a pull request, and KindReviewComment an inline comment on one.
	KindReview        = "review"
	KindReviewComment = "review_comment"
	// KindState says that an item was closed, reopened or merged.
	KindState = "state"
	// KindCheck is a result of CI.
	KindCheck = "check"
	// KindLabelled says that the label was put on that has a team run.
	KindLabelled = "labelled"
)

// Ledger keeps items, events and how far each source was read. Its errors are faults.
type Ledger interface {
	// BeginLook takes the lease of a source for a while. While another look has it, or while one that ended is younger than every, that is
	// fault.Conflict with ReasonLeaseHeld; before the end of a limit of the source's, it is fault.Throttled.
	BeginLook(ctx context.Context, source, holder string, lease, every time.Duration) (Look, error)
	// KeepLook renews the lease. One that was lost is fault.Fenced.
	KeepLook(ctx context.Context, source, holder string, lease time.Duration) error
	// LookDue returns how long it is until a source that is looked at every so often is to be looked at, not below zero: at once where a look
	// did not end and its lease did.
	LookDue(ctx context.Context, source string, every time.Duration) (time.Duration, error)
	// EndLook records how a look went and gives the lease back. A lease that was lost changes nothing.
	EndLook(ctx context.Context, source, holder string, end LookEnd) error
	// Known returns the items that were last seen in a place and are not closed, and those with one of the node ids.
	Known(ctx context.Context, place string, nodeIDs []string) ([]Known, error)
	// KnownPulls returns the pull requests of items that were last seen in a place and are open, and those with one of the node ids.
	KnownPulls(ctx context.Context, place string, nodeIDs []string) ([]KnownPull, error)
	// PullsAt returns the pull requests of a place that belong to an item, and whose head is a commit or that have one of the numbers.
	PullsAt(ctx context.Context, place, sha string, numbers []uint64) ([]KnownPull, error)
	// Items returns the work items that are known under refs and were seen before, by ref; what is not known is left out.
	Items(ctx context.Context, refs []string) (map[string]Owner, error)
	// Record writes an item, how far it was read, and its events, all or nothing. What an object said when it was last seen is no
	// event again; what it says now takes the place of what it said (Revise). What a complete record lacks is missing from then on,
	// and what is Gone is cancelled, or marked where it has ended.
	Record(ctx context.Context, r Record) (Recorded, error)
	// Link writes down to which item a pull request belongs by an operator's word: that of the record, or none. It returns the link, and
	// whether it is new.
	Link(ctx context.Context, r Record, who string) (linked Linked, changed bool, err error)
	// Submit writes an event by hand and returns the row, and whether it was there before; with dryRun it writes nothing and
	// returns the row as it would be.
	Submit(ctx context.Context, e Event, dryRun bool) (row Entry, existed bool, err error)
}

// Look is what is known of a source when a look at it begins.
type Look struct {
	// Throttles is how often in a row the source named a limit without saying for how long.
	Throttles int
	// Repositories are those that were looked at before, by name in lower case.
	Repositories map[string]RepositoryLook
}

// RepositoryLook is what is known of a repository when a look begins.
type RepositoryLook struct {
	// Since is how long ago a look last came to it, and SinceFull how long ago it was read in full; negative when it never was.
	Since, SinceFull time.Duration
	// Wait is for how much longer it is to be left alone.
	Wait time.Duration
	// Problem is why the latest look could not read it, for a person; empty when it could.
	Problem string
	// Quiet is how many looks in a row found nothing new.
	Quiet int
}

// RepositoryEnd is how a look at a repository went.
type RepositoryEnd struct {
	// Name is the repository's, as owner/repo.
	Name string
	// Problem is for a person; empty when it was read.
	Problem string
	// Wait is how long it is left alone; zero when the next look reads it.
	Wait time.Duration
	// Full is true when it was read in full.
	Full bool
	// Quiet replaces RepositoryLook.Quiet.
	Quiet int
}

// RepositoryState is what is on record of a repository. Every time is zero where there is none.
type RepositoryState struct {
	// Name is in lower case.
	Name string
	// LastSuccess is when a look last read it without an error. LastError is why the latest one could not, for a person, and LastErrorAt when
	// that was; empty and zero when it could.
	LastSuccess time.Time
	LastError   string
	LastErrorAt time.Time
	// NextLook is until when it is left alone; zero when the next look at the source reads it.
	NextLook time.Time
	// LastFull is when it was last read in full.
	LastFull time.Time
}

// LookEnd is how a look went.
type LookEnd struct {
	// Problem is for a person; empty when the look succeeded.
	Problem string
	// Wait is how long the source must not be asked; zero when it may be.
	Wait time.Duration
	// Throttles replaces Look.Throttles.
	Throttles int
	// Repositories are those that the look came to.
	Repositories []RepositoryEnd
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
	// Repositories are those that were looked at, by name.
	Repositories []RepositoryState
}

// Known is an item as the ledger knows it.
type Known struct {
	// WorkItem is its canonical ref, for good.
	WorkItem string
	NodeID   string
	// Place is where it was last seen, as PlaceOf names it, and Number what it had there.
	Place  string
	Number uint64
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
	// ClosedUpstream is when it was last closed, on the source's clock; zero when it never was, or that is not known.
	ClosedUpstream time.Time
	// ShownAt is the newest change of it that was heard of, on the source's clock: what is older is no news of its state.
	ShownAt time.Time
}

// Owner is a work item that a pull request may belong to.
type Owner struct {
	WorkItem string
	// Since is when it was first seen, on the source's clock: what was written by then is only context.
	Since time.Time
}

// KnownPull is a pull request as the ledger knows it.
type KnownPull struct {
	NodeID string
	// Place and Number are as Known's.
	Place  string
	Number uint64
	// WorkItem is the item that it belongs to, and Rule how it came to it; empty when it belongs to none.
	WorkItem string
	Rule     Rule
	// Closes are the refs of the issues that it closed when that was last asked.
	Closes []string
	// Open is its state, HeadSHA the commit at its head, and ClosedUpstream as Known's.
	Open           bool
	HeadSHA        string
	ClosedUpstream time.Time
	ShownAt        time.Time
	// SeenAt, SeenUpdatedAt and PostsSince are as Known's: what it looked like when its thread was last read. They are zero until then.
	SeenAt, SeenUpdatedAt, PostsSince time.Time
	// UnlinkedAt is when it was last seen without an item.
	UnlinkedAt time.Time
	// Waiting and Missing are as Known's.
	Waiting bool
	Missing []Missing
}

// Rule is how a pull request came to its item.
type Rule string

// The rules, in the order in which they count.
const (
	// RuleByHand: an operator said so. It stays, whatever the others would say.
	RuleByHand Rule = "by_hand"
	// RuleClosing: it closes the item.
	RuleClosing Rule = "closing_reference"
	// RuleBranch: its branch is named as the item's own.
	RuleBranch Rule = "branch"
	// RuleItself: it is under our care itself.
	RuleItself Rule = "itself"
)

// Missing is a comment that a complete listing lacked, though it was there before.
type Missing struct {
	// Object is its natural key without the revision, Kind its kind, and ID the provider's number of it.
	Object string
	Kind   string
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
	// Pull is set for the thread of a pull request; then the item's own row is not written, except for a first sight.
	Pull *PullRecord
	// Partial is true when the item was not read, only something of it was heard: then how far it was read is left as it is.
	Partial bool
	// Aside is true when only a post was heard of: what its payload shows of the item beside it ends and begins nothing.
	Aside bool
	// Deleted are objects of which is known that they are gone.
	Deleted []Event
	// Complete is true when the events are those of every comment that the listing has: one that they lack is missing.
	Complete bool
	// Gone are the objects that were missing for long enough and are gone when asked for by themselves.
	Gone []string
}

// PullRecord is what a look found out about one pull request.
type PullRecord struct {
	// Rule and Detail say how it came to the item of the record, when it did now; the empty Rule leaves that as it is.
	Rule   Rule
	Detail string
	// Closes replaces KnownPull.Closes; nil leaves it.
	Closes []string
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
	// Thread is the pull request that it happened at, by its node id; empty for the item's own thread.
	Thread string
	// Association is what its author is to the repository, as the provider says.
	Association string
	// Commit is what a result of CI is about.
	Commit string
	// About is the file and the line of an inline comment, or the name and the id of a result of CI, in one line, for people.
	About string
	// Text is what the agent is to read; empty for an event that is settled.
	Text string
	// EditedText takes the place of Text, and EditedAt that of UpstreamAt, when an earlier revision may be in the conversation.
	EditedText string
	EditedAt   time.Time
	// Undated is true where nobody says when it was changed last: EditedAt is when it was written, and tells nothing of what is newer.
	Undated bool
	// Unattested is true where nobody can say whether somebody else changed it: then it counts only as long as nothing else is known of it.
	Unattested bool
	// First is true of what was only just written when it was told: it is older than anything else that is known of it.
	First bool
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
	// Pull is the ref of the pull request that it happened at; empty for the item's own thread. Commit is that of a result of CI, and About
	// is as Event's.
	Pull, Commit, About string
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
	// Source, Kind and Reason choose rows with exactly that; empty for all.
	Source, Kind, Reason string
	// Since chooses rows that came in at this time or later; zero for all.
	Since time.Time
	// Before chooses rows with a lower ID; zero means from the newest.
	Before int64
	// Limit is how many rows at most.
	Limit int
}

// Count is how many events are in a state for a reason.
type Count struct {
	State  ledger.State
	Reason string
	Events int64
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
