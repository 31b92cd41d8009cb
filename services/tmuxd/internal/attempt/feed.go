package attempt

import (
	"context"

	"muxpost.dev/muxpost/services/tmuxd/internal/changes"
)

// Step is one step of what Follow tells.
type Step = changes.Step[Attempt]

// tell tells an attempt as it is now. What would read the same is not told again. The turn is held.
func (r *Runner) tell(a *attempt) {
	if v := a.view(); a.told == nil || !a.told.same(v) {
		a.told = &v
		r.feed.Append(v.ID, v, false)
	}
}

// Follow tells every attempt that is kept, then that this was all, and then what changes, until ctx ends or tell fails: see changes.Log.
func (r *Runner) Follow(ctx context.Context, cursor string, tell func(Step) error) error {
	return r.feed.Follow(ctx, cursor, tell)
}
