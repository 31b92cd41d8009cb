package github

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/workitem"
	"muxpost.dev/muxpost/services/poller/internal/hook"
	"muxpost.dev/muxpost/services/poller/internal/poll"
)

// payloadFile reads a payload as GitHub documents it, and its event's name.
func payloadFile(t testing.TB, name string) (event string, body []byte) {
	t.Helper()
	body, err := os.ReadFile(filepath.Join("testdata", "hooks", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	event, _, _ = strings.Cut(name, ".")
	return event, body
}

func hookReader(t testing.TB) *Client {
	t.Helper()
	c, err := New(Config{Label: "Agent", Assignee: "bob"})
	if err != nil {
		t.Fatal(err)
	}
	c.nodes.apart = true
	t.Cleanup(c.Close)
	return c
}

// readPayload reads a payload as the handler has it read: opened first, under the repository's configured name.
func readPayload(c *Client, event string, body []byte) (poll.Change, error) {
	envelope, err := OpenPayload(event, body)
	if err != nil {
		return poll.Change{}, err
	}
	envelope.Repository = "Octo/Widget"
	return c.Read(hook.Arrival{Source: "gh", GUID: "x", Envelope: envelope, Payload: body})
}

func at(hour, minute int) time.Time { return time.Date(2026, 5, 1, hour, minute, 0, 0, time.UTC) }

const hookSHA = "ec26c3e57ca3a959ca5aad62de7213c562f8c821"

func TestOpenPayload_TellsWhatItIsAbout(t *testing.T) {
	for name, want := range map[string]hook.Envelope{
		"issue_comment.created":              {Action: "created", Number: 7, Object: "IC_kwDO4001"},
		"issue_comment.deleted":              {Action: "deleted", Number: 7, Object: "IC_kwDO4001"},
		"issue_comment.pull":                 {Action: "created", Number: 8, Object: "IC_kwDO4002"},
		"issues.labeled":                     {Action: "labeled", Number: 7, Object: "I_kwDO2007"},
		"pull_request.synchronize":           {Action: "synchronize", Number: 8, SHA: hookSHA, Object: "PR_kwDO2008"},
		"pull_request_review.submitted":      {Action: "submitted", Number: 8, SHA: hookSHA, Object: "PRR_kwDO5001"},
		"pull_request_review_comment.edited": {Action: "edited", Number: 8, SHA: hookSHA, Object: "PRRC_kwDO6002"},
		"check_run.completed":                {Action: "completed", SHA: hookSHA, Object: "CR_kwDO7001"},
		"workflow_run.completed":             {Action: "completed", SHA: hookSHA, Object: "WFR_kwLO8001"},
		"status":                             {SHA: hookSHA},
	} {
		event, body := payloadFile(t, name)
		got, err := OpenPayload(event, body)
		want.Event, want.Repository = event, "octo/widget"
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v\n%s", name, err, diff)
		}
		if !hook.Wanted(got.Event, got.Action) {
			t.Errorf("%s is not wanted", name)
		}
	}
}

func TestOpenPayload_RefusesWhatCannotBeAName(t *testing.T) {
	for name, body := range map[string]string{
		"no JSON": "{", "a list": "[]", "a number of another type": `{"issue":{"number":"7"}}`, "a nul": `{"action":"a\u0000"}`,
		"a blank": `{"repository":{"full_name":"a b"}}`, "a long one": `{"issue":{"node_id":"` + strings.Repeat("x", 301) + `","number":1}}`,
		"a number below zero": `{"issue":{"number":-99999999999999999999}}`,
	} {
		if _, err := OpenPayload("issues", []byte(body)); !errors.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	e, err := OpenPayload("issues", []byte(`{"issue":{"number":-1}}`))
	if err != nil || e.Number != 0 {
		t.Errorf("%d, %v", e.Number, err)
	}
}

func TestRead_TellsOfAPostWhatALookWouldTell(t *testing.T) {
	c := hookReader(t)
	c.nodes.apart = true // as with an App that has a token for each owner
	alice, bob := poll.Author{Login: "alice", Association: "MEMBER"}, poll.Author{Login: "bob"}
	ref, err := workitem.Parse("github:octo/widget#7")
	if err != nil {
		t.Fatal(err)
	}
	comment := poll.Post{
		Kind: poll.KindComment, ID: 4001, NodeID: "IC_kwDO4001", Author: alice, Body: "Not too dark 🎨, please.",
		URL: "https://github.com/octo/widget/issues/7#issuecomment-4001", CreatedAt: at(12, 30), UpdatedAt: at(12, 30),
	}
	created, edited, viaApp := comment, comment, comment
	created.EditorKnown = true
	edited.EditorKnown, edited.Editor, edited.Body, edited.UpdatedAt = true, bob, "Dark.", at(12, 45)
	viaApp.ID, viaApp.NodeID, viaApp.EditorKnown, viaApp.Author.Machine = 4002, "IC_kwDO4002", true, true
	inline := poll.Post{
		Kind: poll.KindReviewComment, ID: 6002, NodeID: "PRRC_kwDO6002", Author: alice, Body: "blue", EditorKnown: true,
		URL: "https://github.com/octo/widget/pull/8#discussion_r6002", CreatedAt: at(13, 1), UpdatedAt: at(13, 2), Path: "src/paint.go", Line: 3,
		Side: "RIGHT", Hunk: "@@ -1,2 +1,3 @@\n color:\n-  red\n+  navy", Thread: 6001,
	}
	file := inline
	file.ID, file.NodeID, file.Thread, file.Line, file.Side = 6003, "PRRC_kwDO6003", 6003, 0, ""
	file.EditorKnown = false // it looks changed when it is told, and the sender wrote it
	review := poll.Post{
		Kind: poll.KindReview, ID: 5001001, NodeID: "PRR_kwDO5001", Author: alice, Body: "Too dark.", Verdict: poll.VerdictChanges, EditorKnown: true,
		URL: "https://github.com/octo/widget/pull/8#pullrequestreview-5001001", CreatedAt: at(13, 0), UpdatedAt: at(13, 0),
	}
	for name, tt := range map[string]struct {
		post    poll.Post
		sender  string
		number  uint64
		pull    bool
		deleted bool
	}{
		"issue_comment.created":              {created, "alice", 7, false, false},
		"issue_comment.edited":               {edited, "bob", 7, false, false},
		"issue_comment.deleted":              {comment, "alice", 7, false, true},
		"issue_comment.pull":                 {viaApp, "alice", 8, true, false},
		"pull_request_review.submitted":      {review, "alice", 8, true, false},
		"pull_request_review_comment.edited": {inline, "alice", 8, true, false},
		"pull_request_review_comment.file":   {file, "alice", 8, true, false},
	} {
		event, body := payloadFile(t, name)
		got, err := readPayload(c, event, body)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff(&tt.post, got.Post); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
		if diff := cmp.Diff([]any{tt.number, tt.pull, tt.deleted, tt.sender, "Octo/Widget"},
			[]any{got.Number, got.Pull, got.Deleted, got.Sender.Login, got.Repository}); diff != "" || got.Item == nil || got.Check != nil {
			t.Errorf("%s:\n%s", name, diff)
		}
		if !tt.pull && got.Item.Ref != ref {
			t.Errorf("%s: %s", name, got.Item.Ref)
		}
		// A token for the item is found by what was seen.
		if where := c.nodes.repository(got.Post.NodeID); where != "Octo/Widget" {
			t.Errorf("%s: seen in %q", name, where)
		}
	}
}

func TestRead_TellsOfAnItemWhatALookWouldTell(t *testing.T) {
	c := hookReader(t)
	open := &poll.Pull{Head: "blue", HeadSHA: hookSHA, HeadRepository: "bob/widget", Base: "main"}
	for name, want := range map[string]poll.Change{
		"issues.labeled": {Label: "agent", Item: &poll.Item{Author: poll.Author{Login: "alice", Association: "MEMBER"}, Title: "Paint it", Open: true,
			Comments: 3, Care: poll.CareLabel}},
		"issues.assigned": {Assignee: "bob", Item: &poll.Item{Author: poll.Author{Login: "alice", Association: "MEMBER"}, Title: "Paint it", Open: true,
			Comments: 3, Care: poll.CareLabel}},
		"issue_comment.pull": {Item: &poll.Item{Author: poll.Author{Login: "bob", Association: "CONTRIBUTOR"}, Title: "Paint it blue", Open: true,
			Comments: 3, Pull: &poll.Pull{Draft: true}}},
		"pull_request.synchronize": {Item: &poll.Item{Author: poll.Author{Login: "bob", Association: "CONTRIBUTOR"}, Title: "Paint it blue", Open: true,
			Comments: 2, Pull: open}},
		"pull_request.closed": {Item: &poll.Item{Author: poll.Author{Login: "bob", Association: "CONTRIBUTOR"}, Title: "Paint it blue",
			Comments: 2, ClosedAt: at(14, 0), Pull: &poll.Pull{Head: "blue", HeadSHA: hookSHA, Base: "main", Merged: true}}},
		"pull_request_review.submitted": {Item: &poll.Item{Author: poll.Author{Login: "bob", Association: "CONTRIBUTOR"}, Title: "Paint it blue", Open: true,
			Comments: -1, Pull: open}},
	} {
		event, body := payloadFile(t, name)
		got, err := readPayload(c, event, body)
		if err != nil || got.Item == nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		i := got.Item
		short := poll.Item{Author: i.Author, Title: i.Title, Open: i.Open, Comments: i.Comments, Care: i.Care, ClosedAt: i.ClosedAt, Pull: i.Pull}
		if diff := cmp.Diff([]any{want.Label, want.Assignee, *want.Item}, []any{got.Label, got.Assignee, short}, cmp.AllowUnexported(workitem.Ref{})); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
		if i.NodeID == "" || i.Repository != "Octo/Widget" || i.CreatedAt.IsZero() || i.UpdatedAt.IsZero() || i.URL == "" || i.Body == "" {
			t.Errorf("%s lacks something: %+v", name, i)
		}
	}
}

func TestRead_TellsOfAResultWhatALookWouldTell(t *testing.T) {
	c := hookReader(t)
	for name, want := range map[string]poll.Change{
		"check_run.completed": {Pulls: []uint64{8}, Branches: []string{"blue"}, Check: &poll.Check{Kind: poll.CheckRun, ID: 7001, NodeID: "CR_kwDO7001",
			Name: "test", SHA: hookSHA, Done: true, Conclusion: "failure", Title: "2 tests failed", Summary: "TestPaint: too dark",
			URL: "https://github.com/octo/widget/runs/7001", EndedAt: at(13, 9)}},
		"workflow_run.completed": {Pulls: []uint64{8}, Branches: []string{"blue"}, Check: &poll.Check{Kind: poll.CheckWorkflow, ID: 8001,
			NodeID: "WFR_kwLO8001", Name: "CI (pull_request)", SHA: hookSHA, Done: true, Conclusion: "failure", Attempt: 2, Title: "Paint it blue",
			URL: "https://github.com/octo/widget/actions/runs/8001", EndedAt: at(13, 10)}},
		"status": {Branches: []string{"blue"}, Check: &poll.Check{Kind: poll.CheckStatus, ID: 9901, Name: "ci/lint", SHA: hookSHA, Done: true,
			Conclusion: "failure", Title: "3 problems", URL: "https://ci.example.com/9901", EndedAt: at(13, 12)}},
	} {
		event, body := payloadFile(t, name)
		got, err := readPayload(c, event, body)
		want.Repository, want.Sender = "Octo/Widget", got.Sender
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v\n%s", name, err, diff)
		}
	}
}

func TestRead_RefusesWhatLacksWhatItIsAboutAndRepeatsNothingOfIt(t *testing.T) {
	c := hookReader(t)
	for _, name := range []string{"issues", "pull_request", "issue_comment", "pull_request_review", "pull_request_review_comment", "check_run",
		"workflow_run", "status", "star", "no_such_event", ""} {
		for _, body := range []string{`{}`, `{"action":"created","issue":null,"comment":null}`, `{"issue":{"number":7,"body":"hush"}}`,
			`{"issue":{"number":"hush"},"pull_request":{"number":"hush"},"check_run":{"id":"hush"},"workflow_run":{"id":"hush"},"id":"hush"}`,
			`{"pull_request":{"number":8,"title":"hush"},"review":{"body":"hush"},"check_run":{"id":5}}`} {
			change, err := c.Read(hook.Arrival{Envelope: hook.Envelope{Event: name, Repository: "octo/widget"}, Payload: []byte(body)})
			if !errors.Is(err, fault.Invalid) || strings.Contains(err.Error(), "hush") || change.Item != nil || change.Post != nil || change.Check != nil {
				t.Errorf("%s %s: %v, %v", name, body, change, err)
			}
		}
	}
}

// FuzzRead holds that a payload, whatever is in it, is read or refused, and never ends the process; and that whatever is read has what is
// needed to know it again.
func FuzzRead(f *testing.F) {
	files, err := filepath.Glob("testdata/hooks/*.json")
	if err != nil || len(files) < 10 {
		f.Fatal(files, err)
	}
	for _, file := range files {
		event, body := payloadFile(f, strings.TrimSuffix(filepath.Base(file), ".json"))
		f.Add(event, body)
		var all map[string]any
		if err := json.Unmarshal(body, &all); err != nil {
			f.Fatal(err)
		}
		// What is missing, or null, is what a reader forgets.
		for key := range all {
			value := all[key]
			all[key] = nil
			without, err := json.Marshal(all)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(event, without)
			all[key] = value
		}
	}
	f.Add("issue_comment", []byte(`{"comment":{"user":null,"node_id":"x","created_at":"2026-05-01T12:30:00Z"},"issue":{"labels":[null],"assignees":[null],"number":1}}`))
	f.Add("status", []byte(`{"branches":[null],"id":1,"sha":"x"}`))
	c := hookReader(f)
	f.Fuzz(func(t *testing.T, event string, body []byte) {
		change, err := readPayload(c, event, body)
		if err != nil {
			if !errors.Is(err, fault.Invalid) {
				t.Errorf("refused as %v", err)
			}
			return
		}
		if change.Item == nil && change.Check == nil {
			t.Error("it tells nothing")
		}
		if i := change.Item; i != nil && (i.NodeID == "" || i.Ref.Number() == 0 || i.CreatedAt.IsZero() || i.Ref.Number() != change.Number) {
			t.Errorf("an item without a name: %+v", i)
		}
		if p := change.Post; p != nil && (p.NodeID == "" || p.CreatedAt.IsZero() || p.Kind == "" || change.Item == nil) {
			t.Errorf("a post without a name: %+v", p)
		}
		if k := change.Check; k != nil && (k.ID == 0 || k.SHA == "" || k.Kind == "") {
			t.Errorf("a result without a name: %+v", k)
		}
	})
}
