package fakegithub

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

var checkRoutes = []route{
	{"GET", "repos/{owner}/{repo}/commits/{ref...}/check-runs", withCommit((*call).listCheckRuns)},
	{"GET", "repos/{owner}/{repo}/commits/{ref...}/status", withCommit((*call).combinedStatus)},
	{"GET", "repos/{owner}/{repo}/commits/{ref...}/statuses", withCommit((*call).listStatuses)},
	{"POST", "repos/{owner}/{repo}/statuses/{sha}", (*call).createStatus},
	{"GET", "repos/{owner}/{repo}/check-runs/{id}", (*call).getCheckRun},
	{"GET", "repos/{owner}/{repo}/actions/runs", (*call).listRuns},
	{"GET", "repos/{owner}/{repo}/actions/runs/{id}", (*call).getRun},
}

// withCommit finds the commit of a ref. One that is not there gets 422, which GitHub documents for commits ("REST: Get a commit").
func withCommit(handle func(*call, string) (reply, error)) func(*call) (reply, error) {
	return func(c *call) (reply, error) {
		sha, known := c.repo.resolve(c.vars["ref"])
		if !known {
			return reply{}, noCommit(c.vars["ref"])
		}
		return handle(c, sha)
	}
}

func noCommit(ref string) error {
	return &problem{status: http.StatusUnprocessableEntity, message: "No commit found for SHA: " + ref}
}

// listCheckRuns follows "REST: List check runs for a Git reference": unless filter is all, only the latest run of each check in a suite.
func (c *call) listCheckRuns(sha string) (reply, error) {
	filter := cmp.Or(c.query.Get("filter"), "latest")
	if filter != "latest" && filter != "all" {
		return reply{}, invalid("CheckRun", "filter", "invalid", "filter must be latest or all")
	}
	type check struct {
		app, name string
		suite     int64
	}
	seen := map[check]bool{}
	var found []*CheckRun
	for _, run := range slices.Backward(c.repo.checks) {
		key := check{run.App, run.Name, run.Suite}
		if run.HeadSHA != sha || filter == "latest" && seen[key] {
			continue
		}
		seen[key] = true
		if is(run.Status, c.query.Get("status")) && is(run.Name, c.query.Get("check_name")) {
			found = append(found, run)
		}
	}
	return paginateUnder(c, "check_runs", found, c.checkRun)
}

// is reports whether a value passes a filter; an empty one lets everything pass.
func is(value, filter string) bool { return filter == "" || value == filter }

func (c *call) getCheckRun() (reply, error) {
	for _, run := range c.repo.checks {
		if strconv.FormatInt(run.ID, 10) == c.vars["id"] {
			return c.ok(c.checkRun(run))
		}
	}
	return reply{}, notFound()
}

func (c *call) checkRun(run *CheckRun) object {
	page := fmt.Sprintf("%s/runs/%d", c.repoPage(), run.ID)
	return object{
		"id": run.ID, "node_id": nodeID("CR", c.repo.id, run.ID), "head_sha": run.HeadSHA, "name": run.Name, "external_id": "",
		"status": run.Status, "conclusion": orNull(run.Conclusion), "started_at": run.StartedAt, "completed_at": orNull(run.CompletedAt),
		"url": fmt.Sprintf("%s/check-runs/%d", c.repoURL(), run.ID), "html_url": page, "details_url": cmp.Or(run.DetailsURL, page),
		"output": object{"title": orNull(run.Title), "summary": orNull(run.Summary), "text": nil, "annotations_count": run.Annotations,
			"annotations_url": fmt.Sprintf("%s/check-runs/%d/annotations", c.repoURL(), run.ID)},
		"app":           object{"id": appID(run.App), "slug": run.App, "name": run.App},
		"check_suite":   object{"id": run.Suite},
		"pull_requests": c.pullsAt(run.HeadSHA),
	}
}

// appID is a number for an app that is known by its slug alone.
func appID(slug string) int64 {
	if slug == actionsApp {
		return 15368 // the real one's
	}
	return int64(len(slug))*1000 + int64(slug[0])
}

// pullsAt are the open pull requests that a commit is the head of. Those from forks are not among them: "REST API endpoints for check
// runs" says that a push to a fork is not detected, and the list is empty.
func (c *call) pullsAt(sha string) []object {
	out := []object{}
	for _, is := range c.repo.issues {
		if is.Pull != nil && is.State == "open" && is.Pull.HeadRepo == "" && is.Pull.HeadSHA == sha {
			name := object{"id": c.repo.id, "name": c.repo.Name, "url": c.repoURL()}
			out = append(out, object{
				"id": is.ID, "number": is.Number, "url": fmt.Sprintf("%s/pulls/%d", c.repoURL(), is.Number),
				"head": object{"ref": is.Pull.Head, "sha": sha, "repo": name},
				"base": object{"ref": is.Pull.Base, "sha": c.repo.branches[is.Pull.Base], "repo": name},
			})
		}
	}
	return out
}

// listStatuses follows "REST: List commit statuses for a reference": all of them, the newest first.
func (c *call) listStatuses(sha string) (reply, error) {
	return paginate(c, c.repo.statusesOf(sha), c.status)
}

func (r *repo) statusesOf(sha string) []*Status {
	var out []*Status
	for _, status := range slices.Backward(r.statuses) {
		if status.SHA == sha {
			out = append(out, status)
		}
	}
	return out
}

// combinedStatus follows "REST: Get the combined status for a specific reference": of each context the newest report; failure when one
// says error or failure, pending when there is none or one says so, success otherwise.
func (c *call) combinedStatus(sha string) (reply, error) {
	var latest []*Status
	for _, status := range c.repo.statusesOf(sha) {
		if !slices.ContainsFunc(latest, func(s *Status) bool { return s.Context == status.Context }) {
			latest = append(latest, status)
		}
	}
	state := "success"
	if len(latest) == 0 {
		state = "pending"
	}
	for _, status := range latest {
		switch status.State {
		case "error", "failure":
			state = "failure"
		case "pending":
			if state == "success" {
				state = "pending"
			}
		}
	}
	page, link := pageOf(c, latest, func(status *Status) object {
		out := c.status(status)
		delete(out, "creator") // the simple form has none
		return out
	})
	return reply{status: http.StatusOK, link: link, value: object{
		"state": state, "statuses": page, "sha": sha, "total_count": len(latest), "repository": c.repository(),
		"commit_url": c.repoURL() + "/commits/" + sha, "url": c.repoURL() + "/commits/" + sha + "/status",
	}}, nil
}

func (c *call) status(status *Status) object {
	return object{
		"id": status.ID, "node_id": nodeID("SC", c.repo.id, status.ID), "state": status.State, "context": status.Context,
		"description": orNull(status.Description), "target_url": orNull(status.TargetURL), "avatar_url": "",
		"url": c.repoURL() + "/statuses/" + status.SHA, "created_at": status.CreatedAt, "updated_at": status.CreatedAt,
		"creator": c.account(status.Creator),
	}
}

// createStatus follows "REST: Create a commit status".
func (c *call) createStatus() (reply, error) {
	if !c.mayWrite() {
		return reply{}, notFound() // without access, a write is not there ("REST: Create a commit status")
	}
	var in struct {
		State, Context, Description string
		TargetURL                   string `json:"target_url"`
	}
	if err := c.decode(&in); err != nil {
		return reply{}, err
	}
	if _, known := c.repo.resolve(c.vars["sha"]); !known {
		return reply{}, noCommit(c.vars["sha"])
	}
	made, err := c.s.setStatus(c.repo, Status{SHA: c.vars["sha"], State: strings.ToLower(in.State), Context: in.Context,
		Description: in.Description, TargetURL: in.TargetURL, Creator: c.user.Login})
	if err != nil {
		return reply{}, invalid("Status", "state", "invalid", "state is not included in the list")
	}
	return reply{status: http.StatusCreated, value: c.status(made)}, nil
}

// listRuns follows "REST: List workflow runs for a repository": the newest first; status takes a conclusion too.
func (c *call) listRuns() (reply, error) {
	var found []*WorkflowRun
	for _, run := range slices.Backward(c.repo.runs) {
		status := c.query.Get("status")
		if is(run.HeadSHA, c.query.Get("head_sha")) && is(run.HeadBranch, c.query.Get("branch")) && is(run.Event, c.query.Get("event")) &&
			(is(run.Status, status) || is(run.Conclusion, status)) {
			found = append(found, run)
		}
	}
	return paginateUnder(c, "workflow_runs", found, c.workflowRun)
}

func (c *call) getRun() (reply, error) {
	for _, run := range c.repo.runs {
		if strconv.FormatInt(run.ID, 10) == c.vars["id"] {
			return c.ok(c.workflowRun(run))
		}
	}
	return reply{}, notFound()
}

func (c *call) workflowRun(run *WorkflowRun) object {
	return object{
		"id": run.ID, "node_id": nodeID("WFR", c.repo.id, run.ID), "name": run.Name, "display_title": run.Name, "head_sha": run.HeadSHA,
		"head_branch": run.HeadBranch, "event": run.Event, "status": run.Status, "conclusion": orNull(run.Conclusion),
		"run_number": run.RunNumber, "run_attempt": run.RunAttempt, "workflow_id": 1 + int64(len(run.Name)),
		"url": fmt.Sprintf("%s/actions/runs/%d", c.repoURL(), run.ID), "html_url": fmt.Sprintf("%s/actions/runs/%d", c.repoPage(), run.ID),
		"pull_requests": c.pullsAt(run.HeadSHA), "created_at": run.CreatedAt, "updated_at": run.UpdatedAt, "run_started_at": run.UpdatedAt,
		"repository": c.repository(),
	}
}
