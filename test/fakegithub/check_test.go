package fakegithub_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-github/v90/github"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/test/fakegithub"
)

func (w *world) check(t *testing.T, run fakegithub.CheckRun) int64 {
	t.Helper()
	id, err := w.SetCheckRun("acme", "widgets", run)
	must(t, err)
	return id
}

func runIDs(list *github.ListCheckRunsResults) []int64 {
	var out []int64
	for _, run := range list.CheckRuns {
		out = append(out, run.GetID())
	}
	return out
}

func TestCheckRuns_AreTheLatestOfTheirCommit(t *testing.T) {
	w := newWorld(t, fakegithub.Config{})
	n := w.pull(t, fakegithub.Pull{Head: "feature/x", HeadSHA: "aaa"}, fakegithub.Issue{Title: "p"})
	fork := w.pull(t, fakegithub.Pull{Head: "y", HeadSHA: "bbb", HeadRepo: "mallory/widgets"}, fakegithub.Issue{Title: "q"})
	client, ctx := w.client(t, "tok-carol"), t.Context()
	before, err := w.Issue("acme", "widgets", n)
	must(t, err)
	w.clock.Advance(time.Minute)
	first := w.check(t, fakegithub.CheckRun{HeadSHA: "aaa", Name: "build", Conclusion: "failure"})
	again := w.check(t, fakegithub.CheckRun{HeadSHA: "aaa", Name: "build", Status: "in_progress"})
	lint := w.check(t, fakegithub.CheckRun{HeadSHA: "aaa", Name: "lint", App: "linter", Title: "2 problems", Conclusion: "failure", DetailsURL: "https://ci.example/1"})
	for _, ref := range []string{"aaa", "feature/x", "heads/feature/x"} {
		latest, _, err := client.Checks.ListCheckRunsForRef(ctx, "acme", "widgets", ref, nil)
		must(t, err)
		equal(t, ref, runIDs(latest), []int64{lint, again})
		equal(t, "total", latest.GetTotal(), 2)
	}
	all, _, err := client.Checks.ListCheckRunsForRef(ctx, "acme", "widgets", "aaa", &github.ListCheckRunsOptions{Filter: github.Ptr("all"),
		Status: github.Ptr("completed"), ListOptions: github.ListOptions{PerPage: 1, Page: 2}})
	must(t, err)
	equal(t, "all that ended, page 2", []any{runIDs(all), all.GetTotal()}, []any{[]int64{first}, 2})

	w.check(t, fakegithub.CheckRun{ID: again, Conclusion: "success"})
	run, _, err := client.Checks.GetCheckRun(ctx, "acme", "widgets", again)
	must(t, err)
	equal(t, "ended", []any{run.GetStatus(), run.GetConclusion(), run.GetCompletedAt().Time.Equal(w.clock.Now().UTC().Truncate(time.Second)), run.GetName(),
		run.GetApp().GetSlug(), run.PullRequests[0].GetNumber(), run.PullRequests[0].Head.GetSHA(), run.GetCheckSuite().GetID() > 0},
		[]any{"completed", "success", true, "build", "github-actions", n, "aaa", true})
	w.check(t, fakegithub.CheckRun{ID: again, Status: "queued"})
	run, _, err = client.Checks.GetCheckRun(ctx, "acme", "widgets", again)
	must(t, err)
	equal(t, "runs again", []any{run.GetStatus(), run.Conclusion == nil, run.CompletedAt == nil}, []any{"queued", true, true})
	run, _, err = client.Checks.GetCheckRun(ctx, "acme", "widgets", lint)
	must(t, err)
	equal(t, "output", []any{run.GetOutput().GetTitle(), run.GetDetailsURL()}, []any{"2 problems", "https://ci.example/1"})
	run, _, err = client.Checks.GetCheckRun(ctx, "acme", "widgets", w.check(t, fakegithub.CheckRun{HeadSHA: "bbb", Name: "build"}))
	must(t, err)
	equal(t, "of a fork", len(run.PullRequests), 0)

	after, err := w.Issue("acme", "widgets", n)
	must(t, err)
	equal(t, "updated_at is not moved", after.UpdatedAt, before.UpdatedAt)
	_, _, err = client.Checks.ListCheckRunsForRef(ctx, "acme", "widgets", "nothing", nil)
	equal(t, "an unknown commit", messageOf(t, err), "422 No commit found for SHA: nothing")
	must(t, w.PushHead("acme", "widgets", fork, "ccc"))
	none, _, err := client.Checks.ListCheckRunsForRef(ctx, "acme", "widgets", "ccc", nil)
	must(t, err)
	equal(t, "a new commit", []any{none.GetTotal(), len(none.CheckRuns)}, []any{0, 0})
	_, err = w.SetCheckRun("acme", "widgets", fakegithub.CheckRun{ID: 5})
	equal(t, "an unknown run", fault.KindOf(err), fault.NotFound)
	_, err = w.SetCheckRun("acme", "widgets", fakegithub.CheckRun{Name: "x"})
	equal(t, "no commit", fault.KindOf(err), fault.Invalid)
}

func TestStatuses_AreCombinedByContext(t *testing.T) {
	w := newWorld(t, fakegithub.Config{})
	w.pull(t, fakegithub.Pull{HeadSHA: "aaa"}, fakegithub.Issue{Title: "p"})
	client, ctx := w.client(t, "tok-carol"), t.Context()
	for _, step := range []struct {
		context, state, want string
	}{
		{"", "", "pending"}, {"ci/a", "success", "success"}, {"ci/b", "pending", "pending"}, {"ci/c", "error", "failure"},
		{"ci/c", "success", "pending"}, {"ci/b", "failure", "failure"}, {"ci/b", "success", "success"},
	} {
		if step.state != "" {
			_, err := w.SetStatus("acme", "widgets", fakegithub.Status{SHA: "aaa", Context: step.context, State: step.state})
			must(t, err)
		}
		got, _, err := client.Repositories.GetCombinedStatus(ctx, "acme", "widgets", "aaa", nil)
		must(t, err)
		equal(t, step.context+" "+step.state, got.GetState(), step.want)
	}
	combined, _, err := client.Repositories.GetCombinedStatus(ctx, "acme", "widgets", "aaa", nil)
	must(t, err)
	equal(t, "one of each context", combined.GetTotalCount(), 3)
	all, _, err := client.Repositories.ListStatuses(ctx, "acme", "widgets", "aaa", nil)
	must(t, err)
	equal(t, "all, newest first", []any{len(all), all[0].GetContext(), all[0].GetState(), all[0].GetCreator().GetLogin()}, []any{6, "ci/b", "success", "Acme"})
	_, _, err = client.Repositories.CreateStatus(ctx, "acme", "widgets", "aaa", github.RepoStatus{State: github.Ptr("failure"), Context: github.Ptr("x")})
	must(t, err)
	_, _, err = client.Repositories.CreateStatus(ctx, "acme", "widgets", "aaa", github.RepoStatus{State: github.Ptr("red")})
	equal(t, "an unknown state", messageOf(t, err), "422 Validation Failed")
	_, _, err = w.client(t, "tok-mallory").Repositories.CreateStatus(ctx, "acme", "widgets", "aaa", github.RepoStatus{State: github.Ptr("success")})
	equal(t, "without access", messageOf(t, err), "404 Not Found")
}

func TestWorkflowRuns_KeepTheirIDWhenTheyRunAgain(t *testing.T) {
	w := newWorld(t, fakegithub.Config{})
	n := w.pull(t, fakegithub.Pull{Head: "x", HeadSHA: "aaa"}, fakegithub.Issue{Title: "p"})
	client, ctx := w.client(t, "tok-carol"), t.Context()
	id, err := w.SetWorkflowRun("acme", "widgets", fakegithub.WorkflowRun{HeadSHA: "aaa", Name: "CI"})
	must(t, err)
	_, err = w.SetWorkflowRun("acme", "widgets", fakegithub.WorkflowRun{HeadSHA: "bbb", Name: "CI", Conclusion: "failure"})
	must(t, err)
	_, err = w.SetWorkflowRun("acme", "widgets", fakegithub.WorkflowRun{ID: id, Conclusion: "cancelled"})
	must(t, err)
	_, err = w.SetWorkflowRun("acme", "widgets", fakegithub.WorkflowRun{ID: id, Status: "in_progress", RunAttempt: 2})
	must(t, err)
	list, _, err := client.Actions.ListRepositoryWorkflowRuns(ctx, "acme", "widgets", &github.ListWorkflowRunsOptions{HeadSHA: "aaa"})
	must(t, err)
	run := list.WorkflowRuns[0]
	equal(t, "run", []any{list.GetTotalCount(), run.GetID(), run.GetHeadBranch(), run.GetEvent(), run.GetStatus(), run.Conclusion == nil, run.GetRunAttempt(),
		run.GetRunNumber(), run.PullRequests[0].GetNumber()}, []any{1, id, "x", "pull_request", "in_progress", true, 2, 1, n})
	for query, want := range map[string]int{"status=failure": 1, "status=in_progress": 1, "branch=x": 1, "event=push": 0, "": 2} {
		_, body := w.get(t, "/repos/acme/widgets/actions/runs?"+query)
		equal(t, query, strings.Count(body, `"run_attempt"`), want)
	}
	response, _ := w.get(t, "/repos/acme/widgets/actions/runs/1")
	equal(t, "an unknown run", response.StatusCode, http.StatusNotFound)
}
