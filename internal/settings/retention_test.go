package settings

import (
	"testing"
	"time"
)

func TestRetention_IsNotShorterThanADay(t *testing.T) {
	for keep, want := range map[time.Duration]int{0: 1, -time.Hour: 1, 24*time.Hour - 1: 1, 24 * time.Hour: 0, defaultRetention: 0} {
		var p problems
		checkRetention(&p, "retention", keep)
		if got := len(p.texts); got != want {
			t.Errorf("%v: %d problems", keep, got)
		}
	}
}
