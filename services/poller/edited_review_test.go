package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"muxpost.dev/muxpost/core/ledger"
	"muxpost.dev/muxpost/test/fakegithub"
)

// A review tells no time of its changes: what is read late must not be taken for what it says now.

// said counts how often each of some words went to the agent.
func (w *world) said(words ...string) []int {
	out := make([]int, len(words))
	for _, r := range w.dispatcher.requests() {
		for i, word := range words {
			if strings.Contains(r.GetText(), word) {
				out[i]++
			}
		}
	}
	return out
}

// TestReview_WhatALookReadBeforeAnEditIsNotToldAfterIt: the webhook of the edit is handled while the look asks who edited.
func TestReview_WhatALookReadBeforeAnEditIsNotToldAfterIt(t *testing.T) {
	for name, asked := range map[string]bool{"between the list and the answer": false, "after the answer": true} {
		t.Run(name, func(t *testing.T) {
			w := hookedWorld(t)
			var meanwhile atomic.Pointer[func()]
			w.behind(t, func(rw http.ResponseWriter, r *http.Request, github http.Handler) {
				var do *func()
				if r.URL.Path == "/graphql" {
					do = meanwhile.Swap(nil)
				}
				if do == nil {
					github.ServeHTTP(rw, r)
					return
				}
				answer := httptest.NewRecorder()
				if asked {
					github.ServeHTTP(answer, r)
				}
				(*do)()
				if !asked {
					github.ServeHTTP(answer, r)
				}
				rw.WriteHeader(answer.Code)
				_, _ = rw.Write(answer.Body.Bytes()) // a client that went away fails the test otherwise
			})
			r := start(t, w)
			eventually(t, "it has been looked at once", w.looked)
			r.hook(t)
			w.labelled(t, "alice")
			eventually(t, "the opening event arrives", func() bool { return w.asked() == 1 })
			w.later(time.Minute)
			n := w.pull(t, fakegithub.Issue{Body: "Fixes #1"})
			r.handled(t)
			w.later(time.Second)
			id := w.review(t, n, fakegithub.Review{Author: "alice", Body: "the first words"})
			r.handled(t)
			eventually(t, "the review arrives", func() bool { return w.said("the first words")[0] == 1 })
			w.later(time.Second)
			edit := func() {
				if err := w.EditReview(id, "the second words"); err != nil {
					t.Error(err)
				}
				for deadline := time.Now().Add(30 * time.Second); w.said("the second words")[0] == 0; time.Sleep(10 * time.Millisecond) {
					if time.Now().After(deadline) {
						t.Error("the edit does not arrive")
						return
					}
				}
			}
			meanwhile.Store(&edit)
			p := w.open(t)
			look(t, p)
			if meanwhile.Load() != nil {
				t.Fatal("nobody asked who edited")
			}
			w.later(time.Second)
			look(t, p)
			eventually(t, "nothing waits", func() bool { return counts(t, p)[ledger.Pending]+counts(t, p)[ledger.Leased] == 0 })
			equal(t, "told", w.said("the first words", "the second words"), []int{1, 1})
		})
	}
}

// replica answers what the list of reviews was when it was kept, for as long as it lags.
type replica struct {
	lags bool
	kept []byte
}

func (o *replica) handle(rw http.ResponseWriter, r *http.Request, github http.Handler) {
	if !o.lags || !strings.HasSuffix(r.URL.Path, "/reviews") {
		github.ServeHTTP(rw, r)
		return
	}
	rw.Header().Set("Content-Type", "application/json")
	_, _ = rw.Write(o.kept) // a client that went away fails the test otherwise
}

func (o *replica) keep(t *testing.T, w *world, pull int) {
	t.Helper()
	answer := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("/repos/acme/widgets/pulls/%d/reviews?per_page=100", pull), nil)
	r.Header.Set("Authorization", "Bearer tok")
	w.ServeHTTP(answer, r)
	equal(t, "the list", answer.Code, http.StatusOK)
	o.kept = answer.Body.Bytes()
}

// TestReview_AReplicaThatLagsBehindTellsNothingAgain: webhooks are not needed for it.
func TestReview_AReplicaThatLagsBehindTellsNothingAgain(t *testing.T) {
	for name, tt := range map[string]struct {
		state, first string
		between      string // what it says before anybody reads that
	}{
		"its first words":            {fakegithub.ChangesRequested, "the first words", ""},
		"words that nobody had read": {fakegithub.ChangesRequested, "the first words", "words in between"},
		"an approval without a word": {fakegithub.Approved, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w, o := newWorld(t, standard), &replica{}
			w.behind(t, o.handle)
			w.labelled(t, "alice")
			p := w.open(t)
			look(t, p)
			carry(t, p)
			w.later(time.Minute)
			n := w.pull(t, fakegithub.Issue{Body: "Fixes #1"})
			id := w.review(t, n, fakegithub.Review{Author: "alice", State: tt.state, Body: tt.first})
			look(t, p)
			carry(t, p)
			if tt.between != "" {
				w.later(time.Second)
				must(t, w.EditReview(id, tt.between))
			}
			o.keep(t, w, n)
			w.later(time.Second)
			must(t, w.EditReview(id, "the last words"))
			look(t, p)
			carry(t, p)
			equal(t, "told", w.said("the last words"), []int{1})
			lag := func(what string) {
				t.Helper()
				before := len(entries(t, p))
				for _, o.lags = range []bool{true, false} {
					equal(t, what+": new", look(t, p).NewEvents, 0)
				}
				equal(t, what+": on the record", len(entries(t, p)), before)
			}
			lag("the words")
			// A verdict changes at no time that anybody tells.
			o.keep(t, w, n)
			w.later(time.Second)
			must(t, w.DismissReview(id))
			equal(t, "new when it is dismissed", look(t, p).NewEvents, 1)
			lag("the verdict")
			carry(t, p)
			equal(t, "told in the end", w.said("words in between", "the last words"), []int{0, 2})
		})
	}
}

func TestReview_BackToWhatItSaidBeforeIsNews(t *testing.T) {
	w, p, n := pullWorld(t, fakegithub.Issue{Body: "Fixes #1"})
	id := w.review(t, n, fakegithub.Review{Author: "alice", Body: "sand it first"})
	look(t, p)
	carry(t, p)
	for _, body := range []string{"varnish it", "sand it first", "varnish it"} {
		w.later(time.Second)
		must(t, w.EditReview(id, body))
		equal(t, "new: "+body, look(t, p).NewEvents, 1)
		carry(t, p)
	}
	equal(t, "told", w.said("sand it first", "varnish it"), []int{2, 2})
	if at := last(t, p).UpstreamAt; !at.Equal(w.clock.Now().UTC().Truncate(time.Second)) {
		t.Errorf("the last edit is told to be of %v", at)
	}
}

// TestReview_WhatWasTakenBackIsNotDelivered: an approval without a word says nothing, and so does one whose words are gone.
func TestReview_WhatWasTakenBackIsNotDelivered(t *testing.T) {
	w, p, n := pullWorld(t, fakegithub.Issue{Body: "Fixes #1"})
	id := w.review(t, n, fakegithub.Review{Author: "alice", State: fakegithub.Approved})
	look(t, p)
	for _, body := range []string{"but varnish it", ""} {
		w.later(time.Second)
		must(t, w.EditReview(id, body))
		look(t, p)
	}
	carry(t, p)
	equal(t, "told", w.said("but varnish it"), []int{0})
	equal(t, "rows", rows(t, p)[1:], []string{"review alice settled empty", "review alice cancelled superseded", "review alice settled empty"})
}
