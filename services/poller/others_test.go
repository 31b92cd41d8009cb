package main

import (
	"context"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"muxpost.dev/muxpost/services/poller/internal/poll"
	"muxpost.dev/muxpost/test/fakegithub"
)

// behind has what GitHub is asked go through a handler first, which hands on what it wants to.
func (w *world) behind(t *testing.T, handle func(rw http.ResponseWriter, r *http.Request, github http.Handler)) {
	t.Helper()
	before := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { handle(rw, r, w.Server) }))
	t.Cleanup(before.Close)
	text, err := os.ReadFile(w.config)
	must(t, err)
	must(t, os.WriteFile(w.config, []byte(strings.Replace(string(text), w.url, before.URL, 1)), 0o600))
	w.SetURL(before.URL)
	w.url, w.host = before.URL, strings.TrimPrefix(before.URL, "http://")
}

// slow lets a look ask for a few items by themselves, and then its time is over.
type slow struct {
	mu    sync.Mutex
	asked []string
	most  int
	end   context.CancelFunc
}

var byItself = regexp.MustCompile(`/repos/acme/widgets/issues/(\d+)$`)

func (s *slow) handle(rw http.ResponseWriter, r *http.Request, github http.Handler) {
	number := byItself.FindStringSubmatch(r.URL.Path)
	s.mu.Lock()
	over := number != nil && s.end != nil && len(s.asked) == s.most
	if number != nil && !over {
		s.asked = append(s.asked, number[1])
	}
	end := s.end
	s.mu.Unlock()
	if over {
		end()
		<-r.Context().Done()
		return
	}
	github.ServeHTTP(rw, r)
}

// look looks with so little time, and returns which items were asked for and answered.
func (s *slow) look(t *testing.T, p *parts) []string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s.mu.Lock()
	s.asked, s.end = nil, cancel
	s.mu.Unlock()
	r, err := p.poller.LookNow(ctx, "gh")
	must(t, err)
	if r.Err == nil || !strings.Contains(r.Err.Error(), "no time left") {
		t.Errorf("how the look ended: %v", r.Err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

// TestPoll_ManyItemsThatNoListShowsStarveNobody: each is asked for by itself, and a look has time for a few.
func TestPoll_ManyItemsThatNoListShowsStarveNobody(t *testing.T) {
	w, s := newWorld(t, standard), &slow{most: 3}
	w.behind(t, s.handle)
	for range 9 {
		w.labelled(t, "alice")
	}
	p := w.open(t)
	look(t, p)
	w.later(time.Minute)
	pull := w.pull(t, fakegithub.Issue{Body: "Fixes #1"})
	for n := 1; n <= 9; n++ {
		must(t, w.EditIssue("acme", "widgets", n, "alice", fakegithub.IssueEdit{Labels: &[]string{}}))
	}
	w.later(time.Minute)
	look(t, p)
	w.later(2 * time.Minute)
	look(t, p)
	w.comment(t, pull, "alice", "on the pull request")
	w.comment(t, 9, "alice", "on the last of them")
	asked := map[string]bool{}
	for range 3 {
		for _, n := range s.look(t, p) {
			asked[n] = true
		}
	}
	said := map[bool]int{} // on the pull request, and not
	for _, e := range entries(t, p) {
		if e.Kind == poll.KindComment {
			said[e.Pull != ""]++
		}
	}
	equal(t, "what was said on the pull request is known", said[true], 1)
	equal(t, "asked for in three looks", slices.Sorted(maps.Keys(asked)), []string{"1", "2", "3", "4", "5", "6", "7", "8", "9"})
	equal(t, "what was said on the last is known", said[false], 1)
}
