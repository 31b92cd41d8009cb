package server

import (
	"cmp"
	"context"
	"encoding/base64"
	"strings"

	"google.golang.org/protobuf/types/known/timestamppb"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/workitem"
	tmuxdv1 "muxpost.dev/muxpost/proto/gen/muxpost/tmuxd/v1"
	"muxpost.dev/muxpost/services/tmuxd/internal/host"
)

const (
	defaultPageSize = 100
	maxPageSize     = 1000
	// tokenPrefix tells page tokens of this list from those of others.
	tokenPrefix = "t1|"
)

// ListSessions lists the sessions that this host knows.
func (s *Server) ListSessions(_ context.Context, req *tmuxdv1.ListSessionsRequest) (*tmuxdv1.ListSessionsResponse, error) {
	size := int(req.GetPageSize())
	if size < 0 || size > maxPageSize {
		return nil, fault.Newf(fault.Invalid, fault.ReasonBadArgument, "page_size is %d; it must be 1 to %d, or 0 for %d", size, maxPageSize,
			defaultPageSize)
	}
	after, err := readPageToken(req.GetPageToken())
	if err != nil {
		return nil, err
	}
	page, more := s.host.List(after, cmp.Or(size, defaultPageSize))
	out := &tmuxdv1.ListSessionsResponse{}
	for i := range page {
		out.Sessions = append(out.Sessions, s.summaryOf(&page[i]))
	}
	if more {
		out.NextPageToken = pageToken(page[len(page)-1].Target)
	}
	return out, nil
}

// pageToken names the last session of a page, so that sessions which come and go move nothing.
func pageToken(target string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(tokenPrefix + target))
}

// readPageToken reads a token; an empty one is the first page.
func readPageToken(token string) (after string, err error) {
	if token == "" {
		return "", nil
	}
	text, err := base64.RawURLEncoding.DecodeString(token)
	after, ok := strings.CutPrefix(string(text), tokenPrefix)
	if err != nil || !ok || !workitem.ValidTarget(after) {
		return "", fault.New(fault.Invalid, fault.ReasonBadArgument, "page_token is not one that this list gave out").
			WithRemedy("pass next_page_token as it was returned, or nothing for the first page")
	}
	return after, nil
}

func (s *Server) summaryOf(in *host.Summary) *tmuxdv1.SessionSummary {
	out := &tmuxdv1.SessionSummary{
		WorkItem: in.WorkItem, Target: in.Target, State: stateOf[in.State], Flags: flagsOf(in.Flags), Incarnation: incarnationOf(in.Incarnation),
		Harness: in.Harness, ConversationId: in.Conversation, Detail: in.Detail, SeenAt: timestamppb.New(in.SeenAt), SocketPath: s.socket(in.Target),
		Activity: activityOf[in.Doing.Activity], ActivityDetail: oneLine(in.Doing.Detail), ActivitySince: timeOf(in.Doing.Since),
		ActivitySeenAt: timeOf(in.Doing.SeenAt), StartedAt: timeOf(in.StartedAt),
	}
	if in.Exit.Known {
		out.Exit = exitOf(in.Status)
	}
	return out
}
