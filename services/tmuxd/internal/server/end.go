package server

import (
	"context"
	"log/slog"
	"strings"
	"time"
	"unicode"

	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/types/known/durationpb"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/workitem"
	"muxpost.dev/muxpost/internal/obs"
	tmuxdv1 "muxpost.dev/muxpost/proto/gen/muxpost/tmuxd/v1"
	"muxpost.dev/muxpost/services/tmuxd/internal/host"
)

// maxReason bounds what is logged of a caller's reason, in bytes.
const maxReason = 300

// endRefusalOf has the causes for which nothing is ended.
var endRefusalOf = map[host.Cause]tmuxdv1.RefusalReason{
	host.RefusedAbsent:      tmuxdv1.RefusalReason_REFUSAL_REASON_ABSENT,
	host.RefusedForeign:     tmuxdv1.RefusalReason_REFUSAL_REASON_FOREIGN,
	host.RefusedIncarnation: tmuxdv1.RefusalReason_REFUSAL_REASON_INCARNATION,
	host.RefusedLive:        tmuxdv1.RefusalReason_REFUSAL_REASON_LIVE,
	host.RefusedGuests:      tmuxdv1.RefusalReason_REFUSAL_REASON_GUESTS,
	host.RefusedNeeded:      tmuxdv1.RefusalReason_REFUSAL_REASON_NEEDED,
}

// TerminateUnneeded ends an incarnation that nobody needs, with all that it started.
func (s *Server) TerminateUnneeded(ctx context.Context, req *tmuxdv1.TerminateUnneededRequest) (*tmuxdv1.TerminateUnneededResponse, error) {
	r, err := s.terminate(ctx, req, true)
	return &tmuxdv1.TerminateUnneededResponse{Result: r}, err
}

// Terminate ends an incarnation with all that it started.
func (s *Server) Terminate(ctx context.Context, req *tmuxdv1.TerminateRequest) (*tmuxdv1.TerminateResponse, error) {
	return s.terminate(ctx, req, false)
}

// endRequest is what both have in common.
type endRequest interface {
	GetWorkItem() string
	GetIncarnationStamp() string
	GetFencingToken() int64
	GetGrace() *durationpb.Duration
	GetReason() string
}

func (s *Server) terminate(ctx context.Context, req endRequest, unneeded bool) (*tmuxdv1.TerminateResponse, error) {
	item, err := workitem.Parse(req.GetWorkItem())
	if err != nil {
		return nil, err
	}
	if d := req.GetGrace(); d != nil && d.CheckValid() != nil {
		return nil, fault.New(fault.Invalid, fault.ReasonBadArgument, "grace is not a duration")
	}
	began := time.Now()
	r, err := s.host.Terminate(ctx, host.TerminateRequest{Item: item, Stamp: req.GetIncarnationStamp(), Token: req.GetFencingToken(),
		Grace: req.GetGrace().AsDuration(), Unneeded: unneeded})
	s.measureEnd(ctx, "terminate", began, r, err)
	s.logEnd(ctx, "terminate", item, req.GetIncarnationStamp(), req.GetFencingToken(), req.GetReason(), r, err)
	if err != nil {
		return nil, err
	}
	out := &tmuxdv1.TerminateResponse{Target: r.Target}
	switch r.Outcome {
	case host.EndDone:
		exit := &tmuxdv1.Exit{}
		fillExit(exit, r.Exit)
		out.Outcome = &tmuxdv1.TerminateResponse_Terminated{Terminated: &tmuxdv1.Terminated{
			Exit: exit, Already: r.Already, Killed: r.Killed, WholeTreeProven: r.Whole,
		}}
	case host.EndRefused:
		out.Outcome = &tmuxdv1.TerminateResponse_Refused{Refused: refusedEnd(r)}
	case host.EndRemains:
		out.Outcome = &tmuxdv1.TerminateResponse_Remains{Remains: remainsOf(r)}
	}
	return out, nil
}

// Kill removes a session.
func (s *Server) Kill(ctx context.Context, req *tmuxdv1.KillRequest) (*tmuxdv1.KillResponse, error) {
	item, err := workitem.Parse(req.GetWorkItem())
	if err != nil {
		return nil, err
	}
	began := time.Now()
	r, err := s.host.Kill(ctx, host.KillRequest{Item: item, Stamp: req.GetIncarnationStamp(), Token: req.GetFencingToken(), Force: req.GetForce(),
		Reason: req.GetReason()})
	s.measureEnd(ctx, "kill", began, r, err)
	what := "kill"
	if req.GetForce() {
		what = "kill by force"
	}
	s.logEnd(ctx, what, item, req.GetIncarnationStamp(), req.GetFencingToken(), req.GetReason(), r, err)
	if err != nil {
		return nil, err
	}
	out := &tmuxdv1.KillResponse{Target: r.Target}
	switch r.Outcome {
	case host.EndDone:
		out.Outcome = &tmuxdv1.KillResponse_Killed{Killed: &tmuxdv1.Killed{Already: r.Already}}
	case host.EndRefused:
		out.Outcome = &tmuxdv1.KillResponse_Refused{Refused: refusedEnd(r)}
	case host.EndRemains:
		out.Outcome = &tmuxdv1.KillResponse_Remains{Remains: remainsOf(r)}
	}
	return out, nil
}

// measureEnd records an end.
func (s *Server) measureEnd(ctx context.Context, action string, began time.Time, r host.EndResult, err error) {
	s.measure(ctx, action, began, r.Outcome, err)
	if err == nil && r.Outcome == host.EndRefused {
		s.metrics.Refused.Add(ctx, 1, action, reasonOf(endRefusalOf[r.Cause].String(), "REFUSAL_REASON_"))
	}
}

// logEnd says who had what ended, and why. An error is logged as well, beside the line that every failed call has: something may have been
// ended by then.
func (s *Server) logEnd(ctx context.Context, what string, item workitem.Ref, stamp string, token int64, why string, r host.EndResult, err error) {
	outcome := r.Outcome.String()
	if err != nil {
		outcome = "error: " + string(fault.ReasonOf(err))
	}
	s.log.LogAttrs(ctx, slog.LevelInfo, "an end was ordered", slog.String(obs.KeyAction, what), slog.String(obs.KeyWorkItem, item.String()),
		slog.String(obs.KeyTarget, item.Target()), slog.String(obs.KeyIncarnation, stamp), slog.Int64(obs.KeyToken, token),
		slog.String(obs.KeyPeer, caller(ctx)), slog.String(obs.KeyReason, oneLine(why)), slog.String(obs.KeyOutcome, outcome))
}

// caller is the address of whoever calls; empty on a socket.
func caller(ctx context.Context) string {
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil && p.Addr.Network() != "unix" {
		return p.Addr.String()
	}
	return ""
}

// oneLine keeps what a caller wrote to one line of printable characters.
func oneLine(s string) string {
	apart := func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }
	return strings.Join(strings.FieldsFunc(strings.ToValidUTF8(s[:min(len(s), maxReason)], ""), apart), " ")
}

func refusedEnd(r host.EndResult) *tmuxdv1.Refused {
	return &tmuxdv1.Refused{Reason: endRefusalOf[r.Cause], Detail: r.Detail}
}

func remainsOf(r host.EndResult) *tmuxdv1.Remains {
	out := &tmuxdv1.Remains{Detail: r.Detail}
	for _, pid := range r.Pids {
		out.Pids = append(out.Pids, int64(pid))
	}
	return out
}
