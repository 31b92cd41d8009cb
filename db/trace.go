package db

import (
	"context"
	"errors"

	"github.com/exaring/otelpgx"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"
)

// tracer is otelpgx's, which names a span by the statement's verb and keeps parameters out, with one thing changed: it also
// writes down the text of an error, and that may quote a parameter.
type tracer struct {
	*otelpgx.Tracer
}

// newTracer names both providers always: for one that is missing otelpgx would take the process-wide one.
func newTracer(cfg Config) tracer {
	var tp trace.TracerProvider = tracenoop.NewTracerProvider()
	if cfg.TracerProvider != nil {
		tp = cfg.TracerProvider
	}
	var mp metric.MeterProvider = metricnoop.NewMeterProvider()
	if cfg.MeterProvider != nil {
		mp = cfg.MeterProvider
	}
	return tracer{otelpgx.NewTracer(otelpgx.WithTracerProvider(tp), otelpgx.WithMeterProvider(mp))}
}

// TraceQueryEnd ends the span of a statement.
func (t tracer) TraceQueryEnd(ctx context.Context, conn *pgx.Conn, data pgx.TraceQueryEndData) {
	data.Err = traced(data.Err)
	t.Tracer.TraceQueryEnd(ctx, conn, data)
}

// TraceCopyFromEnd ends the span of a COPY.
func (t tracer) TraceCopyFromEnd(ctx context.Context, conn *pgx.Conn, data pgx.TraceCopyFromEndData) {
	data.Err = traced(data.Err)
	t.Tracer.TraceCopyFromEnd(ctx, conn, data)
}

// TraceBatchQuery makes the span of one statement of a batch.
func (t tracer) TraceBatchQuery(ctx context.Context, conn *pgx.Conn, data pgx.TraceBatchQueryData) {
	data.Args, data.Err = nil, traced(data.Err)
	t.Tracer.TraceBatchQuery(ctx, conn, data)
}

// TraceBatchEnd ends the span of a batch.
func (t tracer) TraceBatchEnd(ctx context.Context, conn *pgx.Conn, data pgx.TraceBatchEndData) {
	data.Err = traced(data.Err)
	t.Tracer.TraceBatchEnd(ctx, conn, data)
}

// traced returns an error whose text may stand in a span. The driver's own complaints quote the value that they could not
// encode, so of those only the fact is told.
func traced(err error) error {
	var pg *pgconn.PgError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &pg), connectionLost(err), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded),
		errors.Is(err, pgx.ErrNoRows):
		return shown(err)
	}
	return &shownError{text: "the driver refused a statement or its result", err: err}
}
