package tmux

import (
	"context"
	"errors"
	"syscall"
	"testing"

	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/internal/launch"
	"muxpost.dev/muxpost/services/tmuxd/internal/host"
)

// What may start a server goes to the launcher and nothing else does; where there is none, nothing is started in its place.
func TestCreate_ALauncherStartsTheServer(t *testing.T) {
	r := newRig(t, "exec sleep 600")
	var asked []launch.Command
	answers := true
	r.launch = func(ctx context.Context, c launch.Command) (launch.Result, error) {
		asked = append(asked, c)
		if !answers {
			return launch.Result{}, errors.New("nobody is there")
		}
		return launch.Run(ctx, c)
	}
	if _, err := r.Observe(r.ctx(), target); err != nil || len(asked) != 0 {
		t.Fatalf("a look: %v, asked %v", err, asked)
	}
	s := r.session("exec sleep 600")
	s.Target = "loop-octo-widget-8"
	made, err := r.Create(r.ctx(), s)
	if err != nil || len(asked) != 1 || r.Dial(s.Target) != session.Answered {
		t.Fatalf("made %+v, %v, asked %v", made, err, asked)
	}
	t.Cleanup(func() { _ = syscall.Kill(made.Server.Pid, syscall.SIGTERM) })
	answers, s.Target = false, "loop-octo-widget-9"
	if _, err := r.Create(r.ctx(), s); !errors.Is(err, host.ErrNoAnswer) || r.Dial(s.Target) != session.NoServer {
		t.Errorf("without a launcher: %v, and the server %v", err, r.Dial(s.Target))
	}
}
