package github

import (
	"context"
	"errors"
	"slices"
	"time"

	gh "github.com/google/go-github/v90/github"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/services/poller/internal/poll"
)

const (
	// maxPages bounds a list: a server whose pages never end must not be followed for ever.
	maxPages = 200
	// maxReadings bounds how often a list that changes is read again.
	maxReadings = 3
)

var errEndless = errors.New("it does not end")

// path returns the path of something in a repository, relative to the API.
func (c *Client) path(repository, rest string) (string, error) {
	owner, name, err := SplitRepository(c.host, repository)
	if err != nil {
		return "", err
	}
	return "repos/" + owner + "/" + name + "/" + rest, nil
}

// one reads one thing in a repository.
func (c *Client) one(ctx context.Context, repository, rest string, v any) error {
	path, err := c.path(repository, rest)
	if err != nil {
		return err
	}
	_, err = c.get(ctx, repository, path, v)
	return err
}

// readPages reads a list to its end, page by page, and returns the server's time of the first page. hides is as readPage's.
func readPages[P any](ctx context.Context, c *Client, repository, path string, hides func(P) bool, take func(P)) (at time.Time, err error) {
	next, err := c.path(repository, path)
	for n := 0; err == nil && next != ""; n++ {
		if n == maxPages {
			return at, c.odd(repository, "a list", errEndless)
		}
		var page P
		var response *gh.Response
		if page, response, err = readPage(ctx, c, repository, next, hides); err != nil {
			return at, err
		}
		if n == 0 {
			at = dateOf(response.Header)
		}
		take(page)
		next, err = c.next(repository, response)
	}
	return at, err
}

// readPage reads one page of a list. hides reports whether it may be the same as before though there is another one behind it by now: a
// 304 need not say so, and GitHub's do not. Such a page is read as it is where it was the last one.
func readPage[P any](ctx context.Context, c *Client, repository, path string, hides func(P) bool) (page P, response *gh.Response, err error) {
	if response, err = c.get(ctx, repository, path, &page); err != nil || !isRepeated(response) || !hides(page) {
		return page, response, err
	}
	if next, err := c.next(repository, response); err != nil || next != "" {
		return page, response, err
	}
	var fresh P
	response, err = c.get(poll.Full(ctx), repository, path, &fresh)
	return fresh, response, err
}

// full is for the pages of lists at whose end something new comes.
func full[T any](page []T) bool { return len(page) >= pageSize }

// never is for pages that change with their list, and for those that were read as they are a moment ago.
func never[P any](P) bool { return false }

// readList reads a list to its end, and returns the server's time of the first page. hides is as readPage's.
func readList[T any](ctx context.Context, c *Client, repository, path string, hides func([]T) bool) (all []T, at time.Time, err error) {
	at, err = readPages(ctx, c, repository, path, hides, func(page []T) { all = append(all, page...) })
	if err != nil {
		return nil, at, err
	}
	return all, at, nil
}

// readStable reads a list in which nothing may be missed.
//
// What is deleted while a list of several pages is read lets something else slip from one page to the one before it, where it would be
// missed for good. Such a list is read until two readings agree; the second costs nothing of the rate limit.
func readStable[T any](ctx context.Context, c *Client, repository, path string, id func(*T) int64) ([]T, error) {
	all, _, err := readList(ctx, c, repository, path, full[T])
	same := func(a, b T) bool { return id(&a) == id(&b) }
	for n := 0; err == nil && len(all) >= pageSize; n++ {
		before := all
		if all, _, err = readList(poll.NotFull(ctx), c, repository, path, never[[]T]); err != nil || slices.EqualFunc(before, all, same) {
			break
		}
		if n == maxReadings {
			return nil, fault.Newf(fault.Unavailable, fault.ReasonSourceUnreachable,
				"%s of %s changed each time it was read", path, repository)
		}
	}
	return all, err
}
