package github

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/services/poller/internal/notify"
)

var _ notify.Tickets = (*Client)(nil)

// inlineComment is the kind of what is written at a line of a pull request: it has an API of its own.
const inlineComment = "review_comment"

// maxWriteAnswer bounds what is read of the answer to a write, so that its connection can be used again.
const maxWriteAnswer = 1 << 20

// Noticed reports whether a comment of an issue has a mark.
func (c *Client) Noticed(ctx context.Context, repository string, number uint64, mark string) (bool, error) {
	comments, err := c.Posts(ctx, repository, number, false, time.Time{}) // a pull request's are read as an issue's
	for _, n := range comments {
		if strings.Contains(n.Body, mark) {
			return true, nil
		}
	}
	return false, err
}

// Notice writes a comment. It is not repeated here: after an error, the comment may be there.
func (c *Client) Notice(ctx context.Context, repository string, number uint64, text string) error {
	return c.post(ctx, repository, fmt.Sprintf("issues/%d/comments", number), map[string]string{"body": text})
}

// React puts a reaction on what an event is about: a comment, an inline comment, or the issue itself for comment 0. Doing so again changes
// nothing.
func (c *Client) React(ctx context.Context, repository string, number uint64, kind string, comment int64, content string) error {
	path := fmt.Sprintf("issues/%d/reactions", number)
	switch {
	case kind == inlineComment && comment != 0:
		path = fmt.Sprintf("pulls/comments/%d/reactions", comment)
	case comment != 0:
		path = fmt.Sprintf("issues/comments/%d/reactions", comment)
	}
	return c.post(ctx, repository, path, map[string]string{"content": content})
}

func (c *Client) post(ctx context.Context, repository, rest string, body any) error {
	path, err := c.path(repository, rest)
	if err != nil {
		return err
	}
	asking, cancel := context.WithTimeout(about(ctx, repository), c.timeout)
	defer cancel()
	request, err := c.api.NewRequest(asking, http.MethodPost, path, body)
	if err != nil {
		return fault.Wrap(fault.Internal, "", "cannot write to "+repository, err)
	}
	response, err := c.api.BareDo(request)
	if err != nil {
		return c.failed(ctx, repository, response, err)
	}
	defer func() { _ = response.Body.Close() }() // it was done: what else the answer says is not needed
	_, _ = io.CopyN(io.Discard, response.Body, maxWriteAnswer)
	return nil
}
