package deliver

import (
	"slices"
	"time"

	"muxpost.dev/muxpost/core/dispatch"
)

// Kind says what happened upstream.
type Kind string

// The kinds of events.
const (
	// Opened: the work item came to our attention.
	Opened Kind = "opened"
	// Comment: a comment was written.
	Comment Kind = "comment"
	// Message: an operator wrote it by hand.
	Message Kind = "message"
	// Review: a pull request was reviewed.
	Review Kind = "review"
	// ReviewComment: an inline comment was written on a pull request.
	ReviewComment Kind = "review_comment"
	// State: the work item, or a pull request of it, was closed, merged or opened again.
	State Kind = "state"
	// Check: CI ended with a result at the head of a pull request.
	Check Kind = "check"
)

// Kinds lists every kind, for tests that must cover them all.
func Kinds() []Kind { return []Kind{Opened, Comment, Message, Review, ReviewComment, State, Check} }

// Valid reports whether k is one of the kinds.
func (k Kind) Valid() bool { return slices.Contains(Kinds(), k) }

// Delivery is the record of one event on its way to an agent. It never holds the event's text.
type Delivery struct {
	ID       string
	WorkItem string
	NodeID   string
	Kind     Kind
	// Fingerprint is the SHA-256 of work item, kind and text: it tells a repeat from another event under the same id.
	Fingerprint [32]byte
	// Harness is the one that was asked for, and once a session was found or started, that session's.
	Harness string
	Outcome dispatch.Outcome
	Reason  dispatch.Reason
	// Detail is one line for a person that explains the outcome; Remedy says what that person can do.
	Detail string
	Remedy string
	How    dispatch.How
	// Host, Target and ConversationID say where it went; empty while not known.
	Host           string
	Target         string
	ConversationID string
	// Asked counts how often it was asked for, from 1.
	Asked int
	// Traceparent and TraceID belong to the first time that it was asked for.
	Traceparent string
	TraceID     string
	// Steps are the decisions of the last run, one line each.
	Steps []string
	// CreatedAt and UpdatedAt (of the outcome) are on the database's clock.
	CreatedAt time.Time
	UpdatedAt time.Time
}

// Incarnation is one life of a session. The zero value is none.
type Incarnation struct {
	Stamp         string
	SessionID     string
	PaneID        string
	PanePID       int64
	ServerPID     int64
	ServerStarted time.Time
}

// Session is the record of which session owns a work item.
type Session struct {
	WorkItem       string
	NodeID         string
	Target         string
	Host           string
	Harness        string
	ConversationID string
	// Lineage holds earlier conversations, oldest first.
	Lineage     []string
	Incarnation Incarnation
	SocketPath  string
	Directory   string
	// Closed is true when a person closed it: it is no session any more, and is kept for its lineage.
	Closed bool
	// CreatedAt and UpdatedAt are on the database's clock.
	CreatedAt time.Time
	UpdatedAt time.Time
}

// Shown is a session with what its agent does, as its host told it.
type Shown struct {
	Session
	Doing Doing
	// ToldAt is when that was stored, on the database's clock; zero when nothing is.
	ToldAt time.Time
}

// Told is what the agent of an incarnation does, as its host told it.
type Told struct {
	WorkItem string
	Stamp    string
	Doing
}

// converse makes id the session's conversation and keeps the one before as lineage. An empty id is a conversation that is not
// known yet. It reports whether anything changed.
func (s *Session) converse(id string) bool {
	if id == s.ConversationID {
		return false
	}
	if s.ConversationID != "" {
		s.Lineage = append(s.Lineage[:len(s.Lineage):len(s.Lineage)], s.ConversationID)
	}
	s.ConversationID = id
	return true
}

// Pause is an operator's word that no delivery is begun.
type Pause struct {
	// WorkItem is what it holds back; empty for all.
	WorkItem string
	// Reason and Who are what the operator said; either may be empty.
	Reason string
	Who    string
	// Since is on the database's clock.
	Since time.Time
}

// Park says that an item's agents are not started again by themselves, because they died too often.
type Park struct {
	WorkItem string
	// Deaths within Within were too many.
	Deaths int
	Within time.Duration
	// Detail is one line for a person: what was seen last.
	Detail string
	// Versions are those under which it was parked, or that took that back.
	Versions []string
	// Lifted is true when the item is not parked any more, and kept for its versions alone.
	Lifted bool
	// Since is on the database's clock.
	Since time.Time
}

// Deaths is what is recorded of the deaths of an item's agents.
type Deaths struct {
	// Count is how many were seen lately that count.
	Count int
	// Park is the last time that the item was parked; nil when it never was. Age is how long ago that was.
	Park *Park
	Age  time.Duration
}

// Ending is a person's order to end an agent that waits for its host.
type Ending struct {
	WorkItem string
	// Closes is true when the item is to be closed, and false when its agent is to be stopped.
	Closes bool
	// Stamp names the incarnation that it is meant for, and no other, and Host is where that lives.
	Stamp, Host string
	Who, Reason string
	Grace       time.Duration
	// Detail is one line for a person: why it waits.
	Detail string
	// Since is on the database's clock.
	Since time.Time
}

// Verb is what was ordered, as people read it.
func (e Ending) Verb() string {
	if e.Closes {
		return "close"
	}
	return "stop"
}

// Event is something that people can follow. Sequence and Time are given by the store.
type Event struct {
	Sequence   int64
	Type       dispatch.EventType
	Time       time.Time
	WorkItem   string
	DeliveryID string
	Fields     map[string]string
	TraceID    string
}

// DeliveryQuery chooses deliveries, newest first.
type DeliveryQuery struct {
	// WorkItem chooses those of one item; empty for all.
	WorkItem string
	// Outcome chooses those with one outcome; nil for all.
	Outcome *dispatch.Outcome
	// Reason and Host choose those with one reason, and those that went to one host; empty for all.
	Reason dispatch.Reason
	Host   string
	// BeforeTime and BeforeID are those of the last delivery already seen; zero for the newest.
	BeforeTime time.Time
	BeforeID   string
	// Limit is the most that is returned.
	Limit int
}

// SessionQuery chooses sessions, by work item.
type SessionQuery struct {
	// WorkItem chooses one, and Host those of one host; empty for all.
	WorkItem, Host string
	// Closed chooses those too that were closed.
	Closed bool
	// After is the last work item already seen; empty for the first.
	After string
	// Limit is the most that is returned.
	Limit int
}

// PauseQuery chooses pauses: that of all first, then by work item.
type PauseQuery struct {
	// After is the last work item already seen; nil for the beginning.
	After *string
	// Limit is the most that is returned.
	Limit int
}

// EndingQuery chooses orders that wait, by work item.
type EndingQuery struct {
	// WorkItem chooses that of one; empty for all.
	WorkItem string
	// After is the last work item already seen; empty for the beginning.
	After string
	// Limit is the most that is returned.
	Limit int
}

// ParkQuery chooses parked items, by work item.
type ParkQuery struct {
	// After is the last work item already seen; empty for the beginning.
	After string
	// Limit is the most that is returned.
	Limit int
}

// EventQuery chooses events, by sequence.
type EventQuery struct {
	// After is the last sequence number already seen; zero for the beginning.
	After int64
	// WorkItem and DeliveryID choose those of one; empty for all.
	WorkItem   string
	DeliveryID string
	// Types chooses those of these types; empty for all.
	Types []dispatch.EventType
	// Limit is the most that is returned.
	Limit int
	// Latest returns the newest instead of the first, still in order of sequence.
	Latest bool
}

// EventPage is a page of events, with what there was at its time.
type EventPage struct {
	Events []Event
	// Last is the highest sequence number that was given out and can be read, or was deleted; it never sinks.
	Last int64
	// Forgotten is the highest one that was deleted by age; zero when none was.
	Forgotten int64
}
