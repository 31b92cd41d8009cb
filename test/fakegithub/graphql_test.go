package fakegithub_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-github/v90/github"

	"muxpost.dev/muxpost/test/fakegithub"
)

const nodesQuery = `query($ids:[ID!]!){ nodes(ids:$ids){ __typename ... on Node{id} ... on Comment{ editor{login __typename} lastEditedAt }
	... on PullRequest{ closingIssuesReferences(first:50){ nodes{ id number repository{ nameWithOwner } } } } } }`

type graphqlAnswer struct {
	Data struct {
		Nodes []*struct {
			Typename     string `json:"__typename"`
			ID           string
			Editor       *struct{ Login, Typename string }
			LastEditedAt *time.Time
			Body         *string
			Closing      struct {
				Nodes []struct {
					Number     int
					Repository struct{ NameWithOwner string }
				}
			} `json:"closingIssuesReferences"`
		}
	}
	Errors []struct {
		Type, Message string
		Path          []any
	}
}

func (w *world) graphql(t *testing.T, query string, ids ...string) (*http.Response, graphqlAnswer) {
	t.Helper()
	body, err := json.Marshal(map[string]any{"query": query, "variables": map[string]any{"ids": ids}})
	must(t, err)
	response, text := w.send(t, http.MethodPost, "/graphql", string(body), "Authorization", "bearer tok-carol")
	var out graphqlAnswer
	must(t, json.Unmarshal([]byte(text), &out))
	return response, out
}

// TestGraphQL_TellsWhatAReviewSays: beside who edited it and when, in one answer.
func TestGraphQL_TellsWhatAReviewSays(t *testing.T) {
	w := newWorld(t, fakegithub.Config{})
	pull := w.pull(t, fakegithub.Pull{}, fakegithub.Issue{Title: "p", Author: "mallory"})
	rv := w.review(t, pull, fakegithub.Review{Author: "mallory", Body: "first"})
	comment := w.comment(t, pull, "mallory", "a comment")
	must(t, w.EditReview(rv, "second"))
	client := w.client(t, "tok-carol")
	review, _, err := client.PullRequests.GetReview(t.Context(), "acme", "widgets", pull, rv)
	must(t, err)
	other, _, err := client.Issues.GetComment(t.Context(), "acme", "widgets", comment)
	must(t, err)
	_, out := w.graphql(t, strings.Replace(nodesQuery, "... on PullRequest{", "... on PullRequestReview{ body } ... on PullRequest{", 1),
		review.GetNodeID(), other.GetNodeID())
	equal(t, "the review, and anything else", []*string{out.Data.Nodes[0].Body, out.Data.Nodes[1].Body}, []*string{github.Ptr("second"), nil})
}

func TestGraphQL_KnowsEditors(t *testing.T) {
	w := newWorld(t, fakegithub.Config{})
	client, ctx := w.client(t, "tok-carol"), t.Context()
	issue := w.issue(t, fakegithub.Issue{Title: "bug", Author: "mallory"})
	pull := w.pull(t, fakegithub.Pull{Closes: []int{issue}}, fakegithub.Issue{Title: "p", Author: "mallory"})
	plain, edited, byBot := w.comment(t, issue, "mallory", "a"), w.comment(t, issue, "mallory", "b"), w.comment(t, issue, "mallory", "c")
	rv := w.review(t, pull, fakegithub.Review{Author: "mallory", Body: "d"})
	inline := w.inline(t, pull, fakegithub.ReviewComment{Author: "mallory", Body: "e"})
	w.clock.Advance(time.Minute)
	must(t, w.EditCommentBy(edited, "b, by carol", "carol"))
	_, _, err := w.client(t, "tok-bot").Issues.EditComment(ctx, "acme", "widgets", byBot, &github.IssueComment{Body: github.Ptr("c, by a bot")})
	must(t, err)
	must(t, w.EditReview(rv, "d, edited"))
	must(t, w.EditReviewCommentBy(inline, "e, by carol", "carol"))
	must(t, w.EditIssue("acme", "widgets", issue, "carol", fakegithub.IssueEdit{Title: github.Ptr("bug 2")}))
	must(t, w.EditIssue("acme", "widgets", pull, "carol", fakegithub.IssueEdit{Body: github.Ptr("text")}))

	var ids []string
	for _, id := range []int64{plain, edited, byBot} {
		c, _, err := client.Issues.GetComment(ctx, "acme", "widgets", id)
		must(t, err)
		ids = append(ids, c.GetNodeID())
	}
	review, _, err := client.PullRequests.GetReview(ctx, "acme", "widgets", pull, rv)
	must(t, err)
	comment, _, err := client.PullRequests.GetComment(ctx, "acme", "widgets", inline)
	must(t, err)
	is, _, err := client.Issues.Get(ctx, "acme", "widgets", issue)
	must(t, err)
	pr, _, err := client.PullRequests.Get(ctx, "acme", "widgets", pull)
	must(t, err)
	ids = append(ids, review.GetNodeID(), comment.GetNodeID(), is.GetNodeID(), pr.GetNodeID(), "IC_nothing")
	before := w.graphqlRemaining(t)
	_, got := w.graphql(t, nodesQuery, ids...)
	equal(t, "GraphQL counts apart", before-w.graphqlRemaining(t), 1)
	var seen []string
	for _, n := range got.Data.Nodes {
		switch {
		case n == nil:
			seen = append(seen, "null")
		case n.Editor == nil:
			seen = append(seen, n.Typename)
		default:
			seen = append(seen, n.Typename+" by "+n.Editor.Login)
			equal(t, n.Typename, n.LastEditedAt.Equal(w.clock.Now().Truncate(time.Second)), true)
		}
	}
	equal(t, "nodes", seen, []string{"IssueComment", "IssueComment by carol", "IssueComment by helper", "PullRequestReview by mallory",
		"PullRequestReviewComment by carol", "Issue", "PullRequest by carol", "null"})
	equal(t, "errors", []any{len(got.Errors), got.Errors[0].Type, got.Errors[0].Path[1]}, []any{1, "NOT_FOUND", 7.0})
	linked := got.Data.Nodes[6].Closing.Nodes
	equal(t, "closing", []any{len(linked), linked[0].Number, linked[0].Repository.NameWithOwner}, []any{1, issue, "Acme/Widgets"})
}

func (w *world) graphqlRemaining(t *testing.T) int {
	t.Helper()
	limits, _, err := w.client(t, "tok-carol").RateLimit.Get(t.Context())
	must(t, err)
	return limits.GraphQL.Remaining
}

func TestGraphQL_ReferencesFollowTheKeywords(t *testing.T) {
	w := newWorld(t, fakegithub.Config{})
	for i := range 5 {
		w.issue(t, fakegithub.Issue{Title: fmt.Sprint(i)})
	}
	for body, want := range map[string]int{
		"Closes #1": 1, "fixed: #2 and resolves acme/Widgets#3": 2, "see #1": 0, "prefixes #1": 0, "closes #1x": 0, "FIX #1, fix #1": 1,
		"closes other/repo#1": 0, "close #99": 0,
	} {
		for base, applies := range map[string]int{"main": 1, "release": 0} {
			n := w.pull(t, fakegithub.Pull{Base: base}, fakegithub.Issue{Title: "p", Body: body})
			pr, _, err := w.client(t, "tok-carol").PullRequests.Get(t.Context(), "acme", "widgets", n)
			must(t, err)
			_, got := w.graphql(t, nodesQuery, pr.GetNodeID())
			equal(t, body+" into "+base, len(got.Data.Nodes[0].Closing.Nodes), want*applies)
		}
	}
}

func TestGraphQL_SaysWhatIsWrongInA200(t *testing.T) {
	w := newWorld(t, fakegithub.Config{})
	for name, tc := range map[string]struct {
		query string
		ids   []string
		want  string
	}{
		"another query":    {`query { viewer { login } }`, nil, "Parse error"},
		"an unknown field": {strings.Replace(nodesQuery, "lastEditedAt", "reactions", 1), nil, "Field 'reactions' doesn't exist"},
		"too many":         {nodesQuery, make([]string, 101), "You may not provide more than 100 node ids; you provided 101."},
	} {
		response, got := w.graphql(t, tc.query, tc.ids...)
		equal(t, name, response.StatusCode, http.StatusOK)
		if len(got.Errors) != 1 || !strings.Contains(got.Errors[0].Message, tc.want) {
			t.Errorf("%s: the errors are %+v, want %q", name, got.Errors, tc.want)
		}
	}
	w.SetRemainingGraphQL("carol", 0)
	response, got := w.graphql(t, nodesQuery)
	equal(t, "no requests left", []any{response.StatusCode, got.Errors[0].Type, response.Header.Get("X-RateLimit-Remaining"), response.Header.Get("X-RateLimit-Resource")},
		[]any{200, "RATE_LIMITED", "0", "graphql"})
	_, _, err := w.client(t, "tok-carol").Repositories.Get(t.Context(), "acme", "widgets")
	must(t, err)
	for _, path := range []string{"/graphql", "/api/graphql"} {
		response, _ := w.send(t, http.MethodPost, path, `{"query":"x"}`)
		equal(t, "without a token", response.StatusCode, http.StatusUnauthorized)
		response, _ = w.send(t, http.MethodPost, path, `{"query":"x"}`, "Authorization", "token tok-mallory")
		equal(t, "with one", response.StatusCode, http.StatusOK)
	}
}
