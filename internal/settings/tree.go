package settings

import (
	"cmp"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

const (
	// defaultBranch is the branch of a work item.
	defaultBranch = "muxpost/{number}"
	// defaultMinFree is the space in MiB that working trees leave.
	defaultMinFree = 1024
)

// withDefaults fills in what an entry leaves out.
func (t Tree) withDefaults() Tree {
	t.Match = cmp.Or(t.Match, "*/*")
	if t.Kind == TreeWorktree || t.Kind == TreeClone {
		t.Branch = cmp.Or(t.Branch, defaultBranch)
	}
	return t
}

// matches reports whether a pattern is for a repository; an empty one is for all.
func matches(pattern, owner, repo string) bool {
	ok, err := path.Match(cmp.Or(pattern, "*/*"), owner+"/"+repo)
	return ok && err == nil
}

// Matches reports whether the entry is for a repository.
func (p Placement) Matches(owner, repo string) bool { return matches(p.Match, owner, repo) }

func (p Placement) check(ps *problems, key string) {
	_, err := path.Match(p.Match, "")
	ps.add(p.Match != "" && (err != nil || strings.Count(p.Match, "/") != 1), "%s.match is %q: write a pattern of owner/repo, such as octo/*", key, p.Match)
	checkLabels(ps, key+".labels", p.Labels)
}

// Matches reports whether the entry is for a repository.
func (t Team) Matches(owner, repo string) bool { return matches(t.Match, owner, repo) }

const (
	// maxTeamRetries bounds how often a failed run is begun again by itself.
	maxTeamRetries = 10
	// defaultTeamBackoff is how long after a failure that is where nothing is said.
	defaultTeamBackoff = 5 * time.Minute
)

// Wait is how long after its first failure a run is begun again.
func (t Team) Wait() time.Duration { return cmp.Or(t.Backoff, defaultTeamBackoff) }

func (t Team) check(ps *problems, key string) {
	ps.add(t.Name != "" && !validName(t.Name), "%s.name is %q: write a short name of a-z, 0-9, - and _, such as review", key, t.Name)
	_, err := path.Match(t.Match, "")
	ps.add(t.Match != "" && (err != nil || strings.Count(t.Match, "/") != 1), "%s.match is %q: write a pattern of owner/repo, such as octo/*", key, t.Match)
	ps.add(t.File == "", "%s.file: name the file that describes the team", key)
	ps.add(t.Retries < 0 || t.Retries > maxTeamRetries, "%s.retries is %d: it must be 0 to %d", key, t.Retries, maxTeamRetries)
	ps.add(t.Backoff < 0, "%s.backoff must not be negative", key)
}

var labelName = regexp.MustCompile(`^[a-z0-9][a-z0-9_.-]{0,62}$`)

func checkLabels(p *problems, key string, labels map[string]string) {
	for _, name := range sortedKeys(labels) {
		p.add(!labelName.MatchString(name), "%s: %q is no name: write a-z, 0-9, points, - and _", key, name)
		p.add(len(labels[name]) > 100, "%s.%s is longer than 100 bytes", key, name)
	}
}

// branchName is what git takes for a branch, and a little less. Words in braces are replaced by what fits in.
var branchName = regexp.MustCompile(`^[A-Za-z0-9{][A-Za-z0-9_.{}-]*(/[A-Za-z0-9{][A-Za-z0-9_.{}-]*)*$`)

// withSecret is an address with a password in it, or with one of GitHub's tokens in the place of the user's name.
var withSecret = regexp.MustCompile(`(?i)^[a-z][a-z0-9+.:-]*://([^/?#@]*:[^/?#]+|(gh[a-z]|github_pat)_[^/?#]*)@`)

func (t Tree) check(p *problems, key string) {
	_, err := path.Match(t.Match, "")
	p.add(err != nil || strings.Count(t.Match, "/") != 1, "%s.match is %q: write a pattern of owner/repo, such as octo/*", key, t.Match)
	p.add(!slices.Contains([]string{TreeDirectory, TreeWorktree, TreeClone}, t.Kind), "%s.kind is %q: write directory, worktree or clone", key, t.Kind)
	p.add(t.Directory != "" && !filepath.IsAbs(t.Directory), "%s.directory: %q is not an absolute path", key, t.Directory)
	if t.Kind != TreeWorktree && t.Kind != TreeClone {
		p.add(t.Repository != "" || t.Base != "" || t.Branch != "", "%s: repository, base and branch are for a worktree or a clone; set kind", key)
		return
	}
	if withSecret.MatchString(t.Repository) {
		// Nothing that is said of it below may repeat it.
		p.add(true, "%s.repository has a password in it, which every user of this host could read while git runs, and the agent afterwards: "+
			"take it out, and let git have it from a credential helper, or use ssh", key)
		return
	}
	p.add(t.Repository == "", "%s.repository is not set: name what the %s is of", key, t.Kind)
	p.add(t.Kind == TreeWorktree && t.Repository != "" && !filepath.IsAbs(t.Repository), "%s.repository: %q is not an absolute path, and a worktree is of a "+
		"repository on this host; kind: clone takes an address", key, t.Repository)
	p.add(strings.HasPrefix(t.Repository, "-") || strings.HasPrefix(t.Repository, "ext::"), "%s.repository: %q is no address that is taken", key, t.Repository)
	p.add(strings.HasPrefix(t.Base, "-"), "%s.base: %q cannot begin with -", key, t.Base)
	p.add(!branchName.MatchString(t.Branch) || strings.Contains(t.Branch, "..") || strings.HasSuffix(t.Branch, ".lock"),
		"%s.branch: %q is no name of a branch", key, t.Branch)
	p.add(!strings.Contains(t.Branch, "{number}") && !strings.Contains(t.Branch, "{target}"),
		"%s.branch: %q would be every item's: use {number} or {target}", key, t.Branch)
}
