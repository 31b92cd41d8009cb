package obs_test

import (
	"testing"

	"go.opentelemetry.io/otel/metric/noop"

	"muxpost.dev/muxpost/internal/obs"
	"muxpost.dev/muxpost/internal/obs/obstest"
)

func TestMetrics_AreDocumented(t *testing.T) {
	meter := obs.NewMeter(noop.NewMeterProvider(), "process")
	obs.OfProcess(meter)
	obstest.Documented(t, "process", meter.Made())
}
