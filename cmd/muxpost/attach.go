package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"muxpost.dev/muxpost/cmd/muxpost/internal/stack"
	"muxpost.dev/muxpost/cmd/muxpost/internal/view"
	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/workitem"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
)

func attachCommand(a *app) *cobra.Command {
	var readOnly, show bool
	c := &cobra.Command{
		Use: "attach ITEM", Short: "Look at the agent of a work item, in its own terminal", Args: args(1, 1, ""),
		Long: `attach leads into the tmux session of the item's agent; the keys C-b d lead out again. What you type goes to the agent. Events
wait while you have text in its box.`,
		RunE: func(cmd *cobra.Command, given []string) error {
			return a.attach(cmd.Context(), given[0], readOnly, show)
		},
	}
	c.Flags().BoolVarP(&readOnly, "read-only", "r", false, "look only: what you type goes nowhere")
	c.Flags().BoolVar(&show, "print", false, "print the command instead of running it")
	return c
}

func (a *app) attach(ctx context.Context, item string, readOnly, show bool) error {
	ref, err := parseItem(item)
	if err != nil {
		return err
	}
	s, err := a.dial()
	if err != nil {
		return err
	}
	defer s.close()
	st := a.stack(s.Settings)
	socket, err := a.findSocket(ctx, s, st, ref)
	if err != nil {
		return err
	}
	argv := attachArgs(understood(s.Tmuxd.Tmux, socket), socket, ref.Target(), readOnly)
	if show {
		a.printer().Line("%s", strings.Join(quoted(argv), " "))
		return nil
	}
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return fault.Wrap(fault.NotFound, fault.ReasonTmuxMissing, "tmux is not installed or not on the PATH", err)
	}
	if !isTerminal(a.stdin) || !isTerminal(a.stdout) {
		return fault.New(fault.Invalid, fault.ReasonBadArgument, "attach needs a terminal").WithRemedy("--print shows the command instead")
	}
	// The session's server is not the one that this terminal may be in, so there is no nesting to be afraid of.
	env := slices.DeleteFunc(slices.Clone(a.environ), func(entry string) bool {
		return strings.HasPrefix(entry, "TMUX=") || strings.HasPrefix(entry, "TMUX_PANE=")
	})
	return become(path, argv, env)
}

// understood returns the tmux to attach with: the configured one, or what the server itself runs where an upgrade has replaced that.
func understood(tmux, socket string) string {
	own := stack.ServerProgram(socket)
	running, err := os.Stat(own)
	if err != nil {
		return tmux
	}
	// The name tells a tmux server from whoever else may listen there; its file may be gone.
	name, err := os.Readlink(own)
	if err != nil || filepath.Base(strings.TrimSuffix(name, " (deleted)")) != filepath.Base(tmux) {
		return tmux
	}
	if path, err := exec.LookPath(tmux); err == nil {
		if configured, err := os.Stat(path); err == nil && os.SameFile(running, configured) {
			return tmux
		}
	}
	return own
}

// findSocket returns the socket of an item's session on this host. The dispatcher's record is asked first; where it is away, the
// name of the socket follows from the item.
func (a *app) findSocket(ctx context.Context, s *services, st *stack.Stack, ref workitem.Ref) (string, error) {
	socket := st.Socket(ref.Target())
	all, err := s.sessions(ctx, ref.String(), 1, true)
	switch {
	case errors.Is(err, fault.Unavailable):
		a.warn("the dispatcher does not answer; looking for the session's socket on this host")
	case err != nil:
		return "", err
	case len(all.GetSessions()) > 0:
		record := all.GetSessions()[0]
		if err := onThisHost(s, record); err != nil {
			return "", err
		}
		if record.GetSocketPath() != "" {
			socket = record.GetSocketPath()
		}
	}
	switch stack.Listens(socket) {
	case stack.Nobody:
		return "", fault.Newf(fault.NotFound, fault.ReasonSessionNotFound, "no agent of %s runs on this host", ref).
			WithRemedy("an event starts one, with its earlier conversation if there was one: muxpost send " + view.Quote(ref.String()) + ` "..."`)
	case stack.Silence:
		return "", fault.Newf(fault.Unavailable, fault.ReasonTmuxNoAnswer, "the socket %s cannot be reached", socket).
			WithRemedy("run this as the user that tmuxd runs as")
	case stack.Somebody:
	}
	return socket, nil
}

// onThisHost checks that a session is where this command runs.
func onThisHost(s *services, record *dispatcherv1.Session) error {
	if record.GetHost() == "" || record.GetHost() == s.Tmuxd.Host {
		return nil
	}
	command := strings.Join(quoted(attachArgs("tmux", record.GetSocketPath(), record.GetTarget(), false)), " ")
	return fault.Newf(fault.Conflict, "", "the session lives on the host %s, and this is %s", record.GetHost(), s.Tmuxd.Host).
		WithRemedy("there, run muxpost attach " + view.Quote(record.GetWorkItem()) + " or " + command)
}

// attachArgs is the command that leads into a session. With -N it never starts a server.
func attachArgs(tmux, socket, target string, readOnly bool) []string {
	argv := []string{tmux, "-N", "-S", socket, "attach"}
	if readOnly {
		argv = append(argv, "-r")
	}
	return append(argv, "-t", "="+target+":")
}
