package obs

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// collect reads what a reader has, by name.
func collect(t *testing.T, reader *sdkmetric.ManualReader) map[string]metricdata.Aggregation {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	out := map[string]metricdata.Aggregation{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			out[m.Name] = m.Data
		}
	}
	return out
}

func TestMeter_RecordsWithAttributesAndTheTrace(t *testing.T) {
	telemetry, _ := setup(t, &bytes.Buffer{})
	reader := sdkmetric.NewManualReader()
	meter := NewMeter(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)), "test")
	count := meter.Counter("things", "{thing}", "Things.", KeyOutcome, KeyReason)
	took := meter.Histogram("took", "How long.", Soon, KeyOutcome)
	gauge := meter.Gauge("now", "", "Now.", KeyHost)
	total := meter.Total("total", "", "All.")
	meter.Observe(func(_ context.Context, tell Tell) {
		tell(gauge, 7, "a")
		tell(total, 9)
	}, gauge, total)
	ctx, end := Start(t.Context(), telemetry.Tracer("test"), "work")
	count.Add(ctx, 2, "delivered")
	count.Add(ctx, 1, "delivered", "")
	took.Record(ctx, 30*time.Millisecond, "delivered")
	end(nil)
	got := collect(t, reader)
	sum, ok := got["things"].(metricdata.Sum[int64])
	if !ok || len(sum.DataPoints) != 1 || sum.DataPoints[0].Value != 3 ||
		sum.DataPoints[0].Attributes != attribute.NewSet(attribute.String(KeyOutcome, "delivered"), attribute.String(KeyReason, "")) {
		t.Errorf("things: %+v", got["things"])
	}
	h, ok := got["took"].(metricdata.Histogram[float64])
	if !ok || len(h.DataPoints) != 1 || h.DataPoints[0].Sum != 0.03 || !slices.Equal(h.DataPoints[0].Bounds, Soon) ||
		len(h.DataPoints[0].Exemplars) != 1 || TraceID(ctx) != hex.EncodeToString(h.DataPoints[0].Exemplars[0].TraceID) {
		t.Errorf("took: %+v", got["took"])
	}
	if g, ok := got["now"].(metricdata.Gauge[float64]); !ok || g.DataPoints[0].Value != 7 {
		t.Errorf("now: %+v", got["now"])
	}
	if s, ok := got["total"].(metricdata.Sum[float64]); !ok || !s.IsMonotonic || s.DataPoints[0].Value != 9 {
		t.Errorf("total: %+v", got["total"])
	}
	if made := meter.Made(); len(made) != 4 || made[0].Kind != KindCounter || made[3].Kind != KindCounter || made[1].Unit != "s" {
		t.Errorf("made %+v", made)
	}
}

func TestMeter_NilRecordsNothing(t *testing.T) {
	var m *Meter
	m.Counter("c", "", "").Add(t.Context(), 1)
	m.Histogram("h", "", Soon).Record(t.Context(), time.Second)
	m.Observe(func(context.Context, Tell) { t.Error("asked") }, m.Gauge("g", "", ""))
}

// What is measured in the middle of a call must cost next to nothing: once a set of attributes is known, nothing is allocated.
func TestMeter_AllocatesNothing(t *testing.T) {
	meter := NewMeter(sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader())), "test")
	count, took := meter.Counter("c", "", "", "a", "b"), meter.Histogram("h", "", Soon, "a")
	ctx := t.Context()
	if n := testing.AllocsPerRun(100, func() {
		count.Add(ctx, 1, "x", "y")
		took.Record(ctx, time.Millisecond, "x")
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestKeep_AsksSeldomAndTellsNothingWhenNobodyAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked, broken := 0, errors.New("away")
		var err error
		k := Keep(func(ctx context.Context) (int, error) {
			if left, ok := ctx.Deadline(); !ok || time.Until(left) > readTime {
				t.Error("the question has no end")
			}
			asked++
			return asked, err
		})
		read := func(want int, wantOK bool) {
			t.Helper()
			if got, ok := k.Read(t.Context()); ok != wantOK || ok && got != want {
				t.Errorf("got %d, %v", got, ok)
			}
		}
		read(1, true)
		time.Sleep(keepTime - time.Millisecond)
		read(1, true)
		time.Sleep(time.Millisecond)
		read(2, true)
		err = broken
		time.Sleep(keepTime)
		read(0, false)
		read(0, false)
		if asked != 3 {
			t.Errorf("asked %d times", asked)
		}
	})
}
