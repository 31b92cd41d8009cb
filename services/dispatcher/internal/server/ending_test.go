package server

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"google.golang.org/protobuf/types/known/durationpb"

	"muxpost.dev/muxpost/core/fault"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	"muxpost.dev/muxpost/services/dispatcher/internal/deliver"
	"muxpost.dev/muxpost/services/dispatcher/internal/hints"
)

// ordered takes every order, and has it wait.
type ordered struct {
	Deliverer
	stops, closes []deliver.Stop
}

func (o *ordered) Stop(_ context.Context, s deliver.Stop) (deliver.Ended, error) {
	o.stops = append(o.stops, s)
	return deliver.Ended{Waits: true, Detail: "away"}, nil
}

func (o *ordered) Close(_ context.Context, s deliver.Stop) (deliver.Ended, error) {
	o.closes = append(o.closes, s)
	return deliver.Ended{Already: true, Detail: "dead"}, nil
}

func (o *ordered) CancelEnding(_ context.Context, workItem, _ string) (deliver.Ending, bool, error) {
	return deliver.Ending{WorkItem: workItem, Closes: true}, len(o.closes) > 0, nil
}

func TestEnding_OrdersAndTheirTakingBack(t *testing.T) {
	o, hub := &ordered{}, hints.New()
	follower := hub.Follow()
	defer follower.Close()
	if _, err := follower.Next(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := New(Config{Deliverer: o, Hints: hub})
	const item = "github:o/r#1"
	if got, err := s.CancelEnding(t.Context(), &dispatcherv1.CancelEndingRequest{WorkItem: item}); err != nil || got.GetEnding() != nil {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := s.StopSession(t.Context(), &dispatcherv1.StopSessionRequest{WorkItem: item}); err != nil || !got.GetWaits() || got.GetDetail() != "away" {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := s.CloseSession(t.Context(), &dispatcherv1.CloseSessionRequest{WorkItem: item, Who: "ann"}); err != nil || !got.GetAlready() ||
		got.GetDetail() != "dead" || o.closes[0].Who != "ann" {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := s.CancelEnding(t.Context(), &dispatcherv1.CancelEndingRequest{WorkItem: item}); err != nil ||
		got.GetEnding().GetVerb() != dispatcherv1.EndingVerb_ENDING_VERB_CLOSE {
		t.Errorf("%v, %v", got, err)
	}
	if told, err := follower.Next(t.Context()); err != nil || told != item {
		t.Errorf("told %q, %v", told, err)
	}
	bad := &durationpb.Duration{Seconds: 1, Nanos: -1}
	if _, err := s.StopSession(t.Context(), &dispatcherv1.StopSessionRequest{WorkItem: item, Grace: bad}); !errors.Is(err, fault.Invalid) {
		t.Errorf("%v", err)
	}
	if _, err := s.CloseSession(t.Context(), &dispatcherv1.CloseSessionRequest{WorkItem: item, Grace: bad}); !errors.Is(err, fault.Invalid) {
		t.Errorf("%v", err)
	}
}

func TestListSessions_HasTheOrdersThatWait(t *testing.T) {
	r := sessions(3)
	for i := range 3 {
		if i != 1 {
			r.endings = append(r.endings, deliver.Ending{WorkItem: r.sessions[i].WorkItem, Closes: i == 2, Who: "ann", Host: "h"})
		}
	}
	page, err := New(Config{Records: r, Hosts: prober{}}).ListSessions(t.Context(), &dispatcherv1.ListSessionsRequest{SkipProbe: true})
	if err != nil {
		t.Fatal(err)
	}
	seen := ""
	for _, s := range page.GetSessions() {
		seen += fmt.Sprintf("[%v %s]", s.GetEnding().GetVerb(), s.GetEnding().GetWho())
	}
	if seen != "[ENDING_VERB_STOP ann][ENDING_VERB_UNSPECIFIED ][ENDING_VERB_CLOSE ann]" {
		t.Errorf("%s", seen)
	}
}
