package main

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/obs"
	tmuxdv1 "muxpost.dev/muxpost/proto/gen/muxpost/tmuxd/v1"
)

func TestEnd_OverTheWireWithWhoAndWhy(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	of, _ := r.running(immune)
	log := r.logged()
	client, item := r.overTheWire(), "github:Octo/Widget#7"
	refused, err := client.Kill(r.ctx(), &tmuxdv1.KillRequest{WorkItem: item, IncarnationStamp: of.Stamp, FencingToken: r.token()})
	if err != nil || refused.GetRefused().GetReason() != tmuxdv1.RefusalReason_REFUSAL_REASON_LIVE || refused.GetRefused().GetDetail() == "" {
		t.Errorf("%v, %v", refused, err)
	}
	ended, err := client.Terminate(r.ctx(), &tmuxdv1.TerminateRequest{WorkItem: item, IncarnationStamp: of.Stamp, FencingToken: r.token(),
		Grace: durationpb.New(300 * time.Millisecond), Reason: "alice:\x1b[31m it\nruns wild"})
	got := ended.GetTerminated()
	if err != nil || got.GetExit().GetSignal() != 9 || got.GetAlready() || !got.GetKilled() || got.GetWholeTreeProven() != r.grouped(of.Stamp) ||
		ended.GetTarget() != r.item.Target() || got.GetExit().GetAt() == nil {
		t.Errorf("%v, %v", ended, err)
	}
	killed, err := client.Kill(r.ctx(), &tmuxdv1.KillRequest{WorkItem: item, IncarnationStamp: of.Stamp, FencingToken: r.token(), Reason: "alice: free it"})
	if err != nil || killed.GetKilled() == nil || killed.GetKilled().GetAlready() {
		t.Errorf("%v, %v", killed, err)
	}
	if _, err := client.Terminate(r.ctx(), &tmuxdv1.TerminateRequest{WorkItem: item, IncarnationStamp: of.Stamp, FencingToken: 1}); !errors.Is(err, fault.Fenced) {
		t.Errorf("an older token: %v", err)
	}
	for _, req := range []*tmuxdv1.TerminateRequest{
		{WorkItem: "octo#7", IncarnationStamp: of.Stamp, FencingToken: 9}, {WorkItem: item, FencingToken: 9},
		{WorkItem: item, IncarnationStamp: of.Stamp, FencingToken: 9, Grace: &durationpb.Duration{Nanos: -5, Seconds: 5}},
		{WorkItem: item, IncarnationStamp: of.Stamp, FencingToken: 9, Grace: durationpb.New(time.Hour)},
	} {
		if _, err := client.Terminate(r.ctx(), req); !errors.Is(err, fault.Invalid) {
			t.Errorf("%v: %v", req, err)
		}
	}
	if _, err := client.Kill(r.ctx(), &tmuxdv1.KillRequest{WorkItem: item, IncarnationStamp: of.Stamp, FencingToken: 9, Force: true}); !errors.Is(err, fault.Invalid) {
		t.Errorf("force without a reason: %v", err)
	}
	audited(t, log.String(), of.Stamp)
}

// audited expects one line for each order, with everything that one would ask about it afterwards.
func audited(t *testing.T, log, stamp string) {
	t.Helper()
	var lines []map[string]any
	for line := range strings.Lines(log) {
		var l map[string]any
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatal(err)
		}
		if l["msg"] == "an end was ordered" {
			lines = append(lines, l)
		}
	}
	want := []struct{ action, reason, outcome string }{
		{"kill", "", "refused"}, {"terminate", "alice: [31m it runs wild", "ended"}, {"kill", "alice: free it", "ended"}, {"terminate", "", "error: older_token"},
	}
	if len(lines) < len(want) {
		t.Fatalf("%d lines: %s", len(lines), log)
	}
	for i, w := range want {
		l := lines[i]
		if l[obs.KeyAction] != w.action || l[obs.KeyReason] != w.reason || l[obs.KeyOutcome] != w.outcome || l[obs.KeyIncarnation] != stamp ||
			l[obs.KeyWorkItem] != "github:octo/widget#7" || l[obs.KeyToken] == nil || l[obs.KeyTarget] == "" {
			t.Errorf("%d: %v, want %v", i, l, w)
		}
	}
}
