// Package changes tells whoever follows what changed, in the order of the changes. It holds the last change of each thing and no more. A follower
// is a position in that order and nothing else: what it has not read is superseded by what is newer, so that a slow one costs no memory and
// is waited for by nobody.
//
// It does not know what the things are.
package changes

import (
	"container/list"
	"context"
	"strconv"
	"strings"
	"sync"

	"muxpost.dev/muxpost/core/fault"
)

// Step is one step of what Follow tells. Exactly one field beside the cursor is set.
type Step[T any] struct {
	// Cursor is where to go on after it.
	Cursor   string
	Value    *T
	CaughtUp bool
	// Missed is how many changes were superseded before they were read.
	Missed int64
}

// Log holds the last change of everything.
type Log[T any] struct {
	// life tells the cursors of this log from those of an earlier life of tmuxd.
	life string

	mu sync.Mutex
	// last is the number of the last change.
	last int64
	of   map[string]*list.Element
	// order has the changes, oldest first.
	order *list.List
	// news is closed at the next change.
	news chan struct{}
}

// change is the last change of something.
type change[T any] struct {
	number int64
	value  T
	// past is true for what is told to whoever follows, and to nobody who begins.
	past bool
}

// New returns an empty log. life is a word, without a dot, that no other log has.
func New[T any](life string) *Log[T] {
	return &Log[T]{life: life, of: map[string]*list.Element{}, order: list.New(), news: make(chan struct{})}
}

// Append takes what something is now. With past it is nothing to begin with: it is told to whoever follows by then.
func (l *Log[T]) Append(key string, value T, past bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last++
	c := &change[T]{l.last, value, past}
	if e := l.of[key]; e != nil {
		e.Value = c
		l.order.MoveToBack(e)
	} else {
		l.of[key] = l.order.PushBack(c)
	}
	close(l.news)
	l.news = make(chan struct{})
}

// Amend puts a value in the place of the last one, which is no news.
func (l *Log[T]) Amend(key string, value T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.of[key]; e != nil {
		e.Value.(*change[T]).value = value
	}
}

// Remove takes something out, which is no news either.
func (l *Log[T]) Remove(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.of[key]; e != nil {
		l.order.Remove(e)
		delete(l.of, key)
	}
}

// batchSize is how many changes a follower takes at a time.
const batchSize = 64

// after returns the oldest changes behind a number. Where there are none, last is the number of the last change, and news is closed when
// there is another.
func (l *Log[T]) after(number int64) (out []change[T], last int64, news <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := l.order.Back()
	for at != nil && at.Value.(*change[T]).number > number && at.Prev() != nil {
		at = at.Prev()
	}
	for ; at != nil && len(out) < batchSize; at = at.Next() {
		if c := at.Value.(*change[T]); c.number > number {
			out = append(out, *c)
		}
	}
	return out, l.last, l.news
}

func (l *Log[T]) cursor(number int64) string { return l.life + "." + strconv.FormatInt(number, 10) }

// position reads a cursor. An empty one, and one of another life of tmuxd, begins at the beginning.
func (l *Log[T]) position(cursor string) (number int64, resumed bool, err error) {
	if cursor == "" {
		return 0, false, nil
	}
	life, digits, ok := strings.Cut(cursor, ".")
	number, parseErr := strconv.ParseInt(digits, 10, 64)
	l.mu.Lock()
	defer l.mu.Unlock()
	if !ok || life == "" || parseErr != nil || number < 0 || life == l.life && number > l.last {
		return 0, false, fault.New(fault.Invalid, fault.ReasonBadArgument, "the cursor is not one that this service gave").
			WithRemedy("pass the cursor of the last step on as it came, or none to begin with everything")
	}
	if life != l.life {
		return 0, false, nil
	}
	return number, true, nil
}

// Follow tells everything as it is now, then that this was all, and then what changes, until ctx ends or tell fails; it returns that error.
// With a cursor of this life of tmuxd it begins behind it. Who takes long to be told misses what is superseded meanwhile, is told how much
// that was, and goes on with the newest; nobody waits for them.
func (l *Log[T]) Follow(ctx context.Context, cursor string, tell func(Step[T]) error) error {
	number, resumed, err := l.position(cursor)
	if err != nil {
		return err
	}
	for caughtUp := false; ; {
		changes, last, news := l.after(number)
		for i, c := range changes {
			// The numbers that a beginning passes over are changes of the past.
			if missed := c.number - number - 1; missed > 0 && (resumed || caughtUp) {
				if err := tell(Step[T]{Cursor: l.cursor(c.number - 1), Missed: missed}); err != nil {
					return err
				}
			}
			number = c.number
			if c.past && !resumed && !caughtUp {
				continue
			}
			if err := tell(Step[T]{Cursor: l.cursor(number), Value: &changes[i].value}); err != nil {
				return err
			}
		}
		if len(changes) > 0 {
			if err := ctx.Err(); err != nil {
				return err
			}
			continue
		}
		number = max(number, last)
		if !caughtUp {
			caughtUp = true
			if err := tell(Step[T]{Cursor: l.cursor(number), CaughtUp: true}); err != nil {
				return err
			}
		}
		select {
		case <-news:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
