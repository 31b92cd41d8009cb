// Package server answers the poller's RPCs: it checks what came in, asks, and puts the answer into the wire's words.
//
// It decides nothing about events, and knows neither SQL nor any source.
package server

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/ledger"
	pollerv1 "muxpost.dev/muxpost/proto/gen/muxpost/poller/v1"
	"muxpost.dev/muxpost/proto/gen/muxpost/poller/v1/pollerv1connect"
	"muxpost.dev/muxpost/services/poller/internal/hook"
	"muxpost.dev/muxpost/services/poller/internal/poll"
)

// Poller looks at sources and takes events by hand.
type Poller interface {
	// Sources returns the names of the sources, in the order of the configuration.
	Sources() []string
	// LookNow looks at a source; an error means that there is none of that name.
	LookNow(ctx context.Context, source string) (poll.Result, error)
	// Watched returns the sources, in the order of the configuration.
	Watched() []poll.Watched
	// Submit puts an event by hand into the ledger.
	Submit(ctx context.Context, m poll.Message) (row poll.Entry, existed bool, err error)
	// Link says to which work item a pull request belongs, and returns whether that is new.
	Link(ctx context.Context, l poll.Link) (linked poll.Linked, changed bool, err error)
}

// Retrier takes a person's decision about an event that ended.
type Retrier interface {
	// Retry has it asked about again, or typed again.
	Retry(ctx context.Context, again poll.Again) (poll.Retried, error)
	// Settle ends it for good, and returns the row, and whether this call did it.
	Settle(ctx context.Context, again poll.Again) (row poll.Entry, settled bool, err error)
	// Cancel ends it before it was delivered, and returns the row, and whether this call did it.
	Cancel(ctx context.Context, by poll.Again) (row poll.Entry, cancelled bool, err error)
}

// Ledger is read.
type Ledger interface {
	// List returns rows, newest first.
	List(ctx context.Context, f poll.Filter) ([]poll.Entry, error)
	// Count returns how many events are in each state for each reason.
	Count(ctx context.Context, f poll.Filter) ([]poll.Count, error)
	// SourceStates returns what is on record of sources, by name.
	SourceStates(ctx context.Context, names []string) (map[string]poll.SourceState, error)
	// HookStates returns what is on record of sources' webhooks, by name.
	HookStates(ctx context.Context, names []string) (map[string]hook.SourceState, error)
	// Events returns the poller's own events, in order of sequence.
	Events(ctx context.Context, q poll.EventQuery) ([]poll.Followed, error)
	// Links returns how pull requests came to their items, the latest first: of one or the other, or all.
	Links(ctx context.Context, of string, limit int) ([]poll.Linked, error)
}

// maxAcks is the most that a list of acknowledgements holds.
const maxAcks = 5000

// Server implements muxpost.poller.v1.PollerService.
type Server struct {
	poller  Poller
	retrier Retrier
	ledger  Ledger
	acks    poll.Acks
}

var _ pollerv1connect.PollerServiceHandler = (*Server)(nil)

// New returns a server.
func New(poller Poller, retrier Retrier, ledger Ledger, acks poll.Acks) *Server {
	return &Server{poller: poller, retrier: retrier, ledger: ledger, acks: acks}
}

// PollNow looks at one source, or at all of them at once.
func (s *Server) PollNow(ctx context.Context, r *pollerv1.PollNowRequest) (*pollerv1.PollNowResponse, error) {
	names := s.poller.Sources()
	if r.GetSource() != "" {
		names = []string{r.GetSource()}
	}
	results := make([]poll.Result, len(names))
	errs := make([]error, len(names))
	var wait sync.WaitGroup
	for i, name := range names {
		wait.Go(func() { results[i], errs[i] = s.poller.LookNow(ctx, name) })
	}
	wait.Wait()
	response := &pollerv1.PollNowResponse{}
	for i, result := range results {
		if errs[i] != nil {
			return nil, errs[i]
		}
		source := &pollerv1.SourcePoll{
			Source: result.Source, Items: int32(result.Items), NewEvents: int32(result.NewEvents),
			SettledEvents: int32(result.SettledEvents), Took: durationpb.New(result.Took),
		}
		if result.Err != nil {
			source.Error = result.Err.Error()
		}
		response.Sources = append(response.Sources, source)
	}
	return response, nil
}

// Submit puts an event by hand into the ledger.
func (s *Server) Submit(ctx context.Context, r *pollerv1.SubmitRequest) (*pollerv1.SubmitResponse, error) {
	row, existed, err := s.poller.Submit(ctx, poll.Message{
		WorkItem: r.GetWorkItem(), Text: r.GetText(), IdempotencyKey: r.GetIdempotencyKey(), DryRun: r.GetDryRun(), Harness: r.GetHarness(),
	})
	if err != nil {
		return nil, err
	}
	return &pollerv1.SubmitResponse{Entry: entry(row), Existed: existed}, nil
}

// Retry has an event that ended asked about again.
func (s *Server) Retry(ctx context.Context, r *pollerv1.RetryRequest) (*pollerv1.RetryResponse, error) {
	out, err := s.retrier.Retry(ctx, poll.Again{
		DeliveryID: r.GetDeliveryId(), Who: r.GetWho(), Reason: r.GetReason(), TypeAgain: r.GetTypeAgain(),
	})
	if err != nil {
		return nil, err
	}
	return &pollerv1.RetryResponse{Entry: entry(out.Row), Retried: out.Again, EvidenceOnly: out.EvidenceOnly}, nil
}

// Settle ends an event for good by a person's word.
func (s *Server) Settle(ctx context.Context, r *pollerv1.SettleRequest) (*pollerv1.SettleResponse, error) {
	row, settled, err := s.retrier.Settle(ctx, poll.Again{DeliveryID: r.GetDeliveryId(), Who: r.GetWho(), Reason: r.GetReason()})
	if err != nil {
		return nil, err
	}
	return &pollerv1.SettleResponse{Entry: entry(row), Settled: settled}, nil
}

// Cancel ends an event by a person's word before it was delivered.
func (s *Server) Cancel(ctx context.Context, r *pollerv1.CancelRequest) (*pollerv1.CancelResponse, error) {
	row, cancelled, err := s.retrier.Cancel(ctx, poll.Again{DeliveryID: r.GetDeliveryId(), Who: r.GetWho(), Reason: r.GetReason()})
	if err != nil {
		return nil, err
	}
	return &pollerv1.CancelResponse{Entry: entry(row), Cancelled: cancelled}, nil
}

// Acknowledge keeps an entry off the list of what needs a person.
func (s *Server) Acknowledge(ctx context.Context, r *pollerv1.AcknowledgeRequest) (*pollerv1.AcknowledgeResponse, error) {
	a := poll.Ack{EntryID: r.GetEntryId(), State: r.GetState(), DeliveryID: r.GetDeliveryId(), Who: r.GetWho(), Reason: r.GetReason()}
	if err := a.Check(); err != nil {
		return nil, err
	}
	kept, err := s.acks.Acknowledge(ctx, a)
	if err != nil {
		return nil, err
	}
	return &pollerv1.AcknowledgeResponse{Acknowledgement: ack(kept)}, nil
}

// ListAcknowledgements returns what was acknowledged.
func (s *Server) ListAcknowledgements(ctx context.Context, r *pollerv1.ListAcknowledgementsRequest) (*pollerv1.ListAcknowledgementsResponse, error) {
	if r.GetPageSize() < 0 || r.GetPageSize() > maxAcks {
		return nil, fault.Newf(fault.Invalid, fault.ReasonBadArgument, "page_size is %d; it must be 1 to %d, or 0 for %d", r.GetPageSize(), maxAcks,
			maxAcks)
	}
	kept, err := s.acks.Acknowledged(ctx, cmp.Or(int(r.GetPageSize()), maxAcks))
	if err != nil {
		return nil, err
	}
	response := &pollerv1.ListAcknowledgementsResponse{}
	for _, a := range kept {
		response.Acknowledgements = append(response.Acknowledgements, ack(a))
	}
	return response, nil
}

// ListLedger returns one page of rows.
func (s *Server) ListLedger(ctx context.Context, r *pollerv1.ListLedgerRequest) (*pollerv1.ListLedgerResponse, error) {
	filter, err := filterOf(r)
	if err != nil {
		return nil, err
	}
	size := filter.Limit
	filter.Limit++ // one more shows whether there is another page
	rows, err := s.ledger.List(ctx, filter)
	if err != nil {
		return nil, err
	}
	response := &pollerv1.ListLedgerResponse{}
	if len(rows) > size {
		rows = rows[:size]
		response.NextPageToken = pageToken(rows[size-1].ID)
	}
	for _, row := range rows {
		response.Entries = append(response.Entries, entry(row))
	}
	return response, nil
}

// CountLedger returns how many events are in each state, and for which reasons.
func (s *Server) CountLedger(ctx context.Context, r *pollerv1.CountLedgerRequest) (*pollerv1.CountLedgerResponse, error) {
	filter, err := filterOf(&pollerv1.ListLedgerRequest{WorkItem: r.GetWorkItem(), Source: r.GetSource(), Kind: r.GetKind(), Since: r.GetSince()})
	if err != nil {
		return nil, err
	}
	counts, err := s.ledger.Count(ctx, filter)
	if err != nil {
		return nil, err
	}
	response := &pollerv1.CountLedgerResponse{}
	for _, wire := range slices.Sorted(maps.Keys(states())) {
		all := &pollerv1.StateCount{State: wire}
		for _, c := range counts {
			if c.State == states()[wire] {
				all.Count += c.Events
				response.Reasons = append(response.Reasons, &pollerv1.ReasonCount{State: wire, Reason: c.Reason, Count: c.Events})
			}
		}
		response.Counts = append(response.Counts, all)
	}
	return response, nil
}

// ListPollEvents returns one page of the poller's own events.
func (s *Server) ListPollEvents(ctx context.Context, r *pollerv1.ListPollEventsRequest) (*pollerv1.ListPollEventsResponse, error) {
	query, err := queryOf(r)
	if err != nil {
		return nil, err
	}
	events, err := s.ledger.Events(ctx, query)
	if err != nil {
		return nil, err
	}
	response := &pollerv1.ListPollEventsResponse{}
	for _, e := range events {
		response.Events = append(response.Events, &pollerv1.PollEvent{
			Sequence: e.Sequence, Type: string(e.Type), Time: timestamp(e.Time), WorkItem: e.WorkItem, DeliveryId: e.DeliveryID,
			Source: e.Source, Fields: e.Fields, TraceId: e.TraceID,
		})
	}
	return response, nil
}

func entry(e poll.Entry) *pollerv1.LedgerEntry {
	return &pollerv1.LedgerEntry{
		DeliveryId: e.DeliveryID, WorkItem: e.WorkItem, Source: e.Source, Kind: e.Kind, Author: e.Author, Url: e.URL, Title: e.Title,
		State: stateOf(e.State), Reason: e.Reason, Detail: e.Detail, Tries: int32(e.Tries), Budget: int32(e.Budget), TraceId: e.TraceID,
		NextLook: timestamp(e.NextLook), UpstreamTime: timestamp(e.UpstreamAt), CreateTime: timestamp(e.CreatedAt),
		UpdateTime: timestamp(e.UpdatedAt), HeldSince: timestamp(e.HeldSince), GaveUpVersions: e.GaveUpVersions,
		DeleteTime: timestamp(e.DeletedAt), WaitsBehind: ahead(e.WaitsBehind), SupersededBy: e.SupersededBy, Edited: e.Edited,
		Pull: e.Pull, Commit: e.Commit, About: e.About,
	}
}

func ack(a poll.Ack) *pollerv1.Acknowledgement {
	return &pollerv1.Acknowledgement{
		EntryId: a.EntryID, State: a.State, DeliveryId: a.DeliveryID, Who: a.Who, Reason: a.Reason, CreateTime: timestamp(a.At),
	}
}

func ahead(a *poll.Ahead) *pollerv1.Ahead {
	if a == nil {
		return nil
	}
	return &pollerv1.Ahead{DeliveryId: a.DeliveryID, State: stateOf(a.State), Reason: a.Reason, Detail: a.Detail}
}

func timestamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// states pairs the ledger's states with the wire's.
func states() map[pollerv1.LedgerState]ledger.State {
	return map[pollerv1.LedgerState]ledger.State{
		pollerv1.LedgerState_LEDGER_STATE_PENDING: ledger.Pending, pollerv1.LedgerState_LEDGER_STATE_LEASED: ledger.Leased,
		pollerv1.LedgerState_LEDGER_STATE_HELD: ledger.Held, pollerv1.LedgerState_LEDGER_STATE_DELIVERED: ledger.Delivered,
		pollerv1.LedgerState_LEDGER_STATE_SETTLED: ledger.Settled, pollerv1.LedgerState_LEDGER_STATE_DROPPED: ledger.Dropped,
		pollerv1.LedgerState_LEDGER_STATE_GAVE_UP: ledger.GaveUp, pollerv1.LedgerState_LEDGER_STATE_CANCELLED: ledger.Cancelled,
	}
}

func stateOf(s ledger.State) pollerv1.LedgerState {
	for wire, state := range states() {
		if state == s {
			return wire
		}
	}
	return pollerv1.LedgerState_LEDGER_STATE_UNSPECIFIED
}
