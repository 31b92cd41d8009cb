package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"muxpost.dev/muxpost/cmd/muxpost/internal/attention"
	"muxpost.dev/muxpost/cmd/muxpost/internal/view"
	"muxpost.dev/muxpost/core/fault"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	pollerv1 "muxpost.dev/muxpost/proto/gen/muxpost/poller/v1"
	teamv1 "muxpost.dev/muxpost/proto/gen/muxpost/team/v1"
)

const (
	// mostWaiting and mostEnded bound how many events of a state are looked at.
	mostWaiting = 5000
	mostEnded   = 500
	// endedWithin is how long an event that ended stays in the list unless told otherwise.
	endedWithin = 7 * 24 * time.Hour
)

// attentionReport is what muxpost attention tells.
type attentionReport struct {
	Entries []attention.Entry `json:"entries"`
	// Hidden is how many entries are left out because somebody has seen them.
	Hidden int `json:"hidden"`
	// Problems say what could not be found out, so that the list may lack something.
	Problems []string `json:"problems"`
}

func attentionCommand(a *app) *cobra.Command {
	var within time.Duration
	var all bool
	c := &cobra.Command{
		Use: "attention", Short: "List everything that needs a person, with what to do about it",
		Args: args(0, 0, "muxpost attention ack ID leaves an entry out of the list"), SuggestFor: []string{"ack", "acknowledge"},
		Example: `  muxpost attention
  muxpost attention ack d1a2b3c4 --reason "the agent's owner knows"
  muxpost attention --all`,
		Long: fmt.Sprintf(`attention lists what does not pass by itself: events that were dropped, given up or typed without proof that they
arrived; events held by a session for longer than %s, or on their way for longer than %s; items that are parked; orders to end an agent that wait
for its host; agents that wait for a person, that have been idle for long (dispatcher.idle.after), that live on without their session, or that
nobody records; hosts that are away for longer than %s,
and sessions that were left behind on one that is back; teams whose latest run failed, or waits for long; sources that cannot be read; and pauses that have stood for longer than %s. What somebody has acknowledged is left out until its state changes.

Exit codes: 0 nothing needs a person, 1 something does, 3 a service does not answer, so that the list may lack something.`,
			view.Short(attention.MaxHeld), view.Short(attention.MaxWaiting), view.Short(attention.MaxAway), view.Short(attention.MaxPaused)),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.attention(cmd.Context(), within, all) },
	}
	c.Flags().BoolVar(&all, "all", false, "what was acknowledged too")
	c.Flags().DurationVar(&within, "ended-within", endedWithin, "leave out events that ended longer ago; 0 leaves out none")
	a.jsonFlag(c)
	c.AddCommand(ackCommand(a))
	return c
}

func (a *app) attention(ctx context.Context, within time.Duration, all bool) error {
	if within < 0 {
		return fault.New(fault.Invalid, fault.ReasonBadArgument, "--ended-within must not be negative")
	}
	s, err := a.dial()
	if err != nil {
		return err
	}
	defer s.close()
	r, g, away := a.needs(ctx, s, within, all)
	if a.json {
		err = a.values(r)
	} else {
		r.print(a.printer(), away == nil)
	}
	switch {
	case err != nil:
		return err
	case away != nil:
		return away
	case g.open > 0:
		return errors.New(view.Count(g.open, "thing needs", "things need") + " a person")
	}
	return nil
}

// needs finds what needs a person, among what ended within a time. The error says why the list may lack something.
func (a *app) needs(ctx context.Context, s *services, within time.Duration, all bool) (attentionReport, gathered, error) {
	var g gathered
	if within > 0 {
		g.known.EndedAfter = a.now().Add(-within)
	}
	g.known.IdleAfter = s.Dispatcher.Idle.After
	away := g.ask(ctx, s)
	r := attentionReport{Entries: []attention.Entry{}, Problems: append([]string{}, g.problems...)}
	for _, e := range attention.Find(g.known, a.now()) {
		switch {
		case e.Acknowledged == nil:
			g.open++
		case !all:
			r.Hidden++
			continue
		}
		r.Entries = append(r.Entries, e)
	}
	return r, g, away
}

// gathered collects what the services know.
type gathered struct {
	known    attention.Known
	problems []string
	// open is how many entries nobody has acknowledged.
	open int
}

// failed keeps a problem, and returns the error.
func (g *gathered) failed(what string, err error) error {
	if err != nil {
		g.problems = append(g.problems, what+": "+messageOf(err))
	}
	return err
}

func (g *gathered) cut(got, most int, what string) {
	if got >= most {
		g.problems = append(g.problems, fmt.Sprintf("there are more than %d %s, and only the newest were looked at", most, what))
	}
}

// ask asks both services, and returns why one of them did not answer. The dispatcher goes first: some rows of the ledger are asked for
// because of what it says.
func (g *gathered) ask(ctx context.Context, s *services) error {
	away := g.askDispatcher(ctx, s)
	if err := g.askPoller(ctx, s); away == nil {
		away = err
	}
	return away
}

func (g *gathered) askDispatcher(ctx context.Context, s *services) error {
	err := s.dispatcher(ctx, func(ctx context.Context, c dispatcherv1.DispatcherServiceClient) error {
		for _, outcome := range []dispatcherv1.Outcome{dispatcherv1.Outcome_OUTCOME_DROPPED, dispatcherv1.Outcome_OUTCOME_UNCONFIRMED,
			dispatcherv1.Outcome_OUTCOME_HELD, dispatcherv1.Outcome_OUTCOME_FAILED} {
			page, err := c.ListDeliveries(ctx, &dispatcherv1.ListDeliveriesRequest{Outcome: outcome, PageSize: mostEnded})
			if err != nil {
				return err
			}
			g.known.Deliveries = append(g.known.Deliveries, page.GetDeliveries()...)
		}
		return pages(0, func(size int32, token string) (int, string, error) {
			page, err := c.ListPauses(ctx, &dispatcherv1.ListPausesRequest{PageSize: size, PageToken: token})
			g.known.Pauses = append(g.known.Pauses, page.GetPauses()...)
			return len(page.GetPauses()), page.GetNextPageToken(), err
		})
	})
	if g.failed("dispatcher", err) != nil {
		return err
	}
	if g.known.Parks, err = s.parks(ctx); g.failed("parks", err) != nil {
		return err
	}
	all, err := s.sessions(ctx, "", 0, false)
	g.known.Sessions = all.GetSessions()
	if g.failed("sessions", err) != nil {
		return err
	}
	orphans, err := s.orphans(ctx, 0)
	g.known.Orphans = orphans.GetOrphans()
	if g.failed("orphans", err) != nil {
		return err
	}
	err = s.teams(ctx, func(ctx context.Context, c teamv1.TeamServiceClient) error {
		page, err := c.ListRuns(ctx, &teamv1.ListRunsRequest{PageSize: mostEnded})
		g.known.Runs = page.GetRuns()
		return err
	})
	if fault.ReasonOf(err) != fault.ReasonUnknownCall && g.failed("teams", err) != nil { // an earlier release runs none
		return err
	}
	return g.failed("hosts", s.dispatcher(ctx, func(ctx context.Context, c dispatcherv1.DispatcherServiceClient) error {
		all, err := c.ListHosts(ctx, &dispatcherv1.ListHostsRequest{})
		if err != nil {
			return err
		}
		g.known.Hosts = all.GetHosts()
		left, err := c.ListSuperseded(ctx, &dispatcherv1.ListSupersededRequest{PageSize: mostEnded})
		g.known.Superseded = left.GetSuperseded()
		return err
	}))
}

func (g *gathered) askPoller(ctx context.Context, s *services) error {
	ended := func(row ...*pollerv1.LedgerEntry) { g.known.Ended = append(g.known.Ended, row...) }
	for _, state := range []pollerv1.LedgerState{pollerv1.LedgerState_LEDGER_STATE_DROPPED, pollerv1.LedgerState_LEDGER_STATE_GAVE_UP} {
		rows, err := s.ledger(ctx, "", state, mostEnded)
		if g.failed("ledger", err) != nil {
			return err
		}
		g.cut(len(rows.GetEntries()), mostEnded, "events that are "+view.LedgerState(state))
		ended(rows.GetEntries()...)
	}
	for state := range pollerv1.LedgerState_name {
		if !waits(pollerv1.LedgerState(state)) {
			continue
		}
		rows, err := s.ledger(ctx, "", pollerv1.LedgerState(state), mostWaiting)
		if g.failed("ledger", err) != nil {
			return err
		}
		g.cut(len(rows.GetEntries()), mostWaiting, "events that are "+view.LedgerState(pollerv1.LedgerState(state)))
		g.known.Waiting = append(g.known.Waiting, rows.GetEntries()...)
	}
	return g.failed("poller", s.poller(ctx, callTime, func(ctx context.Context, c pollerv1.PollerServiceClient) error {
		for _, d := range g.known.Deliveries {
			// What was never proven ends as settled, among very many others: it is asked for by its id.
			if d.GetOutcome() != dispatcherv1.Outcome_OUTCOME_UNCONFIRMED || d.GetUpdateTime().AsTime().Before(g.known.EndedAfter) {
				continue
			}
			page, err := c.ListLedger(ctx, &pollerv1.ListLedgerRequest{DeliveryId: d.GetDeliveryId()})
			if err != nil {
				return err
			}
			for _, row := range page.GetEntries() {
				if row.GetState() == pollerv1.LedgerState_LEDGER_STATE_SETTLED {
					ended(row)
				}
			}
		}
		sources, err := c.ListSources(ctx, &pollerv1.ListSourcesRequest{})
		if err != nil {
			return err
		}
		seen, err := c.ListAcknowledgements(ctx, &pollerv1.ListAcknowledgementsRequest{})
		g.known.Sources, g.known.Acknowledgements = sources.GetSources(), seen.GetAcknowledgements()
		return err
	}))
}

func (r attentionReport) print(p view.Printer, complete bool) {
	for _, problem := range r.Problems {
		p.Line("%s", p.Paint(view.Warn, "not known: "+p.Clip(problem, 200)))
	}
	if len(r.Entries) == 0 && r.Hidden == 0 && complete {
		p.Line("%s", p.Paint(view.Good, "nothing needs a person"))
	}
	for i, e := range r.Entries {
		if i > 0 || len(r.Problems) > 0 {
			p.Line("")
		}
		word := strings.ReplaceAll(string(e.Kind), "_", " ")
		head := p.Paint(view.ToneOf(string(e.Kind)), word) + "  " + p.Paint(view.Bold, view.Clean(e.Subject))
		head += "  " + view.Clean(e.ID)
		if e.Since != nil {
			head += "  since " + p.Time(*e.Since)
		}
		p.Line("%s", head)
		p.Line("  %s", p.Clip(e.Why, 400))
		p.Line("  %s %s", p.Paint(view.Dim, "do:  "), p.Clip(e.Remedy, 400))
		p.Line("  %s %s", p.Paint(view.Dim, "look:"), view.Clean(e.Look))
		if e.Acknowledged != nil {
			p.Line("  %s %s", p.Paint(view.Dim, "seen:"), p.Clip(e.Acknowledged.Seen(p), 400))
		}
	}
	if r.Hidden > 0 {
		p.Line("%s", p.Paint(view.Dim, view.Count(r.Hidden, "acknowledged entry is", "acknowledged entries are")+" left out; --all shows them"))
	}
}
