package fakegithub

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// call is one API request on its way through a handler.
type call struct {
	s        *Server
	r        *http.Request
	body     []byte
	api, web string // what URLs in answers start with
	query    url.Values
	vars     map[string]string
	user     *user  // nil without a token
	resource string // which rate limit it is charged to
	// installation is whose token it is, app whose JWT.
	installation *installation
	app          *app
	repo         *repo
	rest         string // the path below the repository
}

// reply is what a handler gives back: a status, a value to be sent as JSON (nil for none) and a Link header.
type reply struct {
	status int
	value  any
	link   string
}

// problem is an answer that is an error, in GitHub's form.
type problem struct {
	status  int
	message string
	doc     string
	errors  []object
}

type object = map[string]any

func (p *problem) Error() string { return p.message }

func (p *problem) reply() reply {
	value := object{"message": p.message, "documentation_url": docsURL + p.doc, "status": strconv.Itoa(p.status)}
	if p.errors != nil {
		value["errors"] = p.errors
	}
	return reply{status: p.status, value: value}
}

const docsURL = "https://docs.github.com/rest"

func notFound() error { return &problem{status: http.StatusNotFound, message: "Not Found"} }

func invalid(resource, field, code, message string) error {
	return &problem{status: http.StatusUnprocessableEntity, message: "Validation Failed",
		errors: []object{{"resource": resource, "field": field, "code": code, "message": message}}}
}

// answer is a response that is ready to be written, so that nothing is written under the lock.
type answer struct {
	status int
	header http.Header
	body   []byte
}

func (s *Server) serveAPI(w http.ResponseWriter, r *http.Request, segments []string, enterprise bool, body []byte) {
	s.inFlight.Add(1)
	defer s.inFlight.Add(-1)
	s.mu.Lock()
	c := &call{s: s, r: r, body: body, query: r.URL.Query(), web: "http://" + r.Host}
	c.api = c.web
	if enterprise {
		c.api += enterprisePrefix
	}
	c.resource = resourceCore
	if segments[0] == "graphql" {
		c.resource = resourceGraphQL
	}
	segments = s.byName(segments)
	path := "/" + strings.ToLower(strings.Join(segments, "/"))
	count := s.count(r.Method, path)
	count.Requests++
	f := s.takeFault(r.Method, path)
	if f != nil {
		count.Faulted++
	}
	release := s.release
	var a answer
	if f == nil || f.needsAnswer() {
		a = s.answer(c, segments, count)
	}
	if f != nil {
		a = f.apply(s, c, a)
	}
	s.mu.Unlock()
	if f != nil && f.cuts() {
		f.cut(w, r, a, release)
	}
	a.write(w)
}

func (a answer) write(w http.ResponseWriter) {
	for key, values := range a.header {
		w.Header()[key] = values
	}
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body) // a client that went away is not ours to report
}

// byName turns /repositories/{id}/…, the form in Link headers, into /repos/{owner}/{repo}/….
func (s *Server) byName(segments []string) []string {
	if segments[0] != "repositories" || len(segments) < 2 {
		return segments
	}
	if r := s.repoByID(segments[1]); r != nil {
		return append([]string{"repos", r.Owner, r.Name}, segments[2:]...)
	}
	return segments
}

func (s *Server) repoByID(id string) *repo {
	for _, r := range s.repos {
		if strconv.FormatInt(r.id, 10) == id {
			return r
		}
	}
	return nil
}

// wantsJWT are the requests that an app makes as itself; they know no tokens.
func wantsJWT(segments []string) bool {
	return segments[0] == "app" || isRepoInstallation(segments)
}

func isRepoInstallation(segments []string) bool {
	return len(segments) == 4 && segments[0] == "repos" && segments[3] == "installation"
}

// answer authenticates, counts against the rate limit, handles and settles the conditional request.
func (s *Server) answer(c *call, segments []string, count *Count) answer {
	authenticate := c.authenticate
	if wantsJWT(segments) {
		authenticate = c.authenticateApp
	}
	err := authenticate()
	bucket := s.rate(c.rateKey(c.resource))
	free := segments[0] == "rate_limit"
	if err == nil && !free && bucket.used >= bucket.limit {
		return s.finish(c, c.exhausted(), bucket)
	}
	if err == nil {
		if wait := s.beyondSecondary(c); wait > 0 {
			return s.secondaryLimit(c, wait)
		}
	}
	if !free {
		bucket.used++
		count.Charged++
	}
	var out reply
	if err == nil {
		out, err = s.dispatch(c, segments)
	}
	if err != nil {
		var p *problem
		if !errors.As(err, &p) {
			p = &problem{status: http.StatusInternalServerError, message: err.Error()}
		}
		out = p.reply()
	}
	a := s.finish(c, out, bucket)
	if a.status == http.StatusNotModified {
		count.NotModified++
		// GitHub gives 304 away only to requests with a valid token.
		if c.user != nil {
			bucket.used--
			count.Charged--
			bucket.head(a.header)
		}
	}
	return a
}

func (s *Server) finish(c *call, out reply, bucket *rate) answer {
	a := answer{status: out.status, header: s.baseHeader()}
	bucket.head(a.header)
	if out.link != "" {
		a.header.Set("Link", out.link)
	}
	if out.value == nil {
		a.header.Del("Content-Type")
	} else {
		body, err := json.Marshal(out.value)
		if err != nil {
			a.status, body = http.StatusInternalServerError, []byte(`{"message":"Server Error"}`)
		}
		a.body = body
	}
	if a.status == http.StatusOK && (c.r.Method == http.MethodGet || c.r.Method == http.MethodHead) {
		tag := fmt.Sprintf("%q", fmt.Sprintf("%x", sha256.Sum256(append([]byte(c.r.Header.Get("Authorization")+"\n"), a.body...))))
		if matches(c.r.Header.Get("If-None-Match"), tag) {
			// A page that did not change can have a new neighbour: Link is no part of the ETag, and GitHub leaves it out of a 304, as those
			// report who kept the pages of lists.
			a.status, a.body = http.StatusNotModified, nil
			a.header.Del("Content-Type")
			a.header.Del("Link")
		}
		if !s.cfg.StrongETags {
			tag = "W/" + tag
		}
		a.header.Set("ETag", tag)
		a.header.Set("Cache-Control", "private, max-age=60, s-maxage=60")
		a.header.Set("Vary", "Accept, Authorization, Cookie, X-GitHub-OTP, Accept-Encoding, Accept, X-Requested-With")
	}
	return a
}

// matches compares weakly, as RFC 9110 wants it for If-None-Match.
func matches(header, tag string) bool {
	for candidate := range strings.SplitSeq(header, ",") {
		candidate = strings.TrimSpace(candidate)
		if candidate == "*" || strings.TrimPrefix(candidate, "W/") == tag {
			return true
		}
	}
	return false
}

func (s *Server) baseHeader() http.Header {
	s.requestSeq++
	return http.Header{
		"Content-Type":        {contentTypeJSON},
		"Date":                {s.now().Format(http.TimeFormat)},
		"X-Github-Media-Type": {"github.v3; format=json"},
		"X-Github-Request-Id": {fmt.Sprintf("FAKE:%08X", s.requestSeq)},
	}
}

func (c *call) authenticate() error {
	header := c.r.Header.Get("Authorization")
	if header == "" {
		if c.s.cfg.RequireToken {
			return &problem{status: http.StatusUnauthorized, message: "Requires authentication"}
		}
		return nil
	}
	scheme, token, _ := strings.Cut(header, " ")
	if strings.EqualFold(scheme, "bearer") || strings.EqualFold(scheme, "token") {
		// "REST: Create an installation access token for an app": it expires one hour from the time it was made.
		if g := c.s.tokens[strings.TrimSpace(token)]; g != nil && (g.expires.IsZero() || c.s.now().Before(g.expires)) {
			c.user, c.installation = g.user, g.installation
		}
	}
	if c.user == nil {
		return &problem{status: http.StatusUnauthorized, message: "Bad credentials"}
	}
	return nil
}

// paginate cuts one page out of a list, and says in the Link header where the others are.
func paginate[T any](c *call, items []T, render func(T) object) (reply, error) {
	page, link := pageOf(c, items, render)
	return reply{status: http.StatusOK, value: page, link: link}, nil
}

// paginateUnder is the same for lists that come inside an object beside their total_count.
func paginateUnder[T any](c *call, name string, items []T, render func(T) object) (reply, error) {
	page, link := pageOf(c, items, render)
	return reply{status: http.StatusOK, value: object{"total_count": len(items), name: page}, link: link}, nil
}

func pageOf[T any](c *call, items []T, render func(T) object) ([]object, string) {
	size := positive(c.query.Get("per_page"), 30)
	size = min(size, 100)
	page := positive(c.query.Get("page"), 1)
	last := max(1, (len(items)+size-1)/size)
	from := min((page-1)*size, len(items))
	out := make([]object, 0, size)
	for _, item := range items[from:min(from+size, len(items))] {
		out = append(out, render(item))
	}
	var links []string
	add := func(rel string, n int) {
		query := c.r.URL.Query()
		query.Set("page", strconv.Itoa(n))
		links = append(links, fmt.Sprintf(`<%s?%s>; rel=%q`, c.self(), query.Encode(), rel))
	}
	if page > 1 {
		add("prev", min(page-1, last))
	}
	if page < last {
		add("next", page+1)
		add("last", last)
	}
	if page > 1 {
		add("first", 1)
	}
	return out, strings.Join(links, ", ")
}

// self is the address of what was asked for, as Link headers give it: a repository goes by its id.
func (c *call) self() string {
	if c.repo == nil {
		return c.web + c.r.URL.Path
	}
	return fmt.Sprintf("%s/repositories/%d/%s", c.api, c.repo.id, c.rest)
}

// positive reads a number as GitHub does: what is not one, or is below one, is the default.
func positive(text string, otherwise int) int {
	if n, err := strconv.Atoi(text); err == nil && n > 0 && n < 1<<30/100 {
		return n
	}
	return otherwise
}
