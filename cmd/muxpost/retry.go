package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"muxpost.dev/muxpost/cmd/muxpost/internal/view"
	"muxpost.dev/muxpost/core/session"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	pollerv1 "muxpost.dev/muxpost/proto/gen/muxpost/poller/v1"
)

func retryCommand(a *app) *cobra.Command {
	var o operatorFlags
	c := &cobra.Command{
		Use: "retry DELIVERY-ID", Short: "Take back that an event was dropped, once its cause is gone",
		Args: args(1, 1, "muxpost attention lists them"),
		Long: `retry re-opens a delivery that the dispatcher dropped, under the same id: it is decided again, and what arrived after all is not
typed again. An event that is in its conversation is refused. The exit code is 0 only when the event is on its way again.`,
		RunE: func(cmd *cobra.Command, given []string) error { return a.retry(cmd.Context(), given[0], o) },
	}
	a.whoFlag(c, &o)
	a.jsonFlag(c)
	return c
}

func (a *app) retry(ctx context.Context, id string, o operatorFlags) error {
	if !session.ValidDeliveryID(id) {
		return badDeliveryID(id)
	}
	s, err := a.dial()
	if err != nil {
		return err
	}
	defer s.close()
	// The dispatcher goes first: a row that the ledger opened before would only hear once more that it was dropped.
	var answer *dispatcherv1.ReopenResponse
	err = s.dispatcher(ctx, func(ctx context.Context, c dispatcherv1.DispatcherServiceClient) (err error) {
		answer, err = c.Reopen(ctx, &dispatcherv1.ReopenRequest{DeliveryId: id, Who: a.by(o)})
		return err
	})
	if err != nil {
		return err
	}
	row, err := s.entry(ctx, id)
	if err != nil {
		return err
	}
	if a.json {
		if err := view.JSON(a.stdout, answer); err != nil {
			return err
		}
	} else {
		word := "it had not ended at the dispatcher"
		if answer.GetReopened() {
			word = "re-opened at the dispatcher"
		}
		a.printer().Line("%s: %s", word, view.Clip(answer.GetDelivery().GetDetail(), 300))
	}
	return onItsWay(row, answer.GetDelivery())
}

// onItsWay reports a row of the ledger that nobody will ask the dispatcher about.
func onItsWay(row *pollerv1.LedgerEntry, d *dispatcherv1.Delivery) error {
	if row == nil {
		return fmt.Errorf("the ledger has no row of it, so it is asked for by whoever sent it: send it once more, under the same id")
	}
	if state := row.GetState(); !waits(state) && state != pollerv1.LedgerState_LEDGER_STATE_DELIVERED {
		return fmt.Errorf("its row in the ledger is %s, so it is not asked for by itself: send its text again with muxpost send %s",
			view.LedgerState(state), view.Quote(d.GetWorkItem()))
	}
	return nil
}
