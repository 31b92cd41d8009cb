package main

import (
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pollerv1 "muxpost.dev/muxpost/proto/gen/muxpost/poller/v1"
	"muxpost.dev/muxpost/test/fakegithub"
)

const withTeamLabel = withNotices + "    team_labels: {Run-Team: crew, review-team: ''}\n"

// relabel sets the labels of an issue as a login.
func (w *world) relabel(t *testing.T, n int, by string, labels ...string) {
	t.Helper()
	w.clock.advance(time.Second)
	must(t, w.EditIssue("acme", "widgets", n, by, fakegithub.IssueEdit{Labels: &labels}))
}

// teams are the orders for a team, each without its item.
func (w *world) teams() (out []string) {
	for _, o := range w.ordered() {
		words := strings.Fields(o)
		out = append(out, strings.Join(slices.Delete(words, 1, 2), " "))
	}
	return out
}

// lookAndOrder has a poller look and carry out what it found.
func lookAndOrder(t *testing.T, p *parts) {
	t.Helper()
	look(t, p)
	carry(t, p)
	for range 3 {
		notifyAll(t, p)
	}
}

func TestTeamLabel_ItsLabelHasATeamRunOnceForEachTimeItIsPutOn(t *testing.T) {
	w, p, n := commandWorld(t, withTeamLabel)
	asked := w.asked()
	w.relabel(t, n, "alice", "agent", "run-team")
	lookAndOrder(t, p)
	equal(t, "ordered", w.teams(), []string{"team crew alice (by a label)"})
	equal(t, "row", rows(t, p)[1], "labelled alice settled command")
	if d := last(t, p).Detail; !strings.Contains(d, "an order to muxpost: /muxpost team crew; muxpost runs its team: 3 tasks, and a verification.") {
		t.Errorf("the event does not say what came of it: %s", d)
	}
	texts, _ := w.answered(t)
	if len(texts) != 1 || !strings.Contains(texts[0], "runs its team: 3 tasks") {
		t.Errorf("answers %q", texts)
	}

	// Looking again, in full, after other changes, and by another poller or one that is started again: nothing comes of it.
	w.clock.advance(time.Second)
	w.comment(t, n, "alice", "a word")
	lookAndOrder(t, p)
	w.relabel(t, n, "alice", "agent", "run-team", "other")
	other := w.open(t)
	lookAndOrder(t, other)
	lookAndOrder(t, p)
	equal(t, "ordered after more looks", len(w.teams()), 1)
	equal(t, "delivered", w.asked(), asked+1)

	// Taken off it does nothing, and put on again it orders again.
	w.relabel(t, n, "alice", "agent")
	lookAndOrder(t, p)
	equal(t, "ordered once it is off", len(w.teams()), 1)
	w.relabel(t, n, "alice", "agent", "run-team")
	lookAndOrder(t, p)
	equal(t, "ordered once it is on again", len(w.teams()), 2)

	// Off and on again between two looks is one time more.
	w.relabel(t, n, "alice", "agent")
	w.relabel(t, n, "alice", "agent", "run-team")
	lookAndOrder(t, other)
	lookAndOrder(t, p)
	equal(t, "ordered", len(w.teams()), 3)
	w.dispatcher.mu.Lock()
	defer w.dispatcher.mu.Unlock()
	equal(t, "runs", len(w.dispatcher.runs), 3)
}

func TestTeamLabel_OnlyWhoMaySteerHasItRun(t *testing.T) {
	for name, tt := range map[string]struct {
		source, by, row string
		ordered         int
	}{
		"an author":                      {"", "alice", "labelled alice settled command", 1},
		"somebody else":                  {"", "mallory", "labelled mallory settled unauthorised", 0},
		"whoever may label, if trusted":  {"    trust_label: true\n", "mallory", "labelled mallory settled command", 1},
		"a machine":                      {"", "helper[bot]", "labelled helper[bot] settled bot", 0},
		"a machine, though trusted":      {"    trust_label: true\n", "helper[bot]", "labelled helper[bot] settled bot", 0},
		"a machine that may":             {"    machines: ['helper[bot]']\n", "helper[bot]", "labelled helper[bot] settled command", 1},
		"the source's own account":       {"    trust_label: true\n", "reader", "labelled reader settled own", 0},
		"a member, of whom none is told": {"    associations: [OWNER]\n", "mallory", "labelled mallory settled unauthorised", 0},
	} {
		t.Run(name, func(t *testing.T) {
			w, p, n := commandWorld(t, withTeamLabel+tt.source)
			w.relabel(t, n, tt.by, "agent", "run-team")
			lookAndOrder(t, p)
			equal(t, "row", rows(t, p)[1], tt.row)
			equal(t, "ordered", len(w.teams()), tt.ordered)
		})
	}
	t.Run("a member that wrote the item", func(t *testing.T) {
		w := newWorld(t, strings.Replace(withTeamLabel, "authors: [Alice]", "associations: [OWNER]", 1))
		n := w.labelled(t, "mallory")
		w.relabel(t, n, "mallory", "agent", "run-team")
		p := w.open(t)
		lookAndOrder(t, p)
		equal(t, "ordered", len(w.teams()), 1)
	})
}

func TestTeamLabel_EachLabelHasItsOwnTeam(t *testing.T) {
	w, p, n := commandWorld(t, withTeamLabel)
	w.relabel(t, n, "alice", "agent", "review-team")
	w.relabel(t, n, "alice", "agent", "review-team", "run-team")
	lookAndOrder(t, p)
	equal(t, "ordered", w.teams(), []string{"team alice (by a label)", "team crew alice (by a label)"})
	w.clock.advance(time.Second)
	w.comment(t, n, "alice", "/muxpost team review at once")
	lookAndOrder(t, p)
	equal(t, "ordered last", w.teams()[2:], []string{"team review alice (in a comment)"})
}

func TestTeamLabel_AloneItStartsNoAgent(t *testing.T) {
	w := newWorld(t, withTeamLabel)
	n := w.issue(t, fakegithub.Issue{Title: "Build it", Author: "alice", Body: "Please build it.", Labels: []string{"run-team"}})
	p := w.open(t)
	lookAndOrder(t, p)
	equal(t, "rows", rows(t, p), []string{"opened alice settled command", "labelled alice settled command"})
	equal(t, "ordered", len(w.teams()), 1)
	equal(t, "asked to deliver", w.asked(), 0)
	// What is written there later goes to an agent, as in every item under care.
	w.clock.advance(time.Second)
	w.comment(t, n, "alice", "a word")
	lookAndOrder(t, p)
	equal(t, "asked to deliver", w.asked(), 1)
	equal(t, "ordered", len(w.teams()), 1)
}

func TestTeamLabel_ARunThatIsInTheWayIsToldAndNothingIsBegun(t *testing.T) {
	for name, source := range map[string]string{"with notices": withTeamLabel, "without": standard + "    team_labels: {run-team: crew}\n"} {
		t.Run(name, func(t *testing.T) {
			w, p, n := commandWorld(t, source)
			w.dispatcher.mu.Lock()
			w.dispatcher.refusal = status.Error(codes.AlreadyExists, "the team loop-1 has a run that is not over: r0 is in exec")
			w.dispatcher.mu.Unlock()
			w.relabel(t, n, "alice", "agent", "run-team")
			lookAndOrder(t, p)
			lookAndOrder(t, p)
			equal(t, "ordered", len(w.teams()), 1)
			if d := entries(t, p)[1].Detail; !strings.Contains(d, "did not do that: the team loop-1 has a run that is not over") {
				t.Errorf("the event does not say why: %s", d)
			}
			texts, _ := w.answered(t)
			if told := strings.Contains(source, "notices"); told != (len(texts) == 1 && strings.Contains(texts[0], "has a run that is not over")) {
				t.Errorf("answers %q", texts)
			}
		})
	}
}

func TestTeamLabel_APollerThatDiesAfterTheOrderBeginsNothingTwice(t *testing.T) {
	w, p, n := commandWorld(t, withTeamLabel)
	w.relabel(t, n, "alice", "agent", "run-team")
	look(t, p)
	notifyAll(t, p)
	// As if it had been killed before it wrote down what came of it.
	sql(t, p, `update poller.outbox set state = 'waiting', ended_at = null, lease_until = null where post = 'command'`)
	other := w.open(t)
	lookAndOrder(t, other)
	equal(t, "ordered", len(w.teams()), 2)
	w.dispatcher.mu.Lock()
	defer w.dispatcher.mu.Unlock()
	equal(t, "orders that a run was begun for", w.dispatcher.runs, []string{entries(t, p)[1].DeliveryID})
}

func TestTeamLabel_TwoPollersAtOnceOrderItOnce(t *testing.T) {
	w, p, n := commandWorld(t, withTeamLabel)
	other := w.open(t)
	for i := range 10 {
		w.relabel(t, n, "alice", "agent")
		w.relabel(t, n, "alice", "agent", "run-team")
		var both sync.WaitGroup
		for _, p := range []*parts{p, other} {
			both.Go(func() {
				if r := tryLook(t, p); r.Err != nil {
					t.Error(r.Err)
				}
				if err := p.notifier.Carry(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		both.Wait()
		notifyAll(t, p)
		equal(t, "ordered", len(w.teams()), i+1)
	}
}

func TestTeamLabel_WhatWasForgottenIsNotOrderedAgain(t *testing.T) {
	w, p, n := commandWorld(t, withTeamLabel)
	w.relabel(t, n, "alice", "agent", "run-team")
	lookAndOrder(t, p)
	sql(t, p, `update poller.events set updated_at = updated_at - interval '2 years'`)
	_, _, err := p.store.Forget(t.Context(), time.Hour)
	must(t, err)
	if slices.ContainsFunc(rows(t, p), func(r string) bool { return strings.HasPrefix(r, "labelled") }) {
		t.Fatal("nothing is forgotten")
	}
	w.clock.advance(time.Minute)
	w.comment(t, n, "alice", "a word")
	lookAndOrder(t, p)
	equal(t, "ordered", len(w.teams()), 1)
}

func TestTeamLabel_WithoutTheRightToAskWhoEverythingElseIsRead(t *testing.T) {
	w, p, n := commandWorld(t, withTeamLabel)
	w.relabel(t, n, "alice", "agent", "run-team")
	w.comment(t, n, "alice", "a word")
	must(t, w.Inject(fakegithub.Fault{Kind: fakegithub.KindStatus, Path: "/graphql", Status: 200, Times: -1,
		Body: `{"data": null, "errors": [{"type": "FORBIDDEN", "message": "no"}]}`}))
	r := tryLook(t, p)
	if r.Err == nil || !strings.Contains(r.Err.Error(), "lacks a permission") {
		t.Errorf("the look says %v", r.Err)
	}
	equal(t, "row", rows(t, p)[1], "comment alice pending")
	equal(t, "ordered", len(w.teams()), 0)
}

func TestTeamLabel_ByWebhookItIsOrderedOnceHoweverOftenItIsTold(t *testing.T) {
	w := hookedWorld(t)
	text, err := os.ReadFile(w.config)
	must(t, err)
	must(t, os.WriteFile(w.config, append(text, "\n    team_labels: {run-team: crew}\n"...), 0o600))
	r := start(t, w)
	eventually(t, "it has been looked at once", w.looked)
	r.hook(t)
	n := w.labelled(t, "alice")
	eventually(t, "the opening event arrives", func() bool { return w.asked() == 1 })
	w.relabel(t, n, "alice", "agent", "run-team")
	eventually(t, "the team is ordered", func() bool { return len(w.teams()) == 1 })
	equal(t, "ordered", w.teams(), []string{"team crew alice (by a label)"})

	p := w.open(t)
	settled := func() {
		t.Helper()
		r.delivered(t, "issues")
		eventually(t, "all are handled", func() bool { return r.webhook(t).GetWaiting() == 0 })
		_, err := r.api.PollNow(t.Context(), &pollerv1.PollNowRequest{})
		must(t, err)
		equal(t, "failed", r.webhook(t).GetFailed(), int32(0))
		eventually(t, "all orders are carried out", func() bool { return !slices.Contains(outbox(t, p), "command waiting") })
	}
	// Sent again, under its GUID and under another one, and found by a look: nothing comes of it.
	var on fakegithub.Delivery
	for _, d := range r.delivered(t, "issues") {
		if d.Action == "labeled" {
			on = d
		}
	}
	must(t, w.Redeliver(on.GUID))
	_, err = w.RedeliverAs(on.GUID)
	must(t, err)
	settled()
	equal(t, "ordered", len(w.teams()), 1)

	// Off: what is told late of when it was on does nothing. On again: once more, in whatever order that is told.
	w.relabel(t, n, "alice", "agent")
	_, err = w.RedeliverAs(on.GUID)
	must(t, err)
	settled()
	equal(t, "ordered once it is off", len(w.teams()), 1)
	// Nor does what is told when it is off already.
	w.HoldHooks(true)
	w.relabel(t, n, "alice", "agent", "run-team")
	w.relabel(t, n, "alice", "agent")
	w.HoldHooks(false)
	settled()
	equal(t, "ordered for what was on for a moment", len(w.teams()), 1)
	for seed := range uint64(3) {
		w.HoldHooks(true)
		w.relabel(t, n, "alice", "agent", "run-team")
		w.relabel(t, n, "alice", "agent")
		w.relabel(t, n, "alice", "agent", "run-team")
		w.ShuffleHeld(seed)
		w.HoldHooks(false)
		want := 2 + int(seed)
		eventually(t, "the team is ordered again", func() bool { return len(w.teams()) >= want })
		settled()
		equal(t, "ordered", len(w.teams()), want)
		w.relabel(t, n, "alice", "agent")
		settled()
	}
	must(t, r.stop())
}
