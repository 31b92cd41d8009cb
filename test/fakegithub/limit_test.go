package fakegithub_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-github/v90/github"

	"muxpost.dev/muxpost/test/fakegithub"
)

func TestLimit_OfWritesComesBackWithTheMinute(t *testing.T) {
	w := newWorld(t, fakegithub.Config{WritesPerMinute: 2})
	n, ctx := w.issue(t, fakegithub.Issue{Title: "t"}), t.Context()
	write := func(token string) error { // a client of its own: go-github remembers a limit, and does not ask again
		_, _, err := w.client(t, token).Issues.CreateComment(ctx, "acme", "widgets", n, &github.IssueComment{Body: github.Ptr("x")})
		return err
	}
	must(t, write("tok-carol"))
	w.clock.Advance(20 * time.Second)
	must(t, write("tok-carol"))
	for range 2 {
		var limited *github.AbuseRateLimitError
		if err := write("tok-carol"); !errors.As(err, &limited) {
			t.Fatalf("got %v, want a secondary limit", err)
		}
		equal(t, "Retry-After", limited.GetRetryAfter(), 40*time.Second)
	}
	_, _, err := w.client(t, "tok-carol").Issues.Get(ctx, "acme", "widgets", n)
	must(t, err)
	must(t, write("tok-bot"))
	w.clock.Advance(40 * time.Second)
	must(t, write("tok-carol"))
	if write("tok-carol") == nil {
		t.Error("a third within the minute was let through")
	}
}

func TestLimit_OfRequestsAtOnce(t *testing.T) {
	w := newWorld(t, fakegithub.Config{Concurrent: 1})
	must(t, w.Inject(fakegithub.Fault{Kind: fakegithub.KindHang, Path: "/repos/acme/widgets/issues"}))
	done := make(chan struct{})
	// A connection of its own: on one that was used before, net/http sends a request again that was cut off.
	alone := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	go func() {
		defer close(done)
		request, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, w.url+"/repos/acme/widgets/issues", nil)
		if response, err := alone.Do(request); err == nil {
			_ = response.Body.Close()
			t.Error("the hanging request got an answer")
		}
	}()
	for counted := ""; !strings.Contains(counted, `"faulted":1`); {
		_, counted = w.get(t, "/_fake/counts")
	}
	response, _ := w.get(t, "/repos/acme/widgets", "Authorization", "token tok-carol")
	equal(t, "a second one", []string{response.Status, response.Header.Get("Retry-After"), response.Header.Get("X-RateLimit-Remaining")}, []string{"403 Forbidden", "60", "5000"})
	w.ClearFaults()
	<-done
	for { // the first is over when its handler has returned, a moment after its connection was cut
		response, _ = w.get(t, "/repos/acme/widgets")
		if response.StatusCode == http.StatusOK {
			break
		}
	}
}
