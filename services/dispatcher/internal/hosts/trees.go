package hosts

import (
	"context"

	"muxpost.dev/muxpost/core/fault"
	tmuxdv1 "muxpost.dev/muxpost/proto/gen/muxpost/tmuxd/v1"
	"muxpost.dev/muxpost/services/dispatcher/internal/team"
)

// RemoveTree removes the working tree of a work item on a host, if its agent has ended and nothing would be lost: the host decides that, at the
// moment of the removal. One that stays is fault.Conflict, one that is not there fault.NotFound.
func (f *Fleet) RemoveTree(ctx context.Context, host, workItem, reason string) error {
	h, ok := f.on(host)
	if !ok {
		return fault.New(fault.Unavailable, fault.ReasonHostUnreachable, "this dispatcher does not know the host of the session")
	}
	end, err := h.begin(ctx)
	if err != nil {
		return err
	}
	_, err = h.client.RemoveTree(ctx, &tmuxdv1.RemoveTreeRequest{WorkItem: workItem, Reason: reason})
	return end(err)
}

// RemoveTaskTree removes a working tree of a run that is over, or says why it is kept: the host decides that. missing is true when nothing was there.
func (f *Fleet) RemoveTaskTree(ctx context.Context, host string, r team.TreeRemoval) (kept string, missing bool, err error) {
	h, ok := f.on(host)
	if !ok {
		return "", false, fault.New(fault.Unavailable, fault.ReasonHostUnreachable, "this dispatcher does not know its host")
	}
	end, err := h.begin(ctx)
	if err != nil {
		return "", false, err
	}
	out, err := h.client.RemoveTaskTree(ctx, &tmuxdv1.RemoveTaskTreeRequest{Repository: r.Repository, Directory: r.Directory, Branch: r.Branch,
		Unmerged: r.Unmerged, DryRun: r.Dry, Reason: r.Reason})
	return plain(out.GetKept()), out.GetMissing(), end(err)
}
