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
		Use: "unpark ITEM", Short: "Have an agent started again that died too often", Args: args(1, 1, "muxpost attention lists what is parked"),
		Long: `unpark has the agent of a work item started again by its events. An item is parked when its agent died as often, within as short a time,
as dispatcher.breaker in the configuration says: then nothing is started for it any more, and its events wait. Nothing of them is lost.
See first why it ends: muxpost attach ITEM shows what its pane showed last. It may die as often again before it is parked again.`,
		RunE: func(cmd *cobra.Command, given []string) error { return a.unpark(cmd.Context(), given[0], o) },
	}
	a.whoFlag(c, &o)
	a.jsonFlag(c)
	return c
}

func (a *app) unpark(ctx context.Context, item string, o operatorFlags) error {
	ref, err := parseItem(item)
	if err != nil {
		return err
	}
	s, err := a.dial()
	if err != nil {
		return err
	}
	defer s.close()
	var answer *dispatcherv1.UnparkResponse
	err = s.dispatcher(ctx, func(ctx context.Context, c dispatcherv1.DispatcherServiceClient) (err error) {
		answer, err = c.Unpark(ctx, &dispatcherv1.UnparkRequest{WorkItem: ref.String(), Who: a.by(o)})
		return err
	})
	p := answer.GetPark()
	switch {
	case err != nil:
		return err
	case a.json:
		return view.JSON(a.stdout, answer)
	case p == nil:
		a.say("%s was not parked", ref)
	default:
		a.say("%s is not parked any more, after %s; what waited goes in within about a minute", ref,
			view.Count(int(p.GetDeaths()), "death of its agent", "deaths of its agent"))
	}
	return nil
}
