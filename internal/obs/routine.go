package obs

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

type routine struct{}

// Routine returns ctx marked with whether what begins below it is done again and again, whether anything comes of it or not: a look at a source.
// Spans of that go to files of their own, with a bound of their own, so that they do not push the traces of deliveries out.
func Routine(ctx context.Context, yes bool) context.Context {
	return context.WithValue(ctx, routine{}, yes)
}

// routinely is the attribute of a span of routine, by which it comes to its file.
var routinely = attribute.Bool(KeyRoutine, true)

// apart writes spans of routine to other files than all others.
type apart struct{ routine, others sdktrace.SpanProcessor }

// OnStart does nothing: only finished spans are kept.
func (apart) OnStart(context.Context, sdktrace.ReadWriteSpan) {}

// OnEnd writes the span.
func (a apart) OnEnd(s sdktrace.ReadOnlySpan) {
	for _, attr := range s.Attributes() {
		if attr == routinely {
			a.routine.OnEnd(s)
			return
		}
	}
	a.others.OnEnd(s)
}

// ForceFlush hands over what is held.
func (a apart) ForceFlush(ctx context.Context) error {
	if err := a.routine.ForceFlush(ctx); err != nil {
		return err
	}
	return a.others.ForceFlush(ctx)
}

// Shutdown closes the files.
func (a apart) Shutdown(ctx context.Context) error {
	err := a.routine.Shutdown(ctx)
	if other := a.others.Shutdown(ctx); err == nil {
		err = other
	}
	return err
}
