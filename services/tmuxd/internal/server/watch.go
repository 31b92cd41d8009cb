package server

import (
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	tmuxdv1 "muxpost.dev/muxpost/proto/gen/muxpost/tmuxd/v1"
	"muxpost.dev/muxpost/services/tmuxd/internal/host"
)

// WatchSessions streams the sessions and what changes in them, until the caller or the service goes.
func (s *Server) WatchSessions(req *tmuxdv1.WatchSessionsRequest, stream grpc.ServerStreamingServer[tmuxdv1.WatchSessionsResponse]) error {
	return s.host.Follow(stream.Context(), req.GetCursor(), func(step host.Step) error {
		return stream.Send(s.stepOf(step))
	})
}

func (s *Server) stepOf(step host.Step) *tmuxdv1.WatchSessionsResponse {
	out := &tmuxdv1.WatchSessionsResponse{Cursor: step.Cursor}
	switch {
	case step.Session != nil:
		out.Step = &tmuxdv1.WatchSessionsResponse_Session{Session: s.summaryOf(step.Session)}
	case step.CaughtUp:
		out.Step = &tmuxdv1.WatchSessionsResponse_CaughtUp{CaughtUp: &tmuxdv1.CaughtUp{}}
	case step.Missed > 0:
		out.Step = &tmuxdv1.WatchSessionsResponse_Missed{Missed: &tmuxdv1.Missed{Changes: step.Missed}}
	case step.MassDeath != nil:
		out.Step = &tmuxdv1.WatchSessionsResponse_MassDeath{MassDeath: &tmuxdv1.MassDeath{
			Sessions: int32(step.MassDeath.Sessions), Within: durationpb.New(step.MassDeath.Within),
		}}
	}
	return out
}
