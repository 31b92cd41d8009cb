package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"muxpost.dev/muxpost/cmd/muxpost/internal/view"
	"muxpost.dev/muxpost/internal/layout"
	teamv1 "muxpost.dev/muxpost/proto/gen/muxpost/team/v1"
)

// cleanTime bounds the removal of one run's working trees: each is looked at with some git commands.
const cleanTime = 10 * time.Minute

// teamCleaning is what a clean was asked for.
type teamCleaning struct {
	operatorFlags
	dry, unmerged bool
}

func teamCleanCommand(a *app) *cobra.Command {
	var o teamCleaning
	c := &cobra.Command{
		Use: "clean [RUN...]", Short: "Remove the working trees of runs that are over, where nothing would be lost", Args: cobra.ArbitraryArgs,
		Long: `clean removes the working trees of the runs that are named, or of all that are over: those in which everything is committed, and merged into what
the repository has checked out, or on a remote. Any other stays, and it says why. With --unmerged trees go too whose commits are on their branches
alone. Branches always stay, and so does what is not committed: to throw that away is for git, on the tree's host. What git ignores goes with a tree.`,
		Example: "  muxpost team clean --dry-run\n  muxpost team clean --unmerged crew",
		RunE:    func(cmd *cobra.Command, given []string) error { return a.cleanTeams(cmd.Context(), given, o) },
	}
	c.Flags().BoolVar(&o.dry, "dry-run", false, "say what would be removed, and remove nothing")
	c.Flags().BoolVar(&o.unmerged, "unmerged", false, "remove trees too whose commits are on their branches alone; the branches stay")
	c.Flags().StringVar(&o.reason, "reason", "", "why, for the logs")
	a.whoFlag(c, &o.operatorFlags)
	return c
}

func (a *app) cleanTeams(ctx context.Context, runs []string, o teamCleaning) error {
	s, err := a.dial()
	if err != nil {
		return err
	}
	defer s.close()
	if len(runs) == 0 {
		if runs, err = s.endedRuns(ctx); err != nil {
			return err
		}
	}
	removed, kept := 0, 0
	for _, run := range runs {
		var out *teamv1.CleanRunResponse
		conn, err := s.conn(layout.Dispatcher)
		if err != nil {
			return err
		}
		calling, cancel := context.WithTimeout(ctx, cleanTime)
		out, err = teamv1.NewTeamServiceClient(conn).CleanRun(calling, &teamv1.CleanRunRequest{Run: run, Unmerged: o.unmerged, DryRun: o.dry, Who: a.by(o.operatorFlags), Reason: o.reason})
		cancel()
		if err != nil {
			return s.explained(layout.Dispatcher, err)
		}
		for _, t := range out.GetTrees() {
			where := fmt.Sprintf("%s  %s:%s", view.Clean(t.GetBranch()), view.Clean(t.GetHost()), view.Clean(t.GetDirectory()))
			switch {
			case t.GetKept() != "":
				kept++
				a.printer().Line("kept     %s: %s", where, view.Clean(t.GetKept()))
			case o.dry:
				removed++
				a.printer().Line("would go %s", where)
			default:
				removed++
				a.printer().Line("removed  %s", where)
			}
		}
	}
	what := "removed"
	if o.dry {
		what = "would be removed"
	}
	a.say("%d %s, %d kept", removed, what, kept)
	return nil
}

// endedRuns are the ids of all runs that are over.
func (s *services) endedRuns(ctx context.Context) (ids []string, err error) {
	return ids, s.teams(ctx, func(ctx context.Context, c teamv1.TeamServiceClient) error {
		return pages(0, func(size int32, token string) (int, string, error) {
			page, err := c.ListRuns(ctx, &teamv1.ListRunsRequest{PageSize: size, PageToken: token})
			for _, r := range page.GetRuns() {
				if r.GetEndTime() != nil {
					ids = append(ids, r.GetRunId())
				}
			}
			return len(page.GetRuns()), page.GetNextPageToken(), err
		})
	})
}
