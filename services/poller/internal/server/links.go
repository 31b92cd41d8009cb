package server

import (
	"context"

	"google.golang.org/protobuf/types/known/timestamppb"

	pollerv1 "muxpost.dev/muxpost/proto/gen/muxpost/poller/v1"
	"muxpost.dev/muxpost/services/poller/internal/poll"
)

const defaultLinks = 100

// LinkPull says to which work item a pull request belongs.
func (s *Server) LinkPull(ctx context.Context, r *pollerv1.LinkPullRequest) (*pollerv1.LinkPullResponse, error) {
	linked, changed, err := s.poller.Link(ctx, poll.Link{Pull: r.GetPull(), WorkItem: r.GetWorkItem(), Who: r.GetWho(), Reason: r.GetReason()})
	if err != nil {
		return nil, err
	}
	return &pollerv1.LinkPullResponse{Link: pullLink(linked), Changed: changed}, nil
}

// ListLinks returns how pull requests came to their work items.
func (s *Server) ListLinks(ctx context.Context, r *pollerv1.ListLinksRequest) (*pollerv1.ListLinksResponse, error) {
	size, err := limitOf(r.GetPageSize(), defaultLinks)
	if err != nil {
		return nil, err
	}
	of, err := itemOf(r.GetOf())
	if err != nil {
		return nil, err
	}
	links, err := s.ledger.Links(ctx, of, size)
	if err != nil {
		return nil, err
	}
	response := &pollerv1.ListLinksResponse{}
	for _, l := range links {
		response.Links = append(response.Links, pullLink(l))
	}
	return response, nil
}

func pullLink(l poll.Linked) *pollerv1.PullLink {
	return &pollerv1.PullLink{
		Pull: l.Pull, WorkItem: l.WorkItem, Rule: string(l.Rule), Detail: l.Detail, Who: l.Who, CreateTime: timestamppb.New(l.At), Current: l.Current,
	}
}
