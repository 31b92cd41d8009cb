// Package measure has what the benchmarks share: how times are summed up and written down.
package measure

import (
	"fmt"
	"slices"
	"time"
)

// Quantile returns the time below which a share q of d lies; zero for none.
func Quantile(d []time.Duration, q float64) time.Duration {
	if len(d) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(d))
	return s[min(int(q*float64(len(s))), len(s)-1)]
}

// Us returns d in microseconds.
func Us(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// Ms returns d in milliseconds.
func Ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// Short writes d for a table.
func Short(d time.Duration) string {
	if d < time.Millisecond {
		return fmt.Sprintf("%.0f µs", Us(d))
	}
	return fmt.Sprintf("%.1f ms", Ms(d))
}

// Share returns how many times b a is; zero when b is.
func Share(a, b time.Duration) float64 {
	if b == 0 {
		return 0
	}
	return float64(a) / float64(b)
}
