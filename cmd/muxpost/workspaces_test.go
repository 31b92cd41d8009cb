package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/rpc"
	tmuxdv1 "muxpost.dev/muxpost/proto/gen/muxpost/tmuxd/v1"
)

// fakeTrees answers for working trees by what it holds.
type fakeTrees struct {
	tmuxdv1.UnimplementedTmuxdServiceServer
	mu      sync.Mutex
	trees   []*tmuxdv1.WorkingTree
	removed []*tmuxdv1.RemoveTreeRequest
	refusal error
}

func (f *fakeTrees) ListTrees(_ context.Context, r *tmuxdv1.ListTreesRequest) (*tmuxdv1.ListTreesResponse, error) {
	out := &tmuxdv1.ListTreesResponse{}
	for _, t := range f.trees {
		if r.GetWorkItem() == "" || r.GetWorkItem() == t.GetWorkItem() {
			out.Trees = append(out.Trees, t)
		}
	}
	return out, nil
}

func (f *fakeTrees) RemoveTree(_ context.Context, r *tmuxdv1.RemoveTreeRequest) (*tmuxdv1.RemoveTreeResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refusal != nil {
		return nil, f.refusal
	}
	f.removed = append(f.removed, r)
	return &tmuxdv1.RemoveTreeResponse{}, nil
}

func (f *fakeTrees) gone() (out []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.removed {
		out = append(out, r.GetWorkItem())
	}
	f.removed = nil
	return out
}

func treesDesk(t *testing.T) (*desk, *fakeTrees) {
	t.Helper()
	tree := func(n string, state tmuxdv1.State, clean bool, holds string, flags ...tmuxdv1.Flag) *tmuxdv1.WorkingTree {
		return &tmuxdv1.WorkingTree{WorkItem: "github:octo/widget#" + n, Target: "loop-octo-widget-" + n, Kind: tmuxdv1.TreeKind_TREE_KIND_WORKTREE,
			Directory: "/work/" + n, Branch: "muxpost/" + n, CreateTime: timestamppb.New(now.Add(-3 * time.Hour)), NothingToLose: clean, Holds: holds, State: state, Flags: flags}
	}
	const done = "nothing in it would be lost"
	d, f := newDesk(t), &fakeTrees{}
	f.trees = []*tmuxdv1.WorkingTree{
		tree("1", tmuxdv1.State_STATE_ABSENT, true, done), tree("2", tmuxdv1.State_STATE_LIVE, true, done),
		tree("3", tmuxdv1.State_STATE_DEAD, false, "2 commits not pushed"), tree("4", tmuxdv1.State_STATE_DEAD, true, done, tmuxdv1.Flag_FLAG_GUESTS),
		tree("5", tmuxdv1.State_STATE_UNKNOWN, true, done), tree("6", tmuxdv1.State_STATE_DEAD, true, done),
	}
	d.serve(t, "t", func(s *rpc.Server) { tmuxdv1.RegisterTmuxdServiceServer(s, f) })
	return d, f
}

func TestWorkspaces_ListsTreesWithWhatWouldBeLost(t *testing.T) {
	d, _ := treesDesk(t)
	if err := d.run(t, "workspaces"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"github:octo/widget#3", "2 commits not pushed", "dead, guests", "/work/6", "muxpost/6", "worktree"} {
		if !strings.Contains(d.out.String(), want) {
			t.Errorf("it lacks %q:\n%s", want, d.out)
		}
	}
	if err := d.run(t, "workspaces", "github:octo/widget#3", "--json"); err != nil || !strings.Contains(d.out.String(), `"/work/3"`) || strings.Contains(d.out.String(), "/work/1") {
		t.Errorf("%v\n%s", err, d.out)
	}
}

func TestWorkspacesClean_RemovesOnlyWhereTheAgentHasEndedAndNothingIsLost(t *testing.T) {
	d, f := treesDesk(t)
	if err := d.run(t, "workspaces", "clean", "--dry-run"); err != nil || f.gone() != nil || strings.Count(d.out.String(), "would go") != 2 {
		t.Errorf("%v\n%s", err, d.out)
	}
	if err := d.run(t, "workspaces", "clean"); err != nil {
		t.Fatal(err)
	}
	if got := f.gone(); !slices.Equal(got, []string{"github:octo/widget#1", "github:octo/widget#6"}) {
		t.Errorf("removed %q", got)
	}
	if strings.Count(d.out.String(), "kept  ") != 4 || !strings.Contains(d.out.String(), "2 commits not pushed") {
		t.Errorf("\n%s", d.out)
	}
	if err := d.run(t, "workspaces", "clean", "github:octo/widget#3"); err != nil || f.gone() != nil {
		t.Errorf("%v\n%s", err, d.out)
	}
	if err := d.run(t, "workspaces", "clean", "github:octo/widget#99"); !errors.Is(err, fault.NotFound) {
		t.Errorf("one that is not there: %v", err)
	}
	f.refusal = fault.New(fault.Conflict, fault.ReasonTreeInUse, "an agent was started meanwhile")
	if err := d.run(t, "workspaces", "clean", "github:octo/widget#1"); err != nil || !strings.Contains(d.out.String(), "started meanwhile") {
		t.Errorf("%v\n%s", err, d.out)
	}
}

func TestWorkspacesClean_ThrowsWorkAwayOnlyByNameAndWithAReason(t *testing.T) {
	d, f := treesDesk(t)
	for _, line := range [][]string{{"--discard", "--reason", "x"}, {"--discard", "github:octo/widget#3"}, {"nonsense"}} {
		if err := d.run(t, append([]string{"workspaces", "clean"}, line...)...); !errors.Is(err, fault.Invalid) || f.gone() != nil {
			t.Errorf("%q: %v", line, err)
		}
	}
	if err := d.run(t, "workspaces", "clean", "--discard", "--reason", "not wanted", "--by", "ann", "github:octo/widget#3", "github:octo/widget#2"); err != nil {
		t.Fatal(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.removed) != 1 || f.removed[0].GetWorkItem() != "github:octo/widget#3" || !f.removed[0].GetDiscard() || f.removed[0].GetReason() != "ann: not wanted" {
		t.Errorf("%v", f.removed)
	}
}
