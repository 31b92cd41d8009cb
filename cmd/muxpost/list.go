package main

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"muxpost.dev/muxpost/cmd/muxpost/internal/view"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	pollerv1 "muxpost.dev/muxpost/proto/gen/muxpost/poller/v1"
)

// lookTime bounds a look at all sources; each has 50 s of its own.
const lookTime = 70 * time.Second

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
	var skipProbe, closed, orphans bool
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
			if orphans {
				return a.listOrphans(cmd.Context(), s)
			}
			all, err := s.listSessions(cmd.Context(), a.limit, &dispatcherv1.ListSessionsRequest{WorkItem: item, SkipProbe: skipProbe, Closed: closed})
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
	c.Flags().BoolVar(&orphans, "orphans", false, "in place of that, living sessions without a record (muxpost adopt) and records without a session")
	c.Flags().BoolVar(&closed, "closed", false, "those too that were closed")
	a.jsonFlag(c)
	a.limitFlag(c, 50)
	return c
}

func (a *app) listOrphans(ctx context.Context, s *services) error {
	all, err := s.orphans(ctx, a.limit)
	if err != nil {
		return err
	}
	if a.json {
		return view.JSON(a.stdout, all)
	}
	a.printer().Orphans(all)
	return nil
}

// sessions lists recorded sessions; those that were closed are not among them, unless it is that of an item.
func (s *services) sessions(ctx context.Context, item string, limit int, skipProbe bool) (*dispatcherv1.ListSessionsResponse, error) {
	return s.listSessions(ctx, limit, &dispatcherv1.ListSessionsRequest{WorkItem: item, SkipProbe: skipProbe})
}

func (s *services) listSessions(ctx context.Context, limit int, r *dispatcherv1.ListSessionsRequest) (*dispatcherv1.ListSessionsResponse, error) {
	all := &dispatcherv1.ListSessionsResponse{}
	return all, s.dispatcher(ctx, func(ctx context.Context, c dispatcherv1.DispatcherServiceClient) error {
		return pages(limit, func(size int32, token string) (int, string, error) {
			r.PageSize, r.PageToken = size, token
			page, err := c.ListSessions(ctx, r)
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
