package fakegithub

import (
	"cmp"
	"slices"

	"muxpost.dev/muxpost/core/fault"
)

// AddReviewComment adds a comment on the diff, and returns its id. It fails with fault.NotFound for what is no pull request and for an
// unknown ReviewID or InReplyTo, and with fault.Invalid for a reply to a reply.
func (s *Server) AddReviewComment(owner, name string, number int, c ReviewComment) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	is, err := s.findPull(owner, name, number)
	if err != nil {
		return 0, err
	}
	if c.InReplyTo != 0 {
		first, err := s.findReviewComment(c.InReplyTo)
		if err != nil {
			return 0, err
		}
		if first.InReplyTo != 0 || first.review.issue != is {
			return 0, fault.Newf(fault.Invalid, fault.ReasonBadArgument, "comment %d does not begin a thread of this pull request", c.InReplyTo)
		}
	}
	if c.ReviewID != 0 {
		rv, err := s.findReview(c.ReviewID)
		if err != nil {
			return 0, err
		}
		return s.addReviewComment(rv, c).ID, nil
	}
	return s.addLoneComment(is, c).ID, nil
}

// addLoneComment makes the review that GitHub makes around a single comment or a reply: COMMENTED, and without a text. It is in the list
// of reviews like any other.
func (s *Server) addLoneComment(is *issue, c ReviewComment) *reviewComment {
	rv, _ := s.addReview(is, Review{Author: c.Author, CommitID: c.CommitID, SubmittedAt: c.CreatedAt}) // the state is a known one
	return s.addReviewComment(rv, c)
}

func (s *Server) addReviewComment(rv *review, c ReviewComment) *reviewComment {
	s.lastInline++
	made := &reviewComment{ReviewComment: c, review: rv}
	made.ID, made.ReviewID, made.Reactions = s.lastInline, rv.ID, nil
	made.Author = s.authorFor(rv.issue.repo, cmp.Or(c.Author, rv.Author))
	made.CommitID = cmp.Or(c.CommitID, rv.CommitID)
	if first := s.inline[c.InReplyTo]; first != nil {
		made.Path, made.Line, made.StartLine, made.Side = first.Path, first.Line, first.StartLine, first.Side
		made.DiffHunk, made.Outdated = first.DiffHunk, first.Outdated
	}
	made.Path, made.Side = cmp.Or(made.Path, "README.md"), cmp.Or(made.Side, "RIGHT")
	made.DiffHunk = cmp.Or(made.DiffHunk, "@@ -1 +1,2 @@\n # "+rv.issue.repo.Name+"\n+a line")
	made.CreatedAt, made.UpdatedAt = s.times(c.CreatedAt, c.UpdatedAt)
	for _, re := range c.Reactions {
		s.react(&made.Reactions, s.userFor(re.User), re.Content)
	}
	rv.comments = append(rv.comments, made)
	s.inline[made.ID] = made
	if rv.State != Pending {
		rv.issue.touch(made.UpdatedAt)
		s.reviewCommentEvent(made, s.userFor(made.Author), "created", nil)
	}
	return made
}

// EditReviewComment replaces a comment's text, as its author. It fails with fault.NotFound.
func (s *Server) EditReviewComment(id int64, body string) error {
	return s.onReviewComment(id, func(c *reviewComment) { s.editReviewComment(c, body, s.userFor(c.Author)) })
}

// EditReviewCommentBy replaces a comment's text as a login. It fails with fault.NotFound.
func (s *Server) EditReviewCommentBy(id int64, body, login string) error {
	return s.onReviewComment(id, func(c *reviewComment) { s.editReviewComment(c, body, s.userFor(login)) })
}

// DeleteReviewComment removes a comment for good; its review stays. It fails with fault.NotFound.
func (s *Server) DeleteReviewComment(id int64) error {
	return s.onReviewComment(id, func(c *reviewComment) { s.deleteReviewComment(c, s.userFor(c.Author)) })
}

// HideReviewComment is HideComment for comments on the diff. It fails with fault.NotFound.
func (s *Server) HideReviewComment(id int64, hidden bool) error {
	return s.onReviewComment(id, func(c *reviewComment) { c.Hidden = hidden })
}

// OutdateReviewComment is what happens to a comment when a push changes its line. It fails with fault.NotFound.
func (s *Server) OutdateReviewComment(id int64) error {
	return s.onReviewComment(id, func(c *reviewComment) { c.Outdated = true })
}

func (s *Server) onReviewComment(id int64, change func(*reviewComment)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, err := s.findReviewComment(id)
	if err == nil {
		change(c)
	}
	return err
}

func (s *Server) editReviewComment(c *reviewComment, body string, by *user) {
	if c.Body == body {
		return
	}
	before := c.Body
	c.Body, c.UpdatedAt = body, s.now()
	c.Edited = Edited{Editor: by.Login, LastEditedAt: c.UpdatedAt}
	if c.review.State != Pending {
		c.review.issue.touch(c.UpdatedAt)
		s.reviewCommentEvent(c, by, "edited", bodyWas(before))
	}
}

func (s *Server) deleteReviewComment(c *reviewComment, by *user) {
	delete(s.inline, c.ID)
	c.review.comments = slices.DeleteFunc(c.review.comments, func(other *reviewComment) bool { return other == c })
	if c.review.State != Pending {
		c.review.issue.touch(s.now())
		s.reviewCommentEvent(c, by, "deleted", nil)
	}
}

func (s *Server) findReviewComment(id int64) (*reviewComment, error) {
	if c := s.inline[id]; c != nil {
		return c, nil
	}
	return nil, fault.Newf(fault.NotFound, "", "there is no review comment %d", id)
}

// inlineComments are the comments on the diff that everybody sees: those of pending reviews are not among them.
func (is *issue) inlineComments() []*reviewComment {
	var out []*reviewComment
	for _, rv := range is.reviews {
		if rv.State != Pending {
			out = append(out, rv.comments...)
		}
	}
	slices.SortFunc(out, func(a, b *reviewComment) int { return cmp.Compare(a.ID, b.ID) })
	return out
}
