package fakegithub

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"

	"muxpost.dev/muxpost/core/fault"
)

// Seed is state as JSON: the file for --seed and the body for POST /_fake/seed.
type Seed struct {
	// Tokens maps an API token to a login.
	Tokens map[string]string `json:"tokens"`
	Users  []User            `json:"users"`
	Repos  []Repo            `json:"repos"`
	Apps   []App             `json:"apps"`
}

// ParseSeed reads a seed. It fails with fault.Invalid for anything but one JSON object of known fields.
func ParseSeed(data []byte) (Seed, error) {
	var seed Seed
	if err := strictJSON(data, &seed); err != nil {
		return Seed{}, err
	}
	return seed, nil
}

// Load adds a seed to what is there. A repository that exists gets the seed's hooks, issues and checks, an issue that exists
// the seed's comments and reviews, so that a later seed can let a person say something more. What was added before an error stays.
func (s *Server) Load(seed Seed) error {
	for _, u := range seed.Users {
		s.AddUser(u)
	}
	for _, a := range seed.Apps {
		if err := s.AddApp(a); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addTokens(seed.Tokens)
	for _, r := range seed.Repos {
		if s.repos[repoKey(r.Owner, r.Name)] == nil {
			if err := s.addRepo(r); err != nil {
				return err
			}
			continue
		}
		if err := s.loadInto(s.repos[repoKey(r.Owner, r.Name)], r); err != nil {
			return err
		}
	}
	return nil
}

// loadInto adds to a repository that exists. Its hooks come first, so that they tell of what follows.
func (s *Server) loadInto(known *repo, seed Repo) error {
	if err := s.loadHooks(known, seed); err != nil {
		return err
	}
	for _, branch := range seed.Branches {
		known.addBranch(branch)
	}
	for _, is := range seed.Issues {
		there := known.issue(is.Number)
		if there == nil {
			if _, err := s.addIssue(known, is); err != nil {
				return err
			}
			continue
		}
		for _, c := range is.Comments {
			s.addComment(there, c)
		}
		if err := s.loadReviews(there, is.Pull); err != nil {
			return err
		}
	}
	return s.loadChecks(known, seed)
}

func (s *Server) loadHooks(r *repo, seed Repo) error {
	for _, h := range seed.Hooks {
		if _, err := s.addHook(r, nil, r.owner, h); err != nil {
			return err
		}
	}
	return nil
}

func (s *Server) loadReviews(is *issue, pull *Pull) error {
	if pull == nil || len(pull.Reviews) == 0 {
		return nil
	}
	if is.Pull == nil {
		return fault.Newf(fault.Invalid, fault.ReasonBadArgument, "%d of %s is an issue, and is not reviewed", is.Number, is.repo.fullName())
	}
	for _, rv := range pull.Reviews {
		if _, err := s.addReview(is, rv); err != nil {
			return err
		}
	}
	return nil
}

func (s *Server) loadChecks(r *repo, seed Repo) error {
	for _, run := range seed.CheckRuns {
		if _, err := s.setCheckRun(r, run); err != nil {
			return err
		}
	}
	for _, status := range seed.Statuses {
		if _, err := s.setStatus(r, status); err != nil {
			return err
		}
	}
	for _, run := range seed.WorkflowRuns {
		if _, err := s.setWorkflowRun(r, run); err != nil {
			return err
		}
	}
	return nil
}

// strictJSON refuses unknown fields, because a misspelt one would otherwise seed something else in silence.
func strictJSON(data []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(into)
	if err == nil {
		if _, end := decoder.Token(); !errors.Is(end, io.EOF) {
			err = errors.New("there is more after the first value")
		}
	}
	if err != nil {
		return fault.Wrap(fault.Invalid, fault.ReasonBadArgument, "this is not the JSON that is expected here", err)
	}
	return nil
}
