package fakegithub_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-github/v90/github"

	"muxpost.dev/muxpost/test/fakegithub"
)

func TestFault_IsClassifiedByGoGithubLikeTheRealOne(t *testing.T) {
	for _, tc := range []struct {
		name  string
		fault fakegithub.Fault
		check func(*testing.T, error)
	}{
		{"bad gateway", fakegithub.Fault{Kind: fakegithub.KindBadGateway}, func(t *testing.T, err error) {
			equal(t, "error", messageOf(t, err), "502 ")
		}},
		{"status", fakegithub.Fault{Kind: fakegithub.KindStatus, Status: 418, Body: `{"message":"teapot"}`,
			Header: map[string]string{"x-extra": "1"}}, func(t *testing.T, err error) {
			equal(t, "error", messageOf(t, err), "418 teapot")
			var e *github.ErrorResponse
			errors.As(err, &e)
			equal(t, "header", e.Response.Header.Get("X-Extra"), "1")
		}},
		{"forbidden", fakegithub.Fault{Kind: fakegithub.KindForbidden}, func(t *testing.T, err error) {
			equal(t, "error", messageOf(t, err), "403 Resource not accessible by personal access token")
		}},
		{"rate limit", fakegithub.Fault{Kind: fakegithub.KindRateLimit, RetryAfter: 120}, func(t *testing.T, err error) {
			var e *github.RateLimitError
			if !errors.As(err, &e) {
				t.Fatalf("got %v, want a RateLimitError", err)
			}
			equal(t, "remaining and limit", []int{e.Rate.Remaining, e.Rate.Limit}, []int{0, 5000})
			if left := time.Until(e.Rate.Reset.Time); left < time.Minute || left > 3*time.Minute {
				t.Errorf("the reset is %v away", left)
			}
		}},
		{"secondary limit", fakegithub.Fault{Kind: fakegithub.KindSecondaryLimit}, isSecondary(http.StatusForbidden, time.Minute)},
		{"secondary limit as 429", fakegithub.Fault{Kind: fakegithub.KindSecondaryLimit, Status: 429, RetryAfter: 7},
			isSecondary(http.StatusTooManyRequests, 7*time.Second)},
		{"truncated", fakegithub.Fault{Kind: fakegithub.KindTruncate}, func(t *testing.T, err error) {
			if !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("got %v, want an unexpected end", err)
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, fakegithub.Config{})
			n := w.issue(t, fakegithub.Issue{Title: "t"})
			tc.fault.Path = fmt.Sprintf("/api/v3/repos/ACME/widgets/issues/%d", n)
			must(t, w.Inject(tc.fault))
			_, _, err := w.client(t, "tok-carol").Issues.Get(t.Context(), "acme", "widgets", n)
			tc.check(t, err)
			_, _, err = w.client(t, "tok-carol").Issues.Get(t.Context(), "acme", "widgets", n)
			must(t, err)
			count := w.Counts()[fmt.Sprintf("GET /repos/acme/widgets/issues/%d", n)]
			equal(t, "requests and faults", []int{count.Requests, count.Faulted}, []int{2, 1})
		})
	}
}

func isSecondary(status int, wait time.Duration) func(*testing.T, error) {
	return func(t *testing.T, err error) {
		var e *github.AbuseRateLimitError
		if !errors.As(err, &e) {
			t.Fatalf("got %v, want an AbuseRateLimitError", err)
		}
		equal(t, "status and wait", []any{e.Response.StatusCode, e.GetRetryAfter()}, []any{status, wait})
	}
}

func TestFault_MatchesWholeSegmentsAndMethodsAndRunsOut(t *testing.T) {
	w := newWorld(t, fakegithub.Config{})
	for range 10 {
		w.issue(t, fakegithub.Issue{Title: "t"})
	}
	must(t, w.Inject(fakegithub.Fault{Kind: fakegithub.KindBadGateway, Method: "GET", Path: "/repos/acme/widgets/issues/1", Times: 2}))
	status := func(method, path string) int {
		response, _ := w.send(t, method, "/repos/acme/widgets/issues/"+path, `{"content":"eyes","body":"b"}`, "Authorization", "Bearer tok-carol")
		return response.StatusCode
	}
	got := []int{status("GET", "10"), status("POST", "1/reactions"), status("GET", "1"), status("GET", "1/comments"), status("GET", "1")}
	equal(t, "statuses", got, []int{200, 201, 502, 502, 200})
}

func TestFault_AfterEffectLosesOnlyTheAnswer(t *testing.T) {
	for _, kind := range []fakegithub.Kind{fakegithub.KindBadGateway, fakegithub.KindTruncate} {
		w := newWorld(t, fakegithub.Config{})
		n := w.issue(t, fakegithub.Issue{Title: "t"})
		must(t, w.Inject(fakegithub.Fault{Kind: kind, Method: "POST", AfterEffect: true}))
		_, _, err := w.client(t, "tok-carol").Issues.CreateComment(t.Context(), "acme", "widgets", n, &github.IssueComment{Body: github.Ptr("b")})
		if err == nil {
			t.Errorf("%s: the client got its answer", kind)
		}
		is, err := w.Issue("acme", "widgets", n)
		must(t, err)
		equal(t, "comments", len(is.Comments), 1)
	}
}

func TestFault_HangEndsWithTheClientOrWithTheFaults(t *testing.T) {
	w := newWorld(t, fakegithub.Config{})
	must(t, w.Inject(fakegithub.Fault{Kind: fakegithub.KindHang, Times: -1}))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, _, err := w.client(t, "").Repositories.Get(ctx, "acme", "widgets")
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the deadline", err)
	}
	done := make(chan error)
	client := w.client(t, "")
	go func() {
		_, _, err := client.Repositories.Get(context.Background(), "acme", "widgets")
		done <- err
	}()
	deadline := time.Now().Add(10 * time.Second)
	for w.Counts()["GET /repos/acme/widgets"].Faulted < 2 {
		if time.Now().After(deadline) {
			t.Fatal("the second request did not arrive")
		}
		time.Sleep(time.Millisecond)
	}
	w.ClearFaults()
	if err := <-done; !errors.Is(err, io.EOF) {
		t.Errorf("got %v, want a connection that was cut", err)
	}
	_, _, err = client.Repositories.Get(t.Context(), "acme", "widgets")
	must(t, err)
}

func TestControl_SeedsFaultsAndCountsOverHTTP(t *testing.T) {
	w := newWorld(t, fakegithub.Config{})
	asJSON := []string{"Content-Type", "application/json"}
	response, body := w.send(t, "POST", "/_fake/seed", `{"tokens":{"tok-dave":"dave"},"repos":[{"owner":"acme","name":"widgets",
		"issues":[{"number":7,"title":"seeded","comments":[{"author":"dave","body":"one"}]}]}]}`, asJSON...)
	equal(t, body, response.StatusCode, http.StatusOK)
	w.send(t, "POST", "/_fake/seed", `{"repos":[{"owner":"acme","name":"widgets",
		"issues":[{"number":7,"comments":[{"author":"erin","body":"two"}]}]}]}`, asJSON...)
	found, _, err := w.client(t, "tok-dave").Issues.ListComments(t.Context(), "acme", "widgets", 7, nil)
	must(t, err)
	equal(t, "comments", bodies(found), []string{"one", "two"})

	w.send(t, "POST", "/_fake/faults", `{"kind":"status","path":"/repos/acme/widgets","status":503,"times":-1}`, asJSON...)
	response, _ = w.get(t, "/repos/acme/widgets")
	equal(t, "status", response.StatusCode, 503)
	w.send(t, "DELETE", "/_fake/faults", "")
	response, _ = w.get(t, "/repos/acme/widgets")
	equal(t, "status after DELETE", response.StatusCode, 200)
	_, body = w.get(t, "/_fake/counts")
	equal(t, "counts", body, `{"GET /repos/acme/widgets":{"requests":2,"not_modified":0,"charged":1,"faulted":1},`+
		`"GET /repos/acme/widgets/issues/7/comments":{"requests":1,"not_modified":0,"charged":1,"faulted":0}}`+"\n")

	for _, bad := range []string{`{"kind":"odd"}`, `{"kind":"status"}`, `{"kind":"hang","tmies":2}`, `{} {}`, `[`} {
		response, body := w.send(t, "POST", "/_fake/faults", bad, asJSON...)
		equal(t, bad+" → "+body, response.StatusCode, http.StatusBadRequest)
	}
	response, _ = w.send(t, "POST", "/_fake/faults", `{"kind":"hang"}`, "Content-Type", "text/plain")
	equal(t, "what a web page could send", response.StatusCode, http.StatusUnsupportedMediaType)
}
