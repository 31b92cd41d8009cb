package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"muxpost.dev/muxpost/cmd/muxpost/internal/view"
	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/layout"
	teamv1 "muxpost.dev/muxpost/proto/gen/muxpost/team/v1"
)

const teamHint = "name a team, or the id of a run; muxpost team status lists them"

func teamCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use: "team", Short: "Run teams: graphs of tasks that agents do, each to its end", Args: args(0, 0, "muxpost team --help lists what there is"),
		Long: `team runs a graph of tasks through the phases plan, prd, exec, verify and fix. Each task is one launch of an agent that ends by itself, in a tmux
pane of its own, on any host that may run it. A run is complete when every task succeeded and a verification says that the work is good; what
failed is run again, with the reason in its prompt, as often as max_fix_loops says. docs/teams.md shows how.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	c.AddCommand(teamRunCommand(a), teamStatusCommand(a), teamWatchCommand(a), teamCancelCommand(a), teamAbandonCommand(a), teamLogsCommand(a), teamCleanCommand(a))
	return c
}

// teams calls the dispatcher's service of teams within callTime.
func (s *services) teams(ctx context.Context, call func(context.Context, teamv1.TeamServiceClient) error) error {
	conn, err := s.conn(layout.Dispatcher)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	return s.explained(layout.Dispatcher, call(ctx, teamv1.NewTeamServiceClient(conn)))
}

func (a *app) teamCall(ctx context.Context, call func(context.Context, teamv1.TeamServiceClient) error) error {
	s, err := a.dial()
	if err != nil {
		return err
	}
	defer s.close()
	return s.teams(ctx, call)
}

func teamRunCommand(a *app) *cobra.Command {
	var o operatorFlags
	var takeOver, detach bool
	var name, item string
	c := &cobra.Command{
		Use: "run FILE", Short: "Run the team that a file describes, and follow it to its end", Args: args(0, 1, "FILE is YAML or JSON; - is standard input"),
		Long: `run begins a run of the team that a file describes, shows how it goes, and ends with it: with exit code 0 when the run is complete, and with
another when it failed or was cancelled. Ctrl-C cancels the run; with --detach it is only begun, and goes on by itself.

A team has one run that is not over. Another one is refused then, with what is to be done; --take-over gives the older one up.

With --item, in the place of FILE, the team is the one that the dispatcher's configuration has for a work item (dispatcher.teams).`,
		Example: "  muxpost team run docs/examples/team.yaml\n  muxpost team run --detach team.yaml && muxpost team watch crew",
		RunE: func(cmd *cobra.Command, given []string) error {
			if (item != "") == (len(given) == 1) {
				return fault.New(fault.Invalid, fault.ReasonBadArgument, "say either a file or --item, and not both").WithRemedy("usage: " + cmd.UseLine())
			}
			if item != "" {
				ref, err := parseItem(item)
				if err != nil {
					return err
				}
				return a.teamRun(cmd.Context(), func(ctx context.Context, c teamv1.TeamServiceClient) (*teamv1.StartRunResponse, error) {
					out, err := c.StartItemRun(ctx, &teamv1.StartItemRunRequest{WorkItem: ref.String(), Who: a.by(o)})
					return &teamv1.StartRunResponse{Run: out.GetRun()}, err
				}, a.by(o), detach)
			}
			spec, err := a.readSpec(given[0])
			if err != nil {
				return err
			}
			if name != "" {
				spec.Team = name
			}
			return a.teamRun(cmd.Context(), func(ctx context.Context, c teamv1.TeamServiceClient) (*teamv1.StartRunResponse, error) {
				return c.StartRun(ctx, &teamv1.StartRunRequest{Spec: spec, Who: a.by(o), TakeOver: takeOver})
			}, a.by(o), detach)
		},
	}
	c.Flags().BoolVar(&takeOver, "take-over", false, "give the team's run up that is not over")
	c.Flags().BoolVar(&detach, "detach", false, "begin it, and do not wait for its end")
	c.Flags().StringVar(&item, "item", "", "run what is configured for a work item")
	c.Flags().StringVar(&name, "team", "", "the team's name, instead of the one in the file")
	a.whoFlag(c, &o)
	a.jsonFlag(c)
	return c
}

// teamRun begins a run, and follows it unless it is detached.
func (a *app) teamRun(ctx context.Context, start func(context.Context, teamv1.TeamServiceClient) (*teamv1.StartRunResponse, error), who string, detach bool) error {
	s, err := a.dial()
	if err != nil {
		return err
	}
	defer s.close()
	var begun *teamv1.StartRunResponse
	if err := s.teams(ctx, func(ctx context.Context, c teamv1.TeamServiceClient) (err error) {
		begun, err = start(ctx, c)
		return err
	}); err != nil {
		return err
	}
	run := begun.GetRun()
	if detach && a.json {
		return view.JSON(a.stdout, begun)
	}
	if id := begun.GetAbandonedRunId(); id != "" {
		a.say("the run %s was given up", id)
	}
	a.say("the run %s of the team %s has begun", run.GetRunId(), view.Clean(run.GetTeam()))
	if detach {
		a.say("follow it with muxpost team watch %s", run.GetRunId())
		return nil
	}
	err = a.followRun(ctx, s, run.GetRunId())
	if ctx.Err() == nil {
		return err
	}
	return a.cancelOnSignal(context.WithoutCancel(ctx), s, run.GetRunId(), who)
}

// cancelOnSignal cancels a run whose command was told to end, and follows it to its end, unless that takes too long.
func (a *app) cancelOnSignal(ctx context.Context, s *services, id, who string) error {
	if err := s.teams(ctx, func(ctx context.Context, c teamv1.TeamServiceClient) error {
		_, err := c.CancelRun(ctx, &teamv1.CancelRunRequest{Run: id, Who: who, Reason: "muxpost team run was interrupted"})
		return err
	}); err != nil {
		return err
	}
	a.say("the run is cancelled; what is under way is being stopped")
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	err := a.followRun(ctx, s, id)
	if ctx.Err() != nil {
		return fault.Newf(fault.Unavailable, "", "the run %s was cancelled, and something of it is not stopped yet", id).WithRemedy("see muxpost team status " + id)
	}
	return err
}

func teamWatchCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use: "watch RUN", Short: "Follow a run to its end", Args: args(1, 1, teamHint),
		Long: `watch shows how a run goes until it is over, and ends as muxpost team run does. Ctrl-C ends the command alone: the run goes on.`,
		RunE: func(cmd *cobra.Command, given []string) error {
			s, err := a.dial()
			if err != nil {
				return err
			}
			defer s.close()
			err = a.followRun(cmd.Context(), s, given[0])
			if cmd.Context().Err() != nil {
				return nil
			}
			return err
		},
	}
	a.jsonFlag(c)
	return c
}

// followRun shows how a run goes until it is over. It is an error when the run did not complete.
func (a *app) followRun(ctx context.Context, s *services, name string) error {
	conn, err := s.conn(layout.Dispatcher)
	if err != nil {
		return err
	}
	board := &view.Board{Printer: a.printer(), Terminal: isTerminal(a.stdout)}
	away := false
	for {
		last, err := a.readRun(ctx, teamv1.NewTeamServiceClient(conn), name, board, &away)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil && last != nil:
			return a.concluded(ctx, s, last)
		case err != nil && !errors.Is(err, fault.Unavailable):
			return err
		case err != nil && !away:
			away = true
			a.warn("the dispatcher does not answer; waiting for it")
		}
		timer := time.NewTimer(followPause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C:
		}
	}
}

// readRun reads the stream of a run until it breaks or the run is over.
func (a *app) readRun(ctx context.Context, c teamv1.TeamServiceClient, name string, board *view.Board, away *bool) (*teamv1.Run, error) {
	stream, err := c.WatchRun(ctx, &teamv1.WatchRunRequest{Run: name})
	if err != nil {
		return nil, err
	}
	for {
		step, err := stream.Recv()
		if err != nil {
			return nil, err
		}
		if *away {
			*away = false
			a.warn("the dispatcher answers again")
		}
		if a.json {
			err = view.JSONLine(a.stdout, step)
		} else {
			board.Now = a.now()
			board.Show(step)
		}
		if err != nil || step.GetRun().GetPhase() >= teamv1.Phase_PHASE_COMPLETE {
			return step.GetRun(), err
		}
	}
}

// concluded sums a run up that is over. It is an error when the run did not complete.
func (a *app) concluded(ctx context.Context, s *services, run *teamv1.Run) error {
	if !a.json {
		var whole *teamv1.GetRunResponse
		if err := s.teams(ctx, func(ctx context.Context, c teamv1.TeamServiceClient) (err error) {
			whole, err = c.GetRun(ctx, &teamv1.GetRunRequest{Run: run.GetRunId()})
			return err
		}); err != nil {
			return err
		}
		a.printer().RunSummary(whole)
	}
	why := view.Clean(run.GetDetail())
	if why == "" {
		why = run.GetReason()
	}
	switch run.GetPhase() {
	case teamv1.Phase_PHASE_COMPLETE:
		return nil
	case teamv1.Phase_PHASE_CANCELLED:
		return fault.Newf(fault.Conflict, "", "the run %s was cancelled: %s", run.GetRunId(), why)
	default:
		return fault.Newf(fault.Conflict, "", "the run %s failed: %s", run.GetRunId(), why).
			WithRemedy(fmt.Sprintf("muxpost team logs %s TASK shows what a task said, and muxpost team status %[1]s how it went", run.GetRunId()))
	}
}

func teamStatusCommand(a *app) *cobra.Command {
	var history, open bool
	c := &cobra.Command{
		Use: "status [RUN]", Short: "List runs, or show how one stands: its tasks, its workers, what it waits for", Args: args(0, 1, teamHint),
		RunE: func(cmd *cobra.Command, given []string) error {
			if len(given) == 0 {
				return a.listRuns(cmd.Context(), open)
			}
			return a.teamCall(cmd.Context(), func(ctx context.Context, c teamv1.TeamServiceClient) error {
				whole, err := c.GetRun(ctx, &teamv1.GetRunRequest{Run: given[0]})
				switch {
				case err != nil:
					return err
				case a.json:
					return view.JSON(a.stdout, whole)
				}
				p := a.printer()
				p.Run(whole)
				if history {
					p.RunHistory(whole.GetHistory())
				}
				return nil
			})
		},
	}
	c.Flags().BoolVar(&history, "history", false, "show what became of the run, step by step")
	c.Flags().BoolVar(&open, "open", false, "list only runs that are not over")
	a.jsonFlag(c)
	a.limitFlag(c, 20)
	return c
}

func (a *app) listRuns(ctx context.Context, open bool) error {
	return a.teamCall(ctx, func(ctx context.Context, c teamv1.TeamServiceClient) error {
		all := &teamv1.ListRunsResponse{}
		err := pages(a.limit, func(size int32, token string) (int, string, error) {
			page, err := c.ListRuns(ctx, &teamv1.ListRunsRequest{Open: open, PageSize: size, PageToken: token})
			all.Runs = append(all.Runs, page.GetRuns()...)
			all.NextPageToken = page.GetNextPageToken()
			return len(page.GetRuns()), page.GetNextPageToken(), err
		})
		switch {
		case err != nil:
			return err
		case a.json:
			return view.JSON(a.stdout, all)
		}
		a.printer().Runs(all.GetRuns())
		return nil
	})
}

func teamCancelCommand(a *app) *cobra.Command {
	var o operatorFlags
	c := &cobra.Command{
		Use: "cancel RUN", Short: "Stop what is under way of a run, and end it as cancelled", Args: args(1, 1, teamHint),
		Long: `cancel orders the end of a run. Whoever coordinates it stops what is under way; then it is over. A host that does not answer is waited for:
muxpost team abandon does not wait.`,
		RunE: func(cmd *cobra.Command, given []string) error {
			return a.teamCall(cmd.Context(), func(ctx context.Context, c teamv1.TeamServiceClient) error {
				out, err := c.CancelRun(ctx, &teamv1.CancelRunRequest{Run: given[0], Who: a.by(o), Reason: o.reason})
				switch {
				case err != nil:
					return err
				case a.json:
					return view.JSON(a.stdout, out)
				case out.GetOrdered():
					a.say("the run %s is cancelled; what is under way is being stopped", out.GetRun().GetRunId())
				default:
					a.say("the run %s was ended before: %s", out.GetRun().GetRunId(), view.RunState(out.GetRun()))
				}
				return nil
			})
		},
	}
	c.Flags().StringVar(&o.reason, "reason", "", "why, for others to read")
	a.whoFlag(c, &o)
	a.jsonFlag(c)
	return c
}

func teamAbandonCommand(a *app) *cobra.Command {
	var o operatorFlags
	c := &cobra.Command{
		Use: "abandon RUN", Short: "End a run at once as failed, for one that nobody can go on with", Args: args(1, 1, teamHint),
		Long: `abandon ends a run at once, whoever coordinates it and whatever its hosts say, so that the team can have another. What is still under way of it
is stopped as soon as its host answers; nothing of its history or of its working directories is removed.`,
		RunE: func(cmd *cobra.Command, given []string) error {
			return a.teamCall(cmd.Context(), func(ctx context.Context, c teamv1.TeamServiceClient) error {
				out, err := c.AbandonRun(ctx, &teamv1.AbandonRunRequest{Run: given[0], Who: a.by(o), Reason: o.reason})
				switch {
				case err != nil:
					return err
				case a.json:
					return view.JSON(a.stdout, out)
				case out.GetAbandoned():
					a.say("the run %s is over: the team %s may have another", out.GetRun().GetRunId(), view.Clean(out.GetRun().GetTeam()))
				default:
					a.say("the run %s was over before: %s", out.GetRun().GetRunId(), view.RunState(out.GetRun()))
				}
				return nil
			})
		},
	}
	c.Flags().StringVar(&o.reason, "reason", "", "why, for others to read")
	a.whoFlag(c, &o)
	a.jsonFlag(c)
	return c
}

func teamLogsCommand(a *app) *cobra.Command {
	var number int32
	var prompt bool
	c := &cobra.Command{
		Use: "logs RUN TASK", Short: "Show what a task's agent wrote last, or was told", Args: args(2, 2, "a step is written with its @: muxpost team logs crew @verify"),
		RunE: func(cmd *cobra.Command, given []string) error {
			return a.teamCall(cmd.Context(), func(ctx context.Context, c teamv1.TeamServiceClient) error {
				log, err := c.GetLog(ctx, &teamv1.GetLogRequest{Run: given[0], TaskId: given[1], Number: number})
				switch {
				case err != nil:
					return err
				case a.json:
					return view.JSON(a.stdout, log)
				case log.GetProblem() != "":
					a.warn("%s", view.Clean(log.GetProblem()))
				}
				text := log.GetOutput()
				if prompt {
					text = log.GetPrompt()
				} else if log.GetAttempt().GetOutputCut() {
					a.warn("it showed more before this, of which nothing is kept")
				}
				a.printer().Text(text)
				return nil
			})
		},
	}
	c.Flags().Int32Var(&number, "number", 0, "which execution of the task (default the last)")
	c.Flags().BoolVar(&prompt, "prompt", false, "show what its agent was told")
	a.jsonFlag(c)
	return c
}
