package trees

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/settings"
)

// trap is a program that must not run. It does as a filter, a merge driver, a monitor and a helper.
type trap struct {
	y       *yard
	program string
}

func (y *yard) trap() trap {
	y.t.Helper()
	tr := trap{y, filepath.Join(y.dir, "trap")}
	if err := os.WriteFile(tr.program, []byte("#!/bin/sh\ntouch "+tr.program+".sprung\ncat\n"), 0o755); err != nil {
		y.t.Fatal(err)
	}
	return tr
}

// sprung reports whether it ran since it was asked before.
func (tr trap) sprung() bool { return os.Remove(tr.program+".sprung") == nil }

func (y *yard) append(file, text string) {
	y.t.Helper()
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err == nil {
		_, err = f.WriteString(text)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		y.t.Fatal(err)
	}
}

// submodule gives a tree a submodule that is checked out, and returns where.
func (y *yard) submodule(dir string) string {
	y.t.Helper()
	y.git(dir, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", filepath.Join(y.dir, "hub.git"), "sub")
	y.git(dir, "commit", "--quiet", "-m", "sub")
	y.git(dir, "push", "--quiet", "origin", "HEAD")
	return filepath.Join(dir, "sub")
}

func TestLook_ChangesNothingAndRunsNothingOfTheTree(t *testing.T) {
	ref := item(t, "github:octo/widget#7")
	for _, kind := range kinds {
		for name, row := range map[string]struct {
			set func(y *yard, dir, program string)
			key string // empty where it is only kept from running
		}{
			"a monitor": {func(y *yard, dir, program string) { y.git(dir, "config", "core.fsmonitor", program) }, ""},
			"hooks":     {func(y *yard, dir, _ string) { y.git(dir, "config", "core.hooksPath", y.dir) }, ""},
			"a filter":  {func(y *yard, dir, program string) { y.git(dir, "config", "filter.x.clean", program) }, "filter.x.clean"},
			"a filter without a name": {func(y *yard, dir, program string) {
				y.append(y.git(dir, "rev-parse", "--path-format=absolute", "--git-path", "config"), "[filter \"\"]\n\tclean = "+program+"\n")
			}, "filter..clean"},
			"a filter in capitals": {func(y *yard, dir, program string) { y.git(dir, "config", "FILTER.x.Process", program) }, "filter.x.process"},
			"a filter of this worktree alone": {func(y *yard, dir, program string) {
				y.git(dir, "config", "extensions.worktreeConfig", "true")
				y.git(dir, "config", "--worktree", "filter.x.clean", program)
			}, "filter.x.clean"},
			"a filter in a file that is included": {func(y *yard, dir, program string) {
				y.append(filepath.Join(y.dir, "more"), "[filter \"x\"]\n\tclean = "+program+"\n")
				y.git(dir, "config", "include.path", filepath.Join(y.dir, "more"))
			}, "filter.x.clean"},
			"a filter of a submodule": {func(y *yard, dir, program string) {
				sub := y.submodule(dir)
				y.git(sub, "config", "filter.x.clean", program)
				y.append(filepath.Join(sub, ".gitattributes"), "* filter=x\n")
				y.write(filepath.Join(sub, "README"))
			}, "submodule sub: its own git configuration has filter.x.clean"},
			"a monitor of a submodule": {func(y *yard, dir, program string) { y.git(y.submodule(dir), "config", "core.fsmonitor", program) }, ""},
			"an object that is fetched when it is needed": {func(y *yard, dir, program string) {
				y.git(dir, "config", "remote.origin.promisor", "true")
				y.git(dir, "config", "remote.origin.uploadpack", program)
			}, "remote.origin.uploadpack"},
		} {
			t.Run(kind+", "+name, func(t *testing.T) {
				y := newYard(t)
				y.open(y.kind(kind))
				dir := y.made(ref)
				tr := y.trap()
				row.set(y, dir, tr.program)
				if row.key != "" {
					y.append(filepath.Join(dir, ".gitattributes"), "* filter=x\n")
					if strings.Contains(row.key, "..") {
						y.append(filepath.Join(dir, ".gitattributes"), "* filter=\n")
					}
					y.write(filepath.Join(dir, "README")) // as it was, but git has to look
				}
				tr.sprung()
				w := y.Look(t.Context(), y.Plan(ref))
				if !strings.Contains(w.Unclear, row.key) || (w.Unclear == "") != (row.key == "") || row.key == "" && !w.Nothing() {
					t.Errorf("%v", w)
				}
				_, _, err := y.Left(t.Context(), dir)
				if err != nil {
					t.Error(err)
				}
				if row.key != "" {
					if _, _, err := y.Remove(t.Context(), ref, false); !errors.Is(err, fault.Conflict) || !strings.Contains(err.Error(), "git config --global") {
						t.Errorf("%v", err)
					}
				}
				if tr.sprung() {
					t.Error("something of the tree was run")
				}
				if strings.HasPrefix(name, "a filter") && name != "a filter in capitals" { // the trap is no process of git's protocol
					y.git(dir, "status")
					if !tr.sprung() {
						t.Error("it is no trap: git does not run it")
					}
				}
			})
		}
	}
}

// What whoever runs tmuxd has for all repositories is his own choice, and what names nothing, or is not run by a look, hinders none.
func TestLook_TakesTheProgramsOfWhoeverRunsTmuxd(t *testing.T) {
	y := newYard(t)
	y.open(y.kind(settings.TreeClone))
	ref := item(t, "github:octo/widget#7")
	dir := y.made(ref)
	tr := y.trap()
	y.append(filepath.Join(y.dir, "global"), "[filter \"x\"]\n\tclean = "+tr.program+"\n")
	y.config.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL="+filepath.Join(y.dir, "global"))
	y.git(dir, "config", "merge.x.driver", tr.program)
	y.git(dir, "config", "filter.y.clean", "")
	y.git(dir, "config", "filter.y.required", "false")
	y.append(filepath.Join(dir, ".git", "info", "attributes"), "README filter=x\n")
	y.write(filepath.Join(dir, "README"))
	if w := y.Look(t.Context(), y.Plan(ref)); !w.Nothing() || !tr.sprung() {
		t.Errorf("%v", w)
	}
}

func TestPrepare_RunsNothingThatARepositoryNames(t *testing.T) {
	ref := item(t, "github:octo/widget#7")
	for key, refused := range map[string]bool{
		"remote.origin.uploadpack": true, "filter.x.smudge": true, "credential.helper": true, "credential.https://example.com.helper": true,
		"core.askPass": true, "core.gitProxy": true, "protocol.ext.allow": true, "gpg.program": true,
		"protocol.version": false, "core.sshCommand": false, "core.editor": false, "alias.fetch": false,
	} {
		t.Run(key, func(t *testing.T) {
			y := newYard(t)
			k := y.kind(settings.TreeWorktree)
			y.open(k)
			tr := y.trap()
			value := tr.program
			if key == "protocol.version" {
				value = "2"
			}
			y.git(k.Repository, "config", key, value)
			err := y.Prepare(t.Context(), ref)
			if refused != (err != nil) {
				t.Errorf("%v", err)
			}
			if refused && (!errors.Is(err, fault.Invalid) || fault.ReasonOf(err) != fault.ReasonTreeUnusable || !strings.Contains(strings.ToLower(err.Error()), strings.ToLower(key))) {
				t.Errorf("%v", err)
			}
			if tr.sprung() {
				t.Error("something of the repository was run")
			}
		})
	}
}

func TestPrepare_AWorktreeMayBeOfABareRepository(t *testing.T) {
	y := newYard(t)
	k := y.kind(settings.TreeWorktree)
	k.Repository = filepath.Join(y.dir, "hub.git")
	y.open(k)
	ref := item(t, "github:octo/widget#7")
	y.made(ref)
	if w := y.Look(t.Context(), y.Plan(ref)); w.Unclear != "" || w.Missing {
		t.Errorf("%v", w)
	}
}

func TestPrepareTask_RunsNothingThatARepositoryNames(t *testing.T) {
	y := newYard(t)
	repo := filepath.Join(y.dir, "local")
	dir := filepath.Join(repo+".trees", "crew-1a2b3c4d", "one")
	const branch = "muxpost/crew-1a2b3c4d/one"
	tr := y.trap()
	refused := func(key string, needs ...string) {
		t.Helper()
		y.git(repo, "config", key, tr.program)
		if err := y.PrepareTask(t.Context(), repo, dir, branch, needs); !errors.Is(err, fault.Invalid) || !strings.Contains(err.Error(), key) {
			t.Errorf("%v", err)
		}
		y.git(repo, "config", "--unset", key)
		if tr.sprung() {
			t.Error("something of the repository was run")
		}
	}
	refused("filter.x.smudge")
	if err := y.PrepareTask(t.Context(), repo, dir, branch, nil); err != nil {
		t.Fatal(err)
	}
	y.append(filepath.Join(dir, "README"), "one\n")
	y.git(dir, "commit", "--quiet", "-am", "one")
	y.append(filepath.Join(repo, "README"), "another\n")
	y.git(repo, "commit", "--quiet", "-am", "another")
	y.append(filepath.Join(repo, ".git", "info", "attributes"), "README merge=x\n")
	other := y.git(repo, "rev-parse", "HEAD")
	refused("merge.x.driver", other)
	y.git(repo, "config", "filter.x.clean", tr.program)
	if kept, _, err := y.RemoveTask(t.Context(), repo, dir, branch, true, false); err != nil || !strings.Contains(kept, "filter.x.clean") {
		t.Errorf("%q, %v", kept, err)
	}
}
