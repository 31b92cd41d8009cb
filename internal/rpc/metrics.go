package rpc

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/metric"
	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"muxpost.dev/muxpost/internal/obs"
)

// The attributes of calls, as OpenTelemetry names them.
const (
	keyRPCMethod = "rpc.method"
	keyRPCStatus = "rpc.response.status_code"
)

// statusNames are the names of gRPC's codes, as OpenTelemetry writes them.
var statusNames = func() (names [codes.Unauthenticated + 1]string) {
	for i := range names {
		names[i] = code.Code(i).String() //nolint:gosec // They are the same small numbers.
	}
	return names
}()

func meterOf(provider metric.MeterProvider) *obs.Meter {
	if provider == nil {
		return nil
	}
	return obs.NewMeter(provider, "muxpost.dev/muxpost/internal/rpc")
}

// answered makes the metric of calls that a server answered.
func answered(m *obs.Meter) *obs.Histogram {
	return m.Histogram("rpc.server.call.duration", "How long calls took to answer, by method and gRPC status. Streams, health and reflection are left out.",
		obs.Soon, keyRPCMethod, keyRPCStatus)
}

// asked makes the metric of calls that a client made.
func asked(m *obs.Meter) *obs.Histogram {
	return m.Histogram("rpc.client.call.duration", "How long calls of another service took, by method and gRPC status. Streams are left out.",
		obs.Soon, keyRPCMethod, keyRPCStatus)
}

// measure records a call; s is nil for one that succeeded.
func measure(ctx context.Context, h *obs.Histogram, method string, s *status.Status, began time.Time) {
	if !isPlumbing(method) {
		h.Record(ctx, time.Since(began), method[1:], statusNames[min(s.Code(), codes.Unauthenticated)])
	}
}
