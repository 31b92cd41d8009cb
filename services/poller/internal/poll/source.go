package poll

import (
	"context"
	"time"

	"muxpost.dev/muxpost/core/workitem"
)

// Source is a place where work items live. Its errors are faults: Throttled and Unavailable end the look at the source, any
// other concerns what was asked for alone.
type Source interface {
	// Items returns every open item of a repository that was put under our care there, and every open pull request.
	Items(ctx context.Context, repository string) (Listing, error)
	// Item returns one issue or pull request, open or not; a pull request has its Pull. An item that is gone is fault.NotFound.
	Item(ctx context.Context, repository string, number uint64, pull bool) (Item, error)
	// Posts returns what was written in the thread of an issue or a pull request, or changed there, at or after a time; all for the
	// zero time. Reviews tell no time of a change, and are always all there.
	Posts(ctx context.Context, repository string, number uint64, pull bool, since time.Time) ([]Post, error)
	// HasPost asks for one post by itself, and reports whether it is there. number is its thread's.
	HasPost(ctx context.Context, repository string, number uint64, kind string, id int64) (bool, error)
	// Checks returns the latest results of CI at a commit, those that have not ended included.
	Checks(ctx context.Context, repository, sha string) ([]Check, error)
}

// Graph answers what a thread does not show. Its errors are faults, as a Source's.
type Graph interface {
	// Edits returns how posts, items or pull requests were last edited, by their node ids. What was never edited is not among them, but for
	// reviews.
	Edits(ctx context.Context, nodeIDs []string) (map[string]Edit, error)
	// Closes returns the issues that a pull request closes, as the provider shows it: by its words or by a link.
	Closes(ctx context.Context, nodeID string) ([]workitem.Ref, error)
	// HasBranch reports whether a repository has a branch.
	HasBranch(ctx context.Context, repository, branch string) (bool, error)
	// Self returns the login that the source's token acts as; empty when it has none.
	Self(ctx context.Context) (string, error)
	// Labelled returns who put each of the labels last on an issue, by its node id, in the order of that. What it does not have now is left
	// out.
	Labelled(ctx context.Context, nodeID string, labels []string) ([]Labelling, error)
}

// Edit is how something that was written was last edited.
type Edit struct {
	// Edited is false for a review that never was. Editor did it, and is empty for an account that is gone; At is on the source's clock.
	Edited bool
	Editor Author
	At     time.Time
	// Body is what a review said when all of this was told; nil of anything else.
	Body *string
}

// Listing is what a repository shows.
type Listing struct {
	// Items in no particular order: issues under our care, and all open pull requests.
	Items []Item
	// At is when it was shown, on the source's clock.
	At time.Time
}

// Item is an issue or a pull request as the source shows it. Title and Body are somebody else's text.
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
	// CreatedAt and UpdatedAt are on the source's clock; a comment moves UpdatedAt. ClosedAt is zero while it is open.
	CreatedAt time.Time
	UpdatedAt time.Time
	ClosedAt  time.Time
	// Comments is how many there are; of a pull request in a list it is not known, and -1.
	Comments int
	// Open is false once it was closed.
	Open bool
	// Care is what puts it under our care: one of the names below; empty for a pull request that nothing does.
	Care string
	// TeamLabels are those of an issue's labels that have a team run for it, as the configuration writes them.
	TeamLabels []string
	// Pull is of a pull request, nil of an issue.
	Pull *Pull
}

// Labelling is one putting on of a label.
type Labelling struct {
	// Label is as it was asked for.
	Label string
	// NodeID is the provider's own id of it: the same label put on again has another.
	NodeID string
	Author Author
	// At is on the source's clock.
	At time.Time
}

// What puts an item under our care.
const (
	CareLabel    = "label"
	CareAssigned = "assigned"
	CareMention  = "mention"
	// CareTeam is a label that has a team run: an issue that nothing else puts there has no agent started for it.
	CareTeam = "team"
)

// Pull is what a pull request has beyond an issue.
type Pull struct {
	// Head is its branch, HeadSHA the commit at it, and HeadRepository where that is, as owner/repo; empty when that is gone.
	Head, HeadSHA, HeadRepository string
	// Base is the branch that it is to go into.
	Base   string
	Draft  bool
	Merged bool
}

// Post is something that was written in a thread. Body is somebody else's text, and so is Path.
type Post struct {
	// Kind is KindComment, KindReview or KindReviewComment.
	Kind string
	// ID orders posts of one second.
	ID int64
	// NodeID is the provider's own id.
	NodeID string
	Author Author
	Body   string
	URL    string
	// CreatedAt and UpdatedAt are on the source's clock, in seconds. They are the same for a review, which tells no time of its changes,
	// until the source was asked for that.
	CreatedAt time.Time
	UpdatedAt time.Time
	// Verdict is a review's: one of the names below.
	Verdict string
	// Path, Line and Side say what an inline comment is about; Line is 0 when it is about the file, or its line is gone. Hunk is the
	// part of the difference around it.
	Path string
	Line int
	Side string
	Hunk string
	// Thread is the ID of the inline comment that begins the thread; 0 for any other post.
	Thread int64
	// Editor last edited it, where that is known and was not its author; EditorKnown is true once that is known, also when nobody did.
	Editor      Author
	EditorKnown bool
}

// The verdicts of reviews.
const (
	VerdictApproved  = "approved"
	VerdictChanges   = "changes_requested"
	VerdictCommented = "commented"
	VerdictDismissed = "dismissed"
)

// Check is a result of CI. Name, Title and Summary are somebody else's text.
type Check struct {
	// Kind is CheckRun, CheckWorkflow or CheckStatus.
	Kind   string
	ID     int64
	NodeID string
	// Name is the check's; a result replaces earlier ones of its kind and name at its commit.
	Name string
	// SHA is the commit.
	SHA string
	// Done is false while it runs. Conclusion is the provider's word for how it ended.
	Done       bool
	Conclusion string
	// Attempt tells runs of one ID apart; 0 when there is one.
	Attempt        int
	Title, Summary string
	URL            string
	// EndedAt is on the source's clock.
	EndedAt time.Time
}

// The kinds of checks.
const (
	CheckRun      = "check_run"
	CheckWorkflow = "workflow_run"
	CheckStatus   = "status"
)

// Author is who wrote something, as the provider attests it.
type Author struct {
	// Login is the account's name; empty for an account that is gone.
	Login string
	// Machine is true of a bot's account, and of anything that an app wrote in a person's name.
	Machine bool
	// Association is what the provider says the account is to the repository, in capitals, such as MEMBER; empty when it does not say.
	Association string
}
