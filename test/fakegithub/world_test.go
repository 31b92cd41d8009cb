package fakegithub_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-github/v90/github"

	"muxpost.dev/muxpost/test/fakegithub"
)

// clock is a server's clock that moves only when told to. It starts at the real time, because go-github compares with that.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

type world struct {
	*fakegithub.Server
	clock *clock
	url   string
}

// newWorld serves acme/widgets, where carol may write and mallory may not.
func newWorld(t *testing.T, cfg fakegithub.Config) *world {
	t.Helper()
	w := &world{clock: &clock{now: time.Now()}}
	cfg.Now = w.clock.Now
	cfg.Tokens = map[string]string{"tok-carol": "carol", "tok-mallory": "mallory", "tok-bot": "helper[bot]"}
	w.Server = fakegithub.New(cfg)
	must(t, w.AddRepo(fakegithub.Repo{Owner: "Acme", Name: "Widgets", Associations: map[string]string{
		"carol": fakegithub.Collaborator, "helper[bot]": fakegithub.Collaborator}}))
	server := httptest.NewServer(w.Server)
	t.Cleanup(func() { w.Close(); server.Close() })
	w.url = server.URL
	return w
}

func (w *world) client(t *testing.T, token string) *github.Client {
	t.Helper()
	base := w.url + "/"
	opts := []github.ClientOptionsFunc{github.WithURLs(&base, &base)}
	if token != "" {
		opts = append(opts, github.WithAuthToken(token))
	}
	client, err := github.NewClient(opts...)
	must(t, err)
	return client
}

func (w *world) issue(t *testing.T, is fakegithub.Issue) int {
	t.Helper()
	n, err := w.AddIssue("acme", "widgets", is)
	must(t, err)
	return n
}

func (w *world) comment(t *testing.T, number int, author, body string) int64 {
	t.Helper()
	id, err := w.AddComment("acme", "widgets", number, fakegithub.Comment{Author: author, Body: body})
	must(t, err)
	return id
}

// get sends a plain request and returns the answer with its body read.
func (w *world) get(t *testing.T, path string, header ...string) (*http.Response, string) {
	t.Helper()
	return w.send(t, http.MethodGet, path, "", header...)
}

func (w *world) send(t *testing.T, method, path, body string, header ...string) (*http.Response, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, w.url+path, strings.NewReader(body))
	must(t, err)
	for i := 0; i < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	noFollow := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	response, err := noFollow.Do(request)
	must(t, err)
	defer func() { must(t, response.Body.Close()) }()
	data, err := io.ReadAll(response.Body)
	must(t, err)
	return response, string(data)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func equal(t *testing.T, what string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func numbers(issues []*github.Issue) []int {
	var out []int
	for _, is := range issues {
		out = append(out, is.GetNumber())
	}
	return out
}

func bodies(comments []*github.IssueComment) []string {
	var out []string
	for _, c := range comments {
		out = append(out, c.GetBody())
	}
	return out
}

func messageOf(t *testing.T, err error) string {
	t.Helper()
	var e *github.ErrorResponse
	if !errors.As(err, &e) {
		t.Fatalf("got %v, want an ErrorResponse", err)
	}
	return fmt.Sprint(e.Response.StatusCode, " ", e.Message)
}
