package server

import (
	"context"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pollerv1 "muxpost.dev/muxpost/proto/gen/muxpost/poller/v1"
	"muxpost.dev/muxpost/services/poller/internal/hook"
	"muxpost.dev/muxpost/services/poller/internal/poll"
)

// tellSkew is how wrong a clock has to be to be told.
const tellSkew = 30 * time.Second

// ListSources returns the sources, what is on record of each, and what this process knows of its limits.
func (s *Server) ListSources(ctx context.Context, _ *pollerv1.ListSourcesRequest) (*pollerv1.ListSourcesResponse, error) {
	known, err := s.ledger.SourceStates(ctx, s.poller.Sources())
	if err != nil {
		return nil, err
	}
	hooks, err := s.ledger.HookStates(ctx, s.poller.Sources())
	if err != nil {
		return nil, err
	}
	response := &pollerv1.ListSourcesResponse{}
	for _, w := range s.poller.Watched() {
		out := source(w, known[w.Name])
		out.Webhook = webhook(w, hooks[w.Name])
		response.Sources = append(response.Sources, out)
	}
	return response, nil
}

// webhook says how a source's webhooks stand; nil where it takes none.
func webhook(w poll.Watched, s hook.SourceState) *pollerv1.WebhookState {
	if !w.Webhooks {
		return nil
	}
	out := &pollerv1.WebhookState{
		LastReceivedTime: timestamp(s.LastReceived), Waiting: int32(s.Waiting), WaitingSince: timestamp(s.OldestWaiting), Failed: int32(s.Failed),
		LastError: s.LastError,
	}
	if s.Gap.Count > 0 {
		out.LastGap = &pollerv1.WebhookGap{
			FindTime: timestamp(s.GapFound), Events: int32(s.Gap.Count), FromTime: timestamp(s.Gap.From), ToTime: timestamp(s.Gap.To),
		}
	}
	return out
}

func source(w poll.Watched, state poll.SourceState) *pollerv1.Source {
	out := &pollerv1.Source{
		Name: w.Name, Kind: w.Provider, Repositories: w.Repositories, Interval: durationpb.New(w.Interval),
		LastLookTime: timestamp(state.LastLook), LastSuccessTime: timestamp(state.LastSuccess), LastError: state.LastError,
		LastErrorTime: timestamp(state.LastErrorAt), NotBefore: timestamp(state.NotBefore), KnownItems: int32(state.Items),
		Notices: w.Notices, NoticeError: state.NoticeError, NoticeErrorTime: timestamp(state.NoticeErrorAt),
	}
	if !state.LastLook.IsZero() {
		next := state.LastLook.Add(w.Interval)
		if state.NotBefore.After(next) {
			next = state.NotBefore
		}
		out.NextLookTime = timestamp(next)
	}
	use := poll.Use{}
	if w.Meter != nil {
		use = w.Meter.Use()
		out.Requests = count(use.Total)
	}
	out.Credential = use.Credential
	if use.Skew.Abs() > tellSkew {
		out.ClockSkew = durationpb.New(use.Skew)
	}
	for _, r := range use.Rates {
		out.RateLimits = append(out.RateLimits, &pollerv1.RateLimit{
			Credential: r.Credential, Resource: r.Resource, Limit: int32(r.Limit), Remaining: int32(r.Remaining), ResetTime: timestamp(r.Reset),
		})
	}
	states := map[string]poll.RepositoryState{}
	for _, r := range state.Repositories {
		states[r.Name] = r
	}
	for _, name := range w.Repositories {
		out.RepositoryStates = append(out.RepositoryStates, repository(name, states[strings.ToLower(name)], use))
	}
	return out
}

func repository(name string, state poll.RepositoryState, use poll.Use) *pollerv1.SourceRepository {
	out := &pollerv1.SourceRepository{
		Repository: name, LastSuccessTime: timestamp(state.LastSuccess), LastError: state.LastError, LastErrorTime: timestamp(state.LastErrorAt),
		NextLookTime: timestamp(state.NextLook), LastFullTime: timestamp(state.LastFull), Requests: count(use.Repositories[strings.ToLower(name)]),
	}
	for _, p := range use.Problems {
		if strings.EqualFold(p.Repository, name) {
			out.UnreadKinds = append(out.UnreadKinds, &pollerv1.UnreadKind{Kind: p.Kind, Problem: p.Problem, Since: timestamp(p.Since)})
		}
	}
	return out
}

func count(c poll.Requests) *pollerv1.RequestCount {
	return &pollerv1.RequestCount{Total: c.Sent, Unchanged: c.Unchanged, Failed: c.Failed}
}
