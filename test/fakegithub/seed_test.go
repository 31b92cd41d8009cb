package fakegithub_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-github/v90/github"

	"muxpost.dev/muxpost/test/fakegithub"
)

func TestSeed_HoldsPullRequestsWithAllThatHangsOnThem(t *testing.T) {
	w, r := newWorld(t, fakegithub.Config{}), newReceiver(t, "s")
	_, public := appKey(t)
	key, err := json.Marshal(string(public))
	must(t, err)
	seed, err := fakegithub.ParseSeed(fmt.Appendf(nil, `{"users":[{"login":"corp","type":"Organization"}],
		"apps":[{"id":5,"slug":"muxbot","public_key_pem":%s,"installations":{"8":"corp"}}],
		"repos":[{"owner":"corp","name":"gadgets","branches":["release"],"associations":{"carol":"MEMBER"},
		"issues":[{"number":1,"title":"bug"},
			{"number":2,"title":"fix","body":"closes #1","assignees":["carol"],"pull":{"head":"fix","head_sha":"abc","base":"release","draft":true,"closes":[1],
				"reviews":[{"author":"carol","state":"APPROVED","comments":[{"body":"nice","path":"a.go","line":3}]}]}}],
		"check_runs":[{"head_sha":"abc","name":"build","conclusion":"failure"}],
		"statuses":[{"sha":"abc","context":"ci","state":"pending"}],
		"workflow_runs":[{"head_sha":"abc","name":"CI"}],
		"hooks":[{"url":%q,"secret":"s","events":["pull_request_review","pull_request"]}]}]}`, key, r.URL))
	must(t, err)
	must(t, w.Load(seed))
	equal(t, "what the hook is told", r.take(w), []string{"ping"})
	client, ctx := w.client(t, "tok-carol"), t.Context()
	pull, _, err := client.PullRequests.Get(ctx, "corp", "gadgets", 2)
	must(t, err)
	equal(t, "the pull request", []any{pull.GetDraft(), pull.GetBase().GetRef(), pull.GetReviewComments(), pull.GetHead().GetSHA()}, []any{true, "release", 1, "abc"})
	runs, _, err := client.Checks.ListCheckRunsForRef(ctx, "corp", "gadgets", "fix", nil)
	must(t, err)
	equal(t, "its checks", []any{runs.GetTotal(), runs.CheckRuns[0].GetConclusion(), runs.CheckRuns[0].PullRequests[0].GetNumber()}, []any{1, "failure", 2})

	later, err := fakegithub.ParseSeed([]byte(`{"repos":[{"owner":"corp","name":"gadgets","branches":["next"],
		"issues":[{"number":2,"pull":{"reviews":[{"author":"carol","state":"CHANGES_REQUESTED","body":"wait"}]}}]}]}`))
	must(t, err)
	must(t, w.Load(later))
	equal(t, "a later seed", r.take(w), []string{"pull_request_review.submitted"})
	equal(t, "of an organization", last[*github.PullRequestReviewEvent](t, r).GetOrganization().GetLogin(), "corp")
	wrong, err := fakegithub.ParseSeed([]byte(`{"repos":[{"owner":"corp","name":"gadgets","issues":[{"number":1,"pull":{"reviews":[{}]}}]}]}`))
	must(t, err)
	equal(t, "a review of an issue", w.Load(wrong) != nil, true)
}

func TestControl_PushesAndMindsDeliveries(t *testing.T) {
	w, r := newWorld(t, fakegithub.Config{}), newReceiver(t, "")
	w.hook(t, fakegithub.Hook{URL: r.URL})
	n := w.pull(t, fakegithub.Pull{}, fakegithub.Issue{Title: "p"})
	r.take(w)
	post := func(path, body string) string {
		t.Helper()
		response, text := w.send(t, http.MethodPost, "/_fake/"+path, body, "Content-Type", "application/json")
		equal(t, path+" "+text, response.StatusCode, http.StatusOK)
		return text
	}
	post("deliveries", `{"hold":true}`)
	post("push", fmt.Sprintf(`{"repo":"acme/widgets","number":%d,"sha":"fff"}`, n))
	equal(t, "held", r.take(w), []string(nil))
	post("deliveries", `{"shuffle":1,"hold":false}`)
	equal(t, "sent", r.take(w), []string{"pull_request.synchronize"})
	guid := r.guids[len(r.guids)-1]
	post("deliveries", fmt.Sprintf(`{"redeliver":%q,"redeliver_as":%q}`, guid, guid))
	equal(t, "again", r.take(w), []string{"pull_request.synchronize", "pull_request.synchronize"})
	if text := post("deliveries", `{"hold":true,"drop":true}`); !strings.Contains(text, `"dropped":0`) {
		t.Errorf("the answer is %s", text)
	}
	_, text := w.get(t, "/_fake/deliveries")
	equal(t, "listed", strings.Count(text, guid), 2)
	response, text := w.send(t, http.MethodPost, "/_fake/push", `{"repo":"acme/widgets","number":99}`, "Content-Type", "application/json")
	equal(t, text, response.StatusCode, http.StatusBadRequest)
	_, text = w.get(t, "/_fake/nothing")
	equal(t, "what there is", strings.Contains(text, "POST seed"), true)
}
