package team

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"muxpost.dev/muxpost/core/lease"
	rules "muxpost.dev/muxpost/core/team"
	"muxpost.dev/muxpost/core/workitem"
	"muxpost.dev/muxpost/internal/failpoint"
	"muxpost.dev/muxpost/internal/obs"
	"muxpost.dev/muxpost/services/dispatcher/internal/hints"
)

const (
	// takeEvery is how often it is looked for runs that nobody holds, and for attempts whose hosts have to be told.
	takeEvery = time.Second
	// maxRuns is how many runs one dispatcher coordinates at once, and owedAtOnce how many hosts are told at once.
	maxRuns    = 200
	owedAtOnce = 16
	// lookEvery is how often a run and its attempts are looked at where no hint comes.
	lookEvery = 5 * time.Second
	// claimLease is how long an attempt counts as vouched for; it is renewed at a third of that.
	claimLease = 300 * time.Second
)

// Config is what a Coordinator works with. All fields are required but Instance, Shadow, Policy and LookEvery.
type Config struct {
	Store Store
	Hosts Hosts
	// Hints tell which attempts changed at their hosts.
	Hints  *hints.Hub
	Logger *slog.Logger
	Tracer obs.Tracer
	// Process names this process among all that share the database.
	Process string
	// Instance is what this process has in common with those before it, of which none lives any more; empty where that is not known.
	Instance string
	// Shadow has nothing begun or coordinated.
	Shadow bool
	// Policy says what is run for a work item by a name, or by none; nil runs nothing for any.
	Policy func(item workitem.Ref, name string) (Policy, bool)
	// LookEvery is how often it is looked where no hint comes; zero for the usual.
	LookEvery time.Duration
}

// Coordinator coordinates runs: as many dispatchers as there are may have one, and the leases of the runs decide.
type Coordinator struct {
	config Config
	more   chan struct{}

	mu      sync.Mutex
	drivers map[*driver]bool
}

// New returns a coordinator.
func New(config Config) *Coordinator {
	if config.Instance != "" {
		config.Process += "." + config.Instance
	}
	if config.LookEvery == 0 {
		config.LookEvery = lookEvery
	}
	return &Coordinator{config: config, more: make(chan struct{}, 1), drivers: map[*driver]bool{}}
}

// Poke has it look for runs now, and at those that it has.
func (c *Coordinator) Poke() {
	poke(c.more)
	c.mu.Lock()
	defer c.mu.Unlock()
	for d := range c.drivers {
		poke(d.wake)
	}
}

func poke(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

// Run coordinates until ctx ends; the runs are then let go, and go on under whoever takes them. It returns nil: trouble is waited out.
func (c *Coordinator) Run(ctx context.Context) error {
	if c.config.Shadow {
		<-ctx.Done()
		return nil
	}
	var group sync.WaitGroup
	group.Go(func() { c.hear(ctx) })
	group.Go(func() { c.settleDebts(ctx) })
	defer func() {
		group.Wait()
		c.letGo(ctx)
	}()
	ticker := time.NewTicker(takeEvery)
	defer ticker.Stop()
	for forsaken := c.config.Instance == ""; ; {
		forsaken = forsaken || c.succeed(ctx)
		c.retry(ctx)
		c.mu.Lock()
		room := maxRuns - len(c.drivers)
		c.mu.Unlock()
		if room > 0 {
			runs, err := c.config.Store.TakeRuns(ctx, c.config.Process, room)
			if err != nil && ctx.Err() == nil {
				c.config.Logger.WarnContext(ctx, "it was not seen whether there are runs to coordinate", obs.KeyError, err)
			}
			for _, r := range runs {
				group.Go(func() { c.drive(ctx, r) })
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		case <-c.more:
		}
	}
}

// succeed frees the runs that the processes before this one held, so that they need not wait for the end of a lease: none of those lives any more.
// What one of them has sent is fenced by the new epoch, as ever.
func (c *Coordinator) succeed(ctx context.Context) bool {
	n, err := c.config.Store.ReleaseFormer(ctx, c.config.Instance, c.config.Process)
	switch {
	case err != nil && ctx.Err() == nil:
		c.config.Logger.WarnContext(ctx, "the runs of an earlier process could not be freed", obs.KeyError, err)
	case n > 0:
		c.config.Logger.InfoContext(ctx, "the runs of an earlier process are free", obs.KeyCount, n)
	}
	return err == nil
}

// letGo frees what this process holds and does not know of: a run can be taken by a statement whose answer did not arrive.
func (c *Coordinator) letGo(ctx context.Context) {
	release, done := context.WithTimeout(context.WithoutCancel(ctx), lease.Margin)
	defer done()
	_ = c.config.Store.ReleaseRuns(release, c.config.Process) // the leases end by themselves too
}

// retry begins runs again that failed and whose time has come.
func (c *Coordinator) retry(ctx context.Context) {
	for ctx.Err() == nil {
		r, ok, err := c.config.Store.RetryRun(ctx)
		switch {
		case err != nil && ctx.Err() == nil:
			c.config.Logger.WarnContext(ctx, "it was not seen whether runs have to be begun again", obs.KeyError, err)
			return
		case !ok:
			return
		}
		c.config.Logger.InfoContext(ctx, "a run was begun again", obs.KeyRunID, r.ID, obs.KeyWorkItem, r.WorkItem, obs.KeyTry, r.Try)
	}
}

// hear passes hints on to whoever attends to the attempt.
func (c *Coordinator) hear(ctx context.Context) {
	follower := c.config.Hints.Follow()
	defer follower.Close()
	for {
		id, err := follower.Next(ctx)
		if err != nil {
			return
		}
		c.mu.Lock()
		for d := range c.drivers {
			d.heard(id)
		}
		c.mu.Unlock()
	}
}

// settleDebts tells hosts of attempts that are over for their runs: they are stopped, and what has not begun never will.
func (c *Coordinator) settleDebts(ctx context.Context) {
	ticker := time.NewTicker(takeEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		owed, err := c.config.Store.TakeOwed(ctx, owedAtOnce)
		if err != nil {
			c.config.Logger.DebugContext(ctx, "it was not seen which attempts have to be stopped", obs.KeyError, err)
			continue
		}
		var group sync.WaitGroup
		for _, a := range owed {
			group.Go(func() { c.settleDebt(ctx, a) })
		}
		group.Wait()
	}
}

func (c *Coordinator) settleDebt(ctx context.Context, a Attempt) {
	answer := c.config.Hosts.StopAttempt(ctx, a.Host, a.ID, a.Token, "its run goes on without it: "+a.Reason)
	if answer.Kind != Done && answer.Kind != Unknown {
		return // it is asked for again when its time has come
	}
	if err := c.config.Store.PaidAttempt(ctx, a.ID); err != nil {
		c.config.Logger.DebugContext(ctx, "a stopped attempt could not be recorded", obs.KeyAttemptID, a.ID, obs.KeyError, err)
		return
	}
	c.config.Logger.InfoContext(ctx, "an attempt that was given up is over at its host", obs.KeyRunID, a.RunID, obs.KeyTaskID, a.TaskID, obs.KeyAttemptID, a.ID,
		obs.KeyHost, a.Host)
}

// drive coordinates one run for as long as this process holds it.
func (c *Coordinator) drive(ctx context.Context, r Run) {
	ctx, cancel := context.WithCancel(obs.Extract(ctx, r.Traceparent))
	defer cancel()
	d := &driver{Config: &c.config, run: r, wake: make(chan struct{}, 1), attended: map[string]*attendant{}, lost: cancel}
	c.mu.Lock()
	c.drivers[d] = true
	c.mu.Unlock()
	c.config.Logger.InfoContext(ctx, "a run is coordinated", obs.KeyRunID, r.ID, obs.KeyToken, r.Epoch)
	var renewing sync.WaitGroup
	renewing.Go(func() { d.renew(ctx) })
	d.loop(ctx)
	cancel()
	renewing.Wait()
	d.group.Wait()
	c.mu.Lock()
	delete(c.drivers, d)
	c.mu.Unlock()
	release, done := context.WithTimeout(context.WithoutCancel(ctx), lease.Margin)
	defer done()
	_ = c.config.Store.ReleaseRun(release, r.ID, r.Epoch) // its lease ends by itself too
}

// driver coordinates one run.
type driver struct {
	*Config
	// run is what was taken: the id and the epoch. whole is the run as it was read first; what is asked of it never changes.
	run, whole Run
	wake       chan struct{}
	// lost ends everything: another has the run, or it is over.
	lost  context.CancelFunc
	group sync.WaitGroup

	mu       sync.Mutex
	attended map[string]*attendant
	// stopping says why what is under way is stopped; empty while the run goes on.
	stopping string
	waits    string
}

// renew keeps the run. Whoever cannot, stops before the lease ends: another may act then.
func (d *driver) renew(ctx context.Context) {
	renewed := time.Now()
	ticker := time.NewTicker(lease.Time / 3)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		asked := time.Now()
		asking, cancel := context.WithTimeout(ctx, lease.Time/6)
		err := d.Store.RenewRun(asking, d.run.ID, d.run.Epoch)
		cancel()
		switch {
		case err == nil:
			renewed = asked
		case isFenced(err) || time.Since(renewed) > lease.Time-lease.Time/3-lease.Margin:
			if ctx.Err() == nil {
				d.Logger.WarnContext(ctx, "a run is coordinated no more", obs.KeyRunID, d.run.ID, obs.KeyToken, d.run.Epoch, obs.KeyError, err)
			}
			d.lost()
			return
		}
	}
}

// loop decides and acts until the run is over, another has it, or ctx ends.
func (d *driver) loop(ctx context.Context) {
	for ctx.Err() == nil {
		again, over, err := d.step(ctx)
		switch {
		case isFenced(err) || over:
			return
		case err != nil && ctx.Err() == nil:
			d.Logger.WarnContext(ctx, "a run could not go on, and is looked at again", obs.KeyRunID, d.run.ID, obs.KeyError, err)
		case again:
			continue
		}
		timer := time.NewTimer(d.LookEvery)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-d.wake:
		}
		timer.Stop()
	}
}

// step reads the run, has its attempts attended to, and does what it needs next.
func (d *driver) step(ctx context.Context) (again, over bool, err error) {
	read := time.Now()
	known, err := d.Store.KnownRun(ctx, d.run.ID)
	if err != nil {
		return false, false, err
	}
	if known.Run.Epoch != d.run.Epoch || known.Run.Phase.Terminal() {
		return false, true, nil
	}
	if d.whole.Total == 0 {
		d.whole, d.waits = known.Run, known.Run.Waits // nobody reads it before there is an attempt to attend to
	}
	if d.whole.Unread != "" && known.Run.Unread == "" {
		return false, true, nil // it can be read again, and is taken anew with all that was asked for
	}
	decision := rules.Decide(runOf(known))
	d.attendAll(ctx, known, decision, read)
	switch decision.Action {
	case rules.Move:
		moved, err := d.Store.MoveRun(ctx, Step{RunID: d.run.ID, Epoch: d.run.Epoch, Version: known.Run.Version, From: known.Run.Phase, Decision: decision})
		if err != nil {
			return false, false, err
		}
		failpoint.Hit("dispatcher.team.moved")
		if moved {
			d.moved(ctx, known.Run, decision)
		}
		return true, moved && decision.To.Terminal(), nil
	case rules.Claim:
		return d.claimAll(ctx, known, decision.Tasks)
	case rules.Wait:
		return false, false, d.note(ctx, decision.Detail)
	case rules.Drain:
	}
	return false, false, nil
}

// moved tells of a run that came to another phase.
func (d *driver) moved(ctx context.Context, r Run, decision rules.Decision) {
	d.waits = ""
	attrs := []slog.Attr{slog.String(obs.KeyRunID, r.ID), slog.String(obs.KeyPhase, decision.To.String()), slog.String(obs.KeyReason, string(decision.Reason))}
	d.Logger.LogAttrs(ctx, slog.LevelInfo, "a run came to another phase", attrs...)
	failed := ""
	if decision.To == rules.Failed {
		failed = string(decision.Reason)
	}
	now := time.Now()
	obs.Past(ctx, d.Tracer, "team.Phase "+r.Phase.String(), r.PhaseSince, now, "", attrs...)
	if decision.To.Terminal() {
		obs.Past(ctx, d.Tracer, "team.Run", r.CreatedAt, now, failed, attrs...)
	}
}

// note records what the run waits for, when that is something new.
func (d *driver) note(ctx context.Context, waits string) error {
	if waits == d.waits {
		return nil
	}
	if waits != "" {
		d.Logger.WarnContext(ctx, "a run waits", obs.KeyRunID, d.run.ID, obs.KeyReason, waits)
	}
	err := d.Store.NoteWait(ctx, d.run.ID, d.run.Epoch, waits)
	if err == nil {
		d.waits = waits
	}
	return err
}

// runOf is a run as the rules see it.
func runOf(k Known) rules.Run {
	r := rules.Run{Phase: k.Run.Phase, Ending: k.Run.Ending, EndingReason: k.Run.Reason, EndingDetail: k.Run.Detail, FixLoops: k.Run.FixLoops,
		MaxFixLoops: k.Run.Spec.MaxFixLoops, Total: k.Run.Total, Parallel: k.Run.Spec.Parallel,
		Unread: k.Run.Problem(), Paused: pausedBy(k.Pauses)}
	for _, t := range k.Tasks {
		r.Tasks = append(r.Tasks, t.Item)
	}
	return r
}

// pausedBy says who holds a run back, since when and why, and what ends that; empty for nobody.
func pausedBy(pauses []Pause) string {
	var texts, commands []string
	for _, p := range pauses {
		what, scope := "everything is paused", "--all"
		if p.WorkItem != "" {
			what, scope = "its work item is paused", p.WorkItem
		}
		what += " since " + p.Since.UTC().Format("2006-01-02 15:04:05 MST") + " by " + orNobody(p.Who)
		if p.Reason != "" {
			what += " (" + p.Reason + ")"
		}
		texts, commands = append(texts, what), append(commands, "`muxpost unpause "+scope+"`")
	}
	if len(texts) == 0 {
		return ""
	}
	return strings.Join(texts, ", and ") + ": no task is handed out until " + strings.Join(commands, " and ")
}

// attendAll has every open attempt attended to, and tells those who attend what is known by now; it was not read before a time.
func (d *driver) attendAll(ctx context.Context, k Known, decision rules.Decision, read time.Time) {
	stopping := ""
	if decision.Action == rules.Drain {
		stopping = fmt.Sprintf("its run is ended by %s: %s", orNobody(k.Run.EndedBy), k.Run.Detail)
	}
	items := map[string]rules.Item{}
	for _, t := range k.Tasks {
		items[t.ID] = t.Item
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	changed := stopping != d.stopping
	d.stopping = stopping
	for _, a := range k.Open {
		if k.Run.Unread != "" && a.State == Claimed && stopping == "" {
			continue // how long it may last cannot be read either
		}
		at, ok := d.attended[a.ID]
		if !ok {
			at = &attendant{driver: d, wake: make(chan struct{}, 1)}
			d.attended[a.ID] = at
		}
		before := at.attempt
		at.attempt, at.item = a, items[a.TaskID]
		at.startBy = read.Add(startMargin - max(0, a.SinceClaim))
		if !ok {
			d.group.Go(func() { at.attend(ctx) })
		} else if changed || a.Lapsed != before.Lapsed || a.Gone != before.Gone || a.Fenced != before.Fenced {
			poke(at.wake)
		}
	}
}

// heard wakes whoever attends to an attempt, or everybody.
func (d *driver) heard(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if id == hints.Any {
		for _, at := range d.attended {
			poke(at.wake)
		}
		return
	}
	if at, ok := d.attended[id]; ok {
		poke(at.wake)
	}
}

func orNobody(who string) string {
	if who == "" {
		return "somebody"
	}
	return who
}
