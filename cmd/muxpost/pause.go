package main

import (
	"cmp"
	"context"
	"fmt"
	"os/user"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	"muxpost.dev/muxpost/cmd/muxpost/internal/attention"
	"muxpost.dev/muxpost/cmd/muxpost/internal/view"
	"muxpost.dev/muxpost/core/fault"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
)

// operatorFlags are those of commands by which an operator says something that is kept.
type operatorFlags struct {
	all         bool
	reason, who string
}

func (a *app) whoFlag(c *cobra.Command, o *operatorFlags) {
	c.Flags().StringVar(&o.who, "by", "", "who says it, for others to read (default the name of this user)")
}

// by is who gives a command, as far as it is known.
func (a *app) by(o operatorFlags) string {
	who := cmp.Or(o.who, a.where.Getenv("SUDO_USER"), a.where.Getenv("LOGNAME"), a.where.Getenv("USER"))
	if me, err := user.Current(); who == "" && err == nil {
		return me.Username // cron and containers set none of them
	}
	return who
}

// scope reads what a command pauses or unpauses: a work item, or all with --all. One of the two must be said.
func (o operatorFlags) scope(command string, given []string) (string, error) {
	if (len(given) == 0) != o.all {
		return "", fault.New(fault.Invalid, fault.ReasonBadArgument, "say either a work item or --all, and not both").
			WithRemedy(fmt.Sprintf("muxpost %[1]s github:owner/repo#number, or muxpost %[1]s --all", command))
	}
	return itemOf(given)
}

func pauseCommand(a *app) *cobra.Command {
	var o operatorFlags
	c := &cobra.Command{
		Use: "pause ITEM | --all", Short: "Hold back the events of a work item, or of all, until unpause; nothing is lost",
		Args: args(0, 1, "name one work item, or say --all"),
		Long: `pause has the dispatcher begin no delivery: nothing is started and nothing is typed. What is under way is finished. Events wait in the
ledger and go in by themselves after muxpost unpause, within about a minute. Runs of teams hand out no task: all of them, or those that are for
the work item. A pause survives restarts.`,
		Example: `  muxpost pause --all --reason "new release of the agent"
  muxpost pause github:octo/widget#7`,
		RunE: func(cmd *cobra.Command, given []string) error { return a.pause(cmd.Context(), given, o) },
	}
	c.Flags().BoolVar(&o.all, "all", false, "the events of all work items")
	c.Flags().StringVar(&o.reason, "reason", "", "why, for others to read")
	a.whoFlag(c, &o)
	a.jsonFlag(c)
	return c
}

func (a *app) pause(ctx context.Context, given []string, o operatorFlags) error {
	item, err := o.scope("pause", given)
	if err != nil {
		return err
	}
	s, err := a.dial()
	if err != nil {
		return err
	}
	defer s.close()
	var answer *dispatcherv1.PauseResponse
	err = s.dispatcher(ctx, func(ctx context.Context, c dispatcherv1.DispatcherServiceClient) (err error) {
		answer, err = c.Pause(ctx, &dispatcherv1.PauseRequest{WorkItem: item, All: o.all, Reason: o.reason, Who: a.by(o)})
		return err
	})
	if err != nil {
		return err
	}
	if a.json {
		return view.JSON(a.stdout, answer)
	}
	p := a.printer()
	if answer.GetExisted() {
		p.Line("it was paused already and stays so: %s", p.PauseLine(answer.GetPause()))
	} else {
		p.Line("%s; what is under way is finished, and nothing else is begun", p.PauseLine(answer.GetPause()))
	}
	p.Line("  muxpost unpause %s   ends it", attention.Scope(answer.GetPause()))
	return nil
}

func unpauseCommand(a *app) *cobra.Command {
	var o operatorFlags
	c := &cobra.Command{
		Use: "unpause ITEM | --all", Short: "End a pause, so that events go in again",
		Args: args(0, 1, "name one work item, or say --all"),
		Long: `unpause ends the pause of a work item, or with --all the one of all. The pauses of single work items stand beside that of all, and
each is ended by itself. Events that waited are looked at within about a minute.`,
		RunE: func(cmd *cobra.Command, given []string) error { return a.unpause(cmd.Context(), given, o) },
	}
	c.Flags().BoolVar(&o.all, "all", false, "the pause of all work items")
	a.whoFlag(c, &o)
	a.jsonFlag(c)
	return c
}

func (a *app) unpause(ctx context.Context, given []string, o operatorFlags) error {
	item, err := o.scope("unpause", given)
	if err != nil {
		return err
	}
	s, err := a.dial()
	if err != nil {
		return err
	}
	defer s.close()
	var answer *dispatcherv1.UnpauseResponse
	err = s.dispatcher(ctx, func(ctx context.Context, c dispatcherv1.DispatcherServiceClient) (err error) {
		answer, err = c.Unpause(ctx, &dispatcherv1.UnpauseRequest{WorkItem: item, All: o.all, Who: a.by(o)})
		return err
	})
	if err != nil {
		return err
	}
	if a.json {
		return view.JSON(a.stdout, answer)
	}
	left, err := s.pauses(ctx)
	if err != nil {
		return err
	}
	unpaused(a.printer(), answer.GetPause(), left.GetPauses(), o.all)
	return nil
}

// unpaused says which pause was ended, if there was one, and which of those that are left concern who ended it.
func unpaused(p view.Printer, ended *dispatcherv1.Pause, left []*dispatcherv1.Pause, all bool) {
	if ended == nil {
		p.Line("it was not paused")
	} else {
		p.Line("ended: the pause of %s, which stood%s", cmp.Or(view.Clean(ended.GetWorkItem()), "all work items"), p.PauseStory(ended))
	}
	still := slices.DeleteFunc(slices.Clone(left), func(pause *dispatcherv1.Pause) bool { return !all && pause.GetWorkItem() != "" })
	for _, pause := range still {
		p.Line("%s", p.Paint(view.Warn, "still: "+p.PauseLine(pause)+" (muxpost unpause "+attention.Scope(pause)+")"))
	}
	if ended != nil && (all || len(still) == 0) {
		p.Line("  what waited goes in within about a minute")
	}
}

// pauses lists all pauses.
func (s *services) pauses(ctx context.Context) (*dispatcherv1.ListPausesResponse, error) {
	all := &dispatcherv1.ListPausesResponse{}
	return all, s.dispatcher(ctx, func(ctx context.Context, c dispatcherv1.DispatcherServiceClient) error {
		return pages(0, func(size int32, token string) (int, string, error) {
			page, err := c.ListPauses(ctx, &dispatcherv1.ListPausesRequest{PageSize: size, PageToken: token})
			all.Pauses = append(all.Pauses, page.GetPauses()...)
			all.Shadow = page.GetShadow()
			return len(page.GetPauses()), page.GetNextPageToken(), err
		})
	})
}

// shownPauses is how many pauses a status shows to a person.
const shownPauses = 10

type pauseReport struct {
	WorkItem string     `json:"work_item"` // empty for all
	Reason   string     `json:"reason,omitempty"`
	Who      string     `json:"who,omitempty"`
	Since    *time.Time `json:"since"`
}

// wire is the pause as the dispatcher tells it.
func (r pauseReport) wire() *dispatcherv1.Pause {
	out := &dispatcherv1.Pause{WorkItem: r.WorkItem, Reason: r.Reason, Who: r.Who}
	if r.Since != nil {
		out.CreateTime = timestamppb.New(*r.Since)
	}
	return out
}

func (r *report) readPauses(ctx context.Context, s *services) {
	all, err := s.pauses(ctx)
	if err != nil {
		r.Problems = append(r.Problems, "pauses: "+messageOf(err))
		return
	}
	r.Shadow = all.GetShadow()
	for _, p := range all.GetPauses() {
		r.Pauses = append(r.Pauses, pauseReport{
			WorkItem: p.GetWorkItem(), Reason: p.GetReason(), Who: p.GetWho(), Since: timeOf(p.GetCreateTime()),
		})
	}
}

// printPauses says what is switched off by people, before anything else.
func (r report) printPauses(p view.Printer) {
	if r.Shadow {
		p.Line("%s  the dispatcher runs in shadow mode: it looks and decides, and starts and types nothing", p.Paint(view.Bad, "SHADOW"))
	}
	for i, pause := range r.Pauses {
		if i == shownPauses {
			p.Line("%s  and %d more: muxpost status --json", p.Paint(view.Bad, "PAUSED"), len(r.Pauses)-i)
			break
		}
		wire := pause.wire()
		p.Line("%s  %s (muxpost unpause %s)", p.Paint(view.Bad, "PAUSED"), p.PauseLine(wire), attention.Scope(wire))
	}
}
