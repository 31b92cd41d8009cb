package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"muxpost.dev/muxpost/cmd/muxpost/internal/view"
	"muxpost.dev/muxpost/core/fault"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
)

func hostsCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use: "hosts", Short: "List the hosts that agents live on, and how they stand", Args: args(0, 0, "muxpost hosts --help lists what can be done with one"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.hostCall(cmd.Context(), func(ctx context.Context, c dispatcherv1.DispatcherServiceClient) error {
				all, err := c.ListHosts(ctx, &dispatcherv1.ListHostsRequest{})
				if err != nil {
					return err
				}
				if a.json {
					return view.JSON(a.stdout, all)
				}
				a.printer().Hosts(all.GetHosts())
				return nil
			})
		},
	}
	a.jsonFlag(c)
	c.AddCommand(inviteCommand(a), joinCommand(a), addHostCommand(a), drainCommand(a), undrainCommand(a), evacuateCommand(a), supersededCommand(a), acceptCommand(a), forgetCommand(a))
	return c
}

// hostCall makes a call of the dispatcher.
func (a *app) hostCall(ctx context.Context, call func(context.Context, dispatcherv1.DispatcherServiceClient) error) error {
	s, err := a.dial()
	if err != nil {
		return err
	}
	defer s.close()
	return s.dispatcherWithin(ctx, stopTime, call)
}

const hostsHint = "muxpost hosts lists them"

func addHostCommand(a *app) *cobra.Command {
	var o operatorFlags
	c := &cobra.Command{
		Use: "add NAME ADDRESS", Short: "Have the tmuxd at an address called, as host NAME", Args: args(2, 2, ""),
		Long: `add has every dispatcher call the tmuxd at ADDRESS (host:port, or unix:/path). NAME is the name that it must give, tmuxd.host in its
configuration. A host that is known gets the new address. Hosts can be named in the configuration as well, under dispatcher.hosts.`,
		RunE: func(cmd *cobra.Command, given []string) error {
			return a.hostCall(cmd.Context(), func(ctx context.Context, c dispatcherv1.DispatcherServiceClient) error {
				_, err := c.AddHost(ctx, &dispatcherv1.AddHostRequest{Name: given[0], Address: given[1], Who: a.by(o)})
				if err == nil {
					a.say("host %s at %s was added; muxpost hosts says whether it is reached", view.Clean(given[0]), view.Clean(given[1]))
				}
				return err
			})
		},
	}
	a.whoFlag(c, &o)
	return c
}

func drainCommand(a *app) *cobra.Command {
	var o operatorFlags
	c := &cobra.Command{
		Use: "drain NAME", Short: "Let nothing more start on a host; what lives there goes on", Args: args(1, 1, hostsHint),
		Long: `drain has nothing more start on a host. Agents that live there go on and get their events. One that ends there does not come back until
undrain: its conversation is on that host.`,
		RunE: func(cmd *cobra.Command, given []string) error {
			return a.hostCall(cmd.Context(), func(ctx context.Context, c dispatcherv1.DispatcherServiceClient) error {
				_, err := c.DrainHost(ctx, &dispatcherv1.DrainHostRequest{Name: given[0], Who: a.by(o), Reason: o.reason})
				if err == nil {
					a.say("nothing more starts on host %s until muxpost hosts undrain %s", view.Clean(given[0]), view.Clean(given[0]))
				}
				return err
			})
		},
	}
	c.Flags().StringVar(&o.reason, "reason", "", "why, for others to read")
	a.whoFlag(c, &o)
	return c
}

func undrainCommand(a *app) *cobra.Command {
	var o operatorFlags
	c := &cobra.Command{
		Use: "undrain NAME", Short: "Let sessions start on a host again", Args: args(1, 1, hostsHint),
		RunE: func(cmd *cobra.Command, given []string) error {
			return a.hostCall(cmd.Context(), func(ctx context.Context, c dispatcherv1.DispatcherServiceClient) error {
				_, err := c.UndrainHost(ctx, &dispatcherv1.UndrainHostRequest{Name: given[0], Who: a.by(o)})
				if err == nil {
					a.say("sessions start on host %s again", view.Clean(given[0]))
				}
				return err
			})
		},
	}
	a.whoFlag(c, &o)
	return c
}

func evacuateCommand(a *app) *cobra.Command {
	var o operatorFlags
	var yes bool
	c := &cobra.Command{
		Use: "evacuate NAME", Short: "Give a host up: its work items begin anew on other hosts", Args: args(1, 1, hostsHint),
		Long: `evacuate is for a host that does not come back. Each of its work items begins a fresh conversation on another host with its next event;
the old conversations stay on the host, and what was not pushed there is not known here. Nothing on the host is ended: if it comes back, its
sessions are superseded, which muxpost hosts superseded lists. Nothing starts on the host until muxpost hosts undrain.`,
		RunE: func(cmd *cobra.Command, given []string) error {
			if !yes {
				return fault.Newf(fault.Invalid, fault.ReasonBadArgument, "the conversations on host %s would be left behind", view.Clean(given[0])).
					WithRemedy("if that is meant, say --yes; muxpost sessions shows which they are")
			}
			return a.hostCall(cmd.Context(), func(ctx context.Context, c dispatcherv1.DispatcherServiceClient) error {
				return a.evacuate(ctx, c, given[0], o)
			})
		},
	}
	c.Flags().BoolVar(&yes, "yes", false, "leave the conversations there behind")
	c.Flags().StringVar(&o.reason, "reason", "", "why, for others to read")
	a.whoFlag(c, &o)
	return c
}

func (a *app) evacuate(ctx context.Context, c dispatcherv1.DispatcherServiceClient, name string, o operatorFlags) error {
	for moved := 0; ; {
		out, err := c.EvacuateHost(ctx, &dispatcherv1.EvacuateHostRequest{Name: name, Who: a.by(o), Reason: o.reason})
		if err != nil {
			return err
		}
		for _, item := range out.GetMoved() {
			a.printer().Line("moved    %s", view.Clean(item))
		}
		moved += len(out.GetMoved())
		if out.GetMore() && len(out.GetMoved()) > 0 {
			continue
		}
		if busy := out.GetBusy(); len(busy) > 0 {
			return fault.Newf(fault.Unavailable, fault.ReasonLeaseHeld, "%d work items were moved; a delivery is under way of %s", moved,
				view.Clean(strings.Join(busy, ", "))).WithRemedy("run it again in a moment")
		}
		a.say("%d work items were moved away from host %s; each begins anew elsewhere with its next event", moved, view.Clean(name))
		return nil
	}
}

func supersededCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use: "superseded", Short: "List the sessions that were left behind on hosts which were given up", Args: args(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.hostCall(cmd.Context(), func(ctx context.Context, c dispatcherv1.DispatcherServiceClient) error {
				all := &dispatcherv1.ListSupersededResponse{}
				if err := pages(0, func(size int32, token string) (int, string, error) {
					page, err := c.ListSuperseded(ctx, &dispatcherv1.ListSupersededRequest{PageSize: size, PageToken: token})
					all.Superseded = append(all.Superseded, page.GetSuperseded()...)
					return len(page.GetSuperseded()), page.GetNextPageToken(), err
				}); err != nil {
					return err
				}
				if a.json {
					return view.JSON(a.stdout, all)
				}
				a.printer().Superseded(all.GetSuperseded())
				return nil
			})
		},
	}
	a.jsonFlag(c)
	return c
}

func acceptCommand(a *app) *cobra.Command {
	var o operatorFlags
	c := &cobra.Command{
		Use: "accept NAME", Short: "Give the name of a host to the next tmuxd that answers under it", Args: args(1, 1, hostsHint),
		Long: `accept is for a host that was set up anew. Its tmuxd has another state directory than the one that the name belongs to, so it is refused:
two tmuxds under one name would be taken for one another.`,
		RunE: func(cmd *cobra.Command, given []string) error {
			return a.hostCall(cmd.Context(), func(ctx context.Context, c dispatcherv1.DispatcherServiceClient) error {
				_, err := c.AcceptHost(ctx, &dispatcherv1.AcceptHostRequest{Name: given[0], Who: a.by(o)})
				if err == nil {
					a.say("the next tmuxd that answers as %s is that host from then on", view.Clean(given[0]))
				}
				return err
			})
		},
	}
	a.whoFlag(c, &o)
	return c
}

func forgetCommand(a *app) *cobra.Command {
	var o operatorFlags
	c := &cobra.Command{
		Use: "forget NAME", Short: "Remove a host on which no work items are recorded any more", Args: args(1, 1, hostsHint),
		RunE: func(cmd *cobra.Command, given []string) error {
			return a.hostCall(cmd.Context(), func(ctx context.Context, c dispatcherv1.DispatcherServiceClient) error {
				_, err := c.ForgetHost(ctx, &dispatcherv1.ForgetHostRequest{Name: given[0], Who: a.by(o)})
				if err == nil {
					a.say("host %s is forgotten", view.Clean(given[0]))
				}
				return err
			})
		},
	}
	a.whoFlag(c, &o)
	return c
}
