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
	"muxpost.dev/muxpost/core/workitem"
	"muxpost.dev/muxpost/services/poller/internal/poll"
)

const (
	pageSize = 100
	// maxPages bounds a list: a server whose pages never end must not be followed for ever.
	maxPages = 200
	// maxReadings bounds how often a list that changes is read again.
	maxReadings = 3
)

var _ poll.Source = (*Client)(nil)

// comment is go-github's, and what it leaves out.
type comment struct {
	gh.IssueComment
	App *struct {
		Slug string `json:"slug"`
	} `json:"performed_via_github_app"`
}

// Items returns the open issues with the label. Pull requests, which GitHub lists among them, are left out. An issue that slips
// from one page to the one before it while they are read is seen the next time.
func (c *Client) Items(ctx context.Context, repository string) (poll.Listing, error) {
	query := url.Values{"state": {"open"}, "labels": {c.label}, "sort": {"created"}, "direction": {"asc"}, "per_page": {"100"}}
	issues, at, err := readList[gh.Issue](ctx, c, repository, "issues?"+query.Encode())
	out := poll.Listing{At: at}
	for i := range issues {
		if issues[i].IsPullRequest() {
			continue
		}
		item, err := c.item(repository, &issues[i])
		if err != nil {
			return poll.Listing{}, err
		}
		out.Items = append(out.Items, item)
	}
	return out, err
}

// Item returns one issue, open or not.
func (c *Client) Item(ctx context.Context, repository string, number uint64, _ bool) (poll.Item, error) {
	path, err := c.path(repository, "issues/"+strconv.FormatUint(number, 10))
	if err != nil {
		return poll.Item{}, err
	}
	var issue gh.Issue
	if _, err := c.get(ctx, repository, path, &issue); err != nil {
		return poll.Item{}, err
	}
	return c.item(repository, &issue)
}

// Posts returns the comments of an issue that were written or changed at or after a time, all for the zero time.
//
// A comment that is deleted while a list of several pages is read lets another slip from one page to the one before it, where
// it would be missed for good. Such a list is read until two readings agree; the second costs nothing of the rate limit.
func (c *Client) Posts(ctx context.Context, repository string, number uint64, _ bool, since time.Time) ([]poll.Post, error) {
	query := url.Values{"per_page": {strconv.Itoa(pageSize)}}
	if !since.IsZero() {
		query.Set("since", since.UTC().Format(time.RFC3339))
	}
	path := fmt.Sprintf("issues/%d/comments?%s", number, query.Encode())
	comments, _, err := readList[comment](ctx, c, repository, path)
	for n := 0; err == nil && len(comments) >= pageSize; n++ {
		before := comments
		comments, _, err = readList[comment](ctx, c, repository, path)
		if sameIDs(before, comments) {
			break
		}
		if n == maxReadings {
			return nil, fault.Newf(fault.Unavailable, fault.ReasonSourceUnreachable,
				"the comments of %s#%d changed each time they were read", repository, number)
		}
	}
	if err != nil {
		return nil, err
	}
	out := make([]poll.Post, 0, len(comments))
	for i := range comments {
		n := &comments[i]
		if n.GetNodeID() == "" || n.CreatedAt == nil {
			return nil, c.odd(repository, "a comment without an id or a time")
		}
		out = append(out, poll.Post{
			Kind: poll.KindComment, ID: n.GetID(), NodeID: n.GetNodeID(), Body: n.GetBody(), URL: n.GetHTMLURL(), Author: author(n.User, n.App != nil),
			CreatedAt: n.CreatedAt.Time, UpdatedAt: n.GetUpdatedAt().Time,
		})
	}
	return out, nil
}

// HasPost asks for one comment of an issue by itself, and reports whether it is there.
func (c *Client) HasPost(ctx context.Context, repository string, _ uint64, _ string, id int64) (bool, error) {
	path, err := c.path(repository, "issues/comments/"+strconv.FormatInt(id, 10))
	if err != nil {
		return false, err
	}
	var found comment
	_, err = c.get(ctx, repository, path, &found)
	if errors.Is(err, fault.NotFound) {
		return false, nil
	}
	return err == nil, err
}

func sameIDs(a, b []comment) bool {
	return slices.EqualFunc(a, b, func(a, b comment) bool { return a.GetID() == b.GetID() })
}

// readList reads a list to its end, and returns the server's time of the first page.
func readList[T any](ctx context.Context, c *Client, repository, path string) (all []T, at time.Time, err error) {
	next, err := c.path(repository, path)
	for n := 0; err == nil && next != ""; n++ {
		if n == maxPages {
			return nil, at, c.odd(repository, "a list that does not end")
		}
		var page []T
		var response *gh.Response
		if response, err = c.get(ctx, repository, next, &page); err != nil {
			break
		}
		if n == 0 {
			at = dateOf(response.Header)
		}
		all = append(all, page...)
		next, err = c.next(repository, response)
	}
	if err != nil {
		return nil, at, err
	}
	return all, at, nil
}

// path returns the path of something in a repository, relative to the API.
func (c *Client) path(repository, rest string) (string, error) {
	owner, name, err := SplitRepository(c.host, repository)
	if err != nil {
		return "", err
	}
	return "repos/" + owner + "/" + name + "/" + rest, nil
}

func (c *Client) item(repository string, issue *gh.Issue) (poll.Item, error) {
	owner, name, err := SplitRepository(c.host, repository)
	if err != nil {
		return poll.Item{}, err
	}
	ref, err := workitem.New(c.host, owner, name, strconv.Itoa(issue.GetNumber()))
	if err != nil {
		return poll.Item{}, err
	}
	if issue.GetNodeID() == "" || issue.CreatedAt == nil {
		return poll.Item{}, c.odd(repository, "an issue without an id or a time")
	}
	return poll.Item{
		Ref: ref, NodeID: issue.GetNodeID(), Repository: repository, Title: issue.GetTitle(), Body: issue.GetBody(), URL: issue.GetHTMLURL(),
		Author: author(issue.User, issue.PerformedViaGithubApp != nil), Comments: issue.GetComments(), Open: issue.GetState() != "closed",
		CreatedAt: issue.CreatedAt.Time, UpdatedAt: issue.GetUpdatedAt().Time,
	}, nil
}

func author(u *gh.User, viaApp bool) poll.Author {
	return poll.Author{Login: u.GetLogin(), Machine: viaApp || u.GetType() == "Bot"}
}

func (c *Client) odd(repository, what string) error {
	return fault.Newf(fault.Invalid, fault.ReasonSourceRefused, "%s answers about %s with %s", c.base.Host, repository, what).
		WithRemedy("check base_url: is it a server that speaks GitHub's REST API?")
}

// Checks returns the latest results of CI at a commit.
func (c *Client) Checks(context.Context, string, string) ([]poll.Check, error) { return nil, nil }
