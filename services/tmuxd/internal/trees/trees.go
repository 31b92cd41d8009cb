// Package trees prepares the directories that agents work in: a plain directory, a git worktree of a repository of the host's, or a clone.
// Each work item has one, no two share one, and none is removed while anything in it is not committed or not pushed.
//
// It knows git and files, and nothing of tmux, agents or deliveries. Every argument of git's comes from the host's own configuration and from
// the checked parts of a work item's name.
package trees

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/workitem"
	"muxpost.dev/muxpost/internal/obs"
	"muxpost.dev/muxpost/internal/settings"
	"muxpost.dev/muxpost/internal/wrapper"
)

// waitTime is how long whoever asks for a directory waits for it. Afterwards it is made on, and asking again finds it.
const waitTime = 4 * time.Second

// Config says how trees are made.
type Config struct {
	// Trees are the kinds for repositories; the first that matches counts. Where none does, a plain directory is made by Directory, if Make.
	Trees     []settings.Tree
	Directory string
	Make      bool
	// MinFree is the space, in bytes, that must be left where a tree is made.
	MinFree int64
	// StateDir is where it is remembered which trees were made.
	StateDir string
	// Env is git's environment.
	Env    []string
	Logger *slog.Logger
}

// Trees makes directories. It is safe for use by many goroutines.
type Trees struct {
	config Config
	// life ends what is under way.
	life context.Context //nolint:containedctx // What prepares a tree outlives the call that asked for it.
	stop context.CancelFunc

	mu     sync.Mutex
	making map[string]*making // by directory
	repos  map[string]chan struct{}
	all    sync.WaitGroup
}

// making is what is under way in a directory: a tree is made, or removed.
type making struct {
	// what tells what was asked for from anything else in the same directory.
	what  string
	since time.Time
	done  chan struct{}
	err   error
}

// New returns a maker of trees. The caller closes it.
func New(config Config) *Trees {
	life, stop := context.WithCancel(context.Background())
	return &Trees{config: config, life: life, stop: stop, making: map[string]*making{}, repos: map[string]chan struct{}{}}
}

// Close ends what is under way. What is half made is made anew when it is asked for.
func (t *Trees) Close() {
	t.stop()
	t.all.Wait()
}

// Tree is where the agent of a work item works.
type Tree struct {
	WorkItem  string `json:"work_item"`
	Target    string `json:"target"`
	Kind      string `json:"kind"`
	Directory string `json:"directory"`
	// Repository and Branch are those of a worktree or a clone, Base what the branch was begun from; empty for a plain directory.
	Repository string    `json:"repository,omitempty"`
	Branch     string    `json:"branch,omitempty"`
	Base       string    `json:"base,omitempty"`
	CreatedAt  time.Time `json:"created_at"`
	// Made is true when it was made for the item. Otherwise it was there already: it may be somebody's own, and is never removed.
	Made bool `json:"made"`
	// Stays says why it is not removed, whatever is in it; empty when it may be. Known fills it in.
	Stays string `json:"-"`
}

// Plan says where the agent of a work item works, whether that is there or not.
func (t *Trees) Plan(item workitem.Ref) Tree {
	fill := strings.NewReplacer("{owner}", item.Owner(), "{repo}", item.Repo(), "{number}", strconv.FormatUint(item.Number(), 10),
		"{target}", item.Target()).Replace
	out := Tree{WorkItem: item.String(), Target: item.Target(), Kind: settings.TreeDirectory, Directory: fill(t.config.Directory)}
	for _, c := range t.config.Trees {
		if ok, err := path.Match(c.Match, item.Owner()+"/"+item.Repo()); err != nil || !ok {
			continue
		}
		out.Kind = c.Kind
		if c.Directory != "" {
			out.Directory = fill(c.Directory)
		}
		if c.Kind != settings.TreeDirectory {
			out.Repository, out.Branch, out.Base = fill(c.Repository), fill(c.Branch), fill(c.Base)
		}
		break
	}
	return out
}

// Place is the directory of Plan.
func (t *Trees) Place(item workitem.Ref) string { return t.Plan(item).Directory }

// Prepare makes the directory of a work item where it is not there. What takes longer than a few seconds goes on: the error is
// fault.Unavailable with the reason tree_preparing then, and asking again finds it. One that cannot be made is fault.Invalid, and says why.
func (t *Trees) Prepare(ctx context.Context, item workitem.Ref) error {
	tree := t.Plan(item)
	if tree.Kind == settings.TreeDirectory && !t.config.Make {
		return nil // whoever uses it looks whether it is there
	}
	return t.await(ctx, tree, tree.WorkItem, func(ctx context.Context) error { return t.ensure(ctx, tree) })
}

// await has a tree made and waits a while for it. Where something else is under way in its directory (for another item, say) it begins after that:
// what that comes to says nothing of this.
func (t *Trees) await(ctx context.Context, tree Tree, what string, ensure func(context.Context) error) error {
	timer := time.NewTimer(waitTime)
	defer timer.Stop()
	for {
		m := t.begin(tree.Directory, what, ensure)
		select {
		case <-m.done:
			if m.what == what {
				return m.err
			}
			continue
		case <-timer.C:
		case <-ctx.Done():
		}
		return preparing(tree, m.since)
	}
}

// begin has a directory made, once at a time, or returns what is under way there.
func (t *Trees) begin(directory, what string, ensure func(context.Context) error) *making {
	t.mu.Lock()
	defer t.mu.Unlock()
	if m := t.making[directory]; m != nil {
		return m
	}
	m := &making{what: what, since: time.Now(), done: make(chan struct{})}
	t.making[directory] = m
	t.all.Go(func() {
		m.err = ensure(t.life)
		t.over(directory, m)
	})
	return m
}

// over ends what is under way in a directory.
func (t *Trees) over(directory string, m *making) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.making, directory)
	close(m.done)
}

// ensure makes a tree that is not there.
func (t *Trees) ensure(ctx context.Context, tree Tree) error {
	tree, err := t.claim(tree)
	if err != nil {
		return err
	}
	mark := unfinished(tree.Directory)
	_, half := os.Lstat(mark)
	switch _, err := os.Lstat(tree.Directory); {
	case err == nil && half == nil:
		// Nobody ever worked in it: agents begin when the mark is gone.
		if err := t.discard(ctx, tree); err != nil {
			return cannot(tree, "what an earlier try left cannot be removed", err)
		}
	case err == nil:
		return t.fits(ctx, tree)
	case !errors.Is(err, fs.ErrNotExist):
		return cannot(tree, "it cannot be looked at", err)
	}
	if err := os.MkdirAll(filepath.Dir(tree.Directory), 0o755); err != nil {
		return cannot(tree, "its parent cannot be made", err)
	}
	if err := t.room(tree); err != nil {
		return err
	}
	began := time.Now()
	if err := wrapper.WriteFile(mark, nil); err != nil {
		return cannot(tree, "it cannot be marked as begun", err)
	}
	if err := t.create(ctx, tree); err != nil {
		unmark(tree)
		return err
	}
	// Before the mark goes: a tree without one, which nobody remembers as made, would count as somebody's own.
	tree.Made, tree.CreatedAt = true, time.Now()
	if err := t.remember(tree); err != nil {
		return err
	}
	if err := os.Remove(mark); err != nil {
		return cannot(tree, "it cannot be marked as made", err)
	}
	t.config.Logger.InfoContext(ctx, "a working tree was made", obs.KeyWorkItem, tree.WorkItem, "kind", tree.Kind, "directory", tree.Directory,
		"branch", tree.Branch, "duration", time.Since(began))
	return nil
}

// unfinished is the mark of a tree that is being made. It stands beside it, so that it is no part of it.
func unfinished(directory string) string {
	return filepath.Join(filepath.Dir(directory), "."+filepath.Base(directory)+".unfinished")
}

// unmark takes the mark away after a try that left nothing: whatever comes there next is somebody's own.
func unmark(tree Tree) {
	if _, err := os.Lstat(tree.Directory); errors.Is(err, fs.ErrNotExist) {
		os.Remove(unfinished(tree.Directory))
	}
}

// claim remembers whose tree it is, and returns what is remembered of it. A worktree or a clone is one work item's; a plain directory may be a
// fixed one, of which nothing is made for an item.
func (t *Trees) claim(tree Tree) (Tree, error) {
	if own, err := read(t.record(tree.Target)); err == nil && own.WorkItem == tree.WorkItem && own.Directory == tree.Directory {
		tree.Made, tree.CreatedAt = own.Made, own.CreatedAt
		return tree, nil
	}
	known, err := t.remembered()
	if err != nil {
		return tree, fault.Wrap(fault.Unavailable, fault.ReasonStorage, "it cannot be told which trees there are", err)
	}
	for _, k := range known {
		if tree.Kind != settings.TreeDirectory && k.WorkItem != tree.WorkItem && resolved(k.Directory) == resolved(tree.Directory) {
			return tree, fault.Newf(fault.Invalid, fault.ReasonBadConfig, "the directory %s is the working tree of %s, and two agents never share one",
				tree.Directory, k.WorkItem).WithRemedy("use {target} or {number} in tmuxd.directory and tmuxd.trees[].directory")
		}
	}
	tree.CreatedAt = time.Now()
	return tree, t.remember(tree)
}

// remember writes the record of a tree.
func (t *Trees) remember(tree Tree) error {
	if err := os.MkdirAll(t.records(), 0o700); err != nil {
		return storage(err)
	}
	if err := wrapper.WriteJSON(t.record(tree.Target), tree); err != nil {
		return storage(err)
	}
	return nil
}

// room says whether enough space is left.
func (t *Trees) room(tree Tree) error {
	var st unix.Statfs_t
	// What cannot be told holds nobody up.
	known := unix.Statfs(filepath.Dir(tree.Directory), &st) == nil
	if free := int64(st.Bavail) * st.Bsize; known && free < t.config.MinFree {
		return fault.Newf(fault.Throttled, fault.ReasonNoCapacity, "%d MiB are left for working trees, and %d are wanted", free>>20, t.config.MinFree>>20).
			WithRemedy("free space on the host (muxpost workspaces clean --dry-run says what could go), or lower tmuxd.trees_min_free_mib")
	}
	return nil
}

func storage(err error) error {
	return fault.Wrap(fault.Unavailable, fault.ReasonStorage, "the record of a working tree cannot be written", err)
}

// cannot is the error for a tree that cannot be made as things are.
func cannot(tree Tree, what string, err error) error {
	text := fmt.Sprintf("the working tree %s cannot be made: %s", tree.Directory, what)
	if err == nil {
		return fault.New(fault.Invalid, fault.ReasonTreeUnusable, text)
	}
	return fault.Wrap(fault.Invalid, fault.ReasonTreeUnusable, text, err)
}
