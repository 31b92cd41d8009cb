package server

import (
	"context"

	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	"muxpost.dev/muxpost/services/dispatcher/internal/deliver"
)

// AdoptSession records a session that the record lacks, and has whoever has events for it look.
func (s *Server) AdoptSession(ctx context.Context, r *dispatcherv1.AdoptSessionRequest) (*dispatcherv1.AdoptSessionResponse, error) {
	record, already, err := s.deliverer.Adopt(ctx, r.GetWorkItem(), r.GetWho())
	if err != nil {
		return nil, err
	}
	if !already {
		s.hints.Tell(record.WorkItem)
	}
	return &dispatcherv1.AdoptSessionResponse{Session: sessionOf(record), Already: already}, nil
}

var orphanKinds = map[deliver.Gap]dispatcherv1.OrphanKind{
	deliver.Unrecorded: dispatcherv1.OrphanKind_ORPHAN_KIND_UNRECORDED, deliver.Elsewhere: dispatcherv1.OrphanKind_ORPHAN_KIND_ELSEWHERE,
	deliver.Gone: dispatcherv1.OrphanKind_ORPHAN_KIND_GONE,
}

// ListOrphans returns sessions without a record, and records without a session.
func (s *Server) ListOrphans(ctx context.Context, r *dispatcherv1.ListOrphansRequest) (*dispatcherv1.ListOrphansResponse, error) {
	_, limit, err := listOf("", r.GetPageSize(), pageSize)
	if err != nil {
		return nil, err
	}
	found, silent, err := s.deliverer.Orphans(ctx)
	if err != nil {
		return nil, err
	}
	out := &dispatcherv1.ListOrphansResponse{SilentHosts: silent}
	if len(found) > limit {
		found, out.More = found[:limit], true
	}
	for _, o := range found {
		out.Orphans = append(out.Orphans, &dispatcherv1.Orphan{
			Kind: orphanKinds[o.Gap], WorkItem: o.WorkItem, Host: o.Host, RecordedOn: o.RecordedOn, Target: o.Target, State: stateOf(o.Probe),
			Flags: flagsOf(o.Probe), IncarnationStamp: o.Stamp, Harness: o.Harness, ConversationId: o.ConversationID, SocketPath: o.SocketPath,
			Detail: o.Detail,
		})
	}
	return out, nil
}
