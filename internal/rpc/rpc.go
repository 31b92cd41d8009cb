// Package rpc is the edge between our code and the wire. Servers and clients built here look alike everywhere: faults cross
// the wire and come out as faults, panics become faults, failed calls are logged once, traces go on, health and reflection
// are served, and a stop is graceful first and forced then.
//
// There are two servers: one for gRPC alone, and one on connect whose single port answers gRPC, gRPC-Web and JSON over HTTP.
// One grpc-go client calls both. The package knows no service and no message of ours, and nothing of who may call what: it
// only asks the Authorize function it is given.
package rpc

import (
	"cmp"
	"context"
	"crypto/tls"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// The bounds that hold unless an option says otherwise.
const (
	// DefaultMaxMessageBytes is the largest message that is taken or sent.
	DefaultMaxMessageBytes = 8 << 20
	// DefaultMaxCalls is how many calls, and as many streams, may be under way: far more than replicas and people have, and few enough that
	// what they hold stays within some hundred MiB.
	DefaultMaxCalls = 1000
	// DefaultStopTimeout is how long calls in flight may go on once a server is told to stop. It is shorter than what
	// run.Group allows, so that the forced end is the server's own.
	DefaultStopTimeout = 8 * time.Second
	// DefaultCallTimeout is the deadline of a call whose context has none.
	DefaultCallTimeout = 30 * time.Second
)

// Options describe a server. The zero value is a server without telemetry, without TLS, open to whoever reaches it.
type Options struct {
	// Logger takes one line for each failed call; nil discards them.
	Logger *slog.Logger
	// TracerProvider starts the spans of calls; nil starts none.
	TracerProvider trace.TracerProvider
	// MeterProvider takes the durations of calls; nil takes none.
	MeterProvider metric.MeterProvider
	// TLS is the server's certificate and what it asks of clients; nil means plain text.
	TLS *tls.Config
	// Authorize is asked before every call, health and reflection included. It returns the context that the call goes on
	// with, or a fault of kind Unauthenticated or Denied. Nil allows everything.
	Authorize func(context.Context, Call) (context.Context, error)
	// Amend is shown every request before its handler is, with the context that Authorize returned, and may change it: what a request says of
	// who made it is for whoever checked that to say. Nil changes nothing.
	Amend func(ctx context.Context, request any)
	// MaxMessageBytes is the largest message taken; DefaultMaxMessageBytes when 0.
	MaxMessageBytes int
	// MaxCalls is how many calls may be under way, and how many streams; DefaultMaxCalls when 0. One more is fault.Throttled.
	MaxCalls int
	// StopTimeout bounds the graceful part of a stop; DefaultStopTimeout when 0.
	StopTimeout time.Duration
	// AllowedHosts are names, without ports, that a connect server on a loopback address answers to besides the loopback
	// names. Names that any web page could point at this machine must not be among them.
	AllowedHosts []string
}

// Call is what is known of a call before its message is read.
type Call struct {
	// Method is the full name, such as "/muxpost.poller.v1.PollerService/ListItems".
	Method string
	// Peer is the caller's address as the transport gives it; empty for a unix socket.
	Peer string
	// Authorization is the value of the header or metadata of that name.
	Authorization string
	// TLS is the state of the connection, with the client's verified certificate; nil in plain text.
	TLS *tls.ConnectionState
}

func (o Options) withDefaults() Options {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.TracerProvider == nil {
		o.TracerProvider = noop.NewTracerProvider()
	}
	if o.Authorize == nil {
		o.Authorize = func(ctx context.Context, _ Call) (context.Context, error) { return ctx, nil }
	}
	if o.Amend == nil {
		o.Amend = func(context.Context, any) {}
	}
	o.MaxMessageBytes = cmp.Or(o.MaxMessageBytes, DefaultMaxMessageBytes)
	o.MaxCalls = cmp.Or(o.MaxCalls, DefaultMaxCalls)
	o.StopTimeout = cmp.Or(o.StopTimeout, DefaultStopTimeout)
	return o
}
