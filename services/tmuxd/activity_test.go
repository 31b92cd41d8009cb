package main

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/services/tmuxd/internal/host"
)

func TestActivity_IsWhatTheScreenShows(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]string{"FAKEAGENT_READY_AFTER": "3s", "FAKEAGENT_TURN": "2s"})
	r.watched(time.Hour)
	does := func(want host.Activity, what string) (detail string) {
		t.Helper()
		r.until(what, func() bool {
			var got host.Activity
			d := r.Activity(r.ctx(), r.item, true)
			got, detail = d.Activity, d.Detail
			return got == want
		})
		return detail
	}
	does(host.ActivityUnknown, "nothing is there")
	r.started("", "")
	does(host.ActivityStarting, "it starts")
	does(host.ActivityIdle, "it waits for a message")
	r.until("it takes a message", func() bool { return r.goesIn(d1, "hello there") })
	does(host.ActivityWorking, "it works")
	does(host.ActivityIdle, "it is done")
	r.person("send-keys", "-t", "%0", "half a draft")
	does(host.ActivityDraft, "a person has begun to write")
	r.person("send-keys", "-t", "%0", "C-u")
	does(host.ActivityIdle, "he has thought better of it")
	r.signal(r.agentPid(), syscall.SIGUSR1)
	if detail := does(host.ActivityApproval, "a dialog waits"); !strings.Contains(detail, "1. Yes") && !strings.Contains(detail, "Action Required") {
		t.Errorf("detail %q", detail)
	}
	r.signal(r.agentPid(), syscall.SIGKILL)
	r.until("it has died", func() bool { return r.state().State == session.Dead })
	does(host.ActivityUnknown, "nobody is there")
}
