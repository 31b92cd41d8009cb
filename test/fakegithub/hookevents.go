package fakegithub

import (
	"maps"
	"slices"
	"strings"
)

// What follows are the payloads of "Webhook events and payloads", one function for each event.

// issueEvent is "issues", or "pull_request" for a pull request: an edit of one is no event of the other.
func (s *Server) issueEvent(is *issue, by *user, action string, extra object) {
	if is.Pull == nil {
		s.emit(is.repo, by, "issues", action, func(c *call) object {
			out := object{"issue": c.issue(is)}
			maps.Copy(out, extra)
			return out
		})
		return
	}
	s.emit(is.repo, by, "pull_request", action, func(c *call) object {
		out := object{"number": is.Number, "pull_request": c.pullAlone(is)}
		maps.Copy(out, extra)
		return out
	})
}

// openedEvents follow from one creation: GitHub also tells of each label and each assignee that was given with it.
func (s *Server) openedEvents(is *issue, by *user) {
	s.issueEvent(is, by, "opened", nil)
	s.labelEvents(is, by, nil)
	s.assigneeEvents(is, by, nil)
}

// labelEvents are one event for each label that came or went.
func (s *Server) labelEvents(is *issue, by *user, before []string) {
	c := s.eventCall(is.repo)
	for _, name := range without(is.Labels, before) {
		s.lastPut++
		is.labellings = append(is.labellings, labelling{s.lastPut, name, by.Login, s.now()})
		s.issueEvent(is, by, "labeled", object{"label": c.label(name)})
	}
	for _, name := range without(before, is.Labels) {
		s.issueEvent(is, by, "unlabeled", object{"label": c.label(name)})
	}
}

func (s *Server) assigneeEvents(is *issue, by *user, before []string) {
	c := s.eventCall(is.repo)
	for _, login := range without(is.Assignees, before) {
		s.issueEvent(is, by, "assigned", object{"assignee": c.account(login)})
	}
	for _, login := range without(before, is.Assignees) {
		s.issueEvent(is, by, "unassigned", object{"assignee": c.account(login)})
	}
}

func without(all, some []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(one string) bool { return slices.Contains(some, one) })
}

// commentEvent is about issues and pull requests alike; only issue.pull_request tells them apart.
func (s *Server) commentEvent(n *comment, by *user, action string, extra object) {
	s.emit(n.issue.repo, by, "issue_comment", action, func(c *call) object {
		out := object{"issue": c.issue(n.issue), "comment": c.comment(n)}
		maps.Copy(out, extra)
		return out
	})
}

// bodyWas is the changes of an edited text.
func bodyWas(before string) object { return object{"changes": object{"body": object{"from": before}}} }

// reviewEvent has the state in lower case, and null for a text that is empty: REST has neither.
func (s *Server) reviewEvent(rv *review, by *user, action string, extra object) {
	s.emit(rv.issue.repo, by, "pull_request_review", action, func(c *call) object {
		about := c.review(rv)
		about["state"], about["body"] = strings.ToLower(rv.State), orNull(rv.Body)
		out := object{"review": about, "pull_request": c.pull(rv.issue)}
		maps.Copy(out, extra)
		return out
	})
}

func (s *Server) reviewCommentEvent(n *reviewComment, by *user, action string, extra object) {
	s.emit(n.review.issue.repo, by, "pull_request_review_comment", action, func(c *call) object {
		out := object{"comment": c.reviewComment(n), "pull_request": c.pull(n.review.issue)}
		maps.Copy(out, extra)
		return out
	})
}

// checkRunEvents: created for a new one, completed for one that has got a conclusion. That one is in progress is no event.
func (s *Server) checkRunEvents(r *repo, run *CheckRun, isNew bool, before CheckRun) {
	by := s.userFor(run.App + loginBotSuffix)
	fill := func(c *call) object { return object{"check_run": c.checkRun(run)} }
	if isNew {
		s.emit(r, by, "check_run", "created", fill)
	}
	if run.Status == "completed" && (isNew || before.Status != run.Status || before.Conclusion != run.Conclusion) {
		s.emit(r, by, "check_run", "completed", fill)
	}
}

// workflowRunEvents: requested for a new one and for one that is started again, then in_progress and completed.
func (s *Server) workflowRunEvents(r *repo, run *WorkflowRun, isNew bool, before WorkflowRun) {
	by := s.userFor(actionsApp + loginBotSuffix)
	tell := func(action string) {
		s.emit(r, by, "workflow_run", action, func(c *call) object {
			about := c.workflowRun(run)
			return object{"workflow_run": about,
				"workflow": object{"id": about["workflow_id"], "name": run.Name, "path": ".github/workflows/ci.yml", "state": "active"}}
		})
	}
	if isNew || before.RunAttempt != run.RunAttempt {
		tell("requested")
	}
	if run.Status != before.Status && (run.Status == "in_progress" || run.Status == "completed") {
		tell(run.Status)
	}
}

// statusEvent has no action, and its state on the top.
func (s *Server) statusEvent(r *repo, status *Status) {
	s.emit(r, s.userFor(status.Creator), "status", "", func(c *call) object {
		commit := object{"sha": status.SHA, "url": c.repoURL() + "/commits/" + status.SHA, "html_url": c.repoPage() + "/commit/" + status.SHA}
		branches := []object{}
		for name, sha := range r.branches {
			if sha == status.SHA {
				branches = append(branches, object{"name": name, "protected": false, "commit": commit})
			}
		}
		return object{
			"id": status.ID, "sha": status.SHA, "name": r.fullName(), "state": status.State, "context": status.Context,
			"description": orNull(status.Description), "target_url": orNull(status.TargetURL), "avatar_url": nil, "commit": commit,
			"branches": branches, "created_at": status.CreatedAt, "updated_at": status.CreatedAt,
		}
	})
}
