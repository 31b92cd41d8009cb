package host

import (
	"context"
	"sync"
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/core/workitem"
)

// snapshot is what readers saw last, by target. It holds Status values and nothing else: whatever acts on a session needs a sight, which
// only a look gives, so that nothing that acts can be built on what was seen a while ago.
//
// What could have changed a session turns its entry: the end of a process, a hint of tmux, an act of ours when it begins and when it ends, a
// look that failed. A turned entry is not served, and a look that began before the turn is not kept.
type snapshot struct {
	now     func() time.Time
	mu      sync.Mutex
	entries map[string]*entry
}

type entry struct {
	status Status
	// seen is when the look began that saw it.
	seen time.Time
	// fresh is true while nothing has turned it since.
	fresh bool
	turns uint64
	// acts counts our acts under way, and acted is when the last one ended.
	acts  int
	acted time.Time
	// ended is the stamp of the last incarnation whose process is known to have ended.
	ended string
	// known is false for what is only asked about: it was never there, and never acted on.
	known bool
	// flight is the look that readers wait for together.
	flight *flight
}

// flight is one look for however many readers.
type flight struct {
	began time.Time
	done  chan struct{}
	// status is what was seen, once done; good is false when it was turned under the look.
	status Status
	good   bool
}

// mark is the beginning of a look.
type mark struct {
	target string
	entry  *entry
	turns  uint64
	began  time.Time
}

func newSnapshot(now func() time.Time) *snapshot {
	return &snapshot{now: now, entries: map[string]*entry{}}
}

// get returns the entry of a target. The lock is held.
func (s *snapshot) get(target string) *entry {
	e := s.entries[target]
	if e == nil {
		e = &entry{}
		s.entries[target] = e
	}
	return e
}

// read returns what was seen at most maxAge before it was asked for, or else the flight to wait for; mine is true when it is the caller's to
// fly.
func (s *snapshot) read(target string, asked time.Time, maxAge time.Duration) (st Status, age time.Duration, f *flight, mine bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.get(target)
	if age = asked.Sub(e.seen); maxAge > 0 && e.fresh && age <= maxAge {
		return e.status, max(age, 0), nil, false
	}
	if e.flight != nil {
		return Status{}, 0, e.flight, false
	}
	e.flight = &flight{began: s.now(), done: make(chan struct{})}
	return Status{}, 0, e.flight, true
}

// land ends a flight. What it saw in a look that was kept may have been turned since.
func (s *snapshot) land(target string, f *flight, m mark) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f.good = f.good && s.entries[target] == m.entry && m.entry.turns == m.turns
	close(f.done)
	if e := s.entries[target]; e != nil && e.flight == f {
		e.flight = nil
		s.tidy(target, e)
	}
}

// tidy forgets an entry that holds nothing: anybody may ask about anything. The lock is held.
func (s *snapshot) tidy(target string, e *entry) {
	if !e.known && e.acts == 0 && e.flight == nil {
		delete(s.entries, target)
	}
}

// begin marks the beginning of a look.
func (s *snapshot) begin(target string) mark {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.get(target)
	return mark{target, e, e.turns, s.now()}
}

// keep takes what a look saw, for readers if serve is true. known is true for what is there, or was. It returns false when the entry was
// turned under the look.
func (s *snapshot) keep(m mark, st Status, known, serve bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := m.entry
	if s.entries[m.target] != e || e.turns != m.turns {
		return false
	}
	if known || st.State == session.Absent && e.acts == 0 {
		e.known = known // what is gone, and not remembered either, was removed
	}
	if e.acts == 0 && !m.began.Before(e.seen) {
		e.status, e.seen, e.fresh = st, m.began, known && serve
	}
	s.tidy(m.target, e)
	return true
}

// turn says that a session may have changed.
func (s *snapshot) turn(target string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.entries[target]; e != nil {
		e.turn()
	}
}

func (e *entry) turn() { e.fresh, e.turns = false, e.turns+1 }

// end says that the process of an incarnation has ended: it is not served as live again, whatever its tmux server still thinks.
func (s *snapshot) end(target, stamp string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.get(target)
	e.ended, e.known = stamp, true
	e.turn()
}

// hasEnded reports whether the process of this incarnation is known to have ended.
func (s *snapshot) hasEnded(target, stamp string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[target]
	return e != nil && stamp != "" && e.ended == stamp
}

// act says that an act of ours begins, and returns what says that it ended. Between the two nothing is kept.
func (s *snapshot) act(target string) (ended func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.get(target)
	e.acts, e.known = e.acts+1, true
	e.turn()
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		e.acts--
		e.acted = s.now()
		e.turn()
	}
}

// actedLately is for how long after an act the end of a process is taken for the act's doing: its news may come a moment later.
const actedLately = 200 * time.Millisecond

// ordered reports whether an act of ours is under way at a target, or was just now.
func (s *snapshot) ordered(target string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[target]
	return e != nil && (e.acts > 0 || s.now().Sub(e.acted) < actedLately)
}

// StateWithin says what is known of a session, as it was seen at most maxAge before; age is how long before the call that was. With zero the
// tmux server is asked now. Readers that ask at the same time share one look; none is answered by a look that began before what it may take.
func (h *Host) StateWithin(ctx context.Context, item workitem.Ref, maxAge time.Duration) (st Status, age time.Duration, err error) {
	target, asked := item.Target(), h.Now()
	for {
		st, age, f, mine := h.snapshot.read(target, asked, maxAge)
		switch {
		case f == nil:
			return st, age, nil
		case mine:
			// Others wait for it: it does not end with the one who asked first. A look is bounded by itself.
			return h.fly(context.WithoutCancel(ctx), item, f), 0, nil
		}
		select {
		case <-f.done:
			if age := asked.Sub(f.began); f.good && age <= maxAge {
				return f.status, max(age, 0), nil
			}
		case <-ctx.Done():
			return Status{}, 0, fault.Wrap(fault.Unavailable, fault.ReasonDeadline, "the look at the session took too long", ctx.Err())
		}
	}
}

func (h *Host) fly(ctx context.Context, item workitem.Ref, f *flight) Status {
	var m mark
	defer func() { h.snapshot.land(item.Target(), f, m) }()
	s, m, good := h.survey(ctx, item)
	f.status, f.good = s.status(), good
	return f.status
}

const (
	// turnedLooks is how often a look that was turned is done again.
	turnedLooks = 5
	// lateLooks is how often a server is looked at again that does not know yet that its agent ended, and lateTick how long is waited.
	lateLooks = 40
	lateTick  = 5 * time.Millisecond
)

// seen is a look for readers.
func (h *Host) seen(ctx context.Context, item workitem.Ref) sight {
	s, _, _ := h.survey(ctx, item)
	return s
}

// survey looks for readers: what it saw is kept, told to whoever watches, and its processes are watched. It is done again when something
// turned it meanwhile; good is false when that did not help. m is the beginning of the last look.
func (h *Host) survey(ctx context.Context, item workitem.Ref) (s sight, m mark, good bool) {
	for try := 1; ; try++ {
		m = h.snapshot.begin(item.Target())
		s = h.look(ctx, item)
		if s.state == session.Live && !s.flags.Has(session.Detached) && s.pane != nil && h.snapshot.hasEnded(s.target, s.pane.Stamp) {
			// tmux learns of it a moment later, or, on 3.3a, one time in eight, not at all until it is told to look after its children.
			h.Tmux.Nudge(s.view.Server)
			if try < lateLooks && pause(ctx, lateTick) {
				continue
			}
			s.state, s.flags, s.why = session.Unknown, 0, "the agent's process has ended, and its tmux server does not say so yet"
		}
		if good = h.note(&s, m); good || try >= turnedLooks {
			return s, m, good
		}
	}
}

// note keeps what a look saw. It returns false when it was turned meanwhile.
func (h *Host) note(s *sight, m mark) bool {
	known := s.memory.Stamp != "" || s.state == session.Live || s.state == session.Dead
	watched := known && h.track(s)
	switch {
	case known:
		h.tell(s.summary(m.began))
	case s.state == session.Absent:
		h.feed.forget(s.summary(m.began))
		h.watcher.forget(s.target)
	}
	return h.snapshot.keep(m, s.status(), known, watched && s.state != session.Unknown)
}
