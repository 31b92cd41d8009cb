package rpc

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/obs"
	"muxpost.dev/muxpost/internal/version"
)

// DialOptions describe a client.
type DialOptions struct {
	// Name is who is called, for messages, such as "the dispatcher"; "the service" when empty.
	Name string
	// Silent is the reason of the fault when nobody answers, such as fault.ReasonDispatcherSilent.
	Silent fault.Reason
	// TracerProvider starts the spans of calls; nil starts none, and passes none on.
	TracerProvider trace.TracerProvider
	// MeterProvider takes the durations of calls; nil takes none.
	MeterProvider metric.MeterProvider
	// TLS names the authorities and our certificate; nil means plain text.
	TLS *tls.Config
	// Credentials are sent with every call, such as a bearer token; nil sends none.
	Credentials credentials.PerRPCCredentials
	// Timeout is the deadline of a call whose context has none, streams excepted; DefaultCallTimeout when 0.
	Timeout time.Duration
	// MaxMessageBytes is the largest message taken or sent; DefaultMaxMessageBytes when 0.
	MaxMessageBytes int
}

// Dial returns a client of a server of either kind, at "host:port" or "unix:/path". It does not connect yet: the first call
// does, and fails at once when nobody answers, unless it is made with grpc.WaitForReady. Every error of a call is a fault;
// one that the server sent is as it was there. The caller closes the client.
func Dial(target string, options DialOptions) (*grpc.ClientConn, error) {
	options.Name = cmp.Or(options.Name, "the service")
	if !isTarget(target) {
		return nil, fault.Newf(fault.Invalid, fault.ReasonBadConfig, "cannot call %s: %q is not an address", options.Name, target).
			WithRemedy("write it as 127.0.0.1:7001 or unix:/path/to/socket")
	}
	options.Timeout = cmp.Or(options.Timeout, DefaultCallTimeout)
	options.MaxMessageBytes = cmp.Or(options.MaxMessageBytes, DefaultMaxMessageBytes)
	c := caller{target: target, options: options, took: asked(meterOf(options.MeterProvider))}
	dial := []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithChainUnaryInterceptor(c.unary),
		grpc.WithChainStreamInterceptor(c.stream),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(options.MaxMessageBytes), grpc.MaxCallSendMsgSize(options.MaxMessageBytes)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: clientPing, Timeout: pingTimeout, PermitWithoutStream: true}),
		// The usual backoff grows to two minutes, which is how long a restarted service would seem to be gone.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 3 * time.Second},
			MinConnectTimeout: pingTimeout,
		}),
		grpc.WithUserAgent("muxpost/" + cmp.Or(version.Get().Version, "devel")),
		grpc.WithDisableServiceConfig(),
		grpc.WithNoProxy(),
	}
	if options.TLS != nil {
		dial = append(dial, grpc.WithTransportCredentials(credentials.NewTLS(options.TLS)))
	}
	if options.TracerProvider != nil {
		dial = append(dial, grpc.WithStatsHandler(clientTracing(options.TracerProvider)))
	}
	if options.Credentials != nil {
		dial = append(dial, grpc.WithPerRPCCredentials(options.Credentials))
	}
	conn, err := grpc.NewClient(target, dial...)
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, fault.ReasonBadConfig, "cannot call "+options.Name+" at "+target, err)
	}
	return conn, nil
}

// isTarget reports whether a client can be made for a target: grpc-go takes everything and fails at the first call.
func isTarget(target string) bool {
	if path, ok := strings.CutPrefix(target, unixScheme); ok {
		return path != ""
	}
	host, port, err := net.SplitHostPort(target)
	if err != nil || host == "" {
		return false
	}
	number, err := strconv.ParseUint(port, 10, 16)
	return err == nil && number > 0
}

// caller is what a client does around every call.
type caller struct {
	target  string
	options DialOptions
	took    *obs.Histogram
}

func (c caller) unary(ctx context.Context, method string, request, answer any, conn *grpc.ClientConn,
	invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.options.Timeout)
		defer cancel()
	}
	begun := time.Now()
	err := invoke(ctx, method, request, answer, conn, options...)
	measure(ctx, c.took, method, status.Convert(err), begun)
	return c.fault(err)
}

func (c caller) stream(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string,
	open grpc.Streamer, options ...grpc.CallOption) (grpc.ClientStream, error) {
	stream, err := open(ctx, desc, conn, method, options...)
	if err != nil {
		return nil, c.fault(err)
	}
	return &faultStream{stream, c}, nil
}

// fault rebuilds the fault behind an error. Where the transport speaks and not the service, it says who did not answer.
func (c caller) fault(err error) error {
	s, ok := status.FromError(err)
	if !ok || err == nil {
		return FromStatus(err)
	}
	info, _ := details(s)
	switch {
	case s.Code() == codes.Unavailable && info == nil:
		verb, short := silence(s.Message())
		return fault.Newf(fault.Unavailable, c.options.Silent, "%s %s at %s: %s", verb, c.options.Name, c.target, short).
			// Its text alone: the status would pass for an answer of the service.
			WithHiddenCause(errors.New(s.Message()))
	case s.Code() == codes.DeadlineExceeded:
		message := c.options.Name + " did not answer in time at " + c.target
		return fault.Wrap(fault.Unavailable, fault.ReasonDeadline, message, context.DeadlineExceeded)
	}
	return faultOf(s)
}

// faultStream is a stream whose errors are faults.
type faultStream struct {
	grpc.ClientStream
	caller caller
}

// RecvMsg reads a message; io.EOF is the end and stays as it is.
func (s *faultStream) RecvMsg(m any) error { return s.caller.fault(s.ClientStream.RecvMsg(m)) }

// SendMsg sends a message; io.EOF means that RecvMsg has the error.
func (s *faultStream) SendMsg(m any) error { return s.caller.fault(s.ClientStream.SendMsg(m)) }

// CloseSend ends the sending side.
func (s *faultStream) CloseSend() error { return s.caller.fault(s.ClientStream.CloseSend()) }
