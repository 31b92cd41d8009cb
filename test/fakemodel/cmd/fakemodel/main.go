// Command fakemodel serves package fakemodel on loopback, for tests that need a process of its own and for people who want to watch an
// agent without a model. It knows only how to listen, log and stop; everything else is the package's.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/test/fakemodel"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		slog.New(slog.NewTextHandler(os.Stderr, nil)).Error("fakemodel stopped", "error", err)
		os.Exit(1)
	}
}

// run serves until ctx ends. The line on stdout comes after the listener is there, so who reads it can connect.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("fakemodel", flag.ContinueOnError)
	flags.SetOutput(stderr)
	listen := flags.String("listen", "127.0.0.1:0", "loopback `address` to listen on; port 0 picks a free one")
	logFile := flags.String("log", "", "`file` to which what the model receives is appended, as lines of JSON")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fault.Newf(fault.Invalid, fault.ReasonBadArgument, "fakemodel takes flags only, not %q", flags.Arg(0))
	}
	cfg := fakemodel.Config{Listen: *listen}
	if *logFile != "" {
		f, err := os.OpenFile(*logFile, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err != nil {
			return fault.Wrap(fault.Invalid, fault.ReasonBadArgument, "the log cannot be opened", err)
		}
		defer f.Close()
		cfg.Log = f
	}
	server, err := fakemodel.Start(cfg)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(stdout, server.URL()); err != nil {
		return errors.Join(err, server.Close())
	}
	<-ctx.Done()
	return server.Close()
}
