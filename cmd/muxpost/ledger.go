package main

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	"muxpost.dev/muxpost/cmd/muxpost/internal/view"
	"muxpost.dev/muxpost/core/fault"
	pollerv1 "muxpost.dev/muxpost/proto/gen/muxpost/poller/v1"
)

// ledgerOptions choose rows of the ledger.
type ledgerOptions struct {
	state, source, kind, reason, page string

	since  time.Duration
	counts bool
}

func ledgerCommand(a *app) *cobra.Command {
	var o ledgerOptions
	c := &cobra.Command{
		Use: "ledger [ITEM]", Short: "List events and what became of them, newest first", Args: args(0, 1, ""),
		Example: "  muxpost ledger --state held\n  muxpost ledger github:octo/widget#7\n  muxpost ledger --state settled --reason unauthorised --since 24h\n" +
			"  muxpost ledger --counts",
		RunE: func(cmd *cobra.Command, given []string) error { return a.ledger(cmd.Context(), given, o) },
	}
	c.Flags().StringVar(&o.state, "state", "", "only events in this `STATE`: "+strings.Join(ledgerStates(), ", "))
	c.Flags().StringVar(&o.source, "source", "", "only those that this `SOURCE` brought; manual is what was sent by hand")
	c.Flags().StringVar(&o.kind, "kind", "", "only those of this `KIND`, such as opened, comment or message")
	c.Flags().StringVar(&o.reason, "reason", "", "only those with this `REASON`, such as unauthorised, bot or own")
	c.Flags().DurationVar(&o.since, "since", 0, "only those that came in within this time, such as 24h")
	c.Flags().BoolVar(&o.counts, "counts", false, "in place of the events, how many there are in each state, for which reasons")
	c.Flags().StringVar(&o.page, "page", "", "go on where the list before ended, which said `HOW`")
	a.jsonFlag(c)
	a.limitFlag(c, 50)
	return c
}

func (a *app) ledger(ctx context.Context, given []string, o ledgerOptions) error {
	item, err := itemOf(given)
	if err != nil {
		return err
	}
	state, err := ledgerStateOf(o.state)
	switch {
	case err != nil:
		return err
	case o.since < 0:
		return fault.New(fault.Invalid, fault.ReasonBadArgument, "--since must not be negative")
	case o.counts && (o.reason != "" || o.state != "" || o.page != ""):
		return fault.New(fault.Invalid, fault.ReasonBadArgument, "--counts counts every state and reason").
			WithRemedy("leave out --state, --reason and --page")
	}
	r := &pollerv1.ListLedgerRequest{WorkItem: item, State: state, Source: o.source, Kind: o.kind, Reason: o.reason, PageToken: o.page}
	if o.since > 0 {
		r.Since = timestamppb.New(a.now().Add(-o.since))
	}
	s, err := a.dial()
	if err != nil {
		return err
	}
	defer s.close()
	if o.counts {
		return a.countLedger(ctx, s, r)
	}
	all, err := s.listLedger(ctx, r, a.limit)
	if err != nil {
		return err
	}
	if a.json {
		return view.JSON(a.stdout, all)
	}
	a.printer().Ledger(all.GetEntries())
	if token := all.GetNextPageToken(); token != "" {
		a.say("there are more: the same with --page %s", view.Clean(token))
	}
	return nil
}

func (a *app) countLedger(ctx context.Context, s *services, r *pollerv1.ListLedgerRequest) error {
	var counts *pollerv1.CountLedgerResponse
	err := s.poller(ctx, callTime, func(ctx context.Context, c pollerv1.PollerServiceClient) (err error) {
		counts, err = c.CountLedger(ctx, &pollerv1.CountLedgerRequest{WorkItem: r.GetWorkItem(), Source: r.GetSource(), Kind: r.GetKind(),
			Since: r.GetSince()})
		return err
	})
	if err != nil {
		return err
	}
	if a.json {
		return view.JSON(a.stdout, counts)
	}
	a.printer().Counts(counts)
	return nil
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

// ledger lists rows of the ledger: of an item, or of all when it is empty, in a state, or in any.
func (s *services) ledger(ctx context.Context, item string, state pollerv1.LedgerState, limit int) (*pollerv1.ListLedgerResponse, error) {
	return s.listLedger(ctx, &pollerv1.ListLedgerRequest{WorkItem: item, State: state}, limit)
}

// listLedger lists the rows that a request chooses, page by page, from its own page on.
func (s *services) listLedger(ctx context.Context, r *pollerv1.ListLedgerRequest, limit int) (*pollerv1.ListLedgerResponse, error) {
	all, first := &pollerv1.ListLedgerResponse{}, r.GetPageToken()
	return all, s.poller(ctx, callTime, func(ctx context.Context, c pollerv1.PollerServiceClient) error {
		return pages(limit, func(size int32, token string) (int, string, error) {
			if r.PageSize, r.PageToken = size, token; token == "" {
				r.PageToken = first
			}
			page, err := c.ListLedger(ctx, r)
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
