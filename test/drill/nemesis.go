package drill

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	tmuxdv1 "muxpost.dev/muxpost/proto/gen/muxpost/tmuxd/v1"
)

// nemesis breaks things, one after another, as a seed says. What it breaks it mends, and whom it kills it writes down.
type nemesis struct {
	fleet *fleet
	pool  *pgxpool.Pool
	rand  *rand.Rand
	log   func(format string, args ...any)

	mu sync.Mutex
	// killed are the wrappers of the agents that it killed, seen those that ever lived.
	killed, seen map[int]bool
	faults       map[string]int
	mending      sync.WaitGroup
}

func newNemesis(f *fleet, pool *pgxpool.Pool, seed uint64, log func(string, ...any)) *nemesis {
	return &nemesis{fleet: f, pool: pool, rand: rand.New(rand.NewPCG(seed, seed)), log: log, killed: map[int]bool{}, seen: map[int]bool{},
		faults: map[string]int{}}
}

// run breaks something every second or two until ctx ends, and returns once everything is mended.
func (n *nemesis) run(ctx context.Context) {
	defer n.mending.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Duration(500+n.rand.IntN(1200)) * time.Millisecond):
		}
		n.once(ctx)
	}
}

// for a fault lasts this long.
func (n *nemesis) span(most time.Duration) time.Duration {
	return 300*time.Millisecond + time.Duration(n.rand.Int64N(int64(most)))
}

// later mends a fault.
func (n *nemesis) later(d time.Duration, mend func()) {
	n.mending.Go(func() {
		time.Sleep(d)
		mend()
	})
}

func (n *nemesis) once(ctx context.Context) {
	f := n.fleet
	h, i := f.hosts[n.rand.IntN(len(f.hosts))], n.rand.IntN(replicaCount)
	kind, d := n.rand.IntN(9), n.span(4*time.Second)
	victim := n.rand.Uint32()
	name := ""
	switch kind {
	case 0:
		name = "kill -9 of " + h.tmuxd.name
		h.tmuxd.kill()
		n.later(d/2, func() { n.must(h.tmuxd.start()) })
	case 1, 2:
		p := f.dispatchers[i]
		if kind == 2 {
			p = f.pollers[i]
		}
		name = "kill -9 of " + p.name
		p.kill()
		n.later(d/2, func() { n.must(p.start()) })
	case 3:
		name = "SIGSTOP of " + h.tmuxd.name
		h.tmuxd.signal(syscall.SIGSTOP)
		n.later(d, func() { h.tmuxd.signal(syscall.SIGCONT) })
	case 4:
		name = "the line to host " + h.name + " is cut"
		h.wire.Cut(true)
		n.later(d, func() {
			if victim%2 == 0 {
				h.wire.Reset()
			}
			h.wire.Cut(false)
		})
	case 5:
		name = "the connections to host " + h.name + " break"
		h.wire.Reset()
	case 6:
		name = "the connections to the database break"
		_, _ = n.pool.Exec(ctx, "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()")
	case 7:
		if s := n.session(ctx, h, victim); s != nil {
			pid := int(s.GetIncarnation().GetServerPid())
			name = fmt.Sprintf("SIGSTOP of the tmux server of %s on %s", s.GetTarget(), h.name)
			_ = syscall.Kill(pid, syscall.SIGSTOP)
			n.later(d, func() { _ = syscall.Kill(pid, syscall.SIGCONT) })
		}
	case 8:
		if s := n.session(ctx, h, victim); s != nil {
			name = fmt.Sprintf("kill -9 of the agent of %s on %s", s.GetTarget(), h.name)
			n.killAgent(int(s.GetIncarnation().GetPanePid()))
		}
	}
	if name != "" {
		n.log("%s (%v)", name, d.Round(100*time.Millisecond))
		n.mu.Lock()
		n.faults[[]string{"tmuxd killed", "dispatcher killed", "poller killed", "tmuxd stopped", "line cut", "line broken", "database cut",
			"tmux stopped", "agent killed"}[kind]]++
		n.mu.Unlock()
	}
}

func (n *nemesis) must(err error) {
	if err != nil {
		n.log("cannot be started again: %v", err)
	}
}

// session chooses a living session of a host.
func (n *nemesis) session(ctx context.Context, h *host, victim uint32) *tmuxdv1.SessionSummary {
	alive := n.living(ctx, h)
	if len(alive) == 0 {
		return nil
	}
	return alive[int(victim)%len(alive)]
}

// living returns the living sessions of a host, and notes their wrappers.
func (n *nemesis) living(ctx context.Context, h *host) (out []*tmuxdv1.SessionSummary) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	r, err := h.client.ListSessions(ctx, &tmuxdv1.ListSessionsRequest{PageSize: 1000})
	if err != nil {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, s := range r.GetSessions() {
		if in := s.GetIncarnation(); s.GetState() == tmuxdv1.State_STATE_LIVE && in.GetServerPid() > 0 && in.GetPanePid() > 0 {
			n.seen[int(in.GetPanePid())] = true
			out = append(out, s)
		}
	}
	return out
}

// killAgent kills the child of a wrapper, which ends with it.
func (n *nemesis) killAgent(wrapper int) {
	n.mu.Lock()
	n.killed[wrapper] = true
	n.mu.Unlock()
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", wrapper, wrapper))
	if err != nil {
		return
	}
	for _, child := range strings.Fields(string(children)) {
		if pid, err := strconv.Atoi(child); err == nil {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// harmed are the agents that ended and were not killed here.
func (n *nemesis) harmed() (pids []int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for pid := range n.seen {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if gone := err != nil || strings.Contains(string(stat), ") Z "); gone && !n.killed[pid] {
			pids = append(pids, pid)
		}
	}
	return pids
}
