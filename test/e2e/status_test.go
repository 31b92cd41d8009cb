package e2e

import (
	"strings"
	"syscall"
	"testing"
	"time"

	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	pollerv1 "muxpost.dev/muxpost/proto/gen/muxpost/poller/v1"
)

// recorded is the session as the dispatcher has it, without asking the host.
func (w *world) recorded() *dispatcherv1.Session {
	w.t.Helper()
	all, err := w.Dispatcher.ListSessions(w.ctx, &dispatcherv1.ListSessionsRequest{SkipProbe: true})
	if err != nil || len(all.GetSessions()) != 1 {
		w.t.Fatalf("%v, %v", all, err)
	}
	return all.GetSessions()[0]
}

func TestStatus_WhatAnAgentWaitsForIsListedAndStaysKnownWhileItsHostIsAway(t *testing.T) {
	t.Parallel()
	w := start(t, issue(), nil)
	w.delivered(0)
	w.until("it is known to wait for a message", func() bool {
		return w.recorded().GetActivity() == dispatcherv1.SessionActivity_SESSION_ACTIVITY_IDLE
	})
	agent, err := w.AgentPid(w.ctx, item)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(agent, syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	asking := dispatcherv1.SessionActivity_SESSION_ACTIVITY_AWAITING_APPROVAL
	w.until("it is known to wait for an approval", func() bool { return w.recorded().GetActivity() == asking })
	if s := w.recorded(); s.GetActivitySince() == nil || s.GetActivityAsOf() != nil {
		t.Errorf("%v", s)
	}
	out, err := w.Run(w.ctx, "attention")
	if err == nil || !strings.Contains(out, "approval") || !strings.Contains(out, "since") || !strings.Contains(out, item) {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := w.Run(w.ctx, "sessions"); err != nil || !strings.Contains(out, "awaiting_approval ") {
		t.Errorf("%v\n%s", err, out)
	}
	if err := syscall.Kill(w.pid("tmuxd"), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	w.until("the host is known to be away", func() bool { return w.recorded().GetActivityAsOf() != nil })
	if out, err := w.Run(w.ctx, "sessions"); err != nil || !strings.Contains(out, "awaiting_approval (as of ") {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := w.Run(w.ctx, "up"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	w.until("the host is back", func() bool { s := w.recorded(); return s.GetActivity() == asking && s.GetActivityAsOf() == nil })
}

// An agent that does not start at a limit of use waits for long, costs no try and no conversation, and its own ends do not hurry it.
func TestStatus_ALimitOfUseIsWaitedOut(t *testing.T) {
	t.Parallel()
	w := start(t, issue(), func(w *world) {
		w.Env = append(w.Env, "FAKEAGENT_EXIT_AFTER=300ms", "FAKEAGENT_EXIT_CODE=1", "FAKEAGENT_EXIT_MESSAGE=■ You have hit your usage limit")
	})
	var row *pollerv1.LedgerEntry
	w.until("it is told to be a limit", func() bool {
		rows, err := w.Events(w.ctx, item)
		if err != nil {
			t.Fatal(err)
		}
		if len(rows) == 0 {
			return false
		}
		row = rows[0]
		return row.GetReason() == "usage_limit"
	})
	if row.GetState() != pollerv1.LedgerState_LEDGER_STATE_PENDING || row.GetTries() != 0 || row.GetNextLook().AsTime().Sub(row.GetUpdateTime().AsTime()) < 5*time.Minute ||
		!strings.Contains(row.GetDetail(), "You have hit your usage limit") {
		t.Errorf("%v", row)
	}
	if out, err := w.Run(w.ctx, "explain", row.GetDeliveryId()); err != nil || !strings.Contains(out, "limit of use") {
		t.Errorf("%v\n%s", err, out)
	}
}

// Nobody is logged in: the event is dropped with what to do, and goes in once a person has done it and says so.
func TestStatus_AMissingLoginIsToldAndTheEventKeptForAPerson(t *testing.T) {
	t.Parallel()
	w := start(t, issue(), func(w *world) {
		w.Env = append(w.Env, "FAKEAGENT_EXIT_AFTER=300ms", "FAKEAGENT_EXIT_CODE=1", "FAKEAGENT_EXIT_MESSAGE=■ You are not logged in")
	})
	row, err := w.WaitEvent(w.ctx, item, 0)
	if err != nil || row.GetState() != pollerv1.LedgerState_LEDGER_STATE_DROPPED || row.GetReason() != "not_logged_in" {
		t.Fatalf("%v, %v", row, err)
	}
	if out, err := w.Run(w.ctx, "attention"); err == nil || !strings.Contains(out, "log in with it on the host") {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := w.Run(w.ctx, "down"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	w.Env = w.Env[:len(w.Env)-3]
	if out, err := w.Run(w.ctx, "up"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	// The poller may not have found the dispatcher again yet.
	w.until("it is asked for again", func() bool { _, err := w.Run(w.ctx, "retry", row.GetDeliveryId()); return err == nil })
	w.until("it goes in", func() bool {
		rows, err := w.Events(w.ctx, item)
		return err == nil && rows[0].GetState() == pollerv1.LedgerState_LEDGER_STATE_DELIVERED
	})
}
