package store

import (
	"context"
	"log/slog"

	"muxpost.dev/muxpost/db"
)

// channel is where the schema announces new events that wait.
const channel = "poller_events"

// Listen puts a value into wake whenever events came in, until ctx ends. What is announced while there is no connection is not heard, and
// whoever reads wake must look by itself now and then.
func (s *Store) Listen(ctx context.Context, wake chan<- struct{}, log *slog.Logger) error {
	db.Listen(ctx, s.quiet, channel, func() {
		select {
		case wake <- struct{}{}:
		default:
		}
	}, log)
	return nil
}
