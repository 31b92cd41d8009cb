package fakegithub

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
)

// listRoutes are those of the two lists that an issue or a pull request has: its labels and its assignees.
var listRoutes = []route{
	{"GET", "repos/{owner}/{repo}/issues/{number}/labels", withIssue(func(c *call, is *issue) (reply, error) {
		return reply{status: http.StatusOK, value: c.labels(is)}, nil
	})},
	{"POST", "repos/{owner}/{repo}/issues/{number}/labels", withIssue((*call).addLabels)},
	{"DELETE", "repos/{owner}/{repo}/issues/{number}/labels/{name}", withIssue((*call).removeLabel)},
	{"POST", "repos/{owner}/{repo}/issues/{number}/assignees", withIssue((*call).addAssignees)},
	{"DELETE", "repos/{owner}/{repo}/issues/{number}/assignees", withIssue((*call).removeAssignees)},
}

func (c *call) addLabels(is *issue) (reply, error) {
	if !c.mayWrite() {
		return reply{}, &problem{status: http.StatusForbidden, message: "Must have admin rights to Repository."}
	}
	var in struct{ Labels labelList }
	if err := json.Unmarshal(c.body, &in.Labels); err != nil {
		if err := c.decode(&in); err != nil {
			return reply{}, err
		}
	}
	names := slices.Concat(is.Labels, []string(in.Labels))
	c.s.editIssue(is, c.user, IssueEdit{Labels: &names})
	return reply{status: http.StatusOK, value: c.labels(is)}, nil
}

// removeLabel follows "REST: Remove a label from an issue": it answers with what is left, and 404 for a label that is not on it.
func (c *call) removeLabel(is *issue) (reply, error) {
	if !c.mayWrite() {
		return reply{}, &problem{status: http.StatusForbidden, message: "Must have admin rights to Repository."}
	}
	left := slices.DeleteFunc(slices.Clone(is.Labels), func(name string) bool { return strings.EqualFold(name, c.vars["name"]) })
	if len(left) == len(is.Labels) {
		return reply{}, &problem{status: http.StatusNotFound, message: "Label does not exist"}
	}
	c.s.editIssue(is, c.user, IssueEdit{Labels: &left})
	return reply{status: http.StatusOK, value: c.labels(is)}, nil
}

// addAssignees follows "REST: Add assignees to an issue": those who are assigned already stay.
func (c *call) addAssignees(is *issue) (reply, error) {
	names, err := c.assigneesAsked()
	if err != nil {
		return reply{}, err
	}
	all := slices.Concat(is.Assignees, names)
	c.s.editIssue(is, c.user, IssueEdit{Assignees: &all})
	return reply{status: http.StatusCreated, value: c.issueAlone(is)}, nil
}

// removeAssignees follows "REST: Remove assignees from an issue".
func (c *call) removeAssignees(is *issue) (reply, error) {
	names, err := c.assigneesAsked()
	if err != nil {
		return reply{}, err
	}
	left := without(is.Assignees, c.s.logins(names))
	c.s.editIssue(is, c.user, IssueEdit{Assignees: &left})
	return c.ok(c.issueAlone(is))
}

func (c *call) assigneesAsked() ([]string, error) {
	if !c.mayWrite() {
		return nil, &problem{status: http.StatusForbidden, message: "Must have admin rights to Repository."}
	}
	var in struct{ Assignees []string }
	err := c.decode(&in)
	return in.Assignees, err
}
