// Command muxpost-poller watches sources for events and keeps the ledger that they stand in until each has ended: it
// reads GitHub, takes events by hand, and hands what is due to the dispatcher.
//
// This package composes its parts and knows nothing else. With --once it does one round and exits, as from cron.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/layout"
	"muxpost.dev/muxpost/internal/run"
	"muxpost.dev/muxpost/internal/version"
)

func main() {
	run.Main("muxpost-poller", func(ctx context.Context) error {
		return program(ctx, os.Args[1:], os.Stdout, os.Stderr)
	})
}

const usage = `The poller watches GitHub for events and hands them to the dispatcher.

Usage: muxpost-poller [flags]

  --config FILE     configuration, section "poller" (or MUXPOST_CONFIG);
                    else muxpost.yaml in the data directory, else defaults
  --data-dir DIR    where traces are kept (or MUXPOST_DATA_DIR); overrides
                    poller.data_dir
  --once            look at every source once, deliver what is due, and exit:
                    0 done, 1 a source could not be read, 2 bad configuration,
                    3 the database or the dispatcher does not answer
  --version         print the version
  --help            print this
`

// options are the command line.
type options struct {
	config, dataDir     string
	once, version, help bool
}

func parseOptions(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("muxpost-poller", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.Usage = func() {}
	flags.StringVar(&o.config, "config", os.Getenv(layout.ConfigVariable), "")
	flags.StringVar(&o.dataDir, "data-dir", os.Getenv(layout.DataDirVariable), "")
	flags.BoolVar(&o.once, "once", false, "")
	flags.BoolVar(&o.version, "version", false, "")
	err := flags.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		o.help = true
		return o, nil
	}
	if err == nil && flags.NArg() > 0 {
		err = fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if err != nil {
		return o, fault.New(fault.Invalid, fault.ReasonBadArgument, err.Error()).WithRemedy("run muxpost-poller --help")
	}
	return o, nil
}

// program is main with its surroundings as values.
func program(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parseOptions(args)
	switch {
	case err != nil:
		return err
	case o.help:
		_, err := io.WriteString(stdout, usage)
		return err
	case o.version:
		_, err := fmt.Fprintln(stdout, "muxpost-poller", version.String())
		return err
	}
	c, err := loadConfig(o.config, o.dataDir)
	if err != nil {
		return err
	}
	p, err := assemble(ctx, c, stderr)
	if err != nil {
		return err
	}
	defer p.close(ctx)
	if o.once {
		return p.once(ctx, stdout)
	}
	return p.serve(ctx, c)
}
