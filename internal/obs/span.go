package obs

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Tracer starts spans. It is OpenTelemetry's own type under a name that packages can use without importing OpenTelemetry.
type Tracer = trace.Tracer

// header is the name of the W3C trace context.
const header = "traceparent"

// Propagator returns the propagator that every client and server of ours uses: W3C trace context. It is passed to each
// instrumentation by hand and never installed as a global.
func Propagator() propagation.TextMapPropagator { return propagation.TraceContext{} }

// Inject returns the trace context of ctx in the form of a traceparent header, to be stored with a row; empty when ctx is
// in no span.
func Inject(ctx context.Context) string {
	carrier := propagation.MapCarrier{}
	Propagator().Inject(ctx, carrier)
	return carrier[header]
}

// Extract returns ctx inside the trace that Inject stored, so that what is done next belongs to it. An empty or damaged
// traceparent leaves ctx alone.
func Extract(ctx context.Context, traceparent string) context.Context {
	return Propagator().Extract(ctx, propagation.MapCarrier{header: traceparent})
}

// TraceID returns the id of the trace that ctx is in, as 32 hexadecimal digits, or "".
func TraceID(ctx context.Context) string {
	if span := trace.SpanContextFromContext(ctx); span.HasTraceID() {
		return span.TraceID().String()
	}
	return ""
}

// Start starts a span around one effect, as a child of the span in ctx. The caller ends it with the effect's error, which
// marks the span as failed when it is not nil.
func Start(ctx context.Context, tracer Tracer, name string, attrs ...slog.Attr) (context.Context, func(error)) {
	ctx, span := tracer.Start(ctx, name, trace.WithAttributes(attributes(attrs)...))
	return ctx, ender(span)
}

// StartLinked starts a trace of its own that links to a stored one: a retry of an event links to its first try. Without a
// valid traceparent it is a new trace without a link.
func StartLinked(ctx context.Context, tracer Tracer, name, traceparent string, attrs ...slog.Attr) (context.Context, func(error)) {
	options := []trace.SpanStartOption{trace.WithNewRoot(), trace.WithAttributes(attributes(attrs)...)}
	if first := trace.SpanContextFromContext(Extract(context.Background(), traceparent)); first.IsValid() {
		options = append(options, trace.WithLinks(trace.Link{SpanContext: first}))
	}
	ctx, span := tracer.Start(ctx, name, options...)
	return ctx, ender(span)
}

// Past records a span of something that lies behind, as a child of the span in ctx: what it was part of may have been begun by another process.
// failed says why it is marked as failed; empty when it is not.
func Past(ctx context.Context, tracer Tracer, name string, from, to time.Time, failed string, attrs ...slog.Attr) {
	if to.Before(from) {
		to = from // they may be on two clocks
	}
	_, span := tracer.Start(ctx, name, trace.WithTimestamp(from), trace.WithAttributes(attributes(attrs)...))
	if failed != "" {
		span.SetStatus(codes.Error, failed)
	}
	span.End(trace.WithTimestamp(to))
}

func ender(span trace.Span) func(error) {
	return func(err error) {
		if err != nil {
			span.SetStatus(codes.Error, err.Error())
		}
		span.End()
	}
}

// Event records that something was decided or observed, on the span in ctx.
func Event(ctx context.Context, name string, attrs ...slog.Attr) {
	trace.SpanFromContext(ctx).AddEvent(name, trace.WithAttributes(attributes(attrs)...))
}

// Annotate sets attributes of the span in ctx.
func Annotate(ctx context.Context, attrs ...slog.Attr) {
	trace.SpanFromContext(ctx).SetAttributes(attributes(attrs)...)
}

// attributes converts the attributes of a log record, so that one list serves a record and a span.
func attributes(attrs []slog.Attr) []attribute.KeyValue {
	out := make([]attribute.KeyValue, 0, len(attrs))
	for _, attr := range attrs {
		value := attr.Value.Resolve()
		switch value.Kind() {
		case slog.KindBool:
			out = append(out, attribute.Bool(attr.Key, value.Bool()))
		case slog.KindInt64:
			out = append(out, attribute.Int64(attr.Key, value.Int64()))
		case slog.KindFloat64:
			out = append(out, attribute.Float64(attr.Key, value.Float64()))
		case slog.KindGroup:
			for _, inner := range attributes(value.Group()) {
				inner.Key = attribute.Key(fmt.Sprintf("%s.%s", attr.Key, inner.Key))
				out = append(out, inner)
			}
		default:
			out = append(out, attribute.String(attr.Key, value.String()))
		}
	}
	return out
}
