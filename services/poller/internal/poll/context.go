package poll

import (
	"crypto/rand"
	"fmt"
	"slices"

	"muxpost.dev/muxpost/core/prompt"
)

const (
	// ContextComments is how many comments go along at most.
	ContextComments = 10
	// maxContext bounds the context of an event, in bytes; maxContextBody what the item itself says of it, and maxExcerpt each comment.
	maxContext     = 16 << 10
	maxContextBody = 6 << 10
	maxExcerpt     = 2 << 10
	// contextFrame is room for the words and the fences around it.
	contextFrame = 1 << 10
)

// Context is what a conversation that has not seen a work item needs in order to work on it.
type Context struct {
	Title, URL, Body string
	// Comments are the latest ones before the event, oldest first, of people who may steer, and no more than ContextComments.
	Comments []prompt.Post
	// More is true when there are earlier ones.
	More bool
}

// WithContext returns an event's text with the context behind it, framed as somebody else's words, and bounded: the newest comments are
// kept. A text that has no room for it comes back as it is.
func WithContext(templates *prompt.Set, text string, c Context) string {
	d := prompt.Data{Title: c.Title, URL: c.URL, Body: cut(c.Body, maxContextBody)}
	left := maxContext - contextFrame - len(d.Body)
	for _, p := range slices.Backward(c.Comments) {
		p.Author, p.Body = line(p.Author), cut(p.Body, maxExcerpt)
		if left -= len(p.Author) + len(p.Body); left < 0 {
			c.More = true
			break
		}
		d.Thread = append(d.Thread, p)
	}
	slices.Reverse(d.Thread)
	if c.More || len(d.Body) < len(c.Body) {
		d.Notes = []string{fmt.Sprintf("cut to the latest %d of its earlier comments at most, follow the link to read all of it", ContextComments)}
	}
	context, err := templates.Render(prompt.Context, d, rand.Text())
	if err != nil || len(text)+len(context)+2 > prompt.MaxText {
		return text
	}
	return text + "\n\n" + context
}

// ContextBody returns as much of what an item says as a context has of it.
func ContextBody(body string) string { return cut(body, maxContextBody) }

// cut shortens somebody else's text to a number of bytes.
func cut(s string, most int) string { return prompt.Cut(s, most) }
