package poll

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"muxpost.dev/muxpost/core/ledger"
	"muxpost.dev/muxpost/core/prompt"
)

const (
	// onlyRevision is that of what happens once whatever is edited later: an opening, and a message by hand.
	onlyRevision = "1"
	// onceMore goes before a text that is typed again by a person's order.
	onceMore = "This is typed once more by order of an operator, because nothing showed whether it arrived the first time. " +
		"Where it did, do not act on it again.\n\n"
	// PerhapsTold goes behind the first line of a text that may have been a part of another one, which was taken back.
	PerhapsTold = " (it may have been told before, as a part of another text; where it was, do not act on it again)"
	// maxThread bounds the earlier comments that go with an opening event, in bytes.
	maxThread = 128 << 10
	// maxBody bounds what one person wrote at once, in bytes; GitHub's own limit is 65,536 characters.
	maxBody = 512 << 10
	// maxTitle bounds a title, in characters.
	maxTitle = 300
)

// maker makes events of one source.
type maker struct {
	source   string
	provider string
	policy   Policy
	budget   int
}

// firstSight returns the opening event of an item, and its comments as the baseline.
func (m maker) firstSight(workItem string, item Item, comments []Comment) ([]Event, error) {
	comments = inOrder(comments)
	opening, err := m.opening(workItem, item, comments)
	if err != nil {
		return nil, err
	}
	events := []Event{opening}
	for _, c := range comments {
		events = append(events, m.settled(m.commentEvent(workItem, item, c), ledger.ReasonBaselined))
	}
	return events, nil
}

// later returns the events of comments that were written after an item's first sight.
func (m maker) later(workItem string, item Item, comments []Comment) ([]Event, error) {
	var events []Event
	for _, c := range inOrder(comments) {
		e := m.commentEvent(workItem, item, c)
		if reason := m.policy.comment(c); reason != "" {
			events = append(events, m.settled(e, reason))
			continue
		}
		if order, ok := AsCommand(e, c.Body); ok {
			events = append(events, order)
			continue
		}
		said := prompt.Event{What: "New comment by " + e.Author + " on " + workItem, Title: item.Title, URL: c.URL, Body: c.Body}
		var err error
		if e.Text, err = render(said); err != nil {
			return nil, err
		}
		said.What = "Edited comment by " + e.Author + " on " + workItem + " (this is what it says now, in place of what it said before)"
		if e.EditedText, err = render(said); err != nil {
			return nil, err
		}
		events = append(events, e)
	}
	return events, nil
}

func (m maker) opening(workItem string, item Item, comments []Comment) (Event, error) {
	e := m.event(workItem, item, KindOpened, item.NodeID, onlyRevision)
	e.Author, e.URL = line(item.Author.Login), line(item.URL)
	e.UpstreamAt = item.CreatedAt
	if reason := m.policy.opening(item); reason != "" {
		return m.settled(e, reason), nil
	}
	thread, left := m.thread(comments)
	what := fmt.Sprintf("Work item %s, opened by %s", workItem, cmp.Or(e.Author, "an account that is gone"))
	if left > 0 {
		what += fmt.Sprintf(" (%d of its earlier comments are left out here, follow the link to read them)", left)
	}
	var err error
	e.Text, err = render(prompt.Event{What: what, Title: item.Title, URL: item.URL, Body: item.Body, Thread: thread})
	return e, err
}

// thread returns what people who may steer said before, oldest first, and how many of it did not fit: the newest are kept.
func (m maker) thread(comments []Comment) (posts []prompt.Post, left int) {
	size := 0
	for _, c := range slices.Backward(comments) {
		if m.policy.comment(c) != "" {
			continue
		}
		size += len(c.Body)
		if left > 0 || size > maxThread {
			left++
			continue
		}
		posts = append(posts, prompt.Post{Author: line(c.Author.Login), Body: c.Body})
	}
	slices.Reverse(posts)
	return posts, left
}

func (m maker) commentEvent(workItem string, item Item, c Comment) Event {
	e := m.event(workItem, item, KindComment, c.NodeID, revisionOf(c.Body))
	e.Author, e.URL = line(c.Author.Login), line(c.URL)
	e.UpstreamAt, e.UpstreamOrder, e.EditedAt = c.CreatedAt, c.ID, c.UpdatedAt
	if m.policy.comment(c) == "" {
		e.Excerpt = cut(c.Body, maxExcerpt)
	}
	return e
}

func (m maker) event(workItem string, item Item, kind, objectID, revision string) Event {
	key := ledger.Key{Provider: m.provider, Host: item.Ref.Host(), Kind: kind, ObjectID: objectID, Revision: revision}
	return Event{
		DeliveryID: ledger.DeliveryID(key, workItem), Key: key, WorkItem: workItem, NodeID: item.NodeID, Source: m.source,
		Kind: kind, Title: line(item.Title), State: ledger.Pending, Budget: m.budget,
	}
}

func (m maker) settled(e Event, reason string) Event {
	e.State, e.Reason, e.Detail, e.Text = ledger.Settled, reason, explain(reason, e.Author), ""
	e.EditedText = ""
	return e
}

// OnceMore returns a text that may be in the conversation already, as it is typed again.
func OnceMore(text string) string {
	if len(onceMore)+len(text) > prompt.MaxText {
		return text
	}
	return onceMore + text
}

// OnceMoreKey returns the natural key of the order to type a delivery again: an event of its own, so that it has an id of its own.
func OnceMoreKey(deliveryID string) ledger.Key {
	return ledger.Key{Provider: ledger.SourceManual, Host: "again", Kind: "again", ObjectID: deliveryID, Revision: onlyRevision}
}

// render returns an event's text as it can be typed. The fence is one that its writers could not know. Whatever was written
// fits: an event that cannot be rendered would stop its item for ever.
func render(e prompt.Event) (string, error) {
	e.Title = line(e.Title)
	if len(e.Body) > maxBody {
		e.Body = strings.ToValidUTF8(e.Body[:maxBody], "")
		e.What += " (cut: it is too long, follow the link to read the rest)"
	}
	text, _, err := prompt.Clean(prompt.Render(e, rand.Text()))
	return text, err
}

// inOrder sorts by time, and within a second by id.
func inOrder(comments []Comment) []Comment {
	return slices.SortedFunc(slices.Values(comments), func(a, b Comment) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
}

// line makes somebody else's text fit for a column and a terminal: one line, nothing that does not show, and not too long.
func line(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return ' '
		}
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, s)
	s = strings.TrimSpace(s)
	if runes := []rune(s); len(runes) > maxTitle {
		s = string(runes[:maxTitle-1]) + "…"
	}
	return s
}
