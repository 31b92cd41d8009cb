package rpc

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"
	"connectrpc.com/connect/v2/connectproto"
	"connectrpc.com/grpcreflect/v2"
	"connectrpc.com/otelconnect"
	"google.golang.org/grpc/codes"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/obs"
)

const (
	// headerTimeout bounds how long a client may take to send the head of a request.
	headerTimeout = 5 * time.Second
	// idleTimeout closes connections that nobody uses.
	idleTimeout = 2 * time.Minute
	// maxHTTPStreams is how many calls one connection may have at once; net/http alone would allow 100 or so, which a client
	// that follows many things would fill.
	maxHTTPStreams = 1000
)

// ConnectServer is an HTTP server whose one port answers gRPC, gRPC-Web and JSON over HTTP, in plain text or TLS, beside
// pages and other handlers of HTTP.
type ConnectServer struct {
	rpc     *connect.Server
	mux     *http.ServeMux
	health  *Health
	edge    *edge
	options Options
}

// NewConnectServer returns a connect server with health, reflection and GET /healthz.
func NewConnectServer(options Options) (*ConnectServer, error) {
	options = options.withDefaults()
	// Without WithTrustRemote a caller's trace would end here and another one begin.
	traced, err := otelconnect.NewServerInterceptor(
		otelconnect.WithTracerProvider(options.TracerProvider),
		otelconnect.WithPropagator(obs.Propagator()),
		otelconnect.WithTrustRemote(),
		otelconnect.WithoutMetrics(),
		otelconnect.WithFilter(tracedConnect),
	)
	if err != nil {
		return nil, fault.Wrap(fault.Internal, "", "cannot instrument the connect server", err)
	}
	s := &ConnectServer{mux: http.NewServeMux(), health: newHealth(), edge: newEdge(options), options: options}
	s.rpc = connect.NewServer(traced, s.intercept)
	s.rpc.Register(s.health.methods()...)
	grpcreflect.Register(s.rpc)
	s.mux.HandleFunc("GET /healthz", s.healthz)
	return s, nil
}

// RPC returns what generated Register functions take. Services are registered before Serve.
func (s *ConnectServer) RPC() *connect.Server { return s.rpc }

// Page answers GET at a path, for whoever Authorize lets make a call of that name.
func (s *ConnectServer) Page(path string, page http.Handler) {
	s.mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
		call := Call{Method: path, Authorization: r.Header.Get("Authorization"), TLS: r.TLS}
		if _, _, err := net.SplitHostPort(r.RemoteAddr); err == nil { // nothing that could be told comes from a socket
			call.Peer = r.RemoteAddr
		}
		failed, _ := s.edge.call(obs.Untraced(r.Context()), call, func(ctx context.Context) error {
			page.ServeHTTP(w, r.WithContext(ctx))
			return nil
		})
		if failed == nil {
			return
		}
		answer := http.StatusInternalServerError
		switch failed.Code() { //nolint:exhaustive // Authorize knows no others.
		case codes.Unauthenticated:
			answer = http.StatusUnauthorized
		case codes.PermissionDenied:
			answer = http.StatusForbidden
		case codes.Unavailable, codes.DeadlineExceeded:
			answer = http.StatusServiceUnavailable
		}
		http.Error(w, failed.Message(), answer)
	})
}

// Health returns what the server says about itself.
func (s *ConnectServer) Health() *Health { return s.health }

// Serve answers on the listener until ctx ends, and closes it. It stops as Server.Serve does. A server serves once.
func (s *ConnectServer) Serve(ctx context.Context, listener net.Listener) error {
	// A field in JSON that the method does not have is a mistake of whoever wrote it, and what was meant by it would not be done.
	strict := connectproto.NewJSONCodec()
	strict.UnmarshalOptions.DiscardUnknown = false
	connecthttp.Mount(s.mux, s.rpc, connecthttp.WithReadMaxBytes(s.options.MaxMessageBytes),
		connecthttp.WithCodecs(connectproto.NewBinaryCodec(), strict))
	server := s.server(Guard(withAnswer(s.mux), listener.Addr(), s.options.AllowedHosts))
	served := make(chan error, 1)
	go func() {
		if s.options.TLS != nil {
			served <- server.ServeTLS(listener, "", "")
			return
		}
		served <- server.Serve(listener)
	}()
	select {
	case err := <-served:
		s.edge.stopNow()
		return fault.Wrap(fault.Internal, "", "the HTTP server cannot go on", err)
	case <-ctx.Done():
	}
	s.health.server.Shutdown()
	s.edge.stopNow()
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.options.StopTimeout)
	defer cancel()
	if err := server.Shutdown(grace); err != nil {
		s.options.Logger.WarnContext(ctx, "calls were cut off by the stop", obs.KeyAddress, listener.Addr().String(), obs.KeyError, err)
		server.Close() //nolint:errcheck // Everything is cut off; there is nobody left to tell.
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return fault.Wrap(fault.Internal, "", "the HTTP server did not stop in good order", err)
	}
	return nil
}

func (s *ConnectServer) server(handler http.Handler) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(s.options.TLS != nil)
	protocols.SetUnencryptedHTTP2(s.options.TLS == nil)
	return &http.Server{
		Handler:           handler,
		TLSConfig:         s.options.TLS,
		Protocols:         protocols,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: maxHTTPStreams, SendPingTimeout: serverPing, PingTimeout: pingTimeout},
		ErrorLog:          slog.NewLogLogger(s.options.Logger.Handler(), slog.LevelWarn),
	}
}

// intercept is the edge around every RPC.
func (s *ConnectServer) intercept(next connect.ServerFunc) connect.ServerFunc {
	return func(ctx context.Context, spec connect.Spec, stream connect.ServerStream) error {
		if !tracedConnect(ctx, spec) {
			ctx = obs.Untraced(ctx)
		}
		around := s.edge.unary
		if spec.StreamType != connect.StreamTypeUnary {
			around = s.edge.stream
			defer s.cutOff(ctx)()
		}
		failed, err := around(ctx, connectCall(ctx, spec.Procedure), func(ctx context.Context) error {
			return next(ctx, spec, &amendedStream{stream, ctx, s.options.Amend})
		})
		if failed != nil {
			return connectOf(failed).WithCause(err)
		}
		return nil
	}
}

// amendedStream is a stream whose requests are amended.
type amendedStream struct {
	connect.ServerStream
	ctx   context.Context
	amend func(context.Context, any)
}

// Receive reads a request.
func (s *amendedStream) Receive(m any) error {
	err := s.ServerStream.Receive(m)
	if err == nil {
		s.amend(s.ctx, m)
	}
	return err
}

func connectCall(ctx context.Context, method string) Call {
	call := Call{Method: method}
	if info, ok := connect.CallInfoForServerContext(ctx); ok {
		call.Peer = info.PeerAddr
		call.Authorization = info.RequestHeader().Get("Authorization")
	}
	if info, ok := connecthttp.ServerInfoForContext(ctx); ok {
		call.TLS = info.TLS()
	}
	return call
}

func (s *ConnectServer) healthz(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	if !s.health.Serving() {
		w.WriteHeader(http.StatusServiceUnavailable)
		w.Write([]byte("not serving\n")) //nolint:errcheck // Whoever asked is gone.
		return
	}
	w.Write([]byte("ok\n")) //nolint:errcheck // Whoever asked is gone.
}
