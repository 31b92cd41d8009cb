package main

import (
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"muxpost.dev/muxpost/core/fault"
)

// drillProgram is a program of its own: what breaks things is no part of this one.
const drillProgram = "muxpost-drill"

func drillCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "drill [FLAGS]", Short: "Break things around an installation of its own on this machine, and count what arrives", DisableFlagParsing: true,
		Long: `drill starts a fleet of its own from these programs, with a database and a server that speaks GitHub's API: nothing of your installation
is used or touched. As root, its hosts are network namespaces with disks of their own. Its last line says what went wrong, and it fails unless
that is nothing. muxpost drill --help lists the flags: -seed repeats a run, -time makes it longer, -shrink looks for the faults that matter.`,
		RunE: func(_ *cobra.Command, given []string) error {
			program := filepath.Join(a.where.BinDir, drillProgram)
			if _, err := os.Stat(program); err != nil {
				return fault.Wrap(fault.NotFound, fault.ReasonBadArgument, drillProgram+" is not beside muxpost", err).
					WithRemedy("make build makes it; releases may come without it")
			}
			return become(program, append([]string{drillProgram}, given...), a.environ)
		},
	}
}
