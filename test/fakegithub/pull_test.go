package fakegithub_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-github/v90/github"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/test/fakegithub"
)

func pullNumbers(pulls []*github.PullRequest) []int {
	var out []int
	for _, p := range pulls {
		out = append(out, p.GetNumber())
	}
	return out
}

func (w *world) pull(t *testing.T, p fakegithub.Pull, is fakegithub.Issue) int {
	t.Helper()
	is.Pull = &p
	return w.issue(t, is)
}

func TestPull_IsReadWithItsHeadAndItsBase(t *testing.T) {
	w := newWorld(t, fakegithub.Config{})
	own := w.pull(t, fakegithub.Pull{Head: "feature/x", HeadSHA: "aaa", Draft: true}, fakegithub.Issue{Title: "own", Author: "carol", Assignees: []string{"carol"}})
	fork := w.pull(t, fakegithub.Pull{Head: "patch", HeadRepo: "mallory/widgets"}, fakegithub.Issue{Title: "fork", Author: "mallory"})
	gone := w.pull(t, fakegithub.Pull{Head: "patch", HeadRepo: fakegithub.DeletedFork}, fakegithub.Issue{Title: "gone", Author: "mallory"})
	w.comment(t, own, "carol", "hello")
	client, ctx := w.client(t, "tok-carol"), t.Context()

	got, _, err := client.PullRequests.Get(ctx, "acme", "widgets", own)
	must(t, err)
	equal(t, "own", []any{got.GetDraft(), got.Head.GetRef(), got.Head.GetSHA(), got.Head.GetLabel(), got.Head.Repo.GetFullName(), got.Base.GetRef(),
		got.GetComments(), got.Assignees[0].GetLogin(), got.GetAuthorAssociation(), got.GetMerged(), got.MergedAt == nil},
		[]any{true, "feature/x", "aaa", "Acme:feature/x", "Acme/Widgets", "main", 1, "carol", "COLLABORATOR", false, true})
	got, _, err = client.PullRequests.Get(ctx, "acme", "widgets", fork)
	must(t, err)
	equal(t, "fork", []any{got.Head.Repo.GetFullName(), got.Head.Repo.GetFork(), got.Head.GetLabel()}, []any{"mallory/widgets", true, "mallory:patch"})
	got, _, err = client.PullRequests.Get(ctx, "acme", "widgets", gone)
	must(t, err)
	equal(t, "deleted fork", []any{got.Head.Repo == nil, got.Head.GetLabel()}, []any{true, "mallory:patch"})

	issue := w.issue(t, fakegithub.Issue{Title: "no pull"})
	_, _, err = client.PullRequests.Get(ctx, "acme", "widgets", issue)
	equal(t, "an issue", messageOf(t, err), "404 Not Found")
	asIssue, _, err := client.Issues.Get(ctx, "acme", "widgets", own)
	must(t, err)
	equal(t, "as an issue", []any{asIssue.IsPullRequest(), asIssue.GetDraft()}, []any{true, true})

	branch, _, err := client.Repositories.GetBranch(ctx, "acme", "widgets", "feature/x", 0)
	must(t, err)
	equal(t, "the branch of the head", []string{branch.GetName(), branch.GetCommit().GetSHA()}, []string{"feature/x", "aaa"})
	for branch, want := range map[string]int{"main": 200, "feature/x": 200, "patch": 404} {
		response, body := w.get(t, "/repos/acme/widgets/branches/"+branch)
		equal(t, branch, response.StatusCode, want)
		equal(t, branch+" not found", strings.Contains(body, "Branch not found"), want == 404)
	}
	must(t, w.AddBranch("acme", "widgets", "patch"))
	response, _ := w.get(t, "/repos/acme/widgets/branches/patch")
	equal(t, "an added branch", response.StatusCode, http.StatusOK)
	must(t, w.DeleteBranch("acme", "widgets", "patch"))
	equal(t, "a deleted branch", fault.KindOf(w.DeleteBranch("acme", "widgets", "patch")), fault.NotFound)
}

func TestListPulls_FiltersAndSorts(t *testing.T) {
	w := newWorld(t, fakegithub.Config{})
	old := w.clock.Now().Add(-time.Hour)
	one := w.pull(t, fakegithub.Pull{Head: "a"}, fakegithub.Issue{Title: "one", CreatedAt: old})
	two := w.pull(t, fakegithub.Pull{Head: "b", Base: "release"}, fakegithub.Issue{Title: "two", CreatedAt: old.Add(time.Minute)})
	three := w.pull(t, fakegithub.Pull{Head: "a", HeadRepo: "mallory/widgets"}, fakegithub.Issue{Title: "three", CreatedAt: old.Add(2 * time.Minute)})
	merged := w.pull(t, fakegithub.Pull{Merged: true}, fakegithub.Issue{Title: "four", CreatedAt: old.Add(3 * time.Minute)})
	w.issue(t, fakegithub.Issue{Title: "no pull"})
	w.comment(t, one, "carol", "moves it")
	for _, tc := range []struct {
		name string
		opts github.PullRequestListOptions
		want []int
	}{
		{"default", github.PullRequestListOptions{}, []int{three, two, one}},
		{"all", github.PullRequestListOptions{State: "all"}, []int{merged, three, two, one}},
		{"closed", github.PullRequestListOptions{State: "closed"}, []int{merged}},
		{"updated is ascending by default", github.PullRequestListOptions{Sort: "updated"}, []int{two, three, one}},
		{"updated descending", github.PullRequestListOptions{Sort: "updated", Direction: "desc"}, []int{one, three, two}},
		{"popularity", github.PullRequestListOptions{Sort: "popularity", Direction: "desc"}, []int{one, three, two}},
		{"head", github.PullRequestListOptions{Head: "acme:a"}, []int{one}},
		{"head of a fork", github.PullRequestListOptions{Head: "mallory:a"}, []int{three}},
		{"base", github.PullRequestListOptions{Base: "release"}, []int{two}},
		{"page", github.PullRequestListOptions{ListOptions: github.ListOptions{PerPage: 2, Page: 2}}, []int{one}},
	} {
		got, _, err := w.client(t, "tok-carol").PullRequests.List(t.Context(), "acme", "widgets", &tc.opts)
		must(t, err)
		equal(t, tc.name, pullNumbers(got), tc.want)
	}
	response, body := w.get(t, "/repos/acme/widgets/pulls")
	same, _ := w.get(t, "/repos/acme/widgets/pulls", "If-None-Match", response.Header.Get("ETag"))
	equal(t, "conditional", same.StatusCode, http.StatusNotModified)
	equal(t, "merged comes only alone", strings.Contains(body, `"merged":`), false)
}

func TestPull_MovesWithPushesAndMerges(t *testing.T) {
	w := newWorld(t, fakegithub.Config{})
	issue := w.issue(t, fakegithub.Issue{Title: "bug"})
	n := w.pull(t, fakegithub.Pull{Head: "fix"}, fakegithub.Issue{Title: "fix", Body: fmt.Sprintf("Fixes #%d", issue)})
	client, ctx := w.client(t, "tok-carol"), t.Context()
	w.clock.Advance(time.Minute)
	must(t, w.PushHead("acme", "widgets", n, "bbb"))
	got, _, err := client.PullRequests.Get(ctx, "acme", "widgets", n)
	must(t, err)
	equal(t, "head", got.Head.GetSHA(), "bbb")
	equal(t, "updated_at", got.GetUpdatedAt().Time, w.clock.Now().UTC().Truncate(time.Second))
	_, _, err = client.PullRequests.Merge(ctx, "acme", "widgets", n, "", &github.PullRequestOptions{SHA: "aaa"})
	equal(t, "another head", messageOf(t, err), "409 Head branch was modified. Review and try the merge again.")
	must(t, w.MergePull("acme", "widgets", n, "carol"))
	got, _, err = client.PullRequests.Get(ctx, "acme", "widgets", n)
	must(t, err)
	equal(t, "merged", []any{got.GetMerged(), got.GetState(), got.MergedBy.GetLogin(), got.MergedAt != nil}, []any{true, "closed", "carol", true})
	is, err := w.Issue("acme", "widgets", issue)
	must(t, err)
	equal(t, "what it fixes", is.State, "closed")
	equal(t, "again", fault.KindOf(w.MergePull("acme", "widgets", n, "carol")), fault.Conflict)
	equal(t, "a push", fault.KindOf(w.PushHead("acme", "widgets", n, "ccc")), fault.Conflict)
	equal(t, "an issue", fault.KindOf(w.PushHead("acme", "widgets", issue, "ccc")), fault.NotFound)
}

func TestListIssues_ByAssigneeAndMention(t *testing.T) {
	w := newWorld(t, fakegithub.Config{})
	one := w.issue(t, fakegithub.Issue{Title: "one", Assignees: []string{"Carol"}})
	two := w.issue(t, fakegithub.Issue{Title: "two", Body: "cc @carol, please"})
	three := w.issue(t, fakegithub.Issue{Title: "three", Body: "cc @carolina"})
	w.comment(t, three, "mallory", "@Carol!")
	for query, want := range map[string][]int{"assignee=carol": {one}, "assignee=*": {one}, "assignee=none": {three, two}, "mentioned=carol": {three, two},
		"mentioned=caro": nil, "creator=acme": {three, two, one}} {
		_, body := w.get(t, "/repos/acme/widgets/issues?"+query)
		var got []int
		for _, n := range []int{three, two, one} {
			if strings.Contains(body, fmt.Sprintf(`"number":%d,`, n)) {
				got = append(got, n)
			}
		}
		equal(t, query, got, want)
	}
	must(t, w.EditIssue("acme", "widgets", two, "carol", fakegithub.IssueEdit{Assignees: &[]string{"mallory"}}))
	is, _, err := w.client(t, "").Issues.Get(t.Context(), "acme", "widgets", two)
	must(t, err)
	equal(t, "assignee", is.Assignee.GetLogin(), "mallory")
}

func TestPull_IsMadeAndAssignedThroughTheAPI(t *testing.T) {
	w := newWorld(t, fakegithub.Config{})
	must(t, w.AddBranch("acme", "widgets", "fix"))
	carol, ctx := w.client(t, "tok-carol"), t.Context()
	ask := github.CreatePullRequest{Title: github.Ptr("fix"), Head: "fix", Base: "main", Body: github.Ptr("b"), Draft: github.Ptr(true)}
	made, response, err := carol.PullRequests.Create(ctx, "acme", "widgets", ask)
	must(t, err)
	equal(t, "made", []any{response.StatusCode, made.GetHead().GetRef(), made.GetDraft(), made.GetUser().GetLogin()}, []any{201, "fix", true, "carol"})
	_, _, err = carol.PullRequests.Create(ctx, "acme", "widgets", ask)
	equal(t, "twice", messageOf(t, err), "422 Validation Failed")
	for _, head := range []string{"", "none", "main"} {
		ask.Head = head
		_, _, err = carol.PullRequests.Create(ctx, "acme", "widgets", ask)
		equal(t, "head "+head, messageOf(t, err), "422 Validation Failed")
	}
	ask.Head = "mallory:fix"
	fork, _, err := w.client(t, "tok-mallory").PullRequests.Create(ctx, "acme", "widgets", ask)
	must(t, err)
	equal(t, "of a fork", fork.GetHead().GetRepo().GetFullName(), "mallory/Widgets")

	n := made.GetNumber()
	is, _, err := carol.Issues.AddAssignees(ctx, "acme", "widgets", n, []string{"mallory", "carol"})
	must(t, err)
	equal(t, "assigned", len(is.Assignees), 2)
	is, _, err = carol.Issues.RemoveAssignees(ctx, "acme", "widgets", n, []string{"Mallory"})
	must(t, err)
	equal(t, "left", []any{len(is.Assignees), is.Assignee.GetLogin()}, []any{1, "carol"})
	_, _, err = carol.Issues.AddLabelsToIssue(ctx, "acme", "widgets", n, []string{"agent"})
	must(t, err)
	_, err = carol.Issues.RemoveLabelForIssue(ctx, "acme", "widgets", n, "Agent")
	must(t, err)
	_, err = carol.Issues.RemoveLabelForIssue(ctx, "acme", "widgets", n, "agent")
	equal(t, "no such label", messageOf(t, err), "404 Label does not exist")
	edited, _, err := carol.PullRequests.Edit(ctx, "acme", "widgets", n, &github.PullRequest{Title: github.Ptr("new"), State: github.Ptr("closed")})
	must(t, err)
	equal(t, "edited", []any{edited.GetTitle(), edited.GetState(), edited.GetMerged()}, []any{"new", "closed", false})
}
