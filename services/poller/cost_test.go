package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/test/fakegithub"
)

// charged returns how many requests the limits were charged since the last time, and how many were sent.
func (w *world) charged() (charged, requests int) {
	for _, count := range w.Counts() {
		charged, requests = charged+count.Charged, requests+count.Requests
	}
	w.ResetCounts()
	return charged, requests
}

// busy fills a repository with issues and pull requests that have reviews, inline comments and CI.
func (w *world) busy(t *testing.T) {
	t.Helper()
	for i := range 5 {
		n := w.labelled(t, "alice")
		w.comment(t, n, "alice", "Go on.")
		head := strings.Repeat(fmt.Sprint(i), 40)
		pull := w.issue(t, fakegithub.Issue{Title: "Painted", Author: "alice", Body: fmt.Sprintf("Fixes #%d", n), Pull: &fakegithub.Pull{HeadSHA: head}})
		_, err := w.AddReview("acme", "widgets", pull, fakegithub.Review{Author: "alice", Body: "Not blue.", State: fakegithub.ChangesRequested,
			Comments: []fakegithub.ReviewComment{{Body: "here", Path: "a.go", Line: 7}}})
		must(t, err)
		_, err = w.SetCheckRun("acme", "widgets", fakegithub.CheckRun{HeadSHA: head, Name: "unit", Conclusion: "success"})
		must(t, err)
		_, err = w.SetStatus("acme", "widgets", fakegithub.Status{SHA: head, State: "success", Context: "ci"})
		must(t, err)
	}
}

func TestCost_WhatDidNotChangeIsFree(t *testing.T) {
	w := newWorld(t, standard+"    max_interval: 1s\n    ci: [check_run, status, workflow_run]\n") // CI is read at every look
	w.busy(t)
	p := w.open(t)
	look(t, p)
	first, _ := w.charged()
	w.clock.advance(2 * time.Minute) // the items' last change is long enough ago
	look(t, p)
	second, _ := w.charged()
	for range 10 {
		w.clock.advance(30 * time.Second)
		look(t, p)
	}
	rest, sent := w.charged()
	equal(t, "charged for ten looks", rest, 0)
	t.Logf("charged: first look %d, second %d, then %d for ten looks with %d requests", first, second, rest, sent)
	// A restart costs no more than the first look.
	p.close(t.Context())
	p = w.open(t)
	look(t, p)
	again, _ := w.charged()
	for range 10 {
		w.clock.advance(30 * time.Second)
		look(t, p)
	}
	rest, _ = w.charged()
	equal(t, "charged after a restart", rest, 0)
	if again > first {
		t.Errorf("the first look cost %d, and that after a restart %d", first, again)
	}
	t.Logf("after a restart: %d", again)
	// What did change is seen at once.
	w.comment(t, 1, "alice", "And green.")
	equal(t, "new", look(t, p).NewEvents, 1)
}

func TestCost_AnETagThatLiedIsFoundOutByAFullRead(t *testing.T) {
	w := newWorld(t, standard)
	n := w.labelled(t, "alice")
	p := w.open(t)
	look(t, p)
	w.clock.advance(2 * time.Minute)
	look(t, p)
	// The list of issues says for ever that nothing changed.
	must(t, w.Inject(fakegithub.Fault{Kind: fakegithub.KindStatus, Status: 304, Method: "GET", Path: "/repos/acme/widgets/issues", Times: 3}))
	w.comment(t, n, "alice", "Do you hear me?")
	equal(t, "new while it lies", look(t, p).NewEvents, 0)
	w.ClearFaults()
	_, err := p.pool.Exec(t.Context(), `update poller.repositories set full_read_at = now() - interval '2 hours'`)
	must(t, err)
	w.ResetCounts()
	equal(t, "new in a full read", look(t, p).NewEvents, 1)
	for path, count := range w.Counts() {
		if count.NotModified > 0 {
			t.Errorf("%s was asked for with an ETag", path)
		}
	}
	look(t, p)
	states, err := p.store.SourceStates(t.Context(), []string{"gh"})
	must(t, err)
	if at := states["gh"].Repositories[0].LastFull; time.Since(at) > time.Minute {
		t.Errorf("it is on record for %v", at)
	}
}

func TestCost_ALimitOfEachKindIsWaitedOutAndAPermissionIsTold(t *testing.T) {
	for _, tt := range []struct {
		name  string
		fault fakegithub.Fault
		kind  fault.Kind
		least time.Duration
	}{
		{"429", fakegithub.Fault{Kind: fakegithub.KindSecondaryLimit, Status: 429, RetryAfter: 77}, fault.Throttled, 75 * time.Second},
		{"403 with Retry-After", fakegithub.Fault{Kind: fakegithub.KindSecondaryLimit, RetryAfter: 70}, fault.Throttled, 68 * time.Second},
		{"403 with nothing remaining", fakegithub.Fault{Kind: fakegithub.KindRateLimit, RetryAfter: 90}, fault.Throttled, 85 * time.Second},
		{"403 that only says so", fakegithub.Fault{Kind: fakegithub.KindStatus, Status: 403,
			Body: `{"message":"You have exceeded a secondary rate limit."}`}, fault.Throttled, 58 * time.Second},
		{"403 for good", fakegithub.Fault{Kind: fakegithub.KindForbidden}, fault.Denied, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, standard)
			w.labelled(t, "alice")
			tt.fault.Path = "/repos/acme/widgets/issues"
			must(t, w.Inject(tt.fault))
			p := w.open(t)
			r := tryLook(t, p)
			equal(t, "kind", fault.KindOf(r.Err), tt.kind)
			states, err := p.store.SourceStates(t.Context(), []string{"gh"})
			must(t, err)
			if left := time.Until(states["gh"].NotBefore); tt.least == 0 != states["gh"].NotBefore.IsZero() || left < tt.least && tt.least > 0 {
				t.Errorf("it is left alone until %v", states["gh"].NotBefore)
			}
			w.ResetCounts()
			tryLook(t, p)
			_, sent := w.charged()
			equal(t, "asks again at once", sent > 0, tt.least == 0)
		})
	}
}
