package ledger

// EventType is the type of something that people can follow: stored for good, and listed by the poller.
type EventType string

// The events that the poller emits. The list is closed: the database takes no other, and a test fails on one that is listed and
// never emitted. Every event has the fields work_item, delivery_id and source where they are known.
const (
	// CommentFailed: an event gave up. Fields kind, reason, tries, versions.
	CommentFailed EventType = "poll.comment_failed"
	// CommentCancelled: an event was cancelled because its object was deleted upstream, or edited before it was delivered, or by a person's
	// word. Fields kind; of an edit reason and by, the delivery in its place; and of a person's word reason, who, why and state: what it had been.
	CommentCancelled EventType = "poll.comment_cancelled"
	// Rearmed: events of an item that had given up are pending again. Fields comments, recorded_versions, version.
	Rearmed EventType = "poll.rearmed"
	// Retried: an event that had ended is pending again by a person's word. Fields who, why, state, reason: what it had been; and as, the
	// delivery under which it is typed once more.
	Retried EventType = "poll.retried"
	// SettledByHand: an event that needed a person is settled by his word. Fields who, why, state, reason: what it had been.
	SettledByHand EventType = "poll.settled"
	// SourceFailed: a source could not be read, after it could. Field problem.
	SourceFailed EventType = "poll.source_failed"
	// SourceRecovered: a source could be read again.
	SourceRecovered EventType = "poll.source_recovered"
	// PullLinked: a pull request belongs to another work item than before, or to none. Fields pull, rule, detail.
	PullLinked EventType = "poll.pull_linked"
	// BreakerTripped: so much was written about an item within a short time that it is not delivered. Fields author, posts, within.
	BreakerTripped EventType = "poll.breaker_tripped"
	// GapFound: a look found events that no webhook of their source had told. Fields count, from, to: when the first and the last of them
	// happened.
	GapFound EventType = "poll.gap_found"
	// NoticePosted: something was told on a ticket. Field post.
	NoticePosted EventType = "poll.notice_posted"
	// NoticeFailed: something could not be told on a ticket, and is not tried again. Fields post, problem.
	NoticeFailed EventType = "poll.notice_failed"
)

// EventTypes lists every event type with what it means.
func EventTypes() map[EventType]string {
	return map[EventType]string{
		CommentFailed:    "an event gave up: its tries are spent",
		CommentCancelled: "an event was cancelled because it was deleted upstream, edited before it was delivered, or by a person's word",
		Rearmed:          "events of an item that had given up have a new budget",
		Retried:          "an event that had ended is tried again by a person's word",
		SettledByHand:    "an event that needed a person is settled by his word",
		SourceFailed:     "a source could not be read, after it could",
		SourceRecovered:  "a source could be read again",
		PullLinked:       "a pull request belongs to another work item than before, or to none",
		BreakerTripped:   "so much was written about an item within a short time that it is not delivered",
		GapFound:         "a look found events that no webhook had told",
		NoticePosted:     "something was told on a ticket",
		NoticeFailed:     "something could not be told on a ticket, and is not tried again",
	}
}
