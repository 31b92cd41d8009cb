// Package dispatch asks the dispatcher over gRPC to have an event delivered, or decided again, and puts its answer into the ledger's words.
//
// It knows nothing of what an answer does to an event, and never logs.
package dispatch

import (
	"context"
	"strings"

	"google.golang.org/grpc"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/ledger"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	teamv1 "muxpost.dev/muxpost/proto/gen/muxpost/team/v1"
	"muxpost.dev/muxpost/services/poller/internal/forward"
	"muxpost.dev/muxpost/services/poller/internal/poll"
)

// rearmer is who re-opens, on the dispatcher's record, what another version tries again.
const rearmer = "muxpost (another version runs)"

// Client asks one dispatcher.
type Client struct {
	api   dispatcherv1.DispatcherServiceClient
	teams teamv1.TeamServiceClient
	builds
}

var (
	_ forward.Deliverer = (*Client)(nil)
	_ poll.Reopener     = (*Client)(nil)
)

// New returns a client on a connection whose errors are faults, as rpc.Dial makes them. own is the poller's build.
func New(conn grpc.ClientConnInterface, own ledger.Build) *Client {
	return &Client{api: dispatcherv1.NewDispatcherServiceClient(conn), teams: teamv1.NewTeamServiceClient(conn), builds: builds{own: own}}
}

// Deliver has an event delivered, and returns what came of it. An answer that this build cannot read is fault.Internal.
func (c *Client) Deliver(ctx context.Context, claim forward.Claim) (forward.Outcome, error) {
	if claim.Rearmed {
		// What was never dropped is left as it is, and what cannot be re-opened is told by its delivery.
		if _, err := c.Reopen(ctx, claim.DeliveryID, rearmer, false); fault.KindOf(err) == fault.Unavailable {
			return forward.Outcome{}, err
		}
	}
	response, err := c.api.Deliver(ctx, &dispatcherv1.DeliverRequest{
		DeliveryId: claim.DeliveryID, WorkItem: claim.WorkItem, NodeId: claim.NodeID, Kind: kindOf(claim.Kind), Text: claim.Text,
		Harness: claim.Harness,
	})
	if err != nil {
		return forward.Outcome{}, err
	}
	d := response.GetDelivery()
	answer, ok := answerOf(d.GetOutcome())
	if !ok {
		return forward.Outcome{}, fault.Newf(fault.Internal, "", "the dispatcher answers with outcome %d, which this build does not know",
			d.GetOutcome()).WithRemedy("run the same release of poller and dispatcher")
	}
	detail := d.GetDetail()
	if remedy := d.GetRemedy(); remedy != "" && !strings.Contains(detail, remedy) {
		detail = strings.TrimSpace(detail + " (" + remedy + ")")
	}
	out := forward.Outcome{
		Answer: answer, Reason: d.GetReason(), Detail: detail, After: max(0, response.GetLookAgain().AsDuration()),
		Version: c.heard(response.GetBuilds()), Started: d.GetHow() == dispatcherv1.How_HOW_SPAWNED, Host: d.GetHost(),
	}
	if out.Started {
		out.Harness = c.harness(ctx, claim.WorkItem)
	}
	return out, nil
}

// harness returns what the session of an item runs, or nothing: it is for people, and nothing waits for it.
func (c *Client) harness(ctx context.Context, workItem string) string {
	ctx, cancel := context.WithTimeout(ctx, learnTime)
	defer cancel()
	page, err := c.api.ListSessions(ctx, &dispatcherv1.ListSessionsRequest{WorkItem: workItem, PageSize: 1, SkipProbe: true})
	if err != nil || len(page.GetSessions()) == 0 {
		return ""
	}
	return page.GetSessions()[0].GetHarness()
}

// GoesOn reports whether the next event of a work item goes into a conversation that the item had before: one is on record, which its
// session runs or comes back with, or its session is known to live and to be ours. No host is asked where the record is enough.
func (c *Client) GoesOn(ctx context.Context, workItem string) (bool, error) {
	for _, recordAlone := range []bool{true, false} {
		page, err := c.api.ListSessions(ctx, &dispatcherv1.ListSessionsRequest{WorkItem: workItem, PageSize: 1, SkipProbe: recordAlone})
		if err != nil || len(page.GetSessions()) == 0 {
			return false, err
		}
		s := page.GetSessions()[0]
		if s.GetConversationId() != "" || s.GetState() == dispatcherv1.SessionState_SESSION_STATE_LIVE && len(s.GetFlags()) == 0 {
			return true, nil
		}
	}
	return false, nil
}

// Reopen takes back that a delivery was dropped; with ifFree only where its session's name can be had. It returns false for one that is
// dropped still. One that is in its conversation is fault.Conflict, and one that the dispatcher was never asked about fault.NotFound; one
// that has not ended is left as it is.
func (c *Client) Reopen(ctx context.Context, id, who string, ifFree bool) (open bool, err error) {
	response, err := c.api.Reopen(ctx, &dispatcherv1.ReopenRequest{DeliveryId: id, Who: who, IfFree: ifFree})
	return err == nil && response.GetDelivery().GetOutcome() != dispatcherv1.Outcome_OUTCOME_DROPPED, err
}

// Watch calls hear for every work item at whose session something changed, and with none where it may be any, until the stream breaks or
// ctx ends. An error is returned in any case.
func (c *Client) Watch(ctx context.Context, hear func(workItem string)) error {
	stream, err := c.api.WatchSessions(ctx, &dispatcherv1.WatchSessionsRequest{}, grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	for {
		hint, err := stream.Recv()
		if err != nil {
			return err
		}
		hear(hint.GetWorkItem())
	}
}

func kindOf(kind string) dispatcherv1.EventKind {
	switch kind {
	case poll.KindOpened:
		return dispatcherv1.EventKind_EVENT_KIND_OPENED
	case poll.KindComment:
		return dispatcherv1.EventKind_EVENT_KIND_COMMENT
	case poll.KindMessage:
		return dispatcherv1.EventKind_EVENT_KIND_MESSAGE
	case poll.KindReview:
		return dispatcherv1.EventKind_EVENT_KIND_REVIEW
	case poll.KindReviewComment:
		return dispatcherv1.EventKind_EVENT_KIND_REVIEW_COMMENT
	case poll.KindState:
		return dispatcherv1.EventKind_EVENT_KIND_STATE
	case poll.KindCheck:
		return dispatcherv1.EventKind_EVENT_KIND_CHECK
	}
	return dispatcherv1.EventKind_EVENT_KIND_UNSPECIFIED
}

func answerOf(o dispatcherv1.Outcome) (ledger.Answer, bool) {
	switch o {
	case dispatcherv1.Outcome_OUTCOME_DELIVERED:
		return ledger.Arrived, true
	case dispatcherv1.Outcome_OUTCOME_IN_PROGRESS:
		return ledger.Working, true
	case dispatcherv1.Outcome_OUTCOME_HELD:
		return ledger.Holding, true
	case dispatcherv1.Outcome_OUTCOME_WAITING:
		return ledger.Silent, true
	case dispatcherv1.Outcome_OUTCOME_FAILED:
		return ledger.Failing, true
	case dispatcherv1.Outcome_OUTCOME_DROPPED:
		return ledger.Dropping, true
	case dispatcherv1.Outcome_OUTCOME_UNCONFIRMED:
		return ledger.Unproven, true
	case dispatcherv1.Outcome_OUTCOME_UNSPECIFIED:
	}
	return ledger.Silent, false
}
