package trees

import (
	"bytes"
	"context"
	"errors"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/settings"
)

// gitTime bounds one git command; a clone takes what it takes, within reason.
const (
	gitTime   = time.Minute
	cloneTime = time.Hour
)

// git runs git in a directory and returns what it printed, without the end of the line. The error has git's own last words.
func (t *Trees) git(ctx context.Context, limit time.Duration, dir string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	// Nothing may ask a person, and nothing in a tree decides what runs: no hooks, no file system monitor, no look at signatures, no work in
	// submodules. What can only be named in the configuration is looked for before: see trusted.
	args = append([]string{"-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "log.showSignature=false", "-c", "submodule.recurse=false",
		"-c", "advice.detachedHead=false"}, args...)
	c := exec.CommandContext(ctx, "git", args...)
	c.Dir, c.Env = dir, append(append([]string{}, t.config.Env...), "GIT_TERMINAL_PROMPT=0", "LC_ALL=C", "GIT_SSH_COMMAND=ssh -o BatchMode=yes")
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	c.WaitDelay = time.Second
	var out, words bytes.Buffer
	c.Stdout, c.Stderr = &out, &words
	err := c.Run()
	if err == nil {
		return strings.TrimRight(out.String(), "\n"), nil
	}
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	lines := strings.Split(strings.TrimSpace(words.String()), "\n")
	return "", errors.New("git " + verb(args) + ": " + Hidden(lines[len(lines)-1]))
}

// verb is the command among git's arguments.
func verb(args []string) string {
	for i := 0; i < len(args); i++ {
		if args[i] == "-c" {
			i++
			continue
		}
		return args[i]
	}
	return ""
}

// Hidden is a text without the password of an address in it.
func Hidden(text string) string {
	words := strings.Fields(text)
	for i, w := range words {
		if u, err := url.Parse(strings.Trim(w, `'":`)); err == nil && u.User != nil {
			words[i] = u.Redacted()
		}
	}
	return strings.Join(words, " ")
}

// create makes the tree where nothing is.
func (t *Trees) create(ctx context.Context, tree Tree) error {
	switch tree.Kind {
	case settings.TreeDirectory:
		if err := os.Mkdir(tree.Directory, 0o755); err != nil {
			return cannot(tree, "the directory cannot be made", err)
		}
		return nil
	case settings.TreeWorktree:
		release, err := t.holdRepository(ctx, tree.Repository)
		if err != nil {
			return err
		}
		defer release()
		return t.worktree(ctx, tree)
	}
	return t.clone(ctx, tree)
}

// holdRepository keeps two from changing one repository at once: git would refuse one of them.
func (t *Trees) holdRepository(ctx context.Context, repository string) (release func(), err error) {
	t.mu.Lock()
	turn := t.repos[repository]
	if turn == nil {
		turn = make(chan struct{}, 1)
		t.repos[repository] = turn
	}
	t.mu.Unlock()
	select {
	case turn <- struct{}{}:
		return func() { <-turn }, nil
	case <-ctx.Done():
		return nil, interrupted(ctx)
	}
}

func interrupted(ctx context.Context) error {
	return fault.Wrap(fault.Unavailable, fault.ReasonTreePreparing, "the making of the working tree was interrupted, and begins anew when it is asked for", ctx.Err())
}

// worktree adds a worktree with the item's branch, which is begun from the base where it is not there yet.
func (t *Trees) worktree(ctx context.Context, tree Tree) error {
	repo := tree.Repository
	if _, err := t.git(ctx, gitTime, repo, "rev-parse", "--git-dir"); err != nil {
		return t.failed(ctx, tree, "tmuxd.trees[].repository must be a git repository on this host", err)
	}
	if err := t.trusted(ctx, repo, true); err != nil {
		return t.failed(ctx, tree, "the repository "+repo+" is not trusted", err)
	}
	if remotes, err := t.git(ctx, gitTime, repo, "remote"); err == nil && remotes != "" {
		if _, err := t.git(ctx, cloneTime, repo, "fetch", "--quiet", "--all", "--no-recurse-submodules"); err != nil {
			return t.unreached(ctx, tree, err)
		}
	}
	// What an earlier tree that was removed by hand left behind.
	_, _ = t.git(ctx, gitTime, repo, "worktree", "prune")
	args := []string{"worktree", "add", "--quiet", tree.Directory, tree.Branch}
	if _, err := t.git(ctx, gitTime, repo, "rev-parse", "--verify", "--quiet", "refs/heads/"+tree.Branch); err != nil {
		base, err := t.base(ctx, repo, tree.Base)
		if err != nil {
			return t.failed(ctx, tree, "no commit to begin from: set tmuxd.trees[].base", err)
		}
		args = []string{"worktree", "add", "--quiet", "--no-track", "-b", tree.Branch, tree.Directory, base}
	}
	if _, err := t.git(ctx, cloneTime, repo, args...); err != nil {
		return t.failed(ctx, tree, "the worktree could not be added", err)
	}
	return nil
}

// base is the commit that a new branch begins from.
func (t *Trees) base(ctx context.Context, repo, name string) (string, error) {
	var err error
	for _, candidate := range []string{name, "refs/remotes/origin/HEAD", "HEAD"} {
		if candidate == "" {
			continue
		}
		var commit string
		if commit, err = t.git(ctx, gitTime, repo, "rev-parse", "--verify", "--quiet", "--end-of-options", candidate+"^{commit}"); err == nil {
			return commit, nil
		}
		if name != "" {
			return "", errors.New("there is no " + name)
		}
	}
	return "", err
}

// clone clones beside the place and moves it there whole.
func (t *Trees) clone(ctx context.Context, tree Tree) error {
	half := halfway(tree.Directory)
	if err := os.RemoveAll(half); err != nil {
		return cannot(tree, "what an earlier try left cannot be removed", err)
	}
	if _, err := t.git(ctx, cloneTime, "/", "clone", "--quiet", "--no-recurse-submodules", "--", tree.Repository, half); err != nil {
		return t.unreached(ctx, tree, err)
	}
	// The branch may have been pushed by an earlier tree of the item.
	start := "refs/remotes/origin/" + tree.Branch
	if _, err := t.git(ctx, gitTime, half, "rev-parse", "--verify", "--quiet", start); err != nil {
		if start, err = t.base(ctx, half, remote(tree.Base)); err != nil {
			return t.failed(ctx, tree, "no commit to begin from: set tmuxd.trees[].base", err)
		}
	}
	if _, err := t.git(ctx, cloneTime, half, "checkout", "--quiet", "--no-track", "-B", tree.Branch, start); err != nil {
		return t.failed(ctx, tree, "the branch could not be begun", err)
	}
	if err := os.Rename(half, tree.Directory); err != nil {
		return cannot(tree, "it cannot be put in its place", err)
	}
	return nil
}

func halfway(directory string) string {
	return filepath.Join(filepath.Dir(directory), "."+filepath.Base(directory)+".clone")
}

// remote is what a branch's name means in a clone, which has the remote's branches under origin/.
func remote(base string) string {
	if base == "" || strings.Contains(base, "/") {
		return base
	}
	return "origin/" + base
}

// failed is the error of a git command: what it says will be so the next time too.
func (t *Trees) failed(ctx context.Context, tree Tree, what string, err error) error {
	if t.life.Err() != nil || errors.Is(err, context.Canceled) {
		return interrupted(ctx)
	}
	return cannot(tree, what, err)
}

// unreached is the error of a git command that asks somebody else, who may answer the next time.
func (t *Trees) unreached(ctx context.Context, tree Tree, err error) error {
	if t.life.Err() != nil || errors.Is(err, context.Canceled) {
		return interrupted(ctx)
	}
	return fault.Wrap(fault.Unavailable, fault.ReasonTreePreparing, "the repository "+Hidden(tree.Repository)+" of the working tree cannot be read", err).
		WithRemedy("see that the host reaches it, with credentials that ask nobody; it is tried again by itself")
}

// fits says whether what is there already can be the item's tree: a plain directory is, and a repository with the item's branch.
func (t *Trees) fits(ctx context.Context, tree Tree) error {
	if info, err := os.Stat(tree.Directory); err != nil || !info.IsDir() {
		return cannot(tree, "what is there is no directory", err)
	}
	if tree.Kind == settings.TreeDirectory {
		return nil
	}
	top, err := t.git(ctx, gitTime, tree.Directory, "rev-parse", "--show-toplevel")
	real, realErr := filepath.EvalSymlinks(tree.Directory)
	if err != nil || realErr != nil || top != real {
		return cannot(tree, "something is there that is no working tree of git's; move it away", err)
	}
	return nil // on whatever branch the agent left it
}

// discard removes what is half made. No agent has worked in it.
func (t *Trees) discard(ctx context.Context, tree Tree) error {
	if tree.Kind == settings.TreeWorktree {
		if release, err := t.holdRepository(ctx, tree.Repository); err == nil {
			defer release()
		}
	}
	return t.discardHeld(ctx, tree)
}

// discardHeld is discard for whoever holds the repository.
func (t *Trees) discardHeld(ctx context.Context, tree Tree) error {
	if tree.Kind == settings.TreeWorktree {
		// Twice: a worktree that was being added is locked.
		_, _ = t.git(ctx, gitTime, tree.Repository, "worktree", "remove", "--force", "--force", tree.Directory)
	}
	return errors.Join(os.RemoveAll(tree.Directory), os.RemoveAll(halfway(tree.Directory)))
}
