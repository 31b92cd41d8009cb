package main

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"muxpost.dev/muxpost/cmd/muxpost/internal/view"
	"muxpost.dev/muxpost/core/dispatch"
	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/ledger"
	"muxpost.dev/muxpost/core/session"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	pollerv1 "muxpost.dev/muxpost/proto/gen/muxpost/poller/v1"
)

func eventsCommand(a *app) *cobra.Command {
	var follow bool
	var types []string
	from := &streams{}
	c := &cobra.Command{
		Use: "events [ITEM]", Short: "List what the poller and the dispatcher decided and did, in order of time", Args: args(0, 1, ""),
		Long: `events lists what the dispatcher did, and what the poller did (its types begin with poll.), by time. Each of the two numbers its
own events. While one of them is away, the other's are shown and the exit code is 3. With --follow the dispatcher's come by its stream, and
either one is waited for while it is away; nothing is left out. docs/events.md has the types with their fields.`,
		Example: "  muxpost events --follow\n  muxpost events --delivery DELIVERY-ID\n  muxpost events --follow --after 1200 --type session.spawned,dispatch.succeeded --json",
		RunE: func(cmd *cobra.Command, given []string) (err error) {
			if from.item, err = itemOf(given); err != nil {
				return err
			}
			if from.delivery != "" && !session.ValidDeliveryID(from.delivery) {
				return badDeliveryID(from.delivery)
			}
			if a.limit < 1 || a.limit > maxPage {
				return fault.Newf(fault.Invalid, fault.ReasonBadArgument, "--limit must be 1 to %d", maxPage)
			}
			anew := !cmd.Flags().Changed("after")
			if err := from.choose(types, anew); err != nil {
				return err
			}
			if from.services, err = a.dial(); err != nil {
				return err
			}
			defer from.close()
			from.limit = a.limit
			if follow && !anew {
				return a.follow(cmd.Context(), from)
			}
			return a.listEvents(cmd.Context(), from, anew, follow)
		},
	}
	c.Flags().BoolVarP(&follow, "follow", "f", false, "go on with events as they come, until interrupted")
	c.Flags().StringVar(&from.delivery, "delivery", "", "only events of this delivery `ID`")
	c.Flags().StringSliceVar(&types, "type", nil, "only events of these `TYPES`, such as dispatch.dropped or poll.rearmed")
	c.Flags().Int64Var(&from.after[0], "after", 0, "the dispatcher's events after this `NUMBER`, in order from there, and none of the poller's")
	a.jsonFlag(c)
	c.Flags().IntVarP(&a.limit, "limit", "n", 50, "begin with at most this many of the newest")
	return c
}

// listEvents writes the newest events, or those after a number.
func (a *app) listEvents(ctx context.Context, from *streams, latest, follow bool) error {
	events, away := from.next(ctx, a.limit, latest)
	events = events[max(0, len(events)-a.limit):]
	for _, err := range away {
		if fault.KindOf(err) != fault.Unavailable || len(away) == from.count() && !follow {
			return err
		}
	}
	switch {
	case !follow && a.json:
		if err := view.JSON(a.stdout, &dispatcherv1.ListEventsResponse{Events: events, LastSequence: from.last, ForgottenSequence: from.forgotten}); err != nil {
			return err
		}
	case !follow && len(events) == 0:
		a.printer().Line("no event")
	default:
		if err := a.events(events); err != nil {
			return err
		}
	}
	if !latest && from.forgotten > from.after[0] {
		a.missed(from.forgotten)
	}
	if follow {
		return a.follow(ctx, from)
	}
	return errors.Join(away...)
}

// missed says that events are gone.
func (a *app) missed(forgotten int64) {
	a.warn("events up to number %d were deleted by age (dispatcher.events_retention), and some of them may be missing here", forgotten)
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

// streams are the events of the dispatcher and of the poller, in this order, each read on from where it was left.
type streams struct {
	*services
	item, delivery string
	// types are those of each that are asked for, none for all; and unasked says who is not asked.
	types   [2][]string
	unasked [2]bool
	// limit is how many of the newest are shown first.
	limit int
	// after is the number of the last event of each. It means nothing while one is unseen: then its newest are shown first.
	after  [2]int64
	unseen [2]bool
	// last and forgotten are what the dispatcher says of its numbers.
	last, forgotten int64
}

// choose takes the types that are asked for, and whether they are asked for without a number to begin after.
func (f *streams) choose(types []string, anew bool) error {
	for _, name := range types {
		switch {
		case dispatch.EventTypes()[dispatch.EventType(name)] != "":
			f.types[0] = append(f.types[0], name)
		case ledger.EventTypes()[ledger.EventType(name)] != "":
			f.types[1] = append(f.types[1], name)
		default:
			return fault.Newf(fault.Invalid, fault.ReasonBadArgument, "%q is no type of event", name).WithRemedy("the types are " + eventTypes())
		}
	}
	f.unseen = [2]bool{anew, anew}
	f.unasked = [2]bool{len(types) > 0 && len(f.types[0]) == 0, len(types) > 0 && len(f.types[1]) == 0 || !anew}
	switch {
	case f.after[0] < 0:
		return fault.New(fault.Invalid, fault.ReasonBadArgument, "--after must not be negative")
	case f.count() == 0:
		return fault.New(fault.Invalid, fault.ReasonBadArgument, "--after is a number of the dispatcher's events, and --type names none of them")
	}
	return nil
}

func eventTypes() string {
	var names []string
	for name := range dispatch.EventTypes() {
		names = append(names, string(name))
	}
	for name := range ledger.EventTypes() {
		names = append(names, string(name))
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// count is how many are asked.
func (f *streams) count() (n int) {
	for _, un := range f.unasked {
		if !un {
			n++
		}
	}
	return n
}

// next returns the events that came since, by time, or the newest; with the errors of those who could not be asked.
func (f *streams) next(ctx context.Context, limit int, latest bool) ([]*dispatcherv1.Event, []error) {
	var out []*dispatcherv1.Event
	var errs []error
	for i, read := range []func(context.Context, int, bool) ([]*dispatcherv1.Event, error){f.dispatched, f.polled} {
		if f.unasked[i] {
			continue
		}
		events, err := read(ctx, limit, latest)
		if err != nil {
			errs = append(errs, err)
		}
		out = append(out, events...)
	}
	return byTime(out), errs
}

// byTime puts the events of both into the order of their times.
func byTime(events []*dispatcherv1.Event) []*dispatcherv1.Event {
	slices.SortStableFunc(events, func(a, b *dispatcherv1.Event) int { return a.GetTime().AsTime().Compare(b.GetTime().AsTime()) })
	return events
}

func (f *streams) dispatched(ctx context.Context, limit int, latest bool) (out []*dispatcherv1.Event, err error) {
	err = f.dispatcher(ctx, func(ctx context.Context, c dispatcherv1.DispatcherServiceClient) error {
		page, err := c.ListEvents(ctx, &dispatcherv1.ListEventsRequest{WorkItem: f.item, DeliveryId: f.delivery, Types: f.types[0],
			AfterSequence: f.after[0], PageSize: int32(limit), Latest: latest})
		out = page.GetEvents()
		f.last, f.forgotten = page.GetLastSequence(), page.GetForgottenSequence()
		return err
	})
	if err == nil && latest {
		f.after[0], f.unseen[0] = f.last, false
	}
	return out, err
}

// polled returns the poller's events in the dispatcher's form; the source is one of their fields.
func (f *streams) polled(ctx context.Context, limit int, latest bool) (out []*dispatcherv1.Event, err error) {
	err = f.poller(ctx, callTime, func(ctx context.Context, c pollerv1.PollerServiceClient) error {
		page, err := c.ListPollEvents(ctx, &pollerv1.ListPollEventsRequest{WorkItem: f.item, DeliveryId: f.delivery, Types: f.types[1],
			AfterSequence: f.after[1], PageSize: int32(limit), Latest: latest})
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
			f.after[1] = max(f.after[1], e.GetSequence())
		}
		return err
	})
	f.unseen[1] = f.unseen[1] && err != nil
	return out, err
}
