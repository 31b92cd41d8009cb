package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"muxpost.dev/muxpost/core/ledger"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	"muxpost.dev/muxpost/services/poller/internal/poll"
	"muxpost.dev/muxpost/test/fakegithub"
)

// deletedWorld has a labelled issue whose opening event is delivered.
func deletedWorld(t *testing.T) (*world, *parts, int) {
	t.Helper()
	w := newWorld(t, standard)
	n := w.labelled(t, "alice")
	p := w.open(t)
	look(t, p)
	carry(t, p)
	return w, p, n
}

// lookUntilGone looks twice, more than a minute apart: one listing alone proves nothing.
func lookUntilGone(t *testing.T, w *world, p *parts) {
	t.Helper()
	look(t, p)
	w.clock.advance(61 * time.Second)
	look(t, p)
}

func last(t *testing.T, p *parts) poll.Entry {
	t.Helper()
	all := entries(t, p)
	return all[len(all)-1]
}

func TestDeleted_AWaitingCommentIsCancelledForGood(t *testing.T) {
	for name, o := range map[string]dispatcherv1.Outcome{
		"pending": dispatcherv1.Outcome_OUTCOME_WAITING, "held": dispatcherv1.Outcome_OUTCOME_HELD,
		"gave up": dispatcherv1.Outcome_OUTCOME_FAILED, "unproven": dispatcherv1.Outcome_OUTCOME_UNCONFIRMED,
	} {
		t.Run(name, func(t *testing.T) {
			w, p, n := deletedWorld(t)
			id := w.comment(t, n, "alice", "taken back")
			w.always(o, "why")
			look(t, p)
			carry(t, p)
			asked := w.asked()
			must(t, w.DeleteComment(id))
			w.clock.advance(time.Second)
			lookUntilGone(t, w, p)
			e := last(t, p)
			equal(t, "state, reason, deleted", []any{e.State, e.Reason, e.DeletedAt.IsZero()},
				[]any{ledger.Cancelled, ledger.ReasonDeleted, false})
			kinds := types(t, p)
			equal(t, "the last event", kinds[len(kinds)-1], string(ledger.CommentCancelled))
			p = w.release(t, "v2")
			look(t, p)
			carry(t, p)
			equal(t, "state after an upgrade", last(t, p).State, ledger.Cancelled)
			equal(t, "asked again", w.asked(), asked)
		})
	}
}

func TestDeleted_ALateRedeliveryDoesNotReviveIt(t *testing.T) {
	w, p, n := deletedWorld(t)
	id := w.comment(t, n, "alice", "taken back")
	look(t, p)
	must(t, w.DeleteComment(id))
	w.clock.advance(time.Second)
	lookUntilGone(t, w, p)
	equal(t, "state", last(t, p).State, ledger.Cancelled)
	// The same event once more, by another way or from a page that was read before.
	e := last(t, p)
	var key, node string
	must(t, p.pool.QueryRow(t.Context(), `select natural_key, node_id from poller.events where id = $1`, e.ID).Scan(&key, &node))
	ref := ref(t, e.WorkItem)
	_, err := p.store.Record(t.Context(), poll.Record{
		Source: "gh", WorkItem: e.WorkItem, Place: poll.PlaceOf(ref), Item: poll.Item{Ref: ref, NodeID: node, Open: true},
		Events: []poll.Event{{DeliveryID: e.DeliveryID, Key: keyOf(t, key), WorkItem: e.WorkItem, Source: "gh", Kind: e.Kind, Budget: 3,
			State: ledger.Pending, Text: "late"}},
	})
	must(t, err)
	carry(t, p)
	equal(t, "rows", rows(t, p), []string{"opened alice delivered", "comment alice cancelled deleted_upstream"})
	equal(t, "asked", w.asked(), 1)
}

func TestDeleted_APartialOrFailedListingCancelsNothing(t *testing.T) {
	for name, f := range map[string]fakegithub.Fault{
		"not answered": {Kind: fakegithub.KindBadGateway, Times: 2}, "cut": {Kind: fakegithub.KindTruncate, Times: 2},
		"refused": {Kind: fakegithub.KindForbidden, Times: 2}, "gone": {Kind: fakegithub.KindStatus, Status: 404, Times: 2},
	} {
		t.Run(name, func(t *testing.T) {
			w, p, n := deletedWorld(t)
			w.always(dispatcherv1.Outcome_OUTCOME_HELD, "session_holds")
			deleted := w.comment(t, n, "alice", "taken back")
			for range 119 {
				w.comment(t, n, "alice", "stays")
			}
			look(t, p)
			must(t, w.DeleteComment(deleted))
			w.clock.advance(time.Second)
			f.Path = "/repos/acme/widgets/issues/1/comments"
			must(t, w.Inject(f))
			if r := tryLook(t, p); r.Err == nil {
				t.Error("the listing succeeded")
			}
			count := counts(t, p)
			equal(t, "cancelled, pending", []int64{count[ledger.Cancelled], count[ledger.Pending]}, []int64{0, 120})
			w.ClearFaults()
			lookUntilGone(t, w, p)
			count = counts(t, p)
			equal(t, "cancelled, pending after a whole listing", []int64{count[ledger.Cancelled], count[ledger.Pending]}, []int64{1, 119})
		})
	}
}

func TestDeleted_WhatWasDeliveredIsOnlyMarked(t *testing.T) {
	w, p, n := deletedWorld(t)
	id := w.comment(t, n, "alice", "taken back, too late")
	w.comment(t, n, "alice", "stays")
	look(t, p)
	carry(t, p)
	must(t, w.DeleteComment(id))
	w.clock.advance(time.Second)
	lookUntilGone(t, w, p)
	all := entries(t, p)
	equal(t, "states", []any{all[1].State, all[1].DeletedAt.IsZero(), all[2].State, all[2].DeletedAt.IsZero()},
		[]any{ledger.Delivered, false, ledger.Delivered, true})
	equal(t, "events", types(t, p), []string(nil))
}

func TestDeleted_OneThatIsBeingDeliveredIsJudgedByItsOutcome(t *testing.T) {
	for name, tt := range map[string]struct {
		outcome dispatcherv1.Outcome
		want    ledger.State
	}{
		"it arrived":          {dispatcherv1.Outcome_OUTCOME_DELIVERED, ledger.Delivered},
		"it would wait on":    {dispatcherv1.Outcome_OUTCOME_HELD, ledger.Cancelled},
		"it failed":           {dispatcherv1.Outcome_OUTCOME_FAILED, ledger.Cancelled},
		"it was dropped":      {dispatcherv1.Outcome_OUTCOME_DROPPED, ledger.Dropped},
		"nobody ever said so": {dispatcherv1.Outcome_OUTCOME_UNSPECIFIED, ledger.Cancelled},
	} {
		t.Run(name, func(t *testing.T) {
			w, p, n := deletedWorld(t)
			id := w.comment(t, n, "alice", "taken back")
			look(t, p)
			w.dispatcher.answer = func(*dispatcherv1.DeliverRequest) (*dispatcherv1.DeliverResponse, error) {
				must(t, w.DeleteComment(id))
				w.clock.advance(time.Second)
				lookUntilGone(t, w, p)
				equal(t, "state meanwhile", last(t, p).State, ledger.Leased)
				return outcome(tt.outcome, "why", time.Hour), nil
			}
			if tt.outcome == dispatcherv1.Outcome_OUTCOME_UNSPECIFIED {
				// The process is killed while the question is out.
				_, err := p.store.Claim(t.Context(), 1)
				must(t, err)
				must(t, w.DeleteComment(id))
				w.clock.advance(time.Second)
				lookUntilGone(t, w, p)
				sql(t, p, `update poller.events set lease_until = now() - interval '1 second' where state = 'leased'`)
			}
			asked := w.asked()
			must(t, p.forwarder.Drain(t.Context(), 0))
			e := last(t, p)
			equal(t, "state, deleted", []any{e.State, e.DeletedAt.IsZero()}, []any{tt.want, false})
			if tt.outcome == dispatcherv1.Outcome_OUTCOME_UNSPECIFIED {
				equal(t, "asked again", w.asked(), asked)
			}
		})
	}
}

func TestDeleted_ClosingTheItemCancelsNothing(t *testing.T) {
	w, p, n := deletedWorld(t)
	w.always(dispatcherv1.Outcome_OUTCOME_HELD, "session_holds")
	w.comment(t, n, "alice", "one")
	look(t, p)
	carry(t, p)
	closed := "closed"
	must(t, w.EditIssue("acme", "widgets", n, "alice", fakegithub.IssueEdit{State: &closed}))
	look(t, p)
	look(t, p)
	equal(t, "rows", rows(t, p), []string{"opened alice delivered", "comment alice held session_holds", "state  pending"})
	w.always(dispatcherv1.Outcome_OUTCOME_DELIVERED, "")
	carry(t, p)
	equal(t, "rows in the end", rows(t, p), []string{"opened alice delivered", "comment alice delivered", "state  delivered"})
}

func TestDeleted_HoldsBackNothing(t *testing.T) {
	w, p, n := deletedWorld(t)
	w.always(dispatcherv1.Outcome_OUTCOME_HELD, "session_holds")
	id := w.comment(t, n, "alice", "one")
	w.comment(t, n, "alice", "two")
	look(t, p)
	must(t, p.forwarder.Drain(t.Context(), 0))
	equal(t, "rows", rows(t, p)[1:], []string{"comment alice held session_holds", "comment alice pending"})
	must(t, w.DeleteComment(id))
	w.clock.advance(time.Second)
	lookUntilGone(t, w, p)
	w.always(dispatcherv1.Outcome_OUTCOME_DELIVERED, "")
	must(t, p.forwarder.Drain(t.Context(), 0))
	equal(t, "rows in the end", rows(t, p)[1:], []string{"comment alice cancelled deleted_upstream", "comment alice delivered"})
}

func TestDeleted_OneIsSeenToBeGoneAlsoWhenAnotherCameInMeanwhile(t *testing.T) {
	w, p, n := deletedWorld(t)
	w.always(dispatcherv1.Outcome_OUTCOME_HELD, "session_holds")
	id := w.comment(t, n, "alice", "taken back")
	w.clock.advance(time.Hour)
	look(t, p)
	must(t, w.DeleteComment(id))
	w.comment(t, n, "alice", "what I meant to say")
	lookUntilGone(t, w, p)
	equal(t, "rows", rows(t, p)[1:], []string{"comment alice cancelled deleted_upstream", "comment alice pending"})
}

func TestDeleted_WhatCameInSinceTheLookBeganIsNotTakenForMissing(t *testing.T) {
	w, p, n := deletedWorld(t)
	w.comment(t, n, "alice", "listed")
	look(t, p)
	e := last(t, p)
	ref := ref(t, e.WorkItem)
	var key, node string
	must(t, p.pool.QueryRow(t.Context(), `select natural_key, node_id from poller.events where id = $1`, e.ID).Scan(&key, &node))
	missing := func() int {
		known, err := p.store.Known(t.Context(), poll.PlaceOf(ref), nil)
		must(t, err)
		return len(known[0].Missing)
	}
	// A look whose listing was made before the comment came in by another way, and that is written down after it.
	sql(t, p, `update poller.sources set last_look_at = $1`, e.CreatedAt.Add(-time.Second))
	record := poll.Record{
		Source: "gh", WorkItem: e.WorkItem, Place: poll.PlaceOf(ref), Item: poll.Item{Ref: ref, NodeID: node, Open: true}, Complete: true,
		SeenAt: w.clock.Now(),
	}
	_, err := p.store.Record(t.Context(), record)
	must(t, err)
	equal(t, "missing", missing(), 0)
	sql(t, p, `update poller.sources set last_look_at = $1`, e.CreatedAt.Add(time.Second))
	_, err = p.store.Record(t.Context(), record)
	must(t, err)
	equal(t, "missing after a later look", missing(), 1)
}

func TestDeleted_OneListingProvesNothing(t *testing.T) {
	w, p, n := deletedWorld(t)
	w.always(dispatcherv1.Outcome_OUTCOME_HELD, "session_holds")
	id := w.comment(t, n, "alice", "taken back")
	look(t, p)
	must(t, w.DeleteComment(id))
	for range 3 {
		w.clock.advance(15 * time.Second)
		look(t, p)
		equal(t, "state within the minute", last(t, p).State, ledger.Pending)
	}
	w.clock.advance(time.Minute)
	// While it cannot be asked for by itself, nothing is concluded.
	path := fmt.Sprint("/repos/acme/widgets/issues/comments/", id)
	must(t, w.Inject(fakegithub.Fault{Kind: fakegithub.KindBadGateway, Path: path}))
	if r := tryLook(t, p); r.Err == nil {
		t.Error("the look succeeded")
	}
	equal(t, "state while it is not known", last(t, p).State, ledger.Pending)
	must(t, w.Inject(fakegithub.Fault{Kind: fakegithub.KindStatus, Status: 410, Path: path}))
	look(t, p)
	equal(t, "state in the end", last(t, p).State, ledger.Cancelled)
}

func TestDeleted_AReplicaThatLagsBehindCancelsNothing(t *testing.T) {
	w, p, n := deletedWorld(t)
	w.always(dispatcherv1.Outcome_OUTCOME_HELD, "session_holds")
	id := w.comment(t, n, "alice", "still there")
	delivered := w.comment(t, n, "alice", "stays")
	look(t, p)
	must(t, w.HideComment(id, true))
	must(t, w.HideComment(delivered, true))
	w.comment(t, n, "alice", "and one more")
	for range 5 {
		w.clock.advance(2 * time.Minute)
		look(t, p)
	}
	equal(t, "rows while it lags", rows(t, p)[1:], []string{"comment alice pending", "comment alice pending", "comment alice pending"})
	must(t, w.HideComment(id, false))
	must(t, w.HideComment(delivered, false))
	w.clock.advance(time.Second)
	look(t, p)
	w.ResetCounts()
	w.clock.advance(2 * time.Minute)
	look(t, p)
	equal(t, "rows afterwards", rows(t, p)[1:], []string{"comment alice pending", "comment alice pending", "comment alice pending"})
	for path := range w.Counts() {
		if strings.Contains(path, "/issues/comments/") {
			t.Errorf("it is asked for by itself although it is listed again: %s", path)
		}
	}
	// What is gone afterwards is missing anew, and not since the lag.
	must(t, w.DeleteComment(id))
	w.clock.advance(time.Second)
	look(t, p)
	equal(t, "state after one listing", entries(t, p)[1].State, ledger.Pending)
	w.clock.advance(61 * time.Second)
	look(t, p)
	equal(t, "state in the end", entries(t, p)[1].State, ledger.Cancelled)
}
