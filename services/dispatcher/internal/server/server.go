// Package server answers the dispatcher's API: it reads requests, has the delivery made or the records listed, and writes the
// answers. One implementation serves gRPC, gRPC-Web and JSON on one port.
//
// It decides nothing, and knows nothing of SQL or tmux.
package server

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/types/known/durationpb"

	"muxpost.dev/muxpost/core/dispatch"
	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/core/workitem"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	"muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1/dispatcherv1connect"
	"muxpost.dev/muxpost/services/dispatcher/internal/deliver"
	"muxpost.dev/muxpost/services/dispatcher/internal/hints"
)

const (
	// maxPage is the most that one page holds.
	maxPage = 500
	// pageSize is what zero means.
	pageSize = 50
	// probeTime bounds how long a list of sessions waits for their states, and probesAtOnce how many are asked for at once.
	probeTime    = 2 * time.Second
	probesAtOnce = 16
)

// Deliverer makes deliveries, and takes operators' words on them.
type Deliverer interface {
	Deliver(ctx context.Context, r deliver.Request) (deliver.Result, error)
	Pause(ctx context.Context, p deliver.Pause) (stands deliver.Pause, made bool, err error)
	Unpause(ctx context.Context, workItem, who string) (ended deliver.Pause, stood bool, err error)
	Unpark(ctx context.Context, workItem, who string) (ended deliver.Park, stood bool, err error)
	Reopen(ctx context.Context, id, who string, ifFree bool) (d deliver.Delivery, reopened bool, err error)
	Stop(ctx context.Context, s deliver.Stop) (deliver.Ended, error)
	Close(ctx context.Context, s deliver.Stop) (deliver.Ended, error)
	Adopt(ctx context.Context, workItem, who string) (record deliver.Session, already bool, err error)
	Orphans(ctx context.Context) (orphans []deliver.Orphan, silent []string, err error)
	CancelEnding(ctx context.Context, workItem, who string) (cancelled deliver.Ending, stood bool, err error)
	Shadow() bool
	AddHost(ctx context.Context, o deliver.HostOrder, address string) (deliver.HostRecord, error)
	Drain(ctx context.Context, o deliver.HostOrder) (deliver.HostRecord, error)
	Undrain(ctx context.Context, o deliver.HostOrder) (deliver.HostRecord, error)
	AcceptHost(ctx context.Context, o deliver.HostOrder) (deliver.HostRecord, error)
	ForgetHost(ctx context.Context, o deliver.HostOrder) error
	Evacuate(ctx context.Context, o deliver.HostOrder) (deliver.Evacuation, error)
}

// Records lists what is stored. A delivery that is not known is fault.NotFound.
type Records interface {
	Delivery(ctx context.Context, id string) (deliver.Delivery, error)
	Deliveries(ctx context.Context, q deliver.DeliveryQuery) ([]deliver.Delivery, error)
	Shown(ctx context.Context, q deliver.SessionQuery) ([]deliver.Shown, error)
	Events(ctx context.Context, q deliver.EventQuery) (deliver.EventPage, error)
	Pauses(ctx context.Context, q deliver.PauseQuery) ([]deliver.Pause, error)
	Superseded(ctx context.Context, q deliver.SupersededQuery) ([]deliver.Superseded, error)
	Endings(ctx context.Context, q deliver.EndingQuery) ([]deliver.Ending, error)
	Parks(ctx context.Context, q deliver.ParkQuery) ([]deliver.Park, error)
}

// Hosts say what they know of a session now, and which builds they run.
type Hosts interface {
	// Show says it of one session; with look the agent's screen is read for that in any case.
	Show(ctx context.Context, host, workItem string, look bool) deliver.Sight
	// Followed reports whether every change of a host is heard of now, and until when it was last; zero when that is not known.
	Followed(host string) (now bool, until time.Time)
	Builds() []deliver.Build
	// Statuses says how all hosts stand.
	Statuses() []deliver.HostStatus
	// RemoveTree removes the working tree of a work item on a host, if nothing would be lost. One that stays is fault.Conflict, one that is
	// not there fault.NotFound.
	RemoveTree(ctx context.Context, host, workItem, reason string) error
	// Sync has what was just recorded of hosts count at once.
	Sync(ctx context.Context) error
}

// Config is what a Server answers from. All fields are required.
type Config struct {
	Deliverer Deliverer
	Records   Records
	Hosts     Hosts
	Hints     *hints.Hub
	// Tokens are those of people and scripts.
	Tokens   Tokens
	Enroller Enroller
	Logger   *slog.Logger
	// News tells, with hints.Any, that there may be more events.
	News *hints.Hub
	// Build is our own.
	Build deliver.Build
}

// Server implements the dispatcher's service.
type Server struct {
	deliverer Deliverer
	records   Records
	hosts     Hosts
	hints     *hints.Hub
	news      *hints.Hub
	reads     chan struct{}
	build     deliver.Build
	tokens    Tokens
	enroller  Enroller
	log       *slog.Logger
}

var _ dispatcherv1connect.DispatcherServiceHandler = (*Server)(nil)

// New returns a server.
func New(c Config) *Server {
	return &Server{
		deliverer: c.Deliverer, records: c.Records, hosts: c.Hosts, hints: c.Hints, news: c.News, reads: make(chan struct{}, watchReads), build: c.Build,
		tokens: c.Tokens, enroller: c.Enroller, log: c.Logger,
	}
}

// Deliver carries one event to its session, or says why not.
func (s *Server) Deliver(ctx context.Context, r *dispatcherv1.DeliverRequest) (*dispatcherv1.DeliverResponse, error) {
	result, err := s.deliverer.Deliver(ctx, deliver.Request{
		DeliveryID: r.GetDeliveryId(), WorkItem: r.GetWorkItem(), NodeID: r.GetNodeId(), Kind: kindOf(r.GetKind()), Text: r.GetText(),
		Harness: r.GetHarness(),
	})
	if err != nil {
		return nil, err
	}
	return &dispatcherv1.DeliverResponse{
		Delivery: deliveryOf(result.Delivery), LookAgain: durationpb.New(result.LookAgain), Builds: s.builds(),
	}, nil
}

// GetDelivery returns one delivery.
func (s *Server) GetDelivery(ctx context.Context, r *dispatcherv1.GetDeliveryRequest) (*dispatcherv1.GetDeliveryResponse, error) {
	if !session.ValidDeliveryID(r.GetDeliveryId()) {
		return nil, badDeliveryID()
	}
	d, err := s.records.Delivery(ctx, r.GetDeliveryId())
	if err != nil {
		return nil, err
	}
	return &dispatcherv1.GetDeliveryResponse{Delivery: deliveryOf(d)}, nil
}

// ListDeliveries returns deliveries, newest first.
func (s *Server) ListDeliveries(ctx context.Context, r *dispatcherv1.ListDeliveriesRequest) (*dispatcherv1.ListDeliveriesResponse, error) {
	item, limit, err := listOf(r.GetWorkItem(), r.GetPageSize(), pageSize)
	if err != nil {
		return nil, err
	}
	q := deliver.DeliveryQuery{WorkItem: item, Host: r.GetHost(), Reason: dispatch.Reason(r.GetReason()), Limit: limit + 1}
	if q.Reason != "" && !slices.Contains(dispatch.Reasons(), q.Reason) {
		return nil, fault.Newf(fault.Invalid, fault.ReasonBadArgument, "%.64q is no reason of an outcome", r.GetReason()).
			WithRemedy("docs/runbook.md lists the reasons of the dispatcher")
	}
	if q.Outcome, err = wantedOutcome(r.GetOutcome()); err != nil {
		return nil, err
	}
	if q.BeforeTime, q.BeforeID, err = readDeliveryToken(r.GetPageToken()); err != nil {
		return nil, err
	}
	found, err := s.records.Deliveries(ctx, q)
	if err != nil {
		return nil, err
	}
	out := &dispatcherv1.ListDeliveriesResponse{}
	if len(found) > limit {
		found = found[:limit]
		out.NextPageToken = deliveryToken(found[limit-1].CreatedAt, found[limit-1].ID)
	}
	for _, d := range found {
		out.Deliveries = append(out.Deliveries, deliveryOf(d))
	}
	return out, nil
}

// ListSessions returns the recorded sessions, with what their host says of them now.
func (s *Server) ListSessions(ctx context.Context, r *dispatcherv1.ListSessionsRequest) (*dispatcherv1.ListSessionsResponse, error) {
	item, limit, err := listOf(r.GetWorkItem(), r.GetPageSize(), pageSize)
	if err != nil {
		return nil, err
	}
	q := deliver.SessionQuery{WorkItem: item, Host: r.GetHost(), Closed: r.GetClosed() || item != "", Limit: limit + 1}
	if q.After, err = readItemToken(r.GetPageToken(), sessionPrefix); err != nil {
		return nil, err
	}
	found, err := s.records.Shown(ctx, q)
	if err != nil {
		return nil, err
	}
	out := &dispatcherv1.ListSessionsResponse{}
	if len(found) > limit {
		found = found[:limit]
		out.NextPageToken = itemToken(sessionPrefix, found[limit-1].WorkItem)
	}
	for _, record := range found {
		following, until := s.hosts.Followed(record.Host)
		out.Sessions = append(out.Sessions, shownOf(record, following, until))
	}
	if err := s.tellEndings(ctx, item, out.GetSessions()); err != nil {
		return nil, err
	}
	if !r.GetSkipProbe() {
		s.probe(ctx, out.GetSessions(), item != "")
	}
	return out, nil
}

// probe fills in the states, asking for several at once, and what the agents do. A session whose state did not come in time is unknown, and of it
// stays what was told last. With look the screens are read in any case.
func (s *Server) probe(ctx context.Context, sessions []*dispatcherv1.Session, look bool) {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	var group errgroup.Group
	group.SetLimit(probesAtOnce)
	for _, record := range sessions {
		if record.GetClosed() {
			continue // what may live under its name is not its agent
		}
		group.Go(func() error {
			sight, recorded := s.hosts.Show(ctx, record.GetHost(), record.GetWorkItem(), look), record.GetConversationId()
			record.State, record.StateDetail, record.Flags = stateOf(sight.Probe), sight.Detail, flagsOf(sight.Probe)
			if sight.Probe != dispatch.ProbeUnreachable {
				does(record, sight.Doing, time.Time{})
			}
			// Many programs tell theirs only after the record was made, and a person may have begun another one since.
			if same := sight.Incarnation.Stamp != "" && sight.Incarnation.Stamp == record.GetIncarnationStamp(); same {
				record.ConversationId = cmp.Or(sight.ConversationID, record.GetConversationId())
			} else {
				record.ConversationId = cmp.Or(record.GetConversationId(), sight.ConversationID)
			}
			if sight.Host != record.GetHost() && sight.Probe != dispatch.ProbeUnreachable {
				record.State, record.Flags = dispatcherv1.SessionState_SESSION_STATE_UNKNOWN, nil
				record.ConversationId = recorded
				does(record, deliver.Doing{}, time.Time{})
				record.StateDetail = "it is recorded on another host than the one that answers, " + sight.Host
			}
			return nil
		})
	}
	_ = group.Wait() // no probe returns an error
}

// listOf reads what all lists have: a work item, which may be empty, and a page size, of which zero means usual.
func listOf(item string, size int32, usual int) (canonical string, limit int, err error) {
	if item != "" {
		ref, err := workitem.Parse(item)
		if err != nil {
			return "", 0, err
		}
		item = ref.String()
	}
	switch {
	case size < 0 || size > maxPage:
		return "", 0, fault.Newf(fault.Invalid, fault.ReasonBadArgument,
			"page_size must be 1 to %d, or 0 for %d, and is %d", maxPage, usual, size)
	case size == 0:
		return item, usual, nil
	}
	return item, int(size), nil
}

func badDeliveryID() error {
	return fault.New(fault.Invalid, fault.ReasonBadDeliveryID,
		"the delivery id must have 8 to 64 characters of a-z, 0-9, - and _, and begin with a letter or digit")
}
