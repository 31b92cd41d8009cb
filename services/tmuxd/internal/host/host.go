// Package host is what tmuxd does: it says what state a session is in, starts sessions, and puts deliveries into living agents, so that
// nothing live is harmed, nothing is typed twice, and silence is never taken for an answer. The rules are core/session's; here they
// meet what was seen, and what they permit is done and verified.
//
// It knows nothing of gRPC, of GitHub or of Postgres, and reaches tmux and the disk only through the interfaces in ports.go.
package host

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/core/workitem"
	"muxpost.dev/muxpost/services/tmuxd/internal/harness"
	"muxpost.dev/muxpost/services/tmuxd/internal/metrics"
)

// Config is what an operator decides about a host.
type Config struct {
	// Roots are the directories below which agents may work.
	Roots []string
	// Width and Height are the size of a pane that nobody looks at.
	Width, Height int
	// Capacity is how many agents may live at once; zero is any number. It is kept where Processes are watched.
	Capacity int
	// Sweep is how often Watch looks after what it cannot wait for; zero means every minute.
	Sweep time.Duration
}

// Deps are what a Host works with.
type Deps struct {
	Tmux   Tmux
	Disk   Disk
	Trees  Trees
	Table  harness.Table
	Logger *slog.Logger
	// Channels are needed where the table has a harness that hands over.
	Channels Channels
	// Metrics count what happens to sessions; nil counts nothing.
	Metrics *metrics.Metrics
	// Processes tells of the ends of the sessions' processes. Without it nothing is served from what was seen earlier.
	Processes Processes
	// Now is the wall clock, for records and deadlines that tmux reads.
	Now func() time.Time
	// Getenv looks a variable up in tmuxd's environment.
	Getenv func(string) (string, bool)
}

// Host drives the sessions of one host. One mutation a target is under way at a time; other targets never wait for it.
type Host struct {
	Deps
	cfg Config
	// began is when this process began.
	began time.Time
	mu    sync.Mutex
	slots map[string]*slot

	// What readers see, and what is told of it. Nothing that acts reads these.
	snapshot *snapshot
	feed     *feed
	watcher  *watcher
}

// slot is what a Host holds of a target. It is there while somebody uses it, and as long as it knows a generation.
type slot struct {
	turn chan struct{} // holds one token while nobody mutates
	// users has the turn, or waits for it.
	users int
	// generation is the server's generation that this process gave it; empty when it has to give a new one first.
	generation string
}

// New returns a host.
func New(c Config, d Deps) *Host {
	if d.Metrics == nil {
		d.Metrics = metrics.New(nil)
	}
	return &Host{Deps: d, cfg: c, began: d.Now(), slots: map[string]*slot{}, snapshot: newSnapshot(d.Now), feed: newFeed(random("b")), watcher: newWatcher()}
}

// maxWaiting is how many acts wait for their turn at one session.
const maxWaiting = 64

// acquire waits for the turn to mutate a target. Waiters are served in order, and there are only so many. What readers saw before the turn is
// not served any more, and what is there after it is looked at.
func (h *Host) acquire(ctx context.Context, target string) (s *slot, release func(), err error) {
	if s = h.enter(target); s == nil {
		return nil, nil, fault.Newf(fault.Throttled, "", "%d acts wait for their turn at this session, and no more can", maxWaiting).
			WithRemedy("ask again when some are done; if this lasts, something holds the session up: see tmuxd's log").WithRetryAfter(time.Second)
	}
	select {
	case <-s.turn:
		acted := h.snapshot.act(target)
		return s, func() {
			acted()
			h.leave(target, s, true)
			h.attend(target)
		}, nil
	case <-ctx.Done():
		h.leave(target, s, false)
		return nil, nil, fault.Wrap(fault.Unavailable, fault.ReasonDeadline, "another act on this session took too long", ctx.Err())
	}
}

// enter takes a place with those who wait for the turn at a target; nil when there is none.
func (h *Host) enter(target string) *slot {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.slots[target]
	if s == nil {
		s = &slot{turn: make(chan struct{}, 1)}
		s.turn <- struct{}{}
		h.slots[target] = s
	}
	if s.users > maxWaiting { // one of them has the turn
		return nil
	}
	s.users++
	return s
}

// leave gives a place back, and with it the turn of whoever had it.
func (h *Host) leave(target string, s *slot, turn bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s.users--
	if s.users == 0 && s.generation == "" {
		delete(h.slots, target)
	}
	if turn {
		s.turn <- struct{}{}
	}
}

const (
	// lookTime bounds one question to a tmux server, actTime one act, createTime the start of a server.
	lookTime   = 2 * time.Second
	actTime    = 5 * time.Second
	createTime = 8 * time.Second
	// noticeTries is how often tmux is asked again that takes a pane for alive whose process is gone, and noticeTick the time between.
	noticeTries = 30
	noticeTick  = 10 * time.Millisecond
	// bootTime is how long the wrapper of a new session may take to begin. Its record is looked for every startTick, and as long as there
	// is none the session once in lookEvery times.
	bootTime  = 4 * time.Second
	startTick = 10 * time.Millisecond
	lookEvery = 20
)

// lookOwned looks at a session whose server is ours to act on: whatever an earlier life of tmuxd sent can no longer run, and what it did
// run is in the look.
func (h *Host) lookOwned(ctx context.Context, s *slot, item workitem.Ref) (sight, error) {
	seen := h.look(ctx, item)
	// An agent that has ended is not lived with while its wrapper ends what it left behind.
	for end := time.Now().Add(sweepWait); seen.state == session.Live && seen.flags == 0 && seen.ran.Ended && time.Now().Before(end); {
		if !pause(ctx, noticeTick) {
			break
		}
		seen = h.look(ctx, item)
	}
	if seen.view.Server.Pid == 0 || s.generation != "" && s.generation == seen.view.Generation {
		return seen, nil
	}
	if err := h.advance(ctx, s, seen.target); err != nil {
		return seen, err
	}
	return h.look(ctx, item), nil
}

func (h *Host) advance(ctx context.Context, s *slot, target string) error {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	s.generation = ""
	g := random("g")
	if err := h.Tmux.Advance(ctx, target, g); err != nil {
		return silence(err)
	}
	s.generation = g
	return nil
}

// silence is the error for a tmux server that did not answer.
func silence(err error) error {
	return fault.Wrap(fault.Unavailable, fault.ReasonTmuxNoAnswer, "the session's tmux server did not answer, so what it did is unknown", err)
}

// storage is the error for a state directory that cannot be written: then nothing may be typed, since it could not be remembered.
func storage(err error) error {
	return fault.Wrap(fault.Unavailable, fault.ReasonStorage, "the state directory cannot be read or written", err).
		WithRemedy("free space or repair permissions on the host")
}

// directory returns where an item's agent works. asked may be empty.
func (h *Host) directory(ctx context.Context, item workitem.Ref, asked string) (string, error) {
	place := h.Trees.Place(item)
	dir := cmp.Or(asked, place)
	if !filepath.IsAbs(dir) || dir != filepath.Clean(dir) {
		return "", fault.Newf(fault.Invalid, fault.ReasonBadArgument, "the directory %q is not an absolute path in its shortest form", dir)
	}
	// The spelling is checked before anything is made, what it leads to afterwards.
	if !h.below(dir, false) {
		return "", h.outside(dir)
	}
	// Also one that a session had before, and that was removed since.
	if dir == place {
		if err := h.Trees.Prepare(ctx, item); err != nil {
			return "", err
		}
	}
	real, err := h.Disk.Directory(dir, false)
	if err != nil {
		return "", fault.Wrap(fault.Invalid, fault.ReasonDirectoryMissing, fmt.Sprintf("the directory %q cannot be used", dir), err).
			WithRemedy("create it on the host, or set tmuxd.make_directory: true")
	}
	if !h.below(real, true) {
		return "", h.outside(real)
	}
	return real, nil
}

func (h *Host) below(dir string, real bool) bool {
	for _, root := range h.cfg.Roots {
		if real {
			if r, err := h.Disk.Directory(root, false); err == nil {
				root = r
			}
		}
		if dir == root || strings.HasPrefix(dir, strings.TrimSuffix(root, "/")+"/") {
			return true
		}
	}
	return false
}

func (h *Host) outside(dir string) error {
	return fault.Newf(fault.Invalid, fault.ReasonDirectoryOutside, "the directory %q is not below a configured root", dir).
		WithRemedy("agents of this host may work below: " + strings.Join(h.cfg.Roots, ", ") + " (tmuxd.roots)")
}

// random returns a fresh name that begins with a letter.
func random(prefix string) string {
	var b [10]byte
	_, _ = rand.Read(b[:]) // it never fails: see crypto/rand
	return prefix + hex.EncodeToString(b[:])
}

// pause waits, or returns false when the context ends first.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// noAnswer reports whether err proves nothing of what a tmux server did.
func noAnswer(err error) bool { return errors.Is(err, ErrNoAnswer) }
