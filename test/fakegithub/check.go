package fakegithub

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"muxpost.dev/muxpost/core/fault"
)

const actionsApp = "github-actions"

// CheckRun is one run of one check on one commit.
type CheckRun struct {
	// ID is given by the server. SetCheckRun makes a new one for 0, and changes the one of that id otherwise.
	ID      int64  `json:"id"`
	HeadSHA string `json:"head_sha"`
	Name    string `json:"name"`
	// Status is queued (the default), in_progress or completed. A conclusion makes it completed.
	Status string `json:"status"`
	// Conclusion is success, failure, neutral, cancelled, skipped, timed_out, action_required or stale.
	Conclusion  string    `json:"conclusion"`
	StartedAt   time.Time `json:"started_at"`
	CompletedAt time.Time `json:"completed_at"`
	DetailsURL  string    `json:"details_url"`
	Title       string    `json:"title"`
	Summary     string    `json:"summary"`
	Annotations int       `json:"annotations"`
	// App is the slug of the app that runs it, github-actions by default.
	App string `json:"app"`
	// Suite is the id of its check suite. When it is 0, an app has one suite for each commit.
	Suite int64 `json:"suite"`
}

// Status is one report on one context of one commit. Reports are never changed: a later one takes the place of an earlier.
type Status struct {
	// ID is given by the server.
	ID  int64  `json:"-"`
	SHA string `json:"sha"`
	// State is error, failure, pending or success.
	State string `json:"state"`
	// Context tells the reporters apart; it is "default" by default.
	Context     string `json:"context"`
	Description string `json:"description"`
	TargetURL   string `json:"target_url"`
	// Creator is a login; empty means the owner of the repository.
	Creator   string    `json:"creator"`
	CreatedAt time.Time `json:"created_at"`
}

// WorkflowRun is one run of a workflow of GitHub Actions. A run that is started again keeps its id, and counts its attempts.
type WorkflowRun struct {
	// ID is given by the server. SetWorkflowRun makes a new one for 0, and changes the one of that id otherwise.
	ID         int64  `json:"id"`
	Name       string `json:"name"`
	HeadSHA    string `json:"head_sha"`
	HeadBranch string `json:"head_branch"`
	// Event is what started it: pull_request by default.
	Event string `json:"event"`
	// Status and Conclusion are as those of a check run.
	Status     string    `json:"status"`
	Conclusion string    `json:"conclusion"`
	RunNumber  int       `json:"run_number"`
	RunAttempt int       `json:"run_attempt"`
	CreatedAt  time.Time `json:"created_at"`
	UpdatedAt  time.Time `json:"updated_at"`
}

// SetCheckRun makes a check run, or changes the one whose ID is given: empty fields then leave what is there, except that a status other
// than completed takes the conclusion away. It fails with fault.NotFound for an unknown repository or id.
func (s *Server) SetCheckRun(owner, name string, run CheckRun) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.findRepo(owner, name)
	if err != nil {
		return 0, err
	}
	made, err := s.setCheckRun(r, run)
	if err != nil {
		return 0, err
	}
	return made.ID, nil
}

func (s *Server) setCheckRun(r *repo, in CheckRun) (*CheckRun, error) {
	was := &CheckRun{Status: "queued", App: actionsApp}
	if in.ID != 0 {
		at := slices.IndexFunc(r.checks, func(run *CheckRun) bool { return run.ID == in.ID })
		if at < 0 {
			return nil, fault.Newf(fault.NotFound, "", "there is no check run %d in %s", in.ID, r.fullName())
		}
		was = r.checks[at]
	}
	run := CheckRun{
		ID: was.ID, HeadSHA: cmp.Or(in.HeadSHA, was.HeadSHA), Name: cmp.Or(in.Name, was.Name), Status: cmp.Or(in.Status, was.Status),
		Conclusion: cmp.Or(in.Conclusion, was.Conclusion), DetailsURL: cmp.Or(in.DetailsURL, was.DetailsURL),
		Title: cmp.Or(in.Title, was.Title), Summary: cmp.Or(in.Summary, was.Summary), Annotations: cmp.Or(in.Annotations, was.Annotations),
		App: cmp.Or(in.App, was.App), Suite: cmp.Or(in.Suite, was.Suite),
		StartedAt: cmp.Or(in.StartedAt, was.StartedAt), CompletedAt: cmp.Or(in.CompletedAt, was.CompletedAt),
	}
	if run.HeadSHA == "" || run.Name == "" {
		return nil, fault.New(fault.Invalid, fault.ReasonBadArgument, "a check run needs a commit and a name")
	}
	run.Status, run.Conclusion = settle(in.Status, in.Conclusion, run.Status, run.Conclusion)
	run.StartedAt, _ = s.times(run.StartedAt, run.StartedAt)
	run.CompletedAt = run.CompletedAt.UTC().Truncate(time.Second)
	if run.Status != "completed" {
		run.CompletedAt = time.Time{}
	} else if run.CompletedAt.IsZero() {
		run.CompletedAt = s.now()
	}
	isNew, before := run.ID == 0, *was
	if isNew {
		s.lastCheck++
		run.ID = s.lastCheck
		run.Suite = cmp.Or(run.Suite, s.suiteFor(r, run.App, run.HeadSHA))
		r.checks = append(r.checks, was)
		r.commits[run.HeadSHA] = true
	}
	*was = run
	s.checkRunEvents(r, was, isNew, before)
	return was, nil
}

// settle follows "REST: Update a check run": a conclusion makes a run completed, and one that runs again has none.
func settle(newStatus, newConclusion, status, conclusion string) (string, string) {
	switch {
	case newConclusion != "":
		return "completed", newConclusion
	case newStatus != "" && newStatus != "completed":
		return newStatus, ""
	case status == "completed" && conclusion == "":
		return status, "success"
	}
	return status, conclusion
}

func (s *Server) suiteFor(r *repo, app, sha string) int64 {
	for _, run := range r.checks {
		if run.App == app && run.HeadSHA == sha {
			return run.Suite
		}
	}
	s.lastSuite++
	return s.lastSuite
}

// SetStatus reports on a commit, and returns the report's id. It fails with fault.NotFound for an unknown repository, and with
// fault.Invalid without a commit or a state that there is.
func (s *Server) SetStatus(owner, name string, status Status) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.findRepo(owner, name)
	if err != nil {
		return 0, err
	}
	made, err := s.setStatus(r, status)
	if err != nil {
		return 0, err
	}
	return made.ID, nil
}

var statusStates = []string{"error", "failure", "pending", "success"}

func (s *Server) setStatus(r *repo, status Status) (*Status, error) {
	if status.SHA == "" || !slices.Contains(statusStates, status.State) {
		return nil, fault.Newf(fault.Invalid, fault.ReasonBadArgument, "a status needs a commit and one of %s", strings.Join(statusStates, ", "))
	}
	s.lastStatus++
	made := status
	made.ID, made.Creator, made.Context = s.lastStatus, s.authorFor(r, status.Creator), cmp.Or(status.Context, "default")
	made.CreatedAt, _ = s.times(status.CreatedAt, status.CreatedAt)
	r.statuses = append(r.statuses, &made)
	r.commits[made.SHA] = true
	s.statusEvent(r, &made)
	return &made, nil
}

// SetWorkflowRun makes a run of a workflow, or changes the one whose ID is given, as SetCheckRun does. It fails likewise.
func (s *Server) SetWorkflowRun(owner, name string, run WorkflowRun) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.findRepo(owner, name)
	if err != nil {
		return 0, err
	}
	made, err := s.setWorkflowRun(r, run)
	if err != nil {
		return 0, err
	}
	return made.ID, nil
}

func (s *Server) setWorkflowRun(r *repo, in WorkflowRun) (*WorkflowRun, error) {
	was := &WorkflowRun{Status: "queued", Event: "pull_request", RunAttempt: 1, Name: "CI"}
	if in.ID != 0 {
		at := slices.IndexFunc(r.runs, func(run *WorkflowRun) bool { return run.ID == in.ID })
		if at < 0 {
			return nil, fault.Newf(fault.NotFound, "", "there is no workflow run %d in %s", in.ID, r.fullName())
		}
		was = r.runs[at]
	}
	run := WorkflowRun{
		ID: was.ID, Name: cmp.Or(in.Name, was.Name), HeadSHA: cmp.Or(in.HeadSHA, was.HeadSHA), HeadBranch: cmp.Or(in.HeadBranch, was.HeadBranch),
		Event: cmp.Or(in.Event, was.Event), Status: cmp.Or(in.Status, was.Status), Conclusion: cmp.Or(in.Conclusion, was.Conclusion),
		RunNumber: cmp.Or(in.RunNumber, was.RunNumber), RunAttempt: cmp.Or(in.RunAttempt, was.RunAttempt),
		CreatedAt: cmp.Or(in.CreatedAt, was.CreatedAt), UpdatedAt: cmp.Or(in.UpdatedAt, s.now()),
	}
	if run.HeadSHA == "" {
		return nil, fault.New(fault.Invalid, fault.ReasonBadArgument, "a workflow run needs a commit")
	}
	run.Status, run.Conclusion = settle(in.Status, in.Conclusion, run.Status, run.Conclusion)
	run.CreatedAt, run.UpdatedAt = s.times(run.CreatedAt, run.UpdatedAt)
	isNew, before := run.ID == 0, *was
	if isNew {
		s.lastRun++
		run.ID = s.lastRun
		run.RunNumber = cmp.Or(run.RunNumber, len(r.runs)+1)
		if run.HeadBranch == "" {
			run.HeadBranch = r.branchAt(run.HeadSHA)
		}
		r.runs = append(r.runs, was)
		r.commits[run.HeadSHA] = true
	}
	*was = run
	s.workflowRunEvents(r, was, isNew, before)
	return was, nil
}

// branchAt finds the branch that a commit is the head of, in a fork too.
func (r *repo) branchAt(sha string) string {
	for _, is := range r.issues {
		if is.Pull != nil && is.Pull.HeadSHA == sha {
			return is.Pull.Head
		}
	}
	for branch, at := range r.branches {
		if at == sha {
			return branch
		}
	}
	return defaultBranch
}

// resolve finds the commit of a ref: a commit, the name of a branch or heads/ and that name ("REST: List check runs for a Git reference").
func (r *repo) resolve(ref string) (string, bool) {
	if r.commits[ref] {
		return ref, true
	}
	if sha, known := r.branches[strings.TrimPrefix(ref, "heads/")]; known {
		return sha, true
	}
	for _, sha := range r.branches {
		if sha == ref {
			return sha, true
		}
	}
	return "", false
}
