package poll

import (
	"context"
	"time"

	"muxpost.dev/muxpost/core/workitem"
)

// Source is a place where work items live. Its errors are faults: Throttled and Unavailable end the look at the source, any
// other concerns what was asked for alone.
type Source interface {
	// Items returns every open item of a repository that was put under our care there.
	Items(ctx context.Context, repository string) (Listing, error)
	// Item returns one item, open or not. An item that is gone is fault.NotFound.
	Item(ctx context.Context, repository string, number uint64) (Item, error)
	// Comments returns the comments of an item that were written or changed at or after a time; all for the zero time.
	Comments(ctx context.Context, repository string, number uint64, since time.Time) ([]Comment, error)
	// HasComment asks for one comment by itself, and reports whether it is there.
	HasComment(ctx context.Context, repository string, id int64) (bool, error)
}

// Listing is what a repository shows.
type Listing struct {
	// Items in no particular order.
	Items []Item
	// At is when it was shown, on the source's clock.
	At time.Time
}

// Item is a work item as the source shows it. Title and Body are somebody else's text.
type Item struct {
	// Ref is the item's name in the form of today; the ledger may know it under an older one.
	Ref workitem.Ref
	// NodeID is the provider's own id.
	NodeID string
	// Repository is the name under which it was asked for.
	Repository string
	// Author wrote it.
	Author Author
	Title  string
	Body   string
	URL    string
	// CreatedAt and UpdatedAt are on the source's clock; a comment moves UpdatedAt.
	CreatedAt time.Time
	UpdatedAt time.Time
	// Comments is how many there are.
	Comments int
	// Open is false once it was closed.
	Open bool
}

// Comment is a comment as the source shows it. Body is somebody else's text.
type Comment struct {
	// ID orders comments of one second.
	ID int64
	// NodeID is the provider's own id.
	NodeID string
	Author Author
	Body   string
	URL    string
	// CreatedAt and UpdatedAt are on the source's clock, in seconds.
	CreatedAt time.Time
	UpdatedAt time.Time
}

// Author is who wrote something, as the provider attests it.
type Author struct {
	// Login is the account's name; empty for an account that is gone.
	Login string
	// Machine is true of a bot's account, and of anything that an app wrote in a person's name.
	Machine bool
}
