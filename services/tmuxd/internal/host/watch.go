package host

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/core/workitem"
	"muxpost.dev/muxpost/internal/obs"
)

// Life names a process for good: its pid, and its start in clock ticks since boot. The zero value names none.
type Life struct {
	Pid   int
	Start uint64
}

// Processes tells of the ends of processes that are not ours.
type Processes interface {
	// Watch calls ended once, when the process has ended, at once when it has already. ended must not block. stop gives the watch up.
	Watch(pid int, start uint64, ended func()) (stop func(), err error)
}

// Roster is the part of Disk that knows every session.
type Roster interface {
	// Targets lists the targets that have a memory, sorted.
	Targets() ([]string, error)
	// Lives names the processes of a memory that live: its tmux server, and the wrapper of its incarnation.
	Lives(m Memory) (server, agent Life, err error)
}

const (
	// sweepTime is how often what cannot be waited for is looked after.
	sweepTime = time.Minute
	// watchLooks is how many looks the watcher makes at once, and lookPause how long it leaves a session alone between two.
	watchLooks = 4
	lookPause  = 50 * time.Millisecond
	// statusLooks is how often a dead session is looked at again for how its agent ended.
	statusLooks = 10
)

// watcher knows the processes of every session, and looks at a session when something happened to it.
//
// While both processes of a session live it is left alone, however long: nothing is asked of tmux. So these are noticed only when tmux gives a
// hint, or somebody asks: a session that a person renamed or moved, a guest in it that came or went, options that were changed by hand, a
// socket that was removed, a server that was stopped.
type watcher struct {
	mu sync.Mutex
	of map[string]*watched
	// starting are the targets whose agents are being started: each has a place on this host.
	starting map[string]bool
	// run is the context of Watch, nil while it does not run; looking are the goroutines that look, of which looks lets some at a time.
	run     context.Context
	looking sync.WaitGroup
	looks   chan struct{}

	burst burst
	// wondering is true while the screens of those are looked at of whom nothing is told.
	wondering atomic.Bool
	// died is where Watch hears of a death.
	died chan struct{}
}

// watched is what is watched of a session.
type watched struct {
	item  workitem.Ref
	stamp string
	// server and agent are the processes that are watched; the zero value is none, or one that has ended.
	server, agent process
	// attending is true while it is being looked at, and again when something happened meanwhile.
	attending, again bool
}

type process struct {
	life Life
	stop func()
}

func newWatcher() *watcher {
	return &watcher{of: map[string]*watched{}, starting: map[string]bool{}, looks: make(chan struct{}, watchLooks), died: make(chan struct{}, 1)}
}

// track watches the processes of the incarnation that was seen. It returns false when not all that should live is watched.
func (h *Host) track(s *sight) bool {
	if h.Processes == nil {
		return false
	}
	w := h.watcher
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.of[s.target]
	if t == nil {
		t = &watched{}
		w.of[s.target] = t
	}
	t.item = s.item
	if s.state == session.Absent {
		return true
	}
	m := s.remembered(0)
	if t.stamp != m.Stamp || t.server.life.Pid != m.Server.Pid || !t.whole(s.state) {
		h.rewatch(t, m)
	}
	return t.whole(s.state)
}

// whole reports whether everything is watched that lives in a session of this state.
func (t *watched) whole(state session.State) bool {
	switch state {
	case session.Live:
		return t.server.stop != nil && t.agent.stop != nil
	case session.Dead:
		return t.server.stop != nil
	case session.Absent, session.Unknown:
	}
	return true
}

// rewatch watches the processes of a memory in the place of those that are watched. The lock is held.
func (h *Host) rewatch(t *watched, m Memory) {
	server, agent, err := h.Disk.Lives(m)
	if err != nil {
		h.Logger.Warn("the processes of a session cannot be found", obs.KeyTarget, m.Target, obs.KeyError, err)
		return
	}
	if t.stamp != m.Stamp {
		t.agent.leave() // that of another incarnation
	}
	t.stamp = m.Stamp
	h.await(&t.server, server, func() { h.ended(m.Target, m.Stamp, t, &t.server, server) })
	h.await(&t.agent, agent, func() { h.ended(m.Target, m.Stamp, t, &t.agent, agent) })
}

// await watches a process in the place of another one. The end of one that is watched already is told once.
func (h *Host) await(p *process, life Life, ended func()) {
	if p.stop != nil && (life == p.life || life == Life{}) {
		return // the end of one that lives no more is about to be told, and whoever saw it alive a moment ago has to hear of it
	}
	p.leave()
	if life == (Life{}) {
		return
	}
	p.life = life
	var err error
	if p.stop, err = h.Processes.Watch(life.Pid, life.Start, ended); err != nil {
		h.Logger.Warn("a process of a session cannot be watched", obs.KeyPID, life.Pid, obs.KeyError, err)
	}
}

// leave stops watching a process, if it is watched.
func (p *process) leave() {
	if p.stop != nil {
		p.stop()
	}
	*p = process{}
}

// forget lets go of a session of which nothing is known any more. While a process of it is watched it stays: the end of that will be heard of.
func (w *watcher) forget(target string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.of[target]
	if t == nil || t.server.life != (Life{}) || t.agent.life != (Life{}) {
		return
	}
	if t.item = (workitem.Ref{}); !t.attending { // who attends to it lets go of it
		delete(w.of, target)
	}
}

// ended is told that a process of an incarnation has ended: the wrapper of its agent, or its tmux server. From here on it is not served as
// live; what it is, a look says.
func (h *Host) ended(target, stamp string, t *watched, p *process, life Life) {
	w := h.watcher
	w.mu.Lock()
	agent := p == &t.agent
	if p.life == life {
		*p = process{}
	}
	w.mu.Unlock()
	if agent {
		h.snapshot.end(target, stamp)
		h.feed.doubt(target, stamp, h.Now())
	} else {
		h.snapshot.turn(target)
		h.feed.doubt(target, "", h.Now()) // whichever incarnation it has by now
	}
	h.attend(target)
}

// Hint is told that something happened on a tmux server: it is looked at again. It does not block.
func (h *Host) Hint(target string) {
	h.snapshot.turn(target)
	h.attend(target)
}

// attend looks at a session soon, once for however many asked meanwhile. Without Watch it does nothing.
func (h *Host) attend(target string) {
	w := h.watcher
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.run == nil || w.run.Err() != nil {
		return
	}
	t := w.of[target]
	if t == nil {
		t = &watched{}
		w.of[target] = t
	}
	t.again = true
	if t.attending {
		return
	}
	t.attending = true
	ctx := w.run
	w.looking.Go(func() { h.attending(ctx, target, t) })
}

// attending looks until nothing new has happened.
func (h *Host) attending(ctx context.Context, target string, t *watched) {
	w := h.watcher
	for {
		w.mu.Lock()
		again := t.again && ctx.Err() == nil
		t.again, t.attending = false, again
		item := t.item
		if !again && item.IsZero() {
			delete(w.of, target) // it is not ours
		}
		w.mu.Unlock()
		if !again {
			return
		}
		select {
		case w.looks <- struct{}{}:
			h.examine(ctx, target, item)
			<-w.looks
		case <-ctx.Done():
		}
		pause(ctx, lookPause)
	}
}

// examine looks at a session. A dead one of which tmux does not say how it ended is looked at again: the look had it look after its children.
func (h *Host) examine(ctx context.Context, target string, item workitem.Ref) {
	if item.IsZero() {
		m, known, err := h.Disk.Recall(target)
		if item, _ = workitem.Parse(m.WorkItem); err != nil || !known || item.Target() != target {
			return
		}
	}
	for range statusLooks {
		st, _, err := h.StateWithin(ctx, item, 0)
		if err != nil || st.State != session.Dead || st.Exit.Known || !pause(ctx, 2*lateTick) {
			return
		}
	}
}

// watching reports whether Watch runs.
func (h *Host) watching() bool {
	w := h.watcher
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.run != nil && w.run.Err() == nil
}

// tell tells a session as it was seen, and counts its end if nobody ordered it.
func (h *Host) tell(s Summary) {
	ended, at := h.feed.tell(s)
	if s.Tells && s.State == session.Live && h.watching() && !h.feed.doing(s.Target).told() {
		h.Noted(s.Target, s.Incarnation.Stamp) // which may have told before anybody knew whose it is
	}
	if !ended || h.snapshot.ordered(s.Target) {
		return
	}
	how := "exited"
	if s.Lost {
		how = "lost"
	}
	h.Metrics.Ended.Add(context.Background(), 1, how) // of no trace
	w := h.watcher
	w.mu.Lock()
	w.burst.add(death{at: at, told: h.Now(), target: s.Target, harness: s.Harness, exit: s.Exit, serverUp: s.State == session.Dead})
	w.mu.Unlock()
	select {
	case w.died <- struct{}{}:
	default:
	}
}
