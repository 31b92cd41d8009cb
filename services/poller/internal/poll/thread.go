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
// time of its changes, so each is asked about.
func (l *look) posts(ctx context.Context, t thread, since time.Time) ([]Post, error) {
	posts, err := l.watched.Source.Posts(ctx, t.item.Repository, t.item.Ref.Number(), t.item.Pull != nil, since)
	if err != nil {
		return nil, err
	}
	return posts, l.whoEdited(ctx, posts)
}

func (l *look) whoEdited(ctx context.Context, posts []Post) error {
	var ask []string
	for i := range posts {
		c := &posts[i]
		looks := c.UpdatedAt.After(c.CreatedAt) || c.Kind == KindReview && !c.silent()
		if c.EditorKnown || !looks || l.maker.policy.judge(c.Author, c.Body) != "" {
			continue
		}
		if c.Editor, c.EditorKnown = l.edits.get(*c); !c.EditorKnown {
			ask = append(ask, c.NodeID)
		}
	}
	if len(ask) == 0 {
		return nil
	}
	editors, err := l.editors(ctx, ask)
	if err != nil || editors == nil {
		return err
	}
	for i := range posts {
		c := &posts[i]
		if c.EditorKnown || !slices.Contains(ask, c.NodeID) {
			continue
		}
		if editor, edited := editors[c.NodeID]; edited {
			c.Editor = orGone(editor)
		}
		c.EditorKnown = true
		l.edits.put(*c)
	}
	return nil
}

// edits remembers who edited what, so that a thread that is read again and again is asked about once.
type edits struct {
	mu    sync.Mutex
	known map[string]Author
}

// maxEdits bounds what is remembered.
const maxEdits = 10_000

func (e *edits) get(c Post) (Author, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	a, ok := e.known[editKey(c)]
	return a, ok
}

func (e *edits) put(c Post) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.known == nil || len(e.known) >= maxEdits {
		e.known = map[string]Author{}
	}
	e.known[editKey(c)] = c.Editor
}

func editKey(c Post) string {
	return c.NodeID + " " + c.UpdatedAt.String() + " " + ledger.Revision(c.Body)
}

// editors asks who edited what; nil when nobody can be asked. What is known of a text that is unchanged is not asked again.
func (l *look) editors(ctx context.Context, nodeIDs []string) (map[string]Author, error) {
	if l.watched.Graph == nil {
		return nil, nil
	}
	editors, err := l.watched.Graph.Editors(ctx, nodeIDs)
	if errors.Is(err, fault.Denied) || errors.Is(err, fault.Invalid) || errors.Is(err, fault.NotFound) {
		// It will not be answered by asking again: what looks edited is refused, on the record.
		return nil, nil
	}
	if editors == nil && err == nil {
		editors = map[string]Author{}
	}
	return editors, err
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
