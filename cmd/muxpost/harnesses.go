package main

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"muxpost.dev/muxpost/cmd/muxpost/internal/view"
	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/layout"
	tmuxdv1 "muxpost.dev/muxpost/proto/gen/muxpost/tmuxd/v1"
)

// versionsTime bounds a question for which tmuxd may run the harnesses' programs; it gives each of them ten seconds.
const versionsTime = 20 * time.Second

func harnessesCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use: "harnesses", Short: "List the programs that can run agents, and what each can do", Args: args(0, 0, ""),
		Long: `harnesses lists the entries of the host's harness table: whether the program is there and its version, whether it can resume a
conversation, how its first prompt reaches it and how what comes after does, whether it runs tasks, where the id of a conversation comes from, and which keys of the entry
were never tried on the real program. For its version a program is run with --version, once after each installation.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := a.dial()
			if err != nil {
				return err
			}
			defer s.close()
			info, err := s.harnessInfo(cmd.Context())
			if err != nil {
				return err
			}
			if a.json {
				return view.JSON(a.stdout, info)
			}
			a.printer().Harnesses(info.GetHarnesses(), s.Dispatcher.Harness)
			return nil
		},
	}
	a.jsonFlag(c)
	return c
}

// harnessInfo asks tmuxd for itself and for the versions of its harnesses.
func (s *services) harnessInfo(ctx context.Context) (*tmuxdv1.InfoResponse, error) {
	conn, err := s.conn(layout.Tmuxd)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, versionsTime)
	defer cancel()
	info, err := tmuxdv1.NewTmuxdServiceClient(conn).Info(ctx, &tmuxdv1.InfoRequest{HarnessVersions: true})
	return info, s.explained(layout.Tmuxd, err)
}

// canStart refuses the name of a harness whose table has no such entry, or one that runs no sessions, or whose program is not there. A tmuxd that does
// not answer refuses nothing: its own answer at the start decides.
func (s *services) canStart(ctx context.Context, name string) error {
	conn, err := s.conn(layout.Tmuxd)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	info, err := tmuxdv1.NewTmuxdServiceClient(conn).Info(ctx, &tmuxdv1.InfoRequest{})
	if err != nil {
		return nil
	}
	var can []string
	for _, h := range info.GetHarnesses() {
		switch {
		case h.GetName() != name:
			if h.GetRunsSessions() && h.GetBinary() != "" {
				can = append(can, h.GetName())
			}
		case !h.GetRunsSessions():
			return fault.Newf(fault.Invalid, fault.ReasonUnknownHarness, "the harness %s runs tasks alone, not sessions", name).
				WithRemedy("muxpost harnesses lists those that do")
		case h.GetBinary() == "":
			return fault.Newf(fault.Invalid, fault.ReasonUnknownHarness, "the program of the harness %s was not found on %s", name, info.GetHost()).
				WithRemedy("install it there, or name it in tmuxd.harnesses." + name + ".binary and restart tmuxd")
		default:
			return nil
		}
	}
	remedy := "muxpost harnesses lists what there is"
	if len(can) > 0 {
		remedy = "it can start " + strings.Join(can, ", ") + "; " + remedy
	}
	return fault.Newf(fault.Invalid, fault.ReasonUnknownHarness, "the table of %s has no harness %q", info.GetHost(), name).WithRemedy(remedy)
}
