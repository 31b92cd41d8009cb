package github

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/services/poller/internal/poll"
	"muxpost.dev/muxpost/test/fakegithub"
)

const repo = "acme/widgets"

type world struct {
	*fakegithub.Server
	url    string
	client *Client
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{Server: fakegithub.New(fakegithub.Config{Tokens: map[string]string{"tok": "reader"}, RequireToken: true})}
	must(t, w.AddRepo(fakegithub.Repo{Owner: "Acme", Name: "Widgets", Associations: map[string]string{"alice": fakegithub.Collaborator}}))
	server := httptest.NewServer(w.Server)
	t.Cleanup(func() { w.Close(); server.Close() })
	w.url = server.URL
	w.client = w.newClient(t, Config{})
	return w
}

func (w *world) newClient(t *testing.T, c Config) *Client {
	t.Helper()
	if c.BaseURL == "" {
		c.BaseURL = w.url
	}
	if c.Token == nil {
		c.Token = tokenOf(t, "tok")
	}
	c.Label = "agent"
	client, err := New(c)
	must(t, err)
	return client
}

// tokenOf returns a token from a file.
func tokenOf(t *testing.T, text string) *Token {
	t.Helper()
	path := filepath.Join(t.TempDir(), "token")
	must(t, os.WriteFile(path, []byte(text), 0o600))
	token, err := NewToken(path, func() (string, error) {
		data, err := os.ReadFile(path)
		return string(data), err
	})
	must(t, err)
	return token
}

func (w *world) issue(t *testing.T, is fakegithub.Issue) int {
	t.Helper()
	n, err := w.AddIssue("acme", "widgets", is)
	must(t, err)
	return n
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

func labelled(title string) fakegithub.Issue {
	return fakegithub.Issue{Title: title, Author: "alice", Body: "body of " + title, Labels: []string{"agent"}}
}

func titles(l poll.Listing) []string {
	var out []string
	for _, item := range l.Items {
		out = append(out, item.Title)
	}
	return out
}

func TestItems_OpenLabelledIssuesAndNothingElse(t *testing.T) {
	w := newWorld(t)
	w.issue(t, labelled("one"))
	pull := labelled("a pull request")
	pull.PullRequest = true
	w.issue(t, pull)
	closed := labelled("closed")
	closed.State = "closed"
	w.issue(t, closed)
	w.issue(t, fakegithub.Issue{Title: "without the label"})
	for _, base := range []string{w.url, w.url + "/", w.url + "/api/v3/", w.url + "/api/v3"} {
		l, err := w.newClient(t, Config{BaseURL: base}).Items(t.Context(), repo)
		must(t, err)
		equal(t, "items under "+base, titles(l), []string{"one"})
		if time.Since(l.At).Abs() > time.Minute {
			t.Errorf("seen at %v", l.At)
		}
		item := l.Items[0]
		host := strings.TrimPrefix(w.url, "http://")
		equal(t, "item", []any{item.Ref.String(), item.Author, item.Body, item.Open, item.Comments, item.Care},
			[]any{"github:" + host + "/acme/widgets#1", poll.Author{Login: "alice", Association: "COLLABORATOR"}, "body of one", true, 0, poll.CareLabel})
	}
}

func TestLists_EveryPageIsRead(t *testing.T) {
	w := newWorld(t)
	n := w.issue(t, labelled("first"))
	for i := range 104 {
		w.issue(t, labelled(fmt.Sprint(i)))
	}
	for i := range 101 {
		_, err := w.AddComment("acme", "widgets", n, fakegithub.Comment{Author: "alice", Body: fmt.Sprint(i)})
		must(t, err)
	}
	l, err := w.client.Items(t.Context(), repo)
	must(t, err)
	equal(t, "issues", len(l.Items), 105)
	comments, err := w.client.Posts(t.Context(), repo, 1, false, time.Time{})
	must(t, err)
	equal(t, "comments", len(comments), 101)
	equal(t, "the last", comments[100].Body, "100")
}

// TestLists_AFullLastPageDoesNotHideTheOneThatComesBehindIt: it stays the same, and the 304 does not tell of the other.
func TestLists_AFullLastPageDoesNotHideTheOneThatComesBehindIt(t *testing.T) {
	w := newWorld(t)
	comment := func() {
		_, err := w.AddComment("acme", "widgets", 1, fakegithub.Comment{Author: "alice", Body: "x"})
		must(t, err)
	}
	for range 2 * pageSize {
		w.issue(t, labelled("x"))
	}
	for range pageSize {
		comment()
	}
	read := func(ctx context.Context) [2]int {
		l, err := w.client.Items(ctx, repo)
		must(t, err)
		posts, err := w.client.Posts(ctx, repo, 1, false, time.Time{})
		must(t, err)
		return [2]int{len(l.Items), len(posts)}
	}
	charged := func() (n int) {
		for _, count := range w.Counts() {
			n += count.Charged
		}
		w.ResetCounts()
		return n
	}
	equal(t, "at first", read(t.Context()), [2]int{2 * pageSize, pageSize})
	charged()
	for range 3 {
		equal(t, "unchanged", read(t.Context()), [2]int{2 * pageSize, pageSize})
		equal(t, "charged for the two pages that may hide another", charged(), 2)
	}
	read(poll.Full(t.Context()))
	equal(t, "in full, none is asked for twice but what has to be the same twice", charged(), 3)
	w.issue(t, labelled("behind them"))
	comment()
	equal(t, "with one more of each", read(t.Context()), [2]int{2*pageSize + 1, pageSize + 1})
	charged()
	equal(t, "again", read(t.Context()), [2]int{2*pageSize + 1, pageSize + 1})
	equal(t, "charged again", charged(), 0)
}

func TestRequests_WhatDidNotChangeCostsNothing(t *testing.T) {
	w := newWorld(t)
	n := w.issue(t, labelled("one"))
	for i := range 101 {
		_, err := w.AddComment("acme", "widgets", n, fakegithub.Comment{Author: "alice", Body: fmt.Sprint(i)})
		must(t, err)
	}
	read := func() int {
		_, err := w.client.Items(t.Context(), repo)
		must(t, err)
		_, err = w.client.Item(t.Context(), repo, 1, false)
		must(t, err)
		comments, err := w.client.Posts(t.Context(), repo, 1, false, time.Time{})
		must(t, err)
		return len(comments)
	}
	read()
	w.ResetCounts()
	for range 3 {
		equal(t, "comments", read(), 101)
	}
	requests := 0
	for path, count := range w.Counts() {
		requests += count.Requests
		if count.Charged != 0 || count.NotModified != count.Requests {
			t.Errorf("%s: %+v", path, count)
		}
	}
	equal(t, "requests", requests, 3*(1+1+4))
	_, err := w.AddComment("acme", "widgets", n, fakegithub.Comment{Author: "alice", Body: "new"})
	must(t, err)
	equal(t, "comments after a new one", read(), 102)
}

func TestComments_SayWhatIsAMachine(t *testing.T) {
	w := newWorld(t)
	n := w.issue(t, labelled("one"))
	for _, author := range []string{"alice", "helper[bot]"} {
		_, err := w.AddComment("acme", "widgets", n, fakegithub.Comment{Author: author, Body: "hello"})
		must(t, err)
	}
	comments, err := w.client.Posts(t.Context(), repo, 1, false, time.Time{})
	must(t, err)
	equal(t, "machines", []bool{comments[0].Author.Machine, comments[1].Author.Machine}, []bool{false, true})
	// An app that writes in a person's name.
	must(t, w.Inject(fakegithub.Fault{Kind: fakegithub.KindStatus, Status: 200, Header: map[string]string{"ETag": ""},
		Body: `[{"id":1,"node_id":"IC_1","body":"x","user":{"login":"alice","type":"User"},"created_at":"2026-05-01T12:00:00Z",
			"performed_via_github_app":{"slug":"an-app"}}, {"id":2,"node_id":"IC_2","body":"y","user":null,"created_at":"2026-05-01T12:00:00Z"}]`}))
	comments, err = w.client.Posts(t.Context(), repo, 1, false, time.Time{})
	must(t, err)
	equal(t, "via an app, and by nobody", []poll.Author{comments[0].Author, comments[1].Author},
		[]poll.Author{{Login: "alice", Machine: true}, {}})
}

// faultCase is something that goes wrong with a request, and what must come of it.
type faultCase struct {
	name  string
	fault fakegithub.Fault
	kind  fault.Kind
	wait  [2]time.Duration // at least, at most
	words []string
}

func TestFaults_EachHasItsKindAndSaysWhatToDo(t *testing.T) {
	var none [2]time.Duration
	for _, tt := range []faultCase{
		{"429", fakegithub.Fault{Kind: fakegithub.KindSecondaryLimit, Status: 429, RetryAfter: 77}, fault.Throttled,
			[2]time.Duration{77 * time.Second, 77 * time.Second}, []string{"limits"}},
		{"403 with Retry-After", fakegithub.Fault{Kind: fakegithub.KindSecondaryLimit, RetryAfter: 12}, fault.Throttled,
			[2]time.Duration{12 * time.Second, 12 * time.Second}, []string{"limits"}},
		{"403 with nothing remaining", fakegithub.Fault{Kind: fakegithub.KindRateLimit, RetryAfter: 90}, fault.Throttled,
			[2]time.Duration{88 * time.Second, 92 * time.Second}, []string{"limits"}},
		{"403 that only says so", fakegithub.Fault{Kind: fakegithub.KindStatus, Status: 403,
			Body: `{"message":"You have exceeded a secondary rate limit."}`}, fault.Throttled, none, []string{"limits"}},
		{"403 for good", fakegithub.Fault{Kind: fakegithub.KindForbidden}, fault.Denied, none,
			[]string{repo, "permission", "Issues, read"}},
		{"404", fakegithub.Fault{Kind: fakegithub.KindStatus, Status: 404}, fault.NotFound, none, []string{repo, "spelling", "access"}},
		{"401", fakegithub.Fault{Kind: fakegithub.KindStatus, Status: 401}, fault.Denied, none, []string{"token_file"}},
		{"502", fakegithub.Fault{Kind: fakegithub.KindBadGateway}, fault.Unavailable, none, []string{"502"}},
		{"a body that was cut short", fakegithub.Fault{Kind: fakegithub.KindTruncate}, fault.Unavailable, none, []string{"cut short"}},
		{"no answer", fakegithub.Fault{Kind: fakegithub.KindHang}, fault.Unavailable, none, []string{"within 300ms"}},
		{"a page instead of JSON", fakegithub.Fault{Kind: fakegithub.KindStatus, Status: 200, Body: "<html>"}, fault.Unavailable,
			none, []string{"cannot be read"}},
		{"another server", fakegithub.Fault{Kind: fakegithub.KindStatus, Status: 302,
			Header: map[string]string{"Location": "http://elsewhere.invalid/"}}, fault.Denied, none, []string{"token is not sent"}},
	} {
		t.Run(tt.name, func(t *testing.T) { tt.check(t) })
	}
}

func (tt faultCase) check(t *testing.T) {
	w := newWorld(t)
	w.issue(t, labelled("one"))
	timeout := DefaultTimeout
	if tt.fault.Kind == fakegithub.KindHang {
		timeout = 300 * time.Millisecond
	}
	client := w.newClient(t, Config{Timeout: timeout})
	must(t, w.Inject(tt.fault))
	_, err := client.Items(t.Context(), repo)
	var f *fault.Error
	if !errors.As(err, &f) || f.Kind != tt.kind {
		t.Fatalf("got %v", err)
	}
	wanted := map[fault.Kind]fault.Reason{fault.Throttled: fault.ReasonRateLimited, fault.Unavailable: fault.ReasonSourceUnreachable,
		fault.Denied: fault.ReasonSourceRefused, fault.NotFound: fault.ReasonSourceRefused}
	equal(t, "reason", f.Reason, wanted[tt.kind])
	if f.RetryAfter < tt.wait[0] || f.RetryAfter > tt.wait[1] {
		t.Errorf("to wait %v, want %v", f.RetryAfter, tt.wait)
	}
	for _, word := range tt.words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%q does not say %q", err, word)
		}
	}
	// The fault was for one request: nothing of it is kept.
	l, err := client.Items(t.Context(), repo)
	must(t, err)
	equal(t, "afterwards", titles(l), []string{"one"})
}

func TestClient_TheTokenGoesNowhereElse(t *testing.T) {
	seen := make(chan string, 4)
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen <- r.Header.Get("Authorization") }))
	defer elsewhere.Close()
	redirects := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "comments") {
			w.Header().Set("Link", "<"+elsewhere.URL+`/page2>; rel="next"`)
			fmt.Fprint(w, "[]") //nolint:errcheck // A client that went away fails the test otherwise.
			return
		}
		http.Redirect(w, r, elsewhere.URL, http.StatusMovedPermanently)
	}))
	defer redirects.Close()
	client, err := New(Config{BaseURL: redirects.URL, Token: tokenOf(t, "secret"), Label: "agent"})
	must(t, err)
	if _, err := client.Items(t.Context(), repo); !errors.Is(err, fault.Denied) {
		t.Errorf("a redirect: %v", err)
	}
	if _, err := client.Posts(t.Context(), repo, 1, false, time.Time{}); !errors.Is(err, fault.Denied) {
		t.Errorf("a next page elsewhere: %v", err)
	}
	close(seen)
	for header := range seen {
		t.Errorf("the other server was asked, with %q", header)
	}
}

func TestClient_ACommentThatSlipsBetweenPagesIsNotMissed(t *testing.T) {
	w := newWorld(t)
	n := w.issue(t, labelled("one"))
	var ids []int64
	for i := range 150 {
		id, err := w.AddComment("acme", "widgets", n, fakegithub.Comment{Author: "alice", Body: fmt.Sprint(i)})
		must(t, err)
		ids = append(ids, id)
	}
	// The first request for a second page finds that a comment of the first one is gone, so that its own first has slipped.
	proxy := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("page") == "2" && ids != nil {
			if err := w.DeleteComment(ids[0]); err != nil {
				t.Error(err)
			}
			ids = nil
		}
		w.ServeHTTP(rw, r)
	}))
	defer proxy.Close()
	comments, err := w.newClient(t, Config{BaseURL: proxy.URL}).Posts(t.Context(), repo, 1, false, time.Time{})
	must(t, err)
	var bodies []string
	for _, c := range comments {
		bodies = append(bodies, c.Body)
	}
	equal(t, "comments", len(comments), 149)
	equal(t, "the one that slipped", slices.Contains(bodies, "100"), true)
}

func TestNew_WhereTheAPIIs(t *testing.T) {
	for base, want := range map[string][2]string{
		"":                                 {"https://api.github.com/", "github.com"},
		"https://github.com":               {"https://api.github.com/", "github.com"},
		"https://api.github.com":           {"https://api.github.com/", "github.com"},
		"https://GitHub.example.com":       {"https://GitHub.example.com/api/v3/", "github.example.com"},
		"https://ghe.example.com/api/v3":   {"https://ghe.example.com/api/v3/", "ghe.example.com"},
		"http://localhost:8080":            {"http://localhost:8080/", "localhost:8080"},
		"http://127.0.0.1:8080/prefix/api": {"http://127.0.0.1:8080/prefix/api/", "127.0.0.1:8080"},
	} {
		client, err := New(Config{BaseURL: base, Label: "agent"})
		must(t, err)
		equal(t, base, [2]string{client.base.String(), client.host}, want)
	}
	for _, base := range []string{"github.example.com", "ftp://x", "https://user:secret@x/", "https://", "://"} {
		if _, err := New(Config{BaseURL: base}); !errors.Is(err, fault.Invalid) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", base, err)
		}
	}
}

func TestCache_KeepsWhatWasUsedLastWithinItsBounds(t *testing.T) {
	c := newCache()
	for i := range maxCachedAnswers + 10 {
		c.put(&answer{key: fmt.Sprint(i), body: []byte("x")})
		c.get("0")
	}
	_, first := c.get("0")
	_, second := c.get("1")
	equal(t, "kept", []bool{first, second}, []bool{true, false})
	equal(t, "sizes", []int{c.order.Len(), len(c.byKey), c.bytes}, []int{maxCachedAnswers, maxCachedAnswers, maxCachedAnswers})
	for i := range 5 {
		c.put(&answer{key: fmt.Sprint("big ", i), body: make([]byte, maxCachedBytes/4)})
	}
	c.put(&answer{key: "too big", body: make([]byte, maxCachedBytes/4+1)})
	equal(t, "within its bytes", []int{c.order.Len(), c.bytes}, []int{4, maxCachedBytes})
}

// TestGet_EndsWithItsContext: that whoever asked had no time left is not said to be the server's silence.
func TestGet_EndsWithItsContext(t *testing.T) {
	w := newWorld(t)
	must(t, w.Inject(fakegithub.Fault{Kind: fakegithub.KindHang, Times: -1}))
	broken, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	late, cancelLate := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancelLate()
	for name, ctx := range map[string]context.Context{"broken off": broken, "out of time": late} {
		_, err := w.client.Items(ctx, repo)
		if !errors.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "no time left") || strings.Contains(err.Error(), DefaultTimeout.String()) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err = w.client.Edits(ctx, []string{"IC_x"}); !errors.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "no time left") {
			t.Errorf("%s, a query: %v", name, err)
		}
	}
}
