package metrics

import (
	"os"
	"testing"

	"go.opentelemetry.io/otel/metric/noop"

	"muxpost.dev/muxpost/internal/obs"
	"muxpost.dev/muxpost/internal/obs/obstest"
)

func TestMetrics_AreDocumented(t *testing.T) {
	meter := obs.NewMeter(noop.NewMeterProvider(), "tmuxd")
	New(meter)
	obstest.Documented(t, "tmuxd", meter.Made())
}

func TestResident_IsOfThoseThatLive(t *testing.T) {
	own := resident([]int{os.Getpid()})
	if own < 1<<20 || resident([]int{1 << 30}) != 0 || resident(nil) != 0 {
		t.Errorf("this process holds %d bytes", own)
	}
}
