package obs

import (
	"context"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
)

// Metric describes one instrument. Every instrument is made with one, so that docs/metrics.md can be held to what there is.
type Metric struct {
	// Name and Unit follow OpenTelemetry's conventions.
	Name, Unit string
	Kind       Kind
	// Attributes are its keys. Their values are words of closed lists and names from the configuration, never the id of anything.
	Attributes []string
	// About says what it tells, and how to sum it over replicas where a sum would be wrong.
	About string
}

// Kind is how an instrument is read.
type Kind string

// The kinds.
const (
	KindCounter   Kind = "counter"
	KindHistogram Kind = "histogram"
	KindGauge     Kind = "gauge"
)

// Buckets for seconds: of what a person or a deadline waits for, and of what may lie for days.
var (
	Soon = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 20}
	Late = []float64{.1, .5, 1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 86400}
)

// Meter makes instruments. A nil Meter makes ones that record nothing.
type Meter struct {
	meter metric.Meter
	made  []Metric
}

// NewMeter returns a meter of a provider; name is the import path or short name of the package whose table it makes.
func NewMeter(provider metric.MeterProvider, name string) *Meter {
	return &Meter{meter: provider.Meter(name)}
}

// Made returns what was made.
func (m *Meter) Made() []Metric { return slices.Clone(m.made) }

// next returns the meter to make an instrument with.
func (m *Meter) next(made Metric) metric.Meter {
	if m == nil {
		return noop.Meter{}
	}
	m.made = append(m.made, made)
	return m.meter
}

// Counter counts things.
type Counter struct {
	instrument metric.Int64Counter
	attributes attributeSets
}

// Counter makes one. Names are constants that the tests of the tables check: one that is refused counts nothing.
func (m *Meter) Counter(name, unit, about string, keys ...string) *Counter {
	c, _ := m.next(Metric{name, unit, KindCounter, keys, about}).Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(about))
	return &Counter{c, attributeSets{keys: keys}}
}

// Add counts n; values are those of the keys, in their order. A context inside a span has the trace shown beside the number.
func (c *Counter) Add(ctx context.Context, n int64, values ...string) {
	c.instrument.Add(ctx, n, c.attributes.of(values).add...)
}

// Histogram takes durations.
type Histogram struct {
	instrument metric.Float64Histogram
	attributes attributeSets
}

// Histogram makes one of seconds.
func (m *Meter) Histogram(name, about string, buckets []float64, keys ...string) *Histogram {
	h, _ := m.next(Metric{name, "s", KindHistogram, keys, about}).Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(about),
		metric.WithExplicitBucketBoundaries(buckets...))
	return &Histogram{h, attributeSets{keys: keys}}
}

// Record takes a duration; values and ctx are as for Counter.Add.
func (h *Histogram) Record(ctx context.Context, took time.Duration, values ...string) {
	h.instrument.Record(ctx, took.Seconds(), h.attributes.of(values).record...)
}

// Gauge is read whenever metrics are collected.
type Gauge struct {
	instrument metric.Float64Observable
	attributes attributeSets
}

// Gauge makes one of what there is now.
func (m *Meter) Gauge(name, unit, about string, keys ...string) *Gauge {
	g, _ := m.next(Metric{name, unit, KindGauge, keys, about}).Float64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(about))
	return &Gauge{g, attributeSets{keys: keys}}
}

// Total makes one of what somebody else counts since the start of the process.
func (m *Meter) Total(name, unit, about string, keys ...string) *Gauge {
	g, _ := m.next(Metric{name, unit, KindCounter, keys, about}).Float64ObservableCounter(name, metric.WithUnit(unit), metric.WithDescription(about))
	return &Gauge{g, attributeSets{keys: keys}}
}

// Tell gives a gauge a value; values are those of its keys, in their order. What is not told is not there.
type Tell func(g *Gauge, value float64, values ...string)

// Observe has read called at each collection. It must be quick: whoever collects waits for it.
func (m *Meter) Observe(read func(ctx context.Context, tell Tell), gauges ...*Gauge) {
	if m == nil {
		return
	}
	all := make([]metric.Observable, len(gauges))
	for i, g := range gauges {
		all[i] = g.instrument
	}
	// It fails for instruments of another meter alone.
	_, _ = m.meter.RegisterCallback(func(ctx context.Context, o metric.Observer) error {
		read(ctx, func(g *Gauge, value float64, values ...string) {
			o.ObserveFloat64(g.instrument, value, g.attributes.of(values).observe...)
		})
		return nil
	}, all...)
}

// maxAttributes is how many keys an instrument may have.
const maxAttributes = 3

// attributeSets keeps the attributes of an instrument ready: making a set costs more than counting, and what is done thousands of times a
// second must not allocate.
type attributeSets struct {
	keys []string

	mu    sync.RWMutex
	known map[[maxAttributes]string]measured
}

// measured is a set in the forms that the instruments take.
type measured struct {
	add     []metric.AddOption
	record  []metric.RecordOption
	observe []metric.ObserveOption
}

func (s *attributeSets) of(values []string) measured {
	var key [maxAttributes]string
	copy(key[:len(s.keys)], values)
	s.mu.RLock()
	m, ok := s.known[key]
	s.mu.RUnlock()
	if ok {
		return m
	}
	attrs := make([]attribute.KeyValue, len(s.keys))
	for i, name := range s.keys {
		attrs[i] = attribute.String(name, key[i])
	}
	set := metric.WithAttributeSet(attribute.NewSet(attrs...))
	m = measured{[]metric.AddOption{set}, []metric.RecordOption{set}, []metric.ObserveOption{set}}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil {
		s.known = map[[maxAttributes]string]measured{}
	}
	s.known[key] = m
	return m
}
