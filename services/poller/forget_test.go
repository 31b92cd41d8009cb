package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"muxpost.dev/muxpost/core/ledger"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	"muxpost.dev/muxpost/services/poller/internal/poll"
)

// age makes everything look as if it had last changed so many days ago.
func age(t *testing.T, p *parts, days int) {
	t.Helper()
	for _, statement := range []string{
		`update poller.events set updated_at = updated_at - make_interval(days => $1), created_at = created_at - make_interval(days => $1)`,
		`update poller.log set time = time - make_interval(days => $1)`,
	} {
		sql(t, p, statement, days)
	}
}

func forget(t *testing.T, p *parts) (events, lines int64) {
	t.Helper()
	events, lines, err := p.store.Forget(t.Context(), p.retention)
	must(t, err)
	return events, lines
}

func TestForget_WhatIsForgottenAndStillThereUpstreamIsNoEventAgain(t *testing.T) {
	w := newWorld(t, standard)
	n := w.labelled(t, "alice")
	w.comment(t, n, "alice", "before")
	p := w.open(t)
	look(t, p)
	done := w.comment(t, n, "alice", "done")
	w.comment(t, n, "mallory", "obey me")
	look(t, p)
	carry(t, p)
	asked := w.asked()
	age(t, p, 91)
	events, _ := forget(t, p)
	equal(t, "deleted, left", []int{int(events), len(rows(t, p))}, []int{4, 0})
	// A comment on its way has the whole thread read again, of a poller that has just been started too.
	w.clock.advance(time.Hour)
	w.always(dispatcherv1.Outcome_OUTCOME_HELD, "session_holds")
	w.comment(t, n, "alice", "new")
	w.ResetCounts()
	for _, p := range []*parts{p, w.open(t)} {
		look(t, p)
		carry(t, p)
		w.clock.advance(time.Second)
	}
	w.comment(t, n, "alice", "newer")
	look(t, p)
	equal(t, "rows", rows(t, p), []string{"comment alice held session_holds", "comment alice pending"})
	// One that was changed since is on the record as it is: what it said is not known any more.
	w.edit(t, done, "done twice")
	r := look(t, p)
	equal(t, "new, settled", []int{r.NewEvents, r.SettledEvents}, []int{0, 0})
	equal(t, "the last row", []string{last(t, p).Author, last(t, p).Reason}, []string{"alice", ledger.ReasonBaselined})
	// From then on it is one like any other.
	w.edit(t, done, "done thrice")
	equal(t, "new after another edit", look(t, p).NewEvents, 1)
	w.always(dispatcherv1.Outcome_OUTCOME_DELIVERED, "")
	carry(t, p)
	var texts []string
	for _, request := range w.dispatcher.requests()[asked:] {
		texts = append(texts, request.GetText())
	}
	for _, old := range []string{"before", "obey me", "done twice", "opened by"} {
		if strings.Contains(strings.Join(texts, "\n"), "\n"+old) {
			t.Errorf("%q was delivered again", old)
		}
	}
	equal(t, "an item that is closed and opened again, new", look(t, p).NewEvents, 0)
}

func TestForget_WhateverKindIsListedUpstreamIsNoEventAgain(t *testing.T) {
	w, p, n := deletedWorld(t)
	w.comment(t, n, "alice", "looks good")
	look(t, p)
	carry(t, p)
	sql(t, p, `alter table poller.events drop constraint events_kind`)
	sql(t, p, `update poller.events set kind = 'something else' where kind = 'comment'`)
	asked := w.asked()
	for range 2 {
		age(t, p, 91)
		forget(t, p)
		equal(t, "left", len(rows(t, p)), 0)
		// A new poller reads everything that is listed.
		sql(t, p, `update poller.items set seen_at = null, seen_updated_at = null, comments_since = null`)
		w.clock.advance(time.Hour)
		p = w.open(t)
		equal(t, "new", look(t, p).NewEvents, 0)
		carry(t, p)
	}
	equal(t, "asked, rows", []any{w.asked() - asked, len(rows(t, p))}, []any{0, 0})
}

func TestForget_KeepsWhatIsOpenOrNeedsAPersonHoweverOld(t *testing.T) {
	w, p, n := deletedWorld(t)
	states := []string{
		`state = 'pending', next_look = now()`, `state = 'held', next_look = now(), held_since = now()`,
		`state = 'leased', lease_holder = 'x', lease_until = now()`, `state = 'dropped', reason = 'session-occupied'`,
		`state = 'gave_up', reason = 'x'`, `state = 'settled', reason = 'unconfirmed'`,
	}
	for i := range states {
		w.comment(t, n, "alice", fmt.Sprint("comment ", i))
	}
	look(t, p)
	all := entries(t, p)
	for i, set := range states {
		sql(t, p, `update poller.events set `+set+` where id = $1`, all[i+1].ID)
		sql(t, p, `insert into poller.log (type, delivery_id) values ('poll.retried', $1)`, all[i+1].DeliveryID)
	}
	sql(t, p, `insert into poller.log (type, delivery_id) values ('poll.retried', $1), ('poll.source_failed', '')`, all[0].DeliveryID)
	age(t, p, 1000)
	events, lines := forget(t, p)
	equal(t, "deleted", []int64{events, lines}, []int64{1, 2})
	equal(t, "left", len(rows(t, p)), len(states))
}

func TestForget_OnlyWhatIsOldEnough(t *testing.T) {
	w, p, n := deletedWorld(t)
	id := w.comment(t, n, "alice", "taken back")
	look(t, p)
	must(t, w.DeleteComment(id))
	w.clock.advance(time.Second)
	lookUntilGone(t, w, p)
	equal(t, "rows", rows(t, p), []string{"opened alice delivered", "comment alice cancelled deleted_upstream"})
	age(t, p, 20)
	events, _, err := p.store.Forget(t.Context(), 21*24*time.Hour)
	must(t, err)
	equal(t, "deleted of younger ones", events, int64(0))
	events, _, err = p.store.Forget(t.Context(), 10*24*time.Hour)
	must(t, err)
	equal(t, "deleted, but for the cancelled one", []any{events, rows(t, p)}, []any{int64(1), []string{"comment alice cancelled deleted_upstream"}})
	age(t, p, 11)
	events, _, err = p.store.Forget(t.Context(), 10*24*time.Hour)
	must(t, err)
	equal(t, "deleted after a month", events, int64(1))
}

func TestForget_TheRevisionsOfACommentStayUntilAllOfThemAreFinished(t *testing.T) {
	w, p, n := deletedWorld(t)
	id := w.comment(t, n, "alice", "one")
	look(t, p)
	carry(t, p)
	w.edit(t, id, "another")
	look(t, p)
	w.always(dispatcherv1.Outcome_OUTCOME_HELD, "session_holds")
	carry(t, p)
	age(t, p, 100)
	forget(t, p)
	equal(t, "left while one waits", rows(t, p), []string{"comment alice delivered", "comment alice held session_holds"})
	w.always(dispatcherv1.Outcome_OUTCOME_DELIVERED, "")
	carry(t, p)
	age(t, p, 100)
	events, _ := forget(t, p)
	equal(t, "deleted in the end", []int{int(events), len(rows(t, p))}, []int{2, 0})
	w.clock.advance(time.Hour)
	w.comment(t, n, "alice", "new")
	w.clock.advance(time.Second)
	look(t, p)
	equal(t, "rows", rows(t, p), []string{"comment alice pending"})
}

func TestForget_WhatIsStillToBeToldUpstreamStays(t *testing.T) {
	_, p, _ := deletedWorld(t)
	sql(t, p, `insert into poller.outbox (event_id, post) select id, 'notice_held' from poller.events`)
	age(t, p, 100)
	events, _ := forget(t, p)
	equal(t, "deleted", events, int64(0))
	sql(t, p, `update poller.outbox set state = 'done'`)
	events, _ = forget(t, p)
	equal(t, "deleted once it was told", events, int64(1))
}

func TestForget_RunsByItselfAndFromCron(t *testing.T) {
	w := newWorld(t, standard)
	text, err := os.ReadFile(w.config)
	must(t, err)
	without, _, _ := strings.Cut(string(text), "  sources:")
	must(t, os.WriteFile(w.config, []byte(without), 0o600))
	p := w.open(t)
	_, _, err = p.poller.Submit(t.Context(), poll.Message{WorkItem: "github:acme/widgets#1", Text: "hello"})
	must(t, err)
	carry(t, p)
	age(t, p, 91)
	start(t, w)
	eventually(t, "what was finished long ago is deleted", func() bool { return len(rows(t, p)) == 0 })

	w = newWorld(t, standard)
	w.labelled(t, "alice")
	p = w.open(t)
	look(t, p)
	carry(t, p)
	age(t, p, 91)
	if _, code, err := once(t, w); err != nil || code != 0 {
		t.Fatal(code, err)
	}
	equal(t, "rows after a round from cron", len(rows(t, p)), 0)
}
