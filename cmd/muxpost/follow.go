package main

import (
	"context"
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/layout"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
)

// followPause is the time between two questions for new events, and before one is asked again who did not answer.
const followPause = 500 * time.Millisecond

// news is what one of the two has to tell who follows their events.
type news struct {
	from layout.Service
	// events are new; none says only that it answers.
	events []*dispatcherv1.Event
	// forgotten is up to which number events are gone that were not told; zero when none are.
	forgotten int64
	// err says why it does not go on; one that does not answer is asked again.
	err error
}

// follow writes new events until ctx ends. A service that is away is waited for: its events are stored, so none is missed.
func (a *app) follow(ctx context.Context, from *streams) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	both := []layout.Service{layout.Dispatcher, layout.Poller}
	for _, service := range both {
		// Both connections are there before anybody looks for one at the same time as somebody else.
		if _, err := from.conn(service); err != nil {
			return err
		}
	}
	all := make(chan news)
	for i, read := range []func(context.Context, func(news)) error{from.watchDispatcher, from.askPoller} {
		if from.unasked[i] {
			continue
		}
		go again(ctx, both[i], read, func(n news) {
			select {
			case all <- n:
			case <-ctx.Done():
			}
		})
	}
	away := map[layout.Service]bool{}
	for {
		var n news
		select {
		case <-ctx.Done():
			return nil
		case n = <-all:
		}
		switch {
		case n.err != nil && fault.KindOf(n.err) != fault.Unavailable:
			return n.err
		case n.err != nil && !away[n.from]:
			a.warn("the %s does not answer; waiting for it", n.from)
		case n.err == nil && away[n.from]:
			a.warn("the %s answers again", n.from)
		}
		away[n.from] = n.err != nil
		if n.forgotten > 0 {
			a.missed(n.forgotten)
		}
		if err := a.events(n.events); err != nil {
			return err
		}
	}
}

// again reads from one of the two until ctx ends, with a pause before each time but the first.
func again(ctx context.Context, service layout.Service, read func(context.Context, func(news)) error, tell func(news)) {
	for {
		err := read(ctx, func(n news) { n.from = service; tell(n) })
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			tell(news{from: service, err: err})
		}
		timer := time.NewTimer(followPause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

// watchDispatcher reads the dispatcher's stream until it breaks.
func (f *streams) watchDispatcher(ctx context.Context, tell func(news)) error {
	if f.unseen[0] {
		events, err := f.dispatched(ctx, f.limit, true)
		if err != nil {
			return err
		}
		tell(news{events: events})
	}
	conn, err := f.conn(layout.Dispatcher)
	if err != nil {
		return err
	}
	stream, err := dispatcherv1.NewDispatcherServiceClient(conn).WatchEvents(ctx, &dispatcherv1.WatchEventsRequest{
		WorkItem: f.item, DeliveryId: f.delivery, Types: f.types[0], AfterSequence: f.after[0],
	})
	if err != nil {
		return f.explained(layout.Dispatcher, err)
	}
	for {
		step, err := stream.Recv()
		if err != nil {
			return f.explained(layout.Dispatcher, err)
		}
		switch s := step.GetStep().(type) {
		case *dispatcherv1.WatchEventsResponse_Event:
			f.after[0] = s.Event.GetSequence()
			tell(news{events: []*dispatcherv1.Event{s.Event}})
		case *dispatcherv1.WatchEventsResponse_CaughtUp:
			f.after[0] = s.CaughtUp.GetSequence()
			tell(news{})
		case *dispatcherv1.WatchEventsResponse_Missed:
			tell(news{forgotten: s.Missed.GetForgottenSequence()})
		}
	}
}

// askPoller asks the poller once.
func (f *streams) askPoller(ctx context.Context, tell func(news)) error {
	limit := maxPage
	if f.unseen[1] {
		limit = f.limit
	}
	events, err := f.polled(ctx, limit, f.unseen[1])
	if err == nil {
		tell(news{events: events})
	}
	return err
}
