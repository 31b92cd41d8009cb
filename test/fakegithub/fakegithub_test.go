package fakegithub_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-github/v90/github"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/test/fakegithub"
)

func TestPagination_EveryCommentComesOnceAndLinksSayWhere(t *testing.T) {
	w := newWorld(t, fakegithub.Config{})
	n := w.issue(t, fakegithub.Issue{Title: "long"})
	var want []string
	for i := range 65 {
		want = append(want, fmt.Sprint("comment ", i))
		w.comment(t, n, "carol", want[i])
	}
	client := w.client(t, "tok-carol")
	var got []string
	var pages []int
	opts := &github.IssueListCommentsOptions{}
	for {
		page, response, err := client.Issues.ListComments(t.Context(), "acme", "WIDGETS", n, opts)
		must(t, err)
		got, pages = append(got, bodies(page)...), append(pages, len(page))
		if response.NextPage == 0 {
			equal(t, "previous and first page", []int{response.PrevPage, response.FirstPage, response.LastPage}, []int{2, 1, 0})
			break
		}
		equal(t, "last page", response.LastPage, 3)
		opts.Page = response.NextPage
	}
	equal(t, "comments", got, want)
	equal(t, "page sizes", pages, []int{30, 30, 5})

	most, _, err := client.Issues.ListComments(t.Context(), "acme", "widgets", n,
		&github.IssueListCommentsOptions{ListOptions: github.ListOptions{PerPage: 100, Page: 1}})
	must(t, err)
	equal(t, "a page of 100", len(most), 65)
	beyond, _, err := client.Issues.ListComments(t.Context(), "acme", "widgets", n,
		&github.IssueListCommentsOptions{ListOptions: github.ListOptions{Page: 9}})
	must(t, err)
	equal(t, "a page beyond the last", len(beyond), 0)
}

func TestPagination_LinksLeadToTheNextPage(t *testing.T) {
	w := newWorld(t, fakegithub.Config{})
	for i := range 3 {
		w.issue(t, fakegithub.Issue{Title: fmt.Sprint("issue ", i)})
	}
	for _, base := range []string{"", "/api/v3"} {
		response, _ := w.get(t, base+"/repos/acme/widgets/issues?per_page=2&state=all")
		link, rel, _ := strings.Cut(response.Header.Get("Link"), ">")
		if !strings.HasPrefix(rel, `; rel="next"`) || !strings.HasPrefix(link, "<"+w.url+base+"/repositories/") {
			t.Fatalf("under %q the Link header is %q", base, response.Header.Get("Link"))
		}
		_, body := w.get(t, strings.TrimPrefix(link, "<"+w.url))
		if !strings.Contains(body, `"title":"issue 0"`) || strings.Contains(body, `"title":"issue 1"`) {
			t.Errorf("under %q the next page is %s", base, body)
		}
	}
}

func TestListIssues_FiltersAndSorts(t *testing.T) {
	w := newWorld(t, fakegithub.Config{})
	old := w.clock.Now().Add(-time.Hour)
	one := w.issue(t, fakegithub.Issue{Title: "one", Labels: []string{"Agent", "bug"}, CreatedAt: old})
	two := w.issue(t, fakegithub.Issue{Title: "two", PullRequest: true, Labels: []string{"agent"}, CreatedAt: old.Add(time.Minute)})
	three := w.issue(t, fakegithub.Issue{Title: "three", State: "closed", CreatedAt: old.Add(2 * time.Minute)})
	w.comment(t, one, "carol", "newest change")
	client := w.client(t, "tok-carol")
	for _, tc := range []struct {
		name string
		opts github.IssueListByRepoOptions
		want []int
	}{
		{"open ones, newest first", github.IssueListByRepoOptions{}, []int{two, one}},
		{"all, oldest first", github.IssueListByRepoOptions{State: "all", Direction: "asc"}, []int{one, two, three}},
		{"closed", github.IssueListByRepoOptions{State: "closed"}, []int{three}},
		{"by update", github.IssueListByRepoOptions{State: "all", Sort: "updated"}, []int{one, three, two}},
		{"both labels, whatever the case", github.IssueListByRepoOptions{Labels: []string{"AGENT", "bug"}}, []int{one}},
		{"since, its own second included", github.IssueListByRepoOptions{State: "all", Since: old.Add(2 * time.Minute).Truncate(time.Second)},
			[]int{three, one}},
	} {
		found, _, err := client.Issues.ListByRepo(t.Context(), "acme", "widgets", &tc.opts)
		must(t, err)
		equal(t, tc.name, numbers(found), tc.want)
		for _, is := range found {
			equal(t, "is a pull request", is.IsPullRequest(), is.GetNumber() == two)
		}
	}
}

func TestRepoComments_SinceCountsEditsAndSharesASecond(t *testing.T) {
	w := newWorld(t, fakegithub.Config{})
	n, m := w.issue(t, fakegithub.Issue{Title: "a"}), w.issue(t, fakegithub.Issue{Title: "b"})
	first := w.comment(t, n, "carol", "first")
	w.comment(t, m, "carol", "second")
	w.clock.Advance(10 * time.Second)
	mark := w.clock.Now().UTC().Truncate(time.Second)
	w.comment(t, n, "carol", "third")
	w.comment(t, m, "carol", "fourth")
	must(t, w.EditComment(first, "first, edited"))
	client := w.client(t, "tok-carol")
	list := func(sort, direction string) []string {
		found, _, err := client.Issues.ListComments(t.Context(), "acme", "widgets", 0,
			&github.IssueListCommentsOptions{Since: &mark, Sort: &sort, Direction: &direction})
		must(t, err)
		for _, c := range found {
			equal(t, "updated_at", c.GetUpdatedAt().Time, mark)
		}
		return bodies(found)
	}
	equal(t, "by update", list("updated", "asc"), []string{"first, edited", "third", "fourth"})
	equal(t, "by update, newest first", list("updated", "desc"), []string{"fourth", "third", "first, edited"})
	equal(t, "direction without sort is ignored", list("", "desc"), []string{"first, edited", "third", "fourth"})
	is, err := w.Issue("acme", "widgets", n)
	must(t, err)
	equal(t, "an edit moves the issue's updated_at", is.UpdatedAt, mark)
}

func TestAuthentication_TokensAreLogins(t *testing.T) {
	w := newWorld(t, fakegithub.Config{})
	me, _, err := w.client(t, "tok-bot").Users.Get(t.Context(), "")
	must(t, err)
	equal(t, "login and type", []string{me.GetLogin(), me.GetType()}, []string{"helper[bot]", "Bot"})

	_, _, err = w.client(t, "tok-wrong").Repositories.Get(t.Context(), "acme", "widgets")
	equal(t, "wrong token", messageOf(t, err), "401 Bad credentials")
	_, _, err = w.client(t, "").Users.Get(t.Context(), "")
	equal(t, "/user without a token", messageOf(t, err), "401 Requires authentication")
	repository, response, err := w.client(t, "").Repositories.Get(t.Context(), "ACME", "widgets")
	must(t, err)
	equal(t, "a public repository needs none", repository.GetFullName(), "Acme/Widgets")
	equal(t, "the anonymous limit", response.Rate.Limit, 60)

	must(t, w.AddRepo(fakegithub.Repo{Owner: "acme", Name: "secret", Private: true,
		Associations: map[string]string{"carol": fakegithub.Collaborator}}))
	_, _, err = w.client(t, "tok-mallory").Repositories.Get(t.Context(), "acme", "secret")
	equal(t, "a private repository does not exist for others", messageOf(t, err), "404 Not Found")
	_, _, err = w.client(t, "tok-carol").Repositories.Get(t.Context(), "acme", "secret")
	must(t, err)

	closed := newWorld(t, fakegithub.Config{RequireToken: true})
	_, _, err = closed.client(t, "").Repositories.Get(t.Context(), "acme", "widgets")
	equal(t, "RequireToken", messageOf(t, err), "401 Requires authentication")
}

func TestEnterpriseBase_StaysInItsURLs(t *testing.T) {
	w := newWorld(t, fakegithub.Config{})
	n := w.issue(t, fakegithub.Issue{Title: "ghes"})
	client, err := github.NewClient(github.WithEnterpriseURLs(w.url, w.url), github.WithAuthToken("tok-carol"))
	must(t, err)
	is, _, err := client.Issues.Get(t.Context(), "acme", "widgets", n)
	must(t, err)
	equal(t, "repository_url", is.GetRepositoryURL(), w.url+"/api/v3/repos/Acme/Widgets")
	equal(t, "html_url", is.GetHTMLURL(), fmt.Sprintf("%s/Acme/Widgets/issues/%d", w.url, n))
}

func TestWrites_ChangeWhatIsRead(t *testing.T) {
	w := newWorld(t, fakegithub.Config{})
	carol, ctx := w.client(t, "tok-carol"), t.Context()
	made, response, err := carol.Issues.Create(ctx, "acme", "widgets", github.CreateIssueRequest{Title: "t", Labels: []string{"bug"}})
	must(t, err)
	equal(t, "status of a creation", response.StatusCode, http.StatusCreated)
	n := made.GetNumber()
	_, _, err = carol.Issues.AddLabelsToIssue(ctx, "acme", "widgets", n, []string{"BUG", "agent"})
	must(t, err)
	w.clock.Advance(time.Minute)
	_, _, err = carol.Issues.Update(ctx, "acme", "widgets", n, github.UpdateIssueRequest{
		State: github.Ptr("closed"), StateReason: github.Ptr("not_planned"), Title: github.Ptr("t2"), Body: github.Ptr("b2")})
	must(t, err)
	got, _, err := carol.Issues.Get(ctx, "acme", "widgets", n)
	must(t, err)
	var labels []string
	for _, l := range got.Labels {
		labels = append(labels, l.GetName())
	}
	equal(t, "labels", labels, []string{"bug", "agent"})
	equal(t, "state", []string{got.GetState(), got.GetStateReason(), got.GetTitle(), got.GetBody(), got.ClosedBy.GetLogin()},
		[]string{"closed", "not_planned", "t2", "b2", "carol"})
	equal(t, "updated_at", got.GetUpdatedAt().Time, w.clock.Now().UTC().Truncate(time.Second))
	_, _, err = carol.Issues.Update(ctx, "acme", "widgets", n, github.UpdateIssueRequest{State: github.Ptr("open"), Labels: []string{}})
	must(t, err)
	got, _, err = carol.Issues.Get(ctx, "acme", "widgets", n)
	must(t, err)
	equal(t, "reopened", []any{got.GetState(), got.GetStateReason(), len(got.Labels), got.ClosedAt == nil}, []any{"open", "reopened", 0, true})
}

func TestComments_AreEditedAndDeletedByThoseWhoMay(t *testing.T) {
	w := newWorld(t, fakegithub.Config{})
	n, ctx := w.issue(t, fakegithub.Issue{Title: "t", PullRequest: true}), t.Context()
	carol, mallory := w.client(t, "tok-carol"), w.client(t, "tok-mallory")
	made, _, err := mallory.Issues.CreateComment(ctx, "acme", "widgets", n, &github.IssueComment{Body: github.Ptr("please")})
	must(t, err)
	id := made.GetID()
	equal(t, "association", made.GetAuthorAssociation(), "NONE")
	equal(t, "html_url", made.GetHTMLURL(), fmt.Sprintf("%s/Acme/Widgets/pull/%d#issuecomment-%d", w.url, n, id))
	if !strings.HasPrefix(made.GetNodeID(), "IC_kwDO") || id <= 1<<31 {
		t.Errorf("node_id %q and id %d are not like GitHub's", made.GetNodeID(), id)
	}
	equal(t, "one comment", commentCount(t, carol, n), 1)

	other := w.comment(t, n, "carol", "mine")
	_, _, err = mallory.Issues.EditComment(ctx, "acme", "widgets", other, &github.IssueComment{Body: github.Ptr("hers")})
	equal(t, "another's comment", messageOf(t, err), "403 Must have admin rights to Repository.")
	edited, _, err := carol.Issues.EditComment(ctx, "acme", "widgets", id, &github.IssueComment{Body: github.Ptr("please, edited")})
	must(t, err)
	equal(t, "edited by another, still its author's", []string{edited.GetBody(), edited.GetUser().GetLogin()},
		[]string{"please, edited", "mallory"})
	_, _, err = mallory.Issues.CreateComment(ctx, "acme", "widgets", n, &github.IssueComment{Body: github.Ptr(" ")})
	equal(t, "an empty comment", messageOf(t, err), "422 Validation Failed")

	_, err = mallory.Issues.DeleteComment(ctx, "acme", "widgets", id)
	must(t, err)
	_, _, err = carol.Issues.GetComment(ctx, "acme", "widgets", id)
	equal(t, "a deleted comment", messageOf(t, err), "404 Not Found")
	equal(t, "comments after the deletion", commentCount(t, carol, n), 1)

	must(t, w.EditIssue("acme", "widgets", n, "carol", fakegithub.IssueEdit{Locked: github.Ptr(true)}))
	_, _, err = mallory.Issues.CreateComment(ctx, "acme", "widgets", n, &github.IssueComment{Body: github.Ptr("x")})
	equal(t, "a locked issue", messageOf(t, err), "403 Unable to create comment because issue is locked.")
}

func commentCount(t *testing.T, client *github.Client, n int) int {
	t.Helper()
	is, _, err := client.Issues.Get(t.Context(), "acme", "widgets", n)
	must(t, err)
	return is.GetComments()
}

func TestReactions_AreOncePerPersonAndMoveNoTime(t *testing.T) {
	w := newWorld(t, fakegithub.Config{})
	n := w.issue(t, fakegithub.Issue{Title: "t"})
	id := w.comment(t, n, "carol", "c")
	bot, ctx := w.client(t, "tok-bot"), t.Context()
	w.clock.Advance(time.Minute)
	for _, want := range []int{http.StatusCreated, http.StatusOK} {
		_, response, err := bot.Reactions.CreateIssueCommentReaction(ctx, "acme", "widgets", id, "eyes")
		must(t, err)
		equal(t, "status", response.StatusCode, want)
		_, response, err = bot.Reactions.CreateIssueReaction(ctx, "acme", "widgets", n, "rocket")
		must(t, err)
		equal(t, "status", response.StatusCode, want)
	}
	c, _, err := bot.Issues.GetComment(ctx, "acme", "widgets", id)
	must(t, err)
	equal(t, "eyes in the comment", c.Reactions.GetEyes(), 1)
	equal(t, "updated_at", c.GetUpdatedAt(), c.GetCreatedAt())
	listed, _, err := bot.Reactions.ListIssueCommentReactions(ctx, "acme", "widgets", id, nil)
	must(t, err)
	equal(t, "listed", []string{listed[0].GetContent(), listed[0].User.GetLogin()}, []string{"eyes", "helper[bot]"})
	_, _, err = bot.Reactions.CreateIssueReaction(ctx, "acme", "widgets", n, "thumbs")
	equal(t, "an unknown reaction", messageOf(t, err), "422 Validation Failed")
}

func TestState_ReportsCopiesAndSaysWhatIsMissing(t *testing.T) {
	w := newWorld(t, fakegithub.Config{})
	n := w.issue(t, fakegithub.Issue{Title: "t", Labels: []string{"bug"}})
	is, err := w.Issue("acme", "widgets", n)
	must(t, err)
	is.Labels[0] = "changed"
	again, err := w.Issue("acme", "widgets", n)
	must(t, err)
	equal(t, "labels", again.Labels, []string{"bug"})
	_, noRepo := w.AddIssue("acme", "none", fakegithub.Issue{})
	_, noIssue := w.AddComment("acme", "widgets", 99, fakegithub.Comment{})
	_, taken := w.AddIssue("acme", "widgets", fakegithub.Issue{Number: n})
	equal(t, "kinds", []fault.Kind{fault.KindOf(noRepo), fault.KindOf(noIssue), fault.KindOf(w.DeleteComment(1)), fault.KindOf(taken)},
		[]fault.Kind{fault.NotFound, fault.NotFound, fault.NotFound, fault.AlreadyExists})
}

func TestPage_ShowsAnIssueAndEscapesIt(t *testing.T) {
	w := newWorld(t, fakegithub.Config{})
	n := w.issue(t, fakegithub.Issue{Title: "<script>alert(1)</script>", Labels: []string{"bug"}})
	pull := w.issue(t, fakegithub.Issue{Title: "a pull request", PullRequest: true})
	id := w.comment(t, n, "carol", `"><img src=x onerror=alert(1)>`)
	comment, _, err := w.client(t, "").Issues.GetComment(t.Context(), "acme", "widgets", id)
	must(t, err)
	path, _, _ := strings.Cut(strings.TrimPrefix(comment.GetHTMLURL(), w.url), "#")
	response, body := w.get(t, path)
	equal(t, "status", response.StatusCode, http.StatusOK)
	for _, want := range []string{"&lt;script&gt;", fmt.Sprintf(`id="issuecomment-%d"`, id), "COLLABORATOR", "bug"} {
		if !strings.Contains(body, want) {
			t.Errorf("the page lacks %q:\n%s", want, body)
		}
	}
	if strings.Contains(body, "<script") || strings.Contains(body, "<img") {
		t.Errorf("the page holds markup from an issue:\n%s", body)
	}
	response, _ = w.get(t, fmt.Sprintf("/acme/widgets/issues/%d", pull))
	equal(t, "a pull request under issues", response.Header.Get("Location"), fmt.Sprintf("/Acme/Widgets/pull/%d", pull))
	_, index := w.get(t, "/")
	if !strings.Contains(index, path) {
		t.Errorf("the index does not lead to %s:\n%s", path, index)
	}
	response, _ = w.get(t, "/acme/none/issues/1")
	equal(t, "an unknown page", response.StatusCode, http.StatusNotFound)
}

func TestManyClients_AtOnceLoseNothing(t *testing.T) {
	w := newWorld(t, fakegithub.Config{})
	n := w.issue(t, fakegithub.Issue{Title: "busy"})
	client := w.client(t, "tok-carol")
	errs := make(chan error)
	for i := range 20 {
		go func() {
			_, _, err := client.Issues.CreateComment(t.Context(), "acme", "widgets", n, &github.IssueComment{Body: github.Ptr(fmt.Sprint(i))})
			errs <- err
		}()
	}
	for range 20 {
		must(t, <-errs)
	}
	is, err := w.Issue("acme", "widgets", n)
	must(t, err)
	ids := map[int64]bool{}
	for _, c := range is.Comments {
		ids[c.ID] = true
	}
	equal(t, "comments", len(ids), 20)
	equal(t, "in order", slices.IsSortedFunc(is.Comments, func(a, b fakegithub.Comment) int { return int(a.ID - b.ID) }), true)
}
