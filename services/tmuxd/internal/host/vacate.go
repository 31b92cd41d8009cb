package host

import (
	"context"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/core/workitem"
)

// Vacated runs do while no agent of a work item lives and none can be started. Where one lives or may live, or somebody else does in its session,
// it is fault.Conflict, and do is not run.
func (h *Host) Vacated(ctx context.Context, item workitem.Ref, do func(context.Context) error) error {
	slot, release, err := h.acquire(ctx, item.Target())
	if err != nil {
		return err
	}
	defer release()
	s, err := h.lookOwned(ctx, slot, item)
	if err != nil {
		return err
	}
	if s.flags == 0 && (s.state == session.Dead || s.state == session.Absent) {
		return do(ctx)
	}
	return fault.Newf(fault.Conflict, fault.ReasonTreeInUse, "the agent of %s has not ended: %s", item, s.why).
		WithRemedy("end it first: muxpost attach " + item.String() + " leads to it")
}
