package trees

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/obs"
	"muxpost.dev/muxpost/internal/settings"
	"muxpost.dev/muxpost/internal/wrapper"
)

// taskTree is a worktree for attempts: beside its repository, on a branch of its own. It is kept until a person removes it.
type taskTree struct {
	// Repository and Directory are absolute paths in their shortest form.
	Repository, Directory string
	// Branch is begun from what the repository has checked out, where it is not there.
	Branch string
	// Needs are commits of the repository that are merged into it.
	Needs []string
}

var (
	taskBranch = regexp.MustCompile(`^muxpost(?:/[A-Za-z0-9@][A-Za-z0-9@._-]{0,80}){1,4}$`)
	commitForm = regexp.MustCompile(`^(?:[0-9a-f]{40}|[0-9a-f]{64})$`)
)

// check refuses what git could read otherwise. Whether the paths are below a root is the caller's to say.
func (t taskTree) check() error {
	bad := func(format string, args ...any) error {
		return fault.Newf(fault.Invalid, fault.ReasonBadArgument, format, args...)
	}
	for _, p := range []string{t.Repository, t.Directory} {
		if !filepath.IsAbs(p) || p != filepath.Clean(p) {
			return bad("%.200q is not an absolute path in its shortest form", p)
		}
	}
	switch {
	case !taskBranch.MatchString(t.Branch) || strings.Contains(t.Branch, "..") || strings.Contains(t.Branch, "@{") || strings.HasSuffix(t.Branch, ".lock") ||
		strings.Contains(t.Branch, ".lock/") || strings.Contains(t.Branch, "./") || strings.HasSuffix(t.Branch, "."):
		return bad("%.200q is no branch for an attempt", t.Branch)
	case t.Directory == t.Repository || strings.HasPrefix(t.Directory, t.Repository+"/"):
		return bad("the worktree %s would be in its own repository", t.Directory)
	}
	for _, c := range t.Needs {
		if !commitForm.MatchString(c) {
			return bad("%.80q is no commit", c)
		}
	}
	return nil
}

// PrepareTask makes a worktree where it is not there, and merges what it needs. What takes longer than a few seconds goes on, as with Prepare.
func (t *Trees) PrepareTask(ctx context.Context, repository, directory, branch string, needs []string) error {
	task := taskTree{Repository: repository, Directory: directory, Branch: branch, Needs: needs}
	if err := task.check(); err != nil {
		return err
	}
	tree := Tree{Kind: settings.TreeWorktree, Directory: task.Directory, Repository: task.Repository, Branch: task.Branch}
	// Whoever comes with other needs meanwhile must not take this for done.
	what := strings.Join(append([]string{"task", repository, branch}, needs...), "\n")
	return t.await(ctx, tree, what, func(ctx context.Context) error { return t.ensureTask(ctx, tree, task.Needs) })
}

// ensureTask makes a worktree that is not there, and merges what it lacks.
func (t *Trees) ensureTask(ctx context.Context, tree Tree, needs []string) error {
	release, err := t.holdRepository(ctx, tree.Repository)
	if err != nil {
		return err
	}
	defer release()
	mark := unfinished(tree.Directory)
	_, half := os.Lstat(mark)
	_, there := os.Lstat(tree.Directory)
	switch {
	case there == nil && half == nil:
		if err := t.discardHeld(ctx, tree); err != nil {
			return cannot(tree, "what an earlier try left cannot be removed", err)
		}
		fallthrough
	case errors.Is(there, fs.ErrNotExist):
		if err := t.addTask(ctx, tree, mark); err != nil {
			return err
		}
	case there != nil:
		return cannot(tree, "it cannot be looked at", there)
	default:
		if err := t.fits(ctx, tree); err != nil {
			return err
		}
	}
	return t.mergeAll(ctx, tree, needs)
}

func (t *Trees) addTask(ctx context.Context, tree Tree, mark string) error {
	if err := os.MkdirAll(filepath.Dir(tree.Directory), 0o755); err != nil {
		return cannot(tree, "its parent cannot be made", err)
	}
	if err := t.room(tree); err != nil {
		return err
	}
	repo := tree.Repository
	if _, err := t.git(ctx, gitTime, repo, "rev-parse", "--git-dir"); err != nil {
		return t.failed(ctx, tree, "the directory of a team with trees must be a git repository on this host", err)
	}
	if err := t.trusted(ctx, repo, true); err != nil {
		return t.failed(ctx, tree, "the repository "+repo+" is not trusted", err)
	}
	if err := wrapper.WriteFile(mark, nil); err != nil {
		return cannot(tree, "it cannot be marked as begun", err)
	}
	_, _ = t.git(ctx, gitTime, repo, "worktree", "prune")
	args := []string{"worktree", "add", "--quiet", tree.Directory, tree.Branch}
	if _, err := t.git(ctx, gitTime, repo, "rev-parse", "--verify", "--quiet", "refs/heads/"+tree.Branch); err != nil {
		args = []string{"worktree", "add", "--quiet", "--no-track", "-b", tree.Branch, tree.Directory, "HEAD"}
	}
	if _, err := t.git(ctx, cloneTime, repo, args...); err != nil {
		unmark(tree)
		return t.failed(ctx, tree, "the worktree could not be added", err)
	}
	if err := os.Remove(mark); err != nil {
		return cannot(tree, "it cannot be marked as made", err)
	}
	return nil
}

// mergeAll merges the commits that the tree has not. One that cannot be merged is taken back whole.
func (t *Trees) mergeAll(ctx context.Context, tree Tree, needs []string) error {
	if len(needs) == 0 {
		return nil
	}
	if err := t.trusted(ctx, tree.Directory, true); err != nil {
		return t.failed(ctx, tree, "nothing is merged into it", err)
	}
	for _, commit := range needs {
		if _, err := t.git(ctx, gitTime, tree.Directory, "merge-base", "--is-ancestor", commit, "HEAD"); err == nil {
			continue
		}
		if _, err := t.git(ctx, gitTime, tree.Directory, "cat-file", "-e", commit+"^{commit}"); err != nil {
			return t.failed(ctx, tree, "the repository has no commit "+commit[:12], err)
		}
		_, err := t.git(ctx, cloneTime, tree.Directory, "-c", "user.name=muxpost", "-c", "user.email=muxpost@localhost", "-c", "merge.autoStash=false", "-c", "commit.gpgSign=false",
			"merge", "--quiet", "--no-edit", "-m", "Merge "+commit[:12]+" into "+tree.Branch, commit)
		if err == nil {
			continue
		}
		conflicts, _ := t.git(ctx, gitTime, tree.Directory, "diff", "--name-only", "--diff-filter=U")
		_, _ = t.git(ctx, gitTime, tree.Directory, "merge", "--abort") // there is none where it did not come to one
		what := "the commit " + commit[:12] + ", which it needs, cannot be merged into " + tree.Branch
		if conflicts != "" {
			what += ": both changed " + strings.Join(strings.Fields(conflicts), ", ")
		}
		return t.failed(ctx, tree, what, err)
	}
	return nil
}

// Left says at which commit a worktree was left, and how many files in it are not committed. One that cannot be read any more, because its agent
// removed it, broke it, or had it name programs for git to run, has no commit; the error says that git could not be asked now.
func (t *Trees) Left(ctx context.Context, directory string) (head string, uncommitted int, err error) {
	head, err = t.git(ctx, gitTime, directory, "rev-parse", "--verify", "HEAD")
	var status string
	if err == nil {
		err = t.trusted(ctx, directory, false)
	}
	if err == nil {
		status, err = t.git(ctx, gitTime, directory, "status", "--porcelain", "--untracked-files=all")
	}
	switch {
	case ctx.Err() != nil:
		return "", 0, fault.Wrap(fault.Unavailable, fault.ReasonTreeUnusable, "the worktree "+directory+" cannot be read now", ctx.Err())
	case err != nil:
		t.config.Logger.WarnContext(ctx, "the worktree of an attempt cannot be read", "directory", directory, obs.KeyError, err)
		return "", 0, nil
	case status != "":
		uncommitted = strings.Count(status, "\n") + 1
	}
	return head, uncommitted, nil
}

func preparing(tree Tree, since time.Time) error {
	return fault.Newf(fault.Unavailable, fault.ReasonTreePreparing, "the working tree %s is being made from %s, for %v so far", tree.Directory,
		Hidden(tree.Repository), time.Since(since).Round(time.Second)).WithRemedy("it goes on by itself").WithRetryAfter(waitTime)
}
