package rpc

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"muxpost.dev/muxpost/core/fault"
)

func TestFollow_ReadsAgainAfterPausesThatGrowAndEndAfterALongStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var pauses []time.Duration
		last := time.Now()
		Follow(ctx, slog.New(slog.DiscardHandler), func(context.Context) error {
			pauses = append(pauses, time.Since(last))
			defer func() { last = time.Now() }()
			switch len(pauses) {
			case 10:
				time.Sleep(time.Minute) // a stream that lasted
			case 11:
				return fault.New(fault.Invalid, fault.ReasonUnknownCall, "what is that?")
			case 12:
				cancel()
			}
			return errors.New("broken")
		})
		const ms = time.Millisecond
		want := []time.Duration{0, 100 * ms, 200 * ms, 400 * ms, 800 * ms, 1600 * ms, 3200 * ms, 6400 * ms, longestPause, longestPause, firstPause, unknownPause}
		if !slices.Equal(pauses, want) {
			t.Errorf("%v", pauses)
		}
	})
}
