package fakegithub

import (
	"slices"
	"time"

	"muxpost.dev/muxpost/core/fault"
)

// The states of a review.
const (
	Approved         = "APPROVED"
	ChangesRequested = "CHANGES_REQUESTED"
	Commented        = "COMMENTED"
	Dismissed        = "DISMISSED"
	Pending          = "PENDING"
)

// Review is a review of a pull request, as it is seeded and reported.
type Review struct {
	// ID is given by the server.
	ID int64 `json:"-"`
	// Author is a login; empty means the owner of the repository.
	Author string `json:"author"`
	// Body may be empty: an approval need not say anything, and a comment on the diff makes a review of its own.
	Body string `json:"body"`
	// State is COMMENTED by default. A PENDING review is seen by its author alone.
	State string `json:"state"`
	// CommitID is the commit that was reviewed, by default the head.
	CommitID string `json:"commit_id"`
	// SubmittedAt defaults to now; a pending review has none.
	SubmittedAt time.Time `json:"submitted_at"`
	// Comments are the review's comments on the diff.
	Comments []ReviewComment `json:"comments"`
	// Hidden keeps it out of lists, as a replica that lags behind does.
	Hidden bool `json:"hidden"`
	Edited
}

// ReviewComment is a comment on the diff of a pull request.
type ReviewComment struct {
	// ID is given by the server.
	ID int64 `json:"-"`
	// ReviewID is the review it belongs to. When it is 0, the comment makes a review without a text, as a single comment does on GitHub.
	ReviewID int64 `json:"-"`
	// InReplyTo is the comment that began the thread. Path and place are taken from there.
	InReplyTo int64 `json:"-"`
	// Author is a login; empty means the author of the review, or the owner of the repository.
	Author string `json:"author"`
	Body   string `json:"body"`
	Path   string `json:"path"`
	// Line is 0 for a comment on the whole file; StartLine is 0 for a comment on one line.
	Line      int `json:"line"`
	StartLine int `json:"start_line"`
	// Side is RIGHT (the default) or LEFT.
	Side     string `json:"side"`
	DiffHunk string `json:"diff_hunk"`
	// CommitID is the commit that was commented on, by default the head.
	CommitID string `json:"commit_id"`
	// Outdated is true when a later push changed the line: it has only an original line then.
	Outdated  bool       `json:"outdated"`
	CreatedAt time.Time  `json:"created_at"`
	UpdatedAt time.Time  `json:"updated_at"`
	Reactions []Reaction `json:"reactions"`
	// Hidden keeps it out of lists, as a replica that lags behind does.
	Hidden bool `json:"hidden"`
	Edited
}

type review struct {
	Review
	issue    *issue
	comments []*reviewComment // by id
}

type reviewComment struct {
	ReviewComment
	review *review
}

// AddReview adds a review with its comments, and returns its id. It fails with fault.NotFound for what is no pull request, and with
// fault.Invalid for a state that there is not.
func (s *Server) AddReview(owner, name string, number int, rv Review) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	is, err := s.findPull(owner, name, number)
	if err != nil {
		return 0, err
	}
	made, err := s.addReview(is, rv)
	if err != nil {
		return 0, err
	}
	return made.ID, nil
}

func (s *Server) addReview(is *issue, rv Review) (*review, error) {
	if rv.State == "" {
		rv.State = Commented
	}
	if !slices.Contains([]string{Approved, ChangesRequested, Commented, Dismissed, Pending}, rv.State) {
		return nil, fault.Newf(fault.Invalid, fault.ReasonBadArgument, "there is no state of a review called %q", rv.State)
	}
	s.lastReview++
	made := &review{Review: rv, issue: is}
	made.ID, made.Comments, made.Author = s.lastReview, nil, s.authorFor(is.repo, rv.Author)
	if made.CommitID == "" {
		made.CommitID = is.Pull.HeadSHA
	}
	made.SubmittedAt, _ = s.times(rv.SubmittedAt, rv.SubmittedAt)
	is.reviews = append(is.reviews, made)
	s.reviews[made.ID] = made
	at := made.SubmittedAt
	if rv.State == Pending {
		made.SubmittedAt = time.Time{}
	} else {
		is.touch(at)
		s.reviewEvent(made, s.userFor(made.Author), "submitted", nil)
	}
	for _, c := range rv.Comments {
		if c.CreatedAt.IsZero() {
			c.CreatedAt = at
		}
		s.addReviewComment(made, c)
	}
	return made, nil
}

// SubmitReview submits a pending review as APPROVED, CHANGES_REQUESTED or COMMENTED. It fails with fault.NotFound, and with fault.Conflict
// for one that is submitted.
func (s *Server) SubmitReview(id int64, state string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	rv, err := s.findReview(id)
	if err != nil {
		return err
	}
	if rv.State != Pending {
		return fault.Newf(fault.Conflict, "", "review %d is submitted already", id)
	}
	s.submitReview(rv, state)
	return nil
}

func (s *Server) submitReview(rv *review, state string) {
	rv.State, rv.SubmittedAt = state, s.now()
	rv.issue.touch(rv.SubmittedAt)
	by := s.userFor(rv.Author)
	s.reviewEvent(rv, by, "submitted", nil)
	for _, c := range rv.comments {
		s.reviewCommentEvent(c, by, "created", nil)
	}
}

// EditReview replaces a review's text, as its author. It fails with fault.NotFound.
func (s *Server) EditReview(id int64, body string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	rv, err := s.findReview(id)
	if err != nil {
		return err
	}
	s.editReview(rv, body, s.userFor(rv.Author))
	return nil
}

// EditReviewBy replaces a review's text as a login. It fails with fault.NotFound.
func (s *Server) EditReviewBy(id int64, body, login string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	rv, err := s.findReview(id)
	if err != nil {
		return err
	}
	s.editReview(rv, body, s.userFor(login))
	return nil
}

// HideReview is HideComment for reviews. Their comments on the diff stay where they are. It fails with fault.NotFound.
func (s *Server) HideReview(id int64, hidden bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	rv, err := s.findReview(id)
	if err != nil {
		return err
	}
	rv.Hidden = hidden
	return nil
}

// editReview leaves no trace in REST but the text: a review has no updated_at there ("REST: Get a review for a pull request").
func (s *Server) editReview(rv *review, body string, by *user) {
	if rv.Body == body {
		return
	}
	before := rv.Body
	rv.Body, rv.Edited = body, Edited{Editor: by.Login, LastEditedAt: s.now()}
	if rv.State != Pending {
		rv.issue.touch(s.now())
		s.reviewEvent(rv, by, "edited", bodyWas(before))
	}
}

// DismissReview dismisses a review, as the repository's owner. It fails with fault.NotFound, and with fault.Conflict for one that neither
// approves nor asks for changes.
func (s *Server) DismissReview(id int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	rv, err := s.findReview(id)
	if err != nil {
		return err
	}
	if !rv.mayBeDismissed() {
		return fault.Newf(fault.Conflict, "", "review %d is %s and cannot be dismissed", id, rv.State)
	}
	s.dismissReview(rv, rv.issue.repo.owner)
	return nil
}

func (rv *review) mayBeDismissed() bool { return rv.State == Approved || rv.State == ChangesRequested }

func (s *Server) dismissReview(rv *review, by *user) {
	rv.State = Dismissed
	rv.issue.touch(s.now())
	s.reviewEvent(rv, by, "dismissed", nil)
}

func (s *Server) findReview(id int64) (*review, error) {
	if rv := s.reviews[id]; rv != nil {
		return rv, nil
	}
	return nil, fault.Newf(fault.NotFound, "", "there is no review %d", id)
}

// seenBy follows "REST: List reviews for a pull request": a review that is pending is its author's alone.
func (rv *review) seenBy(u *user) bool {
	return rv.State != Pending || u != nil && u.Login == rv.Author
}

func (rv *review) snapshot() Review {
	out := rv.Review
	for _, c := range rv.comments {
		note := c.ReviewComment
		note.Reactions = slices.Clone(c.Reactions)
		out.Comments = append(out.Comments, note)
	}
	return out
}
