package main

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// text has 200 bytes, as a short comment does.
var text = strings.Repeat("please look at this\n", 10)

// patience is the longest wait for anything here.
const patience = 5 * time.Minute

// bench measures everything with one number of items that wait.
type bench struct {
	*stage
	rounds, events, waiting int
	report                  *report
}

func (b *bench) step(ctx context.Context) error {
	var there int
	if err := b.pool.QueryRow(ctx, `select count(*) from poller.events where state = 'held'`).Scan(&there); err != nil {
		return err
	}
	if b.waiting > there {
		first, err := b.newItems(ctx, b.waiting-there)
		if err != nil {
			return err
		}
		if err := b.insertEvents(ctx, first, b.waiting-there, false); err != nil {
			return err
		}
	}
	if _, err := b.pool.Exec(ctx, `vacuum analyze poller.events, poller.items`); err != nil {
		return err
	}
	if err := b.latency(ctx); err != nil {
		return err
	}
	return b.rates(ctx)
}

// latency measures the way of one event at a time, in turns with the baselines.
func (b *bench) latency(ctx context.Context) error {
	heard := make(chan time.Time, 1)
	listener, err := b.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	listening, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	defer func() {
		cancel()
		done.Wait()
		_ = listener.Hijack().Close(context.WithoutCancel(ctx))
	}()
	if _, err := listener.Exec(ctx, "listen bare"); err != nil {
		return err
	}
	done.Go(func() {
		for listening.Err() == nil {
			if _, err := listener.Conn().WaitForNotification(listening); err == nil {
				heard <- time.Now()
			}
		}
	})
	first, err := b.newItems(ctx, b.rounds+1)
	if err != nil {
		return err
	}
	var ours, commits, announcements []time.Duration
	for i := range b.rounds + 1 { // the first of each opens connections and is not counted
		for len(b.asked) > 0 {
			<-b.asked
		}
		began := time.Now()
		if err := b.insertEvents(ctx, first+i, 1, true); err != nil {
			return err
		}
		asked, err := next(ctx, b.asked)
		if err != nil {
			return err
		}
		ours = append(ours, asked.Sub(began))
		began = time.Now()
		if _, err := b.pool.Exec(ctx, `insert into public.bare (text) values ($1)`, text); err != nil {
			return err
		}
		commits = append(commits, time.Since(began))
		began = time.Now()
		if _, err := b.pool.Exec(ctx, `insert into public.announced (text) values ($1)`, text); err != nil {
			return err
		}
		at, err := next(ctx, heard)
		if err != nil {
			return err
		}
		announcements = append(announcements, at.Sub(began))
		if err := b.ended(ctx); err != nil {
			return err
		}
	}
	b.report.latencies = append(b.report.latencies, latency{b.waiting, ours[1:], commits[1:], announcements[1:]})
	return nil
}

func next(ctx context.Context, c <-chan time.Time) (time.Time, error) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case at := <-c:
		return at, nil
	case <-timer.C:
		return time.Time{}, errors.New("nothing came")
	case <-ctx.Done():
		return time.Time{}, ctx.Err()
	}
}

// ended waits until no event is due or under way.
func (b *bench) ended(ctx context.Context) error { return allEnded(ctx, b.pool) }

func allEnded(ctx context.Context, pool *pgxpool.Pool) error {
	for deadline := time.Now().Add(patience); ; {
		var open bool
		err := pool.QueryRow(ctx, `
select exists (select from poller.events
  where state in ('pending', 'leased', 'held') and coalesce(lease_until, next_look) < now() + interval '1 hour')`).Scan(&open)
		if err != nil || !open {
			return err
		}
		if time.Now().After(deadline) {
			return errors.New("the events do not end")
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// rates measures how many events go through the ledger in a second when many come at once: beside those that wait, and those that wait
// themselves, all due at once.
func (b *bench) rates(ctx context.Context) error {
	bare, err := b.commits(ctx)
	if err != nil {
		return err
	}
	first, err := b.newItems(ctx, b.events)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := b.insertEvents(ctx, first, b.events, true); err != nil {
		return err
	}
	if err := b.ended(ctx); err != nil {
		return err
	}
	b.report.rates = append(b.report.rates, rate{"events beside those that wait", "events_beside", b.waiting,
		float64(b.events) / time.Since(began).Seconds(), bare})
	if b.waiting < b.events {
		return nil
	}
	if bare, err = b.commits(ctx); err != nil {
		return err
	}
	began = time.Now()
	if _, err := b.pool.Exec(ctx, `update poller.events set next_look = now() where state = 'held'`); err != nil {
		return err
	}
	if err := b.ended(ctx); err != nil {
		return err
	}
	b.report.rates = append(b.report.rates, rate{"all that wait become due at once", "events_all", b.waiting,
		float64(b.waiting) / time.Since(began).Seconds(), bare})
	return nil
}

// commits returns how many inserts with a commit each as many connections as the poller has workers make in a second.
func (b *bench) commits(ctx context.Context) (float64, error) {
	const lasts = 2 * time.Second
	var made [workers]int
	var errs [workers]error
	var all sync.WaitGroup
	began := time.Now()
	for i := range workers {
		all.Go(func() {
			for time.Since(began) < lasts && errs[i] == nil {
				_, errs[i] = b.pool.Exec(ctx, `insert into public.bare (text) values ($1)`, text)
				made[i]++
			}
		})
	}
	all.Wait()
	n := 0
	for _, m := range made {
		n += m
	}
	return float64(n) / time.Since(began).Seconds(), errors.Join(errs[:]...)
}
