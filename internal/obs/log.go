package obs

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"slices"

	"github.com/lmittmann/tint"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/term"

	"muxpost.dev/muxpost/core/fault"
)

// NewLogger returns a logger that writes JSON records to w, or coloured lines when w is a terminal. A record made with a
// context that is inside a span carries its trace_id and span_id, whatever groups the logger has open.
func NewLogger(w io.Writer, level slog.Leveler) *slog.Logger {
	return slog.New(newTraceHandler(newHandler(w, level)))
}

func newHandler(w io.Writer, level slog.Leveler) slog.Handler {
	if isTerminal(w) {
		return tint.NewTextHandler(w, &tint.Options{Level: level, TimeFormat: "15:04:05.000", NoColor: os.Getenv("NO_COLOR") != "",
			ReplaceAttr: showCause})
	}
	return slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level, ReplaceAttr: showCause})
}

// showCause adds to an error what its text leaves out for people.
func showCause(_ []string, a slog.Attr) slog.Attr {
	err, ok := a.Value.Any().(error)
	var f *fault.Error
	if !ok || !errors.As(err, &f) || f.HiddenCause() == nil {
		return a
	}
	return slog.String(a.Key, err.Error()+" ["+f.HiddenCause().Error()+"]")
}

// bridge hands records from a level up to a collector, as they are on standard error: an error is its text there, under its own key.
type bridge struct {
	slog.Handler
	level slog.Leveler
}

// Enabled reports whether the level is high enough.
func (b bridge) Enabled(_ context.Context, level slog.Level) bool { return level >= b.level.Level() }

// Handle hands a record on.
func (b bridge) Handle(ctx context.Context, record slog.Record) error {
	out := slog.NewRecord(record.Time, record.Level, record.Message, record.PC)
	record.Attrs(func(a slog.Attr) bool {
		out.AddAttrs(plain(a))
		return true
	})
	return b.Handler.Handle(ctx, out)
}

// WithAttrs returns a handler whose records carry the attributes.
func (b bridge) WithAttrs(attrs []slog.Attr) slog.Handler {
	out := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		out[i] = plain(a)
	}
	return bridge{b.Handler.WithAttrs(out), b.level}
}

// WithGroup returns a handler that puts later attributes into a group.
func (b bridge) WithGroup(name string) slog.Handler {
	return bridge{b.Handler.WithGroup(name), b.level}
}

// plain turns an error into its text.
func plain(a slog.Attr) slog.Attr {
	a = showCause(nil, a)
	if err, ok := a.Value.Any().(error); ok {
		return slog.String(a.Key, err.Error())
	}
	return a
}

// isTerminal reports whether w is a file that a person is looking at.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// traceHandler adds the ids of the current span to each record, at the top level. Attributes added to a record land in the
// innermost open group, so once a group is open the chain is built again from the root, with the ids first.
type traceHandler struct {
	root  slog.Handler
	now   slog.Handler
	steps []func(slog.Handler) slog.Handler // what leads from root to now, once a group is open
}

func newTraceHandler(h slog.Handler) *traceHandler { return &traceHandler{root: h, now: h} }

// Enabled reports whether the wrapped handler takes records of the level.
func (h *traceHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.now.Enabled(ctx, level)
}

// Handle passes the record on with the ids of the span in ctx.
func (h *traceHandler) Handle(ctx context.Context, record slog.Record) error {
	span := trace.SpanContextFromContext(ctx)
	if !span.IsValid() {
		return h.now.Handle(ctx, record)
	}
	ids := []slog.Attr{slog.String(KeyTraceID, span.TraceID().String()), slog.String(KeySpanID, span.SpanID().String())}
	if len(h.steps) == 0 {
		record = record.Clone()
		record.AddAttrs(ids...)
		return h.now.Handle(ctx, record)
	}
	handler := h.root.WithAttrs(ids)
	for _, step := range h.steps {
		handler = step(handler)
	}
	return handler.Handle(ctx, record)
}

// WithAttrs returns a handler whose records carry the attributes.
func (h *traceHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	if len(h.steps) == 0 {
		return newTraceHandler(h.root.WithAttrs(attrs))
	}
	return h.then(func(next slog.Handler) slog.Handler { return next.WithAttrs(attrs) })
}

// WithGroup returns a handler that puts later attributes into a group.
func (h *traceHandler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	return h.then(func(next slog.Handler) slog.Handler { return next.WithGroup(name) })
}

func (h *traceHandler) then(step func(slog.Handler) slog.Handler) *traceHandler {
	steps := append(slices.Clip(h.steps), step) //nolint:gocritic // a copy is meant: siblings share the beginning
	return &traceHandler{root: h.root, now: step(h.now), steps: steps}
}
