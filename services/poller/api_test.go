package main

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/prompt"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	pollerv1 "muxpost.dev/muxpost/proto/gen/muxpost/poller/v1"
	"muxpost.dev/muxpost/test/fakegithub"
)

func TestSubmit_RefusesWhatCanNeverBeDelivered(t *testing.T) {
	w := newWorld(t, standard)
	r := start(t, w)
	for name, tt := range map[string]struct {
		request *pollerv1.SubmitRequest
		reason  fault.Reason
	}{
		"no item":          {&pollerv1.SubmitRequest{Text: "x"}, fault.ReasonBadWorkItem},
		"a malformed item": {&pollerv1.SubmitRequest{WorkItem: "octo/widget#7", Text: "x"}, fault.ReasonBadWorkItem},
		"no text":          {&pollerv1.SubmitRequest{WorkItem: "github:o/r#1"}, fault.ReasonTextEmpty},
		"text of nothing":  {&pollerv1.SubmitRequest{WorkItem: "github:o/r#1", Text: " \n\u200b"}, fault.ReasonTextEmpty},
		"too much text": {&pollerv1.SubmitRequest{WorkItem: "github:o/r#1", Text: strings.Repeat("x", prompt.MaxText+1)},
			fault.ReasonTextTooLarge},
		"a long key": {&pollerv1.SubmitRequest{WorkItem: "github:o/r#1", Text: "x", IdempotencyKey: strings.Repeat("k", 201)},
			fault.ReasonBadArgument},
		"a key that is hidden": {&pollerv1.SubmitRequest{WorkItem: "github:o/r#1", Text: "x", IdempotencyKey: "a\nb"}, fault.ReasonBadArgument},
		"a harness of lines":   {&pollerv1.SubmitRequest{WorkItem: "github:o/r#1", Text: "x", Harness: "a\nb"}, fault.ReasonBadArgument},
	} {
		_, err := r.api.Submit(t.Context(), tt.request)
		if !errors.Is(err, fault.Invalid) || fault.ReasonOf(err) != tt.reason {
			t.Errorf("%s: %v", name, err)
		}
	}
	status, body := r.post(t, "Submit", "{\"workItem\":\"github:o/r#1\",\"text\":\"\xff\"}")
	if status != http.StatusBadRequest {
		t.Errorf("not UTF-8: %d %s", status, body)
	}
	largest := strings.Repeat("x", prompt.MaxText)
	response, err := r.api.Submit(t.Context(), &pollerv1.SubmitRequest{WorkItem: "github:o/r#1", Text: largest, DryRun: true})
	must(t, err)
	equal(t, "the largest text, dry", response.GetEntry().GetState(), pollerv1.LedgerState_LEDGER_STATE_PENDING)
	list, err := r.api.ListLedger(t.Context(), &pollerv1.ListLedgerRequest{})
	must(t, err)
	equal(t, "rows after a dry run", len(list.GetEntries()), 0)
}

func TestSubmit_ReachesCurlWithAMessageThatSaysWhatToDo(t *testing.T) {
	w := newWorld(t, standard)
	r := start(t, w)
	status, body := r.post(t, "Submit", `{"workItem":"octo/widget#7","text":"x"}`)
	if status != http.StatusBadRequest || !strings.Contains(body, "github:owner/repo#number") {
		t.Errorf("%d %s", status, body)
	}
	for _, existed := range []bool{false, true} {
		status, body = r.post(t, "Submit", `{"workItem":"github:octo/widget#7","text":"x","idempotencyKey":"k"}`)
		if status != http.StatusOK || strings.Contains(body, `"existed":true`) != existed {
			t.Errorf("%d %s", status, body)
		}
	}
	status, body = r.post(t, "Submit", `{"workItem":"github:octo/widget#7","text":"y","idempotencyKey":"k"}`)
	if status == http.StatusOK || !strings.Contains(body, "another message") {
		t.Errorf("another message under the key: %d %s", status, body)
	}
}

func TestListLedger_PagesAndRefusesWhatItDidNotGive(t *testing.T) {
	w := newWorld(t, standard)
	r := start(t, w)
	for i := range 5 {
		_, err := r.api.Submit(t.Context(), &pollerv1.SubmitRequest{WorkItem: fmt.Sprintf("github:o/r#%d", i+1), Text: "x"})
		must(t, err)
	}
	var items []string
	request := &pollerv1.ListLedgerRequest{PageSize: 2}
	for range 3 {
		page, err := r.api.ListLedger(t.Context(), request)
		must(t, err)
		for _, e := range page.GetEntries() {
			items = append(items, e.GetWorkItem())
		}
		request.PageToken = page.GetNextPageToken()
	}
	equal(t, "items", items, []string{"github:o/r#5", "github:o/r#4", "github:o/r#3", "github:o/r#2", "github:o/r#1"})
	equal(t, "token after the last page", request.GetPageToken(), "")
	one, err := r.api.ListLedger(t.Context(), &pollerv1.ListLedgerRequest{WorkItem: "github:GitHub.com/O/R#2"})
	must(t, err)
	equal(t, "of an item", len(one.GetEntries()), 1)
	id := one.GetEntries()[0].GetDeliveryId()
	one, err = r.api.ListLedger(t.Context(), &pollerv1.ListLedgerRequest{DeliveryId: id})
	must(t, err)
	equal(t, "of a delivery", one.GetEntries()[0].GetDeliveryId(), id)
	for name, request := range map[string]*pollerv1.ListLedgerRequest{
		"a page of 501":   {PageSize: 501},
		"a page below 0":  {PageSize: -1},
		"a foreign token": {PageToken: "YmVmb3JlOi0x"},
		"a broken token":  {PageToken: "%%%"},
		"a broken item":   {WorkItem: "x"},
		"a broken id":     {DeliveryId: "A B"},
		"a foreign state": {State: 99},
	} {
		if _, err := r.api.ListLedger(t.Context(), request); !errors.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestPollNow_LooksAtOnceAndSaysWhatWentWrong(t *testing.T) {
	w := newWorld(t, strings.Replace(standard, "1s", "1h", 1))
	r := start(t, w)
	eventually(t, "it has looked", w.looked)
	w.labelled(t, "alice")
	response, err := r.api.PollNow(t.Context(), &pollerv1.PollNowRequest{})
	must(t, err)
	source := response.GetSources()[0]
	equal(t, "found", []any{source.GetSource(), source.GetItems(), source.GetNewEvents(), source.GetError()},
		[]any{"gh", int32(1), int32(1), ""})
	equal(t, "took some time", source.GetTook().AsDuration() > 0, true)
	if _, err = r.api.PollNow(t.Context(), &pollerv1.PollNowRequest{Source: "nope"}); !errors.Is(err, fault.NotFound) ||
		!strings.Contains(err.Error(), "known here: gh") {
		t.Errorf("an unknown source: %v", err)
	}
	w.AddToken("tok", "somebody")
	must(t, w.Inject(faultStatus(http.StatusUnauthorized)))
	response, err = r.api.PollNow(t.Context(), &pollerv1.PollNowRequest{Source: "gh"})
	must(t, err)
	if problem := response.GetSources()[0].GetError(); !strings.Contains(problem, "token_file") {
		t.Errorf("the problem is %q", problem)
	}
}

func TestListSources_SaysHowTheLatestLooksWent(t *testing.T) {
	w := newWorld(t, strings.Replace(standard, "1s", "1h", 1))
	r := start(t, w)
	get := func() *pollerv1.Source {
		t.Helper()
		response, err := r.api.ListSources(t.Context(), &pollerv1.ListSourcesRequest{})
		must(t, err)
		equal(t, "sources", len(response.GetSources()), 1)
		return response.GetSources()[0]
	}
	look := func() {
		t.Helper()
		_, err := r.api.PollNow(t.Context(), &pollerv1.PollNowRequest{})
		must(t, err)
	}
	w.labelled(t, "alice")
	look()
	s := get()
	equal(t, "as configured", []any{s.GetName(), s.GetKind(), s.GetRepositories(), s.GetInterval().AsDuration()},
		[]any{"gh", "github", []string{"acme/widgets"}, time.Hour})
	equal(t, "after a success", []any{s.GetLastError(), s.GetLastLookTime() != nil, s.GetLastSuccessTime() != nil, s.GetLastErrorTime() == nil,
		s.GetNotBefore() == nil, s.GetKnownItems()}, []any{"", true, true, true, true, int32(1)})
	repository, limit := s.GetRepositoryStates()[0], s.GetRateLimits()[0]
	equal(t, "what it cost", []any{s.GetCredential(), limit.GetCredential(), limit.GetResource(), limit.GetLimit(), limit.GetRemaining() < 5000,
		s.GetRequests().GetTotal() > 0, repository.GetRequests().GetTotal() > 0, s.GetNextLookTime() != nil, s.GetClockSkew() == nil},
		[]any{"token", "token", "core", int32(5000), true, true, true, true, true})
	equal(t, "the repository", []any{repository.GetRepository(), repository.GetLastError(), repository.GetLastSuccessTime() != nil,
		repository.GetLastFullTime() != nil, repository.GetNextLookTime() == nil}, []any{"acme/widgets", "", true, true, true})
	w.AddToken("tok", "somebody")
	// The looks of the start may still be under way: a fault stays until it is cleared, so that none of them uses it up.
	must(t, w.Inject(fakegithub.Fault{Kind: fakegithub.KindStatus, Status: http.StatusUnauthorized, Times: -1}))
	look()
	success := get().GetLastSuccessTime().AsTime()
	look()
	s = get()
	if !strings.Contains(s.GetLastError(), "token_file") || s.GetLastErrorTime() == nil || !s.GetLastSuccessTime().AsTime().Equal(success) {
		t.Errorf("after a failure: %v", s)
	}
	if problem := s.GetRepositoryStates()[0].GetLastError(); !strings.Contains(problem, "token_file") {
		t.Errorf("the repository after a failure: %q", problem)
	}
	w.ClearFaults()
	must(t, w.Inject(fakegithub.Fault{Kind: fakegithub.KindSecondaryLimit, Status: 429, RetryAfter: 120, Times: -1}))
	look()
	if s = get(); s.GetLastError() == "" || time.Until(s.GetNotBefore().AsTime()) < time.Minute {
		t.Errorf("after a limit: %v", s)
	}
}

func TestCountLedger_CountsEveryState(t *testing.T) {
	w := newWorld(t, standard)
	w.dispatcher.answer = func(*dispatcherv1.DeliverRequest) (*dispatcherv1.DeliverResponse, error) {
		return outcome(dispatcherv1.Outcome_OUTCOME_HELD, "session_holds", time.Hour), nil
	}
	r := start(t, w)
	for i := range 3 {
		_, err := r.api.Submit(t.Context(), &pollerv1.SubmitRequest{WorkItem: fmt.Sprintf("github:o/r#%d", i+1), Text: "x"})
		must(t, err)
	}
	want := map[pollerv1.LedgerState]int64{}
	for n := 1; n < len(pollerv1.LedgerState_name); n++ {
		want[pollerv1.LedgerState(n)] = 0
	}
	want[pollerv1.LedgerState_LEDGER_STATE_HELD] = 3
	got := map[pollerv1.LedgerState]int64{}
	eventually(t, "all are held", func() bool {
		response, err := r.api.CountLedger(t.Context(), &pollerv1.CountLedgerRequest{})
		must(t, err)
		clear(got)
		for _, c := range response.GetCounts() {
			got[c.GetState()] += c.GetCount()
		}
		return got[pollerv1.LedgerState_LEDGER_STATE_HELD] == 3
	})
	equal(t, "counts", got, want)
}
