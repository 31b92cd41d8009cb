package fakegithub_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-github/v90/github"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/test/fakegithub"
)

func (w *world) review(t *testing.T, n int, rv fakegithub.Review) int64 {
	t.Helper()
	id, err := w.AddReview("acme", "widgets", n, rv)
	must(t, err)
	return id
}

func (w *world) inline(t *testing.T, n int, c fakegithub.ReviewComment) int64 {
	t.Helper()
	id, err := w.AddReviewComment("acme", "widgets", n, c)
	must(t, err)
	return id
}

func reviewIDs(t *testing.T, client *github.Client, n int) []int64 {
	t.Helper()
	all, _, err := client.PullRequests.ListReviews(t.Context(), "acme", "widgets", n, nil)
	must(t, err)
	var out []int64
	for _, rv := range all {
		out = append(out, rv.GetID())
	}
	return out
}

func inlineIDs(t *testing.T, client *github.Client, n int, opts *github.PullRequestListCommentsOptions) []int64 {
	t.Helper()
	all, _, err := client.PullRequests.ListComments(t.Context(), "acme", "widgets", n, opts)
	must(t, err)
	var out []int64
	for _, c := range all {
		out = append(out, c.GetID())
	}
	return out
}

func TestReviews_AreChronologicalAndPendingOnesTheirAuthors(t *testing.T) {
	w := newWorld(t, fakegithub.Config{})
	n, ctx := w.pull(t, fakegithub.Pull{HeadSHA: "aaa"}, fakegithub.Issue{Title: "p", Author: "carol"}), t.Context()
	now := w.clock.Now()
	later := w.review(t, n, fakegithub.Review{Author: "mallory", Body: "no", State: fakegithub.ChangesRequested, SubmittedAt: now})
	earlier := w.review(t, n, fakegithub.Review{Author: "mallory", State: fakegithub.Approved, SubmittedAt: now.Add(-time.Hour)})
	pending := w.review(t, n, fakegithub.Review{Author: "mallory", State: fakegithub.Pending, Body: "draft",
		Comments: []fakegithub.ReviewComment{{Body: "not yet", Line: 3}}})
	carol, mallory := w.client(t, "tok-carol"), w.client(t, "tok-mallory")
	equal(t, "others see", reviewIDs(t, carol, n), []int64{earlier, later})
	equal(t, "its author sees", reviewIDs(t, mallory, n), []int64{earlier, later, pending})
	equal(t, "comments of a pending review", inlineIDs(t, carol, n, nil), []int64(nil))
	_, _, err := carol.PullRequests.GetReview(ctx, "acme", "widgets", n, pending)
	equal(t, "another's pending review", messageOf(t, err), "404 Not Found")
	draft, _, err := mallory.PullRequests.GetReview(ctx, "acme", "widgets", n, pending)
	must(t, err)
	equal(t, "a pending review has no time", draft.SubmittedAt == nil, true)

	got, _, err := carol.PullRequests.GetReview(ctx, "acme", "widgets", n, earlier)
	must(t, err)
	equal(t, "an approval", []string{got.GetState(), got.GetBody(), got.GetCommitID(), got.GetUser().GetLogin(), got.GetAuthorAssociation(), got.GetHTMLURL()},
		[]string{"APPROVED", "", "aaa", "mallory", "NONE", fmt.Sprintf("%s/Acme/Widgets/pull/%d#pullrequestreview-%d", w.url, n, earlier)})
	w.clock.Advance(time.Minute)
	must(t, w.SubmitReview(pending, fakegithub.Commented))
	equal(t, "submitted", reviewIDs(t, carol, n), []int64{earlier, later, pending})
	equal(t, "its comments", len(inlineIDs(t, carol, n, nil)), 1)
	equal(t, "submitted again", fault.KindOf(w.SubmitReview(pending, fakegithub.Commented)), fault.Conflict)

	must(t, w.DismissReview(later))
	got, _, err = carol.PullRequests.GetReview(ctx, "acme", "widgets", n, later)
	must(t, err)
	equal(t, "dismissed", got.GetState(), "DISMISSED")
	equal(t, "a comment cannot be dismissed", fault.KindOf(w.DismissReview(pending)), fault.Conflict)
	must(t, w.EditReview(earlier, "edited"))
	is, _, err := carol.PullRequests.Get(ctx, "acme", "widgets", n)
	must(t, err)
	equal(t, "updated_at", is.GetUpdatedAt().Time, w.clock.Now().UTC().Truncate(time.Second))
	_, err = w.AddReview("acme", "widgets", n, fakegithub.Review{State: "SOSO"})
	equal(t, "an unknown state", fault.KindOf(err), fault.Invalid)
}

func TestReviews_AreWrittenThroughTheAPI(t *testing.T) {
	w := newWorld(t, fakegithub.Config{})
	n, ctx := w.pull(t, fakegithub.Pull{}, fakegithub.Issue{Title: "p", Author: "mallory"}), t.Context()
	carol, mallory := w.client(t, "tok-carol"), w.client(t, "tok-mallory")
	_, _, err := mallory.PullRequests.CreateReview(ctx, "acme", "widgets", n, &github.PullRequestReviewRequest{Event: github.Ptr("APPROVE")})
	equal(t, "one's own", messageOf(t, err), "422 Unprocessable Entity: Can not approve your own pull request")
	made, _, err := carol.PullRequests.CreateReview(ctx, "acme", "widgets", n, &github.PullRequestReviewRequest{
		Body: github.Ptr("look"), Comments: []*github.DraftReviewComment{{Path: github.Ptr("a.go"), Line: github.Ptr(4), Body: github.Ptr("here")}}})
	must(t, err)
	equal(t, "without an event", made.GetState(), "PENDING")
	made, _, err = carol.PullRequests.SubmitReview(ctx, "acme", "widgets", n, made.GetID(), github.PullRequestSubmitReviewRequest{Event: "REQUEST_CHANGES"})
	must(t, err)
	equal(t, "submitted", []string{made.GetState(), made.GetBody()}, []string{"CHANGES_REQUESTED", "look"})
	comments, _, err := mallory.PullRequests.ListReviewComments(ctx, "acme", "widgets", n, made.GetID(), nil)
	must(t, err)
	equal(t, "its comment", []any{comments[0].GetPath(), comments[0].GetLine(), comments[0].GetBody()}, []any{"a.go", 4, "here"})

	reply, _, err := mallory.PullRequests.CreateCommentInReplyTo(ctx, "acme", "widgets", n, "done", comments[0].GetID())
	must(t, err)
	equal(t, "a reply", []any{reply.GetInReplyTo(), reply.GetPath(), reply.GetLine()}, []any{comments[0].GetID(), "a.go", 4})
	_, _, err = mallory.PullRequests.CreateCommentInReplyTo(ctx, "acme", "widgets", n, "done", reply.GetID())
	equal(t, "a reply to a reply", messageOf(t, err), "404 Not Found")
	around, _, err := carol.PullRequests.GetReview(ctx, "acme", "widgets", n, reply.GetPullRequestReviewID())
	must(t, err)
	equal(t, "the review around a reply", []string{around.GetState(), around.GetBody(), around.GetUser().GetLogin()}, []string{"COMMENTED", "", "mallory"})

	updated, _, err := carol.PullRequests.UpdateReview(ctx, "acme", "widgets", n, made.GetID(), "look again")
	must(t, err)
	equal(t, "edited", updated.GetBody(), "look again")
	dismissed, _, err := carol.PullRequests.DismissReview(ctx, "acme", "widgets", n, made.GetID(), github.PullRequestDismissReviewRequest{Message: "ok"})
	must(t, err)
	equal(t, "dismissed", dismissed.GetState(), "DISMISSED")
}

func TestReviewComments_AreListedEditedAndDeleted(t *testing.T) {
	w := newWorld(t, fakegithub.Config{})
	n, other := w.pull(t, fakegithub.Pull{HeadSHA: "aaa"}, fakegithub.Issue{Title: "p"}), w.pull(t, fakegithub.Pull{}, fakegithub.Issue{Title: "q"})
	client, ctx := w.client(t, "tok-carol"), t.Context()
	one := w.inline(t, n, fakegithub.ReviewComment{Author: "carol", Body: "one", Path: "a.go", Line: 7, StartLine: 5})
	two := w.inline(t, n, fakegithub.ReviewComment{Author: "carol", Body: "two", Path: "b.go"})
	reply := w.inline(t, n, fakegithub.ReviewComment{Author: "mallory", Body: "re", InReplyTo: one})
	far := w.inline(t, other, fakegithub.ReviewComment{Author: "carol", Body: "far"})
	w.clock.Advance(time.Minute)
	since := w.clock.Now().UTC().Truncate(time.Second)
	must(t, w.EditReviewComment(one, "one, edited"))
	must(t, w.PushHead("acme", "widgets", n, "bbb"))
	must(t, w.OutdateReviewComment(two))

	got, _, err := client.PullRequests.GetComment(ctx, "acme", "widgets", one)
	must(t, err)
	equal(t, "a comment", []any{got.GetBody(), got.GetPath(), got.GetLine(), got.GetStartLine(), got.GetOriginalLine(), got.GetSide(), got.GetSubjectType(),
		got.GetCommitID(), got.GetOriginalCommitID(), got.InReplyTo == nil, got.GetHTMLURL(), got.GetPullRequestURL()},
		[]any{"one, edited", "a.go", 7, 5, 7, "RIGHT", "line", "bbb", "aaa", true, fmt.Sprintf("%s/Acme/Widgets/pull/%d#discussion_r%d", w.url, n, one),
			fmt.Sprintf("%s/repos/Acme/Widgets/pulls/%d", w.url, n)})
	got, _, err = client.PullRequests.GetComment(ctx, "acme", "widgets", two)
	must(t, err)
	equal(t, "outdated", []any{got.Line == nil, got.GetCommitID(), got.GetSubjectType()}, []any{true, "aaa", "file"})

	equal(t, "of one pull request", inlineIDs(t, client, n, nil), []int64{one, two, reply})
	equal(t, "since", inlineIDs(t, client, n, &github.PullRequestListCommentsOptions{Since: since}), []int64{one})
	equal(t, "of the repository", inlineIDs(t, client, 0, nil), []int64{one, two, reply, far})
	equal(t, "newest first", inlineIDs(t, client, 0, &github.PullRequestListCommentsOptions{Sort: "updated", Direction: "desc"}), []int64{one, far, reply, two})
	equal(t, "a direction alone", inlineIDs(t, client, 0, &github.PullRequestListCommentsOptions{Direction: "desc"}), []int64{one, two, reply, far})

	_, _, err = client.Reactions.CreatePullRequestCommentReaction(ctx, "acme", "widgets", one, "eyes")
	must(t, err)
	reactions, _, err := client.Reactions.ListPullRequestCommentReactions(ctx, "acme", "widgets", one, nil)
	must(t, err)
	equal(t, "reactions", len(reactions), 1)
	must(t, w.DeleteReviewComment(reply))
	_, _, err = client.PullRequests.GetComment(ctx, "acme", "widgets", reply)
	equal(t, "deleted", messageOf(t, err), "404 Not Found")
	must(t, w.HideReviewComment(two, true))
	equal(t, "a replica that lags behind", inlineIDs(t, client, n, nil), []int64{one})

	is, err := w.Issue("acme", "widgets", n)
	must(t, err)
	equal(t, "what Go sees", []any{len(is.Pull.Reviews), is.Pull.Reviews[0].Comments[0].Body, is.Pull.Reviews[0].State}, []any{3, "one, edited", "COMMENTED"})
	_, err = w.AddReviewComment("acme", "widgets", n, fakegithub.ReviewComment{InReplyTo: far})
	equal(t, "a reply elsewhere", fault.KindOf(err), fault.Invalid)
}

func TestPage_ShowsReviews(t *testing.T) {
	w := newWorld(t, fakegithub.Config{})
	n := w.pull(t, fakegithub.Pull{}, fakegithub.Issue{Title: "p"})
	rv := w.review(t, n, fakegithub.Review{Author: "carol", Body: "<b>no</b>", State: fakegithub.ChangesRequested,
		Comments: []fakegithub.ReviewComment{{Body: "here", Path: "a.go", Line: 3}}})
	w.review(t, n, fakegithub.Review{Author: "carol", Body: "secret", State: fakegithub.Pending})
	_, body := w.get(t, fmt.Sprintf("/Acme/Widgets/pull/%d", n))
	for _, want := range []string{fmt.Sprintf(`id="pullrequestreview-%d"`, rv), "&lt;b&gt;", `id="discussion_r`, "a.go:3", "CHANGES_REQUESTED"} {
		if !strings.Contains(body, want) {
			t.Errorf("the page lacks %q:\n%s", want, body)
		}
	}
	equal(t, "a pending review", strings.Contains(body, "secret"), false)
}
