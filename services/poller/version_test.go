package main

import (
	"slices"
	"testing"

	"muxpost.dev/muxpost/core/dispatch"
	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/ledger"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
)

// runs makes the dispatcher, and the tmuxd of its host, builds of these releases.
func (w *world) runs(dispatcher, tmuxd string) {
	w.dispatcher.mu.Lock()
	defer w.dispatcher.mu.Unlock()
	w.dispatcher.builds = []*dispatcherv1.Build{
		{Program: "dispatcher", Release: dispatcher}, {Program: "tmuxd", Release: tmuxd, Host: "a"},
	}
}

// upgraded is what the poller does when it hears that the dispatcher, or its host, came back.
func (w *world) upgraded(t *testing.T, p *parts, dispatcher, tmuxd string) {
	t.Helper()
	w.runs(dispatcher, tmuxd)
	hints{p.asked, p.store, p.retrier, p.telemetry.Logger}.hear(t.Context(), "")
}

func versions(t *testing.T, p *parts) []string {
	t.Helper()
	return entries(t, p)[0].GaveUpVersions
}

func TestVersion_IsOfAllThatTakePartAndAnyOfThemRearms(t *testing.T) {
	w := newWorld(t, standard)
	w.labelled(t, "alice")
	w.always(dispatcherv1.Outcome_OUTCOME_FAILED, "harness_exited")
	w.runs("v1", "v1")
	p := w.release(t, "v1")
	look(t, p)
	carry(t, p)
	equal(t, "given up under", versions(t, p), []string{"dispatcher v1, poller v1, tmuxd v1"})
	for i, step := range []struct{ dispatcher, tmuxd string }{
		{"v1", "v1"},
		{"v1", "v2"}, // a new tmuxd, under a poller that runs on
		{"v2", "v2"},
		{"v1", "v2"}, // a rollback
		{"v1", ""},   // a host that was not reached yet, or a build without a name
		{"v2", "v2"},
	} {
		before := w.asked()
		w.upgraded(t, p, step.dispatcher, step.tmuxd)
		look(t, p)
		carry(t, p)
		want := 0
		if i == 1 || i == 2 {
			want = 3
		}
		equal(t, "tries under "+step.dispatcher+" and "+step.tmuxd, w.asked()-before, want)
	}
	equal(t, "in the end", versions(t, p), []string{
		"dispatcher v1, poller v1, tmuxd v1", "dispatcher v1, poller v1, tmuxd v2", "dispatcher v2, poller v1, tmuxd v2",
	})
}

func TestVersion_NobodyRearmsBeforeTheDispatcherSaidWhatItIs(t *testing.T) {
	w := newWorld(t, standard)
	w.labelled(t, "alice")
	w.always(dispatcherv1.Outcome_OUTCOME_FAILED, "harness_exited")
	w.runs("v1", "v1")
	p := w.release(t, "v1")
	look(t, p)
	carry(t, p)
	address := w.address
	w.address = "127.0.0.1:1" // nobody answers there
	w.configure(t, standard)
	p = w.release(t, "v2")
	look(t, p)
	equal(t, "while it is away", entries(t, p)[0].State, ledger.GaveUp)
	w.address = address
	w.configure(t, standard)
	p = w.release(t, "v2")
	look(t, p)
	equal(t, "when it is there", entries(t, p)[0].State, ledger.Pending)
}

func TestOccupied_AVersionThatHadNoPartTriesOnce(t *testing.T) {
	w, p, e := endedWorld(t, dispatcherv1.Outcome_OUTCOME_DROPPED, ledger.ReasonSessionOccupied)
	equal(t, "the record", versions(t, p), []string{"poller v1"})
	for _, step := range []struct {
		name  string
		asked int
	}{{"v1", 0}, {"v2", 1}, {"v2", 0}, {"v1", 0}, {"v3", 1}} {
		before, reopened := w.asked(), len(w.refuse(nil))
		p = w.release(t, step.name)
		look(t, p)
		carry(t, p)
		equal(t, step.name, w.asked()-before, step.asked)
		// The dispatcher would only tell again that it was dropped.
		if got := w.refuse(nil)[reopened:]; !slices.Equal(got, slices.Repeat([]string{e.DeliveryID + " muxpost (another version runs)"}, step.asked)) {
			t.Errorf("%s re-opened %q", step.name, got)
		}
		equal(t, step.name+" ends", rows(t, p), []string{"opened alice dropped session-occupied"})
	}
	w.always(dispatcherv1.Outcome_OUTCOME_DELIVERED, "")
	w.refuse(fault.New(fault.Conflict, "", "it is in its conversation"))
	p = w.release(t, "v4")
	look(t, p)
	carry(t, p)
	equal(t, "in the end", rows(t, p), []string{"opened alice delivered"})
}

func TestHints_WakeWhatWaitsForASessionAndNotWhatFailed(t *testing.T) {
	w := newWorld(t, standard)
	w.labelled(t, "alice")
	w.labelled(t, "alice")
	p := w.open(t)
	look(t, p)
	h := hints{p.asked, p.store, p.retrier, p.telemetry.Logger}
	due := func() (n int) {
		must(t, p.pool.QueryRow(t.Context(), `select count(*) from poller.events where next_look <= now()`).Scan(&n))
		return n
	}
	for _, row := range []struct {
		outcome dispatcherv1.Outcome
		reason  string
		woken   bool
	}{
		{dispatcherv1.Outcome_OUTCOME_HELD, "why", true}, {dispatcherv1.Outcome_OUTCOME_WAITING, "why", true},
		{dispatcherv1.Outcome_OUTCOME_UNCONFIRMED, "why", true}, {dispatcherv1.Outcome_OUTCOME_FAILED, "why", false},
		// These agents end right after their start, which is a change at their session.
		{dispatcherv1.Outcome_OUTCOME_WAITING, string(dispatch.ReasonUsageLimit), false},
		{dispatcherv1.Outcome_OUTCOME_WAITING, string(dispatch.ReasonConversationInUse), false},
	} {
		w.always(row.outcome, row.reason)
		sql(t, p, `update poller.events set next_look = now(), silences = 0, unproven_since = null, tries = 0`)
		must(t, p.forwarder.Drain(t.Context(), 0))
		equal(t, "asked, and not due", due(), 0)
		for _, hint := range []struct {
			item string
			want int
		}{{"github:elsewhere/a/b#1", 0}, {entries(t, p)[0].WorkItem, 1}, {"", 2}} {
			h.hear(t.Context(), hint.item)
			if !row.woken {
				hint.want = 0
			}
			equal(t, row.outcome.String()+" "+row.reason+" "+hint.item, due(), hint.want)
		}
	}
}

func TestHints_AskAboutAnOccupiedNameAtOnce(t *testing.T) {
	w, p, e := endedWorld(t, dispatcherv1.Outcome_OUTCOME_DROPPED, ledger.ReasonSessionOccupied)
	h := hints{p.asked, p.store, p.retrier, p.telemetry.Logger}
	w.dispatcher.occupied = true
	h.hear(t.Context(), e.WorkItem)
	equal(t, "somebody has it still", rows(t, p), []string{"opened alice dropped session-occupied"})
	w.dispatcher.occupied = false
	h.hear(t.Context(), "github:elsewhere/a/b#1")
	equal(t, "another item", rows(t, p), []string{"opened alice dropped session-occupied"})
	h.hear(t.Context(), e.WorkItem)
	equal(t, "it is free", entries(t, p)[0].State, ledger.Pending)
}
