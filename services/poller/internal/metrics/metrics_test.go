package metrics

import (
	"context"
	"testing"

	"go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"muxpost.dev/muxpost/internal/obs"
	"muxpost.dev/muxpost/internal/obs/obstest"
)

func TestMetrics_AreDocumented(t *testing.T) {
	meter := obs.NewMeter(noop.NewMeterProvider(), "poller")
	New(meter)
	obstest.Documented(t, "poller", meter.Made())
}

// Prometheus sees no increase in a series that begins with its first event. What an alert counts is told from the beginning, as nothing.
func TestObserve_WhatAnAlertCountsBeginsWithNothing(t *testing.T) {
	reader := sdkmetric.NewManualReader()
	meter := obs.NewMeter(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)), "poller")
	New(meter).Observe(meter, func(context.Context) (Figures, error) { return Figures{}, nil }, func() []Source { return []Source{{Name: "widgets"}} })
	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	told := map[string]bool{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			sum, ok := m.Data.(metricdata.Sum[int64])
			if !ok {
				continue
			}
			for _, p := range sum.DataPoints {
				name := m.Name
				for _, a := range p.Attributes.ToSlice() {
					name += " " + string(a.Key) + "=" + a.Value.AsString()
				}
				told[name] = p.Value == 0
			}
		}
	}
	for _, want := range []string{
		"muxpost.poller.events.forwarded reason= state=delivered", "muxpost.poller.events.forwarded reason=unconfirmed state=settled",
		"muxpost.poller.events.ended state=dropped", "muxpost.poller.events.ended state=gave_up",
		"muxpost.poller.events.refused reason=loop source=widgets", "muxpost.poller.webhooks.missed source=widgets",
	} {
		if !told[want] {
			t.Errorf("%s is not told as nothing: %v", want, told)
		}
	}
}
