package fakegithub

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// The comments' own routes come before those of a number: "comments" is no number, but it matches {number}.
var reviewCommentRoutes = []route{
	{"GET", "repos/{owner}/{repo}/pulls/comments", (*call).listRepoReviewComments},
	{"GET", "repos/{owner}/{repo}/pulls/comments/{id}", withReviewComment(func(c *call, n *reviewComment) (reply, error) {
		return c.ok(c.reviewComment(n))
	})},
	{"PATCH", "repos/{owner}/{repo}/pulls/comments/{id}", withReviewComment((*call).patchReviewComment)},
	{"DELETE", "repos/{owner}/{repo}/pulls/comments/{id}", withReviewComment((*call).removeReviewComment)},
	{"GET", "repos/{owner}/{repo}/pulls/comments/{id}/reactions", withReviewComment(func(c *call, n *reviewComment) (reply, error) {
		return c.listReactions(n.Reactions)
	})},
	{"POST", "repos/{owner}/{repo}/pulls/comments/{id}/reactions", withReviewComment(func(c *call, n *reviewComment) (reply, error) {
		return c.addReaction(&n.Reactions)
	})},
	{"GET", "repos/{owner}/{repo}/pulls/{number}/comments", withPull(func(c *call, is *issue) (reply, error) {
		return c.reviewCommentsSince(is.inlineComments())
	})},
	{"POST", "repos/{owner}/{repo}/pulls/{number}/comments", withPull((*call).createReviewComment)},
	{"POST", "repos/{owner}/{repo}/pulls/{number}/comments/{id}/replies", withPull((*call).createReply)},
}

func withReviewComment(handle func(*call, *reviewComment) (reply, error)) func(*call) (reply, error) {
	return func(c *call) (reply, error) {
		id, err := strconv.ParseInt(c.vars["id"], 10, 64)
		if n := c.s.inline[id]; err == nil && n != nil && n.review.issue.repo == c.repo && n.review.seenBy(c.user) {
			return handle(c, n)
		}
		return reply{}, notFound()
	}
}

func (c *call) listRepoReviewComments() (reply, error) {
	var all []*reviewComment
	for _, is := range c.repo.issues {
		all = append(all, is.inlineComments()...)
	}
	return c.reviewCommentsSince(all)
}

// reviewCommentsSince follows "REST: List review comments on a pull request" and "… in a repository": ascending by id, unless a sort is
// given, without which the direction counts for nothing.
func (c *call) reviewCommentsSince(all []*reviewComment) (reply, error) {
	since, err := c.since()
	if err != nil {
		return reply{}, err
	}
	sort, descending := c.query.Get("sort"), c.query.Get("direction") == "desc"
	all = slices.DeleteFunc(all, func(n *reviewComment) bool { return n.Hidden || n.UpdatedAt.Before(since) })
	slices.SortFunc(all, func(a, b *reviewComment) int {
		order := 0
		switch sort {
		case "updated":
			order = a.UpdatedAt.Compare(b.UpdatedAt)
		case "created", "created_at":
			order = a.CreatedAt.Compare(b.CreatedAt)
		}
		order = cmp.Or(order, cmp.Compare(a.ID, b.ID))
		if descending && sort != "" {
			return -order
		}
		return order
	})
	return paginate(c, all, c.reviewComment)
}

// reviewComment renders a comment on the diff. One that is outdated has an original line and no line ("REST: Get a review comment for a
// pull request": line is the line to which it applies, and may be absent); it has followed the head to a later commit.
func (c *call) reviewComment(n *reviewComment) object {
	is := n.review.issue
	self, about := fmt.Sprintf("%s/pulls/comments/%d", c.repoURL(), n.ID), fmt.Sprintf("%s/pulls/%d", c.repoURL(), is.Number)
	page := fmt.Sprintf("%s%s#discussion_r%d", c.web, is.pagePath(), n.ID)
	line, start, position, commit, subject := orNull(n.Line), orNull(n.StartLine), any(1), is.Pull.HeadSHA, "line"
	if n.Outdated {
		line, start, position, commit = nil, nil, nil, n.CommitID
	}
	if n.Line == 0 {
		subject = "file"
	}
	var startSide any
	if n.StartLine != 0 {
		startSide = n.Side
	}
	out := object{
		"id": n.ID, "node_id": nodeID("PRRC", is.repo.id, n.ID), "pull_request_review_id": n.review.ID, "diff_hunk": n.DiffHunk,
		"path": n.Path, "position": position, "original_position": 1, "line": line, "original_line": orNull(n.Line),
		"start_line": start, "original_start_line": orNull(n.StartLine), "side": n.Side, "start_side": startSide, "subject_type": subject,
		"commit_id": commit, "original_commit_id": n.CommitID, "user": c.account(n.Author), "body": n.Body,
		"author_association": is.repo.association(n.Author), "created_at": n.CreatedAt, "updated_at": n.UpdatedAt,
		"url": self, "html_url": page, "pull_request_url": about, "reactions": rollup(self, n.Reactions),
		"_links": object{"self": object{"href": self}, "html": object{"href": page}, "pull_request": object{"href": about}},
	}
	if n.InReplyTo != 0 { // a comment that begins a thread has no such field
		out["in_reply_to_id"] = n.InReplyTo
	}
	return out
}

type reviewCommentRequest struct {
	Body, Path, Side string
	Line             int
	StartLine        int    `json:"start_line"`
	CommitID         string `json:"commit_id"`
	InReplyTo        int64  `json:"in_reply_to"`
}

func (in reviewCommentRequest) value(author string) ReviewComment {
	return ReviewComment{Author: author, Body: in.Body, Path: in.Path, Side: in.Side, Line: in.Line, StartLine: in.StartLine,
		CommitID: in.CommitID, InReplyTo: in.InReplyTo}
}

// createReviewComment follows "REST: Create a review comment for a pull request".
func (c *call) createReviewComment(is *issue) (reply, error) {
	var in reviewCommentRequest
	if err := c.decode(&in); err != nil {
		return reply{}, err
	}
	if in.InReplyTo != 0 {
		return c.replyTo(is, in.InReplyTo, in.Body)
	}
	if in.Path == "" || in.CommitID == "" {
		return reply{}, invalid("PullRequestReviewComment", "path", "missing_field", "path and commit_id are needed")
	}
	return c.newReviewComment(is, in.value(c.user.Login))
}

// createReply follows "REST: Create a reply for a review comment".
func (c *call) createReply(is *issue) (reply, error) {
	id, err := strconv.ParseInt(c.vars["id"], 10, 64)
	if err != nil {
		return reply{}, notFound()
	}
	var in struct{ Body string }
	if err := c.decode(&in); err != nil {
		return reply{}, err
	}
	return c.replyTo(is, id, in.Body)
}

// replyTo takes only the comment that began a thread ("REST: Create a reply for a review comment": replies to replies are not supported).
func (c *call) replyTo(is *issue, id int64, body string) (reply, error) {
	first := c.s.inline[id]
	if first == nil || first.review.issue != is || first.InReplyTo != 0 {
		return reply{}, notFound()
	}
	return c.newReviewComment(is, ReviewComment{Author: c.user.Login, Body: body, InReplyTo: id})
}

func (c *call) newReviewComment(is *issue, n ReviewComment) (reply, error) {
	if strings.TrimSpace(n.Body) == "" {
		return reply{}, invalid("PullRequestReviewComment", "body", "missing_field", "Body cannot be blank")
	}
	if err := checkBody("PullRequestReviewComment", n.Body); err != nil {
		return reply{}, err
	}
	return reply{status: http.StatusCreated, value: c.reviewComment(c.s.addLoneComment(is, n))}, nil
}

func (c *call) patchReviewComment(n *reviewComment) (reply, error) {
	if err := c.mayChange(n.Author); err != nil {
		return reply{}, err
	}
	body, err := c.commentBody()
	if err != nil {
		return reply{}, err
	}
	c.s.editReviewComment(n, body, c.user)
	return c.ok(c.reviewComment(n))
}

func (c *call) removeReviewComment(n *reviewComment) (reply, error) {
	if err := c.mayChange(n.Author); err != nil {
		return reply{}, err
	}
	c.s.deleteReviewComment(n, c.user)
	return reply{status: http.StatusNoContent}, nil
}
