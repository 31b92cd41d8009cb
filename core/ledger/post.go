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
	// ReactionConfused is a reaction on what was not delivered.
	ReactionConfused Post = "reaction_confused"
)

// AllPosts lists every post, for tests that must cover them all.
func AllPosts() []Post {
	return []Post{NoticeGaveUp, NoticeUnconfirmed, NoticeHeld, ReactionConfused}
}

// Notice reports whether the post is text on the ticket, and not a reaction.
func (p Post) Notice() bool { return p != ReactionConfused }

// Posts returns what is to be told about an event as it stands now.
func Posts(p Progress, now time.Time) []Post {
	switch {
	case p.State == GaveUp:
		return []Post{NoticeGaveUp, ReactionConfused}
	case p.Occupied():
		return []Post{ReactionConfused}
	case p.State == Settled && p.Reason == ReasonUnconfirmed:
		return []Post{NoticeUnconfirmed}
	case p.State == Held && !p.HeldSince.IsZero() && now.Sub(p.HeldSince) >= HeldLong:
		return []Post{NoticeHeld}
	}
	return nil
}

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
	// Refusals is how often it was refused, and Silences how often it was not answered, or met a limit.
	Refusals, Silences int
	CreatedAt          time.Time
}

// Repost returns the progress of a post that failed, and how long to wait before it is tried again; again is false when it is not.
// refused tells an answer from silence and from a limit, and after is the least wait that the other side asked for.
func Repost(p Posting, refused bool, after time.Duration, now time.Time) (next Posting, wait time.Duration, again bool) {
	if refused {
		p.Refusals++
	} else {
		p.Silences++
	}
	wait = firstRepost
	for range p.Refusals + p.Silences - 1 {
		if wait *= 2; wait >= maxRepost {
			wait = maxRepost
			break
		}
	}
	wait = max(wait, after)
	return p, wait, p.Refusals < PostTries && now.Add(wait).Sub(p.CreatedAt) < PostTime
}
