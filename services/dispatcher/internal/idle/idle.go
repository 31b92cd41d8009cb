// Package idle has agents ended that nobody has needed for a long time, where the configuration wants that: at the start, and every ten minutes.
//
// It knows nothing of what an agent is, nor how one is ended.
package idle

import (
	"context"
	"log/slog"
	"time"

	"muxpost.dev/muxpost/internal/obs"
)

// every is how often it is looked.
const every = 10 * time.Minute

// Ender ends the agents that have been idle for longer than a time and that nobody needs.
type Ender interface {
	EndIdle(ctx context.Context, after time.Duration) error
}

// Run has agents ended until ctx ends; it returns nil: trouble is waited out.
func Run(ctx context.Context, e Ender, after time.Duration, log *slog.Logger) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		if err := e.EndIdle(ctx, after); err != nil && ctx.Err() == nil {
			log.WarnContext(ctx, "idle agents were not looked at", obs.KeyError, err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}
