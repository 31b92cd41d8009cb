package obs

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"

	logscollector "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	metricscollector "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	"google.golang.org/grpc"

	"muxpost.dev/muxpost/core/fault"
)

// taker is a collector that takes logs and metrics, and knows no spans.
type taker struct {
	logscollector.UnimplementedLogsServiceServer
	mu   sync.Mutex
	logs []string
}

// Export takes logs.
func (c *taker) Export(_ context.Context, r *logscollector.ExportLogsServiceRequest) (*logscollector.ExportLogsServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, of := range r.GetResourceLogs() {
		for _, scope := range of.GetScopeLogs() {
			for _, record := range scope.GetLogRecords() {
				c.logs = append(c.logs, record.String())
			}
		}
	}
	return &logscollector.ExportLogsServiceResponse{}, nil
}

type metricsTaker struct {
	metricscollector.UnimplementedMetricsServiceServer
	taken chan *metricscollector.ExportMetricsServiceRequest
}

// Export takes metrics.
func (c metricsTaker) Export(_ context.Context, r *metricscollector.ExportMetricsServiceRequest) (*metricscollector.ExportMetricsServiceResponse, error) {
	c.taken <- r
	return &metricscollector.ExportMetricsServiceResponse{}, nil
}

func collectorAt(t *testing.T, register func(*grpc.Server)) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	register(server)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener) // it is stopped
	}()
	t.Cleanup(func() {
		server.Stop()
		<-done
	})
	return "http://" + listener.Addr().String()
}

func TestSetup_LogsAndMetricsGoToTheCollectorAndWhatItDoesNotKnowIsSaidOnce(t *testing.T) {
	var stderr bytes.Buffer
	_, dir := setup(t, &stderr)
	logs, metrics := &taker{}, metricsTaker{taken: make(chan *metricscollector.ExportMetricsServiceRequest, 10)}
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collectorAt(t, func(s *grpc.Server) {
		logscollector.RegisterLogsServiceServer(s, logs)
		metricscollector.RegisterMetricsServiceServer(s, metrics)
	}))
	telemetry, err := Setup(t.Context(), Config{Service: "poller", DataDir: dir, Stderr: &stderr, LogLevel: slog.LevelInfo})
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := Start(t.Context(), telemetry.Tracer("test"), "work")
	hidden := fault.New(fault.Unavailable, "", "cannot reach it").WithHiddenCause(errors.New("refused"))
	telemetry.Logger.With(KeyHost, "h1").WarnContext(ctx, "asked", KeyError, hidden)
	telemetry.Logger.DebugContext(ctx, "too quiet")
	NewMeter(telemetry.MeterProvider(), "test").Counter("things", "", "").Add(ctx, 1)
	end(nil)
	telemetry.Shutdown(t.Context())
	telemetry.collector.report(traces, nil)

	logs.mu.Lock()
	got := strings.Join(logs.logs, "\n")
	logs.mu.Unlock()
	for _, want := range []string{"asked", "h1", "cannot reach it [refused]"} {
		if !strings.Contains(got, want) {
			t.Errorf("the log at the collector has not %q: %s", want, got)
		}
	}
	if strings.Contains(got, "too quiet") || len(logs.logs) != 1 {
		t.Errorf("%d records: %s", len(logs.logs), got)
	}
	if text := (<-metrics.taken).String(); !strings.Contains(text, `"things"`) || !strings.Contains(text, "muxpost.build.info") {
		t.Errorf("metrics: %s", text)
	}
	said := records(t, stderr.Bytes())
	if len(said) != 2 || said[0]["msg"] != "asked" || said[1]["variable"] != "OTEL_TRACES_EXPORTER=none" || said[1]["kind"] != "spans" {
		t.Errorf("said %v", said)
	}
}

func TestSetup_EachSignalCanBeSwitchedOff(t *testing.T) {
	var stderr bytes.Buffer
	setup(t, &stderr)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
	for _, s := range []signal{traces, metrics, logs} {
		if !s.named() {
			t.Errorf("%s go nowhere", s)
		}
		t.Setenv("OTEL_"+string(s)+"_EXPORTER", "none")
		if s.named() {
			t.Errorf("%s go to the collector", s)
		}
	}
	telemetry, err := Setup(t.Context(), Config{Service: "poller", Stderr: &stderr})
	if err != nil {
		t.Fatal(err)
	}
	telemetry.Logger.Info("alone")
	telemetry.Shutdown(t.Context())
	if telemetry.collector != nil || len(records(t, stderr.Bytes())) != 1 {
		t.Errorf("%s", stderr.String())
	}
}

func TestCollector_IsLostOnceForAllSignals(t *testing.T) {
	var stderr bytes.Buffer
	c := newCollector(t.Context(), NewLogger(&stderr, slog.LevelInfo))
	away := errors.New("connection refused")
	for _, step := range []struct {
		signal signal
		err    error
		lines  int
	}{{metrics, away, 1}, {traces, away, 1}, {logs, away, 1}, {metrics, away, 1}, {traces, nil, 1}, {logs, nil, 1}, {metrics, nil, 2}, {metrics, away, 3}} {
		c.report(step.signal, step.err)
		if got := len(records(t, stderr.Bytes())); got != step.lines {
			t.Fatalf("after %+v: %d lines\n%s", step, got, stderr.String())
		}
	}
}
