package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"muxpost.dev/muxpost/cmd/muxpost/internal/view"
	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/layout"
	tmuxdv1 "muxpost.dev/muxpost/proto/gen/muxpost/tmuxd/v1"
)

// treesTime bounds a list of working trees: each is looked at with some git commands.
const treesTime = time.Minute

func workspacesCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use: "workspaces [ITEM]", Short: "List the working trees of agents, and what would be lost with each", Args: args(0, 1, ""),
		RunE: func(cmd *cobra.Command, given []string) error {
			item, err := itemOf(given)
			if err != nil {
				return err
			}
			s, err := a.dial()
			if err != nil {
				return err
			}
			defer s.close()
			all, err := s.trees(cmd.Context(), item, a.limit)
			if err != nil {
				return err
			}
			if a.json {
				return view.JSON(a.stdout, all)
			}
			a.printer().Trees(all.GetTrees())
			return nil
		},
	}
	a.jsonFlag(c)
	a.limitFlag(c, 0)
	c.AddCommand(cleanCommand(a))
	return c
}

// cleaning is what a clean was asked for.
type cleaning struct {
	operatorFlags
	dry, discard bool
}

func cleanCommand(a *app) *cobra.Command {
	var o cleaning
	c := &cobra.Command{
		Use: "clean [ITEM...]", Short: "Remove working trees whose agent has ended and in which nothing would be lost", Args: cobra.ArbitraryArgs,
		Long: `clean removes the working trees of the items that are named, or all, whose agent has ended and in which everything is committed and
pushed. Any other stays, and it says why. The branch of a worktree stays in its repository. An event for such an item makes its tree anew.`,
		Example: "  muxpost workspaces clean --dry-run\n  muxpost workspaces clean --discard --reason 'not wanted' github:octo/widget#7",
		RunE:    func(cmd *cobra.Command, given []string) error { return a.clean(cmd.Context(), given, o) },
	}
	c.Flags().BoolVar(&o.dry, "dry-run", false, "say what would be removed, and remove nothing")
	c.Flags().BoolVar(&o.discard, "discard", false, "throw away what is not committed or not pushed, of the items that are named; needs --reason")
	c.Flags().StringVar(&o.reason, "reason", "", "why, for tmuxd's log")
	a.whoFlag(c, &o.operatorFlags)
	return c
}

func (a *app) clean(ctx context.Context, given []string, o cleaning) error {
	var items []string
	for _, g := range given {
		ref, err := parseItem(g)
		if err != nil {
			return err
		}
		items = append(items, ref.String())
	}
	switch {
	case o.discard && len(items) == 0:
		return fault.New(fault.Invalid, fault.ReasonBadArgument, "--discard throws work away, so the items must be named").
			WithRemedy("muxpost workspaces lists them, with what would be lost")
	case o.discard && o.reason == "":
		return fault.New(fault.Invalid, fault.ReasonBadArgument, "--discard needs --reason")
	}
	s, err := a.dial()
	if err != nil {
		return err
	}
	defer s.close()
	all, err := s.trees(ctx, "", 0)
	if err != nil {
		return err
	}
	removed, kept := 0, 0
	for _, t := range all.GetTrees() {
		if len(given) > 0 && !slices.Contains(items, t.GetWorkItem()) {
			continue
		}
		items = slices.DeleteFunc(items, func(i string) bool { return i == t.GetWorkItem() }) // what is left at the end was not there
		why, err := a.cleanOne(ctx, s, t, o)
		if err != nil {
			return err
		}
		if why != "" {
			kept++
			a.printer().Line("kept     %s  %s: %s", view.Clean(t.GetWorkItem()), view.Clean(t.GetDirectory()), view.Clean(why))
			continue
		}
		removed++
		word := "removed "
		if o.dry {
			word = "would go"
		}
		a.printer().Line("%s %s  %s", word, view.Clean(t.GetWorkItem()), view.Clean(t.GetDirectory()))
	}
	if len(items) > 0 {
		return fault.Newf(fault.NotFound, fault.ReasonTreeNotFound, "no working tree of %s was made on this host", strings.Join(items, ", ")).
			WithRemedy("muxpost workspaces lists them")
	}
	what := "removed"
	if o.dry {
		what = "would be removed"
	}
	a.say("%d %s, %d kept", removed, what, kept)
	return nil
}

// cleanOne removes a tree, or says why it is kept. An error is one that the next tree would meet too.
func (a *app) cleanOne(ctx context.Context, s *services, t *tmuxdv1.WorkingTree, o cleaning) (kept string, err error) {
	ended := len(t.GetFlags()) == 0 && (t.GetState() == tmuxdv1.State_STATE_DEAD || t.GetState() == tmuxdv1.State_STATE_ABSENT)
	switch {
	case !ended:
		return "its agent has not ended (" + view.TreeState(t) + ")", nil
	case !t.GetNothingToLose() && !o.discard:
		return t.GetHolds(), nil
	case o.dry:
		return "", nil
	}
	reason := o.reason
	if who := a.by(o.operatorFlags); who != "" {
		reason = strings.TrimSuffix(who+": "+reason, ": ")
	}
	err = s.tmuxd(ctx, callTime, func(ctx context.Context, c tmuxdv1.TmuxdServiceClient) error {
		_, err := c.RemoveTree(ctx, &tmuxdv1.RemoveTreeRequest{WorkItem: t.GetWorkItem(), Discard: o.discard, Reason: reason})
		return err
	})
	if kind := fault.KindOf(err); err != nil && (kind == fault.Conflict || kind == fault.NotFound) {
		return err.Error(), nil // it has changed since it was looked at
	}
	return "", err
}

// trees lists working trees.
func (s *services) trees(ctx context.Context, item string, limit int) (*tmuxdv1.ListTreesResponse, error) {
	all := &tmuxdv1.ListTreesResponse{}
	return all, s.tmuxd(ctx, treesTime, func(ctx context.Context, c tmuxdv1.TmuxdServiceClient) error {
		return pages(limit, func(size int32, token string) (int, string, error) {
			page, err := c.ListTrees(ctx, &tmuxdv1.ListTreesRequest{WorkItem: item, PageSize: size, PageToken: token})
			all.Trees = append(all.Trees, page.GetTrees()...)
			all.NextPageToken = page.GetNextPageToken()
			return len(page.GetTrees()), page.GetNextPageToken(), err
		})
	})
}

// tmuxd calls the tmuxd of this installation within a time.
func (s *services) tmuxd(ctx context.Context, patience time.Duration, call func(context.Context, tmuxdv1.TmuxdServiceClient) error) error {
	conn, err := s.conn(layout.Tmuxd)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return s.explained(layout.Tmuxd, call(ctx, tmuxdv1.NewTmuxdServiceClient(conn)))
}
