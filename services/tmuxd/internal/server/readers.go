package server

import (
	"context"

	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/core/workitem"
	tmuxdv1 "muxpost.dev/muxpost/proto/gen/muxpost/tmuxd/v1"
)

var existenceOf = map[session.Existence]tmuxdv1.Existence{
	session.CannotTell: tmuxdv1.Existence_EXISTENCE_CANNOT_TELL, session.Exists: tmuxdv1.Existence_EXISTENCE_YES,
	session.Gone: tmuxdv1.Existence_EXISTENCE_NO,
}

// SessionExists says whether there is a session of the work item's name.
func (s *Server) SessionExists(ctx context.Context, req *tmuxdv1.SessionExistsRequest) (*tmuxdv1.SessionExistsResponse, error) {
	item, err := workitem.Parse(req.GetWorkItem())
	if err != nil {
		return nil, err
	}
	p := s.host.Exists(ctx, item)
	return &tmuxdv1.SessionExistsResponse{
		Target: p.Target, Existence: existenceOf[p.Existence], SocketPath: s.socket(p.Target), Detail: p.Detail,
	}, nil
}

// SessionMayTalk says whether a delivery may be tried at a session.
func (s *Server) SessionMayTalk(ctx context.Context, req *tmuxdv1.SessionMayTalkRequest) (*tmuxdv1.SessionMayTalkResponse, error) {
	item, err := workitem.Parse(req.GetWorkItem())
	if err != nil {
		return nil, err
	}
	st, may, err := s.host.MayTalk(ctx, item)
	if err != nil {
		return nil, err
	}
	return &tmuxdv1.SessionMayTalkResponse{
		Target: st.Target, MayTalk: may, State: stateOf[st.State], Flags: flagsOf(st.Flags), Detail: st.Detail,
	}, nil
}
