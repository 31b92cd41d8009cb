package server

import (
	"context"
	"math"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	"muxpost.dev/muxpost/services/dispatcher/internal/deliver"
)

// Unpark has the agents of a parked work item started again, and whoever has events for it asked to look.
func (s *Server) Unpark(ctx context.Context, r *dispatcherv1.UnparkRequest) (*dispatcherv1.UnparkResponse, error) {
	ended, stood, err := s.deliverer.Unpark(ctx, r.GetWorkItem(), r.GetWho())
	if err != nil || !stood {
		return &dispatcherv1.UnparkResponse{}, err
	}
	s.hints.Tell(ended.WorkItem)
	return &dispatcherv1.UnparkResponse{Park: parkOf(ended)}, nil
}

// ListParks returns what is parked.
func (s *Server) ListParks(ctx context.Context, r *dispatcherv1.ListParksRequest) (*dispatcherv1.ListParksResponse, error) {
	_, limit, err := listOf("", r.GetPageSize(), pageSize)
	if err != nil {
		return nil, err
	}
	q := deliver.ParkQuery{Limit: limit + 1}
	if q.After, err = readItemToken(r.GetPageToken(), parkPrefix); err != nil {
		return nil, err
	}
	found, err := s.records.Parks(ctx, q)
	if err != nil {
		return nil, err
	}
	out := &dispatcherv1.ListParksResponse{}
	if len(found) > limit {
		found = found[:limit]
		out.NextPageToken = itemToken(parkPrefix, found[limit-1].WorkItem)
	}
	for _, p := range found {
		out.Parks = append(out.Parks, parkOf(p))
	}
	return out, nil
}

func parkOf(p deliver.Park) *dispatcherv1.Park {
	return &dispatcherv1.Park{
		WorkItem: p.WorkItem, Deaths: int32(min(p.Deaths, math.MaxInt32)), Within: durationpb.New(p.Within), Detail: p.Detail, Versions: p.Versions,
		CreateTime: timestamppb.New(p.Since),
	}
}
