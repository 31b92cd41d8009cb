package validity

import (
	"os"
	"testing"
	"time"

	"go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"muxpost.dev/muxpost/internal/identity"
	"muxpost.dev/muxpost/internal/identity/identitytest"
	"muxpost.dev/muxpost/internal/obs"
	"muxpost.dev/muxpost/internal/obs/obstest"
)

func TestMetrics_AreDocumented(t *testing.T) {
	meter := obs.NewMeter(noop.NewMeterProvider(), "certificate")
	Observe(meter, identity.Files{}, time.Now)
	obstest.Documented(t, "certificate", meter.Made())
}

// told returns what reads what is told of the files: the values, of which there is one or none.
func told(t *testing.T, files identity.Files, now func() time.Time) func() []float64 {
	t.Helper()
	reader := sdkmetric.NewManualReader()
	Observe(obs.NewMeter(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)), "certificate"), files, now)
	return func() (values []float64) {
		t.Helper()
		var all metricdata.ResourceMetrics
		if err := reader.Collect(t.Context(), &all); err != nil {
			t.Fatal(err)
		}
		for _, scope := range all.ScopeMetrics {
			for _, m := range scope.Metrics {
				for _, p := range m.Data.(metricdata.Gauge[float64]).DataPoints {
					values = append(values, p.Value)
				}
			}
		}
		return values
	}
}

func TestObserve_TellsOfTheCertificateThatTheServiceUses(t *testing.T) {
	ours := identitytest.NewAuthority(t)
	now := time.Now().Truncate(time.Second) // as certificates have it
	issue := func(until time.Duration) identity.Files {
		f := ours.IssueUntil(t, "service/dispatcher", now.Add(until))
		return identity.Files{Cert: f.Cert, Key: f.Key, CA: f.CA}
	}
	files, next := issue(time.Hour), issue(30*time.Hour)
	at := now
	look := told(t, files, func() time.Time { return at })
	expect := func(what string, want time.Duration) {
		t.Helper()
		if got := look(); len(got) != 1 || got[0] != want.Seconds() {
			t.Errorf("%s: %v, want %v", what, got, want.Seconds())
		}
	}
	expect("at first", time.Hour)
	at = now.Add(90 * time.Minute)
	expect("it has ended", -30*time.Minute)
	for from, to := range map[string]string{next.Key: files.Key, next.Cert: files.Cert} {
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	expect("it was renewed", 30*time.Hour-90*time.Minute)
	// What others can read is not used: the service goes on with the last, and that one comes nearer to its end.
	if err := os.Chmod(files.Key, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(files.Cert, []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	at = now.Add(2 * time.Hour)
	expect("its files cannot be used", 28*time.Hour)
}

func TestObserve_TellsNothingOfWhoHasNone(t *testing.T) {
	if got := told(t, identity.Files{}, time.Now)(); len(got) != 0 {
		t.Errorf("%v", got)
	}
}
