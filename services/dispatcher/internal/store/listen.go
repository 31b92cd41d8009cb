package store

import (
	"context"
	"log/slog"
	"time"

	"muxpost.dev/muxpost/db"
	"muxpost.dev/muxpost/internal/obs"
)

const (
	// channel is where the schema announces events.
	channel = "dispatcher_events"
	// lookEvery is how often it is looked for events that no announcement told of.
	lookEvery = time.Second
)

// Listen calls more when there may be events that a reader has not seen, until ctx ends: at each announcement, and within a second without
// one, as behind a transaction pooler. One look serves all readers. It returns nil.
func (s *Store) Listen(ctx context.Context, more func(), log *slog.Logger) error {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		db.Listen(ctx, s.pool, channel, more, log)
	}()
	defer func() { <-ended }()
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for last := int64(0); ; {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		now, err := s.lastEvent(ctx)
		switch {
		case err != nil:
			log.DebugContext(ctx, "it was not seen whether there are new events", obs.KeyError, err)
		case now != last:
			last = now
			more()
		}
	}
}

// lastEvent is the highest sequence number that can be read; zero when there is none.
func (s *Store) lastEvent(ctx context.Context) (last int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, lookEvery)
	defer cancel()
	err = s.pool.QueryRow(ctx, "select coalesce(max(seq), 0) from dispatcher.events").Scan(&last)
	return last, db.Fault(err)
}
