package github

import (
	"encoding/json"
	"errors"
	"strings"

	gh "github.com/google/go-github/v90/github"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/services/poller/internal/hook"
	"muxpost.dev/muxpost/services/poller/internal/poll"
)

var _ hook.Reader = (*Client)(nil)

// envelope is what has to be known of every payload.
type envelope struct {
	Action     string `json:"action"`
	Repository struct {
		FullName string `json:"full_name"`
	} `json:"repository"`
	Issue       object `json:"issue"`
	PullRequest object `json:"pull_request"`
	Comment     object `json:"comment"`
	Review      object `json:"review"`
	CheckRun    object `json:"check_run"`
	WorkflowRun object `json:"workflow_run"`
	SHA         string `json:"sha"`
}

type object struct {
	NodeID  string `json:"node_id"`
	Number  int64  `json:"number"`
	HeadSHA string `json:"head_sha"`
	Head    struct {
		SHA string `json:"sha"`
	} `json:"head"`
}

// OpenPayload reads the envelope of a webhook's payload. What cannot be read is fault.Invalid.
func OpenPayload(event string, body []byte) (hook.Envelope, error) {
	var e envelope
	if err := json.Unmarshal(body, &e); err != nil {
		return hook.Envelope{}, unreadablePayload(event, err)
	}
	out := hook.Envelope{Event: event, Action: e.Action, Repository: e.Repository.FullName}
	item := e.Issue
	if item.Number == 0 {
		item = e.PullRequest
	}
	out.Number, out.SHA = uint64(max(0, item.Number)), item.Head.SHA
	about := item
	switch event {
	case "issue_comment", "pull_request_review_comment":
		about = e.Comment
	case "pull_request_review":
		about = e.Review
	case poll.CheckRun:
		about = e.CheckRun
	case poll.CheckWorkflow:
		about = e.WorkflowRun
	case poll.CheckStatus:
		out.SHA = e.SHA
	}
	out.Object = about.NodeID
	if about.HeadSHA != "" {
		out.SHA = about.HeadSHA
	}
	for _, text := range []*string{&out.Action, &out.Repository, &out.SHA, &out.Object} {
		if len(*text) > maxWord || strings.ContainsFunc(*text, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return hook.Envelope{}, unreadablePayload(event, nil)
		}
	}
	return out, nil
}

// maxWord bounds ids and names in an envelope; GitHub's are much shorter.
const maxWord = 300

// leftOut is what go-github leaves out of payloads.
type leftOut struct {
	Comment viaApp   `json:"comment"`
	Sender  *gh.User `json:"sender"`
	Label   struct {
		Name string `json:"name"`
	} `json:"label"`
	Assignee   *gh.User `json:"assignee"`
	Repository struct {
		ID int64 `json:"id"`
	} `json:"repository"`
}

type viaApp struct {
	App *struct {
		Slug string `json:"slug"`
	} `json:"performed_via_github_app"`
}

// Read returns what a webhook tells, in the words of a look: what both find is the same, field by field. What cannot be read is
// fault.Invalid.
func (c *Client) Read(a hook.Arrival) (poll.Change, error) {
	event, err := gh.ParseWebHook(a.Event, a.Payload)
	if err != nil {
		return poll.Change{}, unreadablePayload(a.Event, err)
	}
	p := payload{client: c, Arrival: a}
	if err := json.Unmarshal(a.Payload, &p.more); err != nil {
		return poll.Change{}, unreadablePayload(a.Event, err)
	}
	change := poll.Change{
		Repository: a.Repository, Sender: authorOf(p.more.Sender, "", false), Label: p.more.Label.Name, Assignee: p.more.Assignee.GetLogin(),
	}
	deleted := a.Action == "deleted"
	switch e := event.(type) {
	case *gh.IssuesEvent:
		change.Deleted = deleted
		change.Item, err = p.issue(e.Issue)
	case *gh.PullRequestEvent:
		change.Item, err = p.pull(e.PullRequest)
	case *gh.IssueCommentEvent:
		change.Deleted = deleted
		if change.Item, err = p.issue(e.Issue); err == nil {
			change.Post, err = p.post(postOfComment(e.Comment, p.more.Comment.App != nil))
		}
	case *gh.PullRequestReviewEvent:
		if change.Item, err = p.pull(e.PullRequest); err == nil {
			post, _, postErr := postOfReview(e.Review)
			change.Post, err = p.post(post, postErr)
		}
	case *gh.PullRequestReviewCommentEvent:
		change.Deleted = deleted
		if change.Item, err = p.pull(e.PullRequest); err == nil {
			post, postErr := postOfReviewComment(e.Comment)
			post.Author.Machine = post.Author.Machine || p.more.Comment.App != nil
			change.Post, err = p.post(post, postErr)
		}
	case *gh.CheckRunEvent:
		change.Pulls, change.Branches = p.pulls(e.CheckRun.GetPullRequests()), branches(e.CheckRun.GetCheckSuite().GetHeadBranch())
		change.Check, err = p.check(checkOfRun(e.CheckRun))
	case *gh.WorkflowRunEvent:
		run := e.WorkflowRun
		if change.Pulls = p.pulls(run.GetPullRequests()); run.GetHeadRepository().GetID() == p.more.Repository.ID {
			change.Branches = branches(run.GetHeadBranch())
		}
		change.Check, err = p.check(checkOfWorkflow(run))
	case *gh.StatusEvent:
		for _, b := range e.Branches {
			change.Branches = append(change.Branches, branches(b.GetName())...)
		}
		change.Check, err = p.check(checkOfStatus(e.GetSHA(), &gh.RepoStatus{
			ID: e.ID, Context: e.Context, State: e.State, Description: e.Description, TargetURL: e.TargetURL, CreatedAt: e.CreatedAt, UpdatedAt: e.UpdatedAt,
		}))
	default:
		err = p.lacks("anything that is known here")
	}
	if err != nil {
		return poll.Change{}, err
	}
	if change.Post != nil {
		change.First = a.Action == "submitted" || a.Action == "created" && !change.Post.UpdatedAt.After(change.Post.CreatedAt)
	}
	if change.Item != nil {
		change.Number, change.Pull = change.Item.Ref.Number(), change.Item.Pull != nil
	}
	return change, nil
}

// payload is one that is being read.
type payload struct {
	client *Client
	hook.Arrival
	more leftOut
}

// lacks says that a payload is not what the event's name says. Nothing of it is repeated.
func (p payload) lacks(what string) error {
	return fault.Newf(fault.Invalid, fault.ReasonSourceRefused, "the payload of a webhook (%s) is without %s", p.Event, what)
}

func unreadablePayload(event string, err error) error {
	f := fault.Newf(fault.Invalid, fault.ReasonSourceRefused, "the payload of a webhook (%.40q) cannot be read", event)
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		f.Message += ": its field " + wrong.Field + " is of another type"
	}
	return f
}

// issue reads an issue. GitHub shows a pull request as one where a comment of it is told: its branch and commit do not show then.
func (p payload) issue(issue *gh.Issue) (*poll.Item, error) {
	item, err := itemOf(p.client.host, p.Repository, issue)
	if err != nil {
		return nil, p.lacks("an issue, or its id or time")
	}
	if links := issue.GetPullRequestLinks(); links != nil {
		item.Pull = &poll.Pull{Draft: issue.GetDraft(), Merged: !links.GetMergedAt().IsZero()}
	}
	if item.Pull == nil {
		item.TeamLabels = labelsOf(issue.Labels, p.client.teamLabels)
	}
	return p.item(item, issue.Labels, issue.Assignees), nil
}

func (p payload) pull(pull *gh.PullRequest) (*poll.Item, error) {
	item, err := pullOf(p.client.host, p.Repository, pull)
	if err != nil {
		return nil, p.lacks("a pull request, or its id or time")
	}
	return p.item(item, pull.Labels, pull.Assignees), nil
}

func (p payload) item(item poll.Item, labels []*gh.Label, assignees []*gh.User) *poll.Item {
	item.Care = p.client.care().ofIssue(item, labels, assignees)
	p.client.remember(p.Repository, item.NodeID)
	return &item
}

// post completes a post with who edited it: whoever sent the edit, and nobody as long as it was only written.
func (p payload) post(post poll.Post, err error) (*poll.Post, error) {
	if err != nil || post.NodeID == "" {
		return nil, p.lacks("what was written, or its id or time")
	}
	p.client.remember(p.Repository, post.NodeID)
	switch p.Action {
	case "created", "submitted":
		// One that was changed already is shown with the change, and not with who made it.
		post.EditorKnown = !post.UpdatedAt.After(post.CreatedAt)
	case "edited":
		sender := authorOf(p.more.Sender, "", false)
		post.EditorKnown = sender.Login != ""
		if !strings.EqualFold(sender.Login, post.Author.Login) {
			post.Editor = sender
		}
	}
	return &post, nil
}

func (p payload) check(check poll.Check) (*poll.Check, error) {
	if check.ID == 0 || check.SHA == "" {
		return nil, p.lacks("a result, or its id or commit")
	}
	return &check, nil
}

// pulls returns the numbers of the pull requests that a result names and that go into the repository itself: those into forks are named
// as well, with the numbers that they have there.
func (p payload) pulls(pulls []*gh.PullRequest) []uint64 {
	var out []uint64
	for _, pull := range pulls {
		into := pull.GetBase().GetRepo().GetID()
		if pull.GetNumber() > 0 && (into == 0 || into == p.more.Repository.ID) {
			out = append(out, uint64(pull.GetNumber()))
		}
	}
	return out
}

func branches(name string) []string {
	if name == "" {
		return nil
	}
	return []string{name}
}
