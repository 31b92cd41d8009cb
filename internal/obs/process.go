package obs

import (
	"context"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/runtime"
	"go.opentelemetry.io/otel/metric"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/version"
)

// ofProcess makes the metrics that every process has of itself.
func ofProcess(meter *Meter) {
	began, build := time.Now(), version.Get()
	uptime := meter.Gauge("process.uptime", "s", "How long the process has been running.")
	info := meter.Gauge("muxpost.build.info", "", "1, with the build that runs. Its absence is how a service that is down is seen.", KeyVersion, "go")
	meter.Observe(func(_ context.Context, tell Tell) {
		tell(uptime, time.Since(began).Seconds())
		tell(info, 1, build.String(), build.Go)
	}, uptime, info)
}

// watchProcess has a provider tell of the process and its Go runtime.
func watchProcess(provider metric.MeterProvider) error {
	ofProcess(NewMeter(provider, "muxpost.dev/muxpost/internal/obs"))
	if err := runtime.Start(runtime.WithMeterProvider(provider)); err != nil {
		return fault.Wrap(fault.Internal, "", "the metrics of the Go runtime cannot be registered", err)
	}
	return nil
}
