package server

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"muxpost.dev/muxpost/core/dispatch"
	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/session"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	"muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1/dispatcherv1connect"
	"muxpost.dev/muxpost/services/dispatcher/internal/deliver"
)

const (
	// eventPageSize is how many events a page holds that names no size, and how many a watcher reads at once.
	eventPageSize = 100
	// watchReads is how many watchers read at once, so that they leave the database's connections to the deliveries.
	watchReads = 2
	// beat is how often a watcher hears that it has had everything while nothing happens.
	beat = 15 * time.Second
)

// chosen is what a list of events and a watch of them have in common.
type chosen interface {
	GetAfterSequence() int64
	GetWorkItem() string
	GetDeliveryId() string
	GetTypes() []string
}

// eventQuery reads which events are asked for.
func eventQuery(r chosen, size int32) (deliver.EventQuery, error) {
	item, limit, err := listOf(r.GetWorkItem(), size, eventPageSize)
	switch {
	case err != nil:
		return deliver.EventQuery{}, err
	case r.GetAfterSequence() < 0:
		return deliver.EventQuery{}, fault.New(fault.Invalid, fault.ReasonBadArgument, "after_sequence must not be negative")
	case r.GetDeliveryId() != "" && !session.ValidDeliveryID(r.GetDeliveryId()):
		return deliver.EventQuery{}, badDeliveryID()
	}
	q := deliver.EventQuery{After: r.GetAfterSequence(), WorkItem: item, DeliveryID: r.GetDeliveryId(), Limit: limit}
	known := dispatch.EventTypes()
	for _, name := range r.GetTypes() {
		if known[dispatch.EventType(name)] == "" {
			return deliver.EventQuery{}, fault.Newf(fault.Invalid, fault.ReasonBadArgument, "%.64q is no type of the dispatcher's events", name).
				WithRemedy("the types are " + typeNames(known))
		}
		q.Types = append(q.Types, dispatch.EventType(name))
	}
	return q, nil
}

func typeNames(known map[dispatch.EventType]string) string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(known)) {
		names = append(names, string(name))
	}
	return strings.Join(names, ", ")
}

// ListEvents returns the dispatcher's events in order of their sequence.
func (s *Server) ListEvents(ctx context.Context, r *dispatcherv1.ListEventsRequest) (*dispatcherv1.ListEventsResponse, error) {
	q, err := eventQuery(r, r.GetPageSize())
	if err != nil {
		return nil, err
	}
	q.Latest = r.GetLatest()
	page, err := s.records.Events(ctx, q)
	if err != nil {
		return nil, err
	}
	out := &dispatcherv1.ListEventsResponse{LastSequence: page.Last, ForgottenSequence: page.Forgotten}
	for _, e := range page.Events {
		out.Events = append(out.Events, eventOf(e))
	}
	return out, nil
}

// WatchEvents follows the events from a sequence number on, until whoever asked or the service goes. While a watcher is sent something,
// nothing is held for it but its page: no connection, no lock.
func (s *Server) WatchEvents(ctx context.Context, r *dispatcherv1.WatchEventsRequest,
	stream dispatcherv1connect.DispatcherServiceWatchEventsServerStream) error {
	q, err := eventQuery(r, 0)
	if err != nil {
		return err
	}
	return s.watch(ctx, q, stream.Send)
}

func (s *Server) watch(ctx context.Context, q deliver.EventQuery, send func(*dispatcherv1.WatchEventsResponse) error) error {
	follower := s.news.Follow()
	defer follower.Close()
	w := watcher{q: q, out: send, behind: true, sent: time.Now()}
	for {
		due := w.sent.Add(beat)
		wait, cancel := context.WithDeadline(ctx, due)
		_, _ = follower.Next(wait) // that its time is over is a reason to look as well
		cancel()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		w.behind = w.behind || !time.Now().Before(due)
		if err := w.catchUp(ctx, s.readEvents); err != nil {
			return err
		}
	}
}

// readEvents reads a page for a watcher, when it is its turn.
func (s *Server) readEvents(ctx context.Context, q deliver.EventQuery) (deliver.EventPage, error) {
	select {
	case s.reads <- struct{}{}:
		defer func() { <-s.reads }()
	case <-ctx.Done():
		return deliver.EventPage{}, ctx.Err()
	}
	return s.records.Events(ctx, q)
}

// watcher is how far one has come who follows events.
type watcher struct {
	// q says what it follows, and after which sequence number it goes on.
	q   deliver.EventQuery
	out func(*dispatcherv1.WatchEventsResponse) error
	// sent is when it was last sent something.
	sent time.Time
	// behind is true while it has to be told that it has caught up.
	behind bool
	// missed is up to where it was told that events are gone.
	missed int64
}

func (w *watcher) send(step *dispatcherv1.WatchEventsResponse) error {
	err := w.out(step)
	w.sent = time.Now()
	return err
}

// catchUp sends all that there is.
func (w *watcher) catchUp(ctx context.Context, read func(context.Context, deliver.EventQuery) (deliver.EventPage, error)) error {
	for {
		page, err := read(ctx, w.q)
		switch {
		case err != nil:
			return err
		case w.q.After > page.Last:
			return fault.Newf(fault.Invalid, fault.ReasonBadArgument, "after_sequence is %d, and the last event has %d", w.q.After, page.Last).
				WithRemedy("the number is of another database, or this one was restored to an earlier state: begin again, after 0 or after an event that is there")
		}
		if err := w.pass(page); err != nil {
			return err
		}
		if len(page.Events) < w.q.Limit {
			break
		}
	}
	if !w.behind {
		return nil
	}
	w.behind = false
	return w.send(&dispatcherv1.WatchEventsResponse{Step: &dispatcherv1.WatchEventsResponse_CaughtUp{
		CaughtUp: &dispatcherv1.EventsCaughtUp{Sequence: w.q.After},
	}})
}

// pass sends a page, and has the watcher go on behind it.
func (w *watcher) pass(page deliver.EventPage) error {
	if page.Forgotten > max(w.q.After, w.missed) {
		w.missed, w.behind = page.Forgotten, true
		if err := w.send(&dispatcherv1.WatchEventsResponse{Step: &dispatcherv1.WatchEventsResponse_Missed{
			Missed: &dispatcherv1.EventsMissed{ForgottenSequence: page.Forgotten},
		}}); err != nil {
			return err
		}
	}
	for _, e := range page.Events {
		w.behind = true
		if err := w.send(&dispatcherv1.WatchEventsResponse{Step: &dispatcherv1.WatchEventsResponse_Event{Event: eventOf(e)}}); err != nil {
			return err
		}
		w.q.After = e.Sequence
	}
	if len(page.Events) < w.q.Limit {
		// What is up to there and was not asked for need not be read again.
		w.q.After = page.Last
	}
	return nil
}
