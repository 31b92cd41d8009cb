package main

import (
	"errors"
	"strings"
	"testing"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/ledger"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	pollerv1 "muxpost.dev/muxpost/proto/gen/muxpost/poller/v1"
	"muxpost.dev/muxpost/services/poller/internal/poll"
	"muxpost.dev/muxpost/services/poller/internal/server"
)

func cancel(t *testing.T, p *parts, id string) (*pollerv1.CancelResponse, error) {
	t.Helper()
	return server.New(p.poller, p.retrier, p.store, p.store).Cancel(t.Context(), &pollerv1.CancelRequest{DeliveryId: id, Who: "ann", Reason: "not needed"})
}

func TestCancel_EndsWhatWaitsIsHeldOrGaveUpForGood(t *testing.T) {
	for name, set := range map[string]string{
		"waits":                  `state = 'pending', reason = '', next_look = now()`,
		"waits for its host":     `state = 'pending', reason = 'host_unreachable', silences = 3, next_look = now()`,
		"waits after a failure":  `state = 'pending', reason = 'harness_exited', tries = 1, next_look = now()`,
		"held":                   `state = 'held', reason = 'session_holds', held_since = now(), next_look = now()`,
		"gave up":                `state = 'gave_up', reason = 'harness_exited', tries = 3, gave_up_versions = '{poller v0}'`,
		"was re-armed meanwhile": `state = 'pending', reason = 'rearmed', armed_for = 'poller v0', next_look = now()`,
	} {
		t.Run(name, func(t *testing.T) {
			w, p, n := deletedWorld(t)
			comment := w.comment(t, n, "alice", "do it")
			look(t, p)
			e := last(t, p)
			sql(t, p, `update poller.events set `+set+` where id = $1`, e.ID)
			sql(t, p, `insert into poller.outbox (event_id, post) values ($1, 'notice_gave_up')`, e.ID)
			before := last(t, p)
			answer, err := cancel(t, p, e.DeliveryID)
			must(t, err)
			row := answer.GetEntry()
			equal(t, "answer", []any{answer.GetCancelled(), row.GetState(), row.GetReason(), row.GetNextLook() == nil, row.GetHeldSince() == nil},
				[]any{true, pollerv1.LedgerState_LEDGER_STATE_CANCELLED, ledger.ReasonByHand, true, true})
			if !strings.HasPrefix(row.GetDetail(), "it was cancelled by ann: not needed") {
				t.Errorf("detail %q", row.GetDetail())
			}
			told := followed(t, p)
			l := told[len(told)-1]
			equal(t, "event", []any{l.Type, l.DeliveryID, l.Source, l.Fields}, []any{ledger.CommentCancelled, e.DeliveryID, "gh", map[string]string{
				"kind": "comment", "reason": ledger.ReasonByHand, "who": "ann", "why": "not needed", "state": before.State.String()}})
			equal(t, "posts", value[string](t, p.pool, `select string_agg(state, ' ') from poller.outbox`), "skipped")
			asked := w.asked()
			answer, err = cancel(t, p, e.DeliveryID)
			must(t, err)
			equal(t, "once more", []any{answer.GetCancelled(), answer.GetEntry().GetState()}, []any{false, pollerv1.LedgerState_LEDGER_STATE_CANCELLED})

			// Nothing revives it: neither that it is listed still, nor another version, nor a retry, nor a hint.
			must(t, p.store.Wake(t.Context(), ""))
			other := w.release(t, "v2")
			look(t, other)
			carry(t, other)
			if _, err := retry(t, p, e.DeliveryID); !errors.Is(err, fault.Conflict) || !strings.Contains(err.Error(), "a person cancelled it") {
				t.Errorf("a retry: %v", err)
			}
			equal(t, "asked, rows", []any{w.asked() - asked, rows(t, p)},
				[]any{0, []string{"opened alice delivered", "comment alice cancelled cancelled_by_hand"}})
			// What it says after an edit is another event.
			w.edit(t, comment, "do something else")
			equal(t, "new after an edit", look(t, p).NewEvents, 1)
		})
	}
}

func TestCancel_RefusesWhatMayBeInAnAgentsHandsAndWhatHasEnded(t *testing.T) {
	_, p, e := endedWorld(t, dispatcherv1.Outcome_OUTCOME_DROPPED, "spawn_forbidden")
	const waits = `next_look = now(), state = 'pending', `
	for set, want := range map[string]string{
		`state = 'leased', lease_holder = 'x', lease_until = now() + interval '1 minute'`: "ask again in a moment",
		`state = 'leased', lease_holder = 'x', lease_until = now() - interval '1 minute'`: "ask again in a moment",
		waits + `reason = 'no_evidence', unproven_since = now()`:                          "then muxpost done",
		waits + `reason = 'starting'`:                                                     "is not known (starting)",
		waits + `reason = 'dispatcher_unreachable', silences = 1`:                         "is not known (dispatcher_unreachable)",
		waits + `reason = 'tmux_no_answer', silences = 1`:                                 "is not known (tmux_no_answer)",
		`state = 'dropped', reason = 'spawn_forbidden'`:                                   "muxpost done",
		`state = 'settled', reason = 'unconfirmed'`:                                       "muxpost done",
		`state = 'settled', reason = 'unauthorised'`:                                      "was settled (unauthorised)",
		`state = 'delivered', reason = ''`:                                                "in its conversation",
	} {
		sql(t, p, `update poller.events set lease_holder = null, lease_until = null, unproven_since = null, silences = 0, state = 'dropped'`)
		sql(t, p, `update poller.events set `+set)
		before := entries(t, p)
		if _, err := cancel(t, p, e.DeliveryID); !errors.Is(err, fault.Conflict) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", set, err)
		}
		equal(t, "the row is as it was", entries(t, p), before)
	}
	for id, kind := range map[string]fault.Kind{"dunknown1": fault.NotFound, "": fault.Invalid, "X": fault.Invalid} {
		if _, err := cancel(t, p, id); !errors.Is(err, kind) {
			t.Errorf("%q: %v", id, err)
		}
	}
	if _, _, err := p.retrier.Cancel(t.Context(), poll.Again{DeliveryID: e.DeliveryID, Who: strings.Repeat("x", 101)}); !errors.Is(err, fault.Invalid) {
		t.Errorf("a long name: %v", err)
	}
}

func TestCancel_TheItemGoesOnBehindIt(t *testing.T) {
	w, p, n := deletedWorld(t)
	w.always(dispatcherv1.Outcome_OUTCOME_HELD, "session_holds")
	w.comment(t, n, "alice", "first")
	w.comment(t, n, "alice", "second")
	look(t, p)
	carry(t, p)
	first := entries(t, p)[1]
	_, err := cancel(t, p, first.DeliveryID)
	must(t, err)
	w.always(dispatcherv1.Outcome_OUTCOME_DELIVERED, "")
	carry(t, p)
	equal(t, "rows", rows(t, p), []string{"opened alice delivered", "comment alice cancelled cancelled_by_hand", "comment alice delivered"})
}
