package obs

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploggrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"muxpost.dev/muxpost/core/fault"
)

// signal is one of the three kinds of telemetry, as the variables of OpenTelemetry name it.
type signal string

const (
	traces  signal = "TRACES"
	metrics signal = "METRICS"
	logs    signal = "LOGS"
)

// String returns the word for people.
func (s signal) String() string {
	return map[signal]string{traces: "spans", metrics: "metrics", logs: "logs"}[s]
}

// named reports whether the environment names a collector for the signal, and does not switch it off.
func (s signal) named() bool {
	return (os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || os.Getenv("OTEL_EXPORTER_OTLP_"+string(s)+"_ENDPOINT") != "") &&
		os.Getenv("OTEL_"+string(s)+"_EXPORTER") != "none"
}

// collector hands telemetry to an OTLP collector. It keeps failures from OpenTelemetry's global error handler, which would print
// each of them to standard error in a format of its own, and logs the change instead: once when the collector is lost, once
// when it is back. What it does not know (Jaeger takes spans alone) is said once for each signal.
type collector struct {
	logger  *slog.Logger    // it writes to standard error alone
	given   context.Context // ends when nobody waits for exports any more
	abandon context.CancelFunc

	mu      sync.Mutex
	lost    map[signal]bool
	refused map[signal]bool
}

func newCollector(ctx context.Context, logger *slog.Logger) *collector {
	c := &collector{logger: logger, lost: map[signal]bool{}, refused: map[signal]bool{}}
	c.given, c.abandon = context.WithCancel(context.WithoutCancel(ctx))
	return c
}

// export hands something over. It reports no error: what was not taken is gone, and whoever asked could do nothing about it.
func (c *collector) export(ctx context.Context, s signal, hand func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.given, cancel)()
	c.report(s, hand(ctx))
	return nil
}

// report logs a change between taking telemetry and not taking it.
func (c *collector) report(s signal, err error) {
	c.mu.Lock()
	before, refused := len(c.lost) > 0, c.refused[s]
	switch {
	case err == nil:
		delete(c.lost, s)
	case status.Code(cause(err)) == codes.Unimplemented:
		c.refused[s] = true
	default:
		c.lost[s] = true
	}
	lost, refusedNow := len(c.lost) > 0, c.refused[s]
	c.mu.Unlock()
	switch {
	case refusedNow && !refused:
		c.logger.Warn("the collector does not know this kind of telemetry; the variable stops sending it", "kind", s.String(),
			"variable", "OTEL_"+string(s)+"_EXPORTER=none", KeyError, err)
	case lost && !before:
		c.logger.Warn("the collector does not take what it is sent; spans remain in the span files, logs on standard error", KeyError, err)
	case before && !lost:
		c.logger.Info("the collector takes what it is sent again")
	}
}

// cause returns the error that has the status of gRPC.
func cause(err error) error {
	var has interface{ GRPCStatus() *status.Status }
	if errors.As(err, &has) {
		return has.GRPCStatus().Err()
	}
	return err
}

func unusable(err error) error {
	return fault.Wrap(fault.Invalid, fault.ReasonBadConfig, "cannot use the collector named by OTEL_EXPORTER_OTLP_ENDPOINT", err)
}

// spanExporter is the collector for spans.
type spanExporter struct {
	sdktrace.SpanExporter
	to *collector
}

func (c *collector) spans(ctx context.Context) (sdktrace.SpanExporter, error) {
	exporter, err := otlptracegrpc.New(ctx)
	if err != nil {
		return nil, unusable(err)
	}
	return spanExporter{exporter, c}, nil
}

// ExportSpans hands spans over.
func (e spanExporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	return e.to.export(ctx, traces, func(ctx context.Context) error { return e.SpanExporter.ExportSpans(ctx, spans) })
}

// metricExporter is the collector for metrics.
type metricExporter struct {
	sdkmetric.Exporter
	to *collector
}

func (c *collector) metrics(ctx context.Context) (sdkmetric.Reader, error) {
	exporter, err := otlpmetricgrpc.New(ctx)
	if err != nil {
		return nil, unusable(err)
	}
	return sdkmetric.NewPeriodicReader(metricExporter{exporter, c}), nil
}

// Export hands metrics over.
func (e metricExporter) Export(ctx context.Context, m *metricdata.ResourceMetrics) error {
	return e.to.export(ctx, metrics, func(ctx context.Context) error { return e.Exporter.Export(ctx, m) })
}

// logExporter is the collector for logs.
type logExporter struct {
	sdklog.Exporter
	to *collector
}

func (c *collector) logs(ctx context.Context) (sdklog.Processor, error) {
	exporter, err := otlploggrpc.New(ctx)
	if err != nil {
		return nil, unusable(err)
	}
	return sdklog.NewBatchProcessor(logExporter{exporter, c}, sdklog.WithExportInterval(time.Second)), nil
}

// Export hands logs over.
func (e logExporter) Export(ctx context.Context, records []sdklog.Record) error {
	return e.to.export(ctx, logs, func(ctx context.Context) error { return e.Exporter.Export(ctx, records) })
}
