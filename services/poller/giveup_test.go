package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/ledger"
	"muxpost.dev/muxpost/internal/version"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	"muxpost.dev/muxpost/services/poller/internal/poll"
)

// always has the dispatcher give one answer, until it is told another.
func (w *world) always(o dispatcherv1.Outcome, reason string) {
	w.dispatcher.mu.Lock()
	defer w.dispatcher.mu.Unlock()
	w.dispatcher.answer = func(*dispatcherv1.DeliverRequest) (*dispatcherv1.DeliverResponse, error) {
		return outcome(o, reason, 0), nil
	}
}

// asked returns how often the dispatcher was asked so far.
func (w *world) asked() int { return len(w.dispatcher.requests()) }

func sql(t *testing.T, p *parts, statement string, args ...any) {
	t.Helper()
	_, err := p.pool.Exec(t.Context(), statement, args...)
	must(t, err)
}

// carry delivers what is due, and what would be due later, until nothing waits or it has done so for a while.
func carry(t *testing.T, p *parts) {
	t.Helper()
	for range 8 {
		must(t, p.forwarder.Drain(t.Context(), 0))
		sql(t, p, `update poller.events set next_look = now() where state in ('pending', 'held')`)
	}
}

// followed returns the poller's own events, oldest first.
func followed(t *testing.T, p *parts) []poll.Followed {
	t.Helper()
	var events []poll.Followed
	var written int
	must(t, p.pool.QueryRow(t.Context(), `select count(*) from poller.log`).Scan(&written))
	eventually(t, "no older transaction runs", func() bool {
		var err error
		events, err = p.store.Events(t.Context(), poll.EventQuery{Limit: 500})
		must(t, err)
		return len(events) >= written
	})
	return events
}

func types(t *testing.T, p *parts) []string {
	t.Helper()
	var out []string
	for _, e := range followed(t, p) {
		out = append(out, string(e.Type))
	}
	return out
}

// gaveUpWorld has an event that gave up under release v1, and returns the delivery.
func gaveUpWorld(t *testing.T) (*world, poll.Entry) {
	t.Helper()
	w := newWorld(t, standard)
	w.labelled(t, "alice")
	w.always(dispatcherv1.Outcome_OUTCOME_FAILED, "harness_exited")
	p := w.release(t, "v1")
	look(t, p)
	carry(t, p)
	e := entries(t, p)[0]
	equal(t, "state, reason, tries, versions", []any{e.State, e.Reason, e.Tries, e.GaveUpVersions},
		[]any{ledger.GaveUp, "harness_exited", 3, []string{"poller v1"}})
	equal(t, "asked", w.asked(), 3)
	return w, e
}

func TestGiveUp_IsOnTheRecordWithItsVersionAndOneEvent(t *testing.T) {
	w, e := gaveUpWorld(t)
	events := followed(t, w.release(t, "v1"))
	equal(t, "events", len(events), 1)
	got := events[0]
	equal(t, "event", []any{got.Type, got.WorkItem, got.DeliveryID, got.Source, got.Fields, got.TraceID}, []any{
		ledger.CommentFailed, e.WorkItem, e.DeliveryID, "gh",
		map[string]string{"kind": "opened", "reason": "harness_exited", "tries": "3", "versions": "poller v1"}, e.TraceID,
	})
}

func TestRearm_TheSameVersionNeverHoweverOftenItStarts(t *testing.T) {
	w, _ := gaveUpWorld(t)
	for range 3 {
		p := w.release(t, "v1") // a restart, or cron's next round
		look(t, p)
		carry(t, p)
		equal(t, "rows", rows(t, p), []string{"opened alice gave_up harness_exited"})
	}
	equal(t, "asked", w.asked(), 3)
}

func TestRearm_AnotherVersionGivesAFullBudgetOnceWithOneRecord(t *testing.T) {
	w, e := gaveUpWorld(t)
	p := w.release(t, "v2")
	look(t, p)
	again := entries(t, p)[0]
	equal(t, "after the look", []any{again.State, again.Reason, again.Tries, again.GaveUpVersions, again.DeliveryID},
		[]any{ledger.Pending, ledger.ReasonRearmed, 0, []string{"poller v1", "poller v2"}, e.DeliveryID})
	carry(t, p)
	look(t, p)
	carry(t, p)
	equal(t, "asked", w.asked(), 6)
	last := followed(t, p)
	equal(t, "events", types(t, p), []string{"poll.comment_failed", "poll.rearmed", "poll.comment_failed"})
	equal(t, "the record", []any{last[1].WorkItem, last[1].Source, last[1].Fields}, []any{e.WorkItem, "gh",
		map[string]string{"comments": e.DeliveryID, "recorded_versions": "poller v1", "version": "poller v2"}})
	// And with the fault gone, a third version brings it in, under the id that it always had.
	w.always(dispatcherv1.Outcome_OUTCOME_DELIVERED, "")
	p = w.release(t, "v3")
	look(t, p)
	carry(t, p)
	equal(t, "rows", rows(t, p), []string{"opened alice delivered"})
	for _, r := range w.dispatcher.requests() {
		equal(t, "delivery id", r.GetDeliveryId(), e.DeliveryID)
	}
}

func TestRearm_ARollbackToAVersionThatWasTriedRearmsNothing(t *testing.T) {
	w, _ := gaveUpWorld(t)
	for _, name := range []string{"v2", "v1", "v2", "v1"} {
		p := w.release(t, name)
		look(t, p)
		carry(t, p)
	}
	equal(t, "asked", w.asked(), 6)
}

func TestRearm_ADirtyBuildOrOneWithoutANameRearmsNothing(t *testing.T) {
	w, _ := gaveUpWorld(t)
	for _, info := range []version.Info{
		{Version: "v2", Dirty: true}, {Version: "devel", Commit: "abc", Dirty: true}, {Version: "devel"}, {Version: "v1", Commit: "another"},
	} {
		p := w.build(t, info)
		look(t, p)
		carry(t, p)
	}
	equal(t, "asked", w.asked(), 3)
	p := w.build(t, version.Info{Version: "devel", Commit: "abcdef0"}) // without a stamp it counts as its commit
	look(t, p)
	equal(t, "versions", entries(t, p)[0].GaveUpVersions, []string{"poller abcdef0", "poller v1"})
}

func TestRearm_TwoReplicasOfDifferentVersionsSpendABudgetEachAndNoMore(t *testing.T) {
	w, _ := gaveUpWorld(t)
	one, two := w.release(t, "v1"), w.release(t, "v2")
	for range 6 {
		for _, p := range []*parts{one, two} {
			look(t, p)
			carry(t, p)
		}
		one, two = w.release(t, "v1"), w.release(t, "v2") // both restart
	}
	equal(t, "asked", w.asked(), 6)
	equal(t, "versions", entries(t, one)[0].GaveUpVersions, []string{"poller v1", "poller v2"})
	equal(t, "events", types(t, one), []string{"poll.comment_failed", "poll.rearmed", "poll.comment_failed"})
}

func TestRearm_TheBudgetIsSpentByTheVersionThatItWasGivenTo(t *testing.T) {
	w, _ := gaveUpWorld(t)
	one, two := w.release(t, "v1"), w.release(t, "v2")
	look(t, two)
	must(t, one.forwarder.Drain(t.Context(), time.Second))
	equal(t, "asked by the old version", w.asked(), 3)
	must(t, two.forwarder.Drain(t.Context(), 0))
	equal(t, "asked by the new one", w.asked(), 4)
	// The new version is gone for good: after a while the old one takes what it left, so that nothing waits for ever.
	sql(t, two, `update poller.events set next_look = now() - $1::interval`, ledger.ArmedTime+time.Second)
	must(t, one.forwarder.Drain(t.Context(), 0))
	equal(t, "asked in the end", w.asked(), 5)
}

func TestRearm_AClaimSeesTheItemToo(t *testing.T) {
	w, e := gaveUpWorld(t)
	_, _, err := w.release(t, "v1").poller.Submit(t.Context(), message(e.WorkItem, "by hand"))
	must(t, err)
	w.always(dispatcherv1.Outcome_OUTCOME_DELIVERED, "")
	p := w.release(t, "v2") // it never looks at GitHub
	must(t, p.forwarder.Drain(t.Context(), 0))
	var order []string
	for _, r := range w.dispatcher.requests()[3:] {
		order = append(order, r.GetKind().String())
	}
	equal(t, "delivered, in order", order, []string{"EVENT_KIND_OPENED", "EVENT_KIND_MESSAGE"})
	equal(t, "rows", rows(t, p), []string{"opened alice delivered", "message  delivered"})
}

func TestRearm_OnceInTheLifeOfAProcessAndNeverAnItemThatNobodySees(t *testing.T) {
	w, e := gaveUpWorld(t)
	other := w.labelled(t, "alice")
	p := w.release(t, "v2")
	sql(t, p, `update poller.events set work_item = work_item`) // nothing was seen by it yet
	equal(t, "before anything was seen", entries(t, p)[0].State, ledger.GaveUp)
	look(t, p)
	carry(t, p)
	// Seen once: what gives up under yet another version after that is seen by the next process.
	sql(t, p, `update poller.events set gave_up_versions = '{poller v9}' where delivery_id = $1`, e.DeliveryID)
	w.comment(t, other, "alice", "something else")
	look(t, p)
	states := []ledger.State{}
	for _, e := range entries(t, p) {
		states = append(states, e.State)
	}
	equal(t, "states", states, []ledger.State{ledger.GaveUp, ledger.GaveUp, ledger.Pending})
	p = w.release(t, "v2")
	look(t, p)
	equal(t, "seen by the next process", entries(t, p)[0].State, ledger.Pending)
}

func TestRearm_WhatNeverGaveUpIsNeverRearmedByAnyUpgrade(t *testing.T) {
	w := newWorld(t, standard)
	n := w.labelled(t, "alice")
	w.comment(t, n, "alice", "was there before")
	p := w.release(t, "v1")
	look(t, p)
	w.comment(t, n, "mallory", "may not")
	look(t, p)
	carry(t, p)
	// As a ledger of the release before this one has them: given up, and no record of versions.
	w.comment(t, n, "alice", "an old failure")
	w.comment(t, n, "alice", "nobody knows")
	look(t, p)
	sql(t, p, `update poller.events set state = 'gave_up', next_look = null where id = (select max(id) - 1 from poller.events)`)
	sql(t, p, `
update poller.events set state = 'settled', reason = 'unconfirmed', next_look = null where id = (select max(id) from poller.events)`)
	before := rows(t, p)
	for _, name := range []string{"v2", "v3"} {
		p = w.release(t, name)
		look(t, p)
		carry(t, p)
	}
	equal(t, "rows", rows(t, p), before)
	equal(t, "asked", w.asked(), 1)
}

func TestOutage_SpendsNoTryAndGivesNothingUp(t *testing.T) {
	w := newWorld(t, standard)
	w.labelled(t, "alice")
	w.dispatcher.answer = func(*dispatcherv1.DeliverRequest) (*dispatcherv1.DeliverResponse, error) {
		return nil, fault.New(fault.Unavailable, fault.ReasonDatabase, "away")
	}
	p := w.open(t)
	look(t, p)
	for range 10 {
		sql(t, p, `update poller.events set next_look = now()`)
		must(t, w.open(t).forwarder.Drain(t.Context(), 0))
	}
	e := entries(t, p)[0]
	equal(t, "state, tries", []any{e.State, e.Tries, w.asked()}, []any{ledger.Pending, 0, 10})
	w.always(dispatcherv1.Outcome_OUTCOME_WAITING, "host_unreachable")
	carry(t, p)
	e = entries(t, p)[0]
	equal(t, "state, reason, tries", []any{e.State, e.Reason, e.Tries}, []any{ledger.Pending, "host_unreachable", 0})
}

func TestOnce_FromCronEveryMinuteRearmsNothing(t *testing.T) {
	w, _ := gaveUpWorld(t)
	round := func(version string) string {
		var line strings.Builder
		must(t, w.release(t, version).once(t.Context(), &line))
		return line.String()
	}
	for range 3 { // each is a process of its own, of the version that gave up
		if line := round("v1"); !strings.Contains(line, " 0 asked") {
			t.Error(line)
		}
	}
	if line := round("v2"); !strings.Contains(line, " 1 asked") { // which another version does
		t.Error(line)
	}
}

func TestHeld_SinceWhenIsKeptWhileItWaits(t *testing.T) {
	w := newWorld(t, standard)
	w.labelled(t, "alice")
	w.always(dispatcherv1.Outcome_OUTCOME_HELD, "session_holds")
	p := w.open(t)
	look(t, p)
	begun := time.Now()
	must(t, p.forwarder.Drain(t.Context(), 0))
	since := entries(t, p)[0].HeldSince
	if since.Sub(begun).Abs() > time.Minute {
		t.Errorf("held since %v", since)
	}
	carry(t, p)
	equal(t, "held since, after more looks", entries(t, p)[0].HeldSince.Equal(since), true)
	w.always(dispatcherv1.Outcome_OUTCOME_DELIVERED, "")
	carry(t, p)
	equal(t, "held since, once delivered", entries(t, p)[0].HeldSince.IsZero(), true)
}

func TestRestore_TheSameEventIsAskedAboutUnderTheSameId(t *testing.T) {
	w := newWorld(t, standard)
	n := w.labelled(t, "alice")
	p := w.open(t)
	look(t, p)
	w.comment(t, n, "alice", "before the backup was made")
	look(t, p)
	carry(t, p)
	before := w.dispatcher.requests()
	equal(t, "asked", len(before), 2)
	// A backup from before the item was seen: the ledger knows nothing of it.
	sql(t, p, `delete from poller.events`)
	sql(t, p, `delete from poller.items`)
	p = w.open(t)
	look(t, p)
	carry(t, p)
	equal(t, "rows", rows(t, p), []string{"opened alice delivered", "comment alice settled baselined"})
	again := w.dispatcher.requests()[2:]
	equal(t, "asked again, about the opening event alone", len(again), 1)
	equal(t, "its id", again[0].GetDeliveryId(), before[0].GetDeliveryId())
	// A backup from between the two: the item is known, its comment is not.
	sql(t, p, `delete from poller.events where kind = 'comment'`)
	sql(t, p, `update poller.items set seen_at = first_seen_at, seen_comments = 0, comments_since = null`)
	look(t, p)
	carry(t, p)
	again = w.dispatcher.requests()[3:]
	equal(t, "asked again, about the comment alone", len(again), 1)
	equal(t, "its id", again[0].GetDeliveryId(), before[1].GetDeliveryId())
}

func TestEvents_EveryListedTypeIsEmittedAndTakenByTheDatabaseAndNoOther(t *testing.T) {
	p := newWorld(t, standard).open(t)
	var constraint string
	must(t, p.pool.QueryRow(t.Context(), `select pg_get_constraintdef(oid) from pg_constraint where conname = 'log_type'`).Scan(&constraint))
	listed := ledger.EventTypes()
	for e := range listed {
		if !strings.Contains(constraint, "'"+string(e)+"'") {
			t.Errorf("the database does not take %s", e)
		}
	}
	equal(t, "types that the database takes", strings.Count(constraint, "'poll."), len(listed))
	var emitted []ledger.EventType
	for _, world := range []func(*testing.T) *parts{everythingFails, retriedByHand, settledByHand, sourceComesAndGoes, noticesComeAndFail, loopAndLink, hooksAreMissed} {
		for _, e := range followed(t, world(t)) {
			emitted = append(emitted, e.Type)
		}
	}
	for e := range listed {
		if !slices.Contains(emitted, e) {
			t.Errorf("%s is listed and never emitted", e)
		}
	}
}

// everythingFails gives up, re-arms and cancels.
func everythingFails(t *testing.T) *parts {
	t.Helper()
	w, _ := gaveUpWorld(t)
	p := w.release(t, "v2")
	look(t, p)
	id := w.comment(t, 1, "alice", "taken back")
	look(t, p)
	must(t, w.DeleteComment(id))
	w.clock.advance(time.Second)
	lookUntilGone(t, w, p)
	return p
}

func sourceComesAndGoes(t *testing.T) *parts {
	t.Helper()
	w := newWorld(t, standard)
	p := w.open(t)
	must(t, w.Inject(faultStatus(503)))
	for range 2 {
		if r := tryLook(t, p); r.Err == nil {
			t.Error("the source could be read")
		}
	}
	w.ClearFaults()
	look(t, p)
	look(t, p)
	equal(t, "events", types(t, p), []string{"poll.source_failed", "poll.source_recovered"})
	e := followed(t, p)[0]
	if e.Source != "gh" || !strings.Contains(e.Fields["problem"], "503") {
		t.Errorf("the event is %+v", e)
	}
	return p
}

func TestSource_AFailureAndItsEndAreOneEventEach(t *testing.T) { sourceComesAndGoes(t) }
