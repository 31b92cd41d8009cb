package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	"muxpost.dev/muxpost/cmd/muxpost/internal/view"
	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/workitem"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
)

// stopTime bounds a stop: the dispatcher takes up to 20 seconds.
const stopTime = 25 * time.Second

// stopping is what a stop, or a close, was asked for.
type stopping struct {
	operatorFlags
	grace  time.Duration
	cancel bool
	// supersededOn is the host of a session that was left behind.
	supersededOn string
}

func stopCommand(a *app) *cobra.Command {
	return a.endCommand(&cobra.Command{
		Use: "stop ITEM", Short: "End the agent of a work item, with all that it started",
		Long: `stop asks the agent to end, and kills what has not ended after the grace, with everything that it started. Its conversation is kept: the
next event for the item brings it back with it. To keep it away, pause the item first: muxpost pause ITEM.

Where its host does not answer the order stands: nothing is begun for the item, and the agent that is recorded now, and no other, is ended once
the host is there. Until then, stop --cancel takes the order back.`,
	}, false)
}

func closeCommand(a *app) *cobra.Command {
	return a.endCommand(&cobra.Command{
		Use: "close ITEM", Short: "End the agent of a work item for good: the item is done",
		Long: `close ends the agent as muxpost stop does, and ends the record of its session: the item is done. Its conversation stays in the record's
lineage and is not resumed. A later event of the item starts a new conversation, if dispatcher.first_spawn lets it; to keep every event away,
pause the item. The working tree stays: muxpost workspaces clean removes it once nothing would be lost.

Where its host does not answer the order stands: nothing is begun for the item, and the agent that is recorded now, and no other, is ended once
the host is there. Until then, close --cancel takes the order back.`,
	}, true)
}

// endCommand is what both commands have in common.
func (a *app) endCommand(c *cobra.Command, closes bool) *cobra.Command {
	var o stopping
	c.Args = args(1, 1, "muxpost sessions lists them")
	c.RunE = func(cmd *cobra.Command, given []string) error {
		ref, err := parseItem(given[0])
		switch {
		case err != nil:
			return err
		case o.cancel:
			return a.cancelEnding(cmd.Context(), ref, o)
		case o.grace <= 0:
			return fault.New(fault.Invalid, fault.ReasonBadArgument, "--grace must be above zero")
		}
		return a.end(cmd.Context(), ref, o, closes)
	}
	c.Flags().DurationVar(&o.grace, "grace", 5*time.Second, "how long it has to end by itself, at most 10s")
	c.Flags().BoolVar(&o.cancel, "cancel", false, "take back an order to stop or to close that waits for its host")
	c.Flags().StringVar(&o.reason, "reason", "", "why, for others to read")
	if !closes {
		c.Flags().StringVar(&o.supersededOn, "superseded-on", "", "end the session that was left behind on `HOST` (muxpost hosts superseded), and not the item's own")
	}
	a.whoFlag(c, &o.operatorFlags)
	a.jsonFlag(c)
	return c
}

func (a *app) end(ctx context.Context, ref workitem.Ref, o stopping, closes bool) error {
	s, err := a.dial()
	if err != nil {
		return err
	}
	defer s.close()
	answer := &dispatcherv1.CloseSessionResponse{}
	err = s.dispatcherWithin(ctx, stopTime, func(ctx context.Context, c dispatcherv1.DispatcherServiceClient) (err error) {
		if closes {
			answer, err = c.CloseSession(ctx, &dispatcherv1.CloseSessionRequest{
				WorkItem: ref.String(), Who: a.by(o.operatorFlags), Reason: o.reason, Grace: durationpb.New(o.grace),
			})
			return err
		}
		stopped, err := c.StopSession(ctx, &dispatcherv1.StopSessionRequest{
			WorkItem: ref.String(), Who: a.by(o.operatorFlags), Reason: o.reason, Grace: durationpb.New(o.grace),
			SupersededOn: o.supersededOn,
		})
		answer.Already, answer.Detail, answer.Waits = stopped.GetAlready(), stopped.GetDetail(), stopped.GetWaits()
		return err
	})
	if err != nil {
		return err
	}
	if a.json {
		return view.JSON(a.stdout, answer)
	}
	verb, next := "stop", "the next event brings it back"
	if closes {
		verb, next = "close", "the item is closed, and a later event begins a new conversation"
	}
	detail := view.Clean(answer.GetDetail())
	switch {
	case o.supersededOn != "":
		a.say("what was left of %s on host %s is over (%s)", ref, view.Clean(o.supersededOn), detail)
	case answer.GetWaits():
		a.say("the order stands, and is carried out once the host of %s is there (%s); nothing is begun for it until then", ref, detail)
		a.say("  muxpost %s --cancel %s   takes it back", verb, view.Quote(ref.String()))
	case answer.GetAlready() && closes:
		a.say("no agent of %s lives (%s); %s", ref, detail, next)
	case answer.GetAlready():
		a.say("no agent of %s lives: %s", ref, detail)
	default:
		a.say("the agent of %s has ended (%s); %s", ref, detail, next)
	}
	return nil
}

func (a *app) cancelEnding(ctx context.Context, ref workitem.Ref, o stopping) error {
	s, err := a.dial()
	if err != nil {
		return err
	}
	defer s.close()
	var answer *dispatcherv1.CancelEndingResponse
	err = s.dispatcher(ctx, func(ctx context.Context, c dispatcherv1.DispatcherServiceClient) (err error) {
		answer, err = c.CancelEnding(ctx, &dispatcherv1.CancelEndingRequest{WorkItem: ref.String(), Who: a.by(o.operatorFlags)})
		return err
	})
	switch e := answer.GetEnding(); {
	case err != nil:
		return err
	case a.json:
		return view.JSON(a.stdout, answer)
	case e == nil:
		a.say("no order to end the agent of %s waits", ref)
	default:
		a.say("taken back: the order to %s %s; its agent was not touched, and what waited goes in within about a minute", view.Ending(e), ref)
	}
	return nil
}
