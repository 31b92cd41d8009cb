// Command fakegithub serves package fakegithub on loopback, for demonstrations and for tests that need a process of its own. It
// knows only how to listen, seed and stop; everything else is the package's.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/test/fakegithub"
)

const (
	stopWithin    = 5 * time.Second
	headersWithin = 10 * time.Second
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		slog.New(slog.NewTextHandler(os.Stderr, nil)).Error("fakegithub stopped", "error", err)
		os.Exit(1)
	}
}

// run serves until ctx ends. The line on stdout comes after the listener is there, so who reads it can connect.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("fakegithub", flag.ContinueOnError)
	flags.SetOutput(stderr)
	listen := flags.String("listen", "127.0.0.1:0", "loopback `address` to listen on; port 0 picks a free one")
	seedFile := flags.String("seed", "", "JSON `file` with tokens, users and repos to begin with")
	requireToken := flags.Bool("require-token", false, "refuse API requests without a token")
	rate := flags.Int("rate-limit", 0, "API requests an hour for each login (default 5000)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fault.Newf(fault.Invalid, fault.ReasonBadArgument, "fakegithub takes flags only, not %q", flags.Arg(0))
	}
	server := fakegithub.New(fakegithub.Config{RequireToken: *requireToken, RateLimit: *rate})
	defer server.Close()
	listener, err := listenOnLoopback(*listen)
	if err != nil {
		return err
	}
	server.SetURL("http://" + listener.Addr().String())
	if err := seed(server, *seedFile); err != nil {
		return errors.Join(err, listener.Close())
	}
	web := &http.Server{Handler: server, ReadHeaderTimeout: headersWithin}
	served := make(chan error, 1)
	go func() { served <- web.Serve(listener) }()
	if _, err := fmt.Fprintf(stdout, "fakegithub listening on http://%s\n", listener.Addr()); err != nil {
		return errors.Join(err, web.Close())
	}
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	return shutDown(server, web, served)
}

func shutDown(server *fakegithub.Server, web *http.Server, served <-chan error) error {
	server.Close()
	ctx, cancel := context.WithTimeout(context.Background(), stopWithin)
	defer cancel()
	if err := web.Shutdown(ctx); err != nil {
		return errors.Join(err, web.Close())
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func seed(server *fakegithub.Server, file string) error {
	if file == "" {
		return nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return fault.Wrap(fault.Invalid, fault.ReasonBadArgument, "the seed file cannot be read", err)
	}
	parsed, err := fakegithub.ParseSeed(data)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return server.Load(parsed)
}

// listenOnLoopback takes literal addresses and localhost only: a name could come to mean another interface.
func listenOnLoopback(address string) (net.Listener, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, fault.ReasonBadArgument, "--listen wants host:port, such as 127.0.0.1:0", err)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return nil, fault.Newf(fault.Denied, fault.ReasonNotLoopback, "fakegithub has no protection and does not listen on %q", address).
			WithRemedy("use 127.0.0.1 or [::1]")
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fault.Wrap(fault.Unavailable, fault.ReasonAddressTaken, "fakegithub cannot listen on "+address, err)
	}
	if addr, ok := listener.Addr().(*net.TCPAddr); !ok || !addr.IP.IsLoopback() {
		return nil, errors.Join(fault.Newf(fault.Denied, fault.ReasonNotLoopback, "%s is not a loopback address here", address), listener.Close())
	}
	return listener, nil
}
