package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	"muxpost.dev/muxpost/cmd/muxpost/internal/view"
	"muxpost.dev/muxpost/core/fault"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
)

// stopTime bounds a stop: the dispatcher takes up to 20 seconds.
const stopTime = 25 * time.Second

// stopping is what a stop was asked for.
type stopping struct {
	operatorFlags
	grace time.Duration
	// supersededOn is the host of a session that was left behind.
	supersededOn string
}

func stopCommand(a *app) *cobra.Command {
	var o stopping
	c := &cobra.Command{
		Use: "stop ITEM", Short: "End the agent of a work item, with all that it started", Args: args(1, 1, "muxpost sessions lists them"),
		Long: `stop asks the agent to end, and kills what has not ended after the grace, with everything that it started. Its conversation is kept: the
next event for the item brings it back with it. To keep it away, pause the item first: muxpost pause ITEM.`,
		RunE: func(cmd *cobra.Command, given []string) error { return a.stop(cmd.Context(), given[0], o) },
	}
	c.Flags().DurationVar(&o.grace, "grace", 5*time.Second, "how long it has to end by itself, at most 10s")
	c.Flags().StringVar(&o.reason, "reason", "", "why, for others to read")
	c.Flags().StringVar(&o.supersededOn, "superseded-on", "", "end the session that was left behind on `HOST` (muxpost hosts superseded), and not the item's own")
	a.whoFlag(c, &o.operatorFlags)
	a.jsonFlag(c)
	return c
}

func (a *app) stop(ctx context.Context, item string, o stopping) error {
	ref, err := parseItem(item)
	if err != nil {
		return err
	}
	if o.grace <= 0 {
		return fault.New(fault.Invalid, fault.ReasonBadArgument, "--grace must be above zero")
	}
	s, err := a.dial()
	if err != nil {
		return err
	}
	defer s.close()
	var answer *dispatcherv1.StopSessionResponse
	err = s.dispatcherWithin(ctx, stopTime, func(ctx context.Context, c dispatcherv1.DispatcherServiceClient) (err error) {
		answer, err = c.StopSession(ctx, &dispatcherv1.StopSessionRequest{
			WorkItem: ref.String(), Who: a.by(o.operatorFlags), Reason: o.reason, Grace: durationpb.New(o.grace),
			SupersededOn: o.supersededOn,
		})
		return err
	})
	if err != nil {
		return err
	}
	if a.json {
		return view.JSON(a.stdout, answer)
	}
	if o.supersededOn != "" {
		a.say("what was left of %s on host %s is over (%s)", ref, view.Clean(o.supersededOn), view.Clean(answer.GetDetail()))
		return nil
	}
	if answer.GetAlready() {
		a.say("no agent of %s lives: %s", ref, view.Clean(answer.GetDetail()))
		return nil
	}
	a.say("the agent of %s has ended (%s); the next event brings it back", ref, view.Clean(answer.GetDetail()))
	return nil
}
