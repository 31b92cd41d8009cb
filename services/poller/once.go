package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/services/poller/internal/poll"
)

const (
	// onceTime bounds the deliveries of one round.
	onceTime = 2 * time.Minute
	// onceNoticeTime bounds what is written upstream in one round.
	onceNoticeTime = time.Minute
	// oncePatience is the longest wait for an event that is to be looked at again.
	oncePatience = 5 * time.Second
)

// once looks at every source, delivers until nothing is due, and prints one line. It fails when a source could not be read, and
// with fault.Unavailable when the database or the dispatcher does not answer.
func (p *parts) once(ctx context.Context, stdout io.Writer) error {
	results := p.lookAtAll(ctx)
	bounded, cancel := context.WithTimeout(ctx, onceTime)
	defer cancel()
	err := p.hooks.handler.Drain(bounded)
	if err == nil {
		err = p.retrier.Sweep(bounded)
	}
	if err == nil {
		err = p.forwarder.Drain(bounded, oncePatience)
	}
	if err == nil {
		noticing, cancel := context.WithTimeout(ctx, onceNoticeTime)
		defer cancel()
		err = p.notifier.Carry(noticing)
	}
	if err == nil {
		err = p.forget(bounded)
	}
	var items, fresh, settled int
	var failed []string
	for _, r := range results {
		items, fresh, settled = items+r.Items, fresh+r.NewEvents, settled+r.SettledEvents
		if r.Err != nil {
			failed = append(failed, r.Source+": "+r.Err.Error())
		}
		if err == nil && fault.ReasonOf(r.Err) == fault.ReasonDatabase {
			err = r.Err
		}
	}
	done := p.forwarder.Totals()
	_, _ = fmt.Fprintf(stdout, // whoever closed it does not want to know
		"poller: %d sources, %d failed; %d items, %d new events, %d settled; %d delivered, %d ended otherwise, %d asked\n",
		len(results), len(failed), items, fresh, settled, done.Delivered, done.Ended, done.Asked)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return err
	case done.Silent > 0:
		return fault.New(fault.Unavailable, fault.ReasonDispatcherSilent, "the dispatcher does not answer: events wait in the ledger").
			WithRemedy("start it, or correct poller.dispatcher; the next round goes on with them")
	case len(failed) > 0:
		return errors.New("a source could not be read: " + strings.Join(failed, "; "))
	}
	return nil
}

func (p *parts) lookAtAll(ctx context.Context) []poll.Result {
	names := p.poller.Sources()
	results := make([]poll.Result, len(names))
	var wait sync.WaitGroup
	for i, name := range names {
		wait.Go(func() {
			var err error
			if results[i], err = p.poller.LookNow(ctx, name); err != nil {
				results[i] = poll.Result{Source: name, Err: err}
			}
		})
	}
	wait.Wait()
	return results
}
