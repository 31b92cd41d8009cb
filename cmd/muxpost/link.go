package main

import (
	"context"

	"github.com/spf13/cobra"

	"muxpost.dev/muxpost/cmd/muxpost/internal/view"
	"muxpost.dev/muxpost/core/fault"
	pollerv1 "muxpost.dev/muxpost/proto/gen/muxpost/poller/v1"
)

type linkOptions struct {
	operatorFlags
	none bool
}

func linkCommand(a *app) *cobra.Command {
	var o linkOptions
	c := &cobra.Command{
		Use: "link PULL-REQUEST ITEM | PULL-REQUEST --none", Short: "Say to which work item a pull request belongs",
		Args: args(1, 2, "muxpost links shows what belongs where"),
		Long: `link has the reviews, comments and CI results of a pull request go to the agent of a work item, whatever the pull request says of
itself; with --none to nobody. Without it a pull request belongs to the work item that it closes, else to the one whose branch it is of, else
to itself if it is under muxpost's care. What was written there before is not delivered to the item.`,
		RunE: func(cmd *cobra.Command, given []string) error { return a.link(cmd.Context(), given, o) },
	}
	c.Flags().BoolVar(&o.none, "none", false, "take it off its work item")
	c.Flags().StringVar(&o.reason, "reason", "", "why, for others to read")
	a.whoFlag(c, &o.operatorFlags)
	a.jsonFlag(c)
	return c
}

func (a *app) link(ctx context.Context, given []string, o linkOptions) error {
	if o.none == (len(given) == 2) {
		return fault.New(fault.Invalid, fault.ReasonBadArgument, "name the work item, or --none").
			WithRemedy("as in: muxpost link github:acme/widgets#12 github:acme/widgets#7")
	}
	request := &pollerv1.LinkPullRequest{Pull: given[0], Who: a.by(o.operatorFlags), Reason: o.reason}
	if !o.none {
		request.WorkItem = given[1]
	}
	s, err := a.dial()
	if err != nil {
		return err
	}
	defer s.close()
	var answer *pollerv1.LinkPullResponse
	err = s.poller(ctx, callTime, func(ctx context.Context, c pollerv1.PollerServiceClient) (err error) {
		answer, err = c.LinkPull(ctx, request)
		return err
	})
	l := answer.GetLink()
	switch {
	case err != nil:
		return err
	case a.json:
		return view.JSON(a.stdout, answer)
	case !answer.GetChanged():
		a.say("nothing to change: that is so already")
	case l.GetWorkItem() == "":
		a.say("%s belongs to no work item any more", view.Clean(l.GetPull()))
	default:
		a.say("%s belongs to %s from now on", view.Clean(l.GetPull()), view.Clean(l.GetWorkItem()))
	}
	return nil
}

func linksCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use: "links [ITEM | PULL-REQUEST]", Short: "Show which pull requests belong to which work items, and how they came there", Args: args(0, 1, ""),
		RunE: func(cmd *cobra.Command, given []string) error {
			of := ""
			if len(given) == 1 {
				of = given[0]
			}
			return a.links(cmd.Context(), of)
		},
	}
	a.jsonFlag(c)
	return c
}

func (a *app) links(ctx context.Context, of string) error {
	s, err := a.dial()
	if err != nil {
		return err
	}
	defer s.close()
	var answer *pollerv1.ListLinksResponse
	err = s.poller(ctx, callTime, func(ctx context.Context, c pollerv1.PollerServiceClient) (err error) {
		answer, err = c.ListLinks(ctx, &pollerv1.ListLinksRequest{Of: of})
		return err
	})
	if err != nil {
		return err
	}
	if a.json {
		return view.JSON(a.stdout, answer)
	}
	a.printer().Links(answer.GetLinks())
	return nil
}
