package main

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"muxpost.dev/muxpost/cmd/muxpost/internal/view"
	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/session"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	pollerv1 "muxpost.dev/muxpost/proto/gen/muxpost/poller/v1"
)

const (
	// lookTime bounds a look at all sources; each has 50 s of its own.
	lookTime = 70 * time.Second
	// followPause is the time between two questions for new events.
	followPause = 500 * time.Millisecond
)

func ledgerCommand(a *app) *cobra.Command {
	var state string
	c := &cobra.Command{
		Use: "ledger [ITEM]", Short: "List events and what became of them, newest first", Args: args(0, 1, ""),
		Example: "  muxpost ledger --state held\n  muxpost ledger github:octo/widget#7",
		RunE: func(cmd *cobra.Command, given []string) error {
			item, err := itemOf(given)
			if err != nil {
				return err
			}
			wanted, err := ledgerStateOf(state)
			if err != nil {
				return err
			}
			s, err := a.dial()
			if err != nil {
				return err
			}
			defer s.close()
			all, err := s.ledger(cmd.Context(), item, wanted, a.limit)
			if err != nil {
				return err
			}
			if a.json {
				return view.JSON(a.stdout, all)
			}
			a.printer().Ledger(all.GetEntries())
			return nil
		},
	}
	c.Flags().StringVar(&state, "state", "", "only events in this `STATE`: "+strings.Join(ledgerStates(), ", "))
	a.jsonFlag(c)
	a.limitFlag(c, 50)
	return c
}

func ledgerStates() []string {
	var out []string
	for n := 1; n < len(pollerv1.LedgerState_name); n++ {
		out = append(out, view.LedgerState(pollerv1.LedgerState(n)))
	}
	return out
}

func ledgerStateOf(word string) (pollerv1.LedgerState, error) {
	if word == "" {
		return pollerv1.LedgerState_LEDGER_STATE_UNSPECIFIED, nil
	}
	n, ok := pollerv1.LedgerState_value["LEDGER_STATE_"+strings.ToUpper(strings.ReplaceAll(word, "-", "_"))]
	if !ok || n == 0 {
		return 0, fault.Newf(fault.Invalid, fault.ReasonBadArgument, "there is no state %q", word).
			WithRemedy("the states are " + strings.Join(ledgerStates(), ", "))
	}
	return pollerv1.LedgerState(n), nil
}

// ledger lists rows of the ledger.
func (s *services) ledger(ctx context.Context, item string, state pollerv1.LedgerState, limit int) (*pollerv1.ListLedgerResponse, error) {
	all := &pollerv1.ListLedgerResponse{}
	return all, s.poller(ctx, callTime, func(ctx context.Context, c pollerv1.PollerServiceClient) error {
		return pages(limit, func(size int32, token string) (int, string, error) {
			page, err := c.ListLedger(ctx, &pollerv1.ListLedgerRequest{WorkItem: item, State: state, PageSize: size, PageToken: token})
			all.Entries = append(all.Entries, page.GetEntries()...)
			all.NextPageToken = page.GetNextPageToken()
			return len(page.GetEntries()), page.GetNextPageToken(), err
		})
	})
}

// entry returns the ledger's row of a delivery; nil when there is none.
func (s *services) entry(ctx context.Context, id string) (*pollerv1.LedgerEntry, error) {
	var entry *pollerv1.LedgerEntry
	return entry, s.poller(ctx, callTime, func(ctx context.Context, c pollerv1.PollerServiceClient) error {
		page, err := c.ListLedger(ctx, &pollerv1.ListLedgerRequest{DeliveryId: id})
		if len(page.GetEntries()) > 0 {
			entry = page.GetEntries()[0]
		}
		return err
	})
}

func deliveriesCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use: "deliveries [ITEM]", Short: "List what the dispatcher did with events, newest first", Args: args(0, 1, ""),
		RunE: func(cmd *cobra.Command, given []string) error {
			item, err := itemOf(given)
			if err != nil {
				return err
			}
			s, err := a.dial()
			if err != nil {
				return err
			}
			defer s.close()
			all := &dispatcherv1.ListDeliveriesResponse{}
			err = s.dispatcher(cmd.Context(), func(ctx context.Context, c dispatcherv1.DispatcherServiceClient) error {
				return pages(a.limit, func(size int32, token string) (int, string, error) {
					page, err := c.ListDeliveries(ctx, &dispatcherv1.ListDeliveriesRequest{WorkItem: item, PageSize: size, PageToken: token})
					all.Deliveries = append(all.Deliveries, page.GetDeliveries()...)
					all.NextPageToken = page.GetNextPageToken()
					return len(page.GetDeliveries()), page.GetNextPageToken(), err
				})
			})
			if err != nil {
				return err
			}
			if a.json {
				return view.JSON(a.stdout, all)
			}
			a.printer().Deliveries(all.GetDeliveries())
			return nil
		},
	}
	a.jsonFlag(c)
	a.limitFlag(c, 50)
	return c
}

func sessionsCommand(a *app) *cobra.Command {
	var skipProbe bool
	c := &cobra.Command{
		Use: "sessions [ITEM]", Short: "List the agents' sessions and whether they live", Args: args(0, 1, ""),
		RunE: func(cmd *cobra.Command, given []string) error {
			item, err := itemOf(given)
			if err != nil {
				return err
			}
			s, err := a.dial()
			if err != nil {
				return err
			}
			defer s.close()
			all, err := s.sessions(cmd.Context(), item, a.limit, skipProbe)
			if err != nil {
				return err
			}
			if a.json {
				return view.JSON(a.stdout, all)
			}
			a.printer().Sessions(all.GetSessions())
			return nil
		},
	}
	c.Flags().BoolVar(&skipProbe, "no-probe", false, "list the records alone and ask no host")
	a.jsonFlag(c)
	a.limitFlag(c, 50)
	return c
}

// sessions lists recorded sessions.
func (s *services) sessions(ctx context.Context, item string, limit int, skipProbe bool) (*dispatcherv1.ListSessionsResponse, error) {
	all := &dispatcherv1.ListSessionsResponse{}
	return all, s.dispatcher(ctx, func(ctx context.Context, c dispatcherv1.DispatcherServiceClient) error {
		return pages(limit, func(size int32, token string) (int, string, error) {
			page, err := c.ListSessions(ctx, &dispatcherv1.ListSessionsRequest{
				WorkItem: item, PageSize: size, PageToken: token, SkipProbe: skipProbe,
			})
			all.Sessions = append(all.Sessions, page.GetSessions()...)
			all.NextPageToken = page.GetNextPageToken()
			return len(page.GetSessions()), page.GetNextPageToken(), err
		})
	})
}

func pollCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use: "poll [SOURCE]", Short: "Look at the sources now instead of at their next interval", Args: args(0, 1, ""),
		RunE: func(cmd *cobra.Command, given []string) error {
			s, err := a.dial()
			if err != nil {
				return err
			}
			defer s.close()
			var answer *pollerv1.PollNowResponse
			err = s.poller(cmd.Context(), lookTime, func(ctx context.Context, c pollerv1.PollerServiceClient) (err error) {
				answer, err = c.PollNow(ctx, &pollerv1.PollNowRequest{Source: strings.Join(given, "")})
				return err
			})
			if err != nil {
				return err
			}
			if a.json {
				err = view.JSON(a.stdout, answer)
			} else {
				a.printer().Polls(answer.GetSources())
			}
			for _, source := range answer.GetSources() {
				if source.GetError() != "" && err == nil {
					err = errors.New("a source could not be read; what was read of it is in the ledger, and it is looked at again by itself")
				}
			}
			return err
		},
	}
	a.jsonFlag(c)
	return c
}

func eventsCommand(a *app) *cobra.Command {
	var follow bool
	var delivery string
	c := &cobra.Command{
		Use: "events [ITEM]", Short: "List what the dispatcher decided and did, in order", Args: args(0, 1, ""),
		Example: "  muxpost events --follow\n  muxpost events --delivery DELIVERY-ID",
		RunE: func(cmd *cobra.Command, given []string) error {
			item, err := itemOf(given)
			if err != nil {
				return err
			}
			if delivery != "" && !session.ValidDeliveryID(delivery) {
				return badDeliveryID(delivery)
			}
			s, err := a.dial()
			if err != nil {
				return err
			}
			defer s.close()
			if a.limit < 1 || a.limit > maxPage {
				return fault.Newf(fault.Invalid, fault.ReasonBadArgument, "--limit must be 1 to %d", maxPage)
			}
			request := &dispatcherv1.ListEventsRequest{WorkItem: item, DeliveryId: delivery, PageSize: int32(a.limit), Latest: true}
			page, err := s.events(cmd.Context(), request)
			if err != nil {
				return err
			}
			if !follow && a.json {
				return view.JSON(a.stdout, page)
			}
			if !follow && len(page.GetEvents()) == 0 {
				a.printer().Line("no event")
			}
			if err := a.events(page.GetEvents()); err != nil || !follow {
				return err
			}
			return a.follow(cmd.Context(), s, request, page)
		},
	}
	c.Flags().BoolVarP(&follow, "follow", "f", false, "go on with events as they come, until interrupted")
	c.Flags().StringVar(&delivery, "delivery", "", "only events of this delivery `ID`")
	a.jsonFlag(c)
	c.Flags().IntVarP(&a.limit, "limit", "n", 50, "begin with at most this many of the newest")
	return c
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

func (s *services) events(ctx context.Context, r *dispatcherv1.ListEventsRequest) (*dispatcherv1.ListEventsResponse, error) {
	var page *dispatcherv1.ListEventsResponse
	return page, s.dispatcher(ctx, func(ctx context.Context, c dispatcherv1.DispatcherServiceClient) (err error) {
		page, err = c.ListEvents(ctx, r)
		return err
	})
}

// follow writes new events until ctx ends. A dispatcher that is away is waited for: its events are stored, so none is missed.
func (a *app) follow(ctx context.Context, s *services, r *dispatcherv1.ListEventsRequest, page *dispatcherv1.ListEventsResponse) error {
	conn, err := s.conn("dispatcher")
	if err != nil {
		return err
	}
	client := dispatcherv1.NewDispatcherServiceClient(conn)
	r.Latest, r.PageSize = false, maxPage
	away := false
	for {
		for _, e := range page.GetEvents() {
			r.AfterSequence = max(r.AfterSequence, e.GetSequence())
		}
		timer := time.NewTimer(followPause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		}
		ask, cancel := context.WithTimeout(ctx, callTime)
		page, err = client.ListEvents(ask, r)
		cancel()
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // It was interrupted, which is how following ends.
		case err != nil && fault.KindOf(err) != fault.Unavailable:
			return err
		case err != nil && !away:
			a.warn("the dispatcher does not answer; waiting for it")
		case err == nil && away:
			a.warn("the dispatcher answers again")
		}
		away = err != nil
		if err := a.events(page.GetEvents()); err != nil {
			return err
		}
	}
}
