// Command muxpost is what an operator works with: it starts and stops the services of this machine, sends events, lists what
// there is, says what became of an event and why, and leads a person into an agent's session.
//
// This package reads the command line and asks the services; what they answer is theirs. How things are written is
// internal/view's, how services are started internal/stack's, what the configuration says the package internal/settings'.
package main

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/layout"
	"muxpost.dev/muxpost/internal/run"
	"muxpost.dev/muxpost/internal/version"
)

func main() {
	run.Main("muxpost", func(ctx context.Context) error {
		a := newApp(os.Stdin, os.Stdout, os.Stderr)
		root := newRoot(a)
		root.SetArgs(os.Args[1:])
		return root.ExecuteContext(ctx)
	})
}

const longHelp = `muxpost carries events (a comment, a review, a message) to the coding agents that own the work, where those agents are
programs in tmux sessions.

A work item is written github:owner/repo#number, or as the address of its issue. Start with:

  muxpost up                                        start everything on this machine
  muxpost send github:octo/widget#7 "please look"   start an agent for an item, or tell its agent something
  muxpost attach github:octo/widget#7               look at the agent (leave with the keys C-b d)
  muxpost status                                    see what runs and what waits
  muxpost attention                                 see what needs a person
  muxpost console                                   see all of it in a browser
  muxpost doctor                                    find out what is wrong

A flag goes before the configuration file, and the file before the environment (MUXPOST_CONFIG, MUXPOST_DATA_DIR,
MUXPOST_DATABASE_URL, MUXPOST_TOKEN_FILE), which only fills in what the file leaves out.

Exit codes: 0 done, 1 failed, 2 the command line or the configuration is wrong, 3 something that is needed does not answer.`

// newRoot returns the command with all that is below it.
func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use: "muxpost", Short: "muxpost carries events to coding agents in tmux", Long: longHelp,
		Version: version.String(), SilenceUsage: true, SilenceErrors: true, CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			bad := fault.Newf(fault.Invalid, fault.ReasonBadArgument, "there is no command %q", args[0])
			if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
				return bad.WithRemedy("did you mean muxpost " + near[0] + "? muxpost --help lists the commands")
			}
			return bad.WithRemedy("muxpost --help lists the commands")
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetVersionTemplate("muxpost {{.Version}}\n")
	root.SuggestionsMinimumDistance = 2
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fault.New(fault.Invalid, fault.ReasonBadArgument, err.Error()).WithRemedy(cmd.CommandPath() + " --help lists the flags")
	})
	root.PersistentFlags().StringVar(&a.where.File, "config", "", "configuration `FILE` (default $"+layout.ConfigVariable+
		", else muxpost.yaml in the data directory)")
	root.PersistentFlags().StringVar(&a.where.DataDir, "data-dir", "", "data `DIR` (default data_dir in the configuration, else $"+layout.DataDirVariable+
		", else /var/lib/muxpost for root, ~/.local/share/muxpost otherwise)")
	for _, group := range []struct {
		id, title string
		commands  []*cobra.Command
	}{
		{"run", "Run it:", []*cobra.Command{upCommand(a), downCommand(a), statusCommand(a), consoleCommand(a), doctorCommand(a), healthCommand(a), migrateCommand(a), caCommand(a), tokensCommand(a)}},
		{"work", "Work with it:", []*cobra.Command{sendCommand(a), attachCommand(a), stopCommand(a), closeCommand(a), adoptCommand(a), pollCommand(a), pauseCommand(a), unpauseCommand(a),
			unparkCommand(a), retryCommand(a), doneCommand(a), cancelCommand(a), linkCommand(a), workspacesCommand(a), hostsCommand(a), teamCommand(a)}},
		{"see", "See what happened:", []*cobra.Command{
			attentionCommand(a), explainCommand(a), traceCommand(a), ledgerCommand(a), deliveriesCommand(a), sessionsCommand(a), linksCommand(a), harnessesCommand(a),
			eventsCommand(a), sourcesCommand(a), drillCommand(a),
		}},
	} {
		root.AddGroup(&cobra.Group{ID: group.id, Title: group.title})
		for _, c := range group.commands {
			c.GroupID = group.id
			root.AddCommand(c)
		}
	}
	root.AddCommand(versionCommand(a))
	strictHelp(root)
	return root
}

// strictHelp has "muxpost help X" refuse an X that is no command, as "muxpost X" does. cobra's own shows the general help and succeeds.
func strictHelp(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	for _, c := range root.Commands() {
		if c.Name() != "help" {
			continue
		}
		show := c.Run
		c.Run, c.RunE = nil, func(cmd *cobra.Command, names []string) error {
			found, rest, err := root.Find(names)
			if err == nil && found.HasSubCommands() && found.Args != nil {
				err = found.Args(found, rest)
			}
			if err != nil {
				return err
			}
			show(cmd, names)
			return nil
		}
	}
}

func versionCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use: "version", Short: "Print the version", Args: args(0, 0, ""),
		RunE: func(*cobra.Command, []string) error {
			if a.json {
				return a.values(version.Get())
			}
			a.printer().Line("muxpost %s", version.String())
			return nil
		},
	}
	a.jsonFlag(c)
	return c
}
