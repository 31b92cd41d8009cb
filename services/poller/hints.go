package main

import (
	"context"
	"log/slog"
	"time"

	"muxpost.dev/muxpost/internal/obs"
	"muxpost.dev/muxpost/internal/rpc"
)

// hintTime bounds what is done about one hint.
const hintTime = 20 * time.Second

// hints have what waits looked at when something changed at its session. Whatever they miss is looked at in its time.
type hints struct {
	dispatcher interface {
		Watch(ctx context.Context, hear func(workItem string)) error
		Learn(ctx context.Context)
	}
	ledger interface {
		Wake(ctx context.Context, workItem string) error
	}
	occupied interface {
		Freed(ctx context.Context, workItem string) error
	}
	log *slog.Logger
}

// follow goes on until ctx ends.
func (h hints) follow(ctx context.Context) error {
	rpc.Follow(ctx, h.log, func(ctx context.Context) error {
		return h.dispatcher.Watch(ctx, func(workItem string) { h.hear(ctx, workItem) })
	})
	return nil
}

// hear acts on a hint. Where it may be any session, the dispatcher or its host has come back, perhaps as another build.
func (h hints) hear(ctx context.Context, workItem string) {
	ctx, cancel := context.WithTimeout(ctx, hintTime)
	defer cancel()
	if workItem == "" {
		h.dispatcher.Learn(ctx)
	}
	err := h.ledger.Wake(ctx, workItem)
	if err == nil && workItem != "" {
		err = h.occupied.Freed(ctx, workItem)
	}
	if err != nil {
		h.log.DebugContext(ctx, "a hint came to nothing; what waits is looked at in its time", obs.KeyWorkItem, workItem, obs.KeyError, err)
	}
}
