// Package forget has the dispatcher's records deleted once they are old. Several processes may do so at once.
//
// It knows nothing of what is finished: the records say so.
package forget

import (
	"context"
	"log/slog"
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/obs"
)

const (
	// Every is how often it is looked for what is old.
	Every = time.Hour
	// roundTime bounds one round; the next one goes on.
	roundTime = time.Minute
)

// Records are kept. Their errors are faults.
type Records interface {
	// ForgetDeliveries deletes deliveries that have been finished for longer than keep, and returns how many went.
	ForgetDeliveries(ctx context.Context, keep time.Duration) (int64, error)
	// ForgetUndelivered deletes deliveries that were not delivered and have not changed for longer than keep, and returns how many went.
	ForgetUndelivered(ctx context.Context, keep time.Duration) (int64, error)
	// ForgetEvents deletes events that are older than keep and tell of nothing that is unfinished, and returns how many went.
	ForgetEvents(ctx context.Context, keep time.Duration) (int64, error)
}

// Keep is how long what is old is kept.
type Keep struct{ Deliveries, Undelivered, Events time.Duration }

// Run deletes at once and then every hour, until ctx ends. It returns nil: trouble with the records is waited out.
func Run(ctx context.Context, records Records, keep Keep, log *slog.Logger) error {
	ticker := time.NewTicker(Every)
	defer ticker.Stop()
	for {
		deliveries, events, err := once(ctx, records, keep)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			log.WarnContext(ctx, "old records were not deleted", obs.KeyReason, string(fault.ReasonOf(err)), obs.KeyError, err)
		case deliveries+events > 0:
			log.InfoContext(ctx, "deleted what was finished long ago", obs.KeyCount, deliveries, "events", events)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func once(ctx context.Context, records Records, keep Keep) (deliveries, events int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, roundTime)
	defer cancel()
	if deliveries, err = records.ForgetDeliveries(ctx, keep.Deliveries); err != nil {
		return deliveries, 0, err
	}
	undelivered, err := records.ForgetUndelivered(ctx, keep.Undelivered)
	if deliveries += undelivered; err != nil {
		return deliveries, 0, err
	}
	events, err = records.ForgetEvents(ctx, keep.Events)
	return deliveries, events, err
}
