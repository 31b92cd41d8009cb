package trees

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/settings"
)

// stays expects that a tree is kept for a reason, even where all of it may be thrown away.
func (y *yard) stays(name, why, file string) {
	y.t.Helper()
	for _, discard := range []bool{false, true} {
		_, _, err := y.Remove(y.t.Context(), item(y.t, name), discard)
		if !errors.Is(err, fault.Conflict) || fault.ReasonOf(err) != fault.ReasonTreeInUse || !strings.Contains(err.Error(), why) {
			y.t.Errorf("%s, discard %v: %v", name, discard, err)
		}
	}
	if _, err := os.Stat(file); err != nil {
		y.t.Fatal(err)
	}
}

// meets is a context that says when it is waited for: whoever waits has begun, or joined, what it waits for.
type meets struct {
	context.Context
	once *sync.Once
	then func()
}

func (m meets) Done() <-chan struct{} {
	m.once.Do(m.then)
	return m.Context.Done()
}

// A person's own checkout may be all there is of what git ignores in it.
func TestRemove_WhatWasThereBeforeStaysUntilItsOwnerRemovesIt(t *testing.T) {
	const name = "github:octo/widget#7"
	for kind, own := range map[string]func(y *yard, dir string){
		settings.TreeClone:    func(y *yard, dir string) { y.git(y.dir, "clone", "--quiet", "hub.git", dir) },
		settings.TreeWorktree: func(y *yard, dir string) { y.git(y.dir+"/local", "worktree", "add", "--quiet", "-b", "mine", dir) },
		settings.TreeDirectory: func(y *yard, dir string) {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				y.t.Fatal(err)
			}
		},
	} {
		t.Run(kind, func(t *testing.T) {
			y := newYard(t)
			y.open(y.kind(kind))
			ref := item(t, name)
			dir := y.Place(ref)
			own(y, dir)
			if kind != settings.TreeDirectory {
				exclude := y.git(dir, "rev-parse", "--path-format=absolute", "--git-path", "info/exclude")
				if err := os.MkdirAll(filepath.Dir(exclude), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(exclude, []byte(".env\n"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			y.write(filepath.Join(dir, ".env"))
			y.made(ref)
			y.stays(name, "muxpost did not make it", filepath.Join(dir, ".env"))
			known, err := y.Known()
			if err != nil || len(known) != 1 || known[0].Made || known[0].Stays == "" {
				t.Errorf("%+v, %v", known, err)
			}
			if kind == settings.TreeWorktree {
				y.git(y.dir+"/local", "worktree", "remove", "--force", dir)
			} else if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
			if _, w, err := y.Remove(t.Context(), ref, false); err != nil || !w.Missing {
				t.Errorf("%v, %v", w, err)
			}
			if known, err := y.Known(); err != nil || len(known) != 0 {
				t.Errorf("%+v, %v", known, err)
			}
			// What is made in its place is muxpost's.
			y.made(ref)
			if _, _, err := y.Remove(t.Context(), ref, false); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestRemove_WhereAnotherItemsAgentWorksStays(t *testing.T) {
	y := newYard(t)
	work := filepath.Join(y.dir, "work")
	y.open(settings.Tree{Match: "octo/inner", Kind: settings.TreeDirectory, Directory: filepath.Join(work, "app", "inner")},
		settings.Tree{Match: "octo/link", Kind: settings.TreeDirectory, Directory: filepath.Join(y.dir, "link")},
		settings.Tree{Match: "octo/linked", Kind: settings.TreeDirectory, Directory: filepath.Join(work, "linked")})
	y.config.Directory = filepath.Join(work, "app")
	seven, eight := "github:octo/widget#7", "github:octo/widget#8"
	y.made(item(t, seven))
	file := filepath.Join(work, "app", "work")
	y.write(file)
	y.made(item(t, eight))
	y.stays(seven, "the agent of "+eight+" works there too", file)
	y.stays(eight, "muxpost did not make it", file)

	inner := "github:octo/inner#9"
	y.made(item(t, inner))
	y.stays(inner, "it lies in "+filepath.Join(work, "app")+", where the agent of ", filepath.Join(work, "app", "inner"))
	if err := os.Remove(y.record(item(t, eight).Target())); err != nil {
		t.Fatal(err)
	}
	y.stays(seven, "in it lies "+filepath.Join(work, "app", "inner"), file)

	linked, link := "github:octo/linked#10", "github:octo/link#11"
	y.made(item(t, linked))
	if err := os.Symlink(filepath.Join(work, "linked"), filepath.Join(y.dir, "link")); err != nil {
		t.Fatal(err)
	}
	y.made(item(t, link))
	y.stays(linked, "the agent of "+link+" works there too", filepath.Join(work, "linked"))
}

func TestRemove_OfAnOlderReleasesTreesOnlyThoseThatBearTheNameOfTheirSession(t *testing.T) {
	y := newYard(t)
	y.open(y.kind(settings.TreeClone))
	older := func(name string) {
		t.Helper()
		file := y.record(item(t, name).Target())
		data, err := os.ReadFile(file)
		var record map[string]any
		if err == nil {
			err = json.Unmarshal(data, &record)
		}
		delete(record, "made")
		if err == nil {
			data, err = json.Marshal(record)
		}
		if err == nil {
			err = os.WriteFile(file, data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	seven, eight := "github:octo/widget#7", "github:octo/widget#8"
	y.made(item(t, seven))
	older(seven)
	y.made(item(t, seven)) // changes nothing of it
	if _, _, err := y.Remove(t.Context(), item(t, seven), false); err != nil {
		t.Error(err)
	}
	k := y.kind(settings.TreeClone)
	k.Directory = filepath.Join(y.dir, "work", "{repo}-{number}")
	y.open(k)
	dir := y.made(item(t, eight))
	older(eight)
	y.stays(eight, "or does not know that it did", filepath.Join(dir, "README"))
}

// One that joined the making of another's tree would share it, and nobody would know.
func TestPrepare_WhoComesWhileAnothersTreeIsMadeThereIsNotGivenIt(t *testing.T) {
	y := newYard(t)
	k := y.kind(settings.TreeWorktree)
	k.Directory = filepath.Join(y.dir, "work", "all")
	y.open(k)
	seven, eight := item(t, "github:octo/widget#7"), item(t, "github:octo/widget#8")
	release, err := y.holdRepository(t.Context(), k.Repository)
	if err != nil {
		t.Fatal(err)
	}
	first := make(chan error)
	begun := make(chan struct{})
	go func() {
		first <- y.Prepare(meets{t.Context(), &sync.Once{}, func() { close(begun) }}, seven)
	}()
	<-begun
	err = y.Prepare(meets{t.Context(), &sync.Once{}, release}, eight)
	if !errors.Is(err, fault.Invalid) || !strings.Contains(err.Error(), seven.String()) {
		t.Errorf("%v", err)
	}
	if err := <-first; err != nil {
		t.Error(err)
	}
}

// An attempt that comes for a tree while it is made with the needs of another begins with its own.
func TestPrepareTask_WhoComesWithOtherNeedsWhileATreeIsMadeHasThem(t *testing.T) {
	y := newYard(t)
	repo := filepath.Join(y.dir, "local")
	var commits []string
	for _, name := range []string{"one", "two"} {
		y.git(repo, "checkout", "--quiet", "-b", name, "main")
		y.commit(repo, name)
		commits = append(commits, y.git(repo, "rev-parse", "HEAD"))
	}
	y.git(repo, "checkout", "--quiet", "main")
	dir := filepath.Join(repo+".trees", "crew-1a2b3c4d", "x")
	const branch = "muxpost/crew-1a2b3c4d/x"
	release, err := y.holdRepository(t.Context(), repo)
	if err != nil {
		t.Fatal(err)
	}
	first, begun := make(chan error), make(chan struct{})
	go func() {
		first <- y.PrepareTask(meets{t.Context(), &sync.Once{}, func() { close(begun) }}, repo, dir, branch, commits[:1])
	}()
	<-begun
	if err := y.PrepareTask(meets{t.Context(), &sync.Once{}, release}, repo, dir, branch, commits[1:]); err != nil {
		t.Error(err)
	}
	if err := <-first; err != nil {
		t.Error(err)
	}
	for _, name := range []string{"one", "two"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
}

func TestRemove_NothingIsMadeWhereATreeIsBeingRemoved(t *testing.T) {
	y := newYard(t)
	ref := item(t, "github:octo/widget#7")
	dir := y.made(ref)
	release, ok := y.occupy(dir)
	if !ok {
		t.Fatal("somebody is there")
	}
	if _, _, err := y.Remove(t.Context(), ref, false); !errors.Is(err, fault.Conflict) {
		t.Errorf("a second removal: %v", err)
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if err := y.Prepare(meets{t.Context(), &sync.Once{}, release}, ref); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir); err != nil {
		t.Error(err)
	}
}

// Where a try failed, a person may do by hand what muxpost could not.
func TestPrepare_WhatAPersonPutsThereAfterATryFailedIsLeftAlone(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			y := newYard(t)
			k := y.kind(kind)
			k.Base = "nowhere"
			y.open(k)
			ref := item(t, "github:octo/widget#7")
			if err := y.Prepare(t.Context(), ref); !errors.Is(err, fault.Invalid) {
				t.Fatalf("%v", err)
			}
			y.git(y.dir, "clone", "--quiet", "hub.git", y.Place(ref))
			file := filepath.Join(y.Place(ref), "mine")
			y.write(file)
			y.made(ref)
			y.stays("github:octo/widget#7", "muxpost did not make it", file)
		})
	}
}

func TestPrepareTask_WhatAPersonPutsThereAfterATryFailedIsLeftAlone(t *testing.T) {
	y := newYard(t)
	repo := filepath.Join(y.dir, "local")
	dir := filepath.Join(repo+".trees", "crew-1a2b3c4d", "one")
	const branch = "muxpost/crew-1a2b3c4d/one"
	y.git(repo, "worktree", "add", "--quiet", "-b", branch, filepath.Join(y.dir, "elsewhere")) // git has a branch in one tree at most
	if err := y.PrepareTask(t.Context(), repo, dir, branch, nil); !errors.Is(err, fault.Invalid) {
		t.Fatalf("%v", err)
	}
	y.git(repo, "worktree", "add", "--quiet", "--detach", dir)
	y.write(filepath.Join(dir, "mine"))
	if err := y.PrepareTask(t.Context(), repo, dir, branch, nil); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "mine")); err != nil {
		t.Error(err)
	}
}

func TestRemoveTask_WhereAnItemsAgentWorksStays(t *testing.T) {
	y := newYard(t)
	repo := filepath.Join(y.dir, "local")
	dir := filepath.Join(repo+".trees", "crew-1a2b3c4d", "one")
	y.open(settings.Tree{Match: "octo/*", Kind: settings.TreeDirectory, Directory: filepath.Join(dir, "sub")})
	const branch = "muxpost/crew-1a2b3c4d/one"
	if err := y.PrepareTask(t.Context(), repo, dir, branch, nil); err != nil {
		t.Fatal(err)
	}
	y.made(item(t, "github:octo/widget#7"))
	kept, _, err := y.RemoveTask(t.Context(), repo, dir, branch, true, false)
	if err != nil || !strings.Contains(kept, "the agent of github:octo/widget#7 works in "+dir) {
		t.Errorf("%q, %v", kept, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "sub")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := y.Remove(t.Context(), item(t, "github:octo/widget#7"), false); err != nil {
		t.Fatal(err)
	}
	if kept, _, err := y.RemoveTask(t.Context(), repo, dir, branch, true, false); err != nil || kept != "" {
		t.Errorf("%q, %v", kept, err)
	}
}
