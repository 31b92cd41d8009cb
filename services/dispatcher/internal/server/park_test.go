package server

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"muxpost.dev/muxpost/core/fault"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	"muxpost.dev/muxpost/services/dispatcher/internal/deliver"
	"muxpost.dev/muxpost/services/dispatcher/internal/hints"
)

// unparked has one item parked.
type unparked struct {
	Deliverer
	item string
}

func (u *unparked) Unpark(_ context.Context, workItem, _ string) (deliver.Park, bool, error) {
	stood := workItem == u.item
	u.item = ""
	return deliver.Park{WorkItem: workItem, Deaths: 5, Within: time.Minute}, stood, nil
}

func TestUnpark_TellsWhoeverHasEventsForIt(t *testing.T) {
	hub := hints.New()
	follower := hub.Follow()
	defer follower.Close()
	if item, err := follower.Next(t.Context()); err != nil || item != hints.Any {
		t.Fatalf("%q, %v", item, err)
	}
	s := New(Config{Deliverer: &unparked{item: "github:o/r#1"}, Hints: hub})
	got, err := s.Unpark(t.Context(), &dispatcherv1.UnparkRequest{WorkItem: "github:o/r#1"})
	if err != nil || got.GetPark().GetDeaths() != 5 || got.GetPark().GetWithin().AsDuration() != time.Minute {
		t.Errorf("%v, %v", got, err)
	}
	if item, err := follower.Next(t.Context()); err != nil || item != "github:o/r#1" {
		t.Errorf("told %q, %v", item, err)
	}
	if got, err := s.Unpark(t.Context(), &dispatcherv1.UnparkRequest{WorkItem: "github:o/r#1"}); err != nil || got.GetPark() != nil {
		t.Errorf("again: %v, %v", got, err)
	}
}

func TestListParks_GoesPageByPage(t *testing.T) {
	r := &records{}
	for i := range 3 {
		r.parks = append(r.parks, deliver.Park{WorkItem: fmt.Sprintf("github:o/r#%d", i+1)})
	}
	s, seen, token := New(Config{Records: r}), "", ""
	for {
		page, err := s.ListParks(t.Context(), &dispatcherv1.ListParksRequest{PageSize: 2, PageToken: token})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range page.GetParks() {
			seen += "[" + p.GetWorkItem() + "]"
		}
		if token = page.GetNextPageToken(); token == "" {
			break
		}
	}
	if seen != "[github:o/r#1][github:o/r#2][github:o/r#3]" {
		t.Errorf("the pages hold %s", seen)
	}
	for _, bad := range []*dispatcherv1.ListParksRequest{{PageSize: 501}, {PageToken: "!"}, {PageToken: pauseToken("github:o/r#1")}} {
		if _, err := s.ListParks(t.Context(), bad); !errors.Is(err, fault.Invalid) {
			t.Errorf("%v: %v", bad, err)
		}
	}
}
