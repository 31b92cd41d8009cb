package server

import (
	"errors"
	"strings"
	"testing"

	"muxpost.dev/muxpost/core/fault"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	"muxpost.dev/muxpost/services/dispatcher/internal/deliver"
)

func TestRemoveTree_IsTheHostsToDecide(t *testing.T) {
	conflict := fault.New(fault.Conflict, "", "2 commits are not pushed").WithRemedy("push them")
	for name, tt := range map[string]struct {
		sessions bool
		host     error
		removed  bool
		detail   string
		err      error
	}{
		"gone":                  {true, nil, true, "", nil},
		"none there":            {true, fault.New(fault.NotFound, "", "x"), true, "there is none on its host", nil},
		"something to lose":     {true, conflict, false, "2 commits are not pushed", nil},
		"nobody answers":        {true, fault.New(fault.Unavailable, "", "x"), false, "", fault.Unavailable},
		"no session of it ever": {false, conflict, true, "no session of it was ever started", nil},
	} {
		kept := &records{}
		if tt.sessions {
			kept.sessions = []deliver.Shown{{Session: deliver.Session{WorkItem: "github:octo/widget#7", Host: "h1"}}}
		}
		s := New(Config{Records: kept, Hosts: prober{tree: tt.host}})
		got, err := s.RemoveTree(t.Context(), &dispatcherv1.RemoveTreeRequest{WorkItem: "github:octo/widget#7", Who: "alice"})
		if !errors.Is(err, tt.err) || got.GetRemoved() != tt.removed || got.GetDetail() != tt.detail {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	s := New(Config{Records: &records{}, Hosts: prober{}})
	for _, bad := range []*dispatcherv1.RemoveTreeRequest{{}, {WorkItem: "x"}, {WorkItem: "github:o/r#1", Who: strings.Repeat("x", 101)}} {
		if _, err := s.RemoveTree(t.Context(), bad); !errors.Is(err, fault.Invalid) {
			t.Errorf("%v: %v", bad, err)
		}
	}
}

// The record of an item whose host was given up names none until it is started again.
func TestRemoveTree_OfAnItemWithoutAHostIsAskedOfNobody(t *testing.T) {
	kept := &records{sessions: []deliver.Shown{{Session: deliver.Session{WorkItem: "github:octo/widget#7"}}}}
	asked := fault.New(fault.Unavailable, fault.ReasonHostUnreachable, "this dispatcher does not know the host of the session")
	s := New(Config{Records: kept, Hosts: prober{tree: asked}})
	got, err := s.RemoveTree(t.Context(), &dispatcherv1.RemoveTreeRequest{WorkItem: "github:octo/widget#7"})
	if err != nil || got.GetRemoved() || !strings.Contains(got.GetDetail(), "moved away from its host and has none now") {
		t.Errorf("%v, %v", got, err)
	}
}
