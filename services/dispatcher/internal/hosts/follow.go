package hosts

import (
	"context"
	"fmt"
	"log/slog"

	"google.golang.org/grpc"

	"muxpost.dev/muxpost/internal/obs"
	"muxpost.dev/muxpost/internal/rpc"
	tmuxdv1 "muxpost.dev/muxpost/proto/gen/muxpost/tmuxd/v1"
	"muxpost.dev/muxpost/services/dispatcher/internal/hints"
)

// Follow tells of each work item whose session changed on the host, until ctx ends, and hints.Any when the host came back. Nothing depends
// on it: what it misses is found by asking. It returns nil.
func (h *Host) Follow(ctx context.Context, tell func(workItem string)) error {
	seen := map[string]string{}
	rpc.Follow(ctx, h.config.Logger, func(ctx context.Context) error { return h.follow(ctx, seen, tell) })
	return nil
}

// follow reads one stream to its end. seen is what each session looked like.
func (h *Host) follow(ctx context.Context, seen map[string]string, tell func(workItem string)) error {
	stream, err := h.client.WatchSessions(ctx, &tmuxdv1.WatchSessionsRequest{}, grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	for {
		step, err := stream.Recv()
		if err != nil {
			return err
		}
		if _, err := h.greet(ctx); err != nil {
			return err // it may be another host than the one that is meant
		}
		switch s := step.GetStep().(type) {
		case *tmuxdv1.WatchSessionsResponse_Session:
			if item := s.Session.GetWorkItem(); item != "" && changed(seen, s.Session) {
				tell(item)
			}
		case *tmuxdv1.WatchSessionsResponse_CaughtUp, *tmuxdv1.WatchSessionsResponse_Missed:
			tell(hints.Any)
		case *tmuxdv1.WatchSessionsResponse_MassDeath:
			h.config.Logger.LogAttrs(ctx, slog.LevelError, "many sessions of the host ended within moments", slog.String(obs.KeyHost, h.Name()),
				slog.Int(obs.KeyCount, int(s.MassDeath.GetSessions())))
		}
	}
}

// changed reports whether a session is another than when it was last told of: in its state or its incarnation. What else may be told, such
// as its conversation, changes nothing for what waits.
func changed(seen map[string]string, s *tmuxdv1.SessionSummary) bool {
	now := fmt.Sprint(s.GetState(), s.GetFlags(), s.GetIncarnation().GetStamp())
	before := seen[s.GetTarget()]
	if s.GetState() == tmuxdv1.State_STATE_ABSENT {
		delete(seen, s.GetTarget()) // there may be any number of them over time
		return before != ""
	}
	seen[s.GetTarget()] = now
	return now != before
}
