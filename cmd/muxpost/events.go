package main

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"muxpost.dev/muxpost/cmd/muxpost/internal/view"
	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/session"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	pollerv1 "muxpost.dev/muxpost/proto/gen/muxpost/poller/v1"
)

// followPause is the time between two questions for new events.
const followPause = 500 * time.Millisecond

func eventsCommand(a *app) *cobra.Command {
	var follow bool
	var delivery string
	c := &cobra.Command{
		Use: "events [ITEM]", Short: "List what the poller and the dispatcher decided and did, in order of time", Args: args(0, 1, ""),
		Long: `events lists what the dispatcher did, and what the poller did (its types begin with poll.), by time. Each of the two numbers its
own events. While one of them is away, the other's are shown and the exit code is 3.`,
		Example: "  muxpost events --follow\n  muxpost events --delivery DELIVERY-ID",
		RunE: func(cmd *cobra.Command, given []string) error {
			item, err := itemOf(given)
			if err != nil {
				return err
			}
			if delivery != "" && !session.ValidDeliveryID(delivery) {
				return badDeliveryID(delivery)
			}
			if a.limit < 1 || a.limit > maxPage {
				return fault.Newf(fault.Invalid, fault.ReasonBadArgument, "--limit must be 1 to %d", maxPage)
			}
			s, err := a.dial()
			if err != nil {
				return err
			}
			defer s.close()
			return a.listEvents(cmd.Context(), &streams{services: s, item: item, delivery: delivery}, follow)
		},
	}
	c.Flags().BoolVarP(&follow, "follow", "f", false, "go on with events as they come, until interrupted")
	c.Flags().StringVar(&delivery, "delivery", "", "only events of this delivery `ID`")
	a.jsonFlag(c)
	c.Flags().IntVarP(&a.limit, "limit", "n", 50, "begin with at most this many of the newest")
	return c
}

func (a *app) listEvents(ctx context.Context, from *streams, follow bool) error {
	events, away := from.next(ctx, a.limit, true)
	events = events[max(0, len(events)-a.limit):]
	for _, err := range away {
		if fault.KindOf(err) != fault.Unavailable || len(away) == len(from.away) && !follow {
			return err
		}
	}
	switch {
	case !follow && a.json:
		if err := view.JSON(a.stdout, &dispatcherv1.ListEventsResponse{Events: events}); err != nil {
			return err
		}
	case !follow && len(events) == 0:
		a.printer().Line("no event")
	default:
		if err := a.events(events); err != nil {
			return err
		}
	}
	if follow {
		return a.follow(ctx, from, away)
	}
	return errors.Join(away...)
}

// events writes events; as JSON one a line, so that a stream of them can be read.
func (a *app) events(events []*dispatcherv1.Event) error {
	if !a.json {
		a.printer().Events(events)
		return nil
	}
	for _, e := range events {
		if err := view.JSONLine(a.stdout, e); err != nil {
			return err
		}
	}
	return nil
}

// follow writes new events until ctx ends. A service that is away is waited for: its events are stored, so none is missed.
func (a *app) follow(ctx context.Context, from *streams, away []error) error {
	told := [2]bool{}
	for {
		for i, name := range []string{"dispatcher", "poller"} {
			switch {
			case from.away[i] && !told[i]:
				a.warn("the %s does not answer; waiting for it", name)
			case !from.away[i] && told[i]:
				a.warn("the %s answers again", name)
			}
			told[i] = from.away[i]
		}
		for _, err := range away {
			if fault.KindOf(err) != fault.Unavailable {
				return err
			}
		}
		timer := time.NewTimer(followPause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		}
		var events []*dispatcherv1.Event
		if events, away = from.next(ctx, maxPage, false); ctx.Err() != nil {
			return nil //nolint:nilerr // It was interrupted, which is how following ends.
		}
		if err := a.events(events); err != nil {
			return err
		}
	}
}

// streams are the events of the dispatcher and of the poller, in this order, each read on from where it was left.
type streams struct {
	*services
	item, delivery string
	after          [2]int64
	away           [2]bool
}

// next returns the events that came since, by time, or the newest; with the errors of those who could not be asked.
func (f *streams) next(ctx context.Context, limit int, latest bool) ([]*dispatcherv1.Event, []error) {
	var out []*dispatcherv1.Event
	var errs []error
	for i, read := range []func(context.Context, int32, bool) ([]*dispatcherv1.Event, error){f.dispatched, f.polled} {
		events, err := read(ctx, int32(limit), latest)
		if f.away[i] = err != nil; err != nil {
			errs = append(errs, err)
			continue
		}
		for _, e := range events {
			f.after[i] = max(f.after[i], e.GetSequence())
		}
		out = append(out, events...)
	}
	slices.SortStableFunc(out, func(a, b *dispatcherv1.Event) int { return a.GetTime().AsTime().Compare(b.GetTime().AsTime()) })
	return out, errs
}

func (f *streams) dispatched(ctx context.Context, limit int32, latest bool) (out []*dispatcherv1.Event, err error) {
	err = f.dispatcher(ctx, func(ctx context.Context, c dispatcherv1.DispatcherServiceClient) error {
		page, err := c.ListEvents(ctx, &dispatcherv1.ListEventsRequest{WorkItem: f.item, DeliveryId: f.delivery, AfterSequence: f.after[0],
			PageSize: limit, Latest: latest})
		out = page.GetEvents()
		return err
	})
	return out, err
}

// polled returns the poller's events in the dispatcher's form; the source is one of their fields.
func (f *streams) polled(ctx context.Context, limit int32, latest bool) (out []*dispatcherv1.Event, err error) {
	err = f.poller(ctx, callTime, func(ctx context.Context, c pollerv1.PollerServiceClient) error {
		page, err := c.ListPollEvents(ctx, &pollerv1.ListPollEventsRequest{WorkItem: f.item, DeliveryId: f.delivery, AfterSequence: f.after[1],
			PageSize: limit, Latest: latest})
		for _, e := range page.GetEvents() {
			fields := maps.Clone(e.GetFields())
			if e.GetSource() != "" {
				if fields == nil {
					fields = map[string]string{}
				}
				fields["source"] = e.GetSource()
			}
			out = append(out, &dispatcherv1.Event{Sequence: e.GetSequence(), Type: e.GetType(), Time: e.GetTime(), WorkItem: e.GetWorkItem(),
				DeliveryId: e.GetDeliveryId(), Fields: fields, TraceId: e.GetTraceId()})
		}
		return err
	})
	return out, err
}
