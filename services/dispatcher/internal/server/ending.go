package server

import (
	"context"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"muxpost.dev/muxpost/core/fault"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	"muxpost.dev/muxpost/services/dispatcher/internal/deliver"
)

// StopSession ends the agent of a work item.
func (s *Server) StopSession(ctx context.Context, r *dispatcherv1.StopSessionRequest) (*dispatcherv1.StopSessionResponse, error) {
	if err := checkGrace(r.GetGrace()); err != nil {
		return nil, err
	}
	ended, err := s.deliverer.Stop(ctx, deliver.Stop{WorkItem: r.GetWorkItem(), Who: r.GetWho(), Reason: r.GetReason(), Grace: r.GetGrace().AsDuration(),
		SupersededOn: r.GetSupersededOn()})
	if err != nil {
		return nil, err
	}
	return &dispatcherv1.StopSessionResponse{Already: ended.Already, Detail: ended.Detail, Waits: ended.Waits}, nil
}

// CloseSession ends it for good.
func (s *Server) CloseSession(ctx context.Context, r *dispatcherv1.CloseSessionRequest) (*dispatcherv1.CloseSessionResponse, error) {
	if err := checkGrace(r.GetGrace()); err != nil {
		return nil, err
	}
	ended, err := s.deliverer.Close(ctx, deliver.Stop{WorkItem: r.GetWorkItem(), Who: r.GetWho(), Reason: r.GetReason(), Grace: r.GetGrace().AsDuration()})
	if err != nil {
		return nil, err
	}
	return &dispatcherv1.CloseSessionResponse{Already: ended.Already, Detail: ended.Detail, Waits: ended.Waits}, nil
}

func checkGrace(g *durationpb.Duration) error {
	if g != nil && g.CheckValid() != nil {
		return fault.New(fault.Invalid, fault.ReasonBadArgument, "grace is not a duration")
	}
	return nil
}

// CancelEnding takes back the order to end an agent that waits for its host, and has whoever has events for it look.
func (s *Server) CancelEnding(ctx context.Context, r *dispatcherv1.CancelEndingRequest) (*dispatcherv1.CancelEndingResponse, error) {
	cancelled, stood, err := s.deliverer.CancelEnding(ctx, r.GetWorkItem(), r.GetWho())
	if err != nil || !stood {
		return &dispatcherv1.CancelEndingResponse{}, err
	}
	s.hints.Tell(cancelled.WorkItem)
	return &dispatcherv1.CancelEndingResponse{Ending: endingOf(cancelled)}, nil
}

// tellEndings adds the orders that wait to the sessions that they are about.
func (s *Server) tellEndings(ctx context.Context, item string, sessions []*dispatcherv1.Session) error {
	if len(sessions) == 0 {
		return nil
	}
	q := deliver.EndingQuery{WorkItem: item, Limit: maxPage}
	waiting := map[string]deliver.Ending{}
	for {
		found, err := s.records.Endings(ctx, q)
		if err != nil {
			return err
		}
		for _, e := range found {
			waiting[e.WorkItem], q.After = e, e.WorkItem
		}
		if len(found) < q.Limit || q.After >= sessions[len(sessions)-1].GetWorkItem() {
			break
		}
	}
	for _, record := range sessions {
		if e, ok := waiting[record.GetWorkItem()]; ok {
			record.Ending = endingOf(e)
		}
	}
	return nil
}

func endingOf(e deliver.Ending) *dispatcherv1.Ending {
	verb := dispatcherv1.EndingVerb_ENDING_VERB_STOP
	if e.Closes {
		verb = dispatcherv1.EndingVerb_ENDING_VERB_CLOSE
	}
	return &dispatcherv1.Ending{
		WorkItem: e.WorkItem, Verb: verb, IncarnationStamp: e.Stamp, Host: e.Host, Who: e.Who, Reason: e.Reason, Detail: e.Detail,
		CreateTime: timestamppb.New(e.Since),
	}
}
