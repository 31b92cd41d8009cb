package main

import (
	"context"

	"github.com/spf13/cobra"

	"muxpost.dev/muxpost/cmd/muxpost/internal/view"
	pollerv1 "muxpost.dev/muxpost/proto/gen/muxpost/poller/v1"
)

func cancelCommand(a *app) *cobra.Command {
	var o operatorFlags
	c := &cobra.Command{
		Use: "cancel DELIVERY-ID", Short: "End an event for good that waits, is held or gave up, before it reaches its agent",
		Args: args(1, 1, "muxpost ledger --state pending and --state held list what waits"),
		Long: `cancel ends an event that is not in its conversation yet: it is not delivered any more, nothing of it is told upstream, and neither
a later redelivery nor another version revives it. What it says after an edit upstream is an event of its own.

One that is being delivered is refused, and so is one that may have been typed already: that cannot be taken back. muxpost done is for
what was dropped, gave up or is unconfirmed.`,
		RunE: func(cmd *cobra.Command, given []string) error { return a.cancel(cmd.Context(), given[0], o) },
	}
	c.Flags().StringVar(&o.reason, "reason", "", "why, for others to read")
	a.whoFlag(c, &o)
	a.jsonFlag(c)
	return c
}

func (a *app) cancel(ctx context.Context, id string, o operatorFlags) error {
	if err := badDeliveryID(id); err != nil {
		return err
	}
	s, err := a.dial()
	if err != nil {
		return err
	}
	defer s.close()
	var answer *pollerv1.CancelResponse
	err = s.poller(ctx, callTime, func(ctx context.Context, c pollerv1.PollerServiceClient) (err error) {
		answer, err = c.Cancel(ctx, &pollerv1.CancelRequest{DeliveryId: id, Who: a.by(o), Reason: o.reason})
		return err
	})
	switch {
	case err != nil:
		return err
	case a.json:
		return view.JSON(a.stdout, answer)
	}
	a.say("%s", view.Cancelled(id, answer))
	return nil
}
