package server

import (
	"context"

	"google.golang.org/protobuf/types/known/timestamppb"

	"muxpost.dev/muxpost/core/fault"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	"muxpost.dev/muxpost/services/dispatcher/internal/deliver"
)

// Pause holds back the deliveries of a work item, or of all.
func (s *Server) Pause(ctx context.Context, r *dispatcherv1.PauseRequest) (*dispatcherv1.PauseResponse, error) {
	if err := checkScope(r.GetWorkItem(), r.GetAll()); err != nil {
		return nil, err
	}
	stands, made, err := s.deliverer.Pause(ctx, deliver.Pause{WorkItem: r.GetWorkItem(), Reason: r.GetReason(), Who: r.GetWho()})
	if err != nil {
		return nil, err
	}
	return &dispatcherv1.PauseResponse{Pause: pauseOf(stands), Existed: !made}, nil
}

// Unpause ends a pause.
func (s *Server) Unpause(ctx context.Context, r *dispatcherv1.UnpauseRequest) (*dispatcherv1.UnpauseResponse, error) {
	if err := checkScope(r.GetWorkItem(), r.GetAll()); err != nil {
		return nil, err
	}
	ended, stood, err := s.deliverer.Unpause(ctx, r.GetWorkItem(), r.GetWho())
	if err != nil || !stood {
		return &dispatcherv1.UnpauseResponse{}, err
	}
	return &dispatcherv1.UnpauseResponse{Pause: pauseOf(ended)}, nil
}

// ListPauses returns the pauses that stand, that of all first.
func (s *Server) ListPauses(ctx context.Context, r *dispatcherv1.ListPausesRequest) (*dispatcherv1.ListPausesResponse, error) {
	_, limit, err := listOf("", r.GetPageSize(), pageSize)
	if err != nil {
		return nil, err
	}
	q := deliver.PauseQuery{Limit: limit + 1}
	if q.After, err = readPauseToken(r.GetPageToken()); err != nil {
		return nil, err
	}
	found, err := s.records.Pauses(ctx, q)
	if err != nil {
		return nil, err
	}
	out := &dispatcherv1.ListPausesResponse{Shadow: s.deliverer.Shadow()}
	if len(found) > limit {
		found = found[:limit]
		out.NextPageToken = pauseToken(found[limit-1].WorkItem)
	}
	for _, p := range found {
		out.Pauses = append(out.Pauses, pauseOf(p))
	}
	return out, nil
}

// Reopen takes back that a delivery was dropped.
func (s *Server) Reopen(ctx context.Context, r *dispatcherv1.ReopenRequest) (*dispatcherv1.ReopenResponse, error) {
	d, reopened, err := s.deliverer.Reopen(ctx, r.GetDeliveryId(), r.GetWho(), r.GetIfFree())
	if err != nil {
		return nil, err
	}
	return &dispatcherv1.ReopenResponse{Delivery: deliveryOf(d), Reopened: reopened}, nil
}

// checkScope refuses a request that says neither or both: what an operator forgot to say must not mean all.
func checkScope(item string, all bool) error {
	if (item != "") == all {
		return fault.New(fault.Invalid, fault.ReasonBadArgument, "say either a work item or all, and not both")
	}
	return nil
}

func pauseOf(p deliver.Pause) *dispatcherv1.Pause {
	return &dispatcherv1.Pause{WorkItem: p.WorkItem, Reason: p.Reason, Who: p.Who, CreateTime: timestamppb.New(p.Since)}
}
