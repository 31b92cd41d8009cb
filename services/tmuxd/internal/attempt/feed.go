package attempt

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"

	"muxpost.dev/muxpost/core/fault"
)

// Step is one step of what Follow tells. Exactly one field beside the cursor is set.
type Step struct {
	// Cursor is where to go on after it.
	Cursor   string
	Attempt  *Attempt
	CaughtUp bool
	Missed   int64
}

// feed holds the last change of every attempt. A follower is a number and nothing else: what it has not read is superseded by what is newer,
// so that a slow one costs no memory and is waited for by nobody.
type feed struct {
	// life tells the cursors of this life of tmuxd from others.
	life string

	mu sync.Mutex
	// last is the number of the last change.
	last  int64
	known map[string]change
	// news is closed at the next change.
	news chan struct{}
}

type change struct {
	number  int64
	attempt Attempt
}

func newFeed(life string) *feed {
	return &feed{life: life, known: map[string]change{}, news: make(chan struct{})}
}

// tell takes an attempt as it is now. What would read the same is not told again.
func (f *feed) tell(a Attempt) {
	f.mu.Lock()
	defer f.mu.Unlock()
	told, known := f.known[a.ID]
	if known && told.attempt.same(a) {
		return
	}
	f.last++
	f.known[a.ID] = change{f.last, a}
	close(f.news)
	f.news = make(chan struct{})
}

// forget takes out an attempt that is kept no longer.
func (f *feed) forget(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.known, id)
}

// after returns the changes behind a number, oldest first, the number of the last change, and what is closed when there is more.
func (f *feed) after(number int64) (out []change, last int64, news <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.known {
		if c.number > number {
			out = append(out, c)
		}
	}
	slices.SortFunc(out, func(a, b change) int { return cmp.Compare(a.number, b.number) })
	return out, f.last, f.news
}

func (f *feed) cursor(number int64) string { return f.life + "." + strconv.FormatInt(number, 10) }

// position reads a cursor. An empty one, and one of another life of tmuxd, begins at the beginning.
func (f *feed) position(cursor string) (number int64, resumed bool, err error) {
	if cursor == "" {
		return 0, false, nil
	}
	life, digits, ok := strings.Cut(cursor, ".")
	number, parseErr := strconv.ParseInt(digits, 10, 64)
	f.mu.Lock()
	defer f.mu.Unlock()
	if !ok || life == "" || parseErr != nil || number < 0 || life == f.life && number > f.last {
		return 0, false, fault.New(fault.Invalid, fault.ReasonBadArgument, "the cursor is not one that this service gave").
			WithRemedy("pass the cursor of the last step on as it came, or none to begin with every attempt")
	}
	if life != f.life {
		return 0, false, nil
	}
	return number, true, nil
}

// Follow tells every attempt that is kept, then that this was all, and then what changes, until ctx ends or tell fails; it returns that error.
// With a cursor of this life of tmuxd it begins behind it. Who takes long to be told misses what is superseded meanwhile, is told how much
// that was, and goes on with the newest.
func (r *Runner) Follow(ctx context.Context, cursor string, tell func(Step) error) error {
	number, resumed, err := r.feed.position(cursor)
	if err != nil {
		return err
	}
	for caughtUp := false; ; {
		changes, last, news := r.feed.after(number)
		for i, c := range changes {
			// The numbers that a beginning passes over are changes of the past.
			if missed := c.number - number - 1; missed > 0 && (resumed || caughtUp) {
				if err := tell(Step{Cursor: r.feed.cursor(c.number - 1), Missed: missed}); err != nil {
					return err
				}
			}
			number = c.number
			if err := tell(Step{Cursor: r.feed.cursor(number), Attempt: &changes[i].attempt}); err != nil {
				return err
			}
		}
		number = max(number, last)
		if !caughtUp {
			caughtUp = true
			if err := tell(Step{Cursor: r.feed.cursor(number), CaughtUp: true}); err != nil {
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
