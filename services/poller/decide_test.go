package main

import (
	"errors"
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

func api(p *parts) *server.Server { return server.New(p.poller, p.retrier, p.store, p.store) }

func typeAgain(t *testing.T, p *parts, id string) (*pollerv1.RetryResponse, error) {
	t.Helper()
	return api(p).Retry(t.Context(), &pollerv1.RetryRequest{DeliveryId: id, Who: "ann", Reason: "it is not there", TypeAgain: true})
}

func settle(t *testing.T, p *parts, id string) (*pollerv1.SettleResponse, error) {
	t.Helper()
	return api(p).Settle(t.Context(), &pollerv1.SettleRequest{DeliveryId: id, Who: "ann", Reason: "told by hand"})
}

// unconfirmedWorld has a comment for which there was no evidence, and one behind it that waits.
func unconfirmedWorld(t *testing.T) (*world, *parts, int64) {
	t.Helper()
	w, p, n := deletedWorld(t)
	id := w.comment(t, n, "alice", "paint it")
	look(t, p)
	w.always(dispatcherv1.Outcome_OUTCOME_UNCONFIRMED, "no_evidence")
	must(t, p.forwarder.Drain(t.Context(), 0))
	sql(t, p, `update poller.events set unproven_since = unproven_since - interval '11 minutes', next_look = now() where state = 'pending'`)
	must(t, p.forwarder.Drain(t.Context(), 0))
	equal(t, "rows", rows(t, p), []string{"opened alice delivered", "comment alice settled unconfirmed"})
	w.comment(t, n, "alice", "and the door")
	look(t, p)
	return w, p, id
}

func TestTypeAgain_IsADeliveryOfItsOwnThatSaysWhatItIsAndKeepsItsPlace(t *testing.T) {
	w, p, _ := unconfirmedWorld(t)
	old := entries(t, p)[1]
	before := w.asked()
	answer, err := typeAgain(t, p, old.DeliveryID)
	must(t, err)
	row := answer.GetEntry()
	if !answer.GetRetried() || row.GetDeliveryId() == old.DeliveryID || row.GetState() != pollerv1.LedgerState_LEDGER_STATE_PENDING {
		t.Errorf("answer %v", answer)
	}
	w.always(dispatcherv1.Outcome_OUTCOME_DELIVERED, "")
	carry(t, p)
	asked := w.dispatcher.requests()[before:]
	if len(asked) != 2 || asked[0].GetDeliveryId() != row.GetDeliveryId() || !strings.Contains(asked[0].GetText(), "typed once more by order") ||
		!strings.Contains(asked[0].GetText(), "New comment by alice") || !strings.Contains(asked[0].GetText(), "paint it") ||
		strings.Contains(asked[1].GetText(), "once more") {
		t.Errorf("asked %v", asked)
	}
	equal(t, "rows", rows(t, p)[1:], []string{"comment alice settled typed_again", "comment alice delivered", "comment alice delivered"})
	e := entries(t, p)[1]
	equal(t, "of the old one", []any{e.SupersededBy, strings.Contains(e.Detail, "by ann: it is not there")}, []any{row.GetDeliveryId(), true})
	told := followed(t, p)
	last := told[len(told)-1]
	equal(t, "what is told", []string{string(last.Type), last.DeliveryID, last.Fields["as"], last.Fields["who"]},
		[]string{string(ledger.Retried), old.DeliveryID, row.GetDeliveryId(), "ann"})
	if _, err := typeAgain(t, p, old.DeliveryID); !errors.Is(err, fault.Conflict) || !strings.Contains(err.Error(), row.GetDeliveryId()) {
		t.Errorf("a second order: %v", err)
	}
	// What is listed once more is what is known.
	w.clock.advance(time.Second)
	equal(t, "new", look(t, p).NewEvents, 0)
}

func TestTypeAgain_OneThatIsUnconfirmedOnceMoreCanBeOrderedOnceMore(t *testing.T) {
	_, p, _ := unconfirmedWorld(t)
	ids := map[string]bool{}
	id := entries(t, p)[1].DeliveryID
	for range 4 {
		ids[id] = true
		answer, err := typeAgain(t, p, id)
		must(t, err)
		id = answer.GetEntry().GetDeliveryId()
		sql(t, p, `update poller.events set state = 'settled', reason = 'unconfirmed', next_look = null where delivery_id = $1`, id)
	}
	equal(t, "ids", len(ids), 4)
}

func TestTypeAgain_OnlyWhatIsUnconfirmedAndByAnOrderAlone(t *testing.T) {
	w, p, _ := unconfirmedWorld(t)
	id := entries(t, p)[1].DeliveryID
	for _, set := range []string{
		`state = 'delivered', reason = ''`, `state = 'settled', reason = 'unauthorised'`, `state = 'dropped', reason = 'session-occupied'`,
		`state = 'gave_up', reason = 'x'`, `state = 'pending', reason = 'no_evidence', next_look = now(), unproven_since = now()`,
		`state = 'cancelled', reason = 'deleted_upstream', next_look = null`, `state = 'settled', reason = 'unconfirmed', deleted_at = now()`,
	} {
		sql(t, p, `update poller.events set `+set+` where delivery_id = $1`, id)
		if _, err := typeAgain(t, p, id); !errors.Is(err, fault.Conflict) {
			t.Errorf("%s: %v", set, err)
		}
		// Nor where it became so after it was looked at.
		if made, err := p.store.TypeAgain(t.Context(), poll.Again{DeliveryID: id}); err != nil || made != "" {
			t.Errorf("%s: %q, %v", set, made, err)
		}
	}
	equal(t, "rows", len(rows(t, p)), 3)
	// Without the order it is only looked for evidence again, under the same id.
	sql(t, p, `update poller.events set deleted_at = null, state = 'settled', reason = 'unconfirmed' where delivery_id = $1`, id)
	before := w.asked()
	answer, err := retry(t, p, id)
	must(t, err)
	equal(t, "only for evidence", answer.GetEvidenceOnly(), true)
	must(t, p.forwarder.Drain(t.Context(), 0))
	equal(t, "asked about", w.dispatcher.requests()[before].GetDeliveryId(), id)
}

func TestTypeAgain_ADeletionOrAnEditUpstreamCountsForItToo(t *testing.T) {
	t.Run("deleted", func(t *testing.T) {
		w, p, id := unconfirmedWorld(t)
		_, err := typeAgain(t, p, entries(t, p)[1].DeliveryID)
		must(t, err)
		must(t, w.DeleteComment(id))
		w.clock.advance(time.Second)
		lookUntilGone(t, w, p)
		equal(t, "the new one", last(t, p).State, ledger.Cancelled)
	})
	t.Run("edited", func(t *testing.T) {
		w, p, id := unconfirmedWorld(t)
		_, err := typeAgain(t, p, entries(t, p)[1].DeliveryID)
		must(t, err)
		w.edit(t, id, "leave it")
		look(t, p)
		equal(t, "rows", rows(t, p)[1:], []string{"comment alice settled typed_again", "comment alice pending",
			"comment alice cancelled superseded", "comment alice pending"})
		equal(t, "the last one says that it is an edit", last(t, p).Edited, true)
	})
}

func TestSettle_EndsWhatNeedsAPersonForGood(t *testing.T) {
	for name, set := range map[string]string{
		"unconfirmed": `state = 'settled', reason = 'unconfirmed'`, "dropped": `state = 'dropped', reason = 'session-occupied'`,
		"gave up": `state = 'gave_up', reason = 'harness_exited', gave_up_versions = '{v0}'`,
	} {
		t.Run(name, func(t *testing.T) {
			w, p, _ := unconfirmedWorld(t)
			id := entries(t, p)[1].DeliveryID
			sql(t, p, `update poller.events set `+set+` where delivery_id = $1`, id)
			sql(t, p, `insert into poller.outbox (event_id, post) select id, 'notice_unconfirmed' from poller.events where delivery_id = $1`, id)
			for _, want := range []bool{true, false} {
				answer, err := settle(t, p, id)
				must(t, err)
				equal(t, "answer", []any{answer.GetSettled(), answer.GetEntry().GetState(), answer.GetEntry().GetReason()},
					[]any{want, pollerv1.LedgerState_LEDGER_STATE_SETTLED, poll.ReasonDone})
				if !strings.Contains(answer.GetEntry().GetDetail(), "by ann: told by hand") {
					t.Error(answer.GetEntry().GetDetail())
				}
			}
			equal(t, "what is told on the ticket", outbox(t, p), []string{"notice_unconfirmed skipped"})
			told := followed(t, p)
			equal(t, "what is told", []string{string(told[len(told)-1].Type), told[len(told)-1].Fields["who"]}, []string{"poll.settled", "ann"})
			if _, err := retry(t, p, id); !errors.Is(err, fault.Conflict) || !strings.Contains(err.Error(), "a person said that it is done") {
				t.Errorf("a retry: %v", err)
			}
			w.always(dispatcherv1.Outcome_OUTCOME_DELIVERED, "")
			p = w.release(t, "v2")
			look(t, p)
			carry(t, p)
			equal(t, "row in the end", rows(t, p)[1], "comment alice settled done")
		})
	}
}

func TestSettle_RefusesWhatDoesNotNeedAPerson(t *testing.T) {
	_, p, _ := unconfirmedWorld(t)
	id := entries(t, p)[1].DeliveryID
	for _, set := range []string{
		`state = 'delivered', reason = ''`, `state = 'settled', reason = 'unauthorised'`, `state = 'held', reason = 'busy', next_look = now()`,
		`state = 'cancelled', reason = 'superseded'`,
	} {
		sql(t, p, `update poller.events set `+set+` where delivery_id = $1`, id)
		_, err := settle(t, p, id)
		if !errors.Is(err, fault.Conflict) {
			t.Errorf("%s: %v", set, err)
		}
		// What waits may be what the list of attention calls unconfirmed already.
		if waits := strings.Contains(set, "held"); strings.Contains(err.Error(), "after ten minutes without evidence") != waits {
			t.Errorf("%s: %v", set, err)
		}
	}
	for id, kind := range map[string]fault.Kind{"dunknown1": fault.NotFound, "": fault.Invalid} {
		if _, err := settle(t, p, id); !errors.Is(err, kind) {
			t.Errorf("%q: %v", id, err)
		}
	}
}

func TestAcknowledge_IsKeptWithWhoAndWhenAndReplacedAndForgottenWithItsEvent(t *testing.T) {
	w, p, _ := deletedWorld(t)
	id := entries(t, p)[0].DeliveryID
	acknowledge := func(r *pollerv1.AcknowledgeRequest) *pollerv1.Acknowledgement {
		t.Helper()
		answer, err := api(p).Acknowledge(t.Context(), r)
		must(t, err)
		return answer.GetAcknowledgement()
	}
	acknowledge(&pollerv1.AcknowledgeRequest{EntryId: "source-gh", State: "source since yesterday", Who: "ann"})
	for _, state := range []string{"dropped", "gave_up"} {
		a := acknowledge(&pollerv1.AcknowledgeRequest{EntryId: id, State: state, DeliveryId: id, Who: "bob", Reason: "known"})
		equal(t, "kept", []any{a.GetState(), a.GetWho(), a.GetReason(), a.GetCreateTime().IsValid()}, []any{state, "bob", "known", true})
	}
	list := func() (out []string) {
		answer, err := api(w.open(t)).ListAcknowledgements(t.Context(), &pollerv1.ListAcknowledgementsRequest{})
		must(t, err)
		for _, a := range answer.GetAcknowledgements() {
			out = append(out, a.GetEntryId()+" "+a.GetState())
		}
		return out
	}
	equal(t, "kept", list(), []string{id + " gave_up", "source-gh source since yesterday"})
	age(t, p, 91)
	forget(t, p)
	equal(t, "kept without its event", list(), []string{"source-gh source since yesterday"})
	for _, bad := range []*pollerv1.AcknowledgeRequest{{}, {EntryId: "x"}, {EntryId: "x\ny", State: "s"}, {EntryId: "x", State: strings.Repeat("s", 301)},
		{EntryId: "x", State: "s", DeliveryId: "X"}, {EntryId: "x", State: "s", Who: strings.Repeat("x", 101)}} {
		if _, err := api(p).Acknowledge(t.Context(), bad); !errors.Is(err, fault.Invalid) {
			t.Errorf("%v: %v", bad, err)
		}
	}
	if _, err := api(p).ListAcknowledgements(t.Context(), &pollerv1.ListAcknowledgementsRequest{PageSize: 5001}); !errors.Is(err, fault.Invalid) {
		t.Error(err)
	}
}

func settledByHand(t *testing.T) *parts {
	t.Helper()
	_, p, _ := unconfirmedWorld(t)
	_, err := settle(t, p, entries(t, p)[1].DeliveryID)
	must(t, err)
	return p
}
