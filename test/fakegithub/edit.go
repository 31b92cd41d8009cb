package fakegithub

import (
	"slices"
	"time"
)

// EditIssue changes an issue as a login. It fails with fault.NotFound for an unknown repository or issue.
func (s *Server) EditIssue(owner, name string, number int, by string, e IssueEdit) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	is, err := s.findIssue(owner, name, number)
	if err != nil {
		return err
	}
	s.editIssue(is, s.userFor(by), e)
	return nil
}

// editIssue moves updated_at only when something changed, as GitHub does, and makes one event of each kind of change.
func (s *Server) editIssue(is *issue, by *user, e IssueEdit) {
	var events []func()
	add := func(action string, extra object) {
		events = append(events, func() { s.issueEvent(is, by, action, extra) })
	}
	if changes := s.editText(is, by, e); len(changes) > 0 {
		add("edited", object{"changes": changes})
	}
	if s.editState(is, by, e) {
		add(map[string]string{"closed": "closed", "open": "reopened"}[is.State], nil)
	}
	if e.Labels != nil {
		if names, before := s.labelNames(is.repo, *e.Labels), is.Labels; !slices.Equal(names, before) {
			is.Labels = names
			events = append(events, func() { s.labelEvents(is, by, before) })
		}
	}
	if e.Assignees != nil {
		if logins, before := s.logins(*e.Assignees), is.Assignees; !slices.Equal(logins, before) {
			is.Assignees = logins
			events = append(events, func() { s.assigneeEvents(is, by, before) })
		}
	}
	if e.Locked != nil && *e.Locked != is.Locked {
		is.Locked = *e.Locked
		add(map[bool]string{true: "locked", false: "unlocked"}[is.Locked], nil)
	}
	if e.Draft != nil && is.Pull != nil && *e.Draft != is.Pull.Draft {
		is.Pull.Draft = *e.Draft
		add(map[bool]string{true: "converted_to_draft", false: "ready_for_review"}[*e.Draft], nil)
	}
	if e.StateReason != nil && e.State != nil && *e.StateReason != is.StateReason {
		is.StateReason = *e.StateReason
		is.touch(s.now())
	}
	if len(events) > 0 {
		is.touch(s.now())
	}
	for _, tell := range events {
		tell()
	}
}

// editText returns what the changed texts were, in the form of a webhook's changes.
func (s *Server) editText(is *issue, by *user, e IssueEdit) object {
	changes := object{}
	if e.Title != nil && *e.Title != is.Title {
		changes["title"] = object{"from": is.Title}
		is.Title = *e.Title
	}
	if e.Body != nil && *e.Body != is.Body {
		changes["body"] = object{"from": is.Body}
		is.Body, is.Edited = *e.Body, Edited{Editor: by.Login, LastEditedAt: s.now()} // a new title is no edit of the text
	}
	return changes
}

func (s *Server) editState(is *issue, by *user, e IssueEdit) bool {
	if e.State == nil || *e.State == is.State {
		return false
	}
	is.State = *e.State
	if is.State == "closed" {
		is.StateReason, is.ClosedAt, is.ClosedBy = "completed", s.now(), by.Login
	} else {
		is.StateReason, is.ClosedAt, is.ClosedBy = "reopened", time.Time{}, ""
	}
	if e.StateReason != nil {
		is.StateReason = *e.StateReason
	}
	return true
}
