package access

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"muxpost.dev/muxpost/internal/identity"
	"muxpost.dev/muxpost/internal/obs/scrape"
	"muxpost.dev/muxpost/internal/rpc"
	"muxpost.dev/muxpost/internal/run"
)

// Config describes the operator API of a service.
type Config struct {
	// Listen is where this machine reaches it.
	Listen string
	// Remote is where other machines reach it, with the certificate in Files; empty for nowhere.
	Remote         string
	Files          identity.Files
	Tokens         Tokens
	Logger         *slog.Logger
	TracerProvider trace.TracerProvider
	MeterProvider  metric.MeterProvider
	// Metrics is the page with the metrics, for Prometheus; nil for none.
	Metrics http.Handler
	// StopTimeout is as rpc.Options'.
	StopTimeout time.Duration
}

// API is the operator API of a service with its doors.
type API struct {
	names   []string
	servers []*rpc.ConnectServer
	doors   []net.Listener
}

// Open opens the doors; register adds the services to each server. Nothing is answered before Join's group runs.
func Open(c Config, register func(*rpc.ConnectServer)) (api *API, err error) {
	api = &API{}
	defer func() {
		if err != nil {
			_ = api.Close() // nothing was answered
		}
	}()
	options := rpc.Options{Logger: c.Logger, TracerProvider: c.TracerProvider, MeterProvider: c.MeterProvider, StopTimeout: c.StopTimeout}
	guard := Guard{Tokens: c.Tokens, Logger: c.Logger, Now: time.Now, Local: true}
	options.Authorize, options.Amend = guard.Authorize, guard.Amend
	whole := func(s *rpc.ConnectServer) {
		register(s)
		if c.Metrics != nil {
			s.Page(scrape.Path, c.Metrics)
		}
	}
	if err := api.open("server", c.Listen, rpc.Listen, options, whole); err != nil || c.Remote == "" {
		return api, err
	}
	guard.Local = false
	options.Authorize, options.Amend = guard.Authorize, guard.Amend
	// Whoever has a certificate may connect. What he may call is the guard's to say, with a remedy, which a handshake could not give.
	if options.TLS, err = c.Files.OpenServer(func(identity.ID) bool { return true }); err != nil {
		return api, err
	}
	return api, api.open("server for other machines", c.Remote, rpc.ListenTLS, options, whole)
}

func (a *API) open(name, address string, listen func(string) (net.Listener, error), options rpc.Options, register func(*rpc.ConnectServer)) error {
	server, err := rpc.NewConnectServer(options)
	if err != nil {
		return err
	}
	listener, err := listen(address)
	if err != nil {
		return err
	}
	register(server)
	a.names, a.servers, a.doors = append(a.names, name), append(a.servers, server), append(a.doors, listener)
	return nil
}

// Join has the doors answer as long as the group runs.
func (a *API) Join(group *run.Group) {
	for i, server := range a.servers {
		group.Add(a.names[i], func(ctx context.Context) error { return server.Serve(ctx, a.doors[i]) })
	}
}

// Addresses are where it listens: first for this machine.
func (a *API) Addresses() (out []string) {
	for _, d := range a.doors {
		out = append(out, d.Addr().String())
	}
	return out
}

// Set says at every door whether a service serves, as rpc.Health does.
func (a *API) Set(service string, serving bool) {
	for _, server := range a.servers {
		server.Health().Set(service, serving)
	}
}

// Close closes the doors of an API that never answered.
func (a *API) Close() error {
	var all error
	for _, d := range a.doors {
		all = errors.Join(all, d.Close())
	}
	return all
}
