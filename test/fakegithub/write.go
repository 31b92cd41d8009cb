package fakegithub

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"
)

const maxBodyRunes = 65536

func checkBody(resource, body string) error {
	if utf8.RuneCountInString(body) > maxBodyRunes {
		return invalid(resource, "body", "custom", "body is too long (maximum is 65536 characters)")
	}
	return nil
}

func (c *call) commentBody() (string, error) {
	var in struct{ Body string }
	if err := c.decode(&in); err != nil {
		return "", err
	}
	if strings.TrimSpace(in.Body) == "" {
		return "", invalid("IssueComment", "data", "unprocessable", "Body cannot be blank")
	}
	return in.Body, checkBody("IssueComment", in.Body)
}

func (c *call) createComment(is *issue) (reply, error) {
	if is.Locked && !c.mayWrite() {
		return reply{}, &problem{status: http.StatusForbidden, message: "Unable to create comment because issue is locked."}
	}
	body, err := c.commentBody()
	if err != nil {
		return reply{}, err
	}
	n := c.s.addComment(is, Comment{Author: c.user.Login, Body: body, App: c.via()})
	return reply{status: http.StatusCreated, value: c.comment(n)}, nil
}

// via is the slug of the app that acts, for performed_via_github_app.
func (c *call) via() string {
	if c.installation == nil {
		return ""
	}
	return c.installation.app.Slug
}

// mayChange allows a thing's author and whoever may write to the repository.
func (c *call) mayChange(author string) error {
	if c.user.Login == author || c.mayWrite() {
		return nil
	}
	return &problem{status: http.StatusForbidden, message: "Must have admin rights to Repository."}
}

func (c *call) patchComment(n *comment) (reply, error) {
	if err := c.mayChange(n.Author); err != nil {
		return reply{}, err
	}
	body, err := c.commentBody()
	if err != nil {
		return reply{}, err
	}
	c.s.editComment(n, body, c.user)
	return c.ok(c.comment(n))
}

func (c *call) deleteComment(n *comment) (reply, error) {
	if err := c.mayChange(n.Author); err != nil {
		return reply{}, err
	}
	c.s.deleteComment(n, c.user)
	return reply{status: http.StatusNoContent}, nil
}

// labelList reads labels as names or as objects with a name; GitHub takes both.
type labelList []string

func (l *labelList) UnmarshalJSON(data []byte) error {
	var items []json.RawMessage
	if err := json.Unmarshal(data, &items); err != nil {
		return err
	}
	*l = labelList{}
	for _, item := range items {
		var named struct{ Name string }
		if json.Unmarshal(item, &named.Name) != nil {
			if err := json.Unmarshal(item, &named); err != nil {
				return err
			}
		}
		*l = append(*l, named.Name)
	}
	return nil
}

type issueRequest struct {
	Title, Body, State *string
	StateReason        *string    `json:"state_reason"`
	Labels             *labelList `json:"labels"`
	Assignees          *[]string  `json:"assignees"`
}

func (c *call) createIssue() (reply, error) {
	var in issueRequest
	if err := c.decode(&in); err != nil {
		return reply{}, err
	}
	made := Issue{Author: c.user.Login}
	if in.Title == nil || strings.TrimSpace(*in.Title) == "" {
		return reply{}, invalid("Issue", "title", "missing_field", "title is missing")
	}
	made.Title = *in.Title
	if in.Body != nil {
		made.Body = *in.Body
	}
	if err := checkBody("Issue", made.Body); err != nil {
		return reply{}, err
	}
	if c.mayWrite() { // others' labels and assignees are dropped without a word
		if in.Labels != nil {
			made.Labels = *in.Labels
		}
		if in.Assignees != nil {
			made.Assignees = *in.Assignees
		}
	}
	is, err := c.s.addIssue(c.repo, made)
	if err != nil {
		return reply{}, err
	}
	return reply{status: http.StatusCreated, value: c.issueAlone(is)}, nil
}

func (c *call) patchIssue(is *issue) (reply, error) {
	if err := c.mayChange(is.Author); err != nil {
		return reply{}, err
	}
	var in issueRequest
	if err := c.decode(&in); err != nil {
		return reply{}, err
	}
	switch {
	case in.State != nil && *in.State != "open" && *in.State != "closed":
		return reply{}, invalid("Issue", "state", "invalid", "state must be open or closed")
	case in.Title != nil && strings.TrimSpace(*in.Title) == "":
		return reply{}, invalid("Issue", "title", "missing_field", "title is missing")
	case in.StateReason != nil && !slices.Contains([]string{"completed", "not_planned", "duplicate", "reopened"}, *in.StateReason):
		return reply{}, invalid("Issue", "state_reason", "invalid", "state_reason is not one of the known ones")
	}
	if in.Body != nil {
		if err := checkBody("Issue", *in.Body); err != nil {
			return reply{}, err
		}
	}
	edit := IssueEdit{Title: in.Title, Body: in.Body, State: in.State, StateReason: in.StateReason}
	if in.Labels != nil && c.mayWrite() {
		edit.Labels = (*[]string)(in.Labels)
	}
	if in.Assignees != nil && c.mayWrite() {
		edit.Assignees = in.Assignees
	}
	c.s.editIssue(is, c.user, edit)
	return c.ok(c.issueAlone(is))
}

var reactionContents = []string{"+1", "-1", "laugh", "confused", "heart", "hooray", "rocket", "eyes"}

func (c *call) listReactions(all []Reaction) (reply, error) {
	if content := c.query.Get("content"); content != "" {
		all = slices.DeleteFunc(slices.Clone(all), func(r Reaction) bool { return r.Content != content })
	}
	return paginate(c, all, c.reaction)
}

// addReaction answers 201 for a new reaction and 200 for one that was there. It moves no updated_at, as on GitHub.
func (c *call) addReaction(to *[]Reaction) (reply, error) {
	var in struct{ Content string }
	if err := c.decode(&in); err != nil {
		return reply{}, err
	}
	if !slices.Contains(reactionContents, in.Content) {
		return reply{}, invalid("Reaction", "content", "invalid", "content is not one of GitHub's eight reactions")
	}
	made, isNew := c.s.react(to, c.user, in.Content)
	if isNew {
		return reply{status: http.StatusCreated, value: c.reaction(made)}, nil
	}
	return c.ok(c.reaction(made))
}
