package rpc

import (
	"testing"

	"go.opentelemetry.io/otel/metric/noop"

	"muxpost.dev/muxpost/internal/obs/obstest"
)

func TestMetrics_AreDocumented(t *testing.T) {
	meter := meterOf(noop.NewMeterProvider())
	answered(meter)
	asked(meter)
	obstest.Documented(t, "calls", meter.Made())
}
