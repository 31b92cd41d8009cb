package telemetry

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"

	logscollector "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	metricscollector "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	tracecollector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	"google.golang.org/grpc"
)

// sink is an OTLP collector that keeps what it is sent.
type sink struct {
	address string

	mu sync.Mutex
	// metrics are by service and name.
	metrics map[string]map[string]*seen
	logs    []logged
	spans   []span
	// resources are the attributes of each service.
	resources map[string]map[string]string
}

// seen is all that was ever told of a metric.
type seen struct {
	unit string
	kind string
	// attributes are its keys, values all values of all of them.
	attributes, values map[string]bool
	exemplars          []string // trace ids
}

// logged is one record of a log.
type logged struct {
	service, body, traceID, spanID string
	attributes                     map[string]string
}

type span struct{ service, name, traceID string }

func newSink(t *testing.T) *sink {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &sink{address: listener.Addr().String(), metrics: map[string]map[string]*seen{}, resources: map[string]map[string]string{}}
	server := grpc.NewServer()
	metricscollector.RegisterMetricsServiceServer(server, metricsSink{sink: s})
	logscollector.RegisterLogsServiceServer(server, logsSink{sink: s})
	tracecollector.RegisterTraceServiceServer(server, traceSink{sink: s})
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return s
}

// service takes up the attributes of a resource, and returns its service's name. The lock is held.
func (s *sink) service(r *resourcepb.Resource) string {
	attributes := plain(r.GetAttributes())
	s.resources[attributes["service.name"]] = attributes
	return attributes["service.name"]
}

// find returns what was told of a metric of a service; nil for nothing.
func (s *sink) find(service, name string) *seen {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.metrics[service][name]
}

type metricsSink struct {
	metricscollector.UnimplementedMetricsServiceServer
	sink *sink
}

// Export takes metrics.
func (m metricsSink) Export(_ context.Context, r *metricscollector.ExportMetricsServiceRequest) (*metricscollector.ExportMetricsServiceResponse, error) {
	s := m.sink
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, of := range r.GetResourceMetrics() {
		service := s.service(of.GetResource())
		if s.metrics[service] == nil {
			s.metrics[service] = map[string]*seen{}
		}
		for _, scope := range of.GetScopeMetrics() {
			for _, metric := range scope.GetMetrics() {
				have := s.metrics[service][metric.GetName()]
				if have == nil {
					have = &seen{attributes: map[string]bool{}, values: map[string]bool{}}
					s.metrics[service][metric.GetName()] = have
				}
				have.take(metric)
			}
		}
	}
	return &metricscollector.ExportMetricsServiceResponse{}, nil
}

func (s *seen) take(m *metricspb.Metric) {
	s.unit = m.GetUnit()
	numbers := func(points []*metricspb.NumberDataPoint) {
		for _, p := range points {
			s.point(p.GetAttributes(), p.GetExemplars())
		}
	}
	switch {
	case m.GetSum() != nil:
		s.kind = "gauge"
		if m.GetSum().GetIsMonotonic() {
			s.kind = "counter"
		}
		numbers(m.GetSum().GetDataPoints())
	case m.GetGauge() != nil:
		s.kind = "gauge"
		numbers(m.GetGauge().GetDataPoints())
	case m.GetHistogram() != nil:
		s.kind = "histogram"
		for _, p := range m.GetHistogram().GetDataPoints() {
			s.point(p.GetAttributes(), p.GetExemplars())
		}
	}
}

func (s *seen) point(attributes []*commonpb.KeyValue, exemplars []*metricspb.Exemplar) {
	for key, value := range plain(attributes) {
		s.attributes[key], s.values[value] = true, true
	}
	for _, e := range exemplars {
		s.exemplars = append(s.exemplars, fmt.Sprintf("%x", e.GetTraceId()))
	}
}

type logsSink struct {
	logscollector.UnimplementedLogsServiceServer
	sink *sink
}

// Export takes logs.
func (l logsSink) Export(_ context.Context, r *logscollector.ExportLogsServiceRequest) (*logscollector.ExportLogsServiceResponse, error) {
	s := l.sink
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, of := range r.GetResourceLogs() {
		service := s.service(of.GetResource())
		for _, scope := range of.GetScopeLogs() {
			for _, record := range scope.GetLogRecords() {
				s.logs = append(s.logs, logged{service: service, body: record.GetBody().GetStringValue(), traceID: fmt.Sprintf("%x", record.GetTraceId()),
					spanID: fmt.Sprintf("%x", record.GetSpanId()), attributes: plain(record.GetAttributes())})
			}
		}
	}
	return &logscollector.ExportLogsServiceResponse{}, nil
}

type traceSink struct {
	tracecollector.UnimplementedTraceServiceServer
	sink *sink
}

// Export takes spans.
func (c traceSink) Export(_ context.Context, r *tracecollector.ExportTraceServiceRequest) (*tracecollector.ExportTraceServiceResponse, error) {
	s := c.sink
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, of := range r.GetResourceSpans() {
		service := s.service(of.GetResource())
		for _, scope := range of.GetScopeSpans() {
			for _, sp := range scope.GetSpans() {
				s.spans = append(s.spans, span{service, sp.GetName(), fmt.Sprintf("%x", sp.GetTraceId())})
			}
		}
	}
	return &tracecollector.ExportTraceServiceResponse{}, nil
}

// plain are attributes as text.
func plain(attributes []*commonpb.KeyValue) map[string]string {
	out := map[string]string{}
	for _, a := range attributes {
		switch v := a.GetValue().GetValue().(type) {
		case *commonpb.AnyValue_StringValue:
			out[a.GetKey()] = v.StringValue
		default:
			out[a.GetKey()] = fmt.Sprint(a.GetValue())
		}
	}
	return out
}

func sorted(set map[string]bool) (out []string) {
	for key := range set {
		out = append(out, key)
	}
	slices.Sort(out)
	return out
}
