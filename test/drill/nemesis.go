package drill

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"muxpost.dev/muxpost/core/workitem"
)

// nemesis breaks what a plan says, at the steps that it says, and mends it.
type nemesis struct {
	fleet   *fleet
	watcher *watcher
	plan    []Fault

	mu sync.Mutex
	// broken are the faults that were begun, by index, and done those that had somebody to befall.
	broken map[int]*breaking
	done   map[Kind]int
	idle   map[Kind]int
	// guests are the files that panes of people's write what reaches them into.
	guests []string
	group  sync.WaitGroup
}

// breaking is a fault on its way.
type breaking struct {
	Fault
	begun chan struct{}
	mend  func()
	once  sync.Once
}

func newNemesis(f *fleet, w *watcher, plan []Fault) *nemesis {
	return &nemesis{fleet: f, watcher: w, plan: plan, broken: map[int]*breaking{}, done: map[Kind]int{}, idle: map[Kind]int{}}
}

// step does what the plan has for a step of the load, without keeping the load waiting.
func (n *nemesis) step(ctx context.Context, step int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, b := range n.broken {
		if b.Until <= step {
			n.mend(b)
		}
	}
	for _, f := range n.plan {
		if f.Step != step {
			continue
		}
		b := &breaking{Fault: f, begun: make(chan struct{})}
		n.broken[f.Index] = b
		n.group.Go(func() {
			defer close(b.begun)
			mend, befell := acts[f.Kind](ctx, n, f)
			b.mend = mend
			n.mu.Lock()
			defer n.mu.Unlock()
			if befell {
				n.done[f.Kind]++
			} else {
				n.idle[f.Kind]++
			}
			n.fleet.Log("step %d: %s%s", step, f, map[bool]string{false: " (nobody to befall)"}[befell])
		})
	}
}

// mend takes a fault back, once it was begun, and once only.
func (n *nemesis) mend(b *breaking) {
	delete(n.broken, b.Index)
	n.group.Go(func() {
		<-b.begun
		if b.mend != nil {
			b.once.Do(b.mend)
		}
	})
}

// rest mends everything, and returns when it is mended.
func (n *nemesis) rest() {
	n.mu.Lock()
	for _, b := range n.broken {
		n.mend(b)
	}
	n.mu.Unlock()
	n.group.Wait()
}

// act is what a fault does. It returns what takes it back, or nil, and whether there was anybody whom it befell.
type act func(context.Context, *nemesis, Fault) (mend func(), befell bool)

var acts = map[Kind]act{
	KillTmuxd:      kills(func(n *nemesis, f Fault) *process { return n.host(f).tmuxd }),
	KillDispatcher: kills(func(n *nemesis, f Fault) *process { return n.fleet.dispatchers[f.Replica] }),
	KillPoller:     kills(func(n *nemesis, f Fault) *process { return n.fleet.pollers[f.Replica] }),
	StopTmuxd:      stops(func(n *nemesis, f Fault) *process { return n.host(f).tmuxd }),
	StopDispatcher: stops(func(n *nemesis, f Fault) *process { return n.fleet.dispatchers[f.Replica] }),
	StopPoller:     stops(func(n *nemesis, f Fault) *process { return n.fleet.pollers[f.Replica] }),
	KillAgent:      killAgent, KillWrapper: killWrapper, KillServer: killServer, StopAgent: stopAgent, StopServer: stopServer,
	KillPostgres: restarts(true), RestartPostgres: restarts(false), StopPostgres: stopPostgres, EndBackends: endBackends,
	Cut: cuts(Cut), Deaf: cuts(Deaf), Mute: cuts(Mute), Refuse: cuts(Refuse), CutAll: cutAll, Flap: flap,
	FullDisk: fullDisk, LoseSocket: loseSocket, StepClock: stepClock, StepTmuxClock: stepTmuxClock, ExitAtOnce: exitAtOnce,
	Split: split, Scroll: scroll, Draft: draft, Watch: watch, Dialog: dialog, Rename: rename,
	HoldHooks: holdHooks, LoseHooks: loseHooks, Redeliver: redeliver, FailGitHub: failGitHub,
	Upgrade: replaces(true), Rollback: replaces(false),
}

func (n *nemesis) host(f Fault) *host { return n.fleet.hosts[f.Host] }

// must notes what the drill itself failed in.
func (n *nemesis) must(what string, err error) {
	if err != nil {
		n.fleet.Log("%s: %v", what, err)
	}
}

// targetOf is the name of an item's session.
func targetOf(item int) string {
	ref, err := workitem.Parse(itemName(item))
	if err != nil {
		panic(err) // a name of the drill's own
	}
	return ref.Target()
}

func kills(of func(*nemesis, Fault) *process) act {
	return func(_ context.Context, n *nemesis, f Fault) (func(), bool) {
		p := of(n, f)
		p.kill()
		return func() { n.must("start", p.start()) }, true
	}
}

func stops(of func(*nemesis, Fault) *process) act {
	return func(_ context.Context, n *nemesis, f Fault) (func(), bool) {
		p := of(n, f)
		p.signal(syscall.SIGSTOP)
		return func() { p.signal(syscall.SIGCONT) }, true
	}
}

// agent is the one of the fault's item, if there is one.
func (n *nemesis) agent(f Fault) (proc, bool) {
	agents := scan(n.fleet).of(targetOf(f.Item))
	if len(agents) == 0 {
		return proc{}, false
	}
	return agents[0], true
}

func killAgent(_ context.Context, n *nemesis, f Fault) (func(), bool) {
	a, ok := n.agent(f)
	if ok {
		n.watcher.doom(a)
		_ = syscall.Kill(a.pid, syscall.SIGKILL)
	}
	return nil, ok
}

func killWrapper(_ context.Context, n *nemesis, f Fault) (func(), bool) {
	a, ok := n.agent(f)
	if ok {
		n.watcher.doom(a)
		_ = syscall.Kill(a.parent, syscall.SIGKILL)
	}
	return nil, ok
}

func killServer(_ context.Context, n *nemesis, f Fault) (func(), bool) {
	c := scan(n.fleet)
	s, ok := c.server(targetOf(f.Item))
	if ok {
		n.watcher.end(s)
		for _, a := range c.of(s.target) {
			n.watcher.doom(a)
		}
		_ = syscall.Kill(s.pid, syscall.SIGKILL)
	}
	return nil, ok
}

func stopAgent(_ context.Context, n *nemesis, f Fault) (func(), bool) {
	a, ok := n.agent(f)
	if !ok {
		return nil, false
	}
	_ = syscall.Kill(a.pid, syscall.SIGSTOP)
	return func() { _ = syscall.Kill(a.pid, syscall.SIGCONT) }, true
}

func stopServer(_ context.Context, n *nemesis, f Fault) (func(), bool) {
	s, ok := scan(n.fleet).server(targetOf(f.Item))
	if !ok {
		return nil, false
	}
	_ = syscall.Kill(s.pid, syscall.SIGSTOP)
	return func() { _ = syscall.Kill(s.pid, syscall.SIGCONT) }, true
}

func restarts(kill bool) act {
	return func(ctx context.Context, n *nemesis, f Fault) (func(), bool) {
		away := time.Duration(f.Dice%2000) * time.Millisecond
		n.must("restart of Postgres", n.fleet.postgres.restart(context.WithoutCancel(ctx), kill, away))
		return nil, true
	}
}

func stopPostgres(_ context.Context, n *nemesis, _ Fault) (func(), bool) {
	n.fleet.postgres.signal(syscall.SIGSTOP)
	return func() { n.fleet.postgres.signal(syscall.SIGCONT) }, true
}

func endBackends(ctx context.Context, n *nemesis, _ Fault) (func(), bool) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, err := n.fleet.pool.Exec(ctx, "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()")
	return nil, err == nil
}

// cuts breaks the line from one dispatcher to one host.
func cuts(kind Kind) act {
	return func(_ context.Context, n *nemesis, f Fault) (func(), bool) {
		l := n.host(f).lines[f.Replica]
		l.Break(kind)
		return func() {
			if f.Dice%2 == 0 {
				l.Reset()
			}
			l.Mend(kind)
		}, true
	}
}

// cutAll has a host be alone.
func cutAll(_ context.Context, n *nemesis, f Fault) (func(), bool) {
	lines := n.host(f).lines
	for _, l := range lines {
		l.Break(Cut)
	}
	return func() {
		for _, l := range lines {
			l.Mend(Cut)
		}
	}, true
}

// flap cuts a line and mends it, again and again.
func flap(_ context.Context, n *nemesis, f Fault) (func(), bool) {
	l, stop, stopped := n.host(f).lines[f.Replica], make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		every := time.NewTicker(time.Duration(150+f.Dice%500) * time.Millisecond)
		defer every.Stop()
		for cut := false; ; cut = !cut {
			if cut {
				l.Mend(Cut)
			} else {
				l.Break(Cut)
			}
			select {
			case <-every.C:
			case <-stop:
				if !cut {
					l.Mend(Cut)
				}
				return
			}
		}
	}()
	return func() {
		close(stop)
		<-stopped
	}, true
}

func fullDisk(_ context.Context, n *nemesis, f Fault) (func(), bool) {
	h := n.host(f)
	if h.disk == nil {
		return nil, false
	}
	n.must("fill the disk", h.disk.fill())
	return h.disk.empty, true
}

func loseSocket(_ context.Context, n *nemesis, f Fault) (func(), bool) {
	s, ok := scan(n.fleet).server(targetOf(f.Item))
	if ok {
		n.must("remove the socket", os.Remove(s.socket()))
	}
	return nil, ok
}

// leap is by how much a clock is stepped: up to five minutes, either way.
func leap(f Fault) int { return int(f.Dice%601) - 300 }

// stepClock steps the clock of a host's tmuxd, or of a dispatcher and a poller; programs that are not built for it do not notice.
func stepClock(_ context.Context, n *nemesis, f Fault) (func(), bool) {
	if !n.fleet.Clocks {
		return nil, false
	}
	set := n.host(f).stepClock
	if f.Dice&(1<<31) != 0 {
		set = func(s int) error { return n.fleet.stepCenter(f.Replica, s) }
	}
	n.must("step the clock", set(leap(f)))
	return func() { n.must("step the clock back", set(0)) }, true
}

// stepTmuxClock steps the clock of a host's tmux servers.
func stepTmuxClock(_ context.Context, n *nemesis, f Fault) (func(), bool) {
	h := n.host(f)
	if _, err := os.Stat(filepath.Join(h.kept, "tmux-clock")); err != nil {
		return nil, false
	}
	n.must("step tmux's clock", h.stepTmux(leap(f)))
	return func() { n.must("step tmux's clock back", h.stepTmux(0)) }, true
}

// exitAtOnce has the agents of a host end as soon as they are started, fewer times than would spend an event's budget.
func exitAtOnce(_ context.Context, n *nemesis, f Fault) (func(), bool) {
	flag := filepath.Join(n.host(f).kept, "exit-at-once")
	n.must("have agents end", os.WriteFile(flag, nil, 0o600))
	return func() { _ = os.Remove(flag) }, true
}

// replaces starts one process after the other from another build: the hosts' tmuxd, the dispatchers, the pollers.
func replaces(forward bool) act {
	return func(_ context.Context, n *nemesis, f Fault) (func(), bool) {
		var all []*process
		for _, h := range n.fleet.hosts {
			all = append(all, h.tmuxd)
		}
		all = slices.Concat(all, n.fleet.dispatchers, n.fleet.pollers)
		bin := n.fleet.Bin
		if forward {
			bin = n.fleet.Next
		}
		p := all[f.Replica%len(all)]
		n.must("replace "+p.name, p.replace(bin))
		return nil, true
	}
}

func (n *nemesis) String() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	out, kinds := "", Kinds()
	for _, k := range kinds {
		if n.done[k]+n.idle[k] > 0 {
			out += fmt.Sprintf(" %s=%d", k, n.done[k])
		}
	}
	return out
}
