package server

import (
	"context"

	"muxpost.dev/muxpost/internal/obs"
	tmuxdv1 "muxpost.dev/muxpost/proto/gen/muxpost/tmuxd/v1"
)

// RaiseFence gives the host a floor of fencing tokens.
func (s *Server) RaiseFence(ctx context.Context, req *tmuxdv1.RaiseFenceRequest) (*tmuxdv1.RaiseFenceResponse, error) {
	fence, err := s.host.RaiseFence(req.GetFloor())
	if err != nil {
		return nil, err
	}
	s.log.InfoContext(ctx, "fencing tokens below the floor are refused from now on", obs.KeyToken, fence.Floor)
	return &tmuxdv1.RaiseFenceResponse{Floor: fence.Floor, HighestFencingToken: fence.Highest}, nil
}
