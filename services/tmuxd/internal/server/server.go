// Package server answers tmuxd's gRPC contract: it reads requests into the host's terms and writes the host's results as outcomes.
//
// It decides nothing and knows nothing of tmux.
package server

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/core/workitem"
	"muxpost.dev/muxpost/internal/obs"
	"muxpost.dev/muxpost/internal/settings"
	tmuxdv1 "muxpost.dev/muxpost/proto/gen/muxpost/tmuxd/v1"
	"muxpost.dev/muxpost/services/tmuxd/internal/attempt"
	"muxpost.dev/muxpost/services/tmuxd/internal/host"
	"muxpost.dev/muxpost/services/tmuxd/internal/metrics"
)

// Server implements tmuxdv1.TmuxdServiceServer.
type Server struct {
	tmuxdv1.UnimplementedTmuxdServiceServer
	host   *host.Host
	log    *slog.Logger
	facts  Facts
	socket func(target string) string
	// attempts is nil for a server that answers for sessions alone.
	attempts *attempt.Runner
	metrics  *metrics.Metrics
	trees    Trees
}

// New returns a server. socket tells the path of a target's socket. Every act is one line in the log: it says who was typed at, under
// which delivery and token, and what came of it.
func New(h *host.Host, log *slog.Logger, facts Facts, socket func(string) string) *Server {
	return &Server{host: h, log: log, facts: facts, socket: socket, metrics: metrics.New(nil)}
}

// WithMetrics has the server measure what it is asked for.
func (s *Server) WithMetrics(m *metrics.Metrics) *Server {
	s.metrics = m
	return s
}

// measure records an act; err is for one whose outcome is not known.
func (s *Server) measure(ctx context.Context, action string, began time.Time, outcome fmt.Stringer, err error) {
	word := "error"
	if err == nil {
		word = outcome.String()
	}
	s.metrics.Acts.Record(ctx, time.Since(began), action, word)
}

// SessionState says what is known of a session.
func (s *Server) SessionState(ctx context.Context, req *tmuxdv1.SessionStateRequest) (*tmuxdv1.SessionStateResponse, error) {
	item, err := workitem.Parse(req.GetWorkItem())
	if err != nil {
		return nil, err
	}
	st, age, err := s.state(ctx, item, req)
	if err != nil {
		return nil, err
	}
	out := &tmuxdv1.SessionStateResponse{
		Target: st.Target, State: stateOf[st.State], Flags: flagsOf(st.Flags), Incarnation: incarnationOf(st.Incarnation),
		Harness: st.Harness, ConversationId: st.Conversation, Directory: st.Directory, Exit: exitOf(st), Detail: st.Detail,
		SocketPath: s.socket(st.Target), DeliveryPhase: phaseOf[st.Phase], JournalUnreadable: st.JournalUnreadable,
	}
	if age > 0 {
		s.metrics.SnapshotAge.Record(ctx, age)
		out.Age = durationpb.New(age)
	}
	if st.State == session.Unknown {
		s.metrics.Unknown.Add(ctx, 1)
	}
	if (req.GetActivity() || req.GetLook()) && st.State == session.Live {
		d := s.host.Activity(ctx, item, req.GetLook())
		out.Activity, out.ActivityDetail = activityOf[d.Activity], oneLine(d.Detail)
		out.ActivitySince, out.ActivitySeenAt = timeOf(d.Since), timeOf(d.SeenAt)
	}
	return out, nil
}

// state answers from what was seen lately where the caller allows it. The phase of a delivery needs the session's ring or the journal, so it
// is never answered from there.
func (s *Server) state(ctx context.Context, item workitem.Ref, req *tmuxdv1.SessionStateRequest) (host.Status, time.Duration, error) {
	maxAge := req.GetMaxStaleness()
	if maxAge != nil && (maxAge.CheckValid() != nil || maxAge.AsDuration() < 0) {
		return host.Status{}, 0, fault.New(fault.Invalid, fault.ReasonBadArgument, "max_staleness is not a duration of zero or more")
	}
	if req.GetDeliveryId() != "" {
		st, err := s.host.State(ctx, item, req.GetDeliveryId())
		return st, 0, err
	}
	return s.host.StateWithin(ctx, item, maxAge.AsDuration())
}

// Spawn starts a session.
func (s *Server) Spawn(ctx context.Context, req *tmuxdv1.SpawnRequest) (*tmuxdv1.SpawnResponse, error) {
	item, err := workitem.Parse(req.GetWorkItem())
	if err != nil {
		return nil, err
	}
	in := host.SpawnRequest{Item: item, Harness: req.GetHarness(), Directory: req.GetDirectory(), Token: req.GetFencingToken()}
	switch c := req.GetConversation().(type) {
	case *tmuxdv1.SpawnRequest_Fresh:
		if c.Fresh.GetReason() == "" {
			return nil, bad("fresh.reason", "say why it is not a resume")
		}
	case *tmuxdv1.SpawnRequest_Resume:
		if in.Resume = c.Resume.GetConversationId(); in.Resume == "" {
			return nil, bad("resume.conversation_id", "name the conversation")
		}
	default:
		return nil, bad("conversation", "choose fresh or resume")
	}
	if p := req.GetPrompt(); p != nil {
		in.DeliveryID, in.Text = p.GetDeliveryId(), p.GetText()
		if in.DeliveryID == "" {
			return nil, bad("prompt.delivery_id", "name the delivery")
		}
	}
	ctx, cancel, err := within(ctx, req.GetTimeout(), 15*time.Second)
	if err != nil {
		return nil, err
	}
	defer cancel()
	began := time.Now()
	r, err := s.host.Spawn(ctx, in)
	s.measure(ctx, "spawn", began, r.Outcome, err)
	if err != nil {
		return nil, err
	}
	s.log.InfoContext(ctx, "spawn", obs.KeyWorkItem, item.String(), obs.KeyTarget, r.Target, obs.KeyDeliveryID, in.DeliveryID,
		obs.KeyHarness, in.Harness, obs.KeyToken, in.Token, obs.KeyOutcome, r.Outcome.String(), obs.KeyReason, r.Reason,
		obs.KeyIncarnation, r.Incarnation.Stamp, obs.KeyPhase, r.PromptPhase.String())
	switch r.Outcome {
	case host.SpawnNotStarted:
		s.metrics.NotStarted.Add(ctx, 1, "exited")
	case host.SpawnFailed:
		s.metrics.NotStarted.Add(ctx, 1, r.Reason)
	case host.SpawnStarted, host.SpawnOccupied:
	}
	return s.spawned(r), nil
}

func (s *Server) spawned(r host.SpawnResult) *tmuxdv1.SpawnResponse {
	out := &tmuxdv1.SpawnResponse{Target: r.Target}
	switch r.Outcome {
	case host.SpawnStarted:
		out.Outcome = &tmuxdv1.SpawnResponse_Started{Started: &tmuxdv1.Started{
			Incarnation: incarnationOf(r.Incarnation), ConversationId: r.Conversation, Resumed: r.Resumed, SocketPath: s.socket(r.Target),
			Directory: r.Directory, PromptPhase: phaseOf[r.PromptPhase], AlreadyDone: r.AlreadyDone,
		}}
	case host.SpawnOccupied:
		out.Outcome = &tmuxdv1.SpawnResponse_Occupied{Occupied: &tmuxdv1.Occupied{
			Occupant: occupantOf[r.Occupant], Incarnation: incarnationOf(r.Incarnation), Detail: r.Detail,
			Remedy: strings.ReplaceAll(r.Remedy, "<socket>", s.socket(r.Target)),
		}}
	case host.SpawnNotStarted:
		exit := &tmuxdv1.Exit{}
		fillExit(exit, r.Exit)
		out.Outcome = &tmuxdv1.SpawnResponse_NotStarted{NotStarted: &tmuxdv1.NotStarted{
			Exit: exit, LastLines: clean(r.LastLines), Incarnation: incarnationOf(r.Incarnation),
			Failure: failureOf[r.Failure.Class], FailureLine: oneLine(r.Failure.Line),
		}}
	case host.SpawnFailed:
		out.Outcome = &tmuxdv1.SpawnResponse_Failed{Failed: &tmuxdv1.SpawnFailed{Reason: r.Reason, Detail: r.Detail}}
	}
	return out
}

// Paste puts a delivery into a living agent.
func (s *Server) Paste(ctx context.Context, req *tmuxdv1.PasteRequest) (*tmuxdv1.PasteResponse, error) {
	item, err := workitem.Parse(req.GetWorkItem())
	if err != nil {
		return nil, err
	}
	ctx, cancel, err := within(ctx, req.GetTimeout(), 10*time.Second)
	if err != nil {
		return nil, err
	}
	defer cancel()
	began := time.Now()
	r, err := s.host.Paste(ctx, host.PasteRequest{Item: item, DeliveryID: req.GetDeliveryId(), Text: req.GetText(),
		Stamp: req.GetIncarnationStamp(), Token: req.GetFencingToken()})
	s.measure(ctx, "paste", began, r.Verdict, err)
	if err != nil {
		return nil, err
	}
	s.log.InfoContext(ctx, "paste", obs.KeyWorkItem, item.String(), obs.KeyTarget, r.Target, obs.KeyDeliveryID, req.GetDeliveryId(),
		obs.KeyToken, req.GetFencingToken(), obs.KeyOutcome, r.Verdict.String(), obs.KeyReason, r.Detail,
		obs.KeyIncarnation, r.Incarnation.Stamp)
	switch r.Verdict {
	case host.Held:
		s.metrics.Held.Add(ctx, 1, reasonOf(holdOf[r.Cause].String(), "HOLD_REASON_"))
	case host.Refused:
		s.metrics.Refused.Add(ctx, 1, "paste", reasonOf(refusalOf[r.Cause].String(), "REFUSAL_REASON_"))
	case host.Submitted, host.AlreadyDelivered, host.Unconfirmed:
	}
	return pasted(r), nil
}

// reasonOf is the word of an enum's value.
func reasonOf(value, prefix string) string { return strings.ToLower(strings.TrimPrefix(value, prefix)) }

func pasted(r host.PasteResult) *tmuxdv1.PasteResponse {
	out := &tmuxdv1.PasteResponse{Target: r.Target, Incarnation: incarnationOf(r.Incarnation)}
	evidence := tmuxdv1.Evidence_EVIDENCE_SCREEN
	if r.ByTranscript {
		evidence = tmuxdv1.Evidence_EVIDENCE_TRANSCRIPT
	}
	switch r.Verdict {
	case host.Submitted:
		out.Verdict = &tmuxdv1.PasteResponse_Submitted{Submitted: &tmuxdv1.Submitted{Evidence: evidence}}
	case host.AlreadyDelivered:
		out.Verdict = &tmuxdv1.PasteResponse_AlreadyDelivered{AlreadyDelivered: &tmuxdv1.AlreadyDelivered{Evidence: evidence}}
	case host.Held:
		out.Verdict = &tmuxdv1.PasteResponse_Held{Held: &tmuxdv1.Held{Reason: holdOf[r.Cause], Detail: r.Detail}}
	case host.Refused:
		out.Verdict = &tmuxdv1.PasteResponse_Refused{Refused: &tmuxdv1.Refused{Reason: refusalOf[r.Cause], Detail: r.Detail}}
	case host.Unconfirmed:
		out.Verdict = &tmuxdv1.PasteResponse_Unconfirmed{Unconfirmed: &tmuxdv1.Unconfirmed{Detail: r.Detail, Phase: phaseOf[r.Phase]}}
	}
	return out
}

func bad(field, what string) error {
	return fault.Newf(fault.Invalid, fault.ReasonBadArgument, "%s is missing: %s", field, what)
}

// within bounds a call by the caller's timeout, at most the host's own.
func within(ctx context.Context, asked *durationpb.Duration, limit time.Duration) (context.Context, context.CancelFunc, error) {
	if asked != nil {
		d := asked.AsDuration()
		if asked.CheckValid() != nil || d < 0 {
			return nil, nil, fault.New(fault.Invalid, fault.ReasonBadArgument, "timeout is not a duration of zero or more")
		}
		if d > 0 && d < limit {
			limit = d
		}
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	return ctx, cancel, nil
}

var (
	stateOf = map[session.State]tmuxdv1.State{
		session.Unknown: tmuxdv1.State_STATE_UNKNOWN, session.Live: tmuxdv1.State_STATE_LIVE,
		session.Dead: tmuxdv1.State_STATE_DEAD, session.Absent: tmuxdv1.State_STATE_ABSENT,
	}
	activityOf = map[host.Activity]tmuxdv1.Activity{
		host.ActivityUnknown: tmuxdv1.Activity_ACTIVITY_UNSPECIFIED, host.ActivityStarting: tmuxdv1.Activity_ACTIVITY_STARTING,
		host.ActivityIdle: tmuxdv1.Activity_ACTIVITY_IDLE, host.ActivityWorking: tmuxdv1.Activity_ACTIVITY_WORKING,
		host.ActivityApproval: tmuxdv1.Activity_ACTIVITY_AWAITING_APPROVAL, host.ActivityDraft: tmuxdv1.Activity_ACTIVITY_DRAFT,
		host.ActivityUnclear: tmuxdv1.Activity_ACTIVITY_UNCLEAR, host.ActivityInput: tmuxdv1.Activity_ACTIVITY_AWAITING_INPUT,
		host.ActivityHuman: tmuxdv1.Activity_ACTIVITY_NEEDS_HUMAN,
	}
	failureOf = map[string]tmuxdv1.Failure{
		settings.FailureUnknown: tmuxdv1.Failure_FAILURE_CONVERSATION_UNKNOWN, settings.FailureInUse: tmuxdv1.Failure_FAILURE_CONVERSATION_IN_USE,
		settings.FailureLimit: tmuxdv1.Failure_FAILURE_USAGE_LIMIT, settings.FailureAuth: tmuxdv1.Failure_FAILURE_AUTH,
	}
	phaseOf = map[session.Phase]tmuxdv1.Phase{
		session.None: tmuxdv1.Phase_PHASE_UNSPECIFIED, session.Pasting: tmuxdv1.Phase_PHASE_PASTING,
		session.Pasted: tmuxdv1.Phase_PHASE_PASTED, session.Submitted: tmuxdv1.Phase_PHASE_SUBMITTED,
		session.Taken: tmuxdv1.Phase_PHASE_TAKEN, session.Boot: tmuxdv1.Phase_PHASE_BOOT,
		session.Handing: tmuxdv1.Phase_PHASE_HANDING,
	}
	occupantOf = map[host.Occupant]tmuxdv1.Occupant{
		host.OccupantLive: tmuxdv1.Occupant_OCCUPANT_LIVE, host.OccupantForeign: tmuxdv1.Occupant_OCCUPANT_FOREIGN,
		host.OccupantUnclearable: tmuxdv1.Occupant_OCCUPANT_UNCLEARABLE,
	}
	holdOf = map[host.Cause]tmuxdv1.HoldReason{
		host.HeldDraft: tmuxdv1.HoldReason_HOLD_REASON_DRAFT, host.HeldDialog: tmuxdv1.HoldReason_HOLD_REASON_DIALOG,
		host.HeldBusy: tmuxdv1.HoldReason_HOLD_REASON_BUSY, host.HeldNotReady: tmuxdv1.HoldReason_HOLD_REASON_NOT_READY,
		host.HeldInputOff: tmuxdv1.HoldReason_HOLD_REASON_INPUT_OFF, host.HeldNotShown: tmuxdv1.HoldReason_HOLD_REASON_NOT_SHOWN,
		host.HeldFrozen: tmuxdv1.HoldReason_HOLD_REASON_FROZEN, host.HeldPerson: tmuxdv1.HoldReason_HOLD_REASON_PERSON,
	}
	refusalOf = map[host.Cause]tmuxdv1.RefusalReason{
		host.RefusedDead: tmuxdv1.RefusalReason_REFUSAL_REASON_DEAD, host.RefusedAbsent: tmuxdv1.RefusalReason_REFUSAL_REASON_ABSENT,
		host.RefusedForeign:     tmuxdv1.RefusalReason_REFUSAL_REASON_FOREIGN,
		host.RefusedIncarnation: tmuxdv1.RefusalReason_REFUSAL_REASON_INCARNATION,
	}
)

// timeOf writes a time; one that is not known is unset.
func timeOf(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

func flagsOf(f session.Flags) []tmuxdv1.Flag {
	var out []tmuxdv1.Flag
	for _, pair := range []struct {
		in  session.Flags
		out tmuxdv1.Flag
	}{{session.Guests, tmuxdv1.Flag_FLAG_GUESTS}, {session.Foreign, tmuxdv1.Flag_FLAG_FOREIGN},
		{session.Detached, tmuxdv1.Flag_FLAG_DETACHED}, {session.Moved, tmuxdv1.Flag_FLAG_MOVED}} {
		if f.Has(pair.in) {
			out = append(out, pair.out)
		}
	}
	return out
}

func incarnationOf(i host.Incarnation) *tmuxdv1.Incarnation {
	if i == (host.Incarnation{}) {
		return nil
	}
	out := &tmuxdv1.Incarnation{Stamp: i.Stamp, SessionId: i.SessionID, PaneId: i.PaneID, PanePid: int64(i.PanePid),
		ServerPid: int64(i.Server.Pid)}
	if !i.Server.Started.IsZero() {
		out.ServerStarted = timestamppb.New(i.Server.Started)
	}
	return out
}

func exitOf(st host.Status) *tmuxdv1.Exit {
	if st.State != session.Dead && !st.Exit.Known {
		return nil
	}
	out := &tmuxdv1.Exit{}
	fillExit(out, st.Exit)
	return out
}

func fillExit(out *tmuxdv1.Exit, e host.Exit) {
	if !e.Known {
		return
	}
	if e.Signal > 0 {
		out.End = &tmuxdv1.Exit_Signal{Signal: int32(e.Signal)}
	} else {
		out.End = &tmuxdv1.Exit_Code{Code: int32(e.Code)}
	}
	if !e.At.IsZero() {
		out.At = timestamppb.New(e.At)
	}
}

// clean keeps what a program wrote on its screen to printable characters.
func clean(lines []string) []string {
	for i, l := range lines {
		lines[i] = strings.Map(func(r rune) rune {
			if r < ' ' || r >= 0x7F && r <= 0x9F {
				return -1
			}
			return r
		}, strings.ToValidUTF8(l, "?"))
	}
	return lines
}
