package github

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/services/poller/internal/poll"
	"muxpost.dev/muxpost/test/fakegithub"
)

// shaOf returns the name of a commit.
func shaOf(digit string) string { return strings.Repeat(digit, 40) }

func (w *world) pull(t *testing.T, is fakegithub.Issue, p fakegithub.Pull) int {
	t.Helper()
	is.Pull = &p
	return w.issue(t, is)
}

func TestItems_ByWhatPutsThemUnderOurCare(t *testing.T) {
	w := newWorld(t)
	w.issue(t, fakegithub.Issue{Title: "both", Labels: []string{"Agent"}, Assignees: []string{"helper"}})
	w.issue(t, fakegithub.Issue{Title: "assigned", Assignees: []string{"Helper"}})
	w.issue(t, fakegithub.Issue{Title: "mention", Body: "@reader please"})
	w.issue(t, fakegithub.Issue{Title: "nothing"})
	w.pull(t, fakegithub.Issue{Title: "a pull", Author: "alice"}, fakegithub.Pull{HeadSHA: shaOf("a"), Head: "muxpost/1"})
	w.pull(t, fakegithub.Issue{Title: "a labelled pull", Labels: []string{"agent"}}, fakegithub.Pull{HeadSHA: shaOf("b"), HeadRepo: "eve/widgets", Draft: true})
	w.pull(t, fakegithub.Issue{Title: "an assigned pull", Assignees: []string{"helper"}}, fakegithub.Pull{HeadSHA: shaOf("c"), HeadRepo: fakegithub.DeletedFork})
	w.pull(t, fakegithub.Issue{Title: "merged", Labels: []string{"agent"}}, fakegithub.Pull{Merged: true})
	client := w.newClient(t, Config{Assignee: "helper", MentionSelf: true, Pulls: true})
	l, err := client.Items(t.Context(), repo)
	must(t, err)
	got := map[string]string{}
	for _, item := range l.Items {
		got[item.Title] = item.Care
	}
	equal(t, "care", got, map[string]string{"both": poll.CareLabel, "assigned": poll.CareAssigned, "mention": poll.CareMention, "a pull": "",
		"a labelled pull": poll.CareLabel, "an assigned pull": poll.CareAssigned})
	if len(l.Items) != len(got) {
		t.Errorf("%d items", len(l.Items))
	}
	pulls := map[string]*poll.Pull{}
	for _, item := range l.Items {
		if item.Pull != nil {
			pulls[item.Title] = item.Pull
			equal(t, "comments of "+item.Title, item.Comments, -1)
		}
	}
	equal(t, "a pull", pulls["a pull"], &poll.Pull{Head: "muxpost/1", HeadSHA: shaOf("a"), HeadRepository: "Acme/Widgets", Base: "main"})
	equal(t, "a fork's", pulls["a labelled pull"].HeadRepository, "eve/widgets")
	equal(t, "a fork that is gone", pulls["an assigned pull"].HeadRepository, "")
	equal(t, "a draft", pulls["a labelled pull"].Draft, true)
	// Without a label, and without pull requests.
	client, err = New(Config{BaseURL: w.url, Token: tokenOf(t, "tok"), Assignee: "helper"})
	must(t, err)
	l, err = client.Items(t.Context(), repo)
	must(t, err)
	equal(t, "assigned alone", titles(l), []string{"both", "assigned"})
}

func TestItem_AnIssueOrAPullRequestWhicheverWayItIsAskedFor(t *testing.T) {
	w := newWorld(t)
	w.issue(t, labelled("one"))
	n := w.pull(t, fakegithub.Issue{Title: "two", Labels: []string{"agent"}}, fakegithub.Pull{HeadSHA: shaOf("a")})
	must(t, w.MergePull("acme", "widgets", n, "alice"))
	for _, pull := range []bool{true, false} {
		item, err := w.client.Item(t.Context(), repo, uint64(n), pull)
		must(t, err)
		if item.Pull == nil || !item.Pull.Merged || item.Open || item.ClosedAt.IsZero() || item.Comments != 0 || item.Care != poll.CareLabel {
			t.Errorf("%v: %+v", pull, item)
		}
	}
	item, err := w.client.Item(t.Context(), repo, 1, false)
	must(t, err)
	equal(t, "an issue", []any{item.Pull == nil, item.Open, item.ClosedAt.IsZero()}, []any{true, true, true})
	if _, err := w.client.Item(t.Context(), repo, 99, true); !errors.Is(err, fault.NotFound) {
		t.Errorf("got %v", err)
	}
}

func TestPosts_OfAPullRequestComeFromThreePlaces(t *testing.T) {
	w := newWorld(t)
	n := w.pull(t, fakegithub.Issue{Title: "two", Author: "bob"}, fakegithub.Pull{HeadSHA: shaOf("a")})
	_, err := w.AddComment("acme", "widgets", n, fakegithub.Comment{Author: "alice", Body: "a comment"})
	must(t, err)
	id, err := w.AddReview("acme", "widgets", n, fakegithub.Review{Author: "alice", Body: "no", State: fakegithub.ChangesRequested,
		Comments: []fakegithub.ReviewComment{{Body: "here", Path: "a.go", Line: 7, DiffHunk: "@@ x"}, {Body: "the file", Path: "b.go"},
			{Body: "was here", Path: "c.go", Line: 9, Outdated: true, Side: "LEFT"}}})
	must(t, err)
	_, err = w.AddReview("acme", "widgets", n, fakegithub.Review{Author: "reader", Body: "a draft", State: fakegithub.Pending})
	must(t, err)
	_, err = w.AddReview("acme", "widgets", n, fakegithub.Review{Author: "bob", State: fakegithub.Approved})
	must(t, err)
	posts, err := w.client.Posts(t.Context(), repo, uint64(n), true, time.Time{})
	must(t, err)
	var got []string
	byBody := map[string]poll.Post{}
	for _, p := range posts {
		got = append(got, fmt.Sprint(p.Kind, " ", p.Author.Login, " ", p.Author.Association, " ", p.Verdict, " ", p.Body, " ", p.Path, ":", p.Line, " ", p.Side))
		byBody[p.Body] = p
		if p.NodeID == "" || p.URL == "" || p.CreatedAt.IsZero() || p.UpdatedAt.IsZero() {
			t.Errorf("%+v", p)
		}
	}
	equal(t, "posts", got, []string{"comment alice COLLABORATOR  a comment :0 ", "review alice COLLABORATOR changes_requested no :0 ",
		"review bob NONE approved  :0 ", "review_comment alice COLLABORATOR  here a.go:7 RIGHT", "review_comment alice COLLABORATOR  the file b.go:0 ",
		"review_comment alice COLLABORATOR  was here c.go:9 LEFT"})
	first := byBody["here"]
	equal(t, "a thread begins with itself", []any{first.Thread, first.Hunk}, []any{first.ID, "@@ x"})
	_, err = w.AddReviewComment("acme", "widgets", n, fakegithub.ReviewComment{Author: "bob", Body: "done", InReplyTo: first.ID})
	must(t, err)
	posts, err = w.client.Posts(t.Context(), repo, uint64(n), true, time.Now().Add(-time.Hour))
	must(t, err)
	equal(t, "a reply's thread", posts[len(posts)-1].Thread, first.ID)
	for kind, id := range map[string]int64{poll.KindReview: id, poll.KindReviewComment: first.ID, poll.KindComment: byBody["a comment"].ID} {
		for number, want := range map[int64]bool{id: true, id + 1_000_000: false} {
			there, err := w.client.HasPost(t.Context(), repo, uint64(n), kind, number)
			must(t, err)
			equal(t, kind+" is there", there, want)
		}
	}
}

func TestPosts_EveryPageOfEveryPlaceIsRead(t *testing.T) {
	w := newWorld(t)
	n := w.pull(t, fakegithub.Issue{Title: "two"}, fakegithub.Pull{HeadSHA: shaOf("a")})
	for i := range 101 {
		_, err := w.AddComment("acme", "widgets", n, fakegithub.Comment{Author: "alice", Body: fmt.Sprint("c", i)})
		must(t, err)
		_, err = w.AddReview("acme", "widgets", n, fakegithub.Review{Author: "alice", Body: fmt.Sprint("r", i),
			Comments: []fakegithub.ReviewComment{{Body: fmt.Sprint("i", i), Path: "a.go", Line: 1}}})
		must(t, err)
	}
	posts, err := w.client.Posts(t.Context(), repo, uint64(n), true, time.Time{})
	must(t, err)
	count := map[string]int{}
	for _, p := range posts {
		count[p.Kind]++
	}
	equal(t, "posts", count, map[string]int{poll.KindComment: 101, poll.KindReview: 101, poll.KindReviewComment: 101})
}

func TestChecks_OfEachKind(t *testing.T) {
	w := newWorld(t)
	head := shaOf("a")
	w.pull(t, fakegithub.Issue{Title: "two"}, fakegithub.Pull{HeadSHA: head})
	for i := range 101 {
		_, err := w.SetCheckRun("acme", "widgets", fakegithub.CheckRun{HeadSHA: head, Name: fmt.Sprint("unit ", i), Conclusion: "success"})
		must(t, err)
	}
	id, err := w.SetCheckRun("acme", "widgets", fakegithub.CheckRun{HeadSHA: head, Name: "lint", Conclusion: "timed_out", Title: "slow", Summary: "too slow"})
	must(t, err)
	_, err = w.SetCheckRun("acme", "widgets", fakegithub.CheckRun{HeadSHA: head, Name: "build", Status: "in_progress"})
	must(t, err)
	for _, state := range []string{"failure", "pending"} {
		_, err = w.SetStatus("acme", "widgets", fakegithub.Status{SHA: head, State: state, Context: "ci/one", Description: state})
		must(t, err)
	}
	_, err = w.SetStatus("acme", "widgets", fakegithub.Status{SHA: head, State: "error", Context: "ci/two", TargetURL: "http://ci.invalid/2"})
	must(t, err)
	for _, event := range []string{"push", "pull_request", "push"} {
		_, err = w.SetWorkflowRun("acme", "widgets", fakegithub.WorkflowRun{HeadSHA: head, Event: event, Conclusion: "failure"})
		must(t, err)
	}
	client := w.newClient(t, Config{CI: []string{poll.CheckRun, poll.CheckStatus, poll.CheckWorkflow}})
	checks, err := client.Checks(t.Context(), repo, head)
	must(t, err)
	var other []string
	runs := 0
	for _, c := range checks {
		if strings.HasPrefix(c.Name, "unit") {
			runs++
			continue
		}
		equal(t, "commit of "+c.Name, c.SHA, head)
		equal(t, "has an end: "+c.Name, !c.EndedAt.IsZero(), c.Done)
		other = append(other, fmt.Sprint(c.Kind, " ", c.Name, " ", c.Done, " ", c.Conclusion, " ", c.Attempt, " ", c.Title, " ", c.Summary))
		if c.Name == "lint" {
			equal(t, "id", c.ID, id)
		}
	}
	equal(t, "runs of two pages", runs, 101)
	equal(t, "the others", len(other), 6)
	for _, want := range []string{"check_run lint true timed_out 0 slow too slow", "check_run build false  0  ", "status ci/one false pending 0 pending ",
		"status ci/two true error 0  ", "workflow_run CI (push) true failure 1  ", "workflow_run CI (pull_request) true failure 1  "} {
		found := false
		for _, o := range other {
			found = found || strings.HasPrefix(o, strings.TrimSpace(want))
		}
		if !found {
			t.Errorf("%q is not among %q", want, other)
		}
	}
	if none, err := w.newClient(t, Config{}).Checks(t.Context(), repo, head); err != nil || none != nil {
		t.Errorf("no kinds: %v, %v", none, err)
	}
	if nothing, err := client.Checks(t.Context(), repo, shaOf("f")); err != nil || len(nothing) != 0 {
		t.Errorf("a commit that is not there: %v, %v", nothing, err)
	}
	if _, err := client.Checks(t.Context(), repo, "../../x"); !errors.Is(err, fault.Invalid) {
		t.Errorf("no commit at all: %v", err)
	}
}

func TestChecks_AKindThatMayNotBeReadIsAProblemOfThatKindAlone(t *testing.T) {
	w := newWorld(t)
	head := shaOf("a")
	w.pull(t, fakegithub.Issue{Title: "two"}, fakegithub.Pull{HeadSHA: head})
	_, err := w.SetStatus("acme", "widgets", fakegithub.Status{SHA: head, State: "error", Context: "ci"})
	must(t, err)
	now := time.Now()
	client := w.newClient(t, Config{CI: []string{poll.CheckRun, poll.CheckStatus}, Now: func() time.Time { return now }})
	path := "/repos/acme/widgets/commits/" + head + "/check-runs"
	must(t, w.Inject(fakegithub.Fault{Kind: fakegithub.KindForbidden, Path: path, Times: -1}))
	for range 3 {
		checks, err := client.Checks(t.Context(), repo, head)
		must(t, err)
		equal(t, "the other kind", len(checks), 1)
	}
	equal(t, "asked", w.Counts()["GET "+path].Requests, 1)
	problems := client.Use().Problems
	if len(problems) != 1 || problems[0].Kind != poll.CheckRun || !strings.Contains(problems[0].Problem, "permission") {
		t.Errorf("%+v", problems)
	}
	w.ClearFaults()
	now = now.Add(2 * refusalTime)
	_, err = client.Checks(t.Context(), repo, head)
	must(t, err)
	equal(t, "problems once it may be read", len(client.Use().Problems), 0)
	// A limit is no missing permission.
	must(t, w.Inject(fakegithub.Fault{Kind: fakegithub.KindSecondaryLimit, Path: path}))
	if _, err := client.Checks(t.Context(), repo, head); !errors.Is(err, fault.Throttled) {
		t.Errorf("got %v", err)
	}
}

func TestChecks_WhereNothingHappensIsAskedAboutMoreAndMoreSeldom(t *testing.T) {
	w := newWorld(t)
	head := shaOf("a")
	w.pull(t, fakegithub.Issue{Title: "two"}, fakegithub.Pull{HeadSHA: head})
	id, err := w.SetCheckRun("acme", "widgets", fakegithub.CheckRun{HeadSHA: head, Name: "unit", Status: "in_progress"})
	must(t, err)
	now := time.Now()
	client := w.newClient(t, Config{CI: []string{poll.CheckRun}, CIInterval: 30 * time.Second, CIQuiet: 5 * time.Minute, Now: func() time.Time { return now }})
	asked := func(looks int) int {
		w.ResetCounts()
		for range looks {
			_, err := client.Checks(t.Context(), repo, head)
			must(t, err)
			now = now.Add(30 * time.Second)
		}
		return w.requests()
	}
	equal(t, "while one runs", asked(20), 20)
	_, err = w.SetCheckRun("acme", "widgets", fakegithub.CheckRun{ID: id, Conclusion: "failure"})
	must(t, err)
	if n := asked(120); n < 10 || n > 20 {
		t.Errorf("%d times in an hour in which nothing happens", n)
	}
	_, err = w.SetCheckRun("acme", "widgets", fakegithub.CheckRun{ID: id, Status: "in_progress"})
	must(t, err)
	seen := 0
	for seen < 20 {
		checks, err := client.Checks(t.Context(), repo, head)
		must(t, err)
		if !checks[0].Done {
			break
		}
		now = now.Add(30 * time.Second)
		seen++
	}
	if seen > 10 {
		t.Errorf("what runs again is seen after %d looks", seen)
	}
	equal(t, "once it runs again", asked(10), 10)
	w.ResetCounts()
	_, err = client.Checks(poll.Full(t.Context()), repo, head)
	must(t, err)
	equal(t, "in full", w.requests(), 1)
}

func TestGraph_WhoEditedAndWhatIsClosed(t *testing.T) {
	w := newWorld(t)
	must(t, w.AddRepo(fakegithub.Repo{Owner: "acme", Name: "gadgets"}))
	w.issue(t, labelled("one"))
	n := w.pull(t, fakegithub.Issue{Title: "two", Author: "alice", Body: "Fixes #1"}, fakegithub.Pull{HeadSHA: shaOf("a"), Head: "muxpost/1"})
	var ids []string
	var last int64
	for i := range 250 {
		id, err := w.AddComment("acme", "widgets", n, fakegithub.Comment{Author: "alice", Body: fmt.Sprint(i)})
		must(t, err)
		last = id
	}
	must(t, w.EditCommentBy(last, "changed", "helper[bot]"))
	_, err := w.AddReview("acme", "widgets", n, fakegithub.Review{Author: "alice", Body: "as it was written"})
	must(t, err)
	client := w.newClient(t, Config{Pulls: true})
	l, err := client.Items(t.Context(), repo)
	must(t, err)
	posts, err := client.Posts(t.Context(), repo, uint64(n), true, time.Time{})
	must(t, err)
	for _, p := range posts {
		ids = append(ids, p.NodeID)
	}
	w.ResetCounts()
	edits, err := client.Edits(t.Context(), append(ids, "IC_gone"))
	must(t, err)
	// Of a review it is told what it says, whether or not that was edited.
	at, words := edits[ids[249]].At, "as it was written"
	equal(t, "edits", edits, map[string]poll.Edit{ids[249]: {Edited: true, Editor: poll.Author{Login: "helper[bot]", Machine: true}, At: at},
		ids[250]: {Body: &words}})
	if time.Since(at).Abs() > time.Minute {
		t.Errorf("edited at %v", at)
	}
	equal(t, "queries", w.Counts()["POST /graphql"].Requests, 3)
	for _, item := range l.Items {
		refs, err := client.Closes(t.Context(), item.NodeID)
		must(t, err)
		if item.Pull != nil {
			equal(t, "closes", len(refs), 1)
			equal(t, "what", refs[0].String(), l.Items[0].Ref.String())
		} else {
			equal(t, "an issue closes", len(refs), 0)
		}
	}
	for branch, want := range map[string]bool{"main": true, "muxpost/1": true, "muxpost/2": false, "../../issues": false} {
		there, err := client.HasBranch(t.Context(), repo, branch)
		must(t, err)
		equal(t, "branch "+branch, there, want)
	}
	for range 2 {
		self, err := client.Self(t.Context())
		must(t, err)
		equal(t, "self", self, "reader")
	}
	equal(t, "asked who", w.Counts()["GET /user"].Requests, 1)
	// Without a token there is nobody.
	client, err = New(Config{BaseURL: w.url, Label: "agent"})
	must(t, err)
	if self, err := client.Self(t.Context()); self != "" || err != nil {
		t.Errorf("%q, %v", self, err)
	}
}

func TestGraph_FaultsOfTheWholeAreToldApart(t *testing.T) {
	w := newWorld(t)
	query := func() error {
		_, err := w.client.Edits(t.Context(), []string{"IC_x"})
		return err
	}
	must(t, query()) // a node that is gone is none
	w.SetRemainingGraphQL("reader", 0)
	var f *fault.Error
	if err := query(); !errors.As(err, &f) || f.Kind != fault.Throttled || f.RetryAfter < 50*time.Minute {
		t.Errorf("a limit: %v", err)
	}
	for _, tt := range []struct {
		body string
		kind fault.Kind
	}{
		{`{"data":null,"errors":[{"type":"RATE_LIMITED","message":"x"}]}`, fault.Throttled},
		{`{"errors":[{"message":"Something went wrong while executing your query"}]}`, fault.Unavailable},
		{`{"errors":[{"type":"FORBIDDEN","message":"Resource not accessible"}]}`, fault.Denied},
		{`{"errors":[{"type":"INSUFFICIENT_SCOPES","message":"x","path":["query"]}]}`, fault.Denied},
		{`<html>`, fault.Unavailable},
	} {
		must(t, w.Inject(fakegithub.Fault{Kind: fakegithub.KindStatus, Status: 200, Body: tt.body}))
		if err := query(); !errors.Is(err, tt.kind) {
			t.Errorf("%s: %v", tt.body, err)
		}
	}
	// An editor who is gone, and a text that nobody edited.
	must(t, w.Inject(fakegithub.Fault{Kind: fakegithub.KindStatus, Status: 200, Body: `{"data":{"nodes":[
		{"id":"a","editor":null,"lastEditedAt":"2026-05-01T12:00:00Z"},{"id":"b","editor":null,"lastEditedAt":null},null,
		{"id":"c","editor":{"login":"alice","__typename":"User"},"lastEditedAt":"2026-05-01T12:00:00Z"}]},
		"errors":[{"type":"FORBIDDEN","path":["nodes",2],"message":"x"}]}`}))
	edits, err := w.client.Edits(t.Context(), []string{"a", "b", "x", "c"})
	must(t, err)
	at := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	equal(t, "edits", edits, map[string]poll.Edit{"a": {Edited: true, At: at}, "c": {Edited: true, Editor: poll.Author{Login: "alice"}, At: at}})
	must(t, w.Inject(fakegithub.Fault{Kind: fakegithub.KindStatus, Status: 401}))
	if err := query(); !errors.Is(err, fault.Denied) || strings.Contains(err.Error(), "tok\"") {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.client.Closes(ctx, "PR_1"); !errors.Is(err, fault.Unavailable) {
		t.Errorf("got %v", err)
	}
}
