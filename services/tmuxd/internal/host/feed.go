package host

import (
	"context"
	"slices"
	"sync"
	"time"

	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/services/tmuxd/internal/changes"
)

// Summary is what is told of a session.
type Summary struct {
	// WorkItem is empty when it is not known.
	WorkItem string
	Status
	// SeenAt is when it was seen so, StartedAt when the incarnation was started; zero when that is not known.
	SeenAt, StartedAt time.Time
	// Doing is what its agent does, as far as that is known without looking at its screen for it; of a living session of ours alone.
	Doing Doing
	// Tells is true when its program tells that by itself.
	Tells bool
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

// feed holds what is known of every session, and tells it.
type feed struct {
	mu    sync.Mutex
	known map[string]*known
	log   *changes.Log[news]
	// forgotten are the targets of what is not known any more, the oldest first.
	forgotten []string
}

// maxForgotten is how many of what is not known any more are kept, the newest, to be told to who follows or comes back a little later. Who has
// not read on by then is told that he missed something.
const maxForgotten = 64

// news is what is told: a session, or a mass death.
type news struct {
	session *Summary
	deaths  *MassDeath
}

// known is what is known of a session.
type known struct {
	session Summary
	// living is true after a session was told as live, until it was told as ended; aliveAt is when it was last seen alive, and endedAt when a
	// process of it ended since.
	living           bool
	aliveAt, endedAt time.Time
	// doingTold is when it was last told what its agent does, and due tells it again; nil when nothing waits to be told.
	doingTold time.Time
	due       *time.Timer
	// learning is true while the conversation is being learnt that is open in it.
	learning bool
	// forgotten is true for what is not known any more.
	forgotten bool
}

func newFeed(life string) *feed {
	return &feed{known: map[string]*known{}, log: changes.New[news](life)}
}

// tell takes what was seen of a session. What was seen before that which is known is passed over. ended is true when it was alive and is not;
// at is then when that was, as far as is known.
func (f *feed) tell(s Summary) (ended bool, at time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.known[s.Target]
	fresh := c == nil
	if fresh {
		c = &known{}
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
	s.Doing = told.doingOf(s)
	if c.session, c.forgotten = s, false; forgotten {
		f.forgotten = slices.DeleteFunc(f.forgotten, func(target string) bool { return target == s.Target })
	}
	if fresh || forgotten || !told.same(s) {
		f.log.Append(s.Target, news{session: &s}, false)
	} else {
		f.log.Amend(s.Target, news{session: &s})
	}
	return ended, at
}

// forget takes that nothing is known of a session any more: what remained of it was removed.
func (f *feed) forget(s Summary) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c := f.known[s.Target]; c != nil && !c.forgotten && !s.SeenAt.Before(c.session.SeenAt) {
		c.session, c.forgotten, c.living = s, true, false
		f.log.Append(s.Target, news{session: &s}, true)
		if f.forgotten = append(f.forgotten, s.Target); len(f.forgotten) > maxForgotten {
			oldest := f.forgotten[0]
			f.forgotten = f.forgotten[1:]
			delete(f.known, oldest)
			f.log.Remove(oldest)
		}
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
		c.session.State, c.session.Flags, c.session.SeenAt, c.session.Doing = session.Unknown, 0, at, Doing{}
		c.session.Detail = "a process of it has ended, and it is being looked at"
		s := c.session
		f.log.Amend(target, news{session: &s})
	}
}

// raise takes a mass death.
func (f *feed) raise(d MassDeath) { f.log.Append("", news{deaths: &d}, true) }

// same reports whether a reader would be told the same.
func (s Summary) same(t Summary) bool {
	equal := s.Exit.At.Equal(t.Exit.At) && s.StartedAt.Equal(t.StartedAt) && s.Incarnation.Server.Started.Equal(t.Incarnation.Server.Started)
	for _, x := range []*Summary{&s, &t} {
		x.Exit.At, x.StartedAt, x.Incarnation.Server.Started, x.SeenAt = time.Time{}, time.Time{}, time.Time{}, time.Time{}
		x.Doing.Since, x.Doing.SeenAt = time.Time{}, time.Time{}
	}
	return equal && s == t
}

// Follow tells every session as it is known, then that this was all, and then what changes, until ctx ends or tell fails: see changes.Log.
func (h *Host) Follow(ctx context.Context, cursor string, tell func(Step) error) error {
	return h.feed.log.Follow(ctx, cursor, func(s changes.Step[news]) error {
		out := Step{Cursor: s.Cursor, CaughtUp: s.CaughtUp, Missed: s.Missed}
		if s.Value != nil {
			out.Session, out.MassDeath = s.Value.session, s.Value.deaths
		}
		return tell(out)
	})
}
