package trees

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/workitem"
	"muxpost.dev/muxpost/internal/needs"
	"muxpost.dev/muxpost/internal/settings"
)

// yard has a repository with one commit on main, and makes trees below it.
type yard struct {
	*Trees
	t   *testing.T
	dir string
}

func newYard(t *testing.T, kinds ...settings.Tree) *yard {
	t.Helper()
	needs.Program(t, "git")
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	y := &yard{t: t, dir: dir}
	y.git(dir, "init", "--quiet", "--initial-branch", "main", "origin")
	y.commit(filepath.Join(dir, "origin"), "README")
	y.git(dir, "clone", "--quiet", "--bare", "origin", "hub.git")
	y.git(dir, "clone", "--quiet", "hub.git", "local")
	y.open(kinds...)
	return y
}

// open begins a life of the maker.
func (y *yard) open(kinds ...settings.Tree) {
	y.t.Helper()
	if y.Trees != nil {
		y.Close()
	}
	y.Trees = New(Config{Trees: kinds, Directory: filepath.Join(y.dir, "work", "{target}"), Make: true, StateDir: filepath.Join(y.dir, "state"),
		Env: append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null"), Logger: slog.New(slog.DiscardHandler)})
	y.t.Cleanup(y.Close)
}

func (y *yard) git(dir string, args ...string) string {
	y.t.Helper()
	c := exec.Command("git", append([]string{"-c", "user.name=a", "-c", "user.email=a@example.org"}, args...)...)
	c.Dir, c.Env = dir, append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null")
	out, err := c.CombinedOutput()
	if err != nil {
		y.t.Fatalf("git %v: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func (y *yard) commit(dir, file string) {
	y.t.Helper()
	y.write(filepath.Join(dir, file))
	y.git(dir, "add", file)
	y.git(dir, "commit", "--quiet", "-m", file)
}

func (y *yard) write(file string) {
	y.t.Helper()
	if err := os.WriteFile(file, []byte("text\n"), 0o644); err != nil {
		y.t.Fatal(err)
	}
}

func (y *yard) kind(kind string) settings.Tree {
	repository := map[string]string{settings.TreeWorktree: "local", settings.TreeClone: "hub.git"}[kind]
	return settings.Tree{Match: "octo/*", Kind: kind, Repository: filepath.Join(y.dir, repository), Branch: "muxpost/{number}"}
}

func item(t *testing.T, name string) workitem.Ref {
	t.Helper()
	ref, err := workitem.Parse(name)
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

func (y *yard) made(ref workitem.Ref) string {
	y.t.Helper()
	if err := y.Prepare(y.t.Context(), ref); err != nil {
		y.t.Fatal(err)
	}
	return y.Place(ref)
}

var kinds = []string{settings.TreeWorktree, settings.TreeClone}

func TestPrepare_AnItemHasAWorkingTreeOfItsOwnOnABranchOfItsOwn(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			y := newYard(t)
			y.open(y.kind(kind))
			seven, eight := item(t, "github:octo/widget#7"), item(t, "github:octo/widget#8")
			for _, ref := range []workitem.Ref{seven, eight, seven} { // and once more, which changes nothing
				y.made(ref)
			}
			if y.Place(seven) == y.Place(eight) {
				t.Fatal("they share one")
			}
			if got := y.git(y.Place(seven), "branch", "--show-current"); got != "muxpost/7" {
				t.Errorf("on %s", got)
			}
			if _, err := os.Stat(filepath.Join(y.Place(eight), "README")); err != nil {
				t.Error(err)
			}
			y.git(y.Place(seven), "checkout", "--quiet", "-b", "another") // an agent may
			y.commit(y.Place(seven), "work")
			y.open(y.kind(kind))
			y.made(seven)
			if got := y.git(y.Place(seven), "log", "-1", "--format=%s"); got != "work" {
				t.Errorf("at %q", got)
			}
			if known, err := y.Known(); err != nil || len(known) != 2 || known[0].WorkItem != seven.String() || known[0].Branch != "muxpost/7" {
				t.Errorf("%+v, %v", known, err)
			}
		})
	}
}

func TestPrepare_BeginsFromWhatIsOnTheRemoteNow(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			y := newYard(t)
			other := filepath.Join(y.dir, "other")
			y.git(y.dir, "clone", "--quiet", "hub.git", "other")
			y.commit(other, "news")
			y.git(other, "push", "--quiet", "origin", "HEAD:main", "HEAD:refs/heads/next")
			y.open(y.kind(kind))
			if _, err := os.Stat(filepath.Join(y.made(item(t, "github:octo/widget#7")), "news")); err != nil {
				t.Error(err)
			}
			k := y.kind(kind)
			k.Base = map[string]string{settings.TreeWorktree: "origin/next", settings.TreeClone: "next"}[kind]
			y.open(k)
			y.made(item(t, "github:octo/widget#8"))
			k.Base = "nowhere"
			y.open(k)
			if err := y.Prepare(t.Context(), item(t, "github:octo/widget#9")); !errors.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "nowhere") {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestPrepare_OnlyWhatMatchesAndElseAPlainDirectory(t *testing.T) {
	y := newYard(t)
	y.open(y.kind(settings.TreeClone))
	other := item(t, "github:acme/widget#7")
	if tree := y.Plan(other); tree.Kind != settings.TreeDirectory || tree.Branch != "" {
		t.Errorf("%+v", tree)
	}
	if info, err := os.Stat(y.made(other)); err != nil || !info.IsDir() {
		t.Error(err)
	}
}

func TestPrepare_ManyAtOnceMakeEachOnce(t *testing.T) {
	y := newYard(t)
	y.open(y.kind(settings.TreeWorktree))
	var wg sync.WaitGroup
	for n := range 24 {
		ref := item(t, "github:octo/widget#"+string(rune('1'+n%8)))
		wg.Go(func() {
			// The yard's machine may be busy: what takes long is asked about again.
			for end := time.Now().Add(time.Minute); ; {
				err := y.Prepare(context.Background(), ref)
				if err == nil {
					return
				}
				if fault.ReasonOf(err) != fault.ReasonTreePreparing || time.Now().After(end) {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if n := strings.Count(y.git(filepath.Join(y.dir, "local"), "worktree", "list"), "\n"); n != 8 {
		t.Errorf("%d worktrees", n)
	}
}

// A tmuxd that dies in the middle leaves a half tree and the mark that says so. Whatever is in it, it is made anew.
func TestPrepare_WhatIsHalfMadeIsMadeAnew(t *testing.T) {
	for _, kind := range append(kinds, settings.TreeDirectory) {
		t.Run(kind, func(t *testing.T) {
			y := newYard(t)
			y.open(y.kind(kind))
			if kind == settings.TreeDirectory {
				y.open()
			}
			ref := item(t, "github:octo/widget#7")
			dir := y.made(ref)
			y.write(unfinished(dir))
			y.write(filepath.Join(dir, "half"))
			if kind == settings.TreeWorktree {
				y.git(y.dir+"/local", "worktree", "lock", "--reason", "initializing", dir)
			}
			y.made(ref)
			if _, err := os.Stat(filepath.Join(dir, "half")); !errors.Is(err, os.ErrNotExist) {
				t.Error("the half one is used")
			}
			if _, err := os.Stat(unfinished(dir)); !errors.Is(err, os.ErrNotExist) {
				t.Error("it counts as half made still")
			}
			if _, err := os.Stat(filepath.Join(dir, "README")); (err == nil) != (kind != settings.TreeDirectory) {
				t.Error(err)
			}
		})
	}
}

func TestPrepare_SomethingElseThatIsThereIsLeftAlone(t *testing.T) {
	for _, kind := range kinds {
		y := newYard(t)
		y.open(y.kind(kind))
		ref := item(t, "github:octo/widget#7")
		if err := os.MkdirAll(y.Place(ref), 0o755); err != nil {
			t.Fatal(err)
		}
		y.write(filepath.Join(y.Place(ref), "mine"))
		if err := y.Prepare(t.Context(), ref); !errors.Is(err, fault.Invalid) || fault.ReasonOf(err) != fault.ReasonTreeUnusable {
			t.Errorf("%v", err)
		}
		if _, err := os.Stat(filepath.Join(y.Place(ref), "mine")); err != nil {
			t.Error(err)
		}
	}
}

func TestPrepare_TellsAMistakeFromARepositoryThatDoesNotAnswer(t *testing.T) {
	ref := item(t, "github:octo/widget#7")
	y := newYard(t)
	k := y.kind(settings.TreeWorktree)
	k.Repository = filepath.Join(y.dir, "nowhere")
	y.open(k)
	if err := y.Prepare(t.Context(), ref); !errors.Is(err, fault.Invalid) {
		t.Errorf("a worktree of nothing: %v", err)
	}
	k = y.kind(settings.TreeClone)
	k.Repository = "https://user:secret@127.0.0.1:1/octo/widget.git"
	y.open(k)
	err := y.Prepare(t.Context(), ref)
	if fault.KindOf(err) != fault.Unavailable || strings.Contains(err.Error(), "secret") {
		t.Errorf("a repository that does not answer: %v", err)
	}
	k = y.kind(settings.TreeClone)
	y.open(k)
	y.made(ref) // afterwards it is made
	y.config.MinFree = 1 << 62
	if err := y.Prepare(t.Context(), item(t, "github:octo/widget#8")); !errors.Is(err, fault.Throttled) || fault.ReasonOf(err) != fault.ReasonNoCapacity {
		t.Errorf("without space: %v", err)
	}
}

func TestPrepare_TwoItemsNeverShareATree(t *testing.T) {
	y := newYard(t)
	k := y.kind(settings.TreeClone)
	k.Directory = filepath.Join(y.dir, "work", "all")
	y.open(k)
	y.made(item(t, "github:octo/widget#7"))
	if err := y.Prepare(t.Context(), item(t, "github:octo/widget#8")); !errors.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "github:octo/widget#7") {
		t.Errorf("%v", err)
	}
}

func TestRemove_NothingThatWouldBeLost(t *testing.T) {
	ref := item(t, "github:octo/widget#7")
	for _, kind := range kinds {
		for name, work := range map[string]func(y *yard, dir string){
			"a changed file": func(y *yard, dir string) {
				y.write(filepath.Join(dir, "README"))
				_ = os.WriteFile(filepath.Join(dir, "README"), []byte("more"), 0o644)
			},
			"a new file":         func(y *yard, dir string) { y.write(filepath.Join(dir, "new\nfile")) },
			"an unpushed commit": func(y *yard, dir string) { y.commit(dir, "work") },
			"a commit on no branch": func(y *yard, dir string) {
				y.git(dir, "checkout", "--quiet", "--detach")
				y.commit(dir, "work")
			},
			"a merge under way": func(y *yard, dir string) {
				y.commit(dir, "a")
				y.git(dir, "push", "--quiet", "origin", "HEAD")
				y.write(filepath.Join(dir, "staged"))
				y.git(dir, "add", "staged")
			},
		} {
			t.Run(kind+", "+name, func(t *testing.T) {
				y := newYard(t)
				y.open(y.kind(kind))
				dir := y.made(ref)
				work(y, dir)
				_, w, err := y.Remove(t.Context(), ref, false)
				if !errors.Is(err, fault.Conflict) || w.Nothing() || strings.ContainsAny(err.Error(), "\n") {
					t.Errorf("%v, %v", w, err)
				}
				if _, err := os.Stat(filepath.Join(dir, ".git")); err != nil {
					t.Fatal(err)
				}
				if _, _, err := y.Remove(t.Context(), ref, true); err != nil {
					t.Error(err)
				}
				if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
					t.Error("it is there still")
				}
			})
		}
	}
}

func TestRemove_ACloneKeepsItsStashesAndOtherBranches(t *testing.T) {
	ref := item(t, "github:octo/widget#7")
	y := newYard(t)
	y.open(y.kind(settings.TreeClone))
	dir := y.made(ref)
	y.git(dir, "checkout", "--quiet", "-b", "aside")
	y.commit(dir, "aside")
	y.git(dir, "checkout", "--quiet", "muxpost/7")
	if w := y.Look(t.Context(), y.Plan(ref)); w.Unpushed != 1 {
		t.Errorf("%+v", w)
	}
	y.git(dir, "push", "--quiet", "origin", "aside")
	if err := os.WriteFile(filepath.Join(dir, "README"), []byte("more"), 0o644); err != nil {
		t.Fatal(err)
	}
	y.git(dir, "stash", "--quiet")
	if w := y.Look(t.Context(), y.Plan(ref)); w.Unpushed != 0 || w.Stashes != 1 || w.Nothing() {
		t.Errorf("%+v", w)
	}
}

func TestRemove_WhatIsPushedGoesAndComesBackWithItsBranch(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			y := newYard(t)
			y.open(y.kind(kind))
			ref := item(t, "github:octo/widget#7")
			dir := y.made(ref)
			y.commit(dir, "work")
			y.git(dir, "push", "--quiet", "origin", "HEAD")
			if _, w, err := y.Remove(t.Context(), ref, false); err != nil || !w.Nothing() {
				t.Fatalf("%v, %v", w, err)
			}
			if known, err := y.Known(); err != nil || len(known) != 0 {
				t.Errorf("%v, %v", known, err)
			}
			if _, _, err := y.Remove(t.Context(), ref, false); !errors.Is(err, fault.NotFound) {
				t.Errorf("again: %v", err)
			}
			y.made(ref)
			if _, err := os.Stat(filepath.Join(dir, "work")); err != nil {
				t.Error(err)
			}
		})
	}
}

// A worktree's commits are on its branch, in a repository that stays.
func TestRemove_AWorktreeOfARepositoryWithoutRemotesLosesOnlyWhatNoBranchHas(t *testing.T) {
	y := newYard(t)
	k := y.kind(settings.TreeWorktree)
	k.Repository = filepath.Join(y.dir, "origin") // it has none
	y.open(k)
	ref := item(t, "github:octo/widget#7")
	dir := y.made(ref)
	y.commit(dir, "work")
	if w := y.Look(t.Context(), y.Plan(ref)); !w.Nothing() {
		t.Errorf("%v", w)
	}
	y.git(dir, "checkout", "--quiet", "--detach")
	y.commit(dir, "more")
	if w := y.Look(t.Context(), y.Plan(ref)); w.Unpushed != 1 {
		t.Errorf("%v", w)
	}
}

// An agent goes on where it was begun, whatever the configuration says by now.
func TestUnsaved_CountsWhereTheAgentWorks(t *testing.T) {
	ref := item(t, "github:octo/widget#7")
	for _, kind := range kinds {
		y := newYard(t)
		y.open(y.kind(kind))
		dir := y.made(ref)
		unsaved := func(directory, want string) {
			t.Helper()
			if got := y.Unsaved(t.Context(), ref, directory); (got == "") != (want == "") || !strings.Contains(got, want) {
				t.Errorf("%s: %q", kind, got)
			}
		}
		unsaved(dir, "")
		y.write(filepath.Join(dir, "work"))
		moved := y.kind(kind)
		moved.Directory = filepath.Join(y.dir, "elsewhere", "{target}")
		for _, now := range [][]settings.Tree{{moved}, nil} {
			y.open(now...)
			unsaved(dir, "1 file not committed (work)")
		}
		unsaved(filepath.Join(y.dir, "elsewhere"), "cannot be told")
		unsaved("", "cannot be told")
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		unsaved(dir, "nothing is there any more")
	}
	y := newYard(t)
	dir := y.made(ref)
	y.write(filepath.Join(dir, "work"))
	if got := y.Unsaved(t.Context(), ref, dir); got != "" {
		t.Errorf("of a plain directory nobody can tell: %q", got)
	}
}
