package github

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"strings"

	gh "github.com/google/go-github/v90/github"

	"muxpost.dev/muxpost/core/workitem"
	"muxpost.dev/muxpost/services/poller/internal/poll"
)

// errIncomplete means that what the server shows lacks an id or a time, without which it cannot be known again.
var errIncomplete = errors.New("it lacks an id or a time")

const (
	typeBot = "Bot"
	// completed is the status of a check or a run that has ended.
	completed = "completed"
	// statusPending is the state of a commit status that is to be replaced by another.
	statusPending = "pending"
	// verdictPending is the state of a review that only its author sees.
	verdictPending = "pending"
)

// comment is go-github's, and what it leaves out.
type comment struct {
	gh.IssueComment
	App *struct {
		Slug string `json:"slug"`
	} `json:"performed_via_github_app"`
}

// itemOf returns an issue of a host's repository as an item, without what puts it under our care.
func itemOf(host, repository string, issue *gh.Issue) (poll.Item, error) {
	ref, err := refOf(host, repository, issue.GetNumber())
	if err != nil {
		return poll.Item{}, err
	}
	if issue.GetNodeID() == "" || issue.CreatedAt == nil {
		return poll.Item{}, errIncomplete
	}
	return poll.Item{
		Ref: ref, NodeID: issue.GetNodeID(), Repository: repository, Title: issue.GetTitle(), Body: issue.GetBody(), URL: issue.GetHTMLURL(),
		Author:   authorOf(issue.User, issue.GetAuthorAssociation(), issue.PerformedViaGithubApp != nil),
		Comments: issue.GetComments(), Open: issue.GetState() != "closed", CreatedAt: issue.CreatedAt.Time, UpdatedAt: issue.GetUpdatedAt().Time,
		ClosedAt: issue.GetClosedAt().Time,
	}, nil
}

// pullOf returns a pull request of a host's repository as an item, without what puts it under our care. Lists do not tell the number
// of comments.
func pullOf(host, repository string, pull *gh.PullRequest) (poll.Item, error) {
	ref, err := refOf(host, repository, pull.GetNumber())
	if err != nil {
		return poll.Item{}, err
	}
	if pull.GetNodeID() == "" || pull.CreatedAt == nil {
		return poll.Item{}, errIncomplete
	}
	comments := -1
	if pull.Comments != nil {
		comments = *pull.Comments
	}
	return poll.Item{
		Ref: ref, NodeID: pull.GetNodeID(), Repository: repository, Title: pull.GetTitle(), Body: pull.GetBody(), URL: pull.GetHTMLURL(),
		Author: authorOf(pull.User, pull.GetAuthorAssociation(), false), Comments: comments, Open: pull.GetState() != "closed",
		CreatedAt: pull.CreatedAt.Time, UpdatedAt: pull.GetUpdatedAt().Time, ClosedAt: pull.GetClosedAt().Time,
		Pull: &poll.Pull{
			Head: pull.GetHead().GetRef(), HeadSHA: pull.GetHead().GetSHA(), HeadRepository: pull.GetHead().GetRepo().GetFullName(),
			Base: pull.GetBase().GetRef(), Draft: pull.GetDraft(), Merged: pull.GetMerged() || pull.MergedAt != nil,
		},
	}, nil
}

func refOf(host, repository string, number int) (workitem.Ref, error) {
	owner, name, err := SplitRepository(host, repository)
	if err != nil {
		return workitem.Ref{}, err
	}
	return workitem.New(host, owner, name, strconv.Itoa(number))
}

// postOfComment returns a comment of an issue or a pull request; viaApp says that an app wrote it in a person's name.
func postOfComment(n *gh.IssueComment, viaApp bool) (poll.Post, error) {
	if n.GetNodeID() == "" || n.CreatedAt == nil {
		return poll.Post{}, errIncomplete
	}
	return poll.Post{
		Kind: poll.KindComment, ID: n.GetID(), NodeID: n.GetNodeID(), Body: n.GetBody(), URL: n.GetHTMLURL(),
		Author: authorOf(n.User, n.GetAuthorAssociation(), viaApp), CreatedAt: n.CreatedAt.Time, UpdatedAt: n.GetUpdatedAt().Time,
	}, nil
}

// postOfReview returns a review, and false for one that was not submitted yet: its author alone sees it.
func postOfReview(r *gh.PullRequestReview) (_ poll.Post, submitted bool, _ error) {
	verdict := strings.ToLower(r.GetState())
	if verdict == verdictPending {
		return poll.Post{}, false, nil
	}
	if r.GetNodeID() == "" || r.SubmittedAt == nil {
		return poll.Post{}, false, errIncomplete
	}
	return poll.Post{
		Kind: poll.KindReview, ID: r.GetID(), NodeID: r.GetNodeID(), Body: r.GetBody(), URL: r.GetHTMLURL(), Verdict: verdict,
		Author: authorOf(r.User, r.GetAuthorAssociation(), false), CreatedAt: r.SubmittedAt.Time, UpdatedAt: r.SubmittedAt.Time,
	}, true, nil
}

// postOfReviewComment returns an inline comment of a pull request.
func postOfReviewComment(n *gh.PullRequestComment) (poll.Post, error) {
	if n.GetNodeID() == "" || n.CreatedAt == nil {
		return poll.Post{}, errIncomplete
	}
	line, side := cmp.Or(n.GetLine(), n.GetOriginalLine()), n.GetSide()
	if strings.EqualFold(n.GetSubjectType(), "file") {
		line, side = 0, ""
	}
	return poll.Post{
		Kind: poll.KindReviewComment, ID: n.GetID(), NodeID: n.GetNodeID(), Body: n.GetBody(), URL: n.GetHTMLURL(),
		Author: authorOf(n.User, n.GetAuthorAssociation(), false), CreatedAt: n.CreatedAt.Time, UpdatedAt: n.GetUpdatedAt().Time,
		Path: n.GetPath(), Line: line, Side: side, Hunk: n.GetDiffHunk(), Thread: cmp.Or(n.GetInReplyTo(), n.GetID()),
	}, nil
}

// checkOfRun returns a check run.
func checkOfRun(r *gh.CheckRun) poll.Check {
	return poll.Check{
		Kind: poll.CheckRun, ID: r.GetID(), NodeID: r.GetNodeID(), Name: r.GetName(), SHA: r.GetHeadSHA(),
		Done: r.GetStatus() == completed, Conclusion: strings.ToLower(r.GetConclusion()),
		Title: r.GetOutput().GetTitle(), Summary: r.GetOutput().GetSummary(), URL: cmp.Or(r.GetHTMLURL(), r.GetDetailsURL()),
		EndedAt: r.GetCompletedAt().Time,
	}
}

// checkOfStatus returns a commit status. One that is pending has not ended.
func checkOfStatus(sha string, s *gh.RepoStatus) poll.Check {
	check := poll.Check{
		Kind: poll.CheckStatus, ID: s.GetID(), NodeID: s.GetNodeID(), Name: s.GetContext(), SHA: sha,
		Conclusion: strings.ToLower(s.GetState()), Title: s.GetDescription(), URL: s.GetTargetURL(),
	}
	if check.Done = check.Conclusion != statusPending; check.Done {
		check.EndedAt = cmp.Or(s.UpdatedAt, s.CreatedAt, &gh.Timestamp{}).Time
	}
	return check
}

// checkOfWorkflow returns a run of a workflow. A workflow that runs for several events, such as a push and a pull request, has several
// at one commit; its name tells them apart, as GitHub's page does.
func checkOfWorkflow(r *gh.WorkflowRun) poll.Check {
	name := cmp.Or(r.GetName(), r.GetPath())
	if r.GetEvent() != "" {
		name += " (" + r.GetEvent() + ")"
	}
	check := poll.Check{
		Kind: poll.CheckWorkflow, ID: r.GetID(), NodeID: r.GetNodeID(), Name: name, SHA: r.GetHeadSHA(), Done: r.GetStatus() == completed,
		Conclusion: strings.ToLower(r.GetConclusion()), Attempt: r.GetRunAttempt(), Title: r.GetDisplayTitle(), URL: r.GetHTMLURL(),
	}
	if check.Done {
		check.EndedAt = r.GetUpdatedAt().Time
	}
	return check
}

// authorOf returns who wrote something; viaApp says that an app did in his name.
func authorOf(u *gh.User, association string, viaApp bool) poll.Author {
	return poll.Author{Login: u.GetLogin(), Machine: viaApp || u.GetType() == typeBot, Association: strings.ToUpper(association)}
}

// care says what puts an item under our care, by what it carries: the label goes first. Empty means that nothing does.
type care struct {
	label, assignee string
	// mentioned are the numbers of the items that mention the account.
	mentioned map[int]bool
}

func (c care) of(number int, labels []*gh.Label, assignees []*gh.User) string {
	if hasLabel(labels, c.label) {
		return poll.CareLabel
	}
	for _, u := range assignees {
		if c.assignee != "" && strings.EqualFold(u.GetLogin(), c.assignee) {
			return poll.CareAssigned
		}
	}
	if c.mentioned[number] {
		return poll.CareMention
	}
	return ""
}

// ofIssue is of for an item that may be an issue with a label that has a team run.
func (c care) ofIssue(item poll.Item, labels []*gh.Label, assignees []*gh.User) string {
	care := c.of(int(item.Ref.Number()), labels, assignees)
	if care == "" && len(item.TeamLabels) > 0 {
		return poll.CareTeam
	}
	return care
}

// hasLabel reports whether a label is among others, in any case; none is never.
func hasLabel(labels []*gh.Label, name string) bool {
	return name != "" && slices.ContainsFunc(labels, func(l *gh.Label) bool { return strings.EqualFold(l.GetName(), name) })
}

// labelsOf returns those of some labels that are among others.
func labelsOf(labels []*gh.Label, names []string) (out []string) {
	for _, name := range names {
		if hasLabel(labels, name) {
			out = append(out, name)
		}
	}
	return out
}
