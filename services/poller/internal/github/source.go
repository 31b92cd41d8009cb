package github

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"time"

	gh "github.com/google/go-github/v90/github"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/services/poller/internal/poll"
)

const pageSize = 100

var _ poll.Source = (*Client)(nil)

// Items returns the open issues under our care, and all open pull requests where those are wanted. What slips from one page to the one
// before it while they are read is seen the next time.
func (c *Client) Items(ctx context.Context, repository string) (poll.Listing, error) {
	var out poll.Listing
	care := c.care()
	care.mentioned = map[int]bool{}
	seen := map[int]bool{}
	queries, err := c.triggers(ctx)
	for _, q := range queries {
		issues, at, err := readList(ctx, c, repository, "issues?"+q.query.Encode(), full[gh.Issue])
		if err != nil {
			return poll.Listing{}, err
		}
		if out.At.IsZero() {
			out.At = at
		}
		for i := range issues {
			number := issues[i].GetNumber()
			if q.care == poll.CareMention {
				care.mentioned[number] = true
			}
			if issues[i].IsPullRequest() || seen[number] {
				continue
			}
			seen[number] = true
			item, err := c.item(repository, &issues[i])
			if err != nil {
				return poll.Listing{}, err
			}
			item.Care = q.care
			c.remember(repository, item.NodeID)
			out.Items = append(out.Items, item)
		}
	}
	if err != nil || !c.pulls {
		return out, err
	}
	return c.withPulls(ctx, repository, out, care)
}

// withPulls adds the open pull requests. One that is changed while they are read may be on two pages.
func (c *Client) withPulls(ctx context.Context, repository string, out poll.Listing, care care) (poll.Listing, error) {
	query := url.Values{"state": {"open"}, "sort": {"updated"}, "direction": {"desc"}, "per_page": {strconv.Itoa(pageSize)}}
	// A new one comes first, so that the first page changes.
	pulls, at, err := readList(ctx, c, repository, "pulls?"+query.Encode(), never[[]gh.PullRequest])
	if err != nil {
		return poll.Listing{}, err
	}
	if out.At.IsZero() {
		out.At = at
	}
	seen := map[int]bool{}
	for i := range pulls {
		p := &pulls[i]
		if seen[p.GetNumber()] {
			continue
		}
		seen[p.GetNumber()] = true
		item, err := pullOf(c.host, repository, p)
		if err != nil {
			return poll.Listing{}, c.odd(repository, "a pull request", err)
		}
		item.Care = care.of(p.GetNumber(), p.Labels, p.Assignees)
		c.remember(repository, item.NodeID)
		out.Items = append(out.Items, item)
	}
	return out, nil
}

// trigger is a list of issues, and what it puts under our care.
type trigger struct {
	care  string
	query url.Values
}

// triggers returns the lists to read, in the order in which they count.
func (c *Client) triggers(ctx context.Context) ([]trigger, error) {
	var out []trigger
	add := func(care, key, value string) {
		if value != "" {
			out = append(out, trigger{care, url.Values{"state": {"open"}, key: {value}, "sort": {"created"}, "direction": {"asc"},
				"per_page": {strconv.Itoa(pageSize)}}})
		}
	}
	add(poll.CareLabel, "labels", c.label)
	add(poll.CareAssigned, "assignee", c.assignee)
	mention := c.mention
	if c.mentionSelf {
		var err error
		if mention, err = c.Self(ctx); err != nil {
			return nil, err
		}
	}
	add(poll.CareMention, "mentioned", mention)
	for _, label := range c.teamLabels {
		add(poll.CareTeam, "labels", label)
	}
	return out, nil
}

// Item returns one issue or pull request, open or not. That it mentions an account does not show when it is asked for alone.
func (c *Client) Item(ctx context.Context, repository string, number uint64, pull bool) (poll.Item, error) {
	care := c.care()
	if !pull {
		var issue gh.Issue
		if err := c.one(ctx, repository, fmt.Sprintf("issues/%d", number), &issue); err != nil {
			return poll.Item{}, err
		}
		if !issue.IsPullRequest() {
			item, err := c.item(repository, &issue)
			item.Care = care.ofIssue(item, issue.Labels, issue.Assignees)
			return item, err
		}
	}
	var p gh.PullRequest
	if err := c.one(ctx, repository, fmt.Sprintf("pulls/%d", number), &p); err != nil {
		return poll.Item{}, err
	}
	item, err := pullOf(c.host, repository, &p)
	if err != nil {
		return poll.Item{}, c.odd(repository, "a pull request", err)
	}
	item.Care = care.of(p.GetNumber(), p.Labels, p.Assignees)
	return item, nil
}

// Posts returns what was written in the thread of an issue or a pull request, or changed there, at or after a time, all for the zero time.
// Reviews are always all there.
func (c *Client) Posts(ctx context.Context, repository string, number uint64, pull bool, since time.Time) ([]poll.Post, error) {
	query := url.Values{"per_page": {strconv.Itoa(pageSize)}}
	reviews := "?" + query.Encode()
	if !since.IsZero() {
		query.Set("since", since.UTC().Format(time.RFC3339))
	}
	changed := "?" + query.Encode()
	out, err := posts(ctx, c, repository, fmt.Sprintf("issues/%d/comments%s", number, changed), func(n *comment) (poll.Post, bool, error) {
		post, err := postOfComment(&n.IssueComment, n.App != nil)
		return post, true, err
	}, (*comment).GetID)
	if err != nil || !pull {
		return out, err
	}
	said, err := posts(ctx, c, repository, fmt.Sprintf("pulls/%d/reviews%s", number, reviews), postOfReview, (*gh.PullRequestReview).GetID)
	if err != nil {
		return nil, err
	}
	inline, err := posts(ctx, c, repository, fmt.Sprintf("pulls/%d/comments%s", number, changed),
		func(n *gh.PullRequestComment) (poll.Post, bool, error) {
			post, err := postOfReviewComment(n)
			return post, true, err
		}, (*gh.PullRequestComment).GetID)
	return slices.Concat(out, said, inline), err
}

// posts reads a list of posts; post returns false for what is not to be seen.
func posts[T any](ctx context.Context, c *Client, repository, path string, post func(*T) (poll.Post, bool, error), id func(*T) int64) ([]poll.Post, error) {
	found, err := readStable(ctx, c, repository, path, id)
	if err != nil {
		return nil, err
	}
	out := make([]poll.Post, 0, len(found))
	for i := range found {
		p, seen, err := post(&found[i])
		if err != nil {
			return nil, c.odd(repository, "something written", err)
		}
		if seen {
			c.remember(repository, p.NodeID)
			out = append(out, p)
		}
	}
	return out, nil
}

// HasPost asks for one post by itself, and reports whether it is there.
func (c *Client) HasPost(ctx context.Context, repository string, number uint64, kind string, id int64) (bool, error) {
	rest := fmt.Sprintf("issues/comments/%d", id)
	switch kind {
	case poll.KindReview:
		rest = fmt.Sprintf("pulls/%d/reviews/%d", number, id)
	case poll.KindReviewComment:
		rest = fmt.Sprintf("pulls/comments/%d", id)
	}
	var found struct{}
	err := c.one(ctx, repository, rest, &found)
	if errors.Is(err, fault.NotFound) {
		return false, nil
	}
	return err == nil, err
}

func (c *Client) item(repository string, issue *gh.Issue) (poll.Item, error) {
	item, err := itemOf(c.host, repository, issue)
	if err != nil {
		return poll.Item{}, c.odd(repository, "an issue", err)
	}
	item.TeamLabels = labelsOf(issue.Labels, c.teamLabels)
	return item, nil
}

// care says what puts an item under our care, without who mentions whom.
func (c *Client) care() care { return care{label: c.label, assignee: c.assignee} }

func (c *Client) odd(repository, what string, err error) error {
	return fault.Newf(fault.Invalid, fault.ReasonSourceRefused, "%s answers about %s with %s that cannot be used: %v", c.base.Host, repository, what, err).
		WithRemedy("check base_url: is it a server that speaks GitHub's REST API?")
}
