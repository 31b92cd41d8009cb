package server

import (
	"context"
	"slices"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/types/known/timestamppb"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/workitem"
	"muxpost.dev/muxpost/internal/obs"
	"muxpost.dev/muxpost/internal/settings"
	tmuxdv1 "muxpost.dev/muxpost/proto/gen/muxpost/tmuxd/v1"
	"muxpost.dev/muxpost/services/tmuxd/internal/trees"
)

const (
	maxTrees, usualTrees = 500, 50
	// treesAtOnce is how many trees are looked at at once: each look is some git commands.
	treesAtOnce = 4
)

// Trees are the working trees of a host.
type Trees interface {
	Known() ([]trees.Tree, error)
	Look(ctx context.Context, t trees.Tree) trees.Work
	Remove(ctx context.Context, item workitem.Ref, discard bool) (trees.Tree, trees.Work, error)
}

var treeKinds = map[string]tmuxdv1.TreeKind{
	settings.TreeDirectory: tmuxdv1.TreeKind_TREE_KIND_DIRECTORY, settings.TreeWorktree: tmuxdv1.TreeKind_TREE_KIND_WORKTREE,
	settings.TreeClone: tmuxdv1.TreeKind_TREE_KIND_CLONE,
}

// WithTrees has the server answer for working trees too.
func (s *Server) WithTrees(t Trees) *Server {
	s.trees = t
	return s
}

// ListTrees lists working trees by the names of their sessions.
func (s *Server) ListTrees(ctx context.Context, req *tmuxdv1.ListTreesRequest) (*tmuxdv1.ListTreesResponse, error) {
	size := int(req.GetPageSize())
	switch {
	case size < 0 || size > maxTrees:
		return nil, fault.Newf(fault.Invalid, fault.ReasonBadArgument, "page_size must be 0 to %d, and is %d", maxTrees, size)
	case size == 0:
		size = usualTrees
	}
	known, err := s.known(req)
	if err != nil {
		return nil, err
	}
	out := &tmuxdv1.ListTreesResponse{}
	if len(known) > size {
		known, out.NextPageToken = known[:size], known[size-1].Target
	}
	out.Trees = make([]*tmuxdv1.WorkingTree, len(known))
	var group errgroup.Group
	group.SetLimit(treesAtOnce)
	for i, t := range known {
		group.Go(func() error {
			out.Trees[i] = s.treeOf(ctx, t)
			return nil
		})
	}
	_ = group.Wait() // no look returns an error
	return out, nil
}

// known returns the trees that are asked for and come after the page before.
func (s *Server) known(req *tmuxdv1.ListTreesRequest) ([]trees.Tree, error) {
	all, err := s.trees.Known()
	if err != nil {
		return nil, fault.Wrap(fault.Unavailable, fault.ReasonStorage, "it cannot be told which working trees there are", err)
	}
	item := req.GetWorkItem()
	if item != "" {
		ref, err := workitem.Parse(item)
		if err != nil {
			return nil, err
		}
		item = ref.String()
	}
	return slices.DeleteFunc(all, func(t trees.Tree) bool {
		return item != "" && t.WorkItem != item || t.Target <= req.GetPageToken()
	}), nil
}

func (s *Server) treeOf(ctx context.Context, t trees.Tree) *tmuxdv1.WorkingTree {
	work := s.trees.Look(ctx, t)
	out := &tmuxdv1.WorkingTree{
		WorkItem: t.WorkItem, Target: t.Target, Kind: treeKinds[t.Kind], Directory: t.Directory, Repository: trees.Hidden(t.Repository), Branch: t.Branch,
		CreateTime: timestamppb.New(t.CreatedAt), NothingToLose: work.Nothing(), Holds: work.String(), State: tmuxdv1.State_STATE_UNKNOWN,
	}
	if t.Stays != "" && !work.Missing {
		// Whatever is in it: what git ignores may be all that a person has of it.
		out.NothingToLose, out.Holds = false, t.Stays+"; "+out.GetHolds()
	}
	if ref, err := workitem.Parse(t.WorkItem); err == nil {
		if st, err := s.host.State(ctx, ref, ""); err == nil {
			out.State, out.Flags = stateOf[st.State], flagsOf(st.Flags)
		}
	}
	return out
}

// RemoveTree removes a working tree in which nobody works.
func (s *Server) RemoveTree(ctx context.Context, req *tmuxdv1.RemoveTreeRequest) (*tmuxdv1.RemoveTreeResponse, error) {
	item, err := workitem.Parse(req.GetWorkItem())
	switch {
	case err != nil:
		return nil, err
	case req.GetDiscard() && req.GetReason() == "":
		return nil, fault.New(fault.Invalid, fault.ReasonBadArgument, "reason is missing: say who throws away what is in the tree, and why")
	}
	out := &tmuxdv1.RemoveTreeResponse{}
	err = s.host.Vacated(ctx, item, func(ctx context.Context) error {
		known, err := s.known(&tmuxdv1.ListTreesRequest{WorkItem: item.String()})
		if err != nil {
			return err
		}
		if id := s.workerIn(known); id != "" {
			return fault.Newf(fault.Conflict, fault.ReasonTreeInUse, "the attempt %s works in it", id).WithRemedy("stop it, or wait for its end")
		}
		tree, work, err := s.trees.Remove(ctx, item, req.GetDiscard())
		out.Directory, out.Lost = tree.Directory, work.String()
		return err
	})
	s.log.InfoContext(ctx, "remove tree", obs.KeyWorkItem, item.String(), "discard", req.GetDiscard(), "why", req.GetReason(), obs.KeyError, err)
	if err != nil {
		return nil, err
	}
	return out, nil
}

// RemoveTaskTree removes the worktree of attempts that are over, if nothing would be lost with it.
func (s *Server) RemoveTaskTree(ctx context.Context, req *tmuxdv1.RemoveTaskTreeRequest) (*tmuxdv1.RemoveTaskTreeResponse, error) {
	kept, missing, err := s.attempts.RemoveWorktree(ctx, req.GetRepository(), req.GetDirectory(), req.GetBranch(), req.GetUnmerged(), req.GetDryRun())
	if err != nil {
		return nil, err
	}
	if !req.GetDryRun() && !missing {
		s.log.InfoContext(ctx, "remove the worktree of an attempt", "directory", req.GetDirectory(), "why", req.GetReason(), "kept", kept)
	}
	return &tmuxdv1.RemoveTaskTreeResponse{Kept: kept, Missing: missing}, nil
}

// workerIn returns the id of an attempt that works in one of the trees; empty when none does.
func (s *Server) workerIn(known []trees.Tree) string {
	for _, t := range known {
		if id := s.attempts.WorksBelow(t.Directory); id != "" {
			return id
		}
	}
	return ""
}
