package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"muxpost.dev/muxpost/core/fault"
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

func TestTrees_AreRemovedOnRequestWhereNothingIsLost(t *testing.T) {
	t.Parallel()
	c := newCrews(t, 1)
	c.dispatcher()
	c.answers()
	dir, git := c.repository()
	clean := func(run string, change ...func(*teamv1.CleanRunRequest)) (gone []string, kept map[string]string) {
		t.Helper()
		req := &teamv1.CleanRunRequest{Run: run, Who: "ann", Reason: "it is merged"}
		for _, more := range change {
			more(req)
		}
		out, err := c.team.CleanRun(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		kept = map[string]string{}
		for _, tree := range out.GetTrees() {
			if name := filepath.Base(tree.GetDirectory()); tree.GetKept() == "" {
				gone = append(gone, name)
			} else {
				kept[name] = tree.GetKept()
			}
		}
		slices.Sort(gone)
		return gone, kept
	}
	there := func(run *teamv1.Run) (names []string) {
		entries, _ := os.ReadDir(filepath.Join(dir+".trees", run.GetTeam()+"-"+run.GetRunId()[:8]))
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	// In a something is not committed, b is committed, c went off its branch, and in d there is only a new file.
	s := c.inTrees("crew", dir, "task", "a", commit("a", "1")+"; echo x > left", "b", commit("b", "2"),
		"c", "git checkout -q --detach; "+commit("c", "3"), "d", "echo ignored > .git_ignored; true")
	run := c.ends(s, teamv1.Phase_PHASE_COMPLETE).GetRun()
	git("-C", filepath.Join(dir+".trees", "crew-"+run.GetRunId()[:8], "c"), "commit", "-q", "--allow-empty", "-m", "on no branch")
	all := []string{"@verify", "a", "b", "c", "d"}
	dry := func(r *teamv1.CleanRunRequest) { r.DryRun = true }
	unmerged := func(r *teamv1.CleanRunRequest) { r.Unmerged = true }
	gone, kept := clean("crew", dry)
	if len(gone) != 0 || len(kept) != 5 || !slices.Equal(there(run), all) {
		t.Fatalf("%v, %v, %v", gone, kept, there(run))
	}
	for name, want := range map[string]string{"a": "1 file not committed (left)", "b": "1 commit of it that neither", "c": "1 commit that no branch has", "d": "1 file not committed"} {
		if !strings.Contains(kept[name], want) {
			t.Errorf("%s is kept for %q, not %q", name, kept[name], want)
		}
	}
	// With its work merged a tree goes, and only it; then b's by opt-in, and what would be lost never.
	git("merge", "-q", "muxpost/crew-"+run.GetRunId()[:8]+"/b")
	if gone, _ = clean("crew", dry); !slices.Equal(gone, []string{"b"}) || !slices.Equal(there(run), all) {
		t.Fatalf("%v, %v", gone, there(run))
	}
	if gone, _ = clean("crew"); !slices.Equal(gone, []string{"b"}) || slices.Contains(there(run), "b") {
		t.Fatalf("%v, %v", gone, there(run))
	}
	if gone, kept = clean("crew", unmerged); !slices.Equal(gone, []string{"@verify"}) || len(kept) != 3 || !slices.Equal(there(run), []string{"a", "c", "d"}) {
		t.Errorf("%v, %v, %v", gone, kept, there(run))
	}
	// Branches stay, and so does the history.
	for _, name := range []string{"a", "b", "c", "@verify"} {
		git("rev-parse", "--verify", "refs/heads/muxpost/crew-"+run.GetRunId()[:8]+"/"+name)
	}
	got, err := c.team.GetRun(t.Context(), &teamv1.GetRunRequest{Run: "crew"})
	if err != nil || len(got.GetAttempts()) != 5 {
		t.Fatalf("%v, %v", got, err)
	}
	noted := 0
	for _, e := range got.GetHistory() {
		if e.GetWhat() == "tree_removed" && e.GetWho() == "ann" {
			noted++
		}
	}
	if noted != 2 {
		t.Errorf("%d removals are in its history", noted)
	}
	// What leads elsewhere by a symbolic link is not followed.
	other := filepath.Join(dir+".trees", "mine")
	git("worktree", "add", "-q", "-b", "mine", other)
	c.swap(filepath.Join(dir+".trees", "crew-"+run.GetRunId()[:8], "a"), other)
	if _, kept = clean("crew", unmerged); !strings.Contains(kept["a"], "symbolic link") {
		t.Errorf("%v", kept)
	}
	if _, err := os.Stat(filepath.Join(other, "base")); err != nil {
		t.Error(err)
	}
	// Of a run that is not over nothing is touched, nor of one without trees.
	long := c.run(c.inTrees("long", dir, "task", "a", "touch "+c.work+"/works; sleep 300"))
	c.until("it works in its tree", func() bool { return c.lines("works") != nil })
	if _, err := c.team.CleanRun(t.Context(), &teamv1.CleanRunRequest{Run: "long", Unmerged: true}); fault.KindOf(err) != fault.Conflict || !strings.Contains(err.Error(), "not over") {
		t.Errorf("%v", err)
	}
	// Abandoned, its agent may be at work still.
	c.down(0, syscall.SIGKILL)
	if _, err := c.team.AbandonRun(t.Context(), &teamv1.AbandonRunRequest{Run: "long"}); err != nil {
		t.Fatal(err)
	}
	if gone, kept = clean("long", unmerged); len(gone) > 0 || !strings.Contains(kept["a"], "to be stopped still") {
		t.Errorf("%v, %v", gone, kept)
	}
	c.up(0)
	c.until("it is stopped, and its tree goes", func() bool {
		gone, _ := clean("long")
		return slices.Equal(gone, []string{"a"})
	})
	if gone, kept = clean("long"); len(gone)+len(kept)+len(there(long)) != 0 {
		t.Errorf("once more: %v, %v, %v", gone, kept, there(long))
	}
}

// swap puts a symbolic link in the place of a directory.
func (c *crews) swap(dir, to string) {
	c.t.Helper()
	if err := os.Rename(dir, dir+".moved"); err != nil {
		c.t.Fatal(err)
	}
	if err := os.Symlink(to, dir); err != nil {
		c.t.Fatal(err)
	}
}
