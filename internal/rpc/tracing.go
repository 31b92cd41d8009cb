package rpc

import (
	"context"
	"strings"
	"sync"

	"connectrpc.com/connect/v2"
	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	noopmetric "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	"muxpost.dev/muxpost/internal/obs"
)

// traceHeader is the name under which a trace goes on to a server.
const traceHeader = "traceparent"

// traced reports whether a call has a span. A read that belongs to no trace has none: it decides nothing, and what asks again and again would
// push the traces of deliveries out of the span files. Plumbing never has one.
func traced(method string, belongs bool) bool {
	return !isPlumbing(method) && (belongs || !isRead(method))
}

// known holds, by the full name of a method, whether it is a read.
var known sync.Map

// isRead reports whether the contract of a method says that it has no side effects.
func isRead(method string) bool {
	if read, ok := known.Load(method); ok {
		return read.(bool) //nolint:forcetypeassert // nothing else is put there
	}
	name := protoreflect.FullName(strings.ReplaceAll(strings.TrimPrefix(method, "/"), "/", "."))
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(name)
	if err != nil {
		return false // not kept: anybody may call anything
	}
	options, ok := d.Options().(*descriptorpb.MethodOptions)
	read := ok && options.GetIdempotencyLevel() == descriptorpb.MethodOptions_NO_SIDE_EFFECTS
	known.Store(method, read)
	return read
}

// tracing instruments some calls of a client or a server, and none of the others.
type tracing struct {
	stats.Handler
	// traced says which, and skipped is the context of the others.
	traced  func(ctx context.Context, method string) bool
	skipped func(context.Context) context.Context
}

// isTraced is the key under which a call's context says whether it is instrumented.
type isTraced struct{}

// TagRPC begins a call.
func (t *tracing) TagRPC(ctx context.Context, info *stats.RPCTagInfo) context.Context {
	if t.traced(ctx, info.FullMethodName) {
		return context.WithValue(t.Handler.TagRPC(ctx, info), isTraced{}, true)
	}
	return context.WithValue(t.skipped(ctx), isTraced{}, false)
}

// HandleRPC is told what happens to a call.
func (t *tracing) HandleRPC(ctx context.Context, s stats.RPCStats) {
	if is, _ := ctx.Value(isTraced{}).(bool); is {
		t.Handler.HandleRPC(ctx, s)
	}
}

func instrumentation(provider trace.TracerProvider) []otelgrpc.Option {
	return []otelgrpc.Option{otelgrpc.WithTracerProvider(provider), otelgrpc.WithPropagators(obs.Propagator()),
		otelgrpc.WithMeterProvider(noopmetric.NewMeterProvider())}
}

// serverTracing instruments a gRPC server.
func serverTracing(provider trace.TracerProvider) stats.Handler {
	return &tracing{
		Handler: otelgrpc.NewServerHandler(instrumentation(provider)...),
		traced: func(ctx context.Context, method string) bool {
			return traced(method, len(metadata.ValueFromIncomingContext(ctx, traceHeader)) > 0)
		},
		skipped: obs.Untraced,
	}
}

// clientTracing instruments a client.
func clientTracing(provider trace.TracerProvider) stats.Handler {
	return &tracing{
		Handler: otelgrpc.NewClientHandler(instrumentation(provider)...),
		traced: func(ctx context.Context, method string) bool {
			return traced(method, trace.SpanContextFromContext(ctx).IsValid())
		},
		skipped: func(ctx context.Context) context.Context { return ctx },
	}
}

// tracedConnect is traced for a call of a connect server.
func tracedConnect(ctx context.Context, spec connect.Spec) bool {
	info, ok := connect.CallInfoForServerContext(ctx)
	return traced(spec.Procedure, ok && info.RequestHeader().Get(traceHeader) != "")
}
