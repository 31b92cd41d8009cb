package server

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"muxpost.dev/muxpost/core/dispatch"
	"muxpost.dev/muxpost/core/fault"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	"muxpost.dev/muxpost/services/dispatcher/internal/deliver"
)

// operated remembers the pauses that it was told of.
type operated struct {
	Deliverer
	pauses map[string]deliver.Pause
}

func (o *operated) Pause(_ context.Context, p deliver.Pause) (deliver.Pause, bool, error) {
	stands, ok := o.pauses[p.WorkItem]
	if ok {
		return stands, false, nil
	}
	o.pauses[p.WorkItem] = p
	return p, true, nil
}

func (o *operated) Unpause(_ context.Context, workItem, _ string) (deliver.Pause, bool, error) {
	p, ok := o.pauses[workItem]
	delete(o.pauses, workItem)
	return p, ok, nil
}

func (o *operated) Shadow() bool { return true }

func TestPause_NeedsExactlyOneScope(t *testing.T) {
	o := &operated{pauses: map[string]deliver.Pause{}}
	s := New(Config{Deliverer: o, Records: &records{}})
	for _, r := range []*dispatcherv1.PauseRequest{{}, {WorkItem: "github:o/r#1", All: true}} {
		if _, err := s.Pause(t.Context(), r); !errors.Is(err, fault.Invalid) {
			t.Errorf("%v: %v", r, err)
		}
		_, err := s.Unpause(t.Context(), &dispatcherv1.UnpauseRequest{WorkItem: r.GetWorkItem(), All: r.GetAll()})
		if !errors.Is(err, fault.Invalid) {
			t.Errorf("%v: %v", r, err)
		}
	}
	if len(o.pauses) != 0 {
		t.Errorf("%v", o.pauses)
	}
	for _, existed := range []bool{false, true} {
		got, err := s.Pause(t.Context(), &dispatcherv1.PauseRequest{All: true, Reason: "r", Who: "w"})
		if err != nil || got.GetExisted() != existed || got.GetPause().GetReason() != "r" || got.GetPause().GetWho() != "w" {
			t.Errorf("%v, %v", got, err)
		}
	}
	for _, stood := range []bool{true, false} {
		got, err := s.Unpause(t.Context(), &dispatcherv1.UnpauseRequest{All: true})
		if err != nil || (got.GetPause() != nil) != stood {
			t.Errorf("%v, %v", got, err)
		}
	}
}

func TestListPauses_GoesPageByPage(t *testing.T) {
	r := &records{pauses: []deliver.Pause{{}}}
	for i := range 4 {
		r.pauses = append(r.pauses, deliver.Pause{WorkItem: fmt.Sprintf("github:o/r#%d", i+1)})
	}
	s, seen, token := New(Config{Deliverer: &operated{}, Records: r}), "", ""
	for {
		page, err := s.ListPauses(t.Context(), &dispatcherv1.ListPausesRequest{PageSize: 1, PageToken: token})
		if err != nil || !page.GetShadow() {
			t.Fatalf("%v, %v", page, err)
		}
		for _, p := range page.GetPauses() {
			seen += "[" + p.GetWorkItem() + "]"
		}
		if token = page.GetNextPageToken(); token == "" {
			break
		}
	}
	if seen != "[][github:o/r#1][github:o/r#2][github:o/r#3][github:o/r#4]" {
		t.Errorf("the pages hold %s", seen)
	}
	for _, bad := range []*dispatcherv1.ListPausesRequest{{PageSize: 501}, {PageToken: "!"}, {PageToken: itemToken(sessionPrefix, "github:o/r#1")},
		{PageToken: encode(pausePrefix + "x")}} {
		if _, err := s.ListPauses(t.Context(), bad); !errors.Is(err, fault.Invalid) {
			t.Errorf("%v: %v", bad, err)
		}
	}
}

func TestListDeliveries_ByOutcome(t *testing.T) {
	r := &records{}
	s := New(Config{Records: r})
	for _, o := range dispatch.Outcomes() {
		_, err := s.ListDeliveries(t.Context(), &dispatcherv1.ListDeliveriesRequest{Outcome: outcomeOf(o)})
		if err != nil || *r.asked.Outcome != o {
			t.Errorf("%v: asked %v, %v", o, r.asked.Outcome, err)
		}
	}
	if _, err := s.ListDeliveries(t.Context(), &dispatcherv1.ListDeliveriesRequest{}); err != nil || r.asked.Outcome != nil {
		t.Errorf("none: asked %v, %v", r.asked.Outcome, err)
	}
	if _, err := s.ListDeliveries(t.Context(), &dispatcherv1.ListDeliveriesRequest{Outcome: 99}); !errors.Is(err, fault.Invalid) {
		t.Errorf("%v", err)
	}
}

// detached is a host whose agents live on without their sessions.
type detached struct{ prober }

func (detached) Followed(string) (bool, time.Time) { return true, time.Time{} }

func (detached) Show(context.Context, string, string, bool) deliver.Sight {
	return deliver.Sight{Host: "a", Probe: dispatch.ProbeDetached}
}

func TestListSessions_TellsOfFlags(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got, err := New(Config{Records: sessions(1), Hosts: detached{}}).ListSessions(t.Context(), &dispatcherv1.ListSessionsRequest{})
		if err != nil || len(got.GetSessions()[0].GetFlags()) != 1 ||
			got.GetSessions()[0].GetFlags()[0] != dispatcherv1.SessionFlag_SESSION_FLAG_DETACHED {
			t.Errorf("%v, %v", got, err)
		}
	})
}
