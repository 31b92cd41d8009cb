package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"muxpost.dev/muxpost/internal/needs"
	teamv1 "muxpost.dev/muxpost/proto/gen/muxpost/team/v1"
)

// repository makes a git repository below the root of the hosts.
func (c *crews) repository() (dir string, git func(args ...string) string) {
	c.t.Helper()
	needs.Program(c.t, "git")
	dir = filepath.Join(c.work, "repo")
	git = func(args ...string) string {
		c.t.Helper()
		cmd := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=t", "-c", "user.email=t@localhost"}, args...)...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			c.t.Fatalf("git %v: %v\n%s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		c.t.Fatal(err)
	}
	git("init", "-q", "-b", "main")
	c.write("repo/base", "base\n")
	git("add", ".")
	git("commit", "-qm", "base")
	return dir, git
}

// commit is a script that writes a file and commits it.
func commit(file, text string) string {
	return "echo " + text + " > " + file + "; git add " + file + "; git -c user.name=a -c user.email=a@localhost commit -qm " + file
}

func (c *crews) inTrees(name, dir, policy string, tasks ...string) *teamv1.Spec {
	s := c.spec(name, tasks...)
	s.Directory, s.Trees = dir, policy
	return s
}

func TestTrees_WhatNeedsATaskSeesItsCommitsAndNothingIsMergedElsewhere(t *testing.T) {
	t.Parallel()
	c := newCrews(t, 2)
	c.dispatcher()
	c.answers()
	dir, git := c.repository()
	before := git("rev-parse", "main")
	for _, policy := range []string{"task", "worker"} {
		s := c.inTrees(policy, dir, policy, "a", commit("a", "1")+"; echo x > left", "b", commit("b", "2"), "c<a,b", "cat a b > c; "+commit("c2", "3")+"; git add c; git -c user.name=a -c user.email=a@localhost commit -qm c")
		s.Verify.Prompt = script(`test -e a && test -e b && test -e c && w=$(grep -o "VERDICT-[0-9a-f]\{12\}" "$PROMPT" | tail -1) && echo "$w: pass"`)
		got := c.ends(s, teamv1.Phase_PHASE_COMPLETE)
		name := "muxpost/" + policy + "-" + got.GetRun().GetRunId()[:8]
		var hosts, branches []string
		for _, a := range got.GetAttempts() {
			hosts, branches = append(hosts, a.GetHost()), append(branches, a.GetBranch())
			if !strings.HasPrefix(a.GetBranch(), name+"/") || git("cat-file", "-t", a.GetHead()) != "commit" || !strings.HasPrefix(a.GetDirectory(), dir+".trees/") {
				t.Errorf("%v", a)
			}
			if want := a.GetTaskId() == "a"; policy == "task" && (a.GetUncommitted() == 1) != want {
				t.Errorf("%s has %d files that are not committed", a.GetTaskId(), a.GetUncommitted())
			}
		}
		if slices.Sort(hosts); hosts[0] != hosts[len(hosts)-1] {
			t.Errorf("the commits are in one repository, and the run was on %v", hosts)
		}
		if policy == "task" && !slices.Contains(branches, name+"/c") || policy == "worker" && !slices.Contains(branches, name+"/worker-1") {
			t.Errorf("%v", branches)
		}
		log, err := c.team.GetLog(t.Context(), &teamv1.GetLogRequest{Run: got.GetRun().GetRunId(), TaskId: "c"})
		if err != nil || !strings.Contains(log.GetPrompt(), "on the branch "+name) {
			t.Errorf("%v, %v", log.GetPrompt(), err)
		}
		if git("rev-parse", "main") != before || git("status", "--porcelain") != "" {
			t.Error("the repository itself was changed")
		}
		if files := git("ls-tree", "--name-only", name+"/@verify"); files != "a\nb\nbase\nc\nc2" {
			t.Errorf("the verified branch has %q", files)
		}
	}
}

func TestTrees_WhatCannotBeMergedEndsTheRunAndLosesNothing(t *testing.T) {
	t.Parallel()
	c := newCrews(t, 1)
	c.dispatcher()
	c.answers()
	dir, git := c.repository()
	got := c.ends(c.inTrees("crew", dir, "task", "a", commit("base", "1"), "b", commit("base", "2"), "c<a,b", "touch never"), teamv1.Phase_PHASE_FAILED)
	if r := got.GetRun(); r.GetReason() != "launch_failed" || !strings.Contains(r.GetDetail(), "both changed base") || r.GetFixLoops() != 0 {
		t.Errorf("%v", r)
	}
	name := "muxpost/crew-" + got.GetRun().GetRunId()[:8]
	for branch, want := range map[string]string{"/a": "1", "/b": "2"} {
		if text := git("show", name+branch+":base"); text != want {
			t.Errorf("%s has %q", branch, text)
		}
	}
	if out, err := exec.Command("git", "-C", dir+".trees/"+strings.TrimPrefix(name, "muxpost/")+"/c", "status", "--porcelain").CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("half a merge is left: %s, %v", out, err)
	}
}

func TestTrees_ATreeThatItsAgentRemovedIsNoSuccess(t *testing.T) {
	t.Parallel()
	c := newCrews(t, 1)
	c.dispatcher()
	c.answers()
	dir, _ := c.repository()
	s := c.inTrees("crew", dir, "task", "a", "d=$PWD; cd /; rm -rf $d")
	s.MaxFixLoops = new(int32)
	if r := c.ends(s, teamv1.Phase_PHASE_FAILED).GetRun(); !strings.Contains(r.GetDetail(), "cannot be read any more") {
		t.Errorf("%v", r)
	}
}

func TestTrees_OnlyBelowARootAndOfARepository(t *testing.T) {
	t.Parallel()
	c := newCrews(t, 1)
	c.dispatcher()
	c.answers()
	c.repository()
	for name, dir := range map[string]string{"root": c.work, "outside": c.dir, "plain": filepath.Join(c.work, "plain")} {
		_ = os.Mkdir(filepath.Join(c.work, "plain"), 0o755)
		s := c.inTrees(name, dir, "task", "a", "true")
		if r := c.ends(s, teamv1.Phase_PHASE_FAILED).GetRun(); r.GetReason() != "launch_failed" {
			t.Errorf("%s: %v", name, r)
		}
	}
	if entries, err := filepath.Glob(c.dir + "/*.trees*"); err != nil || len(entries) > 0 {
		t.Errorf("something was made outside of the root: %v", entries)
	}
}
