package main

import (
	"context"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"muxpost.dev/muxpost/cmd/muxpost/internal/console"
	"muxpost.dev/muxpost/cmd/muxpost/internal/view"
	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/layout"
	"muxpost.dev/muxpost/internal/obs/spanfile"
	"muxpost.dev/muxpost/internal/rpc"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	pollerv1 "muxpost.dev/muxpost/proto/gen/muxpost/poller/v1"
	teamv1 "muxpost.dev/muxpost/proto/gen/muxpost/team/v1"
	tmuxdv1 "muxpost.dev/muxpost/proto/gen/muxpost/tmuxd/v1"
)

const (
	// consoleAddress is where the console listens unless told otherwise; if it is taken, on a free port.
	consoleAddress = "127.0.0.1:7420"
	// consoleTime bounds each question of a page: whoever looks at one sees the rest of it meanwhile not.
	consoleTime = 5 * time.Second
)

func consoleCommand(a *app) *cobra.Command {
	var listen string
	c := &cobra.Command{
		Use: "console", Short: "Show everything in a browser, on an address of this machine alone", Args: args(0, 0, ""),
		Long: `console serves pages that show what the other commands do: what runs, what waits, what needs a person, the sessions with their screens,
the ledger and every delivery. What can be done from there is what the commands do: retry, done, cancel, ack, pause, unpause, unpark and send.

It asks the services as every command does, with the same addresses and the same token, and listens on a loopback address alone. The address that
it prints lets one browser in, once; everything else is refused. Ctrl-C ends it. From another machine, reach it through ssh:
docs/operations.md says how.`,
		Example: "  muxpost console\n  muxpost console --listen 127.0.0.1:8000",
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.console(cmd.Context(), listen) },
	}
	c.Flags().StringVar(&listen, "listen", "", "loopback `ADDRESS` to serve on (default "+consoleAddress+", or a free port where that is taken)")
	return c
}

func (a *app) console(ctx context.Context, listen string) error {
	s, err := a.dial()
	if err != nil {
		return err
	}
	defer s.close()
	for _, service := range []layout.Service{layout.Dispatcher, layout.Poller} {
		if _, err := s.conn(service); err != nil {
			return err // what is wrong with the configuration is said here, and not on each page
		}
	}
	listener, err := listenConsole(listen)
	if err != nil {
		return err
	}
	d := &consoleDesk{app: a, services: s}
	config := console.Config{Services: d, Reports: d, Now: a.now, Who: a.by(operatorFlags{})}
	if s.Here(layout.Tmuxd) {
		config.Host = s.Tmuxd.Host
	}
	pages, err := console.New(config, listener.Addr())
	if err != nil {
		listener.Close() //nolint:errcheck // It was never used.
		return err
	}
	a.say("the console is at %s", pages.Address())
	a.say("  the address lets one browser in, once; Ctrl-C ends the console")
	return pages.Serve(ctx, listener)
}

// listenConsole opens the console's address: the one that is asked for, else the usual one, else a free port.
func listenConsole(asked string) (net.Listener, error) {
	switch {
	case strings.HasPrefix(asked, "unix:"):
		return nil, fault.New(fault.Invalid, fault.ReasonBadArgument, "a browser needs an address with a port").WithRemedy("--listen 127.0.0.1:0 takes a free port")
	case asked != "":
		return rpc.Listen(asked)
	}
	listener, err := rpc.Listen(consoleAddress)
	if fault.ReasonOf(err) == fault.ReasonAddressTaken {
		return rpc.Listen("127.0.0.1:0")
	}
	return listener, err
}

// consoleDesk asks for the console as the other commands do.
type consoleDesk struct {
	*app
	*services
}

// Poller calls the poller.
func (d *consoleDesk) Poller(ctx context.Context, call func(context.Context, pollerv1.PollerServiceClient) error) error {
	return d.poller(ctx, consoleTime, call)
}

// Dispatcher calls the dispatcher.
func (d *consoleDesk) Dispatcher(ctx context.Context, call func(context.Context, dispatcherv1.DispatcherServiceClient) error) error {
	return d.dispatcherWithin(ctx, consoleTime, call)
}

// Teams calls the dispatcher's service of teams.
func (d *consoleDesk) Teams(ctx context.Context, call func(context.Context, teamv1.TeamServiceClient) error) error {
	ctx, cancel := context.WithTimeout(ctx, consoleTime)
	defer cancel()
	return d.teams(ctx, call)
}

// Tmuxd calls the tmuxd of this installation.
func (d *consoleDesk) Tmuxd(ctx context.Context, call func(context.Context, tmuxdv1.TmuxdServiceClient) error) error {
	return d.tmuxd(ctx, consoleTime, call)
}

// pager writes nothing: its words go into pages, without colour.
func (d *consoleDesk) pager() view.Printer { return view.Printer{Now: d.now(), Whole: true} }

// Status is what muxpost status tells.
func (d *consoleDesk) Status(ctx context.Context) console.Status {
	r, p := d.status(ctx, d.services), d.pager()
	out := console.Status{
		Services: r.table(p), Away: r.away(), Sources: r.sourceFacts(p), Agents: r.agents(), Ledger: r.Ledger, Sessions: r.Sessions,
		LedgerStates: ledgerStates(), SessionStates: sessionStates(), Shadow: r.Shadow, Problems: r.Problems,
	}
	for _, pause := range r.Pauses {
		out.Pauses = append(out.Pauses, console.Pause{WorkItem: pause.WorkItem, Text: p.PauseLine(pause.wire())})
	}
	return out
}

// Attention is what muxpost attention tells.
func (d *consoleDesk) Attention(ctx context.Context) console.Attention {
	r, g, away := d.needs(ctx, d.services, endedWithin, false)
	return console.Attention{Entries: r.Entries, Hidden: r.Hidden, Problems: r.Problems, Away: away, Waiting: g.known.Waiting}
}

// Story is what muxpost explain tells of a delivery.
func (d *consoleDesk) Story(ctx context.Context, id string) (console.Story, error) {
	if err := badDeliveryID(id); err != nil {
		return console.Story{}, err
	}
	st, err := d.story(ctx, id)
	if err != nil {
		return console.Story{}, err
	}
	host := ""
	if d.Here(layout.Tmuxd) {
		host = d.services.Tmuxd.Host
	}
	return console.Story{Entry: st.entry, Delivery: st.delivery, Facts: st.facts(d.pager(), host), Problems: st.problems}, nil
}

// Trace is what muxpost trace tells of a delivery.
func (d *consoleDesk) Trace(id string) (string, error) {
	spans, err := spansOf(d.DataDir.Traces(), id)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	err = spanfile.Render(&out, spanfile.Tree(essential(spans)), spanfile.RenderOptions{})
	return out.String(), err
}

// Events are the newest that muxpost events tells, of a work item or a delivery, or of all, in order of time. Both are asked at once: one that
// does not answer takes no time from the other.
func (d *consoleDesk) Events(ctx context.Context, item, delivery string, most int) ([]*dispatcherv1.Event, []error) {
	var wait sync.WaitGroup
	var found [2][]*dispatcherv1.Event
	var failed [2][]error
	for i := range found {
		from := &streams{services: d.services, item: item, delivery: delivery}
		from.unasked[1-i] = true
		wait.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, consoleTime)
			defer cancel()
			found[i], failed[i] = from.next(ctx, most, true)
		})
	}
	wait.Wait()
	events := byTime(slices.Concat(found[0], found[1]))
	return events[max(0, len(events)-most):], slices.Concat(failed[0], failed[1])
}
