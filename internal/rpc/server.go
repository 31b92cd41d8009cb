package rpc

import (
	"context"
	"errors"
	"net"
	"runtime"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/reflection"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/obs"
)

// How connections are kept and found dead. Clients may ping twice as often as ours do.
const (
	clientPing  = 20 * time.Second
	serverPing  = 30 * time.Second
	pingTimeout = 10 * time.Second
)

// At a stop, streams have streamEnd from when the last call is over: one whose client does not read would never end. Whether one is under way
// is looked at every stopTick.
const (
	streamEnd = 500 * time.Millisecond
	stopTick  = 10 * time.Millisecond
)

// Server is a gRPC server. Services are registered on it as on a *grpc.Server, before Serve.
type Server struct {
	grpc    *grpc.Server
	health  *Health
	edge    *edge
	options Options
	// calls are under way; streams are not counted.
	calls atomic.Int64
}

var _ reflection.GRPCServer = (*Server)(nil)

// NewServer returns a gRPC server with health and reflection.
func NewServer(options Options) *Server {
	options = options.withDefaults()
	s := &Server{health: newHealth(), edge: newEdge(options), options: options}
	grpcOptions := []grpc.ServerOption{
		grpc.StatsHandler(serverTracing(options.TracerProvider)),
		// A goroutine that has grown its stack answers the next call as well: it saves a tenth of a short call.
		grpc.NumStreamWorkers(uint32(runtime.GOMAXPROCS(0))), //nolint:gosec // a small number
		grpc.ChainUnaryInterceptor(s.unary),
		grpc.ChainStreamInterceptor(s.stream),
		grpc.MaxRecvMsgSize(options.MaxMessageBytes),
		grpc.MaxSendMsgSize(options.MaxMessageBytes),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: clientPing / 2, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: serverPing, Timeout: pingTimeout}),
		grpc.ConnectionTimeout(pingTimeout),
	}
	if options.TLS != nil {
		grpcOptions = append(grpcOptions, grpc.Creds(credentials.NewTLS(options.TLS)))
	}
	s.grpc = grpc.NewServer(grpcOptions...)
	healthpb.RegisterHealthServer(s.grpc, s.health.server)
	reflection.Register(s.grpc)
	return s
}

// RegisterService makes Server a grpc.ServiceRegistrar, which generated Register functions take.
func (s *Server) RegisterService(desc *grpc.ServiceDesc, impl any) {
	s.grpc.RegisterService(desc, impl)
}

// GetServiceInfo returns the registered services.
func (s *Server) GetServiceInfo() map[string]grpc.ServiceInfo { return s.grpc.GetServiceInfo() }

// Health returns what the server says about itself.
func (s *Server) Health() *Health { return s.health }

// Serve answers calls on the listener until ctx ends, and closes it. Then health turns to not serving, streams end, calls in
// flight may finish within StopTimeout, and what is left is cut off: a stream that nobody reads as soon as no call is under way. It
// returns nil after such a stop, and an error when the listener fails. A server serves once.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	served := make(chan error, 1)
	go func() { served <- s.grpc.Serve(listener) }()
	select {
	case err := <-served:
		s.edge.stopNow()
		return fault.Wrap(fault.Internal, "", "the gRPC server cannot go on", err)
	case <-ctx.Done():
	}
	s.health.server.Shutdown()
	s.edge.stopNow()
	forced := time.AfterFunc(s.options.StopTimeout, func() {
		s.options.Logger.WarnContext(ctx, "calls were cut off by the stop", obs.KeyAddress, listener.Addr().String())
		s.grpc.Stop()
	})
	stopped := make(chan struct{})
	go s.endStreams(stopped)
	s.grpc.GracefulStop()
	close(stopped)
	forced.Stop()
	if err := <-served; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fault.Wrap(fault.Internal, "", "the gRPC server did not stop in good order", err)
	}
	return nil
}

// endStreams cuts off the streams that did not end by themselves, once no call is under way.
func (s *Server) endStreams(stopped <-chan struct{}) {
	tick := time.NewTicker(stopTick)
	defer tick.Stop()
	for quiet := time.Now(); time.Since(quiet) < streamEnd; {
		select {
		case <-stopped:
			return
		case <-tick.C:
		}
		if s.calls.Load() > 0 {
			quiet = time.Now() // its answer has that time to go out as well
		}
	}
	s.grpc.Stop()
}

func (s *Server) unary(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (answer any, err error) {
	s.calls.Add(1)
	defer s.calls.Add(-1)
	failed, _ := s.edge.unary(ctx, grpcCall(ctx, info.FullMethod), func(ctx context.Context) error {
		s.edge.options.Amend(ctx, request)
		answer, err = handler(ctx, request)
		return err
	})
	if failed != nil {
		return nil, failed.Err()
	}
	return answer, nil
}

func (s *Server) stream(impl any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	ctx := stream.Context()
	failed, _ := s.edge.stream(ctx, grpcCall(ctx, info.FullMethod), func(ctx context.Context) error {
		return handler(impl, &streamWithContext{stream, ctx, s.edge.options.Amend})
	})
	if failed != nil {
		return failed.Err()
	}
	return nil
}

// streamWithContext is a stream under another context, whose requests are amended.
type streamWithContext struct {
	grpc.ServerStream
	ctx   context.Context
	amend func(context.Context, any)
}

// Context returns the other context.
func (s *streamWithContext) Context() context.Context { return s.ctx }

// RecvMsg reads a request.
func (s *streamWithContext) RecvMsg(m any) error {
	err := s.ServerStream.RecvMsg(m)
	if err == nil {
		s.amend(s.ctx, m)
	}
	return err
}

func grpcCall(ctx context.Context, method string) Call {
	call := Call{Method: method}
	if values := metadata.ValueFromIncomingContext(ctx, "authorization"); len(values) > 0 {
		call.Authorization = values[0]
	}
	if p, ok := peer.FromContext(ctx); ok {
		if _, unix := p.Addr.(*net.UnixAddr); !unix {
			call.Peer = p.Addr.String()
		}
		if info, ok := p.AuthInfo.(credentials.TLSInfo); ok {
			call.TLS = &info.State
		}
	}
	return call
}
