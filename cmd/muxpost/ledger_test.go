package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/rpc"
	pollerv1 "muxpost.dev/muxpost/proto/gen/muxpost/poller/v1"
)

func (f *fakePoller) Cancel(_ context.Context, r *pollerv1.CancelRequest) (*pollerv1.CancelResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cancelled = append(f.cancelled, r)
	for _, e := range f.entries {
		if e.GetDeliveryId() != r.GetDeliveryId() {
			continue
		}
		if e.GetState() == pollerv1.LedgerState_LEDGER_STATE_LEASED {
			return nil, fault.New(fault.Conflict, "", "it is being delivered").WithRemedy("ask again in a moment")
		}
		cancelled := e.GetState() != pollerv1.LedgerState_LEDGER_STATE_CANCELLED
		e.State, e.Detail = pollerv1.LedgerState_LEDGER_STATE_CANCELLED, "it was cancelled by "+r.GetWho()
		return &pollerv1.CancelResponse{Entry: e, Cancelled: cancelled}, nil
	}
	return nil, fault.New(fault.NotFound, fault.ReasonDeliveryNotFound, "no such event")
}

func TestCancel_SaysWhatHappened(t *testing.T) {
	d := newDesk(t)
	poller := &fakePoller{entries: []*pollerv1.LedgerEntry{
		{DeliveryId: "daaaa1111", WorkItem: "github:o/r#1", State: pollerv1.LedgerState_LEDGER_STATE_HELD},
		{DeliveryId: "dbbbb2222", WorkItem: "github:o/r#2", State: pollerv1.LedgerState_LEDGER_STATE_LEASED},
	}}
	d.serve(t, "p", func(s *rpc.Server) { pollerv1.RegisterPollerServiceServer(s, poller) })
	if err := d.run(t, "cancel", "--by", "ann", "--reason", "not needed", "daaaa1111"); err != nil || !strings.Contains(d.out.String(), "is cancelled and") {
		t.Errorf("%v\n%s", err, d.out)
	}
	if r := poller.cancelled[0]; r.GetWho() != "ann" || r.GetReason() != "not needed" {
		t.Errorf("%v", r)
	}
	if err := d.run(t, "cancel", "daaaa1111"); err != nil || !strings.Contains(d.out.String(), "was cancelled already: it was cancelled by") {
		t.Errorf("%v\n%s", err, d.out)
	}
	if err := d.run(t, "cancel", "dbbbb2222"); !errors.Is(err, fault.Conflict) || !strings.Contains(err.Error(), "ask again in a moment") {
		t.Errorf("%v", err)
	}
	if err := d.run(t, "cancel", "x y"); !errors.Is(err, fault.Invalid) {
		t.Errorf("%v", err)
	}
}

func TestLedger_FiltersCountsAndPages(t *testing.T) {
	d := newDesk(t)
	poller := &fakePoller{
		counts: []*pollerv1.StateCount{{State: pollerv1.LedgerState_LEDGER_STATE_PENDING}, {State: pollerv1.LedgerState_LEDGER_STATE_SETTLED, Count: 3}},
		reasons: []*pollerv1.ReasonCount{{State: pollerv1.LedgerState_LEDGER_STATE_SETTLED, Reason: "bot", Count: 1},
			{State: pollerv1.LedgerState_LEDGER_STATE_SETTLED, Reason: "unauthorised", Count: 2}},
	}
	d.serve(t, "p", func(s *rpc.Server) { pollerv1.RegisterPollerServiceServer(s, poller) })
	if err := d.run(t, "ledger", "github:o/r#1", "--state", "settled", "--reason", "unauthorised", "--source", "gh", "--kind", "comment", "--since", "2h",
		"--page", "tok"); err != nil {
		t.Fatal(err)
	}
	r := poller.listed[0]
	if r.GetWorkItem() != "github:o/r#1" || r.GetState() != pollerv1.LedgerState_LEDGER_STATE_SETTLED || r.GetReason() != "unauthorised" ||
		r.GetSource() != "gh" || r.GetKind() != "comment" || !r.GetSince().AsTime().Equal(now.Add(-2*time.Hour)) || r.GetPageToken() != "tok" {
		t.Errorf("asked for %v", r)
	}
	if err := d.run(t, "ledger", "--counts"); err != nil {
		t.Fatal(err)
	}
	if got := strings.Fields(d.out.String()); strings.Join(got, " ") != "STATE REASON EVENTS settled 3 bot 1 unauthorised 2" {
		t.Errorf("%s", d.out)
	}
	for _, line := range [][]string{{"--counts", "--state", "held"}, {"--since", "-1h"}, {"--state", "lost"}} {
		if err := d.run(t, append([]string{"ledger"}, line...)...); !errors.Is(err, fault.Invalid) {
			t.Errorf("%v: %v", line, err)
		}
	}
}
