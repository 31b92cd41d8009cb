package server

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/task"
	"muxpost.dev/muxpost/internal/obs"
	tmuxdv1 "muxpost.dev/muxpost/proto/gen/muxpost/tmuxd/v1"
	"muxpost.dev/muxpost/services/tmuxd/internal/attempt"
	"muxpost.dev/muxpost/services/tmuxd/internal/host"
)

// WithAttempts has the server answer for attempts too.
func (s *Server) WithAttempts(r *attempt.Runner) *Server {
	s.attempts = r
	return s
}

// RunTask launches one task.
func (s *Server) RunTask(ctx context.Context, req *tmuxdv1.RunTaskRequest) (*tmuxdv1.RunTaskResponse, error) {
	in := attempt.LaunchRequest{ID: req.GetAttemptId(), Harness: req.GetHarness(), Directory: req.GetDirectory(), Prompt: req.GetPrompt(),
		Token: req.GetFencingToken(), Check: req.GetCheck()}
	if t := req.GetTree(); t != nil {
		in.Tree = &attempt.Tree{Repository: t.GetRepository(), Branch: t.GetBranch(), Needs: t.GetNeeds()}
	}
	for _, d := range []struct {
		name string
		in   *durationpb.Duration
		out  *time.Duration
	}{{"limit", req.GetLimit(), &in.Limit}, {"stall_limit", req.GetStallLimit(), &in.StallLimit}, {"grace", req.GetGrace(), &in.Grace}} {
		var err error
		if *d.out, err = duration(d.name, d.in); err != nil {
			return nil, err
		}
	}
	a, already, err := s.attempts.Launch(ctx, in)
	if err != nil {
		return nil, err
	}
	s.log.InfoContext(ctx, "run task", obs.KeyAttemptID, a.ID, obs.KeyTarget, a.Target, obs.KeyHarness, a.Harness, obs.KeyToken, in.Token,
		obs.KeyState, a.State.String(), obs.KeyReason, string(a.Reason))
	return &tmuxdv1.RunTaskResponse{Attempt: s.attempt(a), Already: already}, nil
}

// GetAttempt says what is known of an attempt.
func (s *Server) GetAttempt(ctx context.Context, req *tmuxdv1.GetAttemptRequest) (*tmuxdv1.GetAttemptResponse, error) {
	a, output, err := s.attempts.Get(ctx, req.GetAttemptId(), req.GetOutput())
	if err != nil {
		return nil, err
	}
	return &tmuxdv1.GetAttemptResponse{Attempt: s.attempt(a), Output: output, OutputCut: a.Cut}, nil
}

// StopAttempt ends an attempt.
func (s *Server) StopAttempt(ctx context.Context, req *tmuxdv1.StopAttemptRequest) (*tmuxdv1.StopAttemptResponse, error) {
	grace, err := duration("grace", req.GetGrace())
	if err != nil {
		return nil, err
	}
	timeout, err := duration("timeout", req.GetTimeout())
	if err != nil {
		return nil, err
	}
	a, already, err := s.attempts.Stop(ctx, attempt.StopRequest{ID: req.GetAttemptId(), Token: req.GetFencingToken(), Grace: grace,
		Reason: req.GetReason(), Timeout: timeout, Never: req.GetNeverBegin()})
	if err != nil {
		return nil, err
	}
	return &tmuxdv1.StopAttemptResponse{Attempt: s.attempt(a), Already: already}, nil
}

// WatchAttempts streams what becomes of the attempts.
func (s *Server) WatchAttempts(req *tmuxdv1.WatchAttemptsRequest, stream tmuxdv1.TmuxdService_WatchAttemptsServer) error {
	return s.attempts.Follow(stream.Context(), req.GetCursor(), func(step attempt.Step) error {
		out := &tmuxdv1.WatchAttemptsResponse{Cursor: step.Cursor}
		switch {
		case step.Value != nil:
			out.Step = &tmuxdv1.WatchAttemptsResponse_Attempt{Attempt: s.attempt(*step.Value)}
		case step.CaughtUp:
			out.Step = &tmuxdv1.WatchAttemptsResponse_CaughtUp{CaughtUp: &tmuxdv1.CaughtUp{}}
		default:
			out.Step = &tmuxdv1.WatchAttemptsResponse_Missed{Missed: &tmuxdv1.Missed{Changes: step.Missed}}
		}
		return stream.Send(out)
	})
}

// duration reads a length of time of zero or more.
func duration(name string, d *durationpb.Duration) (time.Duration, error) {
	if d == nil {
		return 0, nil
	}
	if d.CheckValid() != nil || d.AsDuration() < 0 {
		return 0, fault.Newf(fault.Invalid, fault.ReasonBadArgument, "%s is not a duration of zero or more", name)
	}
	return d.AsDuration(), nil
}

// attempt is an attempt on the wire.
func (s *Server) attempt(a attempt.Attempt) *tmuxdv1.Attempt {
	out := &tmuxdv1.Attempt{AttemptId: a.ID, Target: a.Target, Harness: a.Harness, Directory: a.Directory, CreatedAt: stamp(a.CreatedAt),
		StartedAt: stamp(a.StartedAt), ProgressAt: stamp(a.ProgressAt), Head: a.Head, Uncommitted: int32(a.Uncommitted), Limit: durationpb.New(a.Limit), Incarnation: incarnationOf(host.Incarnation{Stamp: a.Stamp,
			SessionID: a.Pane.SessionID, PaneID: a.Pane.ID, PanePid: a.Pane.Wrapper.Pid,
			Server: host.Server{Pid: a.Pane.Server.Pid, Started: a.Pane.ServerStarted}})}
	if !a.Freed || a.Outcome != nil && a.Outcome.Retained {
		out.SocketPath = s.socket(a.Target)
	}
	if o := a.Outcome; o != nil {
		out.EndedAt, out.Detail = stamp(o.EndedAt), o.Detail
		for _, pid := range o.Remains {
			out.Remains = append(out.Remains, int64(pid))
		}
	}
	setOutcome(out, a)
	return out
}

// setOutcome says what became of an attempt.
func setOutcome(out *tmuxdv1.Attempt, a attempt.Attempt) {
	var exit *tmuxdv1.Exit
	secondHand := false
	if o := a.Outcome; o != nil {
		exit, secondHand = endOf(o), o.SecondHand
	}
	switch a.State {
	case task.Running:
		out.Outcome = &tmuxdv1.Attempt_Running{Running: &tmuxdv1.AttemptRunning{Ending: a.Order != nil}}
	case task.Unknown:
		out.Outcome = &tmuxdv1.Attempt_Unknown{Unknown: &tmuxdv1.AttemptUnknown{Reason: string(a.Reason), Since: stamp(a.Since)}}
	case task.Succeeded:
		out.Outcome = &tmuxdv1.Attempt_Succeeded{Succeeded: &tmuxdv1.AttemptSucceeded{}}
	case task.Failed:
		out.Outcome = &tmuxdv1.Attempt_Failed{Failed: &tmuxdv1.AttemptFailed{Exit: exit, Reason: string(a.Reason), SecondHand: secondHand}}
	case task.LaunchFailed:
		out.Outcome = &tmuxdv1.Attempt_LaunchFailed{LaunchFailed: &tmuxdv1.AttemptLaunchFailed{Exit: exit, SecondHand: secondHand}}
	case task.Stopped:
		stopped := &tmuxdv1.AttemptStopped{Exit: exit}
		if a.Order != nil {
			stopped.Reason = a.Order.Reason
		}
		out.Outcome = &tmuxdv1.Attempt_Stopped{Stopped: stopped}
	case task.TimedOut:
		out.Outcome = &tmuxdv1.Attempt_TimedOut{TimedOut: &tmuxdv1.AttemptTimedOut{Exit: exit}}
	case task.Stalled:
		out.Outcome = &tmuxdv1.Attempt_Stalled{Stalled: &tmuxdv1.AttemptStalled{Exit: exit}}
	case task.Crashed:
		out.Outcome = &tmuxdv1.Attempt_Crashed{Crashed: &tmuxdv1.AttemptCrashed{Reason: string(a.Reason)}}
	}
}

// endOf is how a command ended; nil when nobody says how.
func endOf(o *attempt.Outcome) *tmuxdv1.Exit {
	out := &tmuxdv1.Exit{At: stamp(o.EndedAt)}
	switch o.End.How {
	case task.ByCode:
		out.End = &tmuxdv1.Exit_Code{Code: int32(o.End.N)}
	case task.BySignal:
		out.End = &tmuxdv1.Exit_Signal{Signal: int32(o.End.N)}
	case task.Unsaid:
		return nil
	}
	return out
}

// stamp is a time on the wire; nil when it is not known.
func stamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}
