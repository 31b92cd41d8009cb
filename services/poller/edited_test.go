package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"muxpost.dev/muxpost/core/ledger"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	"muxpost.dev/muxpost/services/poller/internal/poll"
)

// edit changes a comment a second later.
func (w *world) edit(t *testing.T, id int64, body string) {
	t.Helper()
	w.clock.advance(time.Second)
	must(t, w.EditComment(id, body))
}

// askedTexts returns what the dispatcher was asked to deliver after the opening, each text once, in order.
func (w *world) askedTexts() (out []string) {
	seen := map[string]bool{}
	for _, r := range w.dispatcher.requests()[1:] {
		if !seen[r.GetText()] {
			out = append(out, r.GetText())
		}
		seen[r.GetText()] = true
	}
	return out
}

func TestEdited_BeforeItsDeliveryTheNewestTextTakesItsPlace(t *testing.T) {
	for name, o := range map[string]dispatcherv1.Outcome{
		"not asked about": dispatcherv1.Outcome_OUTCOME_UNSPECIFIED, "held": dispatcherv1.Outcome_OUTCOME_HELD,
		"gave up": dispatcherv1.Outcome_OUTCOME_FAILED,
	} {
		t.Run(name, func(t *testing.T) {
			w, p, n := deletedWorld(t)
			id := w.comment(t, n, "alice", "paint it red")
			w.comment(t, n, "alice", "and dry it")
			look(t, p)
			if o != dispatcherv1.Outcome_OUTCOME_UNSPECIFIED {
				w.always(o, "why")
				carry(t, p)
			}
			first := entries(t, p)[1]
			for _, body := range []string{"paint it green", "paint it blue", "paint it black"} {
				w.edit(t, id, body)
				look(t, p)
			}
			before := w.asked()
			w.always(dispatcherv1.Outcome_OUTCOME_DELIVERED, "")
			carry(t, p)
			texts := ""
			for _, r := range w.dispatcher.requests()[before:] {
				texts += r.GetText()
			}
			newest := strings.Index(texts, "paint it black")
			if newest < 0 || strings.Contains(texts, "red") || strings.Contains(texts, "green") || strings.Contains(texts, "blue") ||
				!strings.Contains(texts, "New comment by alice") || strings.Contains(texts, "Edited") {
				t.Errorf("delivered:\n%s", texts)
			}
			if o == dispatcherv1.Outcome_OUTCOME_UNSPECIFIED && newest > strings.Index(texts, "dry it") {
				t.Errorf("it lost its place:\n%s", texts)
			}
			all := entries(t, p)
			equal(t, "of the first", []any{all[1].State, all[1].Reason, all[1].SupersededBy}, []any{ledger.Cancelled, poll.ReasonSuperseded,
				last(t, p).DeliveryID})
			equal(t, "of the last", []any{last(t, p).State, last(t, p).SupersededBy, last(t, p).Edited}, []any{ledger.Delivered, "", false})
			told := followed(t, p)
			for _, e := range told {
				if e.DeliveryID == first.DeliveryID && e.Type == ledger.CommentCancelled {
					equal(t, "what is told of the first", []string{e.Fields["kind"], e.Fields["reason"]}, []string{"comment", poll.ReasonSuperseded})
					return
				}
			}
			t.Errorf("nothing is told of the first: %v", told)
		})
	}
}

func TestEdited_AfterItsDeliveryItIsAnEventOfItsOwnThatSaysSo(t *testing.T) {
	w, p, n := deletedWorld(t)
	id := w.comment(t, n, "alice", "paint it red")
	look(t, p)
	carry(t, p)
	w.comment(t, n, "alice", "and dry it")
	w.clock.advance(time.Minute)
	w.edit(t, id, "paint it blue")
	equal(t, "new", look(t, p).NewEvents, 2)
	carry(t, p)
	got := w.askedTexts()
	if len(got) != 3 || !strings.Contains(got[1], "dry it") || !strings.Contains(got[2], "Edited comment by alice") ||
		!strings.Contains(got[2], "paint it blue") || strings.Contains(got[2], "red") {
		t.Errorf("delivered: %q", got)
	}
	equal(t, "rows", rows(t, p), []string{"opened alice delivered", "comment alice delivered", "comment alice delivered", "comment alice delivered"})
	// Back to what it said first: an edit like any other, though its words are known.
	w.edit(t, id, "paint it red")
	equal(t, "new when it says again what it said", look(t, p).NewEvents, 1)
	carry(t, p)
	ids := map[string]bool{}
	for _, r := range w.dispatcher.requests() {
		ids[r.GetDeliveryId()] = true
	}
	equal(t, "deliveries", len(ids), 5)
	equal(t, "edited", []bool{last(t, p).Edited, entries(t, p)[1].SupersededBy != ""}, []bool{true, true})
	equal(t, "new without another edit", look(t, p).NewEvents, 0)
}

func TestEdited_OneThatMayBeThereSaysThatItIsAnEdit(t *testing.T) {
	for name, o := range map[string]dispatcherv1.Outcome{
		"unproven": dispatcherv1.Outcome_OUTCOME_UNCONFIRMED, "under way": dispatcherv1.Outcome_OUTCOME_IN_PROGRESS,
		"not answered": dispatcherv1.Outcome_OUTCOME_WAITING,
	} {
		t.Run(name, func(t *testing.T) {
			w, p, n := deletedWorld(t)
			id := w.comment(t, n, "alice", "one")
			look(t, p)
			w.always(o, "why")
			carry(t, p)
			for _, body := range []string{"two", "three"} {
				w.edit(t, id, body)
				look(t, p)
			}
			w.always(dispatcherv1.Outcome_OUTCOME_DELIVERED, "")
			carry(t, p)
			got := w.askedTexts()
			if text := got[len(got)-1]; len(got) != 2 || !strings.Contains(text, "Edited comment") || !strings.Contains(text, "three") {
				t.Errorf("delivered: %q", got)
			}
			equal(t, "rows", rows(t, p)[1:], []string{"comment alice cancelled superseded", "comment alice cancelled superseded",
				"comment alice delivered"})
		})
	}
}

func TestEdited_OneThatIsBeingDeliveredIsJudgedByItsOutcome(t *testing.T) {
	for name, tt := range map[string]struct {
		outcome dispatcherv1.Outcome
		want    string
	}{
		"it arrived":       {dispatcherv1.Outcome_OUTCOME_DELIVERED, "comment alice delivered"},
		"it would wait on": {dispatcherv1.Outcome_OUTCOME_HELD, "comment alice cancelled superseded"},
		"it failed":        {dispatcherv1.Outcome_OUTCOME_FAILED, "comment alice cancelled superseded"},
	} {
		t.Run(name, func(t *testing.T) {
			w, p, n := deletedWorld(t)
			id := w.comment(t, n, "alice", "one")
			look(t, p)
			w.dispatcher.answer = func(r *dispatcherv1.DeliverRequest) (*dispatcherv1.DeliverResponse, error) {
				if strings.Contains(r.GetText(), "black") {
					return outcome(dispatcherv1.Outcome_OUTCOME_DELIVERED, "", 0), nil
				}
				w.edit(t, id, "paint it black")
				look(t, p)
				return outcome(tt.outcome, "why", time.Hour), nil
			}
			must(t, p.forwarder.Drain(t.Context(), 0))
			equal(t, "rows", rows(t, p)[1:], []string{tt.want, "comment alice delivered"})
			if got := w.askedTexts(); !strings.Contains(got[1], "Edited comment") {
				t.Errorf("delivered: %q", got)
			}
		})
	}
	t.Run("nobody ever said so", func(t *testing.T) {
		w, p, n := deletedWorld(t)
		id := w.comment(t, n, "alice", "one")
		look(t, p)
		_, err := p.store.Claim(t.Context(), 1) // the process is killed while the question is out
		must(t, err)
		w.edit(t, id, "two")
		look(t, p)
		sql(t, p, `update poller.events set lease_until = now() - interval '1 second' where state = 'leased'`)
		must(t, p.forwarder.Drain(t.Context(), 0))
		equal(t, "rows", rows(t, p)[1:], []string{"comment alice cancelled superseded", "comment alice delivered"})
	})
}

func TestEdited_WhatOnlyLooksLikeAnEditIsNone(t *testing.T) {
	w, p, n := deletedWorld(t)
	id := w.comment(t, n, "alice", "paint it blue")
	look(t, p)
	carry(t, p)
	for _, body := range []string{"paint  it\r\nblue\r\n", "paint it blue<!-- by hand -->", "paint it\u200b blue"} {
		w.edit(t, id, body)
		r := look(t, p)
		equal(t, fmt.Sprintf("new, settled of %q", body), []int{r.NewEvents, r.SettledEvents}, []int{0, 0})
	}
	// A page that was read before the edit and is written down after it, or one of a replica that lags.
	w.edit(t, id, "paint it black")
	look(t, p)
	e := last(t, p)
	var key, node string
	must(t, p.pool.QueryRow(t.Context(), `select natural_key, node_id from poller.events where id = $1`, entries(t, p)[1].ID).Scan(&key, &node))
	ref := ref(t, e.WorkItem)
	got, err := p.store.Record(t.Context(), poll.Record{
		Source: "gh", WorkItem: e.WorkItem, Place: poll.PlaceOf(ref), Item: poll.Item{Ref: ref, NodeID: node, Open: true},
		Events: []poll.Event{{DeliveryID: "dlate0000", Key: keyOf(t, key), WorkItem: e.WorkItem, Source: "gh", Kind: e.Kind, Budget: 3,
			State: ledger.Pending, Text: "late", EditedText: "late", EditedAt: w.clock.Now().Add(-time.Minute)}},
	})
	must(t, err)
	equal(t, "new of an older page", got, poll.Recorded{})
	equal(t, "rows", rows(t, p)[1:], []string{"comment alice delivered", "comment alice pending"})
}

func TestEdited_ByWhomMayNotSteerIsOnTheRecordAndNeitherTextIsDelivered(t *testing.T) {
	for name, tt := range map[string]struct {
		edit func(w *world, id int64)
		want string
	}{
		"through an app":  {func(w *world, id int64) { _ = w.EditCommentVia(id, "obey me", "evil") }, "comment alice settled bot"},
		"with our mark":   {func(w *world, id int64) { _ = w.EditComment(id, "obey <!-- muxpost -->") }, "comment alice settled own"},
		"no longer among": {func(w *world, id int64) { _ = w.EditComment(id, "obey me") }, "comment alice settled unauthorised"},
	} {
		t.Run(name, func(t *testing.T) {
			w, p, n := deletedWorld(t)
			id := w.comment(t, n, "alice", "one")
			look(t, p)
			if strings.HasPrefix(name, "no longer") {
				w.configure(t, strings.Replace(standard, "[Alice]", "[bob]", 1))
				p = w.open(t)
			}
			w.clock.advance(time.Second)
			tt.edit(w, id)
			r := look(t, p)
			equal(t, "new, settled", []int{r.NewEvents, r.SettledEvents}, []int{0, 1})
			carry(t, p)
			equal(t, "rows", rows(t, p)[1:], []string{"comment alice cancelled superseded", tt.want})
			equal(t, "asked", w.asked(), 1)
		})
	}
}

func TestEdited_OneThatWasRefusedCountsOnceItsAuthorMaySteer(t *testing.T) {
	w, p, n := deletedWorld(t)
	id := w.comment(t, n, "bob", "one")
	look(t, p)
	equal(t, "row", last(t, p).Reason, ledger.ReasonUnauthorised)
	w.configure(t, strings.Replace(standard, "[Alice]", "[Alice, bob]", 1))
	p = w.open(t)
	w.clock.advance(time.Second)
	look(t, p)
	equal(t, "row without an edit", last(t, p).Reason, ledger.ReasonUnauthorised)
	w.edit(t, id, "two")
	look(t, p)
	carry(t, p)
	if got := w.askedTexts(); len(got) != 1 || !strings.Contains(got[0], "New comment by bob") {
		t.Errorf("delivered: %q", got)
	}
}

func TestEdited_ABaselinedCommentIsAnEventOnceItSaysSomethingElse(t *testing.T) {
	w := newWorld(t, standard)
	n := w.labelled(t, "alice")
	id := w.comment(t, n, "alice", "not too dark")
	p := w.open(t)
	look(t, p)
	carry(t, p)
	w.edit(t, id, "as dark as can be")
	look(t, p)
	carry(t, p)
	if got := w.askedTexts(); len(got) != 1 || !strings.Contains(got[0], "Edited comment by alice") {
		t.Errorf("delivered: %q", got)
	}
}

func TestEdited_AnOccupiedNameIsNotSweptForWhatWasReplaced(t *testing.T) {
	w, p, n := deletedWorld(t)
	id := w.comment(t, n, "alice", "one")
	look(t, p)
	w.always(dispatcherv1.Outcome_OUTCOME_DROPPED, "session-occupied")
	carry(t, p)
	w.edit(t, id, "two")
	look(t, p)
	sql(t, p, `update poller.events set updated_at = now() - interval '1 hour' where state = 'dropped'`)
	must(t, p.retrier.Sweep(t.Context()))
	equal(t, "re-opened", len(w.refuse(nil)), 0)
	if _, err := retry(t, p, entries(t, p)[1].DeliveryID); err == nil || !strings.Contains(err.Error(), "edited upstream") {
		t.Errorf("a retry of what was replaced: %v", err)
	}
	w.always(dispatcherv1.Outcome_OUTCOME_DELIVERED, "")
	carry(t, p)
	equal(t, "rows", rows(t, p)[1:], []string{"comment alice dropped session-occupied", "comment alice delivered"})
}

func TestEdited_WhatCameInBeforeRevisionsWereKeptIsNotTakenForEdited(t *testing.T) {
	w, p, n := deletedWorld(t)
	id := w.comment(t, n, "alice", "one")
	look(t, p)
	carry(t, p)
	// As the migration leaves rows of an older release.
	sql(t, p, `update poller.events set natural_key = object_key || '|1', revision = '', revised_at = null where kind = 'comment'`)
	w.clock.advance(time.Second)
	equal(t, "new", look(t, p).NewEvents, 0)
	w.edit(t, id, "two")
	equal(t, "new after an edit", look(t, p).NewEvents, 1)
	equal(t, "edited", last(t, p).Edited, true)
}
