package fakegithub

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

var pullRoutes = []route{
	{"GET", "repos/{owner}/{repo}/pulls", (*call).listPulls},
	{"POST", "repos/{owner}/{repo}/pulls", (*call).createPull},
	{"GET", "repos/{owner}/{repo}/pulls/{number}", withPull(func(c *call, is *issue) (reply, error) { return c.ok(c.pullAlone(is)) })},
	{"PATCH", "repos/{owner}/{repo}/pulls/{number}", withPull((*call).patchPull)},
	{"GET", "repos/{owner}/{repo}/pulls/{number}/merge", withPull((*call).isMerged)},
	{"PUT", "repos/{owner}/{repo}/pulls/{number}/merge", withPull((*call).putMerge)},
	{"GET", "repos/{owner}/{repo}/branches/{branch...}", (*call).getBranch},
}

// withPull is withIssue for what is a pull request: an issue's number is not found under pulls ("REST: Get a pull request").
func withPull(handle func(*call, *issue) (reply, error)) func(*call) (reply, error) {
	return withIssue(func(c *call, is *issue) (reply, error) {
		if is.Pull == nil {
			return reply{}, notFound()
		}
		return handle(c, is)
	})
}

// listPulls follows "REST: List pull requests". Its direction is desc when it is sorted by creation or not at all, and asc otherwise.
func (c *call) listPulls() (reply, error) {
	state := cmp.Or(c.query.Get("state"), "open")
	if !slices.Contains([]string{"open", "closed", "all"}, state) {
		return reply{}, invalid("PullRequest", "state", "invalid", "state must be open, closed or all")
	}
	sort := cmp.Or(c.query.Get("sort"), "created")
	if !slices.Contains([]string{"created", "updated", "popularity", "long-running"}, sort) {
		return reply{}, invalid("PullRequest", "sort", "invalid", "sort must be created, updated, popularity or long-running")
	}
	var found []*issue
	for _, is := range c.repo.issues {
		if is.Pull != nil && (state == "all" || state == is.State) && is.hasHead(c.query.Get("head")) &&
			(c.query.Get("base") == "" || c.query.Get("base") == is.Pull.Base) {
			found = append(found, is)
		}
	}
	descending := sort == "created"
	if direction := c.query.Get("direction"); direction != "" {
		descending = direction == "desc"
	}
	slices.SortStableFunc(found, func(a, b *issue) int {
		order := 0
		switch sort {
		case "updated":
			order = a.UpdatedAt.Compare(b.UpdatedAt)
		case "popularity":
			order = len(a.comments) - len(b.comments)
		default:
			order = a.CreatedAt.Compare(b.CreatedAt)
		}
		order = cmp.Or(order, a.Number-b.Number)
		if descending {
			return -order
		}
		return order
	})
	return paginate(c, found, c.pull)
}

// hasHead follows "REST: List pull requests": the filter has the form owner:branch. Anything else filters nothing.
func (is *issue) hasHead(filter string) bool {
	owner, branch, ok := strings.Cut(filter, ":")
	return !ok || strings.EqualFold(owner, is.headOwner()) && branch == is.Pull.Head
}

func (is *issue) headOwner() string {
	switch is.Pull.HeadRepo {
	case "":
		return is.repo.Owner
	case DeletedFork:
		return is.Author
	}
	owner, _, _ := strings.Cut(is.Pull.HeadRepo, "/")
	return owner
}

// pull renders one of a list; merged, merged_by and the counts come only with one that was asked for alone ("REST: List pull requests").
func (c *call) pull(is *issue) object {
	self, page := fmt.Sprintf("%s/pulls/%d", c.repoURL(), is.Number), c.web+is.pagePath()
	about := fmt.Sprintf("%s/issues/%d", c.repoURL(), is.Number)
	var mergeSHA any
	if is.Pull.Merged {
		mergeSHA = is.mergeSHA()
	}
	return object{
		"id": is.ID, "node_id": nodeID("PR", is.repo.id, is.ID), "number": is.Number, "title": is.Title, "body": orNull(is.Body),
		"state": is.State, "locked": is.Locked, "active_lock_reason": nil, "draft": is.Pull.Draft,
		"user": c.account(is.Author), "author_association": is.repo.association(is.Author), "labels": c.labels(is),
		"assignee": c.firstOf(is.Assignees), "assignees": c.accounts(is.Assignees), "milestone": nil,
		"requested_reviewers": []object{}, "requested_teams": []object{}, "auto_merge": nil,
		"created_at": is.CreatedAt, "updated_at": is.UpdatedAt, "closed_at": orNull(is.ClosedAt.UTC()),
		"merged_at": orNull(is.Pull.MergedAt), "merge_commit_sha": mergeSHA,
		"head": c.pullHead(is), "base": c.pullSide(is.repo.Owner, is.Pull.Base, is.repo.branches[is.Pull.Base], c.repository()),
		"url": self, "html_url": page, "diff_url": page + ".diff", "patch_url": page + ".patch", "issue_url": about,
		"commits_url": self + "/commits", "review_comments_url": self + "/comments",
		"review_comment_url": c.repoURL() + "/pulls/comments{/number}", "comments_url": about + "/comments",
		"statuses_url": c.repoURL() + "/statuses/" + is.Pull.HeadSHA,
	}
}

// pullHead has no repository when the fork was deleted ("REST: Get a pull request": head.repo may be null).
func (c *call) pullHead(is *issue) object {
	var from any
	switch is.Pull.HeadRepo {
	case "":
		from = c.repository()
	case DeletedFork:
	default:
		other := *c
		other.repo = c.s.forkFor(is.Pull.HeadRepo)
		from = other.repository()
	}
	return c.pullSide(is.headOwner(), is.Pull.Head, is.Pull.HeadSHA, from)
}

func (c *call) pullSide(owner, ref, sha string, from any) object {
	return object{"label": owner + ":" + ref, "ref": ref, "sha": sha, "user": c.account(owner), "repo": from}
}

func (c *call) pullAlone(is *issue) object {
	out := c.pull(is)
	out["merged"], out["merged_by"] = is.Pull.Merged, nil
	if is.Pull.Merged {
		out["merged_by"] = c.account(is.Pull.MergedBy)
	}
	// Nothing is computed about mergeability: null is what GitHub gives until it has ("REST: Get a pull request").
	out["mergeable"], out["rebaseable"], out["mergeable_state"] = nil, nil, "unknown"
	out["comments"], out["review_comments"] = len(is.comments), len(is.inlineComments())
	out["maintainer_can_modify"] = is.Pull.HeadRepo != ""
	out["commits"], out["additions"], out["deletions"], out["changed_files"] = 1, 1, 0, 1
	return out
}

// createPull follows "REST: Create a pull request": head is a branch, or owner:branch for one of a fork; there is one open pull request
// for a head and a base.
func (c *call) createPull() (reply, error) {
	var in struct {
		Title, Body, Head, Base string
		Draft                   bool
	}
	if err := c.decode(&in); err != nil {
		return reply{}, err
	}
	pull := &Pull{Head: in.Head, Base: in.Base, Draft: in.Draft}
	if owner, branch, ok := strings.Cut(in.Head, ":"); ok {
		pull.Head = branch
		if !strings.EqualFold(owner, c.repo.Owner) {
			pull.HeadRepo = owner + "/" + c.repo.Name
		}
	}
	sha, known := c.repo.branches[pull.Head]
	_, baseKnown := c.repo.branches[in.Base]
	switch {
	case strings.TrimSpace(in.Title) == "":
		return reply{}, invalid("PullRequest", "title", "missing_field", "title is missing")
	case !baseKnown:
		return reply{}, invalid("PullRequest", "base", "invalid", "the base branch does not exist")
	case pull.Head == "" || pull.HeadRepo == "" && (!known || pull.Head == in.Base):
		return reply{}, invalid("PullRequest", "head", "invalid", "the head branch does not exist, or is the base")
	case pull.HeadRepo == "" && !c.mayWrite():
		return reply{}, &problem{status: http.StatusForbidden, message: "Must have admin rights to Repository."}
	}
	for _, is := range c.repo.issues {
		if is.Pull != nil && is.State == "open" && is.Pull.Base == in.Base && is.Pull.Head == pull.Head && strings.EqualFold(is.Pull.HeadRepo, pull.HeadRepo) {
			return reply{}, invalid("PullRequest", "head", "custom", "A pull request already exists for "+is.headOwner()+":"+pull.Head+".")
		}
	}
	if pull.HeadRepo == "" {
		pull.HeadSHA = sha
	}
	if err := checkBody("PullRequest", in.Body); err != nil {
		return reply{}, err
	}
	is, err := c.s.addIssue(c.repo, Issue{Title: in.Title, Body: in.Body, Author: c.user.Login, Pull: pull})
	if err != nil {
		return reply{}, err
	}
	return reply{status: http.StatusCreated, value: c.pullAlone(is)}, nil
}

// patchPull follows "REST: Update a pull request": title, body, state and base, and nothing that issues alone have.
func (c *call) patchPull(is *issue) (reply, error) {
	var in struct{ Base *string }
	if err := c.decode(&in); err != nil {
		return reply{}, err
	}
	if _, known := is.repo.branches[deref(in.Base)]; in.Base != nil && !known {
		return reply{}, invalid("PullRequest", "base", "invalid", "the base branch does not exist")
	}
	if in.Base != nil {
		if err := c.mayChange(is.Author); err != nil {
			return reply{}, err
		}
	}
	if is.Pull.Merged && strings.Contains(string(c.body), `"open"`) {
		return reply{}, invalid("PullRequest", "state", "invalid", "a merged pull request cannot be opened again")
	}
	if _, err := c.patchIssue(is); err != nil {
		return reply{}, err
	}
	if in.Base != nil && *in.Base != is.Pull.Base {
		before := is.Pull.Base
		is.Pull.Base = *in.Base
		is.touch(c.s.now())
		c.s.issueEvent(is, c.user, "edited", object{"changes": object{"base": object{
			"ref": object{"from": before}, "sha": object{"from": is.repo.branches[before]}}}})
	}
	return c.ok(c.pullAlone(is))
}

func deref(text *string) string {
	if text == nil {
		return ""
	}
	return *text
}

// isMerged follows "REST: Check if a pull request has been merged": 204 or 404.
func (c *call) isMerged(is *issue) (reply, error) {
	if !is.Pull.Merged {
		return reply{}, notFound()
	}
	return reply{status: http.StatusNoContent}, nil
}

// putMerge follows "REST: Merge a pull request": 405 when it cannot be merged, 409 when the head is another than the given one.
func (c *call) putMerge(is *issue) (reply, error) {
	if !c.mayWrite() {
		return reply{}, &problem{status: http.StatusForbidden, message: "Must have admin rights to Repository."}
	}
	var in struct{ SHA string }
	if len(c.body) > 0 {
		if err := c.decode(&in); err != nil {
			return reply{}, err
		}
	}
	if is.State != "open" || is.Pull.Draft {
		return reply{}, &problem{status: http.StatusMethodNotAllowed, message: "Pull Request is not mergeable"}
	}
	if in.SHA != "" && in.SHA != is.Pull.HeadSHA {
		return reply{}, &problem{status: http.StatusConflict, message: "Head branch was modified. Review and try the merge again."}
	}
	c.s.mergePull(is, c.user)
	return c.ok(object{"sha": is.mergeSHA(), "merged": true, "message": "Pull Request successfully merged"})
}

// getBranch follows "REST: Get a branch".
func (c *call) getBranch() (reply, error) {
	name := c.vars["branch"]
	sha, known := c.repo.branches[name]
	if !known {
		return reply{}, &problem{status: http.StatusNotFound, message: "Branch not found", doc: "/branches/branches#get-a-branch"}
	}
	return c.ok(object{
		"name": name, "protected": false, "protection_url": c.repoURL() + "/branches/" + name + "/protection",
		"commit": object{"sha": sha, "url": c.repoURL() + "/commits/" + sha, "html_url": c.repoPage() + "/commit/" + sha},
		"_links": object{"self": c.repoURL() + "/branches/" + name, "html": c.repoPage() + "/tree/" + name},
	})
}
