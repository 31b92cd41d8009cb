package lease

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

var t0 = time.Unix(1_700_000_000, 0)

func TestLease_OneHolderAtATime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, now, highest := Lease{}, t0, int64(0)
		for range rapid.IntRange(1, 50).Draw(t, "n") {
			now = now.Add(time.Duration(rapid.IntRange(0, 20_000).Draw(t, "ms")) * time.Millisecond)
			holder := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "holder")
			if !l.MayTake(holder, now) {
				if !l.Held(now) || l.Holder == holder {
					t.Fatalf("%s may not take %+v at %v", holder, l, now)
				}
				continue
			}
			if l.Held(now) && l.Holder != holder {
				t.Fatalf("%s takes what %s holds", holder, l.Holder)
			}
			highest++
			l = Lease{holder, highest, now.Add(Time)}
		}
	})
}

func TestBudget_EndsBeforeTheLease(t *testing.T) {
	l := Lease{"a", 1, t0.Add(Time)}
	for _, row := range []struct {
		at   time.Duration
		want time.Duration
	}{{0, Time - Margin}, {Time - Margin, 0}, {Time - Margin - 1, 1}, {Time, 0}, {2 * Time, 0}} {
		if got := l.Budget(t0.Add(row.at)); got != row.want {
			t.Errorf("budget after %v is %v, want %v", row.at, got, row.want)
		}
	}
	if (Lease{}).Budget(t0) != 0 {
		t.Error("nobody's lease has a budget")
	}
}
