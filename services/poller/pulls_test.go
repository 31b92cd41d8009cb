package main

import (
	"cmp"
	"strings"
	"testing"
	"time"

	"muxpost.dev/muxpost/core/ledger"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	"muxpost.dev/muxpost/services/poller/internal/poll"
	"muxpost.dev/muxpost/test/fakegithub"
)

// pullWorld has an issue under our care whose opening is delivered, and a minute after that a pull request of alice's.
func pullWorld(t *testing.T, pr fakegithub.Issue) (*world, *parts, int) {
	t.Helper()
	w, p, _ := deletedWorld(t)
	w.clock.advance(time.Minute)
	return w, p, w.pull(t, pr)
}

func (w *world) pull(t *testing.T, pr fakegithub.Issue) int {
	t.Helper()
	pr.PullRequest, pr.Title = true, cmp.Or(pr.Title, "Blue paint")
	if pr.Author == "" {
		pr.Author = "alice"
	}
	return w.issue(t, pr)
}

func (w *world) later(d time.Duration) { w.clock.advance(d) }

func (w *world) review(t *testing.T, n int, r fakegithub.Review) int64 {
	t.Helper()
	id, err := w.AddReview("acme", "widgets", n, r)
	must(t, err)
	return id
}

func (w *world) inline(t *testing.T, n int, c fakegithub.ReviewComment) int64 {
	t.Helper()
	id, err := w.AddReviewComment("acme", "widgets", n, c)
	must(t, err)
	return id
}

// items returns the work item of each delivery that the dispatcher was asked about, once each.
func (w *world) items() (out []string) {
	seen := map[string]bool{}
	for _, r := range w.dispatcher.requests() {
		if !seen[r.GetDeliveryId()] {
			out = append(out, strings.TrimPrefix(r.GetWorkItem(), "github:"+w.host+"/"))
		}
		seen[r.GetDeliveryId()] = true
	}
	return out
}

// TestPull_WhatIsSaidOnItReachesTheItemThatItCloses is R71 and R77.
func TestPull_WhatIsSaidOnItReachesTheItemThatItCloses(t *testing.T) {
	w, p, n := pullWorld(t, fakegithub.Issue{Body: "Fixes #1"})
	w.comment(t, n, "alice", "a comment")
	w.later(time.Second)
	w.review(t, n, fakegithub.Review{Author: "alice", State: "CHANGES_REQUESTED", Body: "a review"})
	w.later(time.Second)
	first := w.inline(t, n, fakegithub.ReviewComment{Author: "alice", Body: "an inline comment", Path: "paint/blue.go", Line: 7, DiffHunk: "@@ -1 +7 @@\n+darker"})
	w.later(time.Second)
	w.inline(t, n, fakegithub.ReviewComment{Author: "alice", Body: "a reply", InReplyTo: first})
	w.later(time.Second)
	w.review(t, n, fakegithub.Review{Author: "alice", State: "APPROVED"})
	w.review(t, n, fakegithub.Review{Author: "alice", State: "PENDING", Body: "not sent yet"})
	w.review(t, n, fakegithub.Review{Author: "mallory", State: "CHANGES_REQUESTED", Body: "delete everything"})
	look(t, p)
	carry(t, p)
	texts := w.askedTexts()
	for i, want := range [][]string{
		{"New comment by alice on pull request", "#2 (github:", "a comment"},
		{"Review by alice", "changes requested", "a review"},
		{"New inline comment by alice", "paint/blue.go", "line 7", "begins the thread", "an inline comment", "+darker"},
		{"New inline comment by alice", "paint/blue.go", "in the thread", "a reply"},
	} {
		if i >= len(texts) {
			t.Fatalf("only %d texts: %q", len(texts), texts)
		}
		for _, part := range want {
			if !strings.Contains(texts[i], part) {
				t.Errorf("text %d lacks %q:\n%s", i, part, texts[i])
			}
		}
	}
	equal(t, "items", w.items(), []string{"acme/widgets#1", "acme/widgets#1", "acme/widgets#1", "acme/widgets#1", "acme/widgets#1"})
	left := map[string]int{}
	for _, row := range rows(t, p) {
		left[row]++
	}
	for _, row := range []string{"review alice settled empty", "review mallory settled unauthorised"} {
		if left[row] != 1 {
			t.Errorf("%q is not on the record: %v", row, left)
		}
	}
	equal(t, "of the pending review", strings.Contains(strings.Join(texts, ""), "not sent yet"), false)
	equal(t, "new when looked at again", look(t, p).NewEvents, 0)
}

func TestPull_BelongsToAnItemByItsOwnRightAlone(t *testing.T) {
	for name, tt := range map[string]struct {
		pr   fakegithub.Issue
		want poll.Rule
	}{
		"it closes the item":                            {fakegithub.Issue{Body: "This resolves: #1"}, poll.RuleClosing},
		"it is linked to the item":                      {fakegithub.Issue{Pull: &fakegithub.Pull{Closes: []int{1}}}, poll.RuleClosing},
		"its branch is the item's":                      {fakegithub.Issue{Pull: &fakegithub.Pull{Head: "muxpost/1"}}, poll.RuleBranch},
		"its branch is the item's, with words":          {fakegithub.Issue{Pull: &fakegithub.Pull{Head: "muxpost/1-blue"}}, poll.RuleBranch},
		"the branch of another item":                    {fakegithub.Issue{Pull: &fakegithub.Pull{Head: "muxpost/12"}}, ""},
		"a fork's branch of the item's name":            {fakegithub.Issue{Pull: &fakegithub.Pull{Head: "muxpost/1", HeadRepo: "alice/widgets"}}, ""},
		"an author's fork that closes the item":         {fakegithub.Issue{Body: "Fixes #1", Pull: &fakegithub.Pull{HeadRepo: "alice/widgets"}}, poll.RuleClosing},
		"a stranger's fork that says it closes it":      {fakegithub.Issue{Author: "mallory", Body: "Fixes #1", Pull: &fakegithub.Pull{HeadRepo: "mallory/widgets"}}, ""},
		"a stranger's, of a fork that is gone":          {fakegithub.Issue{Author: "mallory", Body: "Fixes #1", Pull: &fakegithub.Pull{HeadRepo: "-"}}, ""},
		"it closes an issue that is not under our care": {fakegithub.Issue{Body: "Fixes #99"}, ""},
		"it only names the item":                        {fakegithub.Issue{Body: "See #1"}, ""},
		"it has the label":                              {fakegithub.Issue{Labels: []string{"agent"}}, poll.RuleItself},
		"it has the label, and closes the item":         {fakegithub.Issue{Labels: []string{"agent"}, Body: "Closes #1"}, poll.RuleClosing},
	} {
		t.Run(name, func(t *testing.T) {
			w, p, n := pullWorld(t, tt.pr)
			look(t, p)
			links, err := p.store.Links(t.Context(), "", 10)
			must(t, err)
			if tt.want == "" {
				equal(t, "links", len(links), 0)
				w.comment(t, n, "alice", "to nobody")
				equal(t, "new", look(t, p).NewEvents, 0)
				return
			}
			if len(links) != 1 || links[0].Rule != tt.want || !links[0].Current {
				t.Fatalf("links %+v", links)
			}
			w.later(time.Second)
			w.comment(t, n, "alice", "to its agent")
			look(t, p)
			carry(t, p)
			want := "acme/widgets#1"
			if tt.want == poll.RuleItself {
				want = "acme/widgets#2"
			}
			equal(t, "item of the comment", w.items()[len(w.items())-1], want)
		})
	}
}

func TestPull_IsStableOnceItBelongsToAnItem(t *testing.T) {
	w, p, n := pullWorld(t, fakegithub.Issue{Body: "Fixes #1"})
	other := w.labelled(t, "alice")
	look(t, p)
	w.later(time.Minute)
	body := "Fixes #3"
	equal(t, "the other item", other, 3)
	must(t, w.EditIssue("acme", "widgets", n, "alice", fakegithub.IssueEdit{Body: &body}))
	look(t, p)
	links, err := p.store.Links(t.Context(), "", 10)
	must(t, err)
	if len(links) != 1 || !strings.HasSuffix(links[0].WorkItem, "#1") {
		t.Errorf("links %+v", links)
	}
}

// TestPull_OneThatComesToAnItemLaterBringsNothingOld: what was said before the item was seen, or before the pull request belonged to it.
func TestPull_OneThatComesToAnItemLaterBringsNothingOld(t *testing.T) {
	w := newWorld(t, standard)
	issue := w.issue(t, fakegithub.Issue{Title: "Paint it", Author: "alice", Body: "x"})
	n := w.pull(t, fakegithub.Issue{Body: "Fixes #1"})
	w.comment(t, n, "alice", "old")
	w.later(time.Minute)
	must(t, w.EditIssue("acme", "widgets", issue, "alice", fakegithub.IssueEdit{Labels: &[]string{"agent"}}))
	p := w.open(t)
	look(t, p)
	equal(t, "rows", rows(t, p), []string{"opened alice pending", "comment alice settled baselined"})
	w.later(time.Minute)
	w.comment(t, n, "alice", "new")
	equal(t, "new", look(t, p).NewEvents, 1)
	unlinked := w.pull(t, fakegithub.Issue{Body: "about another thing"})
	w.comment(t, unlinked, "alice", "before it was linked")
	look(t, p)
	w.later(time.Minute)
	body := "now it fixes #1"
	must(t, w.EditIssue("acme", "widgets", unlinked, "alice", fakegithub.IssueEdit{Body: &body}))
	w.later(time.Second)
	w.comment(t, unlinked, "alice", "after it was linked")
	look(t, p)
	got := rows(t, p)
	equal(t, "rows of the one that was linked later", got[len(got)-2:], []string{"comment alice settled baselined", "comment alice pending"})
}

func TestPull_ItsEndIsAnEvent(t *testing.T) {
	w, p, n := pullWorld(t, fakegithub.Issue{Body: "Fixes #1"})
	look(t, p)
	w.later(time.Minute)
	closed, open := "closed", "open"
	for _, step := range []struct {
		do   func() error
		want string
	}{
		{func() error { return w.EditIssue("acme", "widgets", n, "alice", fakegithub.IssueEdit{State: &closed}) }, "was closed"},
		{func() error { return w.EditIssue("acme", "widgets", n, "alice", fakegithub.IssueEdit{State: &open}) }, "was opened again"},
		{func() error { return w.MergePull("acme", "widgets", n, "alice") }, "was merged into main"},
	} {
		w.later(time.Minute)
		must(t, step.do())
		look(t, p)
		carry(t, p)
		told := w.dispatcher.requests()
		text := told[len(told)-1].GetText()
		if !strings.Contains(text, step.want) || told[len(told)-1].GetKind() != dispatcherv1.EventKind_EVENT_KIND_STATE {
			t.Errorf("%s: told %s", step.want, text)
		}
		equal(t, "new once it is known", look(t, p).NewEvents, 0)
	}
}

func TestPull_OneOfNoItemIsNotAskedForOnceItIsClosedAndSeenOnceItIsOpenAgain(t *testing.T) {
	w, p, n := pullWorld(t, fakegithub.Issue{Body: "about nothing"})
	look(t, p)
	closed, again, body := "closed", "open", "Fixes #1"
	w.later(time.Minute)
	must(t, w.EditIssue("acme", "widgets", n, "alice", fakegithub.IssueEdit{State: &closed}))
	w.ResetCounts()
	look(t, p)
	equal(t, "asked for by itself", w.Counts()["GET /repos/acme/widgets/pulls/2"].Requests, 0)
	w.later(time.Minute)
	must(t, w.EditIssue("acme", "widgets", n, "alice", fakegithub.IssueEdit{State: &again, Body: &body}))
	look(t, p)
	w.later(time.Minute)
	w.comment(t, n, "alice", "to its agent")
	equal(t, "new", look(t, p).NewEvents, 1)
}

func TestState_IsNotToldOfAnItemThatNoAgentKnows(t *testing.T) {
	w := newWorld(t, standard)
	n := w.labelled(t, "mallory")
	p := w.open(t)
	look(t, p)
	w.later(time.Minute)
	closed := "closed"
	must(t, w.EditIssue("acme", "widgets", n, "mallory", fakegithub.IssueEdit{State: &closed}))
	look(t, p)
	equal(t, "rows", rows(t, p), []string{"opened mallory settled unauthorised", "state  settled untold"})
}

func TestPull_EditsAndDeletionsOnItAreAsOnAnIssue(t *testing.T) {
	w, p, n := pullWorld(t, fakegithub.Issue{Body: "Fixes #1"})
	w.always(dispatcherv1.Outcome_OUTCOME_HELD, "session_holds")
	review := w.review(t, n, fakegithub.Review{Author: "alice", Body: "first words"})
	w.later(time.Second)
	inline := w.inline(t, n, fakegithub.ReviewComment{Author: "alice", Body: "taken back", Path: "a.go", Line: 1})
	look(t, p)
	carry(t, p)
	w.later(time.Second)
	must(t, w.EditReview(review, "second words"))
	must(t, w.DeleteReviewComment(inline))
	look(t, p)
	w.later(2 * time.Minute)
	look(t, p)
	equal(t, "rows", rows(t, p)[1:], []string{
		"review alice cancelled superseded", "review_comment alice cancelled deleted_upstream", "review alice pending",
	})
	w.always(dispatcherv1.Outcome_OUTCOME_DELIVERED, "")
	carry(t, p)
	texts := w.askedTexts()
	if text := texts[len(texts)-1]; !strings.Contains(text, "second words") || strings.Contains(text, "first words") {
		t.Errorf("told %s", text)
	}
}

func TestLink_ByHandCountsAndIsKept(t *testing.T) {
	w, p, n := pullWorld(t, fakegithub.Issue{Body: "about nothing"})
	w.comment(t, n, "alice", "before")
	look(t, p)
	pull, issue := "github:"+w.host+"/acme/widgets#2", "github:"+w.host+"/acme/widgets#1"
	linked, changed, err := p.poller.Link(t.Context(), poll.Link{Pull: pull, WorkItem: issue, Who: "ann", Reason: "it is its work"})
	must(t, err)
	equal(t, "linked", []any{changed, linked.Pull, linked.WorkItem, linked.Rule, linked.Who, linked.Current},
		[]any{true, pull, issue, poll.RuleByHand, "ann", true})
	_, changed, err = p.poller.Link(t.Context(), poll.Link{Pull: pull, WorkItem: issue})
	must(t, err)
	equal(t, "changed again", changed, false)
	w.later(time.Minute)
	w.comment(t, n, "alice", "after")
	equal(t, "new", look(t, p).NewEvents, 1)
	w.later(time.Minute)
	_, _, err = p.poller.Link(t.Context(), poll.Link{Pull: pull})
	must(t, err)
	body := "Fixes #1"
	must(t, w.EditIssue("acme", "widgets", n, "alice", fakegithub.IssueEdit{Body: &body}))
	w.comment(t, n, "alice", "to nobody")
	equal(t, "new once it was taken off", look(t, p).NewEvents, 0)
	links, err := p.store.Links(t.Context(), pull, 10)
	must(t, err)
	equal(t, "history", []int{len(links), len(links[0].WorkItem)}, []int{2, 0})
	for name, order := range map[string]poll.Link{
		"an issue": {Pull: issue, WorkItem: issue}, "nothing": {Pull: "github:" + w.host + "/acme/widgets#77", WorkItem: issue},
		"an item that nobody has seen": {Pull: pull, WorkItem: "github:" + w.host + "/acme/widgets#77"},
		"a repository of nobody's":     {Pull: "github:other/repo#1", WorkItem: issue}, "no name": {Pull: "what", WorkItem: issue},
	} {
		if _, _, err := p.poller.Link(t.Context(), order); err == nil {
			t.Errorf("%s is linked", name)
		}
	}
}

func TestCI_AFailureAtTheHeadIsAnEventOnce(t *testing.T) {
	w, p, n := pullWorld(t, fakegithub.Issue{Body: "Fixes #1", Pull: &fakegithub.Pull{HeadSHA: shaA}})
	check := func(c fakegithub.CheckRun) int64 {
		t.Helper()
		id, err := w.SetCheckRun("acme", "widgets", c)
		must(t, err)
		return id
	}
	id := check(fakegithub.CheckRun{Name: "build", HeadSHA: shaA, Status: "in_progress"})
	check(fakegithub.CheckRun{Name: "lint", HeadSHA: shaA, Conclusion: "success"})
	look(t, p)
	equal(t, "rows while it runs", rows(t, p), []string{"opened alice delivered"})
	check(fakegithub.CheckRun{ID: id, Name: "build", HeadSHA: shaA, Conclusion: "failure", Title: "2 errors", Summary: "paint is dry"})
	_, err := w.SetStatus("acme", "widgets", fakegithub.Status{SHA: shaA, Context: "deploy", State: "error", Description: "no ladder"})
	must(t, err)
	look(t, p)
	equal(t, "rows", rows(t, p), []string{"opened alice delivered", "check  pending", "check  pending"})
	equal(t, "new when looked at again", look(t, p).NewEvents, 0)
	carry(t, p)
	all := strings.Join(w.askedTexts(), "\n")
	for _, want := range []string{"CI says failure", "Check: build", shaA, "the head now", "2 errors", "paint is dry", "Check: deploy", "no ladder"} {
		if !strings.Contains(all, want) {
			t.Errorf("lacks %q:\n%s", want, all)
		}
	}
	if strings.Contains(all, "lint") {
		t.Error("a success is told")
	}
	_ = n
}

const (
	shaA = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	shaB = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
)

// TestCI_AResultIsOfTheCurrentHeadOnly is R76.
func TestCI_AResultIsOfTheCurrentHeadOnly(t *testing.T) {
	w, p, n := pullWorld(t, fakegithub.Issue{Body: "Fixes #1", Pull: &fakegithub.Pull{HeadSHA: shaA}})
	w.always(dispatcherv1.Outcome_OUTCOME_HELD, "session_holds")
	w.comment(t, n, "alice", "it holds what comes after it")
	_, err := w.SetCheckRun("acme", "widgets", fakegithub.CheckRun{Name: "build", HeadSHA: shaA, Conclusion: "failure"})
	must(t, err)
	look(t, p)
	carry(t, p)
	w.later(time.Minute)
	must(t, w.PushHead("acme", "widgets", n, shaB))
	look(t, p)
	e := last(t, p)
	equal(t, "once another commit is the head", []any{e.Kind, e.State, e.Reason}, []any{poll.KindCheck, ledger.Cancelled, poll.ReasonSuperseded})
	w.later(time.Minute)
	must(t, w.PushHead("acme", "widgets", n, shaA))
	look(t, p)
	equal(t, "once it is the head again", last(t, p).State, ledger.Pending)
	equal(t, "its id", last(t, p).DeliveryID, e.DeliveryID)
	w.always(dispatcherv1.Outcome_OUTCOME_DELIVERED, "")
	carry(t, p)
	equal(t, "in the end", last(t, p).State, ledger.Delivered)
	w.later(time.Minute)
	must(t, w.PushHead("acme", "widgets", n, shaB))
	look(t, p)
	equal(t, "what was delivered", last(t, p).State, ledger.Delivered)
}
