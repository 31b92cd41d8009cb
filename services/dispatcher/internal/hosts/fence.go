package hosts

import (
	"context"
	"log/slog"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/lease"
	"muxpost.dev/muxpost/internal/obs"
	tmuxdv1 "muxpost.dev/muxpost/proto/gen/muxpost/tmuxd/v1"
)

// fence raises the sequence of tokens above what the host has seen, and gives the host a floor from there where one is due: once on each
// connection, and when the host has a lower one than it was given, so that it must have lost it.
//
// A floor refuses every lease that was taken before it, those under way included: they are refused, wait, and are decided again under a
// new lease. So it is not raised where that gains nothing: a floor at every greeting would have two dispatchers, or two deliveries
// that were refused, refuse each other for ever.
func (h *Host) fence(ctx context.Context, life int, info *tmuxdv1.InfoResponse) error {
	h.mu.Lock()
	floor, due := h.floor, h.fenced != life || info.GetFencingFloor() < h.floor
	h.mu.Unlock()
	seen := max(info.GetHighestFencingToken(), info.GetFencingFloor(), floor)
	if !lease.Learnable(seen) {
		h.config.Logger.LogAttrs(ctx, slog.LevelError, "the host has seen a fencing token that no lease ever had: what has seen it there takes nothing any more",
			slog.String(obs.KeyHost, plain(info.GetHost())), slog.Int64(obs.KeyToken, seen))
		seen = 0
	}
	drawn, err := h.config.Tokens.RaiseToken(ctx, seen)
	if err != nil {
		return fault.Wrap(fault.KindOf(err), fault.ReasonOf(err), "the fencing tokens could not be raised above the host's", err)
	}
	if !due {
		return nil
	}
	answer, err := h.client.RaiseFence(ctx, &tmuxdv1.RaiseFenceRequest{Floor: drawn})
	attrs := []slog.Attr{slog.String(obs.KeyHost, plain(info.GetHost())), slog.String(obs.KeyVersion, plain(info.GetVersion()))}
	switch {
	case fault.ReasonOf(err) == fault.ReasonUnknownCall:
		h.config.Logger.LogAttrs(ctx, slog.LevelWarn,
			"this tmuxd is older and takes no floor of fencing tokens: what a lost file or a restored database reopens stays open until it is upgraded",
			attrs...)
	case err != nil:
		return err
	default:
		h.config.Logger.LogAttrs(ctx, slog.LevelInfo, "the host was given a floor of fencing tokens",
			append(attrs, slog.Int64(obs.KeyToken, answer.GetFloor()))...)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fenced, h.floor = life, answer.GetFloor()
	return nil
}
