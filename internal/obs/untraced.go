package obs

import (
	"context"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

type untraced struct{}

// Untraced returns ctx marked so that no trace begins below it: a question that belongs to no trace and changes nothing. What is asked a
// thousand times a minute would push the traces of deliveries out of the span files. A span whose parent is kept is kept all the same.
func Untraced(ctx context.Context) context.Context { return context.WithValue(ctx, untraced{}, true) }

// sampler keeps every trace, but for those that would begin below Untraced, and says which spans are routine.
type sampler struct{ sdktrace.Sampler }

// ShouldSample decides on one span.
func (s sampler) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	if p.ParentContext.Value(untraced{}) != nil && !trace.SpanContextFromContext(p.ParentContext).IsValid() {
		return sdktrace.SamplingResult{Decision: sdktrace.Drop}
	}
	result := s.Sampler.ShouldSample(p)
	if yes, _ := p.ParentContext.Value(routine{}).(bool); yes {
		result.Attributes = append(result.Attributes, routinely)
	}
	return result
}
