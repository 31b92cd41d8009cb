package team

import (
	"cmp"
	"context"
	"errors"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/obs"
)

// Cleaning is somebody's order to remove the working trees of a run.
type Cleaning struct {
	Order
	// Unmerged has those removed too whose commits are on their branches alone; Dry does nothing, and says what would be done.
	Unmerged, Dry bool
}

// Clean removes the working trees of a run that is over where nothing would be lost with them: their hosts decide that, at the moment of the removal.
// It returns each that was there. Branches stay.
func (c *Coordinator) Clean(ctx context.Context, o Cleaning) ([]Tree, error) {
	if err := errors.Join(checkWords("who", o.Who, maxWho), checkWords("reason", o.Reason, maxReason)); err != nil {
		return nil, err
	}
	if c.config.Shadow && !o.Dry {
		return nil, fault.New(fault.Conflict, "", "the dispatcher runs in shadow mode, in which nothing is removed").WithRemedy("set dispatcher.shadow to false")
	}
	known, err := c.config.Store.KnownRun(ctx, o.RunID)
	if err != nil {
		return nil, err
	}
	if !known.Run.Phase.Terminal() {
		return nil, fault.Newf(fault.Conflict, "", "the run %s is not over, and its working trees are in use", o.RunID).
			WithRemedy("wait for its end, or end it: muxpost team cancel " + o.RunID)
	}
	attempts, err := c.config.Store.Attempts(ctx, o.RunID, "")
	if err != nil {
		return nil, err
	}
	type place struct{ host, directory string }
	owed, seen := map[place]bool{}, map[place]bool{}
	for _, a := range attempts {
		owed[place{a.Host, a.Directory}] = owed[place{a.Host, a.Directory}] || a.Owed
	}
	var out []Tree
	for _, a := range attempts {
		at := place{a.Host, a.Directory}
		if a.Branch == "" || seen[at] {
			continue
		}
		seen[at] = true
		tree := Tree{Host: a.Host, Directory: a.Directory, Branch: a.Branch}
		if owed[at] {
			tree.Kept = "an attempt in it has to be stopped still, once its host answers"
			out = append(out, tree)
			continue
		}
		kept, missing, err := c.config.Hosts.RemoveTaskTree(ctx, a.Host, TreeRemoval{Repository: a.Repository, Directory: a.Directory, Branch: a.Branch,
			Unmerged: o.Unmerged, Dry: o.Dry, Reason: cmp.Or(o.Who, "somebody") + ": " + o.Reason})
		switch {
		case ctx.Err() != nil:
			return out, fault.Wrap(fault.Unavailable, fault.ReasonDeadline, "not every working tree was looked at in time", ctx.Err()).WithRemedy("ask again: it goes on where it was")
		case err != nil:
			kept = "its host does not say: " + err.Error()
		case missing:
			continue
		}
		tree.Kept = kept
		out = append(out, tree)
		if kept != "" || o.Dry {
			continue
		}
		c.config.Logger.InfoContext(ctx, "the working tree of a run was removed", obs.KeyRunID, o.RunID, obs.KeyTaskID, a.TaskID, obs.KeyHost, a.Host, obs.KeyWho, o.Who)
		if err := c.config.Store.NoteTree(ctx, o.RunID, a.TaskID, a.Host+":"+a.Directory, o.Who); err != nil {
			return out, err
		}
	}
	return out, nil
}
