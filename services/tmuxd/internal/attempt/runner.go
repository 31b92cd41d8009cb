// Package attempt is what tmuxd does for tasks that run to completion: it launches each in a pane of its own, on a tmux server of its own,
// finds out how it ended, and ends it when somebody asks for that or its time is over. The rules are core/task's; here they meet what was
// seen, and what follows is done.
//
// The wrapper's record, the marker, decides; the pane is a witness. Each attempt has one keeper, a goroutine that looks, judges and acts, and
// whose every step starts from what is on disk, so that a tmuxd that was killed goes on where it was.
//
// It knows nothing of gRPC, of sessions or of teams, and reaches tmux, processes and the disk only through the interfaces in ports.go.
package attempt

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/task"
	"muxpost.dev/muxpost/internal/obs"
	"muxpost.dev/muxpost/services/tmuxd/internal/changes"
	"muxpost.dev/muxpost/services/tmuxd/internal/harness"
	"muxpost.dev/muxpost/services/tmuxd/internal/metrics"
)

// Config is what an operator decides about attempts.
type Config struct {
	// Roots are the directories below which they may work.
	Roots []string
	// Width and Height are the size of their panes.
	Width, Height int
	// Limit is how long an attempt may last that names no time, MaxLimit what it may name at most.
	Limit, MaxLimit time.Duration
	// MaxRunning is how many may run at once.
	MaxRunning int
	// KeepFailed retains the panes of those that did not succeed.
	KeepFailed bool
	// KeepFor and Keep are for how long, and how many, are kept that are over.
	KeepFor time.Duration
	Keep    int
}

// Deps are what a Runner works with.
type Deps struct {
	Tmux   Tmux
	Disk   Disk
	Places Places
	// Worktrees are for those that ask for one.
	Worktrees Worktrees
	Table     harness.Table
	Logger    *slog.Logger
	// Metrics count those that ended; nil counts nothing.
	Metrics *metrics.Metrics
	// Now is the wall clock, for records.
	Now func() time.Time
	// Getenv looks a variable up in tmuxd's environment.
	Getenv func(string) (string, bool)
}

// Runner runs the attempts of one host.
type Runner struct {
	Deps
	cfg  Config
	feed *changes.Log[Attempt]

	mu       sync.Mutex
	attempts map[string]*attempt
	// unreadable are ids of attempts whose memory cannot be read.
	unreadable map[string]bool
	// keep is the context of Keep, nil while it does not run.
	keep    context.Context
	keepers sync.WaitGroup
}

// New returns a runner. Before it is used, Adopt learns what there is.
func New(c Config, d Deps) *Runner {
	if d.Metrics == nil {
		d.Metrics = metrics.New(nil)
	}
	return &Runner{Deps: d, cfg: c, feed: changes.New[Attempt](random("b")), attempts: map[string]*attempt{}, unreadable: map[string]bool{}}
}

// attempt is what a Runner holds of one.
type attempt struct {
	// turn is held by whoever changes the memory, or tells.
	turn sync.Mutex
	// told is what was told last; nil for nothing. The turn guards it.
	told *Attempt
	// attended is true once it has a keeper; the runner's lock guards it.
	attended bool

	mu     sync.Mutex
	memory Memory
	// state, reason and since are what is known while it is not over; started is when the command was.
	state   task.State
	reason  task.Reason
	since   time.Time
	started time.Time
	// moved is when it was last seen to make progress.
	moved time.Time

	// wake tells the keeper to look now; begun is closed once it runs or is over, over once it is over, and shown once all that it showed is kept.
	wake  chan struct{}
	begun chan struct{}
	over  chan struct{}
	shown chan struct{}
}

func newAttempt(m Memory) *attempt {
	a := &attempt{memory: m, since: m.CreatedAt, wake: make(chan struct{}, 1), begun: make(chan struct{}), over: make(chan struct{}),
		shown: make(chan struct{})}
	if m.Outcome != nil {
		close(a.begun)
		close(a.over)
	}
	if m.Freed {
		close(a.shown)
	}
	return a
}

func (a *attempt) recall() Memory {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.memory
}

// rouse has the keeper look now.
func (a *attempt) rouse() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// change changes the memory, on disk first: what cannot be stored is not so. change returns false to leave it alone. The turn is held.
func (r *Runner) change(a *attempt, change func(*Memory) bool) error {
	m := a.recall()
	if !change(&m) {
		return nil
	}
	m, err := r.Disk.Remember(m)
	if err != nil {
		return storage(err)
	}
	a.mu.Lock()
	a.memory = m
	a.mu.Unlock()
	return nil
}

// find returns an attempt.
func (r *Runner) find(id string) (*attempt, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a := r.attempts[id]; a != nil {
		return a, nil
	}
	if r.unreadable[id] {
		return nil, fault.Newf(fault.Unavailable, fault.ReasonStorage, "what is remembered of the attempt %s cannot be read", id).
			WithRemedy("look at it in the state directory of this host, below attempts")
	}
	return nil, fault.Newf(fault.NotFound, fault.ReasonAttemptNotFound, "no attempt has the id %s on this host", id).
		WithRemedy("it was never launched here, or was swept after tmuxd.tasks.keep_for")
}

// Adopt learns from the disk which attempts there are. It is called once, before anybody is answered.
func (r *Runner) Adopt(ctx context.Context) error {
	all, unreadable, err := r.Disk.Recall()
	if err != nil {
		return storage(err)
	}
	slices.SortFunc(all, func(a, b Memory) int { return a.CreatedAt.Compare(b.CreatedAt) })
	open := 0
	for _, m := range all {
		a := newAttempt(m)
		r.attempts[m.ID] = a
		if m.Outcome == nil {
			open++
		}
		r.tell(a)
	}
	for _, id := range unreadable {
		r.unreadable[id] = true
		r.Logger.ErrorContext(ctx, "what is remembered of an attempt cannot be read", obs.KeyAttemptID, id)
	}
	r.Logger.InfoContext(ctx, "attempts were adopted", obs.KeyCount, len(all), "open", open)
	return nil
}

// sweepTime is how often what is over is swept.
const sweepTime = time.Minute

// Keep looks after the attempts until ctx ends, and sweeps what is over. Attempts do not end with it.
func (r *Runner) Keep(ctx context.Context) error {
	r.mu.Lock()
	r.keep = ctx
	for _, a := range r.attempts {
		r.attend(a)
	}
	r.mu.Unlock()
	sweep := time.NewTicker(sweepTime)
	defer sweep.Stop()
	for {
		r.Sweep(ctx)
		select {
		case <-sweep.C:
		case <-ctx.Done():
			r.mu.Lock()
			r.keep = nil
			r.mu.Unlock()
			r.keepers.Wait()
			return nil
		}
	}
}

// attend starts the keeper of an attempt. The lock is held.
func (r *Runner) attend(a *attempt) {
	if ctx := r.keep; ctx != nil && ctx.Err() == nil && !a.attended && !a.recall().Freed {
		a.attended = true
		r.keepers.Go(func() { r.keeper(ctx, a) })
	}
}

// Sweep removes what is over for longer than it is kept, and the oldest of what is too much. What is open, or still holds a pane that cannot be
// freed, is never removed.
func (r *Runner) Sweep(ctx context.Context) {
	r.mu.Lock()
	var over []Memory
	for _, a := range r.attempts {
		if m := a.recall(); m.Outcome != nil && m.Freed {
			over = append(over, m)
		}
	}
	r.mu.Unlock()
	slices.SortFunc(over, func(a, b Memory) int {
		return cmp.Or(b.Outcome.SettledAt.Compare(a.Outcome.SettledAt), strings.Compare(a.ID, b.ID))
	})
	for i, m := range over {
		if i < r.cfg.Keep && r.Now().Sub(m.Outcome.SettledAt) < r.cfg.KeepFor {
			continue
		}
		if m.Outcome.Retained && !r.release(ctx, m) {
			continue
		}
		if err := r.Disk.Forget(m.ID); err != nil {
			r.Logger.WarnContext(ctx, "an attempt that is over cannot be removed", obs.KeyAttemptID, m.ID, obs.KeyError, err)
			continue
		}
		r.mu.Lock()
		delete(r.attempts, m.ID)
		r.mu.Unlock()
		r.feed.Remove(m.ID)
	}
}

// storage is the error for a state directory that cannot be read or written: then nothing is launched, since it could not be remembered.
func storage(err error) error {
	return fault.Wrap(fault.Unavailable, fault.ReasonStorage, "the state directory cannot be read or written", err).
		WithRemedy("free space or repair permissions on the host")
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
