package server

import (
	"context"

	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	"muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1/dispatcherv1connect"
	"muxpost.dev/muxpost/services/dispatcher/internal/deliver"
)

// WatchSessions says of which work items something changed at their session, until whoever asked or the service goes.
func (s *Server) WatchSessions(ctx context.Context, _ *dispatcherv1.WatchSessionsRequest,
	stream dispatcherv1connect.DispatcherServiceWatchSessionsServerStream) error {
	follower := s.hints.Follow()
	defer follower.Close()
	for {
		item, err := follower.Next(ctx)
		if err != nil {
			return err
		}
		if err := stream.Send(&dispatcherv1.WatchSessionsResponse{WorkItem: item}); err != nil {
			return err
		}
	}
}

// Info says which builds take part in deliveries.
func (s *Server) Info(context.Context, *dispatcherv1.InfoRequest) (*dispatcherv1.InfoResponse, error) {
	return &dispatcherv1.InfoResponse{Builds: s.builds()}, nil
}

func (s *Server) builds() []*dispatcherv1.Build {
	var out []*dispatcherv1.Build
	for _, b := range append([]deliver.Build{s.build}, s.hosts.Builds()...) {
		out = append(out, buildTo(b))
	}
	return out
}
