package server

import (
	"context"
	"testing"

	"muxpost.dev/muxpost/core/dispatch"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	"muxpost.dev/muxpost/services/dispatcher/internal/deliver"
	"muxpost.dev/muxpost/services/dispatcher/internal/hints"
)

// adopting has one orphan until it is adopted.
type adopting struct {
	Deliverer
	orphans []deliver.Orphan
}

func (a *adopting) Adopt(_ context.Context, workItem, _ string) (deliver.Session, bool, error) {
	already := len(a.orphans) == 0
	a.orphans = nil
	return deliver.Session{WorkItem: workItem, Host: "h"}, already, nil
}

func (a *adopting) Orphans(context.Context) ([]deliver.Orphan, []string, error) {
	return a.orphans, []string{"away"}, nil
}

func TestOrphans_AreListedAndAdopted(t *testing.T) {
	const item = "github:o/r#1"
	found := deliver.Found{WorkItem: item, Host: "h", Probe: dispatch.ProbeDetached, Stamp: "s", ConversationID: "c"}
	hub := hints.New()
	follower := hub.Follow()
	defer follower.Close()
	if _, err := follower.Next(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := New(Config{Hints: hub, Deliverer: &adopting{orphans: []deliver.Orphan{{Found: found, Gap: deliver.Unrecorded},
		{Found: found, Gap: deliver.Elsewhere, RecordedOn: "g"}, {Found: found, Gap: deliver.Gone}}}})
	got, err := s.ListOrphans(t.Context(), &dispatcherv1.ListOrphansRequest{PageSize: 2})
	if err != nil || len(got.GetOrphans()) != 2 || !got.GetMore() || got.GetSilentHosts()[0] != "away" {
		t.Fatalf("%v, %v", got, err)
	}
	if o := got.GetOrphans()[1]; o.GetKind() != dispatcherv1.OrphanKind_ORPHAN_KIND_ELSEWHERE || o.GetRecordedOn() != "g" || o.GetIncarnationStamp() != "s" ||
		o.GetState() != dispatcherv1.SessionState_SESSION_STATE_LIVE || o.GetFlags()[0] != dispatcherv1.SessionFlag_SESSION_FLAG_DETACHED {
		t.Errorf("%v", o)
	}
	for _, already := range []bool{false, true} {
		if got, err := s.AdoptSession(t.Context(), &dispatcherv1.AdoptSessionRequest{WorkItem: item}); err != nil || got.GetAlready() != already ||
			got.GetSession().GetHost() != "h" {
			t.Errorf("%v, %v", got, err)
		}
	}
	if told, err := follower.Next(t.Context()); err != nil || told != item {
		t.Errorf("told %q, %v", told, err)
	}
	if _, err := s.ListOrphans(t.Context(), &dispatcherv1.ListOrphansRequest{PageSize: 501}); err == nil {
		t.Error("a page of 501")
	}
}
