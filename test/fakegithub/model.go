package fakegithub

import "time"

// The associations of a person with a repository that this package treats specially: the first three may write.
const (
	Owner        = "OWNER"
	Member       = "MEMBER"
	Collaborator = "COLLABORATOR"
	None         = "NONE"
)

// User is an account. An account that is only mentioned by its login is made on the way.
type User struct {
	Login string `json:"login"`
	// Type is User, Bot or Organization; empty means Bot for a login that ends in [bot], and User otherwise.
	Type string `json:"type"`
}

// Repo is a repository, as it is seeded. Owner and Name are found again whatever their case.
type Repo struct {
	Owner       string `json:"owner"`
	Name        string `json:"name"`
	Description string `json:"description"`
	Private     bool   `json:"private"`
	Fork        bool   `json:"fork"`
	// Associations maps a login to its author_association; the owner is OWNER, everyone else NONE.
	Associations map[string]string `json:"associations"`
	// Issues are added with the repository.
	Issues []Issue `json:"issues"`
	// Branches are there beside main and the heads of pull requests.
	Branches []string `json:"branches"`
	// Hooks are added last, and tell of nothing that was there before.
	Hooks []Hook `json:"hooks"`
	// What ran on commits is added after the issues.
	CheckRuns    []CheckRun    `json:"check_runs"`
	Statuses     []Status      `json:"statuses"`
	WorkflowRuns []WorkflowRun `json:"workflow_runs"`
}

// Issue is an issue or a pull request, as it is seeded and as Server.Issue reports it.
type Issue struct {
	// ID is given by the server.
	ID int64 `json:"-"`
	// Number is the next free one when it is 0.
	Number      int  `json:"number"`
	PullRequest bool `json:"pull_request"`
	// Pull is what a pull request has beside an issue; with it, PullRequest may be left out.
	Pull  *Pull  `json:"pull"`
	Title string `json:"title"`
	Body  string `json:"body"`
	// Author is a login; empty means the owner of the repository.
	Author string `json:"author"`
	// State is open (the default) or closed.
	State       string   `json:"state"`
	StateReason string   `json:"state_reason"`
	Locked      bool     `json:"locked"`
	Labels      []string `json:"labels"`
	Assignees   []string `json:"assignees"`
	// CreatedAt defaults to now, UpdatedAt to CreatedAt. A later comment moves UpdatedAt on.
	CreatedAt time.Time  `json:"created_at"`
	UpdatedAt time.Time  `json:"updated_at"`
	ClosedAt  time.Time  `json:"closed_at"`
	ClosedBy  string     `json:"closed_by"`
	Reactions []Reaction `json:"reactions"`
	Comments  []Comment  `json:"comments"`
	Edited
}

// Comment is a comment on an issue or a pull request, as it is seeded and reported.
type Comment struct {
	// ID is given by the server.
	ID int64 `json:"-"`
	// Author is a login; empty means the owner of the repository.
	Author string `json:"author"`
	Body   string `json:"body"`
	// CreatedAt defaults to now, UpdatedAt to CreatedAt.
	CreatedAt time.Time  `json:"created_at"`
	UpdatedAt time.Time  `json:"updated_at"`
	Reactions []Reaction `json:"reactions"`
	// App is the slug of the app through which it was written or last edited; empty for a person.
	App string `json:"app"`
	// Hidden keeps it out of every list, as a replica that lags behind does; asked for by itself, it is there.
	Hidden bool `json:"hidden"`
	Edited
}

// Edited says who changed a text last. Only GraphQL shows it.
type Edited struct {
	Editor       string    `json:"editor"`
	LastEditedAt time.Time `json:"last_edited_at"`
}

// Reaction is one person's reaction to an issue or a comment.
type Reaction struct {
	// ID and CreatedAt are given by the server.
	ID        int64     `json:"-"`
	CreatedAt time.Time `json:"-"`
	User      string    `json:"user"`
	// Content is +1, -1, laugh, confused, heart, hooray, rocket or eyes.
	Content string `json:"content"`
}

// IssueEdit changes an issue; a nil field leaves what is there. StateReason counts only together with State.
type IssueEdit struct {
	Title, Body, State, StateReason *string
	Labels, Assignees               *[]string
	Locked                          *bool
	// Draft counts only for a pull request.
	Draft *bool
}

type user struct {
	User
	id int64
}

type label struct {
	id   int64
	name string
}

type repo struct {
	Repo
	id      int64
	owner   *user
	created time.Time
	issues  []*issue // by number
	labels  map[string]*label
	// branches maps the name of a branch to the commit that it is at.
	branches map[string]string
	// commits are those that are known for another reason than being the head of a branch.
	commits  map[string]bool
	checks   []*CheckRun    // by id
	statuses []*Status      // by id
	runs     []*WorkflowRun // by id
}

type issue struct {
	Issue
	repo     *repo
	comments []*comment // by id
	reviews  []*review  // by id
	// labellings are the puttings on of labels, oldest first. Only GraphQL shows them.
	labellings []labelling
}

type labelling struct {
	id        int64
	label, by string
	at        time.Time
}

type comment struct {
	Comment
	issue *issue
}
