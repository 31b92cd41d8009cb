package fakegithub

import (
	"slices"
	"strings"
	"time"

	"muxpost.dev/muxpost/core/fault"
)

// AddUser makes an account, or sets the type of one that exists.
func (s *Server) AddUser(u User) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.userFor(u.Login)
	if u.Type != "" {
		known.Type = u.Type
	}
}

// AddToken lets a token act as a login.
func (s *Server) AddToken(token, login string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokens[token] = &grant{user: s.userFor(login)}
}

// RemoveToken has a token refused from now on.
func (s *Server) RemoveToken(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.tokens, token)
}

// AddRepo makes a repository with its issues. It fails with fault.AlreadyExists when there is one of that name.
func (s *Server) AddRepo(r Repo) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.addRepo(r)
}

func (s *Server) addRepo(r Repo) error {
	if r.Owner == "" || r.Name == "" || strings.Contains(r.Owner+r.Name, "/") {
		return fault.Newf(fault.Invalid, fault.ReasonBadArgument,
			"a repository needs an owner and a name without a slash, not %q and %q", r.Owner, r.Name)
	}
	if s.repos[repoKey(r.Owner, r.Name)] != nil {
		return fault.Newf(fault.AlreadyExists, "", "there already is a repository %s/%s", r.Owner, r.Name)
	}
	s.lastRepo++
	made := &repo{Repo: r, id: s.lastRepo, owner: s.userFor(r.Owner), created: s.now(), labels: map[string]*label{}, branches: map[string]string{},
		commits: map[string]bool{}}
	for _, branch := range append([]string{defaultBranch}, r.Branches...) {
		made.addBranch(branch)
	}
	made.Branches, made.Hooks, made.CheckRuns, made.Statuses, made.WorkflowRuns = nil, nil, nil, nil, nil
	made.Associations, made.Issues = map[string]string{strings.ToLower(r.Owner): Owner}, nil
	for login, association := range r.Associations {
		made.Associations[strings.ToLower(login)] = association
	}
	s.repos[repoKey(r.Owner, r.Name)] = made
	for _, is := range r.Issues {
		if _, err := s.addIssue(made, is); err != nil {
			return err
		}
	}
	if err := s.loadChecks(made, r); err != nil {
		return err
	}
	return s.loadHooks(made, r)
}

// AddIssue adds an issue with its comments, and returns its number. It fails with fault.NotFound for an unknown repository and
// with fault.AlreadyExists for a number that is taken.
func (s *Server) AddIssue(owner, name string, is Issue) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.findRepo(owner, name)
	if err != nil {
		return 0, err
	}
	made, err := s.addIssue(r, is)
	if err != nil {
		return 0, err
	}
	return made.Number, nil
}

func (s *Server) addIssue(r *repo, is Issue) (*issue, error) {
	if is.Number == 0 {
		is.Number = 1
		if n := len(r.issues); n > 0 {
			is.Number = r.issues[n-1].Number + 1
		}
	}
	at, taken := slices.BinarySearchFunc(r.issues, is.Number, func(i *issue, n int) int { return i.Number - n })
	if taken || is.Number < 0 {
		return nil, fault.Newf(fault.AlreadyExists, "",
			"issue %d of %s/%s cannot be added: the number is taken or negative", is.Number, r.Owner, r.Name)
	}
	if is.State == "" {
		is.State = "open"
	}
	s.lastIssue++
	made := &issue{Issue: is, repo: r}
	made.ID, made.Comments, made.Reactions, made.Labels, made.Assignees = s.lastIssue, nil, nil, nil, nil
	made.Author = s.authorFor(r, is.Author)
	made.CreatedAt, made.UpdatedAt = s.times(is.CreatedAt, is.UpdatedAt)
	if made.State == "closed" && made.ClosedAt.IsZero() {
		made.ClosedAt = made.UpdatedAt
	}
	made.Labels, made.Assignees = s.labelNames(r, is.Labels), s.logins(is.Assignees)
	if is.Pull != nil || is.PullRequest {
		s.openPull(made)
	}
	for _, re := range is.Reactions {
		s.react(&made.Reactions, s.userFor(re.User), re.Content)
	}
	r.issues = slices.Insert(r.issues, at, made)
	s.openedEvents(made, s.userFor(made.Author))
	for _, c := range is.Comments {
		s.addComment(made, c)
	}
	return made, s.loadReviews(made, is.Pull)
}

// AddComment adds a comment, and returns its id. It fails with fault.NotFound for an unknown repository or issue.
func (s *Server) AddComment(owner, name string, number int, c Comment) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	is, err := s.findIssue(owner, name, number)
	if err != nil {
		return 0, err
	}
	return s.addComment(is, c).ID, nil
}

func (s *Server) addComment(is *issue, c Comment) *comment {
	s.lastNote++
	made := &comment{Comment: c, issue: is}
	made.ID, made.Reactions, made.Author = s.lastNote, nil, s.authorFor(is.repo, c.Author)
	made.CreatedAt, made.UpdatedAt = s.times(c.CreatedAt, c.UpdatedAt)
	for _, re := range c.Reactions {
		s.react(&made.Reactions, s.userFor(re.User), re.Content)
	}
	is.comments = append(is.comments, made)
	s.comments[made.ID] = made
	is.touch(made.UpdatedAt)
	s.commentEvent(made, s.userFor(made.Author), "created", nil)
	return made
}

// EditComment replaces a comment's text, as its author. It fails with fault.NotFound.
func (s *Server) EditComment(id int64, body string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.comments[id]
	if c == nil {
		return fault.Newf(fault.NotFound, "", "there is no comment %d", id)
	}
	s.editComment(c, body, s.userFor(c.Author))
	return nil
}

// EditCommentBy replaces a comment's text as a login. It fails with fault.NotFound.
func (s *Server) EditCommentBy(id int64, body, login string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.comments[id]
	if c == nil {
		return fault.Newf(fault.NotFound, "", "there is no comment %d", id)
	}
	s.editComment(c, body, s.userFor(login))
	return nil
}

// EditCommentVia replaces a comment's text through an app. It fails with fault.NotFound.
func (s *Server) EditCommentVia(id int64, body, app string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.comments[id]
	if c == nil {
		return fault.Newf(fault.NotFound, "", "there is no comment %d", id)
	}
	c.App = app
	s.editComment(c, body, s.userFor(c.Author))
	return nil
}

// HideComment keeps a comment out of every list, or lets it back in, as a replica that lags behind does. It fails with fault.NotFound.
func (s *Server) HideComment(id int64, hidden bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.comments[id]
	if c == nil {
		return fault.Newf(fault.NotFound, "", "there is no comment %d", id)
	}
	c.Hidden = hidden
	return nil
}

func (s *Server) editComment(c *comment, body string, by *user) {
	if c.Body == body {
		return
	}
	before := c.Body
	c.Body, c.UpdatedAt = body, s.now()
	c.Edited = Edited{Editor: by.Login, LastEditedAt: c.UpdatedAt}
	c.issue.touch(c.UpdatedAt)
	s.commentEvent(c, by, "edited", bodyWas(before))
}

// DeleteComment removes a comment for good, as its author. It fails with fault.NotFound.
func (s *Server) DeleteComment(id int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.comments[id]
	if c == nil {
		return fault.Newf(fault.NotFound, "", "there is no comment %d", id)
	}
	s.deleteComment(c, s.userFor(c.Author))
	return nil
}

func (s *Server) deleteComment(c *comment, by *user) {
	delete(s.comments, c.ID)
	c.issue.comments = slices.DeleteFunc(c.issue.comments, func(other *comment) bool { return other == c })
	c.issue.touch(s.now())
	s.commentEvent(c, by, "deleted", nil)
}

// Issue returns a copy of an issue with its comments. It fails with fault.NotFound.
func (s *Server) Issue(owner, name string, number int) (Issue, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	is, err := s.findIssue(owner, name, number)
	if err != nil {
		return Issue{}, err
	}
	return is.snapshot(), nil
}

func (is *issue) snapshot() Issue {
	out := is.Issue
	out.Labels, out.Reactions, out.Assignees = slices.Clone(is.Labels), slices.Clone(is.Reactions), slices.Clone(is.Assignees)
	if is.Pull != nil {
		pull := *is.Pull
		pull.Closes = slices.Clone(is.Pull.Closes)
		for _, rv := range is.reviews {
			pull.Reviews = append(pull.Reviews, rv.snapshot())
		}
		out.Pull = &pull
	}
	for _, c := range is.comments {
		note := c.Comment
		note.Reactions = slices.Clone(c.Reactions)
		out.Comments = append(out.Comments, note)
	}
	return out
}

// touch moves updated_at on, never back: a seeded comment may be older than its issue's last change.
func (is *issue) touch(at time.Time) {
	if at.After(is.UpdatedAt) {
		is.UpdatedAt = at
	}
}

// react returns the reaction and whether it is new; a person has each kind once.
func (s *Server) react(to *[]Reaction, by *user, content string) (Reaction, bool) {
	for _, r := range *to {
		if r.User == by.Login && r.Content == content {
			return r, false
		}
	}
	s.lastReact++
	made := Reaction{ID: s.lastReact, User: by.Login, Content: content, CreatedAt: s.now()}
	*to = append(*to, made)
	return made, true
}

// labelNames gives each label the spelling it was first used with, and drops repetitions. Labels come into being by use.
func (s *Server) labelNames(r *repo, names []string) []string {
	out := make([]string, 0, len(names))
	for _, name := range names {
		known := r.labels[strings.ToLower(name)]
		if known == nil {
			s.lastLabel++
			known = &label{id: s.lastLabel, name: name}
			r.labels[strings.ToLower(name)] = known
		}
		if !slices.Contains(out, known.name) {
			out = append(out, known.name)
		}
	}
	return out
}

// logins gives each login the spelling of its account, and drops repetitions.
func (s *Server) logins(names []string) []string {
	var out []string
	for _, name := range names {
		if login := s.userFor(name).Login; !slices.Contains(out, login) {
			out = append(out, login)
		}
	}
	return out
}

func (s *Server) times(created, updated time.Time) (time.Time, time.Time) {
	if created.IsZero() {
		created = s.now()
	}
	if updated.IsZero() {
		updated = created
	}
	return created.UTC().Truncate(time.Second), updated.UTC().Truncate(time.Second)
}

func (s *Server) userFor(login string) *user {
	key := strings.ToLower(login)
	if known := s.users[key]; known != nil {
		return known
	}
	kind := "User"
	if strings.HasSuffix(key, loginBotSuffix) {
		kind = "Bot"
	}
	s.lastUser++
	made := &user{User: User{Login: login, Type: kind}, id: s.lastUser}
	s.users[key] = made
	return made
}

func (s *Server) authorFor(r *repo, login string) string {
	if login == "" {
		login = r.Owner
	}
	return s.userFor(login).Login
}

func (s *Server) findRepo(owner, name string) (*repo, error) {
	if r := s.repos[repoKey(owner, name)]; r != nil {
		return r, nil
	}
	return nil, fault.Newf(fault.NotFound, "", "there is no repository %s/%s; add it first", owner, name)
}

func (s *Server) findIssue(owner, name string, number int) (*issue, error) {
	r, err := s.findRepo(owner, name)
	if err != nil {
		return nil, err
	}
	if is := r.issue(number); is != nil {
		return is, nil
	}
	return nil, fault.Newf(fault.NotFound, "", "there is no issue %d in %s/%s", number, owner, name)
}

func (r *repo) issue(number int) *issue {
	at, found := slices.BinarySearchFunc(r.issues, number, func(i *issue, n int) int { return i.Number - n })
	if !found {
		return nil
	}
	return r.issues[at]
}

func (r *repo) association(login string) string {
	if a := r.Associations[strings.ToLower(login)]; a != "" {
		return a
	}
	return None
}

// mayWrite asks the installation where there is one: an app has no association with a repository.
func (c *call) mayWrite() bool {
	if c.installation != nil {
		return c.installation.covers(c.repo)
	}
	return c.repo.mayWrite(c.user)
}

// mayRead is narrower than GitHub for an installation, which there also sees what is public: nothing should depend on that.
func (c *call) mayRead(r *repo) bool {
	if c.installation != nil {
		return c.installation.covers(r)
	}
	return r.mayRead(c.user)
}

func (r *repo) mayWrite(u *user) bool {
	return u != nil && slices.Contains([]string{Owner, Member, Collaborator}, r.association(u.Login))
}

func (r *repo) mayRead(u *user) bool {
	return !r.Private || u != nil && r.association(u.Login) != None
}

func repoKey(owner, name string) string { return strings.ToLower(owner + "/" + name) }
