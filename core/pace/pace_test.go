package pace

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestGrow_BeginsWithTheIntervalAndEndsAtTheMost(t *testing.T) {
	for quiet, want := range map[int]time.Duration{0: 30 * time.Second, 1: 45 * time.Second, 2: 67500 * time.Millisecond, 6: 5 * time.Minute, 100_000: 5 * time.Minute} {
		if got := Grow(30*time.Second, 5*time.Minute, quiet); got != want {
			t.Errorf("after %d: %v, want %v", quiet, got, want)
		}
	}
	if got := Grow(time.Minute, time.Second, 5); got != time.Minute {
		t.Errorf("a most below the interval: %v", got)
	}
}

func TestBudget_SlowsWhatCostsAndNothingElse(t *testing.T) {
	hour := Budget{Limit: 5000, Remaining: 400, Left: time.Hour} // 400, less a floor of 100, for 10: 30 each
	for _, tt := range []struct {
		name string
		b    Budget
		cost int
		want time.Duration
	}{
		{"nobody knows", Budget{}, 100, 0},
		{"enough", Budget{Limit: 5000, Remaining: 501, Left: time.Hour}, 100, 0},
		{"at the reserve, at no cost", hour, 0, 0},
		{"at the reserve, little", hour, 1, 2 * time.Minute},
		{"at the reserve, much", hour, 15, 30 * time.Minute},
		{"more than its share", hour, 100, time.Hour},
		{"at the floor", Budget{Limit: 5000, Remaining: 100, Left: time.Hour}, 1, time.Hour},
		{"at the floor, at no cost", Budget{Limit: 5000, Remaining: 1, Left: time.Hour}, 0, 0},
		{"nothing remains", Budget{Limit: 5000, Left: time.Minute}, 0, time.Minute},
		{"the window has ended", Budget{Limit: 5000, Left: -time.Second}, 9, 0},
		{"a small limit keeps half of it", Budget{Limit: 60, Remaining: 31, Left: time.Hour}, 9, 0},
	} {
		if got := tt.b.Wait(tt.cost, 10); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestBudget_EveryoneTogetherStaysWithinWhatRemains(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(60, 15_000).Draw(t, "limit")
		b := Budget{Limit: limit, Remaining: rapid.IntRange(1, limit).Draw(t, "remaining"), Left: time.Hour}
		costs := rapid.SliceOfN(rapid.IntRange(0, 500), 1, 50).Draw(t, "costs")
		spent := 0.0
		for _, cost := range costs {
			if wait := b.Wait(cost, len(costs)); wait > 0 && wait < b.Left {
				spent += float64(cost) * float64(b.Left) / float64(wait)
			}
		}
		if b.Low() && spent > float64(b.Remaining)+1 {
			t.Errorf("%v of %d are spent", spent, b.Remaining)
		}
	})
}

func TestFullDue_ComesOnceAnIntervalAndNotForAllAtOnce(t *testing.T) {
	due := 0
	for i := range 1000 {
		key := fmt.Sprint("octo/", i)
		if FullDue(key, time.Hour, 47*time.Minute, Budget{}) || !FullDue(key, time.Hour, 73*time.Minute, Budget{}) {
			t.Errorf("%s is not due within its spread", key)
		}
		if FullDue(key, time.Hour, time.Hour, Budget{}) {
			due++
		}
		low := Budget{Limit: 5000, Remaining: 10, Left: time.Hour}
		if FullDue(key, time.Hour, 3*time.Hour, low) || !FullDue(key, time.Hour, 5*time.Hour, low) {
			t.Errorf("%s: a low budget", key)
		}
	}
	if due < 350 || due > 650 {
		t.Errorf("%d of 1000 are due after the interval", due)
	}
}
