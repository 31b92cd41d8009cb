package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/task"
	"muxpost.dev/muxpost/internal/settings"
	"muxpost.dev/muxpost/services/tmuxd/internal/attempt"
)

func TestStop_WhatIsStoppedBeforeItIsAskedForNeverBegins(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	req := b.request("echo ran > ran")
	if _, _, err := b.Stop(b.ctx(), attempt.StopRequest{ID: req.ID, Token: b.token()}); !errors.Is(err, fault.NotFound) {
		t.Fatalf("a stop that does not say so: %v", err)
	}
	stop := attempt.StopRequest{ID: req.ID, Token: b.token(), Reason: "its run is over", Never: true}
	for range 2 {
		a, already, err := b.Stop(b.ctx(), stop)
		if err != nil || !already || a.State != task.Stopped || !a.StartedAt.IsZero() {
			t.Fatalf("%+v, %v, %v", a, already, err)
		}
	}
	refused := func() {
		t.Helper()
		req.Token = b.token()
		if _, _, err := b.Launch(b.ctx(), req); !errors.Is(err, fault.AlreadyExists) {
			t.Errorf("the launch that came late: %v", err)
		}
	}
	refused()
	b.restart()
	refused()
	if a := b.get(req.ID); a.State != task.Stopped || !a.Freed {
		t.Errorf("%+v", a)
	}
	if _, _, err := b.Stop(b.ctx(), attempt.StopRequest{ID: "not-one", Token: b.token(), Never: true}); !errors.Is(err, fault.Invalid) {
		t.Errorf("%v", err)
	}
	if _, _, err := b.Stop(b.ctx(), attempt.StopRequest{ID: uuid.NewString(), Never: true}); !errors.Is(err, fault.Invalid) {
		t.Errorf("without a token: %v", err)
	}
}

func TestStop_OneThatRunsIsStoppedWhateverIsSaidOfTheUnknown(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	a := b.launch("sleep 300")
	got, _, err := b.Stop(b.ctx(), attempt.StopRequest{ID: a.ID, Token: b.token(), Grace: time.Second, Never: true})
	if err != nil || got.State != task.Stopped || got.StartedAt.IsZero() {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestLaunch_AChecksExitIsAVerdictAndNothingElseIs(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(b *bench) {
		b.entries["good"] = settings.Harness{Binary: "/bin/true", Task: []string{"--"}, Check: true}
	})
	req := b.request("look")
	req.Harness, req.Check = "good", true
	if _, _, err := b.Launch(b.ctx(), req); err != nil {
		t.Fatal(err)
	}
	b.becomes(req.ID, task.Succeeded)
	for _, row := range []struct {
		harness string
		check   bool
	}{{"sh", true}, {"good", false}} {
		req := b.request("look")
		req.Harness, req.Check = row.harness, row.check
		if _, _, err := b.Launch(b.ctx(), req); !errors.Is(err, fault.Invalid) {
			t.Errorf("%+v: %v", row, err)
		}
	}
}

func TestT78_ProgressIsAFactOfItsOwn(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	busy := b.launch("while :; do :; done", func(r *attempt.LaunchRequest) { r.StallLimit = 5 * time.Second })
	b.until("progress is told", func() bool { return b.get(busy.ID).ProgressAt.After(busy.CreatedAt) })
	if a := b.get(b.launch("sleep 300").ID); !a.ProgressAt.IsZero() {
		t.Errorf("nobody watches that: %v", a.ProgressAt)
	}
}

func TestT17_APersonsConfigurationOfTmuxChangesNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(b *bench) {
		conf := "set -g remain-on-exit off\nset -g destroy-unattached on\nset -g exit-unattached on\nset -g default-command 'exit 9'\nset -g default-shell /bin/false\n"
		if err := os.WriteFile(filepath.Join(b.dir, ".tmux.conf"), []byte(conf), 0o600); err != nil {
			t.Fatal(err)
		}
		b.tmuxEnv = append(b.tmuxEnv, "HOME="+b.dir)
	})
	b.becomes(b.launch("exit 0").ID, task.Succeeded)
	if a := b.becomes(b.launch("echo said; exit 7").ID, task.Failed); a.Outcome.End.N != 7 {
		t.Errorf("%+v", a.Outcome)
	} else if out := b.output(a.ID); !strings.Contains(out, "said") {
		t.Errorf("%q", out)
	}
	if a := b.becomes(b.launch("kill -9 $$").ID, task.Failed); a.Outcome.End.How != task.BySignal {
		t.Errorf("%+v", a.Outcome)
	}
}
