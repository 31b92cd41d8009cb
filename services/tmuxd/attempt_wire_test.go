package main

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/durationpb"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/task"
	"muxpost.dev/muxpost/internal/needs"
	"muxpost.dev/muxpost/internal/rpc"
	"muxpost.dev/muxpost/internal/rpc/rpctest"
	tmuxdv1 "muxpost.dev/muxpost/proto/gen/muxpost/tmuxd/v1"
	"muxpost.dev/muxpost/services/tmuxd/internal/attempt"
	"muxpost.dev/muxpost/services/tmuxd/internal/server"
)

// overTheWire serves the bench's runner as tmuxd does.
func (b *bench) overTheWire() tmuxdv1.TmuxdServiceClient {
	s := rpc.NewServer(rpc.Options{})
	tmuxdv1.RegisterTmuxdServiceServer(s, server.New(nil, b.Logger, server.Facts{}, b.tmux.Socket).WithAttempts(b.Runner))
	return tmuxdv1.NewTmuxdServiceClient(rpctest.Dial(b.t, rpctest.Serve(b.t, s), rpc.DialOptions{Name: "tmuxd"}))
}

func TestAttempts_OverTheWire(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	client := b.overTheWire()
	run := func(script string) *tmuxdv1.Attempt {
		t.Helper()
		res, err := client.RunTask(b.ctx(), &tmuxdv1.RunTaskRequest{AttemptId: uuid.NewString(), Harness: "sh", Directory: b.work, Prompt: script,
			FencingToken: b.token(), Limit: durationpb.New(time.Minute)})
		if err != nil || res.GetAlready() {
			t.Fatalf("%v, %v", res, err)
		}
		return res.GetAttempt()
	}
	watch, err := client.WatchAttempts(b.ctx(), &tmuxdv1.WatchAttemptsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if first, err := watch.Recv(); err != nil || first.GetCaughtUp() == nil {
		t.Fatalf("%v, %v", first, err)
	}
	long := run("echo to be seen; sleep 300")
	if long.GetRunning() == nil || long.GetSocketPath() != b.tmux.Socket(long.GetTarget()) || long.GetStartedAt() == nil ||
		long.GetIncarnation().GetPanePid() == 0 || long.GetLimit().AsDuration() != time.Minute {
		t.Errorf("%v", long)
	}
	b.until("the output shows", func() bool {
		got, err := client.GetAttempt(b.ctx(), &tmuxdv1.GetAttemptRequest{AttemptId: long.GetAttemptId(), Output: true})
		return err == nil && got.GetOutput() == "to be seen"
	})
	stop, err := client.StopAttempt(b.ctx(), &tmuxdv1.StopAttemptRequest{AttemptId: long.GetAttemptId(), FencingToken: b.token(), Reason: "why",
		Grace: durationpb.New(time.Second)})
	if err != nil || stop.GetAlready() || stop.GetAttempt().GetStopped().GetReason() != "why" || stop.GetAttempt().GetStopped().GetExit().GetSignal() != 15 {
		t.Errorf("%v, %v", stop, err)
	}
	ends := map[string]*tmuxdv1.Attempt{}
	good, seven, killed := run("exit 0").GetAttemptId(), run("exit 7").GetAttemptId(), run("kill -9 $$").GetAttemptId()
	told := map[string]int{}
	cursor := ""
	for len(ends) < 4 {
		step, err := watch.Recv()
		if err != nil {
			t.Fatal(err)
		}
		cursor = step.GetCursor()
		if a := step.GetAttempt(); a.GetRunning() == nil && a.GetUnknown() == nil && a != nil {
			ends[a.GetAttemptId()] = a
			told[a.GetAttemptId()]++
		}
	}
	if ends[good].GetSucceeded() == nil || ends[seven].GetFailed().GetExit().GetCode() != 7 || ends[killed].GetFailed().GetExit().GetSignal() != 9 ||
		ends[long.GetAttemptId()].GetStopped() == nil || ends[seven].GetEndedAt() == nil || ends[seven].GetDetail() == "" {
		t.Errorf("%v", ends)
	}
	for id := range ends {
		b.freed(id)
		if told[id] != 1 {
			t.Errorf("%s is told %d times to have ended", id, told[id])
		}
	}
	// From where it was left, nothing is told again.
	again, err := client.WatchAttempts(b.ctx(), &tmuxdv1.WatchAttemptsRequest{Cursor: cursor})
	if err != nil {
		t.Fatal(err)
	}
	if step, err := again.Recv(); err != nil || step.GetCaughtUp() == nil {
		t.Errorf("%v, %v", step, err)
	}
	for name, call := range map[string]func() error{
		"no such attempt": func() error {
			_, err := client.GetAttempt(b.ctx(), &tmuxdv1.GetAttemptRequest{AttemptId: uuid.NewString()})
			return err
		},
		"a bad duration": func() error {
			_, err := client.RunTask(b.ctx(), &tmuxdv1.RunTaskRequest{AttemptId: uuid.NewString(), Limit: &durationpb.Duration{Seconds: -1}})
			return err
		},
	} {
		if err := call(); !errors.Is(err, fault.NotFound) && !errors.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestFollow_TellsWhatIsKeptThenWhatChanges(t *testing.T) {
	t.Parallel()
	var looks atomic.Int64
	b := newBench(t, spied(&watchedDisk{called: func(string) { looks.Add(1) }}, &watchedTmux{}))
	done := b.ended("exit 0", task.Succeeded)
	b.freed(done.ID)
	open := b.launch("while [ ! -e go ]; do sleep 0.05; done; exit 0")
	b.restart()
	b.becomes(open.ID, task.Running)
	enough := errors.New("enough")
	var first []string
	var cursor string
	err := b.Follow(b.ctx(), "", func(s attempt.Step) error {
		cursor = s.Cursor
		if s.CaughtUp {
			return enough
		}
		first = append(first, s.Value.ID)
		return nil
	})
	if !errors.Is(err, enough) || len(first) != 2 {
		t.Fatalf("%v, %v", first, err)
	}
	seen := looks.Load()
	b.until("it is looked at many times", func() bool { return looks.Load() > seen+20 })
	if err := os.WriteFile(b.file("go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b.becomes(open.ID, task.Succeeded)
	var later []attempt.Step
	err = b.Follow(b.ctx(), cursor, func(s attempt.Step) error {
		if s.CaughtUp {
			return enough
		}
		later = append(later, s)
		return nil
	})
	if !errors.Is(err, enough) || len(later) == 0 || later[len(later)-1].Value == nil || later[len(later)-1].Value.State != task.Succeeded {
		t.Errorf("%+v, %v", later, err)
	}
	for _, step := range later {
		if step.Missed > 2 { // a look that sees nothing new is no change
			t.Errorf("%d changes of one attempt", step.Missed)
		}
	}
	life, _, _ := strings.Cut(cursor, ".")
	for _, bad := range []string{"nonsense", "x.-1", life + ".999"} {
		if err := b.Follow(b.ctx(), bad, func(attempt.Step) error { return nil }); !errors.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	ctx, cancel := context.WithCancel(b.ctx())
	cancel()
	if err := b.Follow(ctx, "another-life.7", func(attempt.Step) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

func TestT136_T138_T142_NoShellOfAPersonAndNothingOfTmuxIsInvolved(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"/usr/sbin/nologin", "/no/such/shell", needs.Program(t, "fish"), needs.Program(t, "tcsh"), needs.Program(t, "zsh"), "/bin/dash",
		"/bin/false"} {
		b := newBench(t, func(b *bench) {
			b.tmuxEnv = []string{"PATH=/nowhere", "SHELL=" + shell, "ENV=/no/rc", "FROM_TMUX=1"}
			b.env["SHELL"] = "/bin/of-the-request"
		})
		a := b.launch("env > environment; echo done > done; exit 0")
		b.becomes(a.ID, task.Succeeded)
		b.freed(a.ID)
		env := b.content("environment")
		if strings.Contains(env, "FROM_TMUX") || strings.Contains(env, "TMUX=") || strings.Contains(env, "/nowhere") || !strings.Contains(env, "SHELL=/bin/of-the-request\n") {
			t.Errorf("%s: %s", shell, env)
		}
	}
}

func TestT73_AMuteServerHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	mute := b.launch("sleep 300")
	if err := syscall.Kill(mute.Pane.Server.Pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	b.ended("exit 0", task.Succeeded)
	// A stop reaches the processes without tmux.
	begun := time.Now()
	if got, _ := b.stopped(mute.ID); got.State != task.Stopped {
		t.Errorf("%+v after %v", got, time.Since(begun))
	}
	if err := syscall.Kill(mute.Pane.Server.Pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	b.freed(mute.ID)
}
