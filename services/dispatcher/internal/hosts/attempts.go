package hosts

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/place"
	rules "muxpost.dev/muxpost/core/team"
	"muxpost.dev/muxpost/internal/rpc"
	tmuxdv1 "muxpost.dev/muxpost/proto/gen/muxpost/tmuxd/v1"
	"muxpost.dev/muxpost/services/dispatcher/internal/hints"
	"muxpost.dev/muxpost/services/dispatcher/internal/team"
)

const (
	// launchTime is how long a host may take to answer for a launch, askTime for what it knows, and stopTime for a stop, which it waits for.
	launchTime = 15 * time.Second
	askTime    = 5 * time.Second
	stopTime   = 20 * time.Second
	// showTime is how long it may take to answer with what an attempt showed: the last of that is waited for.
	showTime = 12 * time.Second
)

var _ team.Hosts = (*Fleet)(nil)

// PlaceTask chooses a host for an attempt; empty with the reason when there is none now.
func (f *Fleet) PlaceTask(p team.Place) (host, why string) {
	var all, rest []place.Host
	for _, m := range f.all() {
		known := m.forTask(p)
		if p.Only != "" && p.Only != known.Name {
			continue
		}
		if rest = append(rest, known); !slices.Contains(p.Avoid, known.Name) {
			all = append(all, known)
		}
	}
	choice := place.Choose(p.Labels, all)
	if choice.Host == "" {
		choice = place.Choose(p.Labels, rest)
	}
	if choice.Host != "" {
		return choice.Host, ""
	}
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(choice.Left)) {
		lines = append(lines, name+": "+string(choice.Left[name]))
	}
	if len(lines) == 0 && p.Only != "" {
		return "", "the working trees of the run are on " + p.Only + ", which is not known"
	}
	if len(lines) == 0 {
		return "", "there is no host"
	}
	return "", strings.Join(lines, ", ")
}

// forTask is what placement has to know of the host for an attempt: of those that can run it, the one where fewest of the run are.
func (h *Host) forTask(p team.Place) place.Host {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := place.Host{Name: h.name, Labels: h.info.GetLabels(), Reached: h.reached && h.breaker.open().IsZero(), Draining: h.record.Draining, Live: p.Busy[h.name]}
	for _, harness := range h.info.GetHarnesses() {
		out.Starts = out.Starts || harness.GetName() == p.Harness && harness.GetBinary() != ""
	}
	return out
}

// RunTask asks a host for an attempt.
func (f *Fleet) RunTask(ctx context.Context, host string, l team.Launch) team.Answer {
	return f.ask(ctx, host, launchTime, func(ctx context.Context, c tmuxdv1.TmuxdServiceClient) (*tmuxdv1.Attempt, shown, error) {
		request := &tmuxdv1.RunTaskRequest{AttemptId: l.ID, Harness: l.Harness, Directory: l.Directory, Prompt: l.Prompt, FencingToken: l.Token,
			Limit: durationpb.New(l.Limit), Check: l.Check}
		if l.Stall > 0 {
			request.StallLimit = durationpb.New(l.Stall)
		}
		if l.Branch != "" {
			request.Tree = &tmuxdv1.TaskTree{Repository: l.Repository, Branch: l.Branch, Needs: l.Needs}
		}
		out, err := c.RunTask(ctx, request)
		return out.GetAttempt(), nil, err
	})
}

// Attempt asks for an attempt, with output for what it showed last.
func (f *Fleet) Attempt(ctx context.Context, host, id string, output bool) team.Answer {
	patience := askTime
	if output {
		patience = showTime
	}
	return f.ask(ctx, host, patience, func(ctx context.Context, c tmuxdv1.TmuxdServiceClient) (*tmuxdv1.Attempt, shown, error) {
		out, err := c.GetAttempt(ctx, &tmuxdv1.GetAttemptRequest{AttemptId: id, Output: output})
		return out.GetAttempt(), out, err
	})
}

// StopAttempt ends an attempt, or sees to it that it never begins.
func (f *Fleet) StopAttempt(ctx context.Context, host, id string, token int64, reason string) team.Answer {
	return f.ask(ctx, host, stopTime, func(ctx context.Context, c tmuxdv1.TmuxdServiceClient) (*tmuxdv1.Attempt, shown, error) {
		out, err := c.StopAttempt(ctx, &tmuxdv1.StopAttemptRequest{AttemptId: id, FencingToken: token, Reason: reason, NeverBegin: true,
			Timeout: durationpb.New(stopTime - 2*time.Second)})
		return out.GetAttempt(), nil, err
	})
}

// shown is what a host says that an attempt showed; nil where it was not asked for that.
type shown interface {
	GetOutput() string
	GetOutputCut() bool
}

// ask makes one call at a host, and says what its answer is.
func (f *Fleet) ask(ctx context.Context, host string, patience time.Duration,
	call func(context.Context, tmuxdv1.TmuxdServiceClient) (*tmuxdv1.Attempt, shown, error)) team.Answer {
	h, ok := f.on(host)
	if !ok {
		return team.Answer{Kind: team.Silent, Detail: "this dispatcher does not know the host"}
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	end, err := h.begin(ctx)
	if err != nil {
		return team.Answer{Kind: team.Silent, Detail: words(err)}
	}
	a, output, err := call(ctx, h.client)
	if err = end(err); err != nil {
		return turnedDown(err)
	}
	out := answerOf(a)
	if output != nil {
		out.Output, out.Cut = output.GetOutput(), output.GetOutputCut()
	}
	return out
}

// turnedDown says what an error is: who could not say anything has decided nothing.
func turnedDown(err error) team.Answer {
	out := team.Answer{Kind: team.Silent, Reason: string(fault.ReasonOf(err)), Detail: words(err)}
	switch kind := fault.KindOf(err); {
	case kind == fault.Fenced:
		out.Kind = team.Fenced
	case kind == fault.Throttled && fault.ReasonOf(err) == fault.ReasonNoCapacity:
		out.Kind = team.Full
	case fault.ReasonOf(err) == fault.ReasonAttemptNotFound:
		out.Kind = team.Unknown
	case kind == fault.Invalid, kind == fault.AlreadyExists, kind == fault.Conflict, kind == fault.NotFound:
		out.Kind = team.Refused
	}
	return out
}

// answerOf reads what a host says of an attempt.
func answerOf(a *tmuxdv1.Attempt) team.Answer {
	out := team.Answer{Kind: team.Done, Detail: plain(a.GetDetail()), EndedAt: timeOf(a.GetEndedAt()), Limit: a.GetLimit().AsDuration(), Head: plain(a.GetHead()), Uncommitted: int(a.GetUncommitted()),
		Sight: team.Sight{PaneID: plain(a.GetIncarnation().GetPaneId()), Target: plain(a.GetTarget()), SocketPath: plain(a.GetSocketPath()),
			StartedAt: timeOf(a.GetStartedAt()), ProgressAt: timeOf(a.GetProgressAt())}}
	switch o := a.GetOutcome().(type) {
	case *tmuxdv1.Attempt_Running:
		out.Kind, out.Sight.Alive = team.Going, true
	case *tmuxdv1.Attempt_Succeeded:
		code := 0
		out.Result, out.Code = rules.Succeeded, &code
	case *tmuxdv1.Attempt_Failed:
		out.Result, out.Reason, out.SecondHand = rules.RanAndFailed, plain(o.Failed.GetReason()), o.Failed.GetSecondHand()
		exit(&out, o.Failed.GetExit())
	case *tmuxdv1.Attempt_LaunchFailed:
		out.Result, out.Reason, out.SecondHand = rules.LaunchFailed, "not_launched", o.LaunchFailed.GetSecondHand()
		exit(&out, o.LaunchFailed.GetExit())
	case *tmuxdv1.Attempt_Stopped:
		out.Result, out.Reason = rules.WasStopped, "stopped"
		exit(&out, o.Stopped.GetExit())
	case *tmuxdv1.Attempt_TimedOut:
		out.Result, out.Reason = rules.TimedOut, "time_limit"
		exit(&out, o.TimedOut.GetExit())
	case *tmuxdv1.Attempt_Stalled:
		out.Result, out.Reason = rules.Stalled, "stall"
		exit(&out, o.Stalled.GetExit())
	case *tmuxdv1.Attempt_Crashed:
		out.Result, out.Reason = rules.Crashed, plain(o.Crashed.GetReason())
	default:
		out.Kind = team.Unclear
	}
	return out
}

// exit reads how a command ended, as far as that is known.
func exit(out *team.Answer, e *tmuxdv1.Exit) {
	switch end := e.GetEnd().(type) {
	case *tmuxdv1.Exit_Code:
		n := int(end.Code)
		out.Code = &n
	case *tmuxdv1.Exit_Signal:
		n := int(end.Signal)
		out.Signal = &n
	}
}

// FollowAttempts tells the id of each attempt that changed on the host, until ctx ends, and hints.Any when the host came back. Nothing depends on
// it. It returns nil.
func (h *Host) FollowAttempts(ctx context.Context, tell func(id string)) error {
	rpc.Follow(ctx, h.config.Logger, func(ctx context.Context) error {
		stream, err := h.client.WatchAttempts(ctx, &tmuxdv1.WatchAttemptsRequest{}, grpc.WaitForReady(true))
		if err != nil {
			return err
		}
		behind := true
		for {
			step, err := stream.Recv()
			if err != nil {
				return err
			}
			switch s := step.GetStep().(type) {
			case *tmuxdv1.WatchAttemptsResponse_Attempt:
				if !behind {
					tell(s.Attempt.GetAttemptId())
				}
			case *tmuxdv1.WatchAttemptsResponse_CaughtUp:
				behind = false
				tell(hints.Any)
			case *tmuxdv1.WatchAttemptsResponse_Missed:
				tell(hints.Any)
			}
		}
	})
	return nil
}
