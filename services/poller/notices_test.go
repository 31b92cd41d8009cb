package main

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"muxpost.dev/muxpost/core/ledger"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	pollerv1 "muxpost.dev/muxpost/proto/gen/muxpost/poller/v1"
	"muxpost.dev/muxpost/services/poller/internal/notify"
	"muxpost.dev/muxpost/test/fakegithub"
)

const withNotices = standard + "    notices: true\n"

// noticeWorld has one comment, after an opening event that was delivered, to which the dispatcher gives one answer for good.
func noticeWorld(t *testing.T, o dispatcherv1.Outcome, reason string) (*world, *parts) {
	t.Helper()
	w := newWorld(t, withNotices)
	n := w.labelled(t, "alice")
	p := w.open(t)
	look(t, p)
	carry(t, p)
	w.comment(t, n, "alice", "secret words")
	w.always(o, reason)
	look(t, p)
	return w, p
}

// told returns the notices and reactions on the ticket.
func (w *world) told(t *testing.T) (notices, reactions []string) {
	t.Helper()
	issue, err := w.Issue("acme", "widgets", 1)
	must(t, err)
	for _, r := range issue.Reactions {
		reactions = append(reactions, "issue "+r.Content)
	}
	for _, c := range issue.Comments {
		if strings.HasPrefix(c.Body, "<!-- muxpost notice ") {
			notices = append(notices, c.Body)
		}
		for _, r := range c.Reactions {
			reactions = append(reactions, "comment "+r.Content)
		}
	}
	return notices, reactions
}

// notify carries out what is to be written, as often as it may still be tried.
func notifyAll(t *testing.T, p *parts) {
	t.Helper()
	for range 8 {
		sql(t, p, `update poller.outbox set not_before = now() where state = 'waiting'`)
		sql(t, p, `update poller.sources set notice_not_before = null, not_before = null`)
		must(t, p.notifier.Carry(t.Context()))
	}
}

func TestNotices_AGiveUpIsToldOnceAndMarkedAndIgnoredByUs(t *testing.T) {
	w, p := noticeWorld(t, dispatcherv1.Outcome_OUTCOME_FAILED, "harness_exited")
	carry(t, p)
	notifyAll(t, p)
	notices, reactions := w.told(t)
	equal(t, "notices", len(notices), 1)
	equal(t, "reactions", reactions, []string{"comment confused"})
	e := entries(t, p)[1]
	for _, want := range []string{"<!-- muxpost notice notice_gave_up " + e.DeliveryID + " -->", "`" + e.DeliveryID + "`", e.URL, "3 tries",
		"muxpost explain"} {
		if !strings.Contains(notices[0], want) {
			t.Errorf("the notice lacks %q:\n%s", want, notices[0])
		}
	}
	for _, bad := range []string{"secret words", "harness_exited", "explained", "Paint it"} {
		if strings.Contains(notices[0], bad) {
			t.Errorf("the notice holds %q", bad)
		}
	}
	w.clock.advance(time.Second)
	look(t, p)
	equal(t, "rows", rows(t, p), []string{"opened alice delivered", "comment alice gave_up harness_exited", "comment reader settled own"})
	// Another version gives it up once more: it was told.
	p = w.release(t, "v2")
	look(t, p)
	carry(t, p)
	notifyAll(t, p)
	notices, _ = w.told(t)
	equal(t, "notices after another budget", len(notices), 1)
	equal(t, "events", types(t, p), []string{
		"poll.comment_failed", "poll.notice_posted", "poll.notice_posted", "poll.rearmed", "poll.comment_failed",
	})
}

func TestNotices_AnswersThatAreLostAreNotPostedTwice(t *testing.T) {
	for name, f := range map[string]fakegithub.Fault{
		"502": {Kind: fakegithub.KindBadGateway}, "cut": {Kind: fakegithub.KindTruncate}, "a limit": {Kind: fakegithub.KindSecondaryLimit},
		"refused": {Kind: fakegithub.KindForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			w, p := noticeWorld(t, dispatcherv1.Outcome_OUTCOME_FAILED, "harness_exited")
			carry(t, p)
			f.Method, f.Times, f.AfterEffect = http.MethodPost, 2, true // both the notice and the reaction
			must(t, w.Inject(f))
			notifyAll(t, p)
			notices, reactions := w.told(t)
			equal(t, "notices, reactions", []int{len(notices), len(reactions)}, []int{1, 1})
			equal(t, "faults met", w.Counts()["POST /repos/acme/widgets/issues/1/comments"].Faulted, 1)
			equal(t, "posts", w.Counts()["POST /repos/acme/widgets/issues/1/comments"].Requests, 1)
		})
	}
}

func TestNotices_ACrashBetweenThePostAndItsMarkPostsNothingTwice(t *testing.T) {
	w, p := noticeWorld(t, dispatcherv1.Outcome_OUTCOME_UNCONFIRMED, "no_evidence")
	must(t, p.forwarder.Drain(t.Context(), 0))
	sql(t, p, `update poller.events set unproven_since = now() - interval '10 minutes' where state = 'pending'`)
	carry(t, p)
	e := last(t, p)
	equal(t, "state", []any{e.State, e.Reason}, []any{ledger.Settled, ledger.ReasonUnconfirmed})
	must(t, p.notifier.Carry(t.Context()))
	// As if it had been killed before it wrote down that it was done.
	sql(t, p, `update poller.outbox set state = 'waiting', ended_at = null, lease_holder = 'dead', lease_until = now() + interval '1 minute'`)
	must(t, w.open(t).notifier.Carry(t.Context()))
	equal(t, "posts while the lease runs", w.Counts()["POST /repos/acme/widgets/issues/1/comments"].Requests, 1)
	sql(t, p, `update poller.outbox set lease_until = now()`)
	must(t, w.open(t).notifier.Carry(t.Context()))
	notices, reactions := w.told(t)
	equal(t, "notices, reactions", []int{len(notices), len(reactions)}, []int{1, 0})
	equal(t, "posts", w.Counts()["POST /repos/acme/widgets/issues/1/comments"].Requests, 1)
	if !strings.Contains(notices[0], "not typed again") {
		t.Errorf("the notice is\n%s", notices[0])
	}
	asked := w.asked()
	p = w.release(t, "v2")
	look(t, p)
	carry(t, p)
	equal(t, "asked again", w.asked(), asked)
}

func TestNotices_ASessionThatIsOccupiedIsAReactionAlone(t *testing.T) {
	w, p := noticeWorld(t, dispatcherv1.Outcome_OUTCOME_DROPPED, ledger.ReasonSessionOccupied)
	carry(t, p)
	notifyAll(t, p)
	notices, reactions := w.told(t)
	equal(t, "told", []any{len(notices), reactions}, []any{0, []string{"comment confused"}})
}

func TestNotices_OneThatIsHeldForLongIsToldOnceAndStaysHeld(t *testing.T) {
	w, p := noticeWorld(t, dispatcherv1.Outcome_OUTCOME_HELD, "session_holds")
	carry(t, p)
	notifyAll(t, p)
	notices, _ := w.told(t)
	equal(t, "notices before a quarter of an hour", len(notices), 0)
	sql(t, p, `update poller.events set held_since = held_since - interval '15 minutes' where state = 'held'`)
	carry(t, p)
	notifyAll(t, p)
	carry(t, p)
	notifyAll(t, p)
	notices, reactions := w.told(t)
	equal(t, "notices, reactions", []int{len(notices), len(reactions)}, []int{1, 0})
	equal(t, "state", last(t, p).State, ledger.Held)
	w.always(dispatcherv1.Outcome_OUTCOME_DELIVERED, "")
	carry(t, p)
	equal(t, "state in the end", last(t, p).State, ledger.Delivered)
}

func TestNotices_WhatIsNoLongerTrueIsNotTold(t *testing.T) {
	w, p := noticeWorld(t, dispatcherv1.Outcome_OUTCOME_HELD, "session_holds")
	carry(t, p)
	sql(t, p, `update poller.events set held_since = held_since - interval '15 minutes' where state = 'held'`)
	carry(t, p)
	w.always(dispatcherv1.Outcome_OUTCOME_DELIVERED, "")
	carry(t, p)
	notifyAll(t, p)
	notices, _ := w.told(t)
	equal(t, "notices", len(notices), 0)
	equal(t, "posts", outbox(t, p), []string{"notice_held skipped"})
}

func outbox(t *testing.T, p *parts) []string {
	t.Helper()
	var out []string
	must(t, p.pool.QueryRow(t.Context(), `select array_agg(post || ' ' || state order by id) from poller.outbox`).Scan(&out))
	return out
}

func TestNotices_NothingIsWrittenWithoutBeingAskedFor(t *testing.T) {
	w, _ := gaveUpWorld(t)
	p := w.open(t)
	must(t, p.notifier.Carry(t.Context()))
	equal(t, "posts", outbox(t, p), []string(nil))
	for key := range w.Counts() {
		if !strings.HasPrefix(key, "GET ") && key != "POST /graphql" {
			t.Errorf("asked: %s", key)
		}
	}
}

func TestNotices_ARefusalIsShownAndNotTriedForEver(t *testing.T) {
	w, p := noticeWorld(t, dispatcherv1.Outcome_OUTCOME_FAILED, "harness_exited")
	carry(t, p)
	must(t, w.Inject(fakegithub.Fault{Kind: fakegithub.KindForbidden, Method: http.MethodPost, Times: -1}))
	must(t, p.notifier.Carry(t.Context()))
	states, err := p.store.SourceStates(t.Context(), []string{"gh"})
	must(t, err)
	if s := states["gh"]; !strings.Contains(s.NoticeError, "Issues, write") || s.NoticeErrorAt.IsZero() || s.LastError != "" {
		t.Errorf("the source's state is %+v", s)
	}
	must(t, p.notifier.Carry(t.Context()))
	equal(t, "posts before the next try", w.Counts()["POST /repos/acme/widgets/issues/1/comments"].Requests, 1)
	notifyAll(t, p)
	equal(t, "posts in all", w.Counts()["POST /repos/acme/widgets/issues/1/comments"].Requests, ledger.PostTries)
	equal(t, "outbox", outbox(t, p), []string{"notice_gave_up failed", "reaction_confused failed"})
	equal(t, "events", types(t, p), []string{"poll.comment_failed", "poll.notice_failed", "poll.notice_failed"})
}

func TestNotices_ALimitIsWaitedForWithoutATryAndDelaysNoDelivery(t *testing.T) {
	w, p := noticeWorld(t, dispatcherv1.Outcome_OUTCOME_FAILED, "harness_exited")
	carry(t, p)
	must(t, w.Inject(fakegithub.Fault{Kind: fakegithub.KindSecondaryLimit, Method: http.MethodPost, RetryAfter: 120, Times: -1}))
	sql(t, p, `update poller.outbox set not_before = now()`)
	must(t, p.notifier.Carry(t.Context()))
	posts := 0
	for key, count := range w.Counts() {
		if strings.HasPrefix(key, "POST ") && key != "POST /graphql" {
			posts += count.Requests
		}
	}
	equal(t, "posts, for two that are due", posts, 1)
	w.comment(t, 1, "alice", "another")
	w.always(dispatcherv1.Outcome_OUTCOME_DELIVERED, "")
	equal(t, "new meanwhile", look(t, p).NewEvents, 1)
	carry(t, p)
	equal(t, "the other comment", last(t, p).State, ledger.Delivered)
	for range ledger.PostTries + 1 {
		notifyAll(t, p)
	}
	w.ClearFaults()
	notifyAll(t, p)
	notices, reactions := w.told(t)
	equal(t, "notices, reactions", []int{len(notices), len(reactions)}, []int{1, 1})
	states, err := p.store.SourceStates(t.Context(), []string{"gh"})
	must(t, err)
	equal(t, "the source's problem", states["gh"].NoticeError, "")
}

// noticesComeAndFail posts a notice, and fails to post another.
func noticesComeAndFail(t *testing.T) *parts {
	t.Helper()
	w, p := noticeWorld(t, dispatcherv1.Outcome_OUTCOME_FAILED, "harness_exited")
	carry(t, p)
	must(t, w.Inject(fakegithub.Fault{
		Kind: fakegithub.KindForbidden, Method: http.MethodPost, Path: "/repos/acme/widgets/issues/1/comments", Times: -1,
	}))
	notifyAll(t, p)
	return p
}

func TestServe_CarriesOutNoticesAndShowsWhatThePollerDid(t *testing.T) {
	w := newWorld(t, withNotices)
	w.labelled(t, "alice")
	w.always(dispatcherv1.Outcome_OUTCOME_FAILED, "harness_exited")
	p := w.open(t)
	look(t, p)
	sql(t, p, `update poller.events set budget = 1`)
	r := start(t, w)
	eventually(t, "the notice is on the ticket", func() bool {
		notices, reactions := w.told(t)
		return len(notices) == 1 && len(reactions) == 1
	})
	var events []*pollerv1.PollEvent
	eventually(t, "all is on the record", func() bool {
		response, err := r.api.ListPollEvents(t.Context(), &pollerv1.ListPollEventsRequest{})
		must(t, err)
		events = response.GetEvents()
		return len(events) == 3
	})
	first := events[0]
	equal(t, "the first", []any{first.GetType(), first.GetSource(), first.GetFields()["reason"], first.GetTime() != nil},
		[]any{"poll.comment_failed", "gh", "harness_exited", true})
	for name, tt := range map[string]struct {
		request *pollerv1.ListPollEventsRequest
		want    int
	}{
		"after the first":  {&pollerv1.ListPollEventsRequest{AfterSequence: first.GetSequence()}, 2},
		"of the delivery":  {&pollerv1.ListPollEventsRequest{DeliveryId: first.GetDeliveryId()}, 3},
		"of another item":  {&pollerv1.ListPollEventsRequest{WorkItem: "github:o/r#1"}, 0},
		"of the source":    {&pollerv1.ListPollEventsRequest{Source: "gh"}, 3},
		"of a type":        {&pollerv1.ListPollEventsRequest{Types: []string{"poll.comment_failed", "poll.rearmed"}}, 1},
		"the latest alone": {&pollerv1.ListPollEventsRequest{PageSize: 1, Latest: true}, 1},
	} {
		response, err := r.api.ListPollEvents(t.Context(), tt.request)
		must(t, err)
		equal(t, name, len(response.GetEvents()), tt.want)
	}
	for name, request := range map[string]*pollerv1.ListPollEventsRequest{
		"a page of 501": {PageSize: 501}, "before the beginning": {AfterSequence: -1}, "a broken item": {WorkItem: "x"},
		"a broken id": {DeliveryId: "A B"}, "a type of others": {Types: []string{"session.spawned"}},
	} {
		if _, err := r.api.ListPollEvents(t.Context(), request); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
	list, err := r.api.ListLedger(t.Context(), &pollerv1.ListLedgerRequest{})
	must(t, err)
	equal(t, "versions of a build without a name", list.GetEntries()[len(list.GetEntries())-1].GetGaveUpVersions(), []string{"poller unknown"})
	sources, err := r.api.ListSources(t.Context(), &pollerv1.ListSourcesRequest{})
	must(t, err)
	equal(t, "notices", []any{sources.GetSources()[0].GetNotices(), sources.GetSources()[0].GetNoticeError()}, []any{true, ""})
}

func TestNotices_TwoProcessesAtOnceTellItOnce(t *testing.T) {
	w, p := noticeWorld(t, dispatcherv1.Outcome_OUTCOME_FAILED, "harness_exited")
	carry(t, p)
	done := make(chan error, 4)
	for range 4 {
		other := w.open(t)
		go func() { done <- other.notifier.Carry(t.Context()) }()
	}
	for range 4 {
		must(t, <-done)
	}
	notices, reactions := w.told(t)
	equal(t, "notices, reactions", []int{len(notices), len(reactions)}, []int{1, 1})
	equal(t, "posts", w.Counts()["POST /repos/acme/widgets/issues/1/comments"].Requests, 1)
}

func TestNotices_AMessageByHandHasNoTicketToTellItOn(t *testing.T) {
	w, p := noticeWorld(t, dispatcherv1.Outcome_OUTCOME_FAILED, "harness_exited")
	_, _, err := p.poller.Submit(t.Context(), message(entries(t, p)[0].WorkItem, "by hand"))
	must(t, err)
	carry(t, p)
	carry(t, p)
	notifyAll(t, p)
	equal(t, "rows", rows(t, p)[1:], []string{"comment alice gave_up harness_exited", "message  gave_up harness_exited"})
	notices, _ := w.told(t)
	equal(t, "notices, of the comment alone", len(notices), 1)
}

func TestOnce_CarriesOutNoticesToo(t *testing.T) {
	w, p := noticeWorld(t, dispatcherv1.Outcome_OUTCOME_FAILED, "harness_exited")
	sql(t, p, `update poller.events set budget = 1`)
	_, _, err := once(t, w)
	must(t, err)
	notices, reactions := w.told(t)
	equal(t, "notices, reactions", []int{len(notices), len(reactions)}, []int{1, 1})
}

func TestNotices_APostIsOneProcessesAtATime(t *testing.T) {
	_, p := noticeWorld(t, dispatcherv1.Outcome_OUTCOME_DROPPED, ledger.ReasonSessionOccupied)
	carry(t, p)
	claim := func() (notify.Post, bool) {
		t.Helper()
		post, ok, err := p.store.ClaimPost(t.Context(), []string{"gh"}, time.Minute)
		must(t, err)
		return post, ok
	}
	lost, ok := claim()
	equal(t, "claimed", ok, true)
	_, ok = claim()
	equal(t, "claimed while the lease runs", ok, false)
	sql(t, p, `update poller.outbox set lease_until = now()`)
	_, ok = claim()
	equal(t, "claimed after it", ok, true)
	must(t, p.store.EndPost(t.Context(), lost, notify.End{State: notify.Failed, Problem: "late"}))
	equal(t, "after the old holder's word", outbox(t, p), []string{"reaction_confused waiting"})
	_, ok, err := p.store.ClaimPost(t.Context(), []string{"another"}, time.Minute)
	must(t, err)
	equal(t, "claimed for another source", ok, false)
}
