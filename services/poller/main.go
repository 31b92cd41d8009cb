// Command muxpost-poller watches sources for events and keeps the ledger that they stand in until each has ended: it
// reads GitHub, takes events by hand, and hands what is due to the dispatcher.
//
// This package composes its parts and knows nothing else. With --once it does one round and exits, as from cron.
package main

import (
	"context"
	"flag"
	"io"
	"os"

	"muxpost.dev/muxpost/internal/layout"
	"muxpost.dev/muxpost/internal/run"
	"muxpost.dev/muxpost/internal/settings"
	"muxpost.dev/muxpost/internal/version"
)

func main() {
	run.Main("muxpost-poller", func(ctx context.Context) error {
		return program(ctx, os.Args[1:], settings.Here(), os.Stdout, os.Stderr)
	})
}

const onceHelp = `  --once            look at every source once, deliver what is due, and exit:
                    0 done, 1 a source could not be read, 2 bad configuration,
                    3 the database or the dispatcher does not answer
                    Where neither the configuration nor the environment names a
                    database, it is the one that muxpost up keeps in the data
                    directory, as long as that runs
`

// program is main with its surroundings as values.
func program(ctx context.Context, args []string, here settings.Where, stdout, stderr io.Writer) error {
	var once bool
	command := settings.Program{
		Service: layout.Poller, About: "watches GitHub for events and hands them to the dispatcher.", FlagsHelp: onceHelp,
		Flags: func(f *flag.FlagSet) { f.BoolVar(&once, "once", false, "") },
	}
	where, text, err := command.Parse(args, here)
	if err != nil || text != "" {
		_, _ = io.WriteString(stdout, text) // whoever closed it does not want to know
		return err
	}
	s, err := settings.LoadService(where, layout.Poller)
	if err != nil {
		return err
	}
	p, err := assemble(ctx, s, buildOf(version.Get()), stderr)
	if err != nil {
		return err
	}
	defer p.close(ctx)
	if once {
		return p.once(ctx, stdout)
	}
	return p.serve(ctx, s.Poller)
}
