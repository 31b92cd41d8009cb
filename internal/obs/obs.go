// Package obs is how muxpost tells what it did: logs on standard error, traces in span files beside the data, and metrics for whoever
// asks; all three over OTLP where a collector is named. Everything is a value that is passed on; nothing is installed as a global.
//
// It knows how to record and not what: names of spans, metrics and messages belong to the code that does the work. The keys of logs,
// spans and metrics are constants here, so that a person searches for one word.
package obs

import (
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/contrib/bridges/otelslog"
	"go.opentelemetry.io/otel/metric"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"muxpost.dev/muxpost/internal/layout"
	"muxpost.dev/muxpost/internal/obs/logfile"
	"muxpost.dev/muxpost/internal/obs/spanfile"
	"muxpost.dev/muxpost/internal/version"
)

// flushTimeout bounds how long Shutdown waits for a collector that does not answer.
const flushTimeout = 3 * time.Second

// maxAttribute is the longest attribute value that a span keeps, in bytes: it bounds a line of a span file.
const maxAttribute = 2048

// Config says who records, and where to.
type Config struct {
	// Service is the name of the service, such as "dispatcher". Required.
	Service string
	// Host names the machine; the operating system's host name when empty.
	Host string
	// Instance names this process among those of the service, and is the label "instance" of its metrics; a random one when empty.
	Instance string
	// DataDir is the directory whose subdirectory "traces" takes the span files; no span files when empty.
	DataDir string
	// LogLevel is the least level that is logged.
	LogLevel slog.Level
	// Stderr takes the log; os.Stderr when nil. Where that is the service's log below DataDir, it is kept to a size.
	Stderr io.Writer
	// Reader reads the metrics besides a collector; nil for none.
	Reader sdkmetric.Reader
}

// namespace is what the names of our services stand in.
const namespace = "muxpost"

// TracesDir returns the directory of the span files below a data directory.
func TracesDir(dataDir string) string { return filepath.Join(dataDir, "traces") }

// Telemetry is what a process records with.
type Telemetry struct {
	// Logger writes JSON, or coloured lines on a terminal; its records carry the service's name.
	Logger *slog.Logger

	stderr    *slog.Logger
	spans     *sdktrace.TracerProvider
	metrics   *sdkmetric.MeterProvider
	logs      *sdklog.LoggerProvider // nil when they go nowhere
	collector *collector             // nil when none is named
}

// Setup prepares logs, traces and metrics for a process. Span files are always written when there is a data directory; spans, metrics
// and logs go to a collector too when OTEL_EXPORTER_OTLP_ENDPOINT or the variable of the signal is set, and the other variables of
// the OTLP exporters are obeyed. Every trace is kept, whatever a caller's sampling flag says; none begins below Untraced.
//
// It fails when the directory of the span files cannot be made. An unreachable collector is no failure.
func Setup(ctx context.Context, config Config) (*Telemetry, error) {
	if config.Stderr == nil {
		config.Stderr = os.Stderr
	}
	if config.Host == "" {
		config.Host, _ = os.Hostname()
	}
	if config.DataDir != "" {
		config.Stderr = logfile.Standard(config.Stderr, layout.DataDir(config.DataDir).Log(layout.Service(config.Service)))
	}
	if config.Instance == "" {
		config.Instance = uuid.NewString()
	}
	handler := newTraceHandler(newHandler(config.Stderr, config.LogLevel)).WithAttrs([]slog.Attr{slog.String(KeyService, config.Service)})
	t := &Telemetry{Logger: slog.New(handler), stderr: slog.New(handler)}
	if traces.named() || metrics.named() || logs.named() {
		t.collector = newCollector(ctx, t.stderr)
	}
	about := resource.NewWithAttributes(semconv.SchemaURL, semconv.ServiceNamespace(namespace), semconv.ServiceName(config.Service),
		semconv.ServiceVersion(version.String()), semconv.ServiceInstanceID(config.Instance), semconv.HostName(config.Host))
	if err := t.trace(ctx, config, about); err != nil {
		return nil, err
	}
	if err := t.measure(ctx, config, about); err != nil {
		return nil, err
	}
	if logs.named() {
		processor, err := t.collector.logs(ctx)
		if err != nil {
			return nil, err
		}
		t.logs = sdklog.NewLoggerProvider(sdklog.WithProcessor(processor), sdklog.WithResource(about))
		t.Logger = slog.New(slog.NewMultiHandler(handler, bridge{otelslog.NewHandler(namespace, otelslog.WithLoggerProvider(t.logs)), config.LogLevel}))
	}
	return t, nil
}

// trace prepares the spans.
func (t *Telemetry) trace(ctx context.Context, config Config, about *resource.Resource) error {
	limits := sdktrace.NewSpanLimits()
	limits.AttributeValueLengthLimit = maxAttribute
	options := []sdktrace.TracerProviderOption{
		sdktrace.WithSampler(sampler{sdktrace.AlwaysSample()}), sdktrace.WithRawSpanLimits(limits), sdktrace.WithResource(about),
	}
	if config.DataDir != "" {
		files := func(name string) (*spanfile.Writer, error) {
			return spanfile.NewWriter(TracesDir(config.DataDir), name, spanfile.WriterOptions{
				OnError: func(err error) { t.stderr.Error("cannot write span files", KeyError, err) },
			})
		}
		others, err := files(config.Service)
		if err != nil {
			return err
		}
		routine, err := files(config.Service + "-routine")
		if err != nil {
			return err
		}
		options = append(options, sdktrace.WithSpanProcessor(apart{routine: routine, others: others}))
	}
	if traces.named() {
		exporter, err := t.collector.spans(ctx)
		if err != nil {
			return err
		}
		options = append(options, sdktrace.WithBatcher(exporter))
	}
	t.spans = sdktrace.NewTracerProvider(options...)
	return nil
}

// measure prepares the metrics, with those of the process itself where somebody reads them.
func (t *Telemetry) measure(ctx context.Context, config Config, about *resource.Resource) error {
	options := []sdkmetric.Option{sdkmetric.WithResource(about)}
	if config.Reader != nil {
		options = append(options, sdkmetric.WithReader(config.Reader))
	}
	if metrics.named() {
		reader, err := t.collector.metrics(ctx)
		if err != nil {
			return err
		}
		options = append(options, sdkmetric.WithReader(reader))
	}
	t.metrics = sdkmetric.NewMeterProvider(options...)
	if len(options) == 1 {
		return nil
	}
	return watchProcess(t.metrics)
}

// Tracer returns a tracer; name is the import path or short name of the package that starts the spans.
func (t *Telemetry) Tracer(name string) Tracer { return t.spans.Tracer(name) }

// TracerProvider returns the provider, for instrumentations that take one.
func (t *Telemetry) TracerProvider() trace.TracerProvider { return t.spans }

// MeterProvider returns the provider of metrics.
func (t *Telemetry) MeterProvider() metric.MeterProvider { return t.metrics }

// Shutdown hands over what is still held and closes the span files. It takes at most three seconds, even under a context
// that has ended. What a collector did not take is logged; it is no reason for a service to fail.
func (t *Telemetry) Shutdown(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
	defer cancel()
	ends := map[signal]func(context.Context) error{traces: t.spans.Shutdown, metrics: t.metrics.Shutdown}
	if t.logs != nil {
		ends[logs] = t.logs.Shutdown
	}
	var group sync.WaitGroup
	for s, end := range ends {
		group.Go(func() {
			err := end(ctx)
			switch {
			case err == nil:
			case t.collector != nil:
				t.collector.report(s, err)
			default:
				t.stderr.Warn("what was recorded could not be kept", "signal", s.String(), KeyError, err)
			}
		})
	}
	group.Wait()
	if t.collector != nil {
		t.collector.abandon()
	}
}
