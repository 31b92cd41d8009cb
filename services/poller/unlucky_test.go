package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"muxpost.dev/muxpost/core/ledger"
	"muxpost.dev/muxpost/services/poller/internal/poll"
	"muxpost.dev/muxpost/test/fakegithub"
)

// TestTake_AnEndThatNoWebhookToldIsFoundByALook: a comment shows the thread as closed, and tells no end of it.
func TestTake_AnEndThatNoWebhookToldIsFoundByALook(t *testing.T) {
	w, r, n := hooked(t)
	r.handled(t)
	w.later(time.Minute)
	w.HoldHooks(true)
	must(t, w.MergePull("acme", "widgets", n, "alice"))
	w.DropHeld()
	w.HoldHooks(false)
	w.later(time.Minute)
	w.comment(t, n, "alice", "after the merge")
	w.comment(t, 1, "alice", "after the end")
	r.handled(t)
	p := w.open(t)
	look(t, p)
	eventually(t, "the ends arrive", func() bool {
		all := strings.Join(w.askedTexts(), "\n")
		return strings.Contains(all, "was merged into main") && strings.Contains(all, "#1 was closed")
	})
	equal(t, "new once it is known", look(t, p).NewEvents, 0)
	var state string
	must(t, p.pool.QueryRow(t.Context(), `select state from poller.pulls`).Scan(&state))
	equal(t, "state", state, "merged")
}

// TestPull_AnEditOfWhatWasThereBeforeIsAnEvent, as it is on an issue, and by webhook.
func TestPull_AnEditOfWhatWasThereBeforeIsAnEvent(t *testing.T) {
	w := newWorld(t, standard)
	n := w.pull(t, fakegithub.Issue{Body: "Fixes #2"})
	id := w.comment(t, n, "alice", "old")
	w.comment(t, n, "alice", "older")
	p := w.open(t)
	look(t, p)
	w.later(time.Minute)
	w.labelled(t, "alice")
	look(t, p)
	equal(t, "rows", rows(t, p)[1:], []string{"comment alice settled baselined", "comment alice settled baselined"})
	w.later(time.Minute)
	must(t, w.EditComment(id, "new words"))
	look(t, p)
	e := last(t, p)
	equal(t, "once it is edited", []any{e.State, e.Reason}, []any{ledger.Pending, ""})
	equal(t, "new", look(t, p).NewEvents, 0)
}

// TestLink_GoesByTheClockOfTheSource: that of the database may be ahead of it, or behind.
func TestLink_GoesByTheClockOfTheSource(t *testing.T) {
	for _, skew := range []time.Duration{-10 * time.Minute, 10 * time.Minute} {
		w := newWorld(t, standard)
		w.later(skew)
		w.labelled(t, "alice")
		p := w.open(t)
		look(t, p)
		w.later(time.Minute)
		n := w.pull(t, fakegithub.Issue{Body: "about nothing"})
		look(t, p)
		w.later(time.Second)
		w.comment(t, n, "alice", "before")
		name := "github:" + w.host + "/acme/widgets#"
		_, _, err := p.poller.Link(t.Context(), poll.Link{Pull: name + "2", WorkItem: name + "1", Who: "ann"})
		must(t, err)
		w.later(time.Second)
		w.comment(t, n, "alice", "after")
		look(t, p)
		equal(t, fmt.Sprint("rows at ", skew), rows(t, p)[1:], []string{"comment alice settled baselined", "comment alice pending"})
	}
}

// TestPull_ALinkThatShowsLate: GitHub finds out what a pull request closes a moment after it is opened.
func TestPull_ALinkThatShowsLate(t *testing.T) {
	w, p, n := pullWorld(t, fakegithub.Issue{Body: "about nothing", Pull: &fakegithub.Pull{HeadSHA: shaA}})
	must(t, w.Inject(fakegithub.Fault{Kind: fakegithub.KindStatus, Status: 200, Path: "/graphql", Times: 1, Body: `{"data":{"nodes":[]}}`}))
	body := "Fixes #1"
	must(t, w.EditIssue("acme", "widgets", n, "alice", fakegithub.IssueEdit{Body: &body}))
	w.later(time.Second)
	look(t, p)
	w.later(2 * time.Minute)
	look(t, p)
	links, err := p.store.Links(t.Context(), "", 10)
	must(t, err)
	equal(t, "links", len(links), 1)
	w.ResetCounts()
	look(t, p)
	look(t, p)
	equal(t, "asked once it is quiet", w.Counts()["POST /graphql"].Requests, 0)
}

func TestRecord_WhateverSomebodyWroteItIsWrittenDown(t *testing.T) {
	w, p, n := pullWorld(t, fakegithub.Issue{Body: "Fixes #1\x00", Title: "t\x00\u202e\nx", Pull: &fakegithub.Pull{HeadSHA: shaA}})
	huge := strings.Repeat("ä\x00\u202e<!-- x -->\r\n", 100_000)
	w.inline(t, n, fakegithub.ReviewComment{Author: "alice", Body: huge, Path: huge, Line: 3, DiffHunk: huge})
	w.review(t, n, fakegithub.Review{Author: "alice", State: "CHANGES_REQUESTED", Body: huge})
	w.review(t, n, fakegithub.Review{Author: "alice", State: "CHANGES_REQUESTED", Body: "\u202e\u200b"})
	w.comment(t, n, "alice", "\u200b")
	for i := range 60 {
		_, err := w.SetCheckRun("acme", "widgets", fakegithub.CheckRun{Name: fmt.Sprint(i, huge[:40_000]), HeadSHA: shaA, Conclusion: "failure", Title: huge[:50_000], Summary: huge[:50_000]})
		must(t, err)
	}
	look(t, p)
	for range 10 {
		carry(t, p)
	}
	for _, row := range rows(t, p) {
		if !strings.HasSuffix(row, "delivered") && !strings.Contains(row, "settled") {
			t.Error(row)
		}
	}
	for _, text := range w.askedTexts() {
		if strings.ContainsAny(text, "\x00\u202e") || len(text) > 1<<20 {
			t.Error("it holds what it must not")
		}
	}
}

// TestPull_WhatAnOperatorTookOffStaysOff, also for a look that began before.
func TestPull_WhatAnOperatorTookOffStaysOff(t *testing.T) {
	w, p, _ := pullWorld(t, fakegithub.Issue{Body: "Fixes #1"})
	name := "github:" + w.host + "/acme/widgets#"
	_, _, err := p.poller.Link(t.Context(), poll.Link{Pull: name + "2", Who: "ann"})
	must(t, err)
	item := poll.Item{Ref: ref(t, name+"2"), Repository: "acme/widgets", Open: true, Pull: &poll.Pull{HeadSHA: shaA}, UpdatedAt: w.clock.Now(), CreatedAt: w.clock.Now()}
	must(t, p.pool.QueryRow(t.Context(), `select node_id from poller.pulls`).Scan(&item.NodeID))
	_, err = p.store.Record(t.Context(), poll.Record{Source: "gh", Place: poll.PlaceOf(item.Ref), WorkItem: name + "1", Item: item, SeenAt: w.clock.Now(), Pull: &poll.PullRecord{Rule: poll.RuleClosing}})
	must(t, err)
	links, err := p.store.Links(t.Context(), "", 10)
	must(t, err)
	equal(t, "links", len(links), 1)
}

func TestState_WhatWasForgottenWasToldAllTheSame(t *testing.T) {
	w, p, n := deletedWorld(t)
	age(t, p, 91)
	forget(t, p)
	w.later(time.Minute)
	closed := "closed"
	must(t, w.EditIssue("acme", "widgets", n, "alice", fakegithub.IssueEdit{State: &closed}))
	look(t, p)
	equal(t, "rows", rows(t, p), []string{"state  pending"})
}

func TestTake_AnOldLabelDoesNotOpenAnItemAgain(t *testing.T) {
	w, r, _ := hooked(t)
	r.handled(t)
	w.later(time.Minute)
	closed := "closed"
	must(t, w.EditIssue("acme", "widgets", 1, "alice", fakegithub.IssueEdit{Labels: &[]string{"agent", "stale"}}))
	must(t, w.EditIssue("acme", "widgets", 1, "alice", fakegithub.IssueEdit{State: &closed}))
	r.handled(t)
	for _, d := range w.Deliveries() {
		if d.Event == "issues" && d.Action == "labeled" {
			_, err := w.RedeliverAs(d.GUID)
			must(t, err)
		}
	}
	r.handled(t)
	p := w.open(t)
	look(t, p)
	equal(t, "rows", rows(t, p), []string{"opened alice delivered", "state  delivered"})
	k, err := p.store.Known(t.Context(), "github:"+w.host+"/acme/widgets", nil)
	must(t, err)
	equal(t, "open items", len(k), 0)
}

func TestTake_ByTwoPollersAndLooksAtOnceNothingIsDoubledOrLost(t *testing.T) {
	w, r, n := hooked(t)
	r.handled(t)
	second := start(t, w)
	eventually(t, "it is there", func() bool { return strings.Contains(second.log.String(), "receiving webhooks") })
	_, err := w.AddHook("acme", "widgets", fakegithub.Hook{URL: second.hookAddress(t), Secret: hookSecret})
	must(t, err)
	p := w.open(t)
	var want []string
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 12 {
			_, _ = p.poller.LookNow(t.Context(), "gh")
		}
	}()
	for i := range 40 {
		w.later(10 * time.Second)
		where := []int{1, n}[i%2]
		word := fmt.Sprintf("<word %d>", i)
		id := w.comment(t, where, "alice", word)
		switch i % 4 {
		case 0:
			word = fmt.Sprintf("<edited %d>", i)
			w.later(time.Second)
			must(t, w.EditComment(id, word))
		case 1:
			_, err := w.SetCheckRun("acme", "widgets", fakegithub.CheckRun{Name: word, HeadSHA: shaA, Conclusion: "failure"})
			must(t, err)
		}
		want = append(want, word)
	}
	<-done
	r.handled(t)
	second.handled(t)
	look(t, p)
	eventually(t, "nothing waits", func() bool { c := counts(t, p); return c[ledger.Pending]+c[ledger.Leased] == 0 })
	all := strings.Join(w.askedTexts(), "\n")
	for _, word := range want {
		if !strings.Contains(all, word) {
			t.Errorf("%s did not arrive", word)
		}
	}
	seen := map[string]bool{}
	for _, e := range entries(t, p) {
		if seen[e.DeliveryID] {
			t.Error("doubled", e)
		}
		seen[e.DeliveryID] = true
		if e.State != ledger.Delivered && e.State != ledger.Settled && e.State != ledger.Cancelled {
			t.Errorf("%+v", e)
		}
	}
	equal(t, "new", look(t, p).NewEvents, 0)
}

func TestPull_OfARepositoryWithAnotherNameBelongsToAnItemThatIsQuiet(t *testing.T) {
	w, p, _ := deletedWorld(t)
	w.later(5 * time.Minute)
	look(t, p)
	sql(t, p, `update poller.items set place = replace(place, 'widgets', 'gadgets')`) // as it was seen under its older name
	w.later(time.Minute)
	w.pull(t, fakegithub.Issue{Body: "Fixes #1"})
	look(t, p)
	links, err := p.store.Links(t.Context(), "", 10)
	must(t, err)
	equal(t, "links", len(links), 1)
}

func TestCI_WhatIsBackWhileItIsLeasedIsDeliveredOnce(t *testing.T) {
	w, p, n := pullWorld(t, fakegithub.Issue{Body: "Fixes #1", Pull: &fakegithub.Pull{HeadSHA: shaA}})
	for _, name := range []string{"build", "lint", "test"} {
		_, err := w.SetCheckRun("acme", "widgets", fakegithub.CheckRun{Name: name, HeadSHA: shaA, Conclusion: "failure"})
		must(t, err)
	}
	look(t, p)
	for _, end := range []bool{true, false} {
		claims, err := p.store.Claim(t.Context(), 1)
		must(t, err)
		equal(t, "claims", len(claims), 1)
		for _, sha := range []string{shaB, shaA, shaB, shaA} {
			w.later(time.Minute)
			must(t, w.PushHead("acme", "widgets", n, sha))
			look(t, p)
		}
		if end {
			must(t, p.store.Release(t.Context(), claims[0]))
		} else {
			sql(t, p, `update poller.events set lease_until = now() where state = 'leased'`)
		}
	}
	carry(t, p)
	carry(t, p)
	carry(t, p)
	all := strings.Join(w.askedTexts(), "\n")
	for _, name := range []string{"Check: build", "Check: lint", "Check: test"} {
		equal(t, name, strings.Count(all, name), 1)
	}
}

func TestTake_WithoutALookBefore(t *testing.T) {
	w := hookedWorld(t)
	must(t, w.Inject(fakegithub.Fault{Kind: fakegithub.KindBadGateway, Path: "/repos/acme/widgets/issues", Method: "GET", Times: 1}))
	r := start(t, w)
	eventually(t, "it has been looked at once", func() bool { return len(w.Counts()) > 0 })
	r.hook(t)
	n := w.pull(t, fakegithub.Issue{Body: "x", Labels: []string{"agent"}})
	w.comment(t, n, "alice", "in the same second")
	w.later(time.Second)
	w.comment(t, n, "alice", "a second later")
	r.handled(t)
	eventually(t, "all arrive", func() bool {
		all := ""
		for _, request := range w.dispatcher.requests() {
			all += request.GetText()
		}
		return strings.Contains(all, "in the same second") && strings.Contains(all, "a second later")
	})
}

func TestPull_WhatHappensBetweenTwoLooks(t *testing.T) {
	w, p, n := pullWorld(t, fakegithub.Issue{Body: "Fixes #1", Pull: &fakegithub.Pull{HeadSHA: shaA}})
	look(t, p)
	closed, open, yes := "closed", "open", true
	w.later(time.Minute)
	must(t, w.EditIssue("acme", "widgets", n, "alice", fakegithub.IssueEdit{State: &closed}))
	w.later(time.Second)
	w.comment(t, n, "alice", "oops")
	must(t, w.EditIssue("acme", "widgets", n, "alice", fakegithub.IssueEdit{State: &open, Draft: &yes}))
	must(t, w.PushHead("acme", "widgets", n, shaB))
	look(t, p)
	equal(t, "rows", rows(t, p), []string{"opened alice delivered", "comment alice pending"})
}

func TestPull_FirstSeenWithManyPosts(t *testing.T) {
	w, p, n := pullWorld(t, fakegithub.Issue{Body: "Fixes #1"})
	for i := range 300 {
		w.later(time.Minute)
		w.comment(t, n, "alice", fmt.Sprint("post ", i))
	}
	look(t, p)
	equal(t, "rows", len(rows(t, p)), 301)
	for _, e := range entries(t, p) {
		if e.State == ledger.Dropped {
			t.Fatal(e)
		}
	}
}

func TestPull_ALimitInTheMiddleLosesNothing(t *testing.T) {
	for _, path := range []string{"/repos/acme/widgets/pulls/2/reviews", "/repos/acme/widgets/commits"} {
		w, p, n := pullWorld(t, fakegithub.Issue{Body: "Fixes #1", Pull: &fakegithub.Pull{HeadSHA: shaA}})
		w.comment(t, n, "alice", "one")
		w.review(t, n, fakegithub.Review{Author: "alice", Body: "two"})
		_, err := w.SetCheckRun("acme", "widgets", fakegithub.CheckRun{Name: "build", HeadSHA: shaA, Conclusion: "failure"})
		must(t, err)
		must(t, w.Inject(fakegithub.Fault{Kind: fakegithub.KindSecondaryLimit, Path: path, RetryAfter: 1}))
		if r := tryLook(t, p); r.Err == nil {
			t.Error(path, "no error")
		}
		sql(t, p, `update poller.sources set not_before = null`)
		look(t, p)
		equal(t, path, rows(t, p), []string{"opened alice delivered", "review alice pending", "comment alice pending", "check  pending"})
	}
}
