package server

import (
	"math"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"muxpost.dev/muxpost/core/dispatch"
	"muxpost.dev/muxpost/core/fault"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	"muxpost.dev/muxpost/services/dispatcher/internal/deliver"
)

// kindOf reads a kind; one that is not said or not known is empty, which is refused.
func kindOf(k dispatcherv1.EventKind) deliver.Kind {
	switch k {
	case dispatcherv1.EventKind_EVENT_KIND_OPENED:
		return deliver.Opened
	case dispatcherv1.EventKind_EVENT_KIND_COMMENT:
		return deliver.Comment
	case dispatcherv1.EventKind_EVENT_KIND_MESSAGE:
		return deliver.Message
	case dispatcherv1.EventKind_EVENT_KIND_REVIEW:
		return deliver.Review
	case dispatcherv1.EventKind_EVENT_KIND_REVIEW_COMMENT:
		return deliver.ReviewComment
	case dispatcherv1.EventKind_EVENT_KIND_STATE:
		return deliver.State
	case dispatcherv1.EventKind_EVENT_KIND_CHECK:
		return deliver.Check
	case dispatcherv1.EventKind_EVENT_KIND_UNSPECIFIED:
	}
	return ""
}

func kindTo(k deliver.Kind) dispatcherv1.EventKind {
	switch k {
	case deliver.Opened:
		return dispatcherv1.EventKind_EVENT_KIND_OPENED
	case deliver.Comment:
		return dispatcherv1.EventKind_EVENT_KIND_COMMENT
	case deliver.Message:
		return dispatcherv1.EventKind_EVENT_KIND_MESSAGE
	case deliver.Review:
		return dispatcherv1.EventKind_EVENT_KIND_REVIEW
	case deliver.ReviewComment:
		return dispatcherv1.EventKind_EVENT_KIND_REVIEW_COMMENT
	case deliver.State:
		return dispatcherv1.EventKind_EVENT_KIND_STATE
	case deliver.Check:
		return dispatcherv1.EventKind_EVENT_KIND_CHECK
	}
	return dispatcherv1.EventKind_EVENT_KIND_UNSPECIFIED
}

func outcomeOf(o dispatch.Outcome) dispatcherv1.Outcome {
	switch o {
	case dispatch.InProgress:
		return dispatcherv1.Outcome_OUTCOME_IN_PROGRESS
	case dispatch.Delivered:
		return dispatcherv1.Outcome_OUTCOME_DELIVERED
	case dispatch.Held:
		return dispatcherv1.Outcome_OUTCOME_HELD
	case dispatch.Waiting:
		return dispatcherv1.Outcome_OUTCOME_WAITING
	case dispatch.Failed:
		return dispatcherv1.Outcome_OUTCOME_FAILED
	case dispatch.Dropped:
		return dispatcherv1.Outcome_OUTCOME_DROPPED
	case dispatch.Unconfirmed:
		return dispatcherv1.Outcome_OUTCOME_UNCONFIRMED
	}
	return dispatcherv1.Outcome_OUTCOME_UNSPECIFIED
}

// wantedOutcome reads the outcome that a list is narrowed to; nil for one that is not said.
func wantedOutcome(o dispatcherv1.Outcome) (*dispatch.Outcome, error) {
	if o == dispatcherv1.Outcome_OUTCOME_UNSPECIFIED {
		return nil, nil //nolint:nilnil // No outcome is what nil stands for.
	}
	for _, known := range dispatch.Outcomes() {
		if outcomeOf(known) == o {
			return &known, nil
		}
	}
	return nil, fault.Newf(fault.Invalid, fault.ReasonBadArgument, "outcome %d is not known", o)
}

func howOf(h dispatch.How) dispatcherv1.How {
	switch h {
	case dispatch.HowPasted:
		return dispatcherv1.How_HOW_PASTED
	case dispatch.HowSpawned:
		return dispatcherv1.How_HOW_SPAWNED
	case dispatch.HowResumed:
		return dispatcherv1.How_HOW_RESUMED
	case dispatch.HowFresh:
		return dispatcherv1.How_HOW_RESPAWNED_FRESH
	case dispatch.HowAverted:
		return dispatcherv1.How_HOW_AVERTED
	case dispatch.HowAlready:
		return dispatcherv1.How_HOW_ALREADY
	}
	return dispatcherv1.How_HOW_UNSPECIFIED
}

var activityOf = map[deliver.Activity]dispatcherv1.SessionActivity{
	deliver.Starting: dispatcherv1.SessionActivity_SESSION_ACTIVITY_STARTING, deliver.Idle: dispatcherv1.SessionActivity_SESSION_ACTIVITY_IDLE,
	deliver.Working: dispatcherv1.SessionActivity_SESSION_ACTIVITY_WORKING, deliver.Draft: dispatcherv1.SessionActivity_SESSION_ACTIVITY_DRAFT,
	deliver.AwaitingApproval: dispatcherv1.SessionActivity_SESSION_ACTIVITY_AWAITING_APPROVAL,
	deliver.AwaitingInput:    dispatcherv1.SessionActivity_SESSION_ACTIVITY_AWAITING_INPUT,
	deliver.NeedsHuman:       dispatcherv1.SessionActivity_SESSION_ACTIVITY_NEEDS_HUMAN,
	deliver.Unclear:          dispatcherv1.SessionActivity_SESSION_ACTIVITY_UNCLEAR,
}

func stateOf(p dispatch.Probe) dispatcherv1.SessionState {
	switch p {
	case dispatch.ProbeLive, dispatch.ProbeForeign, dispatch.ProbeDetached:
		return dispatcherv1.SessionState_SESSION_STATE_LIVE
	case dispatch.ProbeDead, dispatch.ProbeGuests:
		return dispatcherv1.SessionState_SESSION_STATE_DEAD
	case dispatch.ProbeAbsent:
		return dispatcherv1.SessionState_SESSION_STATE_ABSENT
	case dispatch.ProbeUnknown, dispatch.ProbeUnreachable, dispatch.ProbeNowhere, dispatch.ProbeNotAsked:
	}
	return dispatcherv1.SessionState_SESSION_STATE_UNKNOWN
}

func flagsOf(p dispatch.Probe) []dispatcherv1.SessionFlag {
	switch p {
	case dispatch.ProbeForeign:
		return []dispatcherv1.SessionFlag{dispatcherv1.SessionFlag_SESSION_FLAG_FOREIGN}
	case dispatch.ProbeDetached:
		return []dispatcherv1.SessionFlag{dispatcherv1.SessionFlag_SESSION_FLAG_DETACHED}
	case dispatch.ProbeGuests:
		return []dispatcherv1.SessionFlag{dispatcherv1.SessionFlag_SESSION_FLAG_GUESTS}
	case dispatch.ProbeNotAsked, dispatch.ProbeNowhere, dispatch.ProbeUnreachable, dispatch.ProbeUnknown, dispatch.ProbeLive, dispatch.ProbeDead,
		dispatch.ProbeAbsent:
	}
	return nil
}

func deliveryOf(d deliver.Delivery) *dispatcherv1.Delivery {
	return &dispatcherv1.Delivery{
		DeliveryId: d.ID, WorkItem: d.WorkItem, Kind: kindTo(d.Kind), Outcome: outcomeOf(d.Outcome), Reason: string(d.Reason),
		Detail: d.Detail, Remedy: d.Remedy, How: howOf(d.How), Host: d.Host, Target: d.Target, ConversationId: d.ConversationID,
		Asked: int32(min(d.Asked, math.MaxInt32)), TraceId: d.TraceID, CreateTime: timestamppb.New(d.CreatedAt),
		UpdateTime: timestamppb.New(d.UpdatedAt), Steps: d.Steps,
	}
}

// shownOf is a session with what its agent does, as it was told last. That holds while every change of its host is heard of, and where a program
// tells of each: else it is said until when it did.
func shownOf(s deliver.Shown, following bool, until time.Time) *dispatcherv1.Session {
	out, asOf := sessionOf(s.Session), s.Doing.SeenAt
	switch {
	case !asOf.IsZero() || following:
	case until.After(s.ToldAt):
		asOf = until
	default:
		asOf = s.ToldAt
	}
	does(out, s.Doing, asOf)
	return out
}

// does writes what the agent of a session does, and until when that is known to have held; zero is now.
func does(out *dispatcherv1.Session, d deliver.Doing, asOf time.Time) {
	out.Activity, out.ActivityDetail, out.ActivitySince, out.ActivityAsOf = activityOf[d.Activity], d.Detail, nil, nil
	if d.Activity == "" {
		return
	}
	if !d.Since.IsZero() {
		out.ActivitySince = timestamppb.New(d.Since)
	}
	if !asOf.IsZero() {
		out.ActivityAsOf = timestamppb.New(asOf)
	}
}

func sessionOf(s deliver.Session) *dispatcherv1.Session {
	return &dispatcherv1.Session{
		WorkItem: s.WorkItem, Target: s.Target, Host: s.Host, Harness: s.Harness, ConversationId: s.ConversationID, Lineage: s.Lineage,
		IncarnationStamp: s.Incarnation.Stamp, SocketPath: s.SocketPath, Directory: s.Directory, Closed: s.Closed,
		CreateTime: timestamppb.New(s.CreatedAt), UpdateTime: timestamppb.New(s.UpdatedAt),
	}
}

func eventOf(e deliver.Event) *dispatcherv1.Event {
	return &dispatcherv1.Event{
		Sequence: e.Sequence, Type: string(e.Type), Time: timestamppb.New(e.Time), WorkItem: e.WorkItem, DeliveryId: e.DeliveryID,
		Fields: e.Fields, TraceId: e.TraceID,
	}
}
