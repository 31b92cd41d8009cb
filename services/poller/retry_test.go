package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/ledger"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	pollerv1 "muxpost.dev/muxpost/proto/gen/muxpost/poller/v1"
	"muxpost.dev/muxpost/services/poller/internal/poll"
	"muxpost.dev/muxpost/services/poller/internal/server"
)

// refuse has the dispatcher answer a re-opening with an error; nil ends that. It returns what was re-opened so far.
func (w *world) refuse(err error) []string {
	w.dispatcher.mu.Lock()
	defer w.dispatcher.mu.Unlock()
	w.dispatcher.refusal = err
	return w.dispatcher.reopened
}

// endedWorld has one event that the dispatcher ended.
func endedWorld(t *testing.T, o dispatcherv1.Outcome, reason string) (*world, *parts, poll.Entry) {
	t.Helper()
	w := newWorld(t, standard)
	w.labelled(t, "alice")
	w.always(o, reason)
	p := w.open(t)
	look(t, p)
	carry(t, p)
	return w, p, entries(t, p)[0]
}

func retry(t *testing.T, p *parts, id string) (*pollerv1.RetryResponse, error) {
	t.Helper()
	return server.New(p.poller, p.retrier, p.store, p.store).Retry(t.Context(), &pollerv1.RetryRequest{DeliveryId: id, Who: "ann", Reason: "mended"})
}

func TestRetry_TriesWhatEndedUnderTheSameIDWithANewBudget(t *testing.T) {
	for name, set := range map[string]string{
		"dropped": `state = 'dropped', reason = 'session-occupied'`, "gave up": `state = 'gave_up', reason = 'harness_exited'`,
		"unconfirmed": `state = 'settled', reason = 'unconfirmed'`,
	} {
		t.Run(name, func(t *testing.T) {
			w, p, _ := endedWorld(t, dispatcherv1.Outcome_OUTCOME_DROPPED, "session-occupied")
			sql(t, p, `update poller.events set tries = 3, silences = 2, unproven_since = now(), held_since = now(), armed_for = 'x', `+set)
			e := entries(t, p)[0]
			answer, err := retry(t, p, e.DeliveryID)
			must(t, err)
			row := answer.GetEntry()
			equal(t, "answer", []any{answer.GetRetried(), row.GetState(), row.GetReason(), row.GetTries(), row.GetDetail(), row.GetHeldSince() == nil},
				[]any{true, pollerv1.LedgerState_LEDGER_STATE_PENDING, "", int32(0), "", true})
			var clear bool
			must(t, p.pool.QueryRow(t.Context(), `select silences = 0 and unproven_since is null and armed_for = '' and next_look <= now()
from poller.events`).Scan(&clear))
			equal(t, "nothing is left of what was", clear, true)
			equal(t, "re-opened", w.refuse(nil), []string{e.DeliveryID + " ann"})
			told := followed(t, p)
			last := told[len(told)-1]
			equal(t, "event", []any{last.Type, last.DeliveryID, last.Source, last.Fields["who"], last.Fields["why"], last.Fields["state"],
				strings.Contains(set, "'"+last.Fields["reason"]+"'")}, []any{ledger.Retried, e.DeliveryID, "gh", "ann", "mended", e.State.String(), true})
			w.always(dispatcherv1.Outcome_OUTCOME_DELIVERED, "")
			carry(t, p)
			equal(t, "rows", rows(t, p), []string{"opened alice delivered"})
			equal(t, "the id that it always had", w.dispatcher.requests()[w.asked()-1].GetDeliveryId(), e.DeliveryID)
		})
	}
}

func TestRetry_TheDispatcherGoesFirst(t *testing.T) {
	w, p, e := endedWorld(t, dispatcherv1.Outcome_OUTCOME_DROPPED, "target_collision")
	for _, refusal := range []*fault.Error{
		fault.New(fault.Conflict, "", "it is in its conversation"), fault.New(fault.Unavailable, fault.ReasonDatabase, "no database"),
	} {
		w.refuse(refusal)
		_, err := retry(t, p, e.DeliveryID)
		if !errors.Is(err, refusal.Kind) || !strings.Contains(err.Error(), refusal.Message) {
			t.Errorf("%v, want %v", err, refusal)
		}
		equal(t, "the row", entries(t, p)[0].State, ledger.Dropped)
	}
	w.refuse(fault.New(fault.NotFound, fault.ReasonDeliveryNotFound, "never asked about"))
	answer, err := retry(t, p, e.DeliveryID)
	must(t, err)
	equal(t, "one that was never asked about is tried", answer.GetRetried(), true)
}

func TestRetry_WhatWaitsIsOnlyDueAtOnce(t *testing.T) {
	w, p, e := endedWorld(t, dispatcherv1.Outcome_OUTCOME_HELD, "session_holds")
	sql(t, p, `update poller.events set state = 'held', tries = 2, next_look = now() + interval '1 hour'`)
	answer, err := retry(t, p, e.DeliveryID)
	must(t, err)
	row := answer.GetEntry()
	equal(t, "answer", []any{answer.GetRetried(), row.GetState(), row.GetTries(), row.GetNextLook().AsTime().After(time.Now().Add(time.Minute))},
		[]any{false, pollerv1.LedgerState_LEDGER_STATE_HELD, int32(2), false})
	equal(t, "nothing was re-opened", len(w.refuse(nil)), 0)
}

func TestRetry_RefusesWhatPolicyEndedAndWhatIsInItsConversation(t *testing.T) {
	w, p, e := endedWorld(t, dispatcherv1.Outcome_OUTCOME_DROPPED, "session-occupied")
	for set, want := range map[string]string{
		`state = 'settled', reason = 'unauthorised'`: "(unauthorised)", `state = 'settled', reason = 'own'`: "(own)",
		`state = 'settled', reason = 'bot'`: "(bot)", `state = 'settled', reason = 'baselined'`: "(baselined)",
		`state = 'delivered', reason = ''`: "in its conversation", `state = 'cancelled', reason = 'deleted_upstream'`: "deleted upstream",
		`state = 'dropped', deleted_at = now()`: "deleted upstream",
	} {
		sql(t, p, `update poller.events set deleted_at = null`)
		sql(t, p, `update poller.events set `+set)
		if _, err := retry(t, p, e.DeliveryID); !errors.Is(err, fault.Conflict) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", set, err)
		}
	}
	equal(t, "nothing was re-opened", len(w.refuse(nil)), 0)
	for id, kind := range map[string]fault.Kind{"dunknown1": fault.NotFound, "": fault.Invalid, "X": fault.Invalid} {
		if _, err := retry(t, p, id); !errors.Is(err, kind) {
			t.Errorf("%q: %v", id, err)
		}
	}
	_, err := p.retrier.Retry(t.Context(), poll.Again{DeliveryID: e.DeliveryID, Who: strings.Repeat("x", 101)})
	if !errors.Is(err, fault.Invalid) {
		t.Errorf("a long name: %v", err)
	}
}

func TestSweep_AsksAgainAboutOccupiedNamesEveryFiveMinutesOldestFirst(t *testing.T) {
	w, p, e := endedWorld(t, dispatcherv1.Outcome_OUTCOME_DROPPED, ledger.ReasonSessionOccupied)
	must(t, p.retrier.Sweep(t.Context()))
	equal(t, "too early", rows(t, p), []string{"opened alice dropped session-occupied"})
	sql(t, p, `update poller.events set tries = 1, next_look = now()`)
	w.refuse(fault.New(fault.Unavailable, fault.ReasonDatabase, "no database"))
	must(t, p.retrier.Sweep(t.Context()))
	equal(t, "the dispatcher does not answer", rows(t, p), []string{"opened alice dropped session-occupied"})
	w.refuse(nil)
	w.dispatcher.occupied = true
	must(t, p.retrier.Sweep(t.Context()))
	must(t, p.retrier.Sweep(t.Context()))
	equal(t, "the name is not free", []any{rows(t, p), len(w.refuse(nil))}, []any{[]string{"opened alice dropped session-occupied"}, 2}) // one was refused before
	w.dispatcher.occupied = false
	sql(t, p, `update poller.events set next_look = now()`)
	must(t, p.retrier.Sweep(t.Context()))
	again := entries(t, p)[0]
	equal(t, "swept", []any{again.State, again.Tries, again.DeliveryID}, []any{ledger.Pending, 1, e.DeliveryID})
	asked := w.asked()
	carry(t, p)
	must(t, p.retrier.Sweep(t.Context()))
	equal(t, "asked once, and then left alone", []any{w.asked() - asked, rows(t, p)},
		[]any{1, []string{"opened alice dropped session-occupied"}})
}

func TestSweep_TakesAFewAtATimeAndNothingElse(t *testing.T) {
	w, p, _ := endedWorld(t, dispatcherv1.Outcome_OUTCOME_DROPPED, "target_collision")
	sql(t, p, `update poller.events set updated_at = now() - interval '1 day'`)
	for i := range poll.SweepLimit + 5 {
		sql(t, p, `
insert into poller.events (delivery_id, natural_key, work_item, source, kind, upstream_at, state, reason, budget, updated_at)
select $1, $1, work_item, 'manual', 'message', now(), 'dropped', 'session-occupied', 3, now() - interval '1 hour' - $2 * interval '1 minute'
from poller.items`, fmt.Sprintf("doccupied%03d", i), i)
	}
	must(t, p.retrier.Sweep(t.Context()))
	reopened := w.refuse(nil)
	equal(t, "bounded", len(reopened), poll.SweepLimit)
	equal(t, "the longest dropped first", strings.HasPrefix(reopened[0], fmt.Sprintf("doccupied%03d ", poll.SweepLimit+4)), true)
	must(t, p.retrier.Sweep(t.Context()))
	must(t, p.retrier.Sweep(t.Context()))
	equal(t, "each once", len(w.refuse(nil)), poll.SweepLimit+5)
	equal(t, "another reason stays", rows(t, p)[0], "opened alice dropped target_collision")
}

func TestLedger_SaysWhatAnEventWaitsBehind(t *testing.T) {
	w := newWorld(t, standard)
	p := w.open(t)
	item := "github:" + w.host + "/acme/widgets#1"
	first, _, err := p.poller.Submit(t.Context(), message(item, "one"))
	must(t, err)
	second, _, err := p.poller.Submit(t.Context(), message(item, "two"))
	must(t, err)
	w.always(dispatcherv1.Outcome_OUTCOME_HELD, "session_holds")
	must(t, p.forwarder.Drain(t.Context(), 0))
	all := entries(t, p)
	equal(t, "the first waits behind nothing", all[0].WaitsBehind == nil, true)
	equal(t, "the second", *all[1].WaitsBehind, poll.Ahead{DeliveryID: first.DeliveryID, State: ledger.Held, Reason: "session_holds",
		Detail: "explained (do this)"})
	w.always(dispatcherv1.Outcome_OUTCOME_DELIVERED, "")
	carry(t, p)
	equal(t, "nothing waits", entries(t, p)[1].WaitsBehind == nil, true)
	equal(t, "its id", all[1].DeliveryID, second.DeliveryID)
}

// retriedByHand has an event that was dropped and retried.
func retriedByHand(t *testing.T) *parts {
	t.Helper()
	_, p, e := endedWorld(t, dispatcherv1.Outcome_OUTCOME_DROPPED, "session-occupied")
	_, err := retry(t, p, e.DeliveryID)
	must(t, err)
	return p
}
