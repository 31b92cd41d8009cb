package main

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"muxpost.dev/muxpost/core/ledger"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	"muxpost.dev/muxpost/test/fakegithub"
)

const withReactions = standard + "    reactions: true\n"

func TestReactions_SayWhatWasTakenAndWhatBecameOfIt(t *testing.T) {
	for name, tt := range map[string]struct {
		source  string
		outcome dispatcherv1.Outcome
		reason  string
		notices int
		// on the comment
		want []string
	}{
		"delivered":                     {withReactions, dispatcherv1.Outcome_OUTCOME_DELIVERED, "", 0, []string{"comment eyes", "comment hooray"}},
		"held":                          {withReactions, dispatcherv1.Outcome_OUTCOME_HELD, "draft", 0, []string{"comment eyes"}},
		"gave up":                       {withReactions, dispatcherv1.Outcome_OUTCOME_FAILED, "harness_exited", 0, []string{"comment eyes", "comment confused"}},
		"occupied":                      {withReactions, dispatcherv1.Outcome_OUTCOME_DROPPED, ledger.ReasonSessionOccupied, 0, []string{"comment eyes", "comment confused"}},
		"dropped":                       {withReactions, dispatcherv1.Outcome_OUTCOME_DROPPED, "not_logged_in", 0, []string{"comment eyes", "comment confused"}},
		"gave up, with notices":         {withReactions + "    notices: true\n", dispatcherv1.Outcome_OUTCOME_FAILED, "x", 1, []string{"comment eyes", "comment confused"}},
		"delivered, with notices alone": {withNotices, dispatcherv1.Outcome_OUTCOME_DELIVERED, "", 0, nil},
		"delivered, with nothing":       {standard, dispatcherv1.Outcome_OUTCOME_DELIVERED, "", 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w, p, n := commandWorld(t, tt.source)
			sql(t, p, `update poller.outbox set state = 'done'`) // those of the opening
			w.always(tt.outcome, tt.reason)
			w.comment(t, n, "alice", "a word")
			w.comment(t, n, "mallory", "no word")
			look(t, p)
			must(t, p.notifier.Carry(t.Context()))
			carry(t, p)
			notifyAll(t, p)
			notices, reactions := w.told(t)
			equal(t, "reactions", reactions, tt.want)
			equal(t, "notices", len(notices), tt.notices)
		})
	}
}

func TestReactions_OnTheIssueOfAnOpeningAndNoEyesOnWhatIsThereAlready(t *testing.T) {
	w, p, _ := commandWorld(t, withReactions)
	notifyAll(t, p)
	_, reactions := w.told(t)
	equal(t, "reactions", reactions, []string{"issue hooray"})
	equal(t, "posts", outbox(t, p), []string{"reaction_eyes skipped", "reaction_hooray done"})
	equal(t, "told to those who follow", types(t, p), []string(nil))
}

func TestReactions_WhatIsInADigestHasThoseOfItsFirst(t *testing.T) {
	w, p, n := commandWorld(t, withReactions)
	for range 8 {
		w.comment(t, n, "alice", "a word")
	}
	look(t, p)
	must(t, p.notifier.Carry(t.Context()))
	carry(t, p)
	notifyAll(t, p)
	_, reactions := w.told(t)
	equal(t, "hooray", strings.Count(strings.Join(reactions, " "), "comment hooray"), 8)
	equal(t, "eyes", strings.Count(strings.Join(reactions, " "), "comment eyes"), 8)
}

func TestReactions_NeverDelayADeliveryAndAreTriedAgainByThemselves(t *testing.T) {
	w, p, n := commandWorld(t, withReactions)
	must(t, w.Inject(fakegithub.Fault{Kind: fakegithub.KindBadGateway, Method: http.MethodPost, Times: -1}))
	w.comment(t, n, "alice", "a word")
	look(t, p)
	must(t, p.notifier.Carry(t.Context()))
	carry(t, p)
	equal(t, "row", rows(t, p)[1], "comment alice delivered")
	w.ClearFaults()
	notifyAll(t, p)
	_, reactions := w.told(t)
	equal(t, "reactions", reactions, []string{"issue hooray", "comment hooray"})
}

// spawned answers that each delivery was the first prompt of a first session.
func (w *world) spawned(host string) {
	w.dispatcher.mu.Lock()
	defer w.dispatcher.mu.Unlock()
	w.dispatcher.answer = func(*dispatcherv1.DeliverRequest) (*dispatcherv1.DeliverResponse, error) {
		out := outcome(dispatcherv1.Outcome_OUTCOME_DELIVERED, "", 0)
		out.Delivery.How, out.Delivery.Host = dispatcherv1.How_HOW_SPAWNED, host
		return out, nil
	}
}

func TestStarted_IsToldOnceForAnItemEver(t *testing.T) {
	w := newWorld(t, withNotices)
	n := w.labelled(t, "alice")
	w.spawned("east")
	w.dispatcher.harness = "codex"
	p := w.open(t)
	look(t, p)
	carry(t, p)
	for range 2 {
		notifyAll(t, p)
		// A crash after the write and before it is written down.
		sql(t, p, `update poller.outbox set state = 'waiting', ended_at = null`)
	}
	// The item was closed, and begins anew on another host; even when the first event is long forgotten.
	w.spawned("west")
	w.comment(t, n, "alice", "once more")
	look(t, p)
	carry(t, p)
	sql(t, p, `delete from poller.outbox`)
	w.comment(t, n, "alice", "and once more")
	look(t, p)
	carry(t, p)
	notifyAll(t, p)
	notices, _ := w.told(t)
	equal(t, "notices", len(notices), 1)
	for _, want := range []string{"started an agent (`codex`) on the host `east`", "`muxpost attach " + entries(t, p)[0].WorkItem + "`"} {
		if !strings.Contains(notices[0], want) {
			t.Errorf("the notice lacks %q:\n%s", want, notices[0])
		}
	}
	w.clock.advance(time.Second)
	equal(t, "new", look(t, p).NewEvents, 0)
}

func TestStarted_IsNotToldOfAConversationThatComesBackOrWithoutNotices(t *testing.T) {
	w, p, _ := commandWorld(t, withNotices)
	notifyAll(t, p)
	notices, _ := w.told(t)
	equal(t, "notices of a paste", len(notices), 0)
	w = newWorld(t, withReactions)
	w.labelled(t, "alice")
	w.spawned("east")
	p = w.open(t)
	look(t, p)
	carry(t, p)
	notifyAll(t, p)
	notices, _ = w.told(t)
	equal(t, "notices where they are off", len(notices), 0)
}
