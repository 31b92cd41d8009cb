package rpc

import (
	"context"
	"log/slog"
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/obs"
)

// The pause before a stream is read again, doubled up to the longest; another side that does not have the call is left alone for longer.
const (
	firstPause   = 100 * time.Millisecond
	longestPause = 10 * time.Second
	unknownPause = 5 * time.Minute
)

// Follow reads a stream again and again until ctx ends: read returns when its stream broke. What is told while no stream is read is missed.
func Follow(ctx context.Context, log *slog.Logger, read func(context.Context) error) {
	pause := firstPause
	for {
		began := time.Now()
		err := read(ctx)
		if time.Since(began) > longestPause {
			pause = firstPause
		}
		wait := pause
		if fault.ReasonOf(err) == fault.ReasonUnknownCall {
			wait = unknownPause
		}
		log.DebugContext(ctx, "a stream broke and is read again after a pause", "pause", wait, obs.KeyError, err)
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		pause = min(2*pause, longestPause)
	}
}
