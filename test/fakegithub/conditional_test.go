package fakegithub_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-github/v90/github"

	"muxpost.dev/muxpost/test/fakegithub"
)

func TestConditional_304IsFreeAndAChangeBreaksIt(t *testing.T) {
	for _, strong := range []bool{false, true} {
		w := newWorld(t, fakegithub.Config{StrongETags: strong})
		n := w.issue(t, fakegithub.Issue{Title: "quiet"})
		id := w.comment(t, n, "carol", "hello")
		path := fmt.Sprintf("/repos/Acme/Widgets/issues/%d/comments", n)
		auth := []string{"Authorization", "token tok-carol"}
		full, _ := w.get(t, path, auth...)
		tag := full.Header.Get("ETag")
		equal(t, "the tag is weak", strings.HasPrefix(tag, "W/"), !strong)
		same, body := w.get(t, path, append(auth, "If-None-Match", `"other", `+tag)...)
		equal(t, "status", same.StatusCode, http.StatusNotModified)
		equal(t, "body", body, "")
		equal(t, "remaining", same.Header.Get("X-RateLimit-Remaining"), full.Header.Get("X-RateLimit-Remaining"))
		equal(t, "counts", w.Counts()["GET "+strings.ToLower(path)], fakegithub.Count{Requests: 2, NotModified: 1, Charged: 1})

		must(t, w.DeleteComment(id))
		changed, body := w.get(t, path, append(auth, "If-None-Match", tag)...)
		equal(t, "status after a deletion", changed.StatusCode, http.StatusOK)
		equal(t, "body after a deletion", body, "[]")
		equal(t, "used", changed.Header.Get("X-RateLimit-Used"), "2")
	}
}

// TestConditional_AFullPageStaysTheSameAndDoesNotTellOfTheNext: a server whose 304 had a Link would let a reader pass that misses the next page
// on GitHub (app-sre/github-mirror #57 and #290 report it).
func TestConditional_AFullPageStaysTheSameAndDoesNotTellOfTheNext(t *testing.T) {
	w := newWorld(t, fakegithub.Config{})
	n := w.issue(t, fakegithub.Issue{Title: "two a page"})
	w.comment(t, n, "carol", "1")
	w.comment(t, n, "carol", "2")
	path := fmt.Sprintf("/repos/acme/widgets/issues/%d/comments?per_page=2", n)
	full, _ := w.get(t, path)
	equal(t, "Link of the only page", full.Header.Get("Link"), "")
	w.comment(t, n, "carol", "3")
	same, _ := w.get(t, path, "If-None-Match", full.Header.Get("ETag"))
	equal(t, "status", same.StatusCode, http.StatusNotModified)
	equal(t, "Link of the 304", same.Header.Get("Link"), "")
	equal(t, "an anonymous 304 is charged", same.Header.Get("X-RateLimit-Used"), "2")
	asked, _ := w.get(t, path)
	if link := asked.Header.Get("Link"); !strings.Contains(link, `rel="next"`) {
		t.Errorf("asked for as it is, it has the Link header %q, without a next page", link)
	}
}

func TestRateLimit_EndsAndComesBackWithTheHour(t *testing.T) {
	w := newWorld(t, fakegithub.Config{})
	w.SetRemaining("carol", 1)
	_, response, err := w.client(t, "tok-carol").Repositories.Get(t.Context(), "acme", "widgets")
	must(t, err)
	equal(t, "remaining", response.Rate.Remaining, 0)
	_, _, err = w.client(t, "tok-carol").Repositories.Get(t.Context(), "acme", "widgets")
	var limited *github.RateLimitError
	if !errors.As(err, &limited) {
		t.Fatalf("got %v, want a RateLimitError", err)
	}
	equal(t, "reset", limited.Rate.Reset.Time.Equal(w.clock.Now().Truncate(time.Second).Add(time.Hour)), true)
	w.clock.Advance(time.Hour)
	_, response, err = w.client(t, "tok-carol").Repositories.Get(t.Context(), "acme", "widgets")
	must(t, err)
	equal(t, "remaining in the next hour", response.Rate.Remaining, 4999)
	equal(t, "Date", response.Header.Get("Date"), w.clock.Now().UTC().Format(http.TimeFormat))
}
