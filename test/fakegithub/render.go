package fakegithub

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"net/url"
	"strings"
	"time"
)

// nodeID makes an id in GitHub's own form: a prefix for the kind, then the MessagePack of the ids that lead to the thing.
func nodeID(prefix string, ids ...int64) string {
	packed := []byte{0x91 + byte(len(ids)), 0x00}
	for _, id := range ids {
		if id < 1<<32 {
			packed = binary.BigEndian.AppendUint32(append(packed, 0xce), uint32(id))
		} else {
			packed = binary.BigEndian.AppendUint64(append(packed, 0xcf), uint64(id))
		}
	}
	return prefix + "_" + base64.RawURLEncoding.EncodeToString(packed)
}

func orNull[T comparable](value T) any {
	var zero T
	if value == zero {
		return nil
	}
	return value
}

func (c *call) account(login string) object {
	u := c.s.userFor(login)
	escaped := url.PathEscape(u.Login)
	return object{
		"login": u.Login, "id": u.id, "node_id": nodeID("U", u.id), "type": u.Type, "site_admin": false, "user_view_type": "public",
		"url": c.api + "/users/" + escaped, "html_url": c.web + "/" + escaped, "avatar_url": "", "gravatar_id": "",
	}
}

func (c *call) accounts(logins []string) []object {
	out := make([]object, 0, len(logins))
	for _, login := range logins {
		out = append(out, c.account(login))
	}
	return out
}

// firstOf is for the field assignee, which GitHub keeps beside assignees for old clients.
func (c *call) firstOf(logins []string) any {
	if len(logins) == 0 {
		return nil
	}
	return c.account(logins[0])
}

func (c *call) repoURL() string  { return c.api + "/repos/" + c.repo.Owner + "/" + c.repo.Name }
func (c *call) repoPage() string { return c.web + "/" + c.repo.Owner + "/" + c.repo.Name }

func (c *call) repository() object {
	r := c.repo
	open := 0
	for _, is := range r.issues {
		if is.State == "open" {
			open++
		}
	}
	visibility := "public"
	if r.Private {
		visibility = "private"
	}
	out := object{
		"id": r.id, "node_id": nodeID("R", r.id), "name": r.Name, "full_name": r.Owner + "/" + r.Name, "private": r.Private,
		"owner": c.account(r.Owner), "html_url": c.repoPage(), "url": c.repoURL(), "description": orNull(r.Description), "fork": r.Fork,
		"issues_url": c.repoURL() + "/issues{/number}", "issue_comment_url": c.repoURL() + "/issues/comments{/number}",
		"created_at": r.created, "updated_at": r.created, "pushed_at": r.created, "has_issues": true, "archived": false,
		"disabled": false, "open_issues_count": open, "open_issues": open, "default_branch": defaultBranch, "visibility": visibility,
	}
	if c.user != nil {
		write := c.mayWrite()
		admin := r.association(c.user.Login) == Owner
		out["permissions"] = object{"admin": admin, "maintain": admin, "push": write, "triage": write, "pull": true}
	}
	return out
}

func (c *call) labels(is *issue) []object {
	out := make([]object, 0, len(is.Labels))
	for _, name := range is.Labels {
		out = append(out, c.label(name))
	}
	return out
}

func (c *call) label(name string) object {
	l := c.repo.labels[strings.ToLower(name)]
	return object{
		"id": l.id, "node_id": nodeID("LA", c.repo.id, l.id), "name": l.name, "color": "ededed", "default": false,
		"description": nil, "url": c.repoURL() + "/labels/" + url.PathEscape(l.name),
	}
}

func (is *issue) pagePath() string {
	kind := "issues"
	if is.PullRequest {
		kind = "pull"
	}
	return fmt.Sprintf("/%s/%s/%s/%d", is.repo.Owner, is.repo.Name, kind, is.Number)
}

// issue renders one of a list; closed_by comes only with an issue that was asked for alone.
func (c *call) issue(is *issue) object {
	self := fmt.Sprintf("%s/issues/%d", c.repoURL(), is.Number)
	prefix := "I"
	if is.PullRequest {
		prefix = "PR"
	}
	out := object{
		"id": is.ID, "node_id": nodeID(prefix, is.repo.id, is.ID), "number": is.Number, "title": is.Title, "body": orNull(is.Body),
		"state": is.State, "state_reason": orNull(is.StateReason), "locked": is.Locked, "active_lock_reason": nil,
		"user": c.account(is.Author), "author_association": is.repo.association(is.Author), "labels": c.labels(is),
		"assignee": c.firstOf(is.Assignees), "assignees": c.accounts(is.Assignees), "milestone": nil, "comments": len(is.comments), "performed_via_github_app": nil,
		"created_at": is.CreatedAt, "updated_at": is.UpdatedAt, "closed_at": orNull(is.ClosedAt.UTC()),
		"url": self, "html_url": c.web + is.pagePath(), "repository_url": c.repoURL(), "comments_url": self + "/comments",
		"labels_url": self + "/labels{/name}", "events_url": self + "/events", "timeline_url": self + "/timeline",
		"reactions": rollup(self, is.Reactions),
	}
	if is.PullRequest {
		page := c.web + is.pagePath()
		out["draft"] = is.Pull.Draft
		out["pull_request"] = object{
			"url": fmt.Sprintf("%s/pulls/%d", c.repoURL(), is.Number), "html_url": page,
			"diff_url": page + ".diff", "patch_url": page + ".patch", "merged_at": orNull(is.Pull.MergedAt),
		}
	}
	return out
}

func (c *call) issueAlone(is *issue) object {
	out := c.issue(is)
	out["closed_by"] = nil
	if is.ClosedBy != "" {
		out["closed_by"] = c.account(is.ClosedBy)
	}
	return out
}

func (c *call) comment(n *comment) object {
	self := fmt.Sprintf("%s/issues/comments/%d", c.repoURL(), n.ID)
	var app any
	if n.App != "" {
		app = object{"slug": n.App, "name": n.App}
	}
	return object{
		"id": n.ID, "node_id": nodeID("IC", n.issue.repo.id, n.ID), "body": n.Body, "user": c.account(n.Author),
		"author_association": n.issue.repo.association(n.Author), "created_at": n.CreatedAt, "updated_at": n.UpdatedAt,
		"url": self, "html_url": fmt.Sprintf("%s%s#issuecomment-%d", c.web, n.issue.pagePath(), n.ID),
		"issue_url":                fmt.Sprintf("%s/issues/%d", c.repoURL(), n.issue.Number),
		"performed_via_github_app": app, "reactions": rollup(self, n.Reactions),
	}
}

func (c *call) reaction(r Reaction) object {
	return object{
		"id": r.ID, "node_id": nodeID("REA", c.repo.id, r.ID), "content": r.Content,
		"user": c.account(r.User), "created_at": r.CreatedAt.UTC().Truncate(time.Second),
	}
}

func rollup(self string, all []Reaction) object {
	out := object{"url": self + "/reactions", "total_count": len(all)}
	for _, content := range reactionContents {
		n := 0
		for _, r := range all {
			if r.Content == content {
				n++
			}
		}
		out[content] = n
	}
	return out
}
