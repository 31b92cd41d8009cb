package trees

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/workitem"
	"muxpost.dev/muxpost/internal/obs"
	"muxpost.dev/muxpost/internal/settings"
)

func (t *Trees) records() string { return filepath.Join(t.config.StateDir, "trees") }

func (t *Trees) record(target string) string { return filepath.Join(t.records(), target+".json") }

// Known returns the trees that are remembered, sorted by target: those that were made, and what was there already where one was to be made.
func (t *Trees) Known() ([]Tree, error) {
	all, err := t.remembered()
	slices.SortFunc(all, func(a, b Tree) int { return strings.Compare(a.Target, b.Target) })
	judge(all)
	return all, err
}

// remembered returns the trees that are remembered.
func (t *Trees) remembered() ([]Tree, error) {
	files, err := os.ReadDir(t.records())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []Tree
	for _, f := range files {
		if filepath.Ext(f.Name()) != ".json" || strings.HasPrefix(f.Name(), ".") {
			continue
		}
		tree, err := read(filepath.Join(t.records(), f.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("the record %s cannot be read: %w", f.Name(), err)
		}
		out = append(out, tree)
	}
	return out, nil
}

// Work says what would be lost with a tree.
type Work struct {
	// Missing is true when nothing is there any more.
	Missing bool
	// Changes are the first files that are changed, or not known to git; ignored ones do not count. More is how many there are besides.
	Changes []string
	More    int
	// Unpushed is how many commits no remote has; Stashes how many stashes a clone has.
	Unpushed, Stashes int
	// Unclear says why it cannot be told; empty when it can.
	Unclear string
}

// Nothing reports whether nothing would be lost.
func (w Work) Nothing() bool {
	return w.Unclear == "" && len(w.Changes) == 0 && w.Unpushed == 0 && w.Stashes == 0
}

// String says it in one line for a person.
func (w Work) String() string {
	switch {
	case w.Unclear != "":
		return "it cannot be told what is in it: " + w.Unclear
	case w.Missing:
		return "nothing is there any more"
	}
	var parts []string
	if n := len(w.Changes) + w.More; n > 0 {
		parts = append(parts, plural(n, "file")+" not committed ("+strings.Join(w.Changes, ", ")+")")
	}
	if w.Unpushed > 0 {
		parts = append(parts, plural(w.Unpushed, "commit")+" not pushed")
	}
	if w.Stashes > 0 {
		parts = append(parts, plural(w.Stashes, "stash"))
	}
	if len(parts) == 0 {
		return "nothing in it would be lost"
	}
	return strings.Join(parts, ", ")
}

func plural(n int, what string) string {
	switch {
	case n == 1:
	case strings.HasSuffix(what, "sh"):
		what += "es"
	default:
		what += "s"
	}
	return strconv.Itoa(n) + " " + what
}

// changesShown is how many changed files are named.
const changesShown = 3

// Look says what would be lost with a tree. It changes nothing, and runs nothing that the tree names.
func (t *Trees) Look(ctx context.Context, tree Tree) Work {
	entries, err := os.ReadDir(tree.Directory)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Work{Missing: true}
	case err != nil:
		return Work{Unclear: err.Error()}
	case tree.Kind == settings.TreeDirectory:
		var w Work
		for _, e := range entries {
			w.change(e.Name())
		}
		return w
	}
	if err := t.trusted(ctx, tree.Directory, false); err != nil {
		return Work{Unclear: err.Error()}
	}
	var w Work
	if err := t.lookAtFiles(ctx, tree, &w); err != nil {
		return Work{Unclear: err.Error()}
	}
	if err := t.lookAtCommits(ctx, tree, &w); err != nil {
		return Work{Unclear: err.Error()}
	}
	return w
}

// lookAtFiles counts what is not committed.
func (t *Trees) lookAtFiles(ctx context.Context, tree Tree, w *Work) error {
	// Optional locks would change the tree of an agent that is at work.
	status, err := t.git(ctx, gitTime, tree.Directory, "--no-optional-locks", "status", "--porcelain=v1", "-z", "--untracked-files=normal")
	if err != nil {
		return err
	}
	for entry := range strings.SplitSeq(status, "\x00") {
		if len(entry) > 3 && entry[2] == ' ' { // what follows a rename is its old name
			w.change(entry[3:])
		}
	}
	return nil
}

// Unsaved says in a line what the tree that a work item's agent works in has that is not committed or not pushed, or that it cannot be told; empty for
// nothing, and for a plain directory, of which nobody can tell. Where the agent works counts, whatever is planned for the item by now.
func (t *Trees) Unsaved(ctx context.Context, item workitem.Ref, directory string) string {
	tree, err := read(t.record(item.Target()))
	if errors.Is(err, fs.ErrNotExist) {
		tree, err = t.Plan(item), nil // a plain directory that nothing was made for, say
	}
	switch {
	case err != nil:
		return Work{Unclear: err.Error()}.String()
	case directory == "" || tree.WorkItem != item.String() || resolved(tree.Directory) != resolved(directory):
		return Work{Unclear: "it is not where its tree is remembered, " + tree.Directory}.String()
	case tree.Kind == settings.TreeDirectory:
		return ""
	}
	if w := t.Look(ctx, tree); !w.Nothing() || w.Missing {
		return w.String()
	}
	return ""
}

// lookAtCommits counts what no remote has. With a clone go its branches, tags and stashes; those of a worktree are its repository's, which
// stays, so that in one without remotes only what no branch has would be lost.
func (t *Trees) lookAtCommits(ctx context.Context, tree Tree, w *Work) error {
	remotes, err := t.git(ctx, gitTime, tree.Directory, "remote")
	if err != nil {
		return err
	}
	mine, theirs := []string{"HEAD"}, "--remotes"
	switch {
	case tree.Kind == settings.TreeClone:
		mine = append(mine, "--branches", "--tags")
		stashes, err := t.git(ctx, gitTime, tree.Directory, "stash", "list")
		if err != nil {
			return err
		}
		if stashes != "" {
			w.Stashes = strings.Count(stashes, "\n") + 1
		}
	case remotes == "":
		theirs = "--branches"
	}
	count, err := t.git(ctx, gitTime, tree.Directory, append(append([]string{"rev-list", "--count"}, mine...), "--not", theirs)...)
	if err != nil {
		return err
	}
	w.Unpushed, err = strconv.Atoi(count)
	return err
}

func (w *Work) change(name string) {
	if len(w.Changes) >= changesShown {
		w.More++
		return
	}
	w.Changes = append(w.Changes, printable(name))
}

// Remove removes the tree of a work item. Where anything would be lost that is not committed and pushed it is fault.Conflict, unless discard is
// true, and nothing is touched. So it is, whatever discard says, with a directory that was there before, and with one that is another item's too:
// see Stays. A worktree's branch stays in its repository. The caller sees to it that the item's agent does not work in the tree.
func (t *Trees) Remove(ctx context.Context, item workitem.Ref, discard bool) (Tree, Work, error) {
	known, err := t.Known()
	if err != nil {
		return Tree{}, Work{}, storage(err)
	}
	i := slices.IndexFunc(known, func(k Tree) bool { return k.WorkItem == item.String() })
	if i < 0 {
		return Tree{}, Work{}, fault.Newf(fault.NotFound, fault.ReasonTreeNotFound, "no working tree of %s was made on this host", item)
	}
	tree := known[i]
	release, ok := t.occupy(tree.Directory)
	if !ok {
		return Tree{}, Work{}, fault.Newf(fault.Conflict, fault.ReasonTreePreparing, "the working tree %s is being made", tree.Directory)
	}
	defer release()
	// Only now: whoever was given the same directory a moment ago is remembered.
	if tree, err = t.again(tree); err != nil {
		return Tree{}, Work{}, storage(err)
	}
	w := t.Look(ctx, tree)
	if tree.Stays != "" && !w.Missing {
		return tree, w, fault.Newf(fault.Conflict, fault.ReasonTreeInUse, "the working tree %s is kept: %s", tree.Directory, tree.Stays).
			WithRemedy("remove it yourself when nobody needs it any more; once it is gone, workspaces clean forgets it")
	}
	if !w.Nothing() && !discard {
		return tree, w, fault.Newf(fault.Conflict, fault.ReasonTreeInUse, "the working tree %s is kept: %s", tree.Directory, w).
			WithRemedy("commit and push what is in it; --discard throws it away")
	}
	if err := t.remove(ctx, tree, w.Missing); err != nil {
		return tree, w, fault.Wrap(fault.Conflict, fault.ReasonTreeUnusable, "the working tree "+tree.Directory+" could not be removed", err)
	}
	if err := os.Remove(t.record(tree.Target)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return tree, w, storage(err)
	}
	t.config.Logger.InfoContext(ctx, "a working tree was removed", obs.KeyWorkItem, tree.WorkItem, "directory", tree.Directory, "lost", w.String())
	return tree, w, nil
}

func (t *Trees) remove(ctx context.Context, tree Tree, missing bool) error {
	switch {
	case tree.Kind == settings.TreeWorktree:
	case missing:
		return nil // what came there since is not ours
	default:
		return os.RemoveAll(tree.Directory)
	}
	release, err := t.holdRepository(ctx, tree.Repository)
	if err != nil {
		return err
	}
	defer release()
	if missing {
		_, _ = t.git(ctx, gitTime, tree.Repository, "worktree", "prune")
		return nil
	}
	// Force, for what git ignores: what would be lost was looked for before.
	if _, err := t.git(ctx, gitTime, tree.Repository, "worktree", "remove", "--force", tree.Directory); err != nil {
		if _, gone := os.Lstat(tree.Directory); !errors.Is(gone, fs.ErrNotExist) {
			return err
		}
		_, _ = t.git(ctx, gitTime, tree.Repository, "worktree", "prune")
	}
	return nil
}
