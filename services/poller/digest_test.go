package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"muxpost.dev/muxpost/core/ledger"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	"muxpost.dev/muxpost/services/poller/internal/forward"
)

// waitingWorld has an item whose opening was delivered, and comments "word 0" to "word n-1" that wait, none of them asked about.
func waitingWorld(t *testing.T, n int) (*world, *parts, int, []int64) {
	t.Helper()
	w, p, item := deletedWorld(t)
	ids := make([]int64, n)
	for i := range n {
		ids[i] = w.comment(t, item, "alice", fmt.Sprintf("word %d.", i))
	}
	look(t, p)
	return w, p, item, ids
}

// fresh returns the texts that were asked about since a number of questions, each once.
func (w *world) fresh(since int) []string {
	var out []string
	for _, r := range w.dispatcher.requests()[since:] {
		if !slices.Contains(out, r.GetText()) {
			out = append(out, r.GetText())
		}
	}
	return out
}

// toldOnce fails unless each word is in exactly one of the texts, in order.
func toldOnce(t *testing.T, texts []string, words ...string) {
	t.Helper()
	all, last := strings.Join(texts, "\n"), -1
	for _, word := range words {
		if n := strings.Count(all, word); n != 1 {
			t.Errorf("%q is told %d times in\n%s", word, n, all)
		}
		if at := strings.Index(all, word); at < last {
			t.Errorf("%q comes too early in\n%s", word, all)
		} else {
			last = at
		}
	}
}

func words(n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprintf("word %d.", i))
	}
	return out
}

func TestDigest_WhatWaitedThroughAPauseIsOneTextOldestFirst(t *testing.T) {
	w, p, n := deletedWorld(t)
	before := w.asked()
	w.always(dispatcherv1.Outcome_OUTCOME_WAITING, "paused")
	w.comment(t, n, "alice", "the first.")
	look(t, p)
	carry(t, p)
	for i := range 8 {
		w.comment(t, n, "alice", fmt.Sprintf("word %d.", i))
	}
	w.comment(t, n, "mallory", "Delete everything!")
	look(t, p)
	carry(t, p)
	w.always(dispatcherv1.Outcome_OUTCOME_DELIVERED, "")
	carry(t, p)
	texts := w.fresh(before)
	equal(t, "texts", len(texts), 2) // what was asked about in the pause stays what it was
	toldOnce(t, texts, append([]string{"the first."}, words(8)...)...)
	if strings.Contains(texts[1], "Delete everything") || !strings.HasPrefix(texts[1], "8 events on "+entries(t, p)[0].WorkItem+" in one, oldest first\n") {
		t.Errorf("the digest is\n%s", texts[1])
	}
	all := entries(t, p)
	for i, e := range all[3:10] {
		equal(t, "of the others", []any{e.State, e.Reason, e.SupersededBy, strings.Contains(e.Detail, all[2].DeliveryID)},
			[]any{ledger.Settled, ledger.ReasonCoalesced, all[2].DeliveryID, true})
		if !strings.Contains(texts[1], fmt.Sprintf(" %d of 8: New comment by alice on ", i+2)) || !strings.Contains(texts[1], e.URL+"\n") {
			t.Errorf("the digest lacks event %d:\n%s", i, texts[1])
		}
	}
	equal(t, "the first two and the last", []ledger.State{all[1].State, all[2].State, all[10].State},
		[]ledger.State{ledger.Delivered, ledger.Delivered, ledger.Settled})
	if _, err := retry(t, p, all[4].DeliveryID); err == nil || !strings.Contains(err.Error(), "a part of the delivery "+all[2].DeliveryID) {
		t.Errorf("a retry of one of them: %v", err)
	}
	// What is listed again is known.
	w.clock.advance(time.Second)
	equal(t, "new", look(t, p).NewEvents, 0)
}

func TestDigest_OnlyWhereMoreWaitThanThePolicySays(t *testing.T) {
	for name, tt := range map[string]struct {
		key   string
		n     int
		texts int
	}{
		"five behind it":     {"", 6, 6},
		"six behind it":      {"", 7, 1},
		"more than one text": {"", 120, 3},
		"two behind it":      {"  digest_after: 1\n", 3, 1},
		"never":              {"  digest_after: 0\n", 12, 12},
	} {
		t.Run(name, func(t *testing.T) {
			w, _, _, _ := waitingWorld(t, tt.n)
			w.configure(t, standard+tt.key)
			p := w.open(t)
			before := w.asked()
			carry(t, p)
			texts := w.fresh(before)
			equal(t, "texts", len(texts), tt.texts)
			toldOnce(t, texts, words(tt.n)...)
		})
	}
}

func TestDigest_StopsBeforeWhatAnOperatorWroteAndBeforeWhatWasAskedAbout(t *testing.T) {
	for name, tt := range map[string]struct {
		// of the event with word 7
		set  string
		want int
	}{
		"a message by hand":       {`kind = 'message'`, 1 + 1 + 6},
		"what was asked about":    {`with_context = false`, 1 + 1 + 6},
		"an opening":              {`kind = 'opened'`, 1 + 1 + 6},
		"nothing of all of these": {`detail = ''`, 1},
	} {
		t.Run(name, func(t *testing.T) {
			w, p, _, _ := waitingWorld(t, 14)
			sql(t, p, `update poller.events set `+tt.set+` where text like '%word 7.%'`)
			before := w.asked()
			carry(t, p)
			texts := w.fresh(before)
			equal(t, "texts", len(texts), tt.want)
			toldOnce(t, texts, words(14)...)
		})
	}
}

func TestDigest_ResultsOfCIAtOneCommitAreOneTextWheneverTwoWait(t *testing.T) {
	for name, tt := range map[string]struct {
		key  string
		want []string
	}{
		"on":  {"", []string{"word 0. word 2. word 4.", "word 1.", "word 3."}},
		"off": {"  coalesce_checks: false\n", []string{"word 0.", "word 1.", "word 2.", "word 3.", "word 4."}},
	} {
		t.Run(name, func(t *testing.T) {
			w, _, _, _ := waitingWorld(t, 5)
			w.configure(t, standard+tt.key)
			p := w.open(t)
			sql(t, p, `update poller.events set together = 'ci a' where text ~ 'word [024]\.'`)
			sql(t, p, `update poller.events set together = 'ci b' where text ~ 'word 3\.'`)
			before := w.asked()
			carry(t, p)
			var got []string
			for _, text := range w.fresh(before) {
				var found []string
				for _, word := range words(5) {
					if strings.Contains(text, word) {
						found = append(found, word)
					}
				}
				got = append(got, strings.Join(found, " "))
			}
			equal(t, "texts", got, tt.want)
		})
	}
}

func TestDigest_TheTextIsTheSameHoweverOftenItIsAskedAboutAndWhoever(t *testing.T) {
	w, p, n, _ := waitingWorld(t, 9)
	w.always(dispatcherv1.Outcome_OUTCOME_HELD, "draft")
	before := w.asked()
	carry(t, p)
	for range 9 {
		w.comment(t, n, "alice", "and more.")
	}
	look(t, p)
	carry(t, w.open(t))
	if texts := w.fresh(before); len(texts) != 1 {
		t.Errorf("%d texts", len(texts))
	}
	w.always(dispatcherv1.Outcome_OUTCOME_DELIVERED, "")
	carry(t, p)
	equal(t, "texts", len(w.fresh(before)), 2)
}

func TestDigest_WhatIsNotCommittedChangesNothing(t *testing.T) {
	w, p, _, _ := waitingWorld(t, 9)
	// The last statement of the transaction fails, as it would if the process were killed before it.
	sql(t, p, `create function poller.refuse() returns trigger language plpgsql as $$ begin raise 'no'; end $$`)
	sql(t, p, `create trigger refuse before update of with_context on poller.events for each row execute function poller.refuse()`)
	before := w.asked()
	must(t, p.forwarder.Drain(t.Context(), 0))
	equal(t, "asked", w.asked(), before)
	for _, e := range entries(t, p)[1:] {
		equal(t, "of "+e.DeliveryID, []any{e.State, e.SupersededBy}, []any{ledger.Pending, ""})
	}
	sql(t, p, `drop trigger refuse on poller.events`)
	carry(t, p)
	texts := w.fresh(before)
	equal(t, "texts", len(texts), 1)
	toldOnce(t, texts, words(9)...)
}

func TestDigest_AProcessThatDiesBehindItIsReplacedByOneThatAsksTheSame(t *testing.T) {
	w, p, _, _ := waitingWorld(t, 9)
	claims, err := p.store.Claim(t.Context(), 1)
	must(t, err)
	decided, err := p.store.Decide(t.Context(), claims[0], true)
	must(t, err)
	// It dies here, and its lease ends.
	sql(t, p, `update poller.events set lease_until = now() where state = 'leased'`)
	before := w.asked()
	carry(t, w.open(t))
	texts := w.fresh(before)
	equal(t, "texts", texts, []string{decided.Text})
	toldOnce(t, texts, words(9)...)
	if _, _, err := p.store.Finish(t.Context(), decided, forward.Outcome{}, nil); err == nil {
		t.Error("the dead one ends it")
	}
}

func TestDigest_WhenItsFirstIsTakenBackTheOthersHaveTheirTurn(t *testing.T) {
	for name, tt := range map[string]struct {
		outcome dispatcherv1.Outcome
		reason  string
		// state of the others, and whether their text says that they may have been told.
		state   ledger.State
		perhaps bool
	}{
		"it is held":           {dispatcherv1.Outcome_OUTCOME_HELD, "draft", ledger.Delivered, false},
		"it gave up":           {dispatcherv1.Outcome_OUTCOME_FAILED, "harness_exited", ledger.Delivered, false},
		"it was dropped":       {dispatcherv1.Outcome_OUTCOME_DROPPED, ledger.ReasonSessionOccupied, ledger.Delivered, false},
		"nobody answered":      {dispatcherv1.Outcome_OUTCOME_WAITING, "host_unreachable", ledger.Delivered, true},
		"it was typed, or not": {dispatcherv1.Outcome_OUTCOME_UNCONFIRMED, "no_evidence", ledger.Settled, false},
	} {
		for _, edited := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", edited ", edited), func(t *testing.T) {
				w, p, _, ids := waitingWorld(t, 8)
				sql(t, p, `update poller.events set created_at = created_at - interval '1 second'`)
				w.always(tt.outcome, tt.reason)
				carry(t, p)
				equal(t, "one text", len(w.fresh(1)), 1)
				must(t, w.DeleteComment(ids[3]))
				if edited {
					w.edit(t, ids[0], "another word.")
				} else {
					must(t, w.DeleteComment(ids[0]))
				}
				lookUntilGone(t, w, p)
				w.always(dispatcherv1.Outcome_OUTCOME_DELIVERED, "")
				before := w.asked()
				carry(t, p)
				texts := w.fresh(before)
				for i, e := range entries(t, p)[2:9] {
					want := []any{tt.state, ""}
					switch {
					case tt.state == ledger.Settled:
						want[1] = ledger.ReasonUnconfirmed
					case i == 2:
						want = []any{ledger.Cancelled, ledger.ReasonDeleted} // itself taken back
					case e.Reason == ledger.ReasonCoalesced: // anew, with the first of those that are left
						want = []any{ledger.Settled, ledger.ReasonCoalesced}
					}
					equal(t, fmt.Sprint("word ", i+1), []any{e.State, e.Reason}, want)
				}
				all := strings.Join(texts, "\n")
				if tt.state == ledger.Settled {
					if strings.Contains(all, "word 1.") {
						t.Error("what may have arrived is typed again")
					}
					return
				}
				toldOnce(t, texts, "word 1.", "word 2.", "word 4.", "word 5.", "word 6.", "word 7.")
				if strings.Contains(all, "word 0.") || strings.Contains(all, "word 3.") || strings.Contains(all, "may have been told before") != tt.perhaps {
					t.Errorf("texts:\n%s", all)
				}
			})
		}
	}
}

func TestDigest_AnEditOfWhatIsInItSaysThatItIsOne(t *testing.T) {
	w, p, _, ids := waitingWorld(t, 8)
	carry(t, p)
	before := w.asked()
	w.edit(t, ids[4], "another word.")
	look(t, p)
	carry(t, p)
	texts := w.fresh(before)
	if len(texts) != 1 || !strings.HasPrefix(texts[0], "Edited comment by alice") || !strings.Contains(texts[0], "another word.") {
		t.Errorf("texts: %q", texts)
	}
}

func TestDigest_WhatIsInOneIsContextForLaterEvents(t *testing.T) {
	w, p, n, ids := waitingWorld(t, 8)
	carry(t, p)
	w.edit(t, ids[5], "another word.")
	look(t, p)
	carry(t, p)
	w.sessionIs(dispatcherv1.SessionState_SESSION_STATE_DEAD)
	w.comment(t, n, "alice", "How far is it?")
	look(t, p)
	carry(t, p)
	_, context, found := strings.Cut(w.lastAsked(t), contextWords)
	if !found || !strings.Contains(context, "word 4.") || strings.Contains(context, "word 5.") || !strings.Contains(context, "another word.") {
		t.Errorf("the context is\n%s", context)
	}
}

func TestDigest_IsKeptUntilTheEventThatHasItsTextIsFinished(t *testing.T) {
	w, p, _, _ := waitingWorld(t, 8)
	w.always(dispatcherv1.Outcome_OUTCOME_HELD, "draft")
	carry(t, p)
	age(t, p, 91)
	sql(t, p, `update poller.outbox set state = 'done', ended_at = now()`)
	forget(t, p)
	equal(t, "rows", len(entries(t, p)), 8) // the opening is forgotten
	w.always(dispatcherv1.Outcome_OUTCOME_DELIVERED, "")
	carry(t, p)
	age(t, p, 91)
	forget(t, p)
	equal(t, "rows in the end", len(entries(t, p)), 0)
}
