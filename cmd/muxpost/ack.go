package main

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	"muxpost.dev/muxpost/cmd/muxpost/internal/attention"
	"muxpost.dev/muxpost/cmd/muxpost/internal/view"
	"muxpost.dev/muxpost/core/fault"
	pollerv1 "muxpost.dev/muxpost/proto/gen/muxpost/poller/v1"
)

func ackCommand(a *app) *cobra.Command {
	var o operatorFlags
	c := &cobra.Command{
		Use: "ack ID", Short: "Leave an entry out of the list until its state changes", Args: args(1, 1, "muxpost attention shows the ids"),
		Long: `ack says that you have seen an entry of the list. It is left out for everybody until its state changes, and who said so and when is
kept. Nothing becomes of the thing itself: muxpost retry and muxpost done do that.`,
		RunE: func(cmd *cobra.Command, given []string) error { return a.acknowledge(cmd.Context(), given[0], o) },
	}
	c.Flags().StringVar(&o.reason, "reason", "", "why, for others to read")
	a.whoFlag(c, &o)
	a.jsonFlag(c)
	return c
}

func (a *app) acknowledge(ctx context.Context, id string, o operatorFlags) error {
	s, err := a.dial()
	if err != nil {
		return err
	}
	defer s.close()
	var g gathered
	away := g.ask(ctx, s)
	entries := attention.Find(g.known, a.now())
	i := slices.IndexFunc(entries, func(e attention.Entry) bool { return e.ID == id })
	switch {
	case i < 0 && away != nil:
		return away
	case i < 0:
		return fault.Newf(fault.NotFound, "", "nothing on the list has the id %q", view.Clip(id, 100)).
			WithRemedy("muxpost attention --all --ended-within 0 shows the whole list")
	}
	var answer *pollerv1.AcknowledgeResponse
	err = s.poller(ctx, callTime, func(ctx context.Context, c pollerv1.PollerServiceClient) (err error) {
		answer, err = c.Acknowledge(ctx, &pollerv1.AcknowledgeRequest{
			EntryId: id, State: entries[i].State, DeliveryId: entries[i].DeliveryID, Who: a.by(o), Reason: o.reason,
		})
		return err
	})
	if err != nil {
		return err
	}
	if a.json {
		return view.JSON(a.stdout, answer)
	}
	a.say("%s is left out of the list until it is no longer as it is now: %s", id, view.Clean(entries[i].State))
	return nil
}
