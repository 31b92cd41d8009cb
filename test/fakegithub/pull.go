package fakegithub

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"muxpost.dev/muxpost/core/fault"
)

const (
	defaultBranch = "main"
	// DeletedFork is the Pull.HeadRepo of a pull request whose fork was deleted.
	DeletedFork = "-"
)

// Pull is what a pull request has beside an issue. Everything has a default, so that Issue.PullRequest alone makes one.
type Pull struct {
	// Head is the branch that is to be merged, HeadSHA the commit that it is at.
	Head    string `json:"head"`
	HeadSHA string `json:"head_sha"`
	// HeadRepo is the fork as owner/name; empty means the same repository, DeletedFork a fork that is gone.
	HeadRepo string `json:"head_repo"`
	// Base is the branch that it is to be merged into, main by default.
	Base  string `json:"base"`
	Draft bool   `json:"draft"`
	// Merged means that the pull request is closed, too. MergedAt and MergedBy have defaults.
	Merged   bool      `json:"merged"`
	MergedAt time.Time `json:"merged_at"`
	MergedBy string    `json:"merged_by"`
	// Closes are issues of the same repository that were linked by hand; those that its text names need not be here.
	Closes []int `json:"closes"`
	// Reviews are added with the pull request.
	Reviews []Review `json:"reviews"`
}

// openPull fills in what a pull request must have. Its head is a branch of the repository, unless it comes from a fork.
func (s *Server) openPull(is *issue) {
	is.PullRequest = true
	pull := &Pull{}
	if is.Pull != nil {
		*pull = *is.Pull
		pull.Closes, pull.Reviews = slices.Clone(pull.Closes), nil
	}
	is.Pull = pull
	if pull.Head == "" {
		pull.Head = fmt.Sprintf("branch-%d", is.Number)
	}
	if pull.Base == "" {
		pull.Base = defaultBranch
	}
	if strings.EqualFold(pull.HeadRepo, is.repo.fullName()) {
		pull.HeadRepo = ""
	}
	if pull.HeadSHA == "" {
		pull.HeadSHA = shaOf(is.repo.Owner, is.repo.Name, pull.HeadRepo, pull.Head)
	}
	is.repo.commits[pull.HeadSHA] = true // a fork's, too: refs/pull holds it
	if pull.HeadRepo == "" {
		is.repo.branches[pull.Head] = pull.HeadSHA
	} else if pull.HeadRepo != DeletedFork {
		s.forkFor(pull.HeadRepo)
	}
	is.repo.addBranch(pull.Base)
	if pull.Merged {
		is.State = "closed"
		if pull.MergedAt.IsZero() {
			pull.MergedAt = is.UpdatedAt
		}
		pull.MergedAt, _ = s.times(pull.MergedAt, pull.MergedAt)
		pull.MergedBy = s.authorFor(is.repo, pull.MergedBy)
		if is.ClosedAt.IsZero() {
			is.ClosedAt, is.ClosedBy = pull.MergedAt, pull.MergedBy
		}
	}
}

// PushHead moves the head of a pull request to another commit, as a push of its author to its branch does. It fails with fault.NotFound for what is no
// pull request, and with fault.Conflict for one that is merged.
func (s *Server) PushHead(owner, name string, number int, sha string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	is, err := s.findPull(owner, name, number)
	if err != nil {
		return err
	}
	if is.Pull.Merged {
		return fault.Newf(fault.Conflict, "", "pull request %d of %s/%s is merged: a push does not reach it", number, owner, name)
	}
	if before := is.Pull.HeadSHA; sha != before {
		s.pushHead(is, sha)
		s.issueEvent(is, s.userFor(is.Author), "synchronize", object{"before": before, "after": sha})
	}
	return nil
}

func (s *Server) pushHead(is *issue, sha string) {
	is.Pull.HeadSHA, is.repo.commits[sha] = sha, true
	if is.Pull.HeadRepo == "" {
		is.repo.branches[is.Pull.Head] = sha
	}
	is.touch(s.now())
}

// MergePull merges a pull request as a login. It fails with fault.NotFound for what is no pull request, and with fault.Conflict for one
// that is closed.
func (s *Server) MergePull(owner, name string, number int, by string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	is, err := s.findPull(owner, name, number)
	if err != nil {
		return err
	}
	if is.State != "open" {
		return fault.Newf(fault.Conflict, "", "pull request %d of %s/%s is closed and cannot be merged", number, owner, name)
	}
	s.mergePull(is, s.userFor(by))
	return nil
}

// mergePull also closes what the pull request is linked to, as "Linking a pull request to an issue" says: only when it is merged into
// the default branch. The branch stays, as it does on GitHub unless the repository is set to delete it.
func (s *Server) mergePull(is *issue, by *user) {
	now := s.now()
	is.Pull.Merged, is.Pull.MergedAt, is.Pull.MergedBy = true, now, by.Login
	is.repo.branches[is.Pull.Base] = is.mergeSHA()
	closed := "closed"
	s.editIssue(is, by, IssueEdit{State: &closed})
	if is.Pull.Base != defaultBranch {
		return
	}
	for _, linked := range is.closes() {
		s.editIssue(linked, by, IssueEdit{State: &closed})
	}
}

func (is *issue) mergeSHA() string { return shaOf(is.Pull.HeadSHA, "merge") }

// AddBranch makes a branch; one that is there stays as it is. It fails with fault.NotFound for an unknown repository.
func (s *Server) AddBranch(owner, name, branch string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.findRepo(owner, name)
	if err != nil {
		return err
	}
	r.addBranch(branch)
	return nil
}

func (r *repo) addBranch(branch string) {
	if _, known := r.branches[branch]; !known {
		r.branches[branch] = shaOf(r.Owner, r.Name, branch)
	}
}

// DeleteBranch removes a branch, as people do after a merge. It fails with fault.NotFound.
func (s *Server) DeleteBranch(owner, name, branch string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.findRepo(owner, name)
	if err != nil {
		return err
	}
	if _, known := r.branches[branch]; !known {
		return fault.Newf(fault.NotFound, "", "there is no branch %q in %s/%s", branch, owner, name)
	}
	delete(r.branches, branch)
	return nil
}

func (s *Server) findPull(owner, name string, number int) (*issue, error) {
	is, err := s.findIssue(owner, name, number)
	if err == nil && is.Pull == nil {
		return nil, fault.Newf(fault.NotFound, "", "%d of %s/%s is an issue and no pull request", number, owner, name)
	}
	return is, err
}

// forkFor finds the repository that a head names. One that was not added exists only there, with an id of its own.
func (s *Server) forkFor(fullName string) *repo {
	key := strings.ToLower(fullName)
	if r := s.repos[key]; r != nil {
		return r
	}
	if s.forks[key] == nil {
		owner, name, _ := strings.Cut(fullName, "/")
		s.lastRepo++
		s.forks[key] = &repo{Repo: Repo{Owner: s.userFor(owner).Login, Name: name, Fork: true}, id: s.lastRepo, created: s.now()}
	}
	return s.forks[key]
}

func (r *repo) fullName() string { return r.Owner + "/" + r.Name }

// shaOf makes a commit's name out of what makes it another one; there is no git behind it.
func shaOf(parts ...string) string {
	sum := sha1.Sum([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:])
}
