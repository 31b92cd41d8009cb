package rpc

import (
	"context"

	"connectrpc.com/connect/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Health is what a server says about itself by grpc.health.v1 and, on a connect server, by GET /healthz.
type Health struct{ server *health.Server }

func newHealth() *Health { return &Health{health.NewServer()} }

// Set says whether a service serves; the empty name is the server as a whole, which serves from the start. Once the server
// is told to stop, nothing serves any more.
func (h *Health) Set(service string, serving bool) {
	state := healthpb.HealthCheckResponse_NOT_SERVING
	if serving {
		state = healthpb.HealthCheckResponse_SERVING
	}
	h.server.SetServingStatus(service, state)
}

// Serving reports whether the server as a whole serves.
func (h *Health) Serving() bool {
	answer, err := h.server.Check(context.Background(), &healthpb.HealthCheckRequest{})
	return err == nil && answer.GetStatus() == healthpb.HealthCheckResponse_SERVING
}

// methods serves the three calls of grpc.health.v1 on connect, by the same implementation that grpc-go brings.
func (h *Health) methods() []connect.Method {
	schema := healthpb.File_grpc_health_v1_health_proto.Services().ByName("Health")
	spec := func(procedure string, name protoreflect.Name, kind connect.StreamType) connect.Spec {
		return connect.Spec{StreamType: kind, Procedure: procedure, Schema: schema.Methods().ByName(name)}
	}
	return []connect.Method{
		{Spec: spec(healthpb.Health_Check_FullMethodName, "Check", connect.StreamTypeUnary), Handler: unaryMethod(h.server.Check)},
		{Spec: spec(healthpb.Health_List_FullMethodName, "List", connect.StreamTypeUnary), Handler: unaryMethod(h.server.List)},
		{Spec: spec(healthpb.Health_Watch_FullMethodName, "Watch", connect.StreamTypeServer), Handler: h.watch},
	}
}

func (h *Health) watch(ctx context.Context, _ connect.Spec, stream connect.ServerStream) error {
	var request healthpb.HealthCheckRequest
	if err := stream.Receive(&request); err != nil {
		return err
	}
	return h.server.Watch(&request, &watchStream{ctx: ctx, stream: stream})
}

// watchStream is a connect stream in the shape that grpc-go's health server writes to; it uses these two methods only.
type watchStream struct {
	grpc.ServerStream
	ctx    context.Context
	stream connect.ServerStream
}

// Context returns the call's context.
func (s *watchStream) Context() context.Context { return s.ctx }

// Send sends one answer.
func (s *watchStream) Send(answer *healthpb.HealthCheckResponse) error { return s.stream.Send(answer) }

// unaryMethod serves a function with grpc-go's signature on connect.
func unaryMethod[Q, A any](fn func(context.Context, *Q) (*A, error)) connect.ServerFunc {
	return func(ctx context.Context, _ connect.Spec, stream connect.ServerStream) error {
		var request Q
		if err := stream.Receive(&request); err != nil {
			return err
		}
		answer, err := fn(ctx, &request)
		if err != nil {
			return err
		}
		return stream.Send(answer)
	}
}
