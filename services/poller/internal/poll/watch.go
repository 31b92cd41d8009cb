package poll

import (
	"context"
	"errors"
	"sync"
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/obs"
)

const (
	// lookLease is how long a look that died keeps the next one away. A look that lives renews it every lookRenewal.
	lookLease   = 10 * time.Second
	lookRenewal = 3 * time.Second
	// patience is how long to wait while the ledger does not say when a source is due.
	patience = time.Second
	// leastPause keeps a look that is asked for a moment too early from being asked for in a hurry.
	leastPause = 10 * time.Millisecond
	// lookGrace is how long a look may go on once Run is told to stop.
	lookGrace = 4 * time.Second
)

// Run looks at every source at once, and from then on whenever it is due, until ctx ends: whichever process is first does, and no process leads.
// It returns nil: trouble with a source or the ledger is waited out.
func (p *Poller) Run(ctx context.Context) error {
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(lookGrace, cancel) })
	defer stop()
	var looks sync.WaitGroup
	for _, w := range p.config.Sources {
		looks.Go(func() { p.watch(ctx, work, w) })
	}
	looks.Wait()
	return nil
}

// watch looks at one source until ctx ends; work is the context of a look, which may outlive that for a while.
func (p *Poller) watch(ctx, work context.Context, w Watched) {
	for every := time.Duration(0); ctx.Err() == nil; every = w.Interval {
		p.look(work, w, every, false) // what fails is on the record
		wait, err := p.config.Ledger.LookDue(ctx, w.Name, w.Interval)
		if err != nil {
			wait = patience
		}
		timer := time.NewTimer(max(wait, leastPause))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
}

// keep renews the lease of a look until it is told to stop, and ends the look where it was lost. While the ledger does not answer it goes on:
// the look can write nothing then, and one beside it does no harm.
func (p *Poller) keep(ctx context.Context, lost func(), source, holder string) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var keeping sync.WaitGroup
	keeping.Go(func() {
		ticker := time.NewTicker(lookRenewal)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			asking, done := context.WithTimeout(ctx, lookRenewal)
			err := p.config.Ledger.KeepLook(asking, source, holder, lookLease)
			done()
			if errors.Is(err, fault.Fenced) {
				p.config.Logger.WarnContext(ctx, "a look is given up: it was not renewed in time, and another one may be under way", obs.KeySource, source)
				lost()
				return
			}
		}
	})
	return func() {
		cancel()
		keeping.Wait()
	}
}
