package server

import (
	"context"
	"errors"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/workitem"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	"muxpost.dev/muxpost/services/dispatcher/internal/deliver"
)

// maxWho is how long the name of who orders something may be, in bytes.
const maxWho = 100

// RemoveTree removes the working tree of a work item on the host of its session. Whether anything would be lost the host decides, and nothing
// can be said here that has it throw work away.
func (s *Server) RemoveTree(ctx context.Context, r *dispatcherv1.RemoveTreeRequest) (*dispatcherv1.RemoveTreeResponse, error) {
	ref, err := workitem.Parse(r.GetWorkItem())
	if err != nil {
		return nil, err
	}
	if err := checkWho(r.GetWho()); err != nil {
		return nil, err
	}
	shown, err := s.records.Shown(ctx, deliver.SessionQuery{WorkItem: ref.String(), Closed: true, Limit: 1})
	if err != nil {
		return nil, err
	}
	if len(shown) == 0 {
		return &dispatcherv1.RemoveTreeResponse{Removed: true, Detail: "no session of it was ever started"}, nil
	}
	if shown[0].Host == "" {
		return &dispatcherv1.RemoveTreeResponse{Detail: "it was moved away from its host and has none now; a tree that it left is for muxpost workspaces clean on that host"}, nil
	}
	err = s.hosts.RemoveTree(ctx, shown[0].Host, ref.String(), r.GetWho())
	var f *fault.Error
	switch {
	case err == nil:
		return &dispatcherv1.RemoveTreeResponse{Removed: true}, nil
	case errors.Is(err, fault.NotFound):
		return &dispatcherv1.RemoveTreeResponse{Removed: true, Detail: "there is none on its host"}, nil
	case errors.Is(err, fault.Conflict) && errors.As(err, &f):
		return &dispatcherv1.RemoveTreeResponse{Detail: f.Message}, nil
	}
	return nil, err
}
