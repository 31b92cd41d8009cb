package main

import (
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/internal/needs"
	"muxpost.dev/muxpost/internal/settings"
	tmuxdv1 "muxpost.dev/muxpost/proto/gen/muxpost/tmuxd/v1"
	"muxpost.dev/muxpost/services/tmuxd/internal/host"
	"muxpost.dev/muxpost/services/tmuxd/internal/server"
)

// An agent works in a worktree of its item's own, which stays as long as it lives or as anything in it would be lost, and is made anew for the
// agent that comes back.
func TestTrees_AnAgentsWorkingTreeFromItsStartToItsEnd(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	git := r.worktrees()
	s := server.New(r.Host, slog.New(slog.DiscardHandler), server.Facts{}, r.tmux.Socket).WithTrees(r.trees)
	list := func() *tmuxdv1.WorkingTree {
		t.Helper()
		page, err := s.ListTrees(r.ctx(), &tmuxdv1.ListTreesRequest{})
		if err != nil || len(page.GetTrees()) != 1 {
			t.Fatalf("%v, %v", page, err)
		}
		return page.GetTrees()[0]
	}
	remove := func(discard bool) error {
		_, err := s.RemoveTree(r.ctx(), &tmuxdv1.RemoveTreeRequest{WorkItem: r.item.String(), Discard: discard, Reason: "a test"})
		return err
	}

	first := r.started(d1, "hello there")
	if git(first.Directory, "branch", "--show-current") != "muxpost/7" {
		t.Errorf("it works in %s", first.Directory)
	}
	if tree := list(); tree.GetDirectory() != first.Directory || tree.GetKind() != tmuxdv1.TreeKind_TREE_KIND_WORKTREE || tree.GetState() != tmuxdv1.State_STATE_LIVE {
		t.Errorf("%v", tree)
	}
	if err := remove(true); !errors.Is(err, fault.Conflict) || fault.ReasonOf(err) != fault.ReasonTreeInUse {
		t.Errorf("under a living agent: %v", err)
	}
	if err := os.WriteFile(filepath.Join(first.Directory, "work"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	// No policy ends an agent whose work is nowhere else.
	r.until("its turn is over", func() bool { return !strings.Contains(r.screen(), "esc to interrupt") })
	kept, err := r.Terminate(r.ctx(), host.TerminateRequest{Item: r.item, Stamp: first.Incarnation.Stamp, Token: r.token(), Unneeded: true})
	if err != nil || kept.Cause != host.RefusedNeeded || !strings.Contains(kept.Detail, "1 file not committed (work)") {
		t.Errorf("%+v, %v", kept, err)
	}
	r.signal(r.agentPid(), syscall.SIGKILL)
	r.until("it has died", func() bool { return r.state().State == session.Dead })
	if tree := list(); tree.GetNothingToLose() || !strings.Contains(tree.GetHolds(), "1 file not committed (work)") {
		t.Errorf("%v", tree)
	}
	if err := remove(false); !errors.Is(err, fault.Conflict) {
		t.Errorf("with work in it: %v", err)
	}
	git(first.Directory, "add", "work")
	git(first.Directory, "commit", "--quiet", "-m", "work")
	if err := remove(false); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(first.Directory); !errors.Is(err, os.ErrNotExist) {
		t.Error("it is there still")
	}
	// It comes back where it was, with its commits, as its conversation does.
	again, err := r.Spawn(r.ctx(), host.SpawnRequest{Item: r.item, Harness: "fakeagent", Resume: first.Conversation, Directory: first.Directory, Token: r.token()})
	if err != nil || again.Outcome != host.SpawnStarted || again.Directory != first.Directory {
		t.Fatalf("%+v, %v", again, err)
	}
	if _, err := os.Stat(filepath.Join(again.Directory, "work")); err != nil {
		t.Error(err)
	}
}

// worktrees has the agents of the rig work in worktrees of a repository, and returns git.
func (r *rig) worktrees() func(dir string, args ...string) string {
	r.t.Helper()
	needs.Program(r.t, "git")
	git := func(dir string, args ...string) string {
		r.t.Helper()
		c := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=a", "-c", "user.email=a@example.org"}, args...)...)
		out, err := c.CombinedOutput()
		if err != nil {
			r.t.Fatalf("git %v: %v: %s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	repo := filepath.Join(r.dir, "repo")
	if err := os.Mkdir(repo, 0o755); err != nil {
		r.t.Fatal(err)
	}
	git(repo, "init", "--quiet")
	git(repo, "commit", "--quiet", "--allow-empty", "-m", "begin")
	r.kinds = []settings.Tree{{Match: "octo/*", Kind: settings.TreeWorktree, Repository: repo, Branch: "muxpost/{number}"}}
	r.restart()
	return git
}

// An agent is not ended because its tree is configured otherwise by now: what counts is the one that it works in.
func TestTerminateUnneeded_LooksAtTheTreeThatTheAgentWorksIn(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.worktrees()
	first := r.started("", "")
	r.ready()
	if err := os.WriteFile(filepath.Join(first.Directory, "work"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	r.kinds[0].Directory = filepath.Join(r.dir, "work", "elsewhere", "{target}")
	r.restart()
	kept, err := r.Terminate(r.ctx(), host.TerminateRequest{Item: r.item, Stamp: first.Incarnation.Stamp, Token: r.token(), Unneeded: true})
	if err != nil || kept.Cause != host.RefusedNeeded || !strings.Contains(kept.Detail, "1 file not committed (work)") {
		t.Errorf("%+v, %v", kept, err)
	}
	if st := r.state(); st.State != session.Live {
		t.Errorf("%+v", st)
	}
}

// What was there before its agent is shown, with why it stays, and outlives whatever is asked for.
func TestTrees_WhatWasThereBeforeIsShownAndStays(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	place := r.trees.Place(r.item)
	if err := os.MkdirAll(place, 0o755); err != nil {
		t.Fatal(err)
	}
	s := server.New(r.Host, slog.New(slog.DiscardHandler), server.Facts{}, r.tmux.Socket).WithTrees(r.trees)
	r.started(d1, "hello there")
	r.signal(r.agentPid(), syscall.SIGKILL)
	r.until("it has died", func() bool { return r.state().State == session.Dead })
	page, err := s.ListTrees(r.ctx(), &tmuxdv1.ListTreesRequest{})
	if err != nil || len(page.GetTrees()) != 1 {
		t.Fatalf("%v, %v", page, err)
	}
	if tree := page.GetTrees()[0]; tree.GetNothingToLose() || !strings.HasPrefix(tree.GetHolds(), "muxpost did not make it") {
		t.Errorf("%v", tree)
	}
	_, err = s.RemoveTree(r.ctx(), &tmuxdv1.RemoveTreeRequest{WorkItem: r.item.String(), Discard: true, Reason: "a test"})
	if !errors.Is(err, fault.Conflict) || fault.ReasonOf(err) != fault.ReasonTreeInUse {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(place); err != nil {
		t.Error(err)
	}
}
