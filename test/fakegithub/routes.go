package fakegithub

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

type route struct {
	method, pattern string
	handle          func(*call) (reply, error)
}

// routes in the order in which they are tried; {x} matches one segment, {x...} one or more.
var routes = slices.Concat(issueRoutes, listRoutes, reviewCommentRoutes, pullRoutes, reviewRoutes, checkRoutes, graphqlRoutes, hookRoutes, appRoutes)

var issueRoutes = []route{
	{"GET", "user", (*call).getUser},
	{"GET", "rate_limit", (*call).getRateLimit},
	{"GET", "repos/{owner}/{repo}", (*call).getRepo},
	{"GET", "repos/{owner}/{repo}/issues", (*call).listIssues},
	{"POST", "repos/{owner}/{repo}/issues", (*call).createIssue},
	{"GET", "repos/{owner}/{repo}/issues/comments", (*call).listRepoComments},
	{"GET", "repos/{owner}/{repo}/issues/comments/{id}", withComment(func(c *call, n *comment) (reply, error) { return c.ok(c.comment(n)) })},
	{"PATCH", "repos/{owner}/{repo}/issues/comments/{id}", withComment((*call).patchComment)},
	{"DELETE", "repos/{owner}/{repo}/issues/comments/{id}", withComment((*call).deleteComment)},
	{"GET", "repos/{owner}/{repo}/issues/comments/{id}/reactions", withComment(func(c *call, n *comment) (reply, error) {
		return c.listReactions(n.Reactions)
	})},
	{"POST", "repos/{owner}/{repo}/issues/comments/{id}/reactions", withComment(func(c *call, n *comment) (reply, error) {
		return c.addReaction(&n.Reactions)
	})},
	{"GET", "repos/{owner}/{repo}/issues/{number}", withIssue(func(c *call, is *issue) (reply, error) { return c.ok(c.issueAlone(is)) })},
	{"PATCH", "repos/{owner}/{repo}/issues/{number}", withIssue((*call).patchIssue)},
	{"GET", "repos/{owner}/{repo}/issues/{number}/comments", withIssue((*call).listComments)},
	{"POST", "repos/{owner}/{repo}/issues/{number}/comments", withIssue((*call).createComment)},
	{"GET", "repos/{owner}/{repo}/issues/{number}/reactions", withIssue(func(c *call, is *issue) (reply, error) {
		return c.listReactions(is.Reactions)
	})},
	{"POST", "repos/{owner}/{repo}/issues/{number}/reactions", withIssue(func(c *call, is *issue) (reply, error) {
		return c.addReaction(&is.Reactions)
	})},
}

func (s *Server) dispatch(c *call, segments []string) (reply, error) {
	method := c.r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	if isRepoInstallation(segments) && method == http.MethodGet {
		return c.repoInstallation(segments[1], segments[2])
	}
	for _, route := range routes {
		vars, ok := match(route.pattern, segments)
		if !ok || route.method != method {
			continue
		}
		c.vars = vars
		if vars["repo"] != "" {
			c.repo = s.repos[repoKey(vars["owner"], vars["repo"])]
			// What one may not see does not exist, so that a name tells nothing.
			if c.repo == nil || !c.mayRead(c.repo) {
				return reply{}, notFound()
			}
			c.rest = strings.Join(segments[3:], "/")
		}
		if method != http.MethodGet && c.user == nil && !wantsJWT(segments) {
			if c.resource == resourceGraphQL {
				return reply{}, &problem{status: http.StatusUnauthorized, message: "This endpoint requires you to be authenticated."}
			}
			return reply{}, &problem{status: http.StatusUnauthorized, message: "Requires authentication"}
		}
		return route.handle(c)
	}
	return reply{}, notFound()
}

func match(pattern string, segments []string) (map[string]string, bool) {
	parts := strings.Split(pattern, "/")
	vars := map[string]string{}
	for i, part := range parts {
		// A branch may have slashes in its name: it takes what the rest of the pattern leaves.
		if strings.HasSuffix(part, "...}") && len(segments) > len(parts) {
			more := i + 1 + len(segments) - len(parts)
			segments = slices.Concat(segments[:i], []string{strings.Join(segments[i:more], "/")}, segments[more:])
		}
	}
	if len(parts) != len(segments) {
		return nil, false
	}
	for i, part := range parts {
		if name, ok := strings.CutPrefix(part, "{"); ok {
			vars[strings.TrimSuffix(strings.TrimSuffix(name, "}"), "...")] = segments[i]
		} else if part != segments[i] {
			return nil, false
		}
	}
	return vars, true
}

func withIssue(handle func(*call, *issue) (reply, error)) func(*call) (reply, error) {
	return func(c *call) (reply, error) {
		number, err := strconv.Atoi(c.vars["number"])
		if is := c.repo.issue(number); err == nil && is != nil {
			return handle(c, is)
		}
		return reply{}, notFound()
	}
}

func withComment(handle func(*call, *comment) (reply, error)) func(*call) (reply, error) {
	return func(c *call) (reply, error) {
		id, err := strconv.ParseInt(c.vars["id"], 10, 64)
		if n := c.s.comments[id]; err == nil && n != nil && n.issue.repo == c.repo {
			return handle(c, n)
		}
		return reply{}, notFound()
	}
}

func (c *call) ok(value object) (reply, error) {
	return reply{status: http.StatusOK, value: value}, nil
}

func (c *call) decode(into any) error {
	if err := json.NewDecoder(bytes.NewReader(c.body)).Decode(into); err != nil {
		return &problem{status: http.StatusBadRequest, message: "Problems parsing JSON"}
	}
	return nil
}

func (c *call) getUser() (reply, error) {
	if c.user == nil {
		return reply{}, &problem{status: http.StatusUnauthorized, message: "Requires authentication"}
	}
	if c.installation != nil { // "REST: Get the authenticated user" is not for installation tokens
		return reply{}, &problem{status: http.StatusForbidden, message: "Resource not accessible by integration"}
	}
	return c.ok(c.account(c.user.Login))
}

func (c *call) getRateLimit() (reply, error) {
	core, graphql := c.s.rate(c.rateKey(resourceCore)).value(), c.s.rate(c.rateKey(resourceGraphQL)).value()
	return c.ok(object{"resources": object{"core": core, "graphql": graphql}, "rate": core})
}

func (c *call) getRepo() (reply, error) { return c.ok(c.repository()) }

// since reads the lower bound of updated_at, which is part of what is asked for.
func (c *call) since() (time.Time, error) {
	text := c.query.Get("since")
	if text == "" {
		return time.Time{}, nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return at, invalid("Issue", "since", "invalid", "since must be a time such as 2026-01-02T15:04:05Z")
	}
	return at, nil
}

func (c *call) listIssues() (reply, error) {
	since, err := c.since()
	if err != nil {
		return reply{}, err
	}
	state := cmp.Or(c.query.Get("state"), "open")
	if !slices.Contains([]string{"open", "closed", "all"}, state) {
		return reply{}, invalid("Issue", "state", "invalid", "state must be open, closed or all")
	}
	var found []*issue
	for _, is := range c.repo.issues {
		if (state == "all" || state == is.State) && !is.UpdatedAt.Before(since) && is.hasLabels(c.query.Get("labels")) &&
			is.assignedTo(c.query.Get("assignee")) && is.mentions(c.query.Get("mentioned")) && is.madeBy(c.query.Get("creator")) {
			found = append(found, is)
		}
	}
	slices.SortStableFunc(found, func(a, b *issue) int {
		order := 0
		switch c.query.Get("sort") {
		case "updated":
			order = a.UpdatedAt.Compare(b.UpdatedAt)
		case "comments":
			order = len(a.comments) - len(b.comments)
		default:
			order = a.CreatedAt.Compare(b.CreatedAt)
		}
		order = cmp.Or(order, a.Number-b.Number)
		if c.query.Get("direction") == "asc" {
			return order
		}
		return -order
	})
	return paginate(c, found, c.issue)
}

// hasLabels reports whether all labels of a comma-separated list are there, whatever their case.
func (is *issue) hasLabels(list string) bool {
	for name := range strings.SplitSeq(list, ",") {
		name = strings.TrimSpace(name)
		if name != "" && !slices.ContainsFunc(is.Labels, func(l string) bool { return strings.EqualFold(l, name) }) {
			return false
		}
	}
	return true
}

// assignedTo follows "REST: List repository issues": a login, * for anybody at all, none for nobody.
func (is *issue) assignedTo(who string) bool {
	switch who {
	case "":
		return true
	case "*":
		return len(is.Assignees) > 0
	case "none":
		return len(is.Assignees) == 0
	}
	return slices.ContainsFunc(is.Assignees, func(login string) bool { return strings.EqualFold(login, who) })
}

// mentions follows "REST: List repository issues": mentioned in the issue, where a comment on it counts too.
func (is *issue) mentions(login string) bool {
	return login == "" || mentioned(is.Body, login) ||
		slices.ContainsFunc(is.comments, func(n *comment) bool { return mentioned(n.Body, login) })
}

// mentioned looks for @login as a word of its own.
func mentioned(text, login string) bool {
	text, name := strings.ToLower(text), "@"+strings.ToLower(login)
	for {
		at := strings.Index(text, name)
		if at < 0 {
			return false
		}
		end := at + len(name)
		if (at == 0 || !isLoginByte(text[at-1])) && (end == len(text) || !isLoginByte(text[end])) {
			return true
		}
		text = text[end:]
	}
}

func isLoginByte(b byte) bool {
	return b == '-' || '0' <= b && b <= '9' || 'a' <= b && b <= 'z' || b == '[' || b == '/'
}

func (is *issue) madeBy(login string) bool { return login == "" || strings.EqualFold(is.Author, login) }

// listComments is always in the order of ids: this endpoint ignores sort and direction.
func (c *call) listComments(is *issue) (reply, error) { return c.commentsSince(is.comments) }

func (c *call) listRepoComments() (reply, error) {
	var all []*comment
	for _, is := range c.repo.issues {
		all = append(all, is.comments...)
	}
	sort, descending := c.query.Get("sort"), c.query.Get("direction") == "desc"
	slices.SortFunc(all, func(a, b *comment) int {
		order := 0
		switch sort {
		case "updated":
			order = a.UpdatedAt.Compare(b.UpdatedAt)
		case "created":
			order = a.CreatedAt.Compare(b.CreatedAt)
		}
		order = cmp.Or(order, cmp.Compare(a.ID, b.ID))
		if descending && sort != "" { // GitHub ignores the direction when there is no sort.
			return -order
		}
		return order
	})
	return c.commentsSince(all)
}

func (c *call) commentsSince(all []*comment) (reply, error) {
	since, err := c.since()
	if err != nil {
		return reply{}, err
	}
	all = slices.DeleteFunc(slices.Clone(all), func(n *comment) bool { return n.Hidden || n.UpdatedAt.Before(since) })
	return paginate(c, all, c.comment)
}
