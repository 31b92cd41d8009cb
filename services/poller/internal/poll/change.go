package poll

import "time"

// Change is what a source told by itself: a webhook. Nothing may depend on its coming, on its coming once, or on the order in which such
// come; a look finds the same.
type Change struct {
	// Event and Action are the provider's words for what happened, such as issue_comment and edited; Action is empty where it has none.
	Event, Action string
	// ID is the provider's own id of the message, GUID in GitHub's words. The same thing may be told under several.
	ID string
	// Repository is where it happened, as owner/repo, in the form of the configuration.
	Repository string
	// Number is the or the pull request's, Pull true of the latter; 0 where it is about a commit.
	Number uint64
	Pull   bool
	// Sender did it.
	Sender Author
	// ReceivedAt is on the database's clock.
	ReceivedAt time.Time
	// Item is the issue or the pull request as it was then. Of a pull request whose comment it is, and of which no more is shown than of an
	// issue, Item.Pull has no head: what is wanted of it is read. Nil where it is about a commit.
	Item *Item
	// Label is the label that was put on or taken off, Assignee who was assigned or is no more; empty for every other action.
	Label, Assignee string
	// Post was written, edited or deleted; nil where it is about something else.
	Post *Post
	// First is true where the post was written and not changed since.
	First bool
	// Deleted is true where the post, or the item where there is no post, is gone.
	Deleted bool
	// Check has ended; nil where it is about something else. Pulls are the pull requests that it names: those of the same repository, and none
	// where it is a fork's.
	Check *Check
	Pulls []uint64
	// Branches are those that the commit of a Check is the head of, as far as they are told.
	Branches []string
}
