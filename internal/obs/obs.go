// Package obs is how muxpost tells what it did: logs on standard error, traces in span files beside the data and, where a
// collector is named, over OTLP. Everything is a value that is passed on; nothing is installed as a global.
//
// It knows how to record and not what: names of spans and messages belong to the code that does the work. The keys of logs
// and spans are constants here, so that a person searches for one word.
package obs

import (
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"muxpost.dev/muxpost/internal/layout"
	"muxpost.dev/muxpost/internal/logfile"
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
	// DataDir is the directory whose subdirectory "traces" takes the span files; no span files when empty.
	DataDir string
	// LogLevel is the least level that is logged.
	LogLevel slog.Level
	// Stderr takes the log; os.Stderr when nil.
	Stderr io.Writer
}

// TracesDir returns the directory of the span files below a data directory.
func TracesDir(dataDir string) string { return filepath.Join(dataDir, "traces") }

// Telemetry is what a process records with.
type Telemetry struct {
	// Logger writes JSON, or coloured lines on a terminal; its records carry the service's name.
	Logger *slog.Logger

	stopLog   context.CancelFunc // ends the care for the log's size
	provider  *sdktrace.TracerProvider
	collector *collector // nil when none is named
}

// Setup prepares logs and traces for a process. Span files are always written when there is a data directory; spans go to
// a collector too when OTEL_EXPORTER_OTLP_ENDPOINT or OTEL_EXPORTER_OTLP_TRACES_ENDPOINT is set, and the other variables of
// the OTLP exporter are obeyed. Every trace is kept, whatever a caller's sampling flag says; none begins below Untraced.
//
// It fails when the directory of the span files cannot be made. An unreachable collector is no failure.
func Setup(ctx context.Context, config Config) (*Telemetry, error) {
	if config.Stderr == nil {
		config.Stderr = os.Stderr
	}
	if config.Host == "" {
		config.Host, _ = os.Hostname()
	}
	logger := NewLogger(config.Stderr, config.LogLevel).With(KeyService, config.Service)
	limits := sdktrace.NewSpanLimits()
	limits.AttributeValueLengthLimit = maxAttribute
	options := []sdktrace.TracerProviderOption{
		sdktrace.WithSampler(sampler{sdktrace.AlwaysSample()}),
		sdktrace.WithRawSpanLimits(limits),
		sdktrace.WithResource(resource.NewWithAttributes(semconv.SchemaURL,
			semconv.ServiceName(config.Service),
			semconv.ServiceVersion(version.String()),
			semconv.HostName(config.Host),
		)),
	}
	if config.DataDir != "" {
		files := func(name string) (*spanfile.Writer, error) {
			return spanfile.NewWriter(TracesDir(config.DataDir), name, spanfile.WriterOptions{
				OnError: func(err error) { logger.Error("cannot write span files", KeyError, err) },
			})
		}
		others, err := files(config.Service)
		if err != nil {
			return nil, err
		}
		routine, err := files(config.Service + "-routine")
		if err != nil {
			return nil, err
		}
		options = append(options, sdktrace.WithSpanProcessor(apart{routine: routine, others: others}))
	}
	telemetry := &Telemetry{Logger: logger, stopLog: func() {}}
	if collectorNamed() {
		var err error
		if telemetry.collector, err = newCollector(ctx, logger); err != nil {
			return nil, err
		}
		options = append(options, sdktrace.WithBatcher(telemetry.collector))
	}
	telemetry.provider = sdktrace.NewTracerProvider(options...)
	if log, ok := config.Stderr.(*os.File); ok && config.DataDir != "" {
		var watching context.Context
		watching, telemetry.stopLog = context.WithCancel(context.WithoutCancel(ctx))
		path := layout.DataDir(config.DataDir).Log(layout.Service(config.Service))
		go logfile.Watch(watching, log, path, func(err error) { logger.Error("the log has grown and cannot be put aside", KeyError, err) })
	}
	return telemetry, nil
}

// Tracer returns a tracer; name is the import path or short name of the package that starts the spans.
func (t *Telemetry) Tracer(name string) Tracer { return t.provider.Tracer(name) }

// TracerProvider returns the provider, for instrumentations that take one.
func (t *Telemetry) TracerProvider() trace.TracerProvider { return t.provider }

// Shutdown hands over what is still held and closes the span files. It takes at most three seconds, even under a context
// that has ended. What a collector did not take is logged; it is no reason for a service to fail.
func (t *Telemetry) Shutdown(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
	defer cancel()
	t.stopLog()
	err := t.provider.Shutdown(ctx)
	switch {
	case t.collector != nil:
		if err != nil {
			t.collector.report(err)
		}
		t.collector.abandon()
	case err != nil:
		t.Logger.Warn("the span files were not closed", KeyError, err)
	}
}
