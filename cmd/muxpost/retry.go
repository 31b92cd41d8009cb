package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"muxpost.dev/muxpost/cmd/muxpost/internal/view"
	"muxpost.dev/muxpost/core/fault"
	pollerv1 "muxpost.dev/muxpost/proto/gen/muxpost/poller/v1"
)

type retryOptions struct {
	operatorFlags
	typeAgain, wait bool
	timeout         time.Duration
}

func retryCommand(a *app) *cobra.Command {
	var o retryOptions
	c := &cobra.Command{
		Use: "retry DELIVERY-ID", Short: "Try an event again that was dropped, gave up or is unconfirmed, once its cause is gone",
		Args: args(1, 1, "muxpost attention lists them"),
		Long: `retry has an event asked about again under its own id and with a new budget: one that was dropped, gave up, or ended as
unconfirmed. It is decided again, and what arrived after all is not typed again. An event that waits is looked at at once. What
policy ended, and what is in its conversation, is refused.

Of an unconfirmed event that means that evidence is looked for again, and nothing is typed. With --type-again it is typed once more, under
an id of its own and with a line that says so: look first with muxpost attach, because it may then be there twice. muxpost done ends it
instead.`,
		RunE: func(cmd *cobra.Command, given []string) error { return a.retry(cmd.Context(), given[0], o) },
	}
	c.Flags().BoolVar(&o.typeAgain, "type-again", false, "type an unconfirmed event once more: it may then be there twice")
	c.Flags().StringVar(&o.reason, "reason", "", "why, for others to read")
	c.Flags().BoolVar(&o.wait, "wait", false, "follow it until it ends; exit code 0 only when it was delivered")
	c.Flags().DurationVar(&o.timeout, "timeout", defaultWait, "how long --wait waits")
	a.whoFlag(c, &o.operatorFlags)
	a.jsonFlag(c)
	return c
}

func (a *app) retry(ctx context.Context, id string, o retryOptions) error {
	if err := badDeliveryID(id); err != nil {
		return err
	}
	if o.timeout <= 0 {
		return fault.New(fault.Invalid, fault.ReasonBadArgument, "--timeout must be above zero")
	}
	s, err := a.dial()
	if err != nil {
		return err
	}
	defer s.close()
	var answer *pollerv1.RetryResponse
	err = s.poller(ctx, callTime, func(ctx context.Context, c pollerv1.PollerServiceClient) (err error) {
		answer, err = c.Retry(ctx, &pollerv1.RetryRequest{
			DeliveryId: id, Who: a.by(o.operatorFlags), Reason: o.reason, TypeAgain: o.typeAgain,
		})
		return err
	})
	if err != nil {
		return err
	}
	if a.json && !o.wait {
		return view.JSON(a.stdout, answer)
	}
	e := answer.GetEntry()
	a.say("%s", view.Retried(id, answer, o.typeAgain))
	switch {
	case o.typeAgain:
		id = e.GetDeliveryId()
	case answer.GetEvidenceOnly():
		a.say("  if it ends as unconfirmed again, after ten minutes:")
		a.say("  muxpost retry --type-again %s   types it once more, after which it may be there twice", id)
		a.say("  muxpost done %s   ends it instead", id)
	}
	if o.wait {
		return a.await(ctx, s, e, o.timeout)
	}
	a.say("  muxpost explain %s   says what became of it", id)
	return nil
}

func doneCommand(a *app) *cobra.Command {
	var o operatorFlags
	c := &cobra.Command{
		Use: "done DELIVERY-ID", Short: "End an event for good that was dropped, gave up or is unconfirmed, in place of a retry",
		Args: args(1, 1, "muxpost attention lists them"),
		Long: `done ends an event that needs a person: one that was dropped, gave up, or ended as unconfirmed, which is after ten minutes without
evidence. It is settled by your word, and no version and no sweep tries it again. Anything else is refused.`,
		RunE: func(cmd *cobra.Command, given []string) error { return a.done(cmd.Context(), given[0], o) },
	}
	c.Flags().StringVar(&o.reason, "reason", "", "why, for others to read")
	a.whoFlag(c, &o)
	a.jsonFlag(c)
	return c
}

func (a *app) done(ctx context.Context, id string, o operatorFlags) error {
	if err := badDeliveryID(id); err != nil {
		return err
	}
	s, err := a.dial()
	if err != nil {
		return err
	}
	defer s.close()
	var answer *pollerv1.SettleResponse
	err = s.poller(ctx, callTime, func(ctx context.Context, c pollerv1.PollerServiceClient) (err error) {
		answer, err = c.Settle(ctx, &pollerv1.SettleRequest{DeliveryId: id, Who: a.by(o), Reason: o.reason})
		return err
	})
	switch {
	case err != nil:
		return err
	case a.json:
		return view.JSON(a.stdout, answer)
	}
	a.say("%s", view.Settled(id, answer))
	return nil
}
