package trees

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/settings"
)

// RemoveTask removes the worktree of attempts, and says in a line why it is kept; empty when it is gone, or with dry would be. What is not committed, or
// is on no branch, is never removed, and what is not merged only where unmerged says so: its branch stays in any case, in the repository. missing is
// true when nothing was there. The caller sees to it that nobody works in it.
func (t *Trees) RemoveTask(ctx context.Context, repository, directory, branch string, unmerged, dry bool) (kept string, missing bool, err error) {
	task := taskTree{Repository: repository, Directory: directory, Branch: branch}
	if err := task.check(); err != nil {
		return "", false, err
	}
	tree := Tree{Kind: settings.TreeWorktree, Directory: directory, Repository: repository, Branch: branch}
	release, err := t.holdRepository(ctx, repository)
	if err != nil {
		return "", false, err
	}
	defer release()
	t.mu.Lock()
	busy := t.making[directory] != nil
	t.mu.Unlock()
	switch _, err := os.Lstat(directory); {
	case busy:
		return "it is being made", false, nil
	case errors.Is(err, fs.ErrNotExist):
		if !dry {
			t.tidyTask(tree)
		}
		return "", true, nil
	case err != nil:
		return "it cannot be looked at: " + err.Error(), false, nil
	}
	if kept, err := t.itemsIn(directory); kept != "" || err != nil {
		return kept, false, err
	}
	if kept := t.taskHolds(ctx, tree, unmerged); kept != "" || dry {
		return kept, false, nil
	}
	// Without force: git refuses what has come about since.
	if _, err := t.git(ctx, gitTime, repository, "worktree", "remove", directory); err != nil {
		return "git does not remove it: " + err.Error(), false, nil
	}
	t.config.Logger.InfoContext(ctx, "the worktree of an attempt was removed", "directory", directory, "branch", branch)
	t.tidyTask(tree)
	return "", false, nil
}

// itemsIn says in a line that the agent of a work item works in a directory or below it; empty when none does.
func (t *Trees) itemsIn(directory string) (string, error) {
	known, err := t.remembered()
	if err != nil {
		return "", storage(err)
	}
	place := resolved(directory)
	for _, k := range known {
		if dir := resolved(k.Directory); dir == place || slices.Contains(above(dir), place) {
			return "the agent of " + k.WorkItem + " works in " + k.Directory, nil
		}
	}
	return "", nil
}

// tidyTask removes what is left around a worktree that is gone: the mark of a making that was interrupted, and the directories that only held it.
func (t *Trees) tidyTask(tree Tree) {
	_ = os.Remove(unfinished(tree.Directory))
	_ = os.Remove(filepath.Dir(tree.Directory)) // once the last of its run is gone
	_ = os.Remove(tree.Repository + ".trees")
}

// taskHolds says in a line why a worktree has to stay; empty when nothing would be lost with it.
func (t *Trees) taskHolds(ctx context.Context, tree Tree, unmerged bool) string {
	unclear := func(err error) string { return Work{Unclear: err.Error()}.String() }
	real, err := filepath.EvalSymlinks(tree.Directory)
	if err != nil {
		return unclear(err)
	}
	home, err := filepath.EvalSymlinks(tree.Repository)
	if err != nil {
		return unclear(err)
	}
	if real != home+strings.TrimPrefix(tree.Directory, tree.Repository) {
		return "a symbolic link is in its path, and it leads to " + real
	}
	if err := t.fits(ctx, tree); err != nil {
		return unclear(err)
	}
	if err := t.trusted(ctx, tree.Directory, false); err != nil {
		return unclear(err)
	}
	var w Work
	if err := t.lookAtFiles(ctx, tree, &w); err != nil {
		return unclear(err)
	}
	if !w.Nothing() {
		return w.String()
	}
	nowhere, err := t.countOf(ctx, tree.Directory, "--branches", "--tags", "--remotes")
	if err != nil {
		return unclear(err)
	}
	if nowhere > 0 {
		return plural(nowhere, "commit") + " that no branch has"
	}
	if unmerged {
		return ""
	}
	head, err := t.git(ctx, gitTime, tree.Repository, "rev-parse", "--verify", "HEAD")
	if err != nil {
		return unclear(err)
	}
	open, err := t.countOf(ctx, tree.Directory, head, "--remotes")
	if err != nil {
		return unclear(err)
	}
	if open > 0 {
		return plural(open, "commit") + " of it that neither what the repository has checked out nor a remote has"
	}
	return ""
}

// countOf is how many commits of a tree none of these has.
func (t *Trees) countOf(ctx context.Context, directory string, has ...string) (int, error) {
	count, err := t.git(ctx, gitTime, directory, append([]string{"rev-list", "--count", "HEAD", "--not"}, has...)...)
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(count)
	if err != nil {
		err = fault.Wrap(fault.Internal, fault.ReasonTreeUnusable, "git does not say how many commits there are", err)
	}
	return n, err
}
