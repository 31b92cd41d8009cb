// Package endings has the orders to end an agent carried out that wait for its host: whenever something changed at its session, when a host
// came back, and every minute in any case.
//
// It knows nothing of what such an order is, nor how it is carried out.
package endings

import (
	"context"
	"log/slog"
	"time"

	"muxpost.dev/muxpost/internal/obs"
	"muxpost.dev/muxpost/services/dispatcher/internal/hints"
)

// every is how often they are looked at without a hint: the host may have answered a moment too early for it.
const every = time.Minute

// Carrier carries out the orders that wait, of one work item or of all when it is empty, and calls over with each item whose order does
// not stand any more.
type Carrier interface {
	CarryOut(ctx context.Context, workItem string, over func(workItem string)) error
}

// Run has orders carried out until ctx ends, and tells the hub of each item whose order does not stand any more: its events may go on. It
// returns nil: trouble is waited out.
func Run(ctx context.Context, c Carrier, hub *hints.Hub, log *slog.Logger) error {
	follower := hub.Follow()
	defer follower.Close()
	for {
		waiting, cancel := context.WithTimeout(ctx, every)
		item, err := follower.Next(waiting)
		cancel()
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			item = hints.Any
		}
		if err := c.CarryOut(ctx, item, hub.Tell); err != nil && ctx.Err() == nil {
			log.WarnContext(ctx, "the orders to end agents were not looked at", obs.KeyError, err)
		}
	}
}
