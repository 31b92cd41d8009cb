package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/task"
	"muxpost.dev/muxpost/internal/needs"
	"muxpost.dev/muxpost/services/tmuxd/internal/attempt"
)

// A coordinator that another has taken over from changes no branch and no tree any more, and what can never be launched none at all.
func TestFence_WhatIsNotLaunchedTouchesNoWorktree(t *testing.T) {
	t.Parallel()
	needs.Program(t, "git")
	b := newBench(t)
	repo := filepath.Join(b.work, "repo")
	git := func(args ...string) string {
		t.Helper()
		c := exec.Command("git", append([]string{"-C", repo, "-c", "user.name=a", "-c", "user.email=a@example.org"}, args...)...)
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v: %s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	if err := os.Mkdir(repo, 0o755); err != nil {
		t.Fatal(err)
	}
	git("init", "--quiet")
	git("commit", "--quiet", "--allow-empty", "-m", "begin")
	if err := b.state.RaiseFloor(200); err != nil {
		t.Fatal(err)
	}
	launch := func(change func(*attempt.LaunchRequest)) (string, error) {
		req := b.request("exit 0")
		req.Directory, req.Token = filepath.Join(repo+".trees", "crew-1a2b3c4d", "one"), 300
		req.Tree = &attempt.Tree{Repository: repo, Branch: "muxpost/crew-1a2b3c4d/one"}
		change(&req)
		_, _, err := b.Launch(b.ctx(), req)
		return req.ID, err
	}
	for name, row := range map[string]struct {
		change func(*attempt.LaunchRequest)
		kind   error
	}{
		"a token below the floor": {func(r *attempt.LaunchRequest) { r.Token = 199 }, fault.Fenced},
		"no token":                {func(r *attempt.LaunchRequest) { r.Token = 0 }, fault.Invalid},
		"no such harness":         {func(r *attempt.LaunchRequest) { r.Harness = "nobody" }, fault.Invalid},
		"no prompt":               {func(r *attempt.LaunchRequest) { r.Prompt = "" }, fault.Invalid},
	} {
		if _, err := launch(row.change); !errors.Is(err, row.kind) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Stat(repo + ".trees"); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: a worktree was made", name)
		}
		if branches := git("branch", "--list", "muxpost/*"); branches != "" {
			t.Errorf("%s: there is %s", name, branches)
		}
	}
	id, err := launch(func(*attempt.LaunchRequest) {})
	if err != nil {
		t.Fatal(err)
	}
	b.becomes(id, task.Succeeded)
}
