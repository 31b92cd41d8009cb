package hosts

import (
	"context"

	"muxpost.dev/muxpost/core/fault"
	tmuxdv1 "muxpost.dev/muxpost/proto/gen/muxpost/tmuxd/v1"
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
