package metrics

import (
	"testing"

	"go.opentelemetry.io/otel/metric/noop"

	"muxpost.dev/muxpost/internal/obs"
	"muxpost.dev/muxpost/internal/obs/obstest"
)

func TestMetrics_AreDocumented(t *testing.T) {
	meter := obs.NewMeter(noop.NewMeterProvider(), "poller")
	New(meter)
	obstest.Documented(t, "poller", meter.Made())
}
