package host

import (
	"container/list"
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/session"
)

// Summary is what is told of a session.
type Summary struct {
	// WorkItem is empty when it is not known.
	WorkItem string
	Status
	// SeenAt is when it was seen so, StartedAt when the incarnation was started; zero when that is not known.
	SeenAt, StartedAt time.Time
}

// MassDeath says that many sessions ended within moments.
type MassDeath struct {
	Sessions int
	Within   time.Duration
}

// Step is one step of what Follow tells. Exactly one field beside the cursor is set.
type Step struct {
	// Cursor is where to go on after it.
	Cursor    string
	Session   *Summary
	CaughtUp  bool
	Missed    int64
	MassDeath *MassDeath
}

// feed holds the last change of every session, in the order of the changes. A follower is a position in that order and nothing else: what
// it has not read is superseded by what is newer, so that a slow one costs no memory and is waited for by nobody.
type feed struct {
	// life tells the cursors of this life of tmuxd from others.
	life string

	mu sync.Mutex
	// last is the number of the last change.
	last  int64
	known map[string]*change
	// order has the changes, oldest first; the newest is always there, older ones may be superseded.
	order *list.List
	// news is closed at the next change.
	news chan struct{}
	// alarm is the last mass death.
	alarm *change
}

// change is the last change of a session, or the last mass death.
type change struct {
	number int64
	place  *list.Element

	session Summary
	// living is true after a session was told as live, until it was told as ended; aliveAt is when it was last seen alive, and endedAt when a
	// process of it ended since.
	living           bool
	aliveAt, endedAt time.Time
	// forgotten is true for what is not known any more: that is told to whoever follows, and to nobody who begins.
	forgotten bool

	deaths *MassDeath
}

// past reports whether a change is nothing to begin with.
func (c *change) past() bool { return c.deaths != nil || c.forgotten }

func newFeed(life string) *feed {
	return &feed{life: life, known: map[string]*change{}, order: list.New(), news: make(chan struct{})}
}

// tell takes what was seen of a session. What was seen before that which is known is passed over. ended is true when it was alive and is not;
// at is then when that was, as far as is known.
func (f *feed) tell(s Summary) (ended bool, at time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.known[s.Target]
	fresh := c == nil
	if fresh {
		c = &change{}
		f.known[s.Target] = c
	} else if s.SeenAt.Before(c.session.SeenAt) {
		return false, at
	}
	switch {
	case s.State == session.Live && !s.Flags.Has(session.Foreign) && !s.Flags.Has(session.Detached):
		c.living, c.aliveAt, c.endedAt = true, s.SeenAt, time.Time{}
	case s.State == session.Dead || s.State == session.Absent:
		if ended, at, c.living = c.living, c.endedAt, false; at.IsZero() {
			at = s.SeenAt
		}
	}
	if s.Lost && !c.aliveAt.IsZero() {
		s.Detail += "; it was last seen alive at " + c.aliveAt.UTC().Format(time.RFC3339)
	}
	told, forgotten := c.session, c.forgotten
	c.session, c.forgotten = s, false
	if fresh || forgotten || !told.same(s) {
		f.append(c)
	}
	return ended, at
}

// forget takes that nothing is known of a session any more: what remained of it was removed.
func (f *feed) forget(s Summary) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c := f.known[s.Target]; c != nil && !c.forgotten && !s.SeenAt.Before(c.session.SeenAt) {
		c.session, c.forgotten, c.living = s, true, false
		f.append(c)
	}
}

// doubt says that a process of an incarnation ended (an empty stamp is whichever there is): until a look says what that means, it is not told
// as live.
func (f *feed) doubt(target, stamp string, at time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.known[target]
	if c == nil || stamp != "" && c.session.Incarnation.Stamp != stamp {
		return
	}
	if c.endedAt.IsZero() {
		c.endedAt = at
	}
	if c.session.State == session.Live {
		c.session.State, c.session.Flags, c.session.SeenAt = session.Unknown, 0, at
		c.session.Detail = "a process of it has ended, and it is being looked at"
	}
}

// raise takes a mass death.
func (f *feed) raise(d MassDeath) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.alarm == nil {
		f.alarm = &change{}
	}
	f.alarm.deaths = &d
	f.append(f.alarm)
}

// append makes a change the newest. The lock is held.
func (f *feed) append(c *change) {
	f.last++
	c.number = f.last
	if c.place == nil {
		c.place = f.order.PushBack(c)
	} else {
		f.order.MoveToBack(c.place)
	}
	close(f.news)
	f.news = make(chan struct{})
}

// same reports whether a reader would be told the same.
func (s Summary) same(t Summary) bool {
	equal := s.Exit.At.Equal(t.Exit.At) && s.StartedAt.Equal(t.StartedAt) && s.Incarnation.Server.Started.Equal(t.Incarnation.Server.Started)
	for _, x := range []*Summary{&s, &t} {
		x.Exit.At, x.StartedAt, x.Incarnation.Server.Started, x.SeenAt = time.Time{}, time.Time{}, time.Time{}, time.Time{}
	}
	return equal && s == t
}

// batchSize is how many changes a follower takes at a time.
const batchSize = 64

// batch is what a follower reads at once.
type batch struct {
	changes []change
	// news is closed when there is more.
	news <-chan struct{}
}

// after returns the oldest changes behind a number.
func (f *feed) after(number int64) batch {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := batch{news: f.news}
	at := f.order.Back()
	for at != nil && at.Prev() != nil && numberOf(at.Prev()) > number {
		at = at.Prev()
	}
	for ; at != nil && len(out.changes) < batchSize; at = at.Next() {
		if numberOf(at) > number {
			out.changes = append(out.changes, *at.Value.(*change))
		}
	}
	return out
}

func numberOf(e *list.Element) int64 { return e.Value.(*change).number }

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
			WithRemedy("pass the cursor of the last step on as it came, or none to begin with every session")
	}
	if life != f.life {
		return 0, false, nil
	}
	return number, true, nil
}

// Follow tells every session as it is known, then that this was all, and then what changes, until ctx ends or tell fails; it returns that
// error. With a cursor of this life of tmuxd it begins behind it. Who takes long to be told misses what is superseded meanwhile, is told how
// much that was, and goes on with the newest; nobody waits for them.
func (h *Host) Follow(ctx context.Context, cursor string, tell func(Step) error) error {
	number, resumed, err := h.feed.position(cursor)
	if err != nil {
		return err
	}
	for caughtUp := false; ; {
		b := h.feed.after(number)
		if len(b.changes) == 0 && !caughtUp {
			caughtUp = true
			if err := tell(Step{Cursor: h.feed.cursor(number), CaughtUp: true}); err != nil {
				return err
			}
		}
		for _, c := range b.changes {
			// The numbers that a beginning passes over are changes of the past.
			if missed := c.number - number - 1; missed > 0 && (resumed || caughtUp) {
				if err := tell(Step{Cursor: h.feed.cursor(c.number - 1), Missed: missed}); err != nil {
					return err
				}
			}
			number = c.number
			step := Step{Cursor: h.feed.cursor(number), Session: &c.session}
			if c.deaths != nil {
				step.Session, step.MassDeath = nil, c.deaths
			}
			if c.past() && !resumed && !caughtUp {
				continue
			}
			if err := tell(step); err != nil {
				return err
			}
		}
		if len(b.changes) > 0 && ctx.Err() == nil {
			continue
		}
		select {
		case <-b.news:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
