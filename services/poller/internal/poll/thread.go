package poll

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/ledger"
)

// goneEditor stands for an editor whose account is gone: nobody, who may not steer.
var goneEditor = Author{Login: "(an account that is gone)"}

func orGone(a Author) Author {
	if a == (Author{}) {
		return goneEditor
	}
	return a
}

// thread reads what was said in a thread since a time, all of it for the zero time, and returns what is to be recorded of it. All of it
// is read while something is on its way or missing: that one is no longer there shows only then.
func (l *look) thread(ctx context.Context, t thread, since time.Time, missing []Missing, baseline, at time.Time) (Record, error) {
	complete := since.IsZero()
	if !complete {
		since = since.Add(-overlap)
	}
	posts, err := l.posts(ctx, t, since)
	if err != nil {
		return Record{}, err
	}
	events, err := l.maker.later(t, posts, baseline)
	if err != nil {
		return Record{}, err
	}
	var gone []string
	if complete {
		if gone, err = l.gone(ctx, t, missing, events, at); err != nil {
			return Record{}, err
		}
	}
	return Record{WorkItem: t.workItem, Item: t.item, SeenAt: at, CommentsSince: newest(posts), Events: events, Complete: complete, Gone: gone}, nil
}

// posts reads posts, and asks who edited those that look edited and would count: the thread shows only who wrote them. A review tells no
// time of its changes, so each is asked about, but for those that are only an envelope.
func (l *look) posts(ctx context.Context, t thread, since time.Time) ([]Post, error) {
	posts, err := l.watched.Source.Posts(ctx, t.item.Repository, t.item.Ref.Number(), t.item.Pull != nil, since)
	if err != nil {
		return nil, err
	}
	return posts, l.whoEdited(ctx, posts, t.item.UpdatedAt)
}

// whoEdited asks who edited posts of a thread that was last changed at a time.
func (l *look) whoEdited(ctx context.Context, posts []Post, changed time.Time) error {
	var ask []string
	for i := range posts {
		c := &posts[i]
		looks := c.UpdatedAt.After(c.CreatedAt) || c.Kind == KindReview && !c.envelope()
		if c.EditorKnown || !looks || l.maker.policy.judge(c.Author, c.Body) != "" {
			continue
		}
		if edit, known := l.edits.get(editKey(*c, changed)); known {
			c.edited(edit)
		} else {
			ask = append(ask, c.NodeID)
		}
	}
	if len(ask) == 0 {
		return nil
	}
	edits, err := l.askEdits(ctx, ask)
	if err != nil || edits == nil {
		return err
	}
	for i := range posts {
		c := &posts[i]
		if c.EditorKnown || !slices.Contains(ask, c.NodeID) {
			continue
		}
		edit := edits[c.NodeID]
		if said := edit.Body; said == nil || revisionOf(*said) == revisionOf(c.Body) {
			l.edits.put(editKey(*c, changed), edit)
		} else {
			// The list is of another moment than the answer: only what was told together belongs together.
			c.Body = *said
		}
		c.edited(edit)
	}
	return nil
}

// edited completes a post with how it was last edited. What has a time of its own keeps that.
func (c *Post) edited(e Edit) {
	c.EditorKnown = true
	if !e.Edited {
		return
	}
	c.Editor = orGone(e.Editor)
	if c.Kind == KindReview {
		c.UpdatedAt = latest(c.UpdatedAt, e.At)
	}
}

// edits remembers who edited what, so that a thread that is read again and again is asked about once.
type edits struct {
	mu    sync.Mutex
	known map[string]Edit
}

// maxEdits bounds what is remembered.
const maxEdits = 10_000

func (e *edits) get(key string) (Edit, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	edit, ok := e.known[key]
	return edit, ok
}

func (e *edits) put(key string, edit Edit) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.known == nil || len(e.known) >= maxEdits {
		e.known = map[string]Edit{}
	}
	e.known[key] = Edit{Edited: edit.Edited, Editor: edit.Editor, At: edit.At}
}

// editKey says of which text something is remembered. A review may say again what it said before, at another time: what is known of it
// holds until its thread, which was last changed at a time, changes.
func editKey(c Post, changed time.Time) string {
	at := c.UpdatedAt
	if c.Kind == KindReview {
		at = changed
	}
	return c.NodeID + " " + at.String() + " " + ledger.Revision(c.Body)
}

// askEdits asks who edited what; nil when nobody can be asked.
func (l *look) askEdits(ctx context.Context, nodeIDs []string) (map[string]Edit, error) {
	if l.watched.Graph == nil {
		return nil, nil
	}
	edits, err := l.watched.Graph.Edits(ctx, nodeIDs)
	if errors.Is(err, fault.Denied) || errors.Is(err, fault.Invalid) || errors.Is(err, fault.NotFound) {
		// It will not be answered by asking again: what looks edited is refused, on the record.
		return nil, nil
	}
	if edits == nil && err == nil {
		edits = map[string]Edit{}
	}
	return edits, err
}

// gone asks for the posts that have been missing for long enough and are not listed now either, each by itself, and returns those
// that are gone. One listing alone proves nothing: it may be older than the one before.
func (l *look) gone(ctx context.Context, t thread, missing []Missing, listed []Event, at time.Time) (gone []string, err error) {
	there := make(map[string]bool, len(listed))
	for _, e := range listed {
		there[ObjectOf(e.Key)] = true
	}
	for _, m := range missing {
		if there[m.Object] || at.Sub(m.Since) < missingTime {
			continue
		}
		found, err := l.watched.Source.HasPost(ctx, t.item.Repository, t.item.Ref.Number(), m.Kind, m.ID)
		if err != nil {
			return nil, err
		}
		if !found {
			gone = append(gone, m.Object)
		}
	}
	return gone, nil
}
