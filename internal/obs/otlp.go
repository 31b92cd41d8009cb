package obs

import (
	"context"
	"log/slog"
	"os"
	"sync"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"muxpost.dev/muxpost/core/fault"
)

// collectorNamed reports whether the environment names an OTLP collector for traces.
func collectorNamed() bool {
	return os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != ""
}

// collector hands spans to an OTLP collector. It keeps failures from OpenTelemetry's global error handler, which would print
// each of them to standard error in a format of its own, and logs the change instead: once when the collector is lost, once
// when it is back.
type collector struct {
	next    sdktrace.SpanExporter
	logger  *slog.Logger
	given   context.Context // ends when nobody waits for exports any more
	abandon context.CancelFunc

	mu   sync.Mutex
	lost bool
}

func newCollector(ctx context.Context, logger *slog.Logger) (*collector, error) {
	exporter, err := otlptracegrpc.New(ctx)
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, fault.ReasonBadConfig, "cannot use the collector named by OTEL_EXPORTER_OTLP_ENDPOINT", err)
	}
	c := &collector{next: exporter, logger: logger}
	c.given, c.abandon = context.WithCancel(context.WithoutCancel(ctx))
	return c, nil
}

// ExportSpans hands spans over. It reports no error: the spans are gone, and the span files have them.
func (c *collector) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.given, cancel)()
	c.report(c.next.ExportSpans(ctx, spans))
	return nil
}

// report logs a change between taking spans and not taking them.
func (c *collector) report(err error) {
	c.mu.Lock()
	changed := c.lost != (err != nil)
	c.lost = err != nil
	c.mu.Unlock()
	switch {
	case changed && err != nil:
		c.logger.Warn("the trace collector does not take spans; they remain in the span files", KeyError, err)
	case changed:
		c.logger.Info("the trace collector takes spans again")
	}
}

// Shutdown closes the connection.
func (c *collector) Shutdown(ctx context.Context) error { return c.next.Shutdown(ctx) }
