package main

import (
	"bytes"
	"testing"
	"time"

	"muxpost.dev/muxpost/core/ledger"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
)

// Rows of docs/cases.md, table F: what an answer makes of an event, on a real database.

// twoComments has two comments of one item waiting, behind an opening event that was delivered.
func twoComments(t *testing.T) (*world, *parts) {
	t.Helper()
	w := newWorld(t, withNotices)
	n := w.labelled(t, "alice")
	p := w.open(t)
	look(t, p)
	carry(t, p)
	w.comment(t, n, "alice", "the first")
	w.comment(t, n, "alice", "the second")
	look(t, p)
	return w, p
}

// drain hands over what is due now, once.
func drain(t *testing.T, p *parts) {
	t.Helper()
	sql(t, p, `update poller.events set next_look = now() where state in ('pending', 'held')`)
	must(t, p.forwarder.Drain(t.Context(), 0))
}

func TestUnconfirmed_EvidenceIsAskedForAndSpendsNothing(t *testing.T) {
	for name, then := range map[string]struct {
		outcome dispatcherv1.Outcome
		reason  string
		rows    []string
		tries   int
	}{
		"it shows that it arrived": {dispatcherv1.Outcome_OUTCOME_DELIVERED, "",
			[]string{"comment alice delivered", "comment alice delivered"}, 0},
		"it shows that it never arrived": {dispatcherv1.Outcome_OUTCOME_FAILED, "paste_refused",
			[]string{"comment alice pending paste_refused", "comment alice pending"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			w, p := twoComments(t)
			w.always(dispatcherv1.Outcome_OUTCOME_UNCONFIRMED, "no_evidence")
			for range 5 {
				drain(t, p)
				e := entries(t, p)[1]
				equal(t, "state, reason, tries", []any{e.State, e.Reason, e.Tries}, []any{ledger.Pending, "no_evidence", 0})
				equal(t, "behind it", rows(t, p)[2], "comment alice pending")
			}
			w.always(then.outcome, then.reason)
			drain(t, p)
			equal(t, "rows", rows(t, p)[1:], then.rows)
			equal(t, "tries", entries(t, p)[1].Tries, then.tries)
		})
	}
}

func TestUnconfirmed_WithoutEvidenceIsLeftAfterTenMinutesAndTheItemGoesOn(t *testing.T) {
	w, p := twoComments(t)
	w.always(dispatcherv1.Outcome_OUTCOME_UNCONFIRMED, "no_evidence")
	drain(t, p)
	sql(t, p, `update poller.events set unproven_since = unproven_since - interval '9 minutes' where unproven_since is not null`)
	drain(t, p)
	equal(t, "after nine minutes", rows(t, p)[1:], []string{"comment alice pending no_evidence", "comment alice pending"})
	sql(t, p, `update poller.events set unproven_since = unproven_since - interval '1 minute' where unproven_since is not null`)
	drain(t, p)
	asked := w.asked()
	w.always(dispatcherv1.Outcome_OUTCOME_DELIVERED, "")
	drain(t, p)
	want := []string{"comment alice settled unconfirmed", "comment alice delivered"}
	equal(t, "after ten", rows(t, p)[1:], want)
	for _, r := range w.dispatcher.requests()[asked:] {
		if r.GetDeliveryId() == entries(t, p)[1].DeliveryID {
			t.Error("it was asked about again")
		}
	}
	asked = w.asked()
	for _, version := range []string{"v1", "v2", "v3"} {
		p = w.release(t, version)
		look(t, p)
		carry(t, p)
		notifyAll(t, p)
	}
	equal(t, "under other versions", rows(t, p)[1:3], want)
	equal(t, "asked by other versions", w.asked(), asked)
	notices, reactions := w.told(t)
	equal(t, "notices, reactions", []int{len(notices), len(reactions)}, []int{1, 0})
}

// TestWaiting_CostsNothingHoweverLongAndIsVisible has something behind the dispatcher not answer for much longer than a budget lasts.
func TestWaiting_CostsNothingHoweverLongAndIsVisible(t *testing.T) {
	for _, reason := range []string{"host_unreachable", "tmux_no_answer", "spawn_no_answer", "no_capacity", "lease_held", "paused"} {
		t.Run(reason, func(t *testing.T) {
			w, p := twoComments(t)
			w.always(dispatcherv1.Outcome_OUTCOME_WAITING, reason)
			drain(t, p)
			since := entries(t, p)[1].UpdatedAt
			for range 4 * ledger.DefaultBudget {
				drain(t, p)
				e := entries(t, p)[1]
				equal(t, "state, reason, tries, detail", []any{e.State, e.Reason, e.Tries, e.Detail},
					[]any{ledger.Pending, reason, 0, "explained (do this)"})
				equal(t, "since when", e.UpdatedAt.Equal(since), true)
				if wait := time.Until(e.NextLook); wait < time.Second || wait > 75*time.Second {
					t.Errorf("it is looked at next in %v", wait)
				}
			}
			equal(t, "waits behind it", entries(t, p)[2].WaitsBehind.Reason, reason)
			w.always(dispatcherv1.Outcome_OUTCOME_DELIVERED, "")
			drain(t, p)
			equal(t, "rows", rows(t, p)[1:], []string{"comment alice delivered", "comment alice delivered"})
			notifyAll(t, p)
			notices, reactions := w.told(t)
			equal(t, "told", len(notices)+len(reactions), 0)
		})
	}
}

func TestHeld_GoesInAsSoonAsTheReasonPasses(t *testing.T) {
	w, p := twoComments(t)
	w.always(dispatcherv1.Outcome_OUTCOME_HELD, "session_holds")
	for range 2 * ledger.DefaultBudget {
		drain(t, p)
	}
	e := entries(t, p)[1]
	equal(t, "state, tries", []any{e.State, e.Tries}, []any{ledger.Held, 0})
	if wait := time.Until(e.NextLook); wait > 75*time.Second {
		t.Errorf("it is looked at next in %v", wait)
	}
	w.always(dispatcherv1.Outcome_OUTCOME_DELIVERED, "")
	drain(t, p)
	equal(t, "rows", rows(t, p)[1:], []string{"comment alice delivered", "comment alice delivered"})
}

// TestPolicy_WhatMayNotSteerIsNeitherAFailureNorTold has events that policy ends, under one version after another.
func TestPolicy_WhatMayNotSteerIsNeitherAFailureNorTold(t *testing.T) {
	w := newWorld(t, withNotices)
	n := w.labelled(t, "alice")
	p := w.open(t)
	look(t, p)
	carry(t, p)
	w.comment(t, n, "mallory", "obey")
	w.comment(t, n, "helper[bot]", "beep")
	w.comment(t, n, "alice", "<!-- muxpost:reply -->\ndone")
	look(t, p)
	want := []string{"comment mallory settled unauthorised", "comment helper[bot] settled bot", "comment alice settled own"}
	for _, version := range []string{"v1", "v2", "v3"} {
		p = w.release(t, version)
		look(t, p)
		carry(t, p)
		notifyAll(t, p)
		equal(t, "rows", rows(t, p)[1:], want)
	}
	for _, e := range entries(t, p)[1:] {
		equal(t, "tries, versions", []any{e.Tries, len(e.GaveUpVersions)}, []any{0, 0})
	}
	notices, reactions := w.told(t)
	equal(t, "told, asked, events", []any{len(notices) + len(reactions), w.asked(), len(types(t, p))}, []any{0, 1, 0})
}

// TestOnce_RoundsOfOneVersionRearmNothing is cron, with a version that could re-arm.
func TestOnce_RoundsOfOneVersionRearmNothing(t *testing.T) {
	w, _ := gaveUpWorld(t)
	round := func(version string) {
		t.Helper()
		must(t, w.release(t, version).once(t.Context(), &bytes.Buffer{}))
	}
	for range 3 {
		round("v1")
	}
	equal(t, "asked by rounds of the version that gave it up", w.asked(), 3)
	for range 5 {
		sql(t, w.open(t), `update poller.events set next_look = now() where state = 'pending'`)
		round("v2")
	}
	equal(t, "asked by rounds of another version", w.asked(), 6)
	equal(t, "events", types(t, w.open(t)), []string{"poll.comment_failed", "poll.rearmed", "poll.comment_failed"})
}

// TestOrder_ARearmedEventComesWhenItComes has a later event be delivered while an earlier one had given up.
func TestOrder_ARearmedEventComesWhenItComes(t *testing.T) {
	w, p := twoComments(t)
	first := entries(t, p)[1].DeliveryID
	w.dispatcher.answer = func(r *dispatcherv1.DeliverRequest) (*dispatcherv1.DeliverResponse, error) {
		if r.GetDeliveryId() == first {
			return outcome(dispatcherv1.Outcome_OUTCOME_FAILED, "harness_exited", 0), nil
		}
		return outcome(dispatcherv1.Outcome_OUTCOME_DELIVERED, "", 0), nil
	}
	carry(t, p)
	equal(t, "rows", rows(t, p)[1:], []string{"comment alice gave_up harness_exited", "comment alice delivered"})
	w.always(dispatcherv1.Outcome_OUTCOME_DELIVERED, "")
	p = w.release(t, "v2")
	look(t, p)
	carry(t, p)
	asked := w.dispatcher.requests()
	equal(t, "the last", asked[len(asked)-1].GetDeliveryId(), first)
	equal(t, "rows in the end", rows(t, p)[1:3], []string{"comment alice delivered", "comment alice delivered"})
}
