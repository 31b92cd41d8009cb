package fakegithub_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-github/v90/github"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/test/fakegithub"
)

// receiver keeps what webhooks bring, after go-github has found the signature right and the payload readable.
type receiver struct {
	*httptest.Server
	t      *testing.T
	secret string
	status int

	mu      sync.Mutex
	got     []string
	guids   []string
	headers []http.Header
	events  []any
}

func newReceiver(t *testing.T, secret string) *receiver {
	t.Helper()
	r := &receiver{t: t, secret: secret, status: http.StatusAccepted}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	body, err := github.ValidatePayload(q, []byte(r.secret))
	if err != nil {
		r.t.Errorf("the delivery is not valid: %v", err)
	}
	event, err := github.ParseWebHook(github.WebHookType(q), body)
	if err != nil {
		r.t.Errorf("the payload is not readable: %v", err)
	}
	var about struct{ Action string }
	if err := json.Unmarshal(body, &about); err != nil {
		r.t.Errorf("the payload is no JSON: %v", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.got = append(r.got, strings.TrimSuffix(github.WebHookType(q)+"."+about.Action, "."))
	r.guids, r.headers, r.events = append(r.guids, github.DeliveryID(q)), append(r.headers, q.Header), append(r.events, event)
	w.WriteHeader(r.status)
}

// take waits until everything is sent, and returns what came since the last time.
func (r *receiver) take(w *world) []string {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 10*time.Second)
	defer cancel()
	must(r.t, w.WaitHooks(ctx))
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.got
	r.got = nil
	return out
}

// last is the payload that came last.
func last[T any](t *testing.T, r *receiver) T {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	event, ok := r.events[len(r.events)-1].(T)
	if !ok {
		t.Fatalf("the last event is a %T", r.events[len(r.events)-1])
	}
	return event
}

func (w *world) hook(t *testing.T, h fakegithub.Hook) int64 {
	t.Helper()
	w.SetURL(w.url)
	id, err := w.AddHook("acme", "widgets", h)
	must(t, err)
	return id
}

func TestHooks_TellOfEveryChange(t *testing.T) {
	w, r := newWorld(t, fakegithub.Config{}), newReceiver(t, "s3cret")
	w.hook(t, fakegithub.Hook{URL: r.URL, Secret: "s3cret"})
	equal(t, "at first", r.take(w), []string{"ping"})
	n := w.issue(t, fakegithub.Issue{Title: "bug", Labels: []string{"agent"}, Assignees: []string{"carol"}, Author: "mallory"})
	equal(t, "an issue", r.take(w), []string{"issues.opened", "issues.labeled", "issues.assigned"})
	equal(t, "assigned", []string{last[*github.IssuesEvent](t, r).GetAssignee().GetLogin(), last[*github.IssuesEvent](t, r).GetSender().GetLogin()}, []string{"carol", "mallory"})
	must(t, w.EditIssue("acme", "widgets", n, "carol", fakegithub.IssueEdit{Title: github.Ptr("bug 2"), Body: github.Ptr("b"), State: github.Ptr("closed"),
		Labels: &[]string{"done"}, Assignees: &[]string{}, Locked: github.Ptr(true)}))
	equal(t, "an edit", r.take(w), []string{"issues.edited", "issues.closed", "issues.labeled", "issues.unlabeled", "issues.unassigned", "issues.locked"})
	must(t, w.EditIssue("acme", "widgets", n, "carol", fakegithub.IssueEdit{State: github.Ptr("open"), Title: github.Ptr("bug 3")}))
	equal(t, "reopened", r.take(w), []string{"issues.edited", "issues.reopened"})
	must(t, w.EditIssue("acme", "widgets", n, "carol", fakegithub.IssueEdit{Title: github.Ptr("bug 3")}))
	equal(t, "no change", r.take(w), []string(nil))

	id := w.comment(t, n, "mallory", "one")
	must(t, w.EditCommentBy(id, "two", "carol"))
	equal(t, "a comment", r.take(w), []string{"issue_comment.created", "issue_comment.edited"})
	edited := last[*github.IssueCommentEvent](t, r)
	equal(t, "edited", []any{edited.Changes.Body.GetFrom(), edited.Comment.GetBody(), edited.GetSender().GetLogin(), edited.Comment.GetUser().GetLogin(),
		edited.GetIssue().IsPullRequest(), edited.GetRepo().GetFullName(), edited.GetIssue().GetComments(), edited.Comment.GetHTMLURL()},
		[]any{"one", "two", "carol", "mallory", false, "Acme/Widgets", 1, fmt.Sprintf("%s/Acme/Widgets/issues/%d#issuecomment-%d", w.url, n, id)})
	_, err := w.client(t, "tok-carol").Issues.DeleteComment(t.Context(), "acme", "widgets", id)
	must(t, err)
	equal(t, "deleted", r.take(w), []string{"issue_comment.deleted"})
	equal(t, "by", last[*github.IssueCommentEvent](t, r).GetSender().GetLogin(), "carol")
}

func TestHooks_TellOfPullRequestsAndReviews(t *testing.T) {
	w, r := newWorld(t, fakegithub.Config{}), newReceiver(t, "")
	w.hook(t, fakegithub.Hook{URL: r.URL})
	linked := w.issue(t, fakegithub.Issue{Title: "bug"})
	n := w.pull(t, fakegithub.Pull{HeadSHA: "aaa"}, fakegithub.Issue{Title: "p", Author: "carol", Body: fmt.Sprint("fixes #", linked)})
	equal(t, "opened", r.take(w), []string{"ping", "issues.opened", "pull_request.opened"})
	must(t, w.PushHead("acme", "widgets", n, "bbb"))
	must(t, w.PushHead("acme", "widgets", n, "bbb"))
	equal(t, "a push", r.take(w), []string{"pull_request.synchronize"})
	pushed := last[*github.PullRequestEvent](t, r)
	equal(t, "from and to", []any{pushed.GetBefore(), pushed.GetAfter(), pushed.GetPullRequest().GetHead().GetSHA(), pushed.GetNumber()}, []any{"aaa", "bbb", "bbb", n})
	w.comment(t, n, "mallory", "hello")
	equal(t, "a comment", r.take(w), []string{"issue_comment.created"})
	equal(t, "on a pull request", last[*github.IssueCommentEvent](t, r).GetIssue().IsPullRequest(), true)

	rv := w.review(t, n, fakegithub.Review{Author: "mallory", State: fakegithub.ChangesRequested, Comments: []fakegithub.ReviewComment{{Body: "a"}, {Body: "b"}}})
	equal(t, "a review", r.take(w), []string{"pull_request_review.submitted", "pull_request_review_comment.created", "pull_request_review_comment.created"})
	must(t, w.EditReview(rv, "text"))
	must(t, w.DismissReview(rv))
	equal(t, "its life", r.take(w), []string{"pull_request_review.edited", "pull_request_review.dismissed"})
	equal(t, "state", last[*github.PullRequestReviewEvent](t, r).GetReview().GetState(), "dismissed")
	pending := w.review(t, n, fakegithub.Review{Author: "mallory", State: fakegithub.Pending, Comments: []fakegithub.ReviewComment{{Body: "a"}}})
	equal(t, "pending", r.take(w), []string(nil))
	must(t, w.SubmitReview(pending, fakegithub.Commented))
	equal(t, "submitted", r.take(w), []string{"pull_request_review.submitted", "pull_request_review_comment.created"})
	c := w.inline(t, n, fakegithub.ReviewComment{Author: "mallory", Body: "x", Path: "a.go", Line: 4})
	must(t, w.EditReviewComment(c, "y"))
	must(t, w.DeleteReviewComment(c))
	equal(t, "a comment on the diff", r.take(w), []string{"pull_request_review.submitted", "pull_request_review_comment.created",
		"pull_request_review_comment.edited", "pull_request_review_comment.deleted"})
	gone := last[*github.PullRequestReviewCommentEvent](t, r)
	equal(t, "deleted", []any{gone.GetComment().GetID(), gone.GetComment().GetPath(), gone.GetPullRequest().GetNumber()}, []any{c, "a.go", n})

	must(t, w.EditIssue("acme", "widgets", n, "carol", fakegithub.IssueEdit{Draft: github.Ptr(true), Labels: &[]string{"agent"}}))
	equal(t, "draft", r.take(w), []string{"pull_request.labeled", "pull_request.converted_to_draft"})
	must(t, w.MergePull("acme", "widgets", n, "carol"))
	equal(t, "merged", r.take(w), []string{"pull_request.closed", "issues.closed"})
}

func TestHooks_TellOfChecks(t *testing.T) {
	w, r := newWorld(t, fakegithub.Config{}), newReceiver(t, "")
	w.hook(t, fakegithub.Hook{URL: r.URL, Events: []string{"check_run", "workflow_run", "status"}})
	n := w.pull(t, fakegithub.Pull{HeadSHA: "aaa"}, fakegithub.Issue{Title: "p"})
	equal(t, "not asked for, but the ping", r.take(w), []string{"ping"})
	id := w.check(t, fakegithub.CheckRun{HeadSHA: "aaa", Name: "build"})
	w.check(t, fakegithub.CheckRun{ID: id, Status: "in_progress"})
	w.check(t, fakegithub.CheckRun{ID: id, Conclusion: "failure"})
	equal(t, "a check run", r.take(w), []string{"check_run.created", "check_run.completed"})
	run := last[*github.CheckRunEvent](t, r)
	equal(t, "its end", []any{run.GetCheckRun().GetConclusion(), run.GetCheckRun().PullRequests[0].GetNumber(), run.GetSender().GetLogin()}, []any{"failure", n, "github-actions[bot]"})
	_, err := w.SetStatus("acme", "widgets", fakegithub.Status{SHA: "aaa", State: "failure", Context: "ci"})
	must(t, err)
	equal(t, "a status", r.take(w), []string{"status"})
	status := last[*github.StatusEvent](t, r)
	equal(t, "of", []any{status.GetState(), status.GetContext(), status.GetSHA(), status.GetName(), status.Branches[0].GetName()}, []any{"failure", "ci", "aaa", "Acme/Widgets", fmt.Sprint("branch-", n)})
	job, err := w.SetWorkflowRun("acme", "widgets", fakegithub.WorkflowRun{HeadSHA: "aaa"})
	must(t, err)
	for _, change := range []fakegithub.WorkflowRun{{Status: "in_progress"}, {Conclusion: "success"}, {Status: "queued", RunAttempt: 2}} {
		change.ID = job
		_, err = w.SetWorkflowRun("acme", "widgets", change)
		must(t, err)
	}
	equal(t, "a workflow run", r.take(w), []string{"workflow_run.requested", "workflow_run.in_progress", "workflow_run.completed", "workflow_run.requested"})
	equal(t, "again", last[*github.WorkflowRunEvent](t, r).GetWorkflowRun().GetRunAttempt(), 2)
}

func TestHooks_HaveTheirHeadersAndComeAgain(t *testing.T) {
	w, r := newWorld(t, fakegithub.Config{}), newReceiver(t, "s3cret")
	hook := w.hook(t, fakegithub.Hook{URL: r.URL, Secret: "s3cret", Form: true})
	n := w.issue(t, fakegithub.Issue{Title: "bug"})
	r.take(w)
	h := r.headers[1]
	equal(t, "headers", []string{h.Get("X-GitHub-Event"), h.Get("X-GitHub-Hook-ID"), h.Get("Content-Type"), h.Get("X-GitHub-Delivery")},
		[]string{"issues", fmt.Sprint(hook), "application/x-www-form-urlencoded", w.Deliveries()[1].GUID})
	equal(t, "User-Agent", strings.HasPrefix(h.Get("User-Agent"), "GitHub-Hookshot/"), true)

	r.status = http.StatusInternalServerError
	w.comment(t, n, "carol", "hello")
	equal(t, "once", r.take(w), []string{"issue_comment.created"})
	made := w.Deliveries()
	failed := made[len(made)-1]
	equal(t, "failed", []any{failed.Sent, failed.Status, failed.Event, failed.Action, failed.Redelivery}, []any{true, 500, "issue_comment", "created", false})
	r.status = http.StatusOK
	must(t, w.Redeliver(failed.GUID))
	other, err := w.RedeliverAs(failed.GUID)
	must(t, err)
	equal(t, "again", r.take(w), []string{"issue_comment.created", "issue_comment.created"})
	equal(t, "under", r.guids[len(r.guids)-2:], []string{failed.GUID, other})
	equal(t, "an unknown one", fault.KindOf(w.Redeliver("none")), fault.NotFound)

	client, ctx := w.client(t, "tok-carol"), t.Context()
	page, response, err := client.Repositories.ListHookDeliveries(ctx, "acme", "widgets", hook, &github.ListCursorOptions{PerPage: 2})
	must(t, err)
	equal(t, "the newest first", []any{page[0].GetGUID(), page[1].GetGUID(), page[1].GetRedelivery(), page[1].GetStatusCode()}, []any{other, failed.GUID, true, 200})
	rest, _, err := client.Repositories.ListHookDeliveries(ctx, "acme", "widgets", hook, &github.ListCursorOptions{Cursor: response.Cursor})
	must(t, err)
	equal(t, "the next page", []any{len(rest), rest[0].GetGUID(), rest[0].GetStatusCode()}, []any{3, failed.GUID, 500})
	one, _, err := client.Repositories.GetHookDelivery(ctx, "acme", "widgets", hook, rest[0].GetID())
	must(t, err)
	payload, err := one.ParseRequestPayload()
	must(t, err)
	equal(t, "what was sent", payload.(*github.IssueCommentEvent).GetComment().GetBody(), "hello")
	_, _, err = client.Repositories.RedeliverHookDelivery(ctx, "acme", "widgets", hook, rest[0].GetID())
	var accepted *github.AcceptedError
	equal(t, "accepted", errors.As(err, &accepted), true)
	equal(t, "once more", r.take(w), []string{"issue_comment.created"})
	equal(t, "under its GUID", r.guids[len(r.guids)-1], failed.GUID)
	_, _, err = w.client(t, "tok-mallory").Repositories.ListHookDeliveries(ctx, "acme", "widgets", hook, nil)
	equal(t, "a stranger", messageOf(t, err), "404 Not Found")
	_, err = client.Repositories.DeleteHook(ctx, "acme", "widgets", hook)
	must(t, err)
	w.comment(t, n, "carol", "unheard")
	equal(t, "no hook", r.take(w), []string(nil))
	hooked, _, err := client.Repositories.CreateHook(ctx, "acme", "widgets", &github.Hook{Events: []string{"issues"},
		Config: &github.HookConfig{URL: github.Ptr(r.URL), ContentType: github.Ptr("json"), Secret: github.Ptr("s3cret")}})
	must(t, err)
	equal(t, "made through the API", []any{hooked.GetActive(), hooked.GetConfig().GetSecret()}, []any{true, "********"})
	equal(t, "pinged", r.take(w), []string{"ping"})
}

func TestHooks_AreHeldShuffledAndLost(t *testing.T) {
	w, r := newWorld(t, fakegithub.Config{}), newReceiver(t, "")
	w.hook(t, fakegithub.Hook{URL: r.URL, Events: []string{"issue_comment"}})
	n := w.issue(t, fakegithub.Issue{Title: "bug"})
	r.take(w)
	w.HoldHooks(true)
	var want []string
	for i := range 8 {
		w.comment(t, n, "carol", fmt.Sprint(i))
		made := w.Deliveries()
		want = append(want, made[len(made)-1].GUID)
	}
	equal(t, "held", r.take(w), []string(nil))
	w.ShuffleHeld(3)
	w.HoldHooks(false)
	r.take(w)
	got := slices.Clone(r.guids[1:])
	equal(t, "in another order", slices.Equal(got, want), false)
	slices.Sort(got)
	slices.Sort(want)
	equal(t, "all of them", got, want)

	w.HoldHooks(true)
	w.comment(t, n, "carol", "lost")
	equal(t, "lost", w.DropHeld(), 1)
	w.HoldHooks(false)
	equal(t, "nothing comes", r.take(w), []string(nil))
	made := w.Deliveries()
	equal(t, "never sent", made[len(made)-1].Sent, false)
	must(t, w.Redeliver(made[len(made)-1].GUID))
	equal(t, "redelivered", r.take(w), []string{"issue_comment.created"})
}

func TestHooks_EndWithClose(t *testing.T) {
	w := newWorld(t, fakegithub.Config{})
	arrived, release := make(chan struct{}), make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		close(arrived)
		select {
		case <-r.Context().Done():
		case <-release:
		}
	}))
	defer slow.Close()
	defer close(release)
	w.hook(t, fakegithub.Hook{URL: slow.URL})
	w.issue(t, fakegithub.Issue{Title: "waits"})
	<-arrived
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	equal(t, "not all was sent", fault.KindOf(w.WaitHooks(ctx)), fault.Unavailable)
	w.Close()
	must(t, w.WaitHooks(t.Context()))
	w.issue(t, fakegithub.Issue{Title: "after"})
	var errs []bool
	for _, d := range w.Deliveries() {
		errs = append(errs, d.Error != "" || !d.Sent)
	}
	equal(t, "nothing arrived", errs, []bool{true, true, true})
	_, err := w.AddHook("acme", "widgets", fakegithub.Hook{URL: "nowhere"})
	equal(t, "no address", fault.KindOf(err), fault.Invalid)
	equal(t, "no hook", fault.KindOf(w.RemoveHook(1)), fault.NotFound)
}

func TestHooks_DoNotFollowAndTimeOut(t *testing.T) {
	w := newWorld(t, fakegithub.Config{HookTimeout: 50 * time.Millisecond})
	hang := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}))
	defer hang.Close()
	away := httptest.NewServer(http.RedirectHandler(hang.URL, http.StatusFound))
	defer away.Close()
	w.hook(t, fakegithub.Hook{URL: hang.URL})
	w.hook(t, fakegithub.Hook{URL: away.URL})
	must(t, w.WaitHooks(t.Context()))
	made := w.Deliveries()
	equal(t, "no answer", []any{made[0].Status, made[0].Error != ""}, []any{0, true})
	equal(t, "a redirect", made[1].Status, http.StatusFound)
}
