package store

import (
	"context"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"muxpost.dev/muxpost/internal/obs"
)

// channel is where the schema announces new events that wait.
const channel = "poller_events"

// The pause before a lost connection is made again, doubled up to the longest.
const (
	firstPause = 100 * time.Millisecond
	maxPause   = 10 * time.Second
)

// Listen puts a value into wake whenever events came in, until ctx ends. It has a connection of its own, outside the pools, so
// that it can neither wait for one of theirs nor keep one from others. A lost connection is made again; what was announced
// meanwhile is not heard, and whoever reads wake must look by itself now and then.
func (s *Store) Listen(ctx context.Context, wake chan<- struct{}, log *slog.Logger) error {
	pause := firstPause
	for {
		err := s.listen(ctx, wake, func() { pause = firstPause })
		log.DebugContext(ctx, "the connection for announcements was lost", obs.KeyError, err)
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		}
		pause = min(2*pause, maxPause)
	}
}

func (s *Store) listen(ctx context.Context, wake chan<- struct{}, connected func()) error {
	config := s.quiet.Config().ConnConfig.Copy()
	config.Tracer = nil
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(closing) // it is given up either way
	}()
	if _, err := conn.Exec(ctx, "listen "+channel); err != nil {
		return err
	}
	connected()
	for {
		// Once before the first wait too: something may have come in before we listened.
		select {
		case wake <- struct{}{}:
		default:
		}
		if _, err := conn.WaitForNotification(ctx); err != nil {
			return err
		}
	}
}
