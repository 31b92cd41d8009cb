package fakegithub

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

var reviewRoutes = []route{
	{"GET", "repos/{owner}/{repo}/pulls/{number}/reviews", withPull((*call).listReviews)},
	{"POST", "repos/{owner}/{repo}/pulls/{number}/reviews", withPull((*call).createReview)},
	{"GET", "repos/{owner}/{repo}/pulls/{number}/reviews/{id}", withReview(func(c *call, rv *review) (reply, error) { return c.ok(c.review(rv)) })},
	{"PUT", "repos/{owner}/{repo}/pulls/{number}/reviews/{id}", withReview((*call).putReview)},
	{"POST", "repos/{owner}/{repo}/pulls/{number}/reviews/{id}/events", withReview((*call).postReviewEvent)},
	{"PUT", "repos/{owner}/{repo}/pulls/{number}/reviews/{id}/dismissals", withReview((*call).putDismissal)},
	{"GET", "repos/{owner}/{repo}/pulls/{number}/reviews/{id}/comments", withReview(func(c *call, rv *review) (reply, error) {
		return paginate(c, rv.comments, c.reviewComment)
	})},
}

// withReview finds a review below its pull request. One that the asker may not see is not there.
func withReview(handle func(*call, *review) (reply, error)) func(*call) (reply, error) {
	return withPull(func(c *call, is *issue) (reply, error) {
		id, err := strconv.ParseInt(c.vars["id"], 10, 64)
		if rv := c.s.reviews[id]; err == nil && rv != nil && rv.issue == is && rv.seenBy(c.user) {
			return handle(c, rv)
		}
		return reply{}, notFound()
	})
}

// listReviews follows "REST: List reviews for a pull request": in chronological order, whatever is asked for.
func (c *call) listReviews(is *issue) (reply, error) {
	var found []*review
	for _, rv := range is.reviews {
		if rv.seenBy(c.user) && !rv.Hidden {
			found = append(found, rv)
		}
	}
	slices.SortFunc(found, func(a, b *review) int {
		if a.State == Pending || b.State == Pending { // what was not submitted comes last
			return cmp.Or(cmp.Compare(btoi(a.State == Pending), btoi(b.State == Pending)), cmp.Compare(a.ID, b.ID))
		}
		return cmp.Or(a.SubmittedAt.Compare(b.SubmittedAt), cmp.Compare(a.ID, b.ID))
	})
	return paginate(c, found, c.review)
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// review renders a review. There is no time of an edit in it, and no time at all in a pending one.
func (c *call) review(rv *review) object {
	is := rv.issue
	page, about := fmt.Sprintf("%s%s#pullrequestreview-%d", c.web, is.pagePath(), rv.ID), fmt.Sprintf("%s/pulls/%d", c.repoURL(), is.Number)
	out := object{
		"id": rv.ID, "node_id": nodeID("PRR", is.repo.id, rv.ID), "user": c.account(rv.Author), "body": rv.Body, "state": rv.State,
		"html_url": page, "pull_request_url": about, "author_association": is.repo.association(rv.Author), "commit_id": orNull(rv.CommitID),
		"_links": object{"html": object{"href": page}, "pull_request": object{"href": about}},
	}
	if rv.State != Pending {
		out["submitted_at"] = rv.SubmittedAt
	}
	return out
}

// reviewEvents follows "REST: Create a review for a pull request": without an event, the review is pending.
var reviewEvents = map[string]string{"": Pending, "APPROVE": Approved, "REQUEST_CHANGES": ChangesRequested, "COMMENT": Commented}

type reviewRequest struct {
	Body, Event string
	CommitID    string `json:"commit_id"`
	Comments    []reviewCommentRequest
}

func (c *call) createReview(is *issue) (reply, error) {
	var in reviewRequest
	if err := c.decode(&in); err != nil {
		return reply{}, err
	}
	state, known := reviewEvents[in.Event]
	if !known {
		return reply{}, invalid("PullRequestReview", "event", "invalid", "event must be APPROVE, REQUEST_CHANGES or COMMENT")
	}
	if err := c.maySubmit(is, state, in.Body, len(in.Comments)); err != nil {
		return reply{}, err
	}
	rv := Review{Author: c.user.Login, Body: in.Body, State: state, CommitID: in.CommitID}
	for _, comment := range in.Comments {
		rv.Comments = append(rv.Comments, comment.value(c.user.Login))
	}
	made, err := c.s.addReview(is, rv)
	if err != nil {
		return reply{}, err
	}
	return c.ok(c.review(made))
}

// maySubmit follows "REST: Create a review for a pull request": whoever asks for changes or comments says something, and nobody judges
// a pull request of their own.
func (c *call) maySubmit(is *issue, state, body string, comments int) error {
	if (state == Approved || state == ChangesRequested) && c.user.Login == is.Author {
		verb := map[string]string{Approved: "approve", ChangesRequested: "request changes on"}[state]
		return &problem{status: http.StatusUnprocessableEntity, message: "Unprocessable Entity: Can not " + verb + " your own pull request"}
	}
	if strings.TrimSpace(body) == "" && comments == 0 && (state == ChangesRequested || state == Commented) {
		return &problem{status: http.StatusUnprocessableEntity, message: "Unprocessable Entity"}
	}
	return checkBody("PullRequestReview", body)
}

// putReview follows "REST: Update a review for a pull request".
func (c *call) putReview(rv *review) (reply, error) {
	if c.user.Login != rv.Author {
		return reply{}, &problem{status: http.StatusForbidden, message: "Must have admin rights to Repository."}
	}
	var in struct{ Body string }
	if err := c.decode(&in); err != nil {
		return reply{}, err
	}
	c.s.editReview(rv, in.Body, c.user)
	return c.ok(c.review(rv))
}

// postReviewEvent follows "REST: Submit a review for a pull request".
func (c *call) postReviewEvent(rv *review) (reply, error) {
	var in struct{ Body, Event string }
	if err := c.decode(&in); err != nil {
		return reply{}, err
	}
	state := reviewEvents[in.Event]
	if in.Event == "" || state == "" || rv.State != Pending {
		return reply{}, &problem{status: http.StatusUnprocessableEntity, message: "Unprocessable Entity"}
	}
	body := cmp.Or(in.Body, rv.Body)
	if err := c.maySubmit(rv.issue, state, body, len(rv.comments)); err != nil {
		return reply{}, err
	}
	rv.Body = body
	c.s.submitReview(rv, state)
	return c.ok(c.review(rv))
}

// putDismissal follows "REST: Dismiss a review for a pull request".
func (c *call) putDismissal(rv *review) (reply, error) {
	if !c.mayWrite() {
		return reply{}, &problem{status: http.StatusForbidden, message: "Must have admin rights to Repository."}
	}
	var in struct{ Message string }
	if err := c.decode(&in); err != nil {
		return reply{}, err
	}
	if in.Message == "" || !rv.mayBeDismissed() {
		return reply{}, &problem{status: http.StatusUnprocessableEntity, message: "Validation Failed"}
	}
	c.s.dismissReview(rv, c.user)
	return c.ok(c.review(rv))
}
