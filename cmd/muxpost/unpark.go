package main

import (
	"context"

	"github.com/spf13/cobra"

	"muxpost.dev/muxpost/cmd/muxpost/internal/view"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
)

func unparkCommand(a *app) *cobra.Command {
	var o operatorFlags
	c := &cobra.Command{
		Use: "unpark ITEM | --all", Short: "Have an agent started again that died too often", Args: args(0, 1, "muxpost attention lists what is parked"),
		Long: `unpark has the agent of a work item started again by its events, or with --all those of all that are parked. An item is parked when its agent
died as often, within as short a time, as dispatcher.breaker in the configuration says: then nothing is started for it any more, and its events
wait. Nothing of them is lost. See first why it ends: muxpost attach ITEM shows what its pane showed last. It may die as often again before it
is parked again.`,
		RunE: func(cmd *cobra.Command, given []string) error { return a.unpark(cmd.Context(), given, o) },
	}
	c.Flags().BoolVar(&o.all, "all", false, "all that are parked")
	a.whoFlag(c, &o)
	a.jsonFlag(c)
	return c
}

func (a *app) unpark(ctx context.Context, given []string, o operatorFlags) error {
	item, err := o.scope("unpark", given)
	if err != nil {
		return err
	}
	s, err := a.dial()
	if err != nil {
		return err
	}
	defer s.close()
	items := []string{item}
	if o.all {
		if items, err = s.parked(ctx); err != nil {
			return err
		}
	}
	for _, item := range items {
		if err := a.unparkOne(ctx, s, item, o); err != nil {
			return err
		}
	}
	if len(items) == 0 {
		a.say("nothing is parked")
	}
	return nil
}

func (a *app) unparkOne(ctx context.Context, s *services, item string, o operatorFlags) error {
	var answer *dispatcherv1.UnparkResponse
	err := s.dispatcher(ctx, func(ctx context.Context, c dispatcherv1.DispatcherServiceClient) (err error) {
		answer, err = c.Unpark(ctx, &dispatcherv1.UnparkRequest{WorkItem: item, Who: a.by(o)})
		return err
	})
	p := answer.GetPark()
	switch {
	case err != nil:
		return err
	case a.json:
		return view.JSON(a.stdout, answer)
	case p == nil:
		a.say("%s was not parked", view.Clean(item))
	default:
		a.say("%s is not parked any more, after %s; what waited goes in within about a minute", view.Clean(item),
			view.Count(int(p.GetDeaths()), "death of its agent", "deaths of its agent"))
	}
	return nil
}

// parked lists the work items that are parked.
func (s *services) parked(ctx context.Context) (items []string, err error) {
	parks, err := s.parks(ctx)
	for _, p := range parks {
		items = append(items, p.GetWorkItem())
	}
	return items, err
}

// parks lists what is parked.
func (s *services) parks(ctx context.Context) (all []*dispatcherv1.Park, err error) {
	err = s.dispatcher(ctx, func(ctx context.Context, c dispatcherv1.DispatcherServiceClient) error {
		return pages(0, func(size int32, token string) (int, string, error) {
			page, err := c.ListParks(ctx, &dispatcherv1.ListParksRequest{PageSize: size, PageToken: token})
			all = append(all, page.GetParks()...)
			return len(page.GetParks()), page.GetNextPageToken(), err
		})
	})
	return all, err
}
