package ledger

import "time"

// Post is something that muxpost writes upstream: one of each for an event, whatever happens to the event later.
type Post string

// The posts.
const (
	// NoticeGaveUp says on the ticket that an event gave up.
	NoticeGaveUp Post = "notice_gave_up"
	// NoticeUnconfirmed says on the ticket that nobody knows whether an event arrived.
	NoticeUnconfirmed Post = "notice_unconfirmed"
	// NoticeHeld says on the ticket that an event has been held for long.
	NoticeHeld Post = "notice_held"
	// NoticeStarted says on the ticket where the item's first agent was started: one for an item, ever.
	NoticeStarted Post = "notice_started"
	// ReactionEyes is a reaction on what was taken, ReactionHooray on what is in the conversation, ReactionConfused on what was not delivered.
	ReactionEyes     Post = "reaction_eyes"
	ReactionHooray   Post = "reaction_hooray"
	ReactionConfused Post = "reaction_confused"
	// PostCommand is no word upstream but an order to muxpost itself, to be carried out; PostAnswer is what it is answered with.
	PostCommand Post = "command"
	PostAnswer  Post = "answer"
)

// AllPosts lists every post, for tests that must cover them all.
func AllPosts() []Post {
	return []Post{NoticeGaveUp, NoticeUnconfirmed, NoticeHeld, NoticeStarted, ReactionEyes, ReactionHooray, ReactionConfused, PostCommand, PostAnswer}
}

// Notice reports whether the post is text on the ticket that muxpost says by itself.
func (p Post) Notice() bool {
	return p == NoticeGaveUp || p == NoticeUnconfirmed || p == NoticeHeld || p == NoticeStarted
}

// Reaction returns the name of the reaction that the post is, or false when it is none.
func (p Post) Reaction() (content string, ok bool) {
	switch p {
	case ReactionEyes:
		return "eyes", true
	case ReactionHooray:
		return "hooray", true
	case ReactionConfused:
		return "confused", true
	case NoticeGaveUp, NoticeUnconfirmed, NoticeHeld, NoticeStarted, PostCommand, PostAnswer:
	}
	return "", false
}

// Wanted reports whether a source that lets muxpost write notices, or put reactions, gets the post. What was not delivered is a reaction with
// either.
func (p Post) Wanted(notices, reactions bool) bool {
	switch _, reaction := p.Reaction(); {
	case p == PostCommand:
		return true
	case p == ReactionConfused:
		return notices || reactions
	case reaction:
		return reactions
	}
	return notices
}

// Reactable reports whether what an event of a kind is about can have a reaction upstream. GitHub's REST API has none on a review, and what
// became of an item and a result of CI are nothing that was written.
func Reactable(kind string) bool {
	return kind == "opened" || kind == "comment" || kind == "review_comment"
}

// Posts returns what is to be told about an event as it stands now. That it was taken, and where an agent was started, is told when it happens.
func Posts(p Progress, now time.Time) []Post {
	switch {
	case p.State == GaveUp:
		return []Post{NoticeGaveUp, ReactionConfused}
	case p.State == Dropped:
		return []Post{ReactionConfused}
	case p.State == Delivered:
		return []Post{ReactionHooray}
	case p.State == Settled && p.Reason == ReasonUnconfirmed:
		return []Post{NoticeUnconfirmed}
	case p.State == Held && !p.HeldSince.IsZero() && now.Sub(p.HeldSince) >= HeldLong:
		return []Post{NoticeHeld}
	}
	return nil
}

// CommandTime is how old an order may become: what was not carried out by then would surprise whoever gave it.
const CommandTime = 15 * time.Minute

const (
	// PostTries is how often a post may be refused.
	PostTries = 5
	// PostTime is how old a post may become: what happened a day ago is no news.
	PostTime = 24 * time.Hour

	firstRepost = 30 * time.Second
	maxRepost   = time.Hour
)

// Posting is how far a post has come.
type Posting struct {
	// Time is how old it may become; zero means PostTime.
	Time time.Duration
	// Refusals is how often it was refused, and Silences how often it was not answered, or met a limit.
	Refusals, Silences int
	CreatedAt          time.Time
}

// Limit is how old the post may become.
func (p Posting) Limit() time.Duration { return orDefault(p.Time, PostTime) }

// Repost returns the progress of a post that failed, and how long to wait before it is tried again; again is false when it is not.
// refused tells an answer from silence and from a limit, and after is the least wait that the other side asked for.
func Repost(p Posting, refused bool, after time.Duration, now time.Time) (next Posting, wait time.Duration, again bool) {
	if refused {
		p.Refusals++
	} else {
		p.Silences++
	}
	longest := min(maxRepost, p.Limit()/15)
	wait = firstRepost
	for range p.Refusals + p.Silences - 1 {
		if wait *= 2; wait >= longest {
			wait = longest
			break
		}
	}
	wait = max(wait, after)
	return p, wait, p.Refusals < PostTries && now.Add(wait).Sub(p.CreatedAt) < p.Limit()
}
