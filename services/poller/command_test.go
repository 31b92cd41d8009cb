package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/ledger"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	teamv1 "muxpost.dev/muxpost/proto/gen/muxpost/team/v1"
	"muxpost.dev/muxpost/services/poller/internal/poll"
)

func (d *dispatcher) order(words ...string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.silent {
		return status.Error(codes.Unavailable, "away")
	}
	d.orders = append(d.orders, strings.TrimSpace(strings.Join(words, " ")))
	return nil
}

func (d *dispatcher) Pause(_ context.Context, r *dispatcherv1.PauseRequest) (*dispatcherv1.PauseResponse, error) {
	if err := d.order("pause", r.GetWorkItem(), r.GetWho(), r.GetReason()); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	p := &dispatcherv1.Pause{WorkItem: r.GetWorkItem(), Who: r.GetWho()}
	_, existed := d.pauses[r.GetWorkItem()]
	d.pauses = map[string]*dispatcherv1.Pause{r.GetWorkItem(): p}
	return &dispatcherv1.PauseResponse{Pause: p, Existed: existed}, nil
}

func (d *dispatcher) Unpause(_ context.Context, r *dispatcherv1.UnpauseRequest) (*dispatcherv1.UnpauseResponse, error) {
	if err := d.order("unpause", r.GetWorkItem(), r.GetWho()); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.pauses[r.GetWorkItem()]
	d.pauses = nil
	return &dispatcherv1.UnpauseResponse{Pause: p}, nil
}

func (d *dispatcher) ListPauses(context.Context, *dispatcherv1.ListPausesRequest) (*dispatcherv1.ListPausesResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := &dispatcherv1.ListPausesResponse{}
	for _, p := range d.pauses {
		out.Pauses = append(out.Pauses, p)
	}
	return out, nil
}

func (d *dispatcher) StopSession(_ context.Context, r *dispatcherv1.StopSessionRequest) (*dispatcherv1.StopSessionResponse, error) {
	if err := d.order("stop", r.GetWorkItem(), r.GetWho(), r.GetReason()); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return &dispatcherv1.StopSessionResponse{}, d.refusal
}

// itemTeams answers for the teams of work items.
type itemTeams struct {
	teamv1.UnimplementedTeamServiceServer
	d *dispatcher
}

func (t itemTeams) StartItemRun(_ context.Context, r *teamv1.StartItemRunRequest) (*teamv1.StartItemRunResponse, error) {
	if err := t.d.order(strings.Fields("team " + r.GetWorkItem() + " " + r.GetTeam() + " " + r.GetWho())...); err != nil {
		return nil, err
	}
	t.d.mu.Lock()
	defer t.d.mu.Unlock()
	// An order begins one run.
	at := slices.Index(t.d.runs, r.GetOrderId())
	if at < 0 && t.d.refusal == nil {
		at, t.d.runs = len(t.d.runs), append(t.d.runs, r.GetOrderId())
	}
	return &teamv1.StartItemRunResponse{Run: &teamv1.Run{RunId: fmt.Sprint("r", at+1), Tasks: 3}}, t.d.refusal
}

func (d *dispatcher) RemoveTree(_ context.Context, r *dispatcherv1.RemoveTreeRequest) (*dispatcherv1.RemoveTreeResponse, error) {
	if err := d.order("clean", r.GetWorkItem(), r.GetWho()); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return &dispatcherv1.RemoveTreeResponse{Removed: d.kept == "", Detail: d.kept}, d.refusal
}

func (w *world) ordered() []string {
	w.dispatcher.mu.Lock()
	defer w.dispatcher.mu.Unlock()
	return slices.Clone(w.dispatcher.orders)
}

// answered returns the answers on the ticket, without their marks, and the reactions on comments.
func (w *world) answered(t *testing.T) (texts, reactions []string) {
	t.Helper()
	issue, err := w.Issue("acme", "widgets", 1)
	must(t, err)
	for _, c := range issue.Comments {
		if rest, ok := strings.CutPrefix(c.Body, "<!-- muxpost notice answer "); ok {
			_, text, _ := strings.Cut(rest, "-->\n")
			texts = append(texts, strings.TrimSpace(text))
		}
		for _, r := range c.Reactions {
			reactions = append(reactions, r.Content)
		}
	}
	return texts, reactions
}

// commandWorld has an item whose opening was delivered; nothing else stands on its ticket.
func commandWorld(t *testing.T, source string) (*world, *parts, int) {
	t.Helper()
	w := newWorld(t, source)
	n := w.labelled(t, "alice")
	p := w.open(t)
	look(t, p)
	carry(t, p)
	return w, p, n
}

func TestCommand_IsCarriedOutOnceAndNeverDelivered(t *testing.T) {
	const item = "ITEM"
	for name, tt := range map[string]struct {
		body      string
		ordered   []string
		reactions []string
		// texts are what the answers hold.
		texts []string
	}{
		"pause":         {"/muxpost pause until monday\nthanks", []string{"pause ITEM alice (in a comment) until monday"}, []string{"+1"}, nil},
		"resume":        {"\n /muxpost resume", []string{"unpause ITEM alice (in a comment)"}, []string{"+1"}, nil},
		"stop":          {"/muxpost stop", []string{"stop ITEM alice (in a comment)"}, []string{"+1"}, nil},
		"retry":         {"/muxpost retry", nil, nil, []string{"nothing of this gave up"}},
		"status":        {"/muxpost status", nil, nil, []string{"- agent: live"}},
		"cleanup":       {"/muxpost cleanup", []string{"clean ITEM alice (in a comment)"}, []string{"+1"}, nil},
		"team":          {"/muxpost team", []string{"team ITEM alice (in a comment)"}, nil, []string{"runs its team: 3 tasks, and a verification"}},
		"unknown":       {"/muxpost deploy", nil, nil, []string{"has no order `deploy`"}},
		"nothing named": {"/muxpost", nil, nil, []string{"`/muxpost pause`"}},
	} {
		t.Run(name, func(t *testing.T) {
			w, p, n := commandWorld(t, withNotices)
			asked := w.asked()
			w.comment(t, n, "alice", tt.body)
			look(t, p)
			carry(t, p)
			for range 3 {
				notifyAll(t, w.open(t))
			}
			equal(t, "asked to deliver", w.asked(), asked)
			got := w.ordered()
			for i := range got {
				got[i] = strings.ReplaceAll(got[i], entries(t, p)[0].WorkItem, item)
			}
			equal(t, "ordered", got, tt.ordered)
			row := last(t, p)
			if row.State != ledger.Settled || row.Reason != ledger.ReasonCommand || !strings.HasPrefix(row.Detail, "an order to muxpost: /muxpost") {
				t.Errorf("the row is %+v", row)
			}
			texts, reactions := w.answered(t)
			equal(t, "reactions", reactions, tt.reactions)
			if len(texts) != len(tt.texts) || len(texts) == 1 && !strings.Contains(texts[0], tt.texts[0]) {
				t.Errorf("answers %q", texts)
			}
			// Its own answer is no event.
			w.clock.advance(time.Second)
			equal(t, "new", look(t, p).NewEvents, 0)
		})
	}
}

func TestCommand_WhatIsNoneOrNotAllowedIsTreatedAsAnyComment(t *testing.T) {
	for name, tt := range map[string]struct{ author, body, want string }{
		"by somebody who may not steer": {"mallory", "/muxpost stop", "comment mallory settled unauthorised"},
		"in a block of code":            {"alice", "```\n/muxpost stop\n```", "comment alice delivered"},
		"in a later line":               {"alice", "see\n/muxpost stop", "comment alice delivered"},
		"in a quotation":                {"alice", "> /muxpost stop", "comment alice delivered"},
		"with our mark":                 {"alice", "/muxpost stop\n<!-- muxpost -->", "comment alice settled own"},
	} {
		t.Run(name, func(t *testing.T) {
			w, p, n := commandWorld(t, withNotices)
			w.comment(t, n, tt.author, tt.body)
			look(t, p)
			carry(t, p)
			notifyAll(t, p)
			equal(t, "row", rows(t, p)[1], tt.want)
			equal(t, "ordered", w.ordered(), []string(nil))
		})
	}
}

func TestCommand_WhatWasThereBeforeIsNoOrder(t *testing.T) {
	w := newWorld(t, withNotices)
	n := w.labelled(t, "alice")
	w.comment(t, n, "alice", "/muxpost stop")
	p := w.open(t)
	look(t, p)
	notifyAll(t, p)
	equal(t, "row", rows(t, p)[1], "comment alice settled baselined")
	equal(t, "ordered", w.ordered(), []string(nil))
}

func TestCommand_AnEditNeverRunsOne(t *testing.T) {
	for name, tt := range map[string]struct{ first, then string }{
		"again":              {"/muxpost pause", "/muxpost pause now"},
		"another":            {"/muxpost pause", "/muxpost stop"},
		"of a comment":       {"please stop", "/muxpost stop"},
		"back and forth":     {"/muxpost pause", "never mind"},
		"in lines behind it": {"/muxpost pause", "/muxpost pause\nbecause"},
	} {
		t.Run(name, func(t *testing.T) {
			w, p, n := commandWorld(t, withNotices)
			id := w.comment(t, n, "alice", tt.first)
			look(t, p)
			notifyAll(t, p)
			w.edit(t, id, tt.then)
			look(t, p)
			notifyAll(t, p)
			w.edit(t, id, tt.first)
			look(t, p)
			notifyAll(t, p)
			want := 0
			if strings.HasPrefix(tt.first, "/") {
				want = 1
			}
			equal(t, "orders", len(w.ordered()), want)
			all := entries(t, p)
			for _, e := range all[2:] {
				if e.Reason == ledger.ReasonCommand && !strings.Contains(e.Detail, "not carried out") {
					t.Errorf("the row of an edit is %+v", e)
				}
			}
		})
	}
}

func TestCommand_WithoutNoticesItIsCarriedOutAndNotAnswered(t *testing.T) {
	w, p, n := commandWorld(t, standard)
	for _, body := range []string{"/muxpost pause", "/muxpost status", "/muxpost nonsense"} {
		w.comment(t, n, "alice", body)
	}
	look(t, p)
	notifyAll(t, p)
	equal(t, "orders", len(w.ordered()), 1)
	equal(t, "posts", outbox(t, p), []string{"command done", "command done", "command done"})
	for key := range w.Counts() {
		if !strings.HasPrefix(key, "GET ") && key != "POST /graphql" {
			t.Errorf("asked: %s", key)
		}
	}
}

func TestCommand_ACrashRepeatsOnlyWhatChangesNothingMore(t *testing.T) {
	w, p, n := commandWorld(t, withNotices)
	w.comment(t, n, "alice", "/muxpost pause")
	look(t, p)
	// It carries the order out, and is killed before it writes that down.
	claimed, ok, err := p.store.ClaimPost(t.Context(), []string{"gh"}, time.Minute)
	must(t, err)
	equal(t, "claimed", []any{ok, claimed.What, claimed.Command}, []any{true, ledger.PostCommand, "/muxpost pause"})
	commander := poll.NewCommander(p.store, p.retrier, p.asked, p.telemetry.Logger)
	_, reaction, err := commander.Command(t.Context(), claimed.DeliveryID, claimed.WorkItem, claimed.Author, ledger.Command{Verb: ledger.VerbPause})
	must(t, err)
	equal(t, "reaction", reaction, "+1")
	must(t, w.open(t).notifier.Carry(t.Context()))
	equal(t, "orders while the lease runs", len(w.ordered()), 1)
	sql(t, p, `update poller.outbox set lease_until = now()`)
	other := w.open(t)
	notifyAll(t, other)
	equal(t, "orders", len(w.ordered()), 2)
	// As if it had been killed after the answer was written.
	sql(t, p, `update poller.outbox set state = 'waiting', ended_at = null where post = 'answer'`)
	notifyAll(t, other)
	_, reactions := w.answered(t)
	equal(t, "reactions", reactions, []string{"+1"})
	equal(t, "orders in the end", len(w.ordered()), 2)
}

func TestCommand_ATeamIsBegunOnceAndToldOfHoweverOftenItIsAskedFor(t *testing.T) {
	w, p, n := commandWorld(t, withNotices)
	w.comment(t, n, "alice", "/muxpost team")
	look(t, p)
	claimed, ok, err := p.store.ClaimPost(t.Context(), []string{"gh"}, time.Minute)
	must(t, err)
	equal(t, "claimed", []any{ok, claimed.What}, []any{true, ledger.PostCommand})
	commander := poll.NewCommander(p.store, p.retrier, p.asked, p.telemetry.Logger)
	first, _, err := commander.Command(t.Context(), claimed.DeliveryID, claimed.WorkItem, claimed.Author, ledger.Command{Verb: ledger.VerbTeam})
	must(t, err)
	// It is killed here, and another one has the order when the lease ends.
	sql(t, p, `update poller.outbox set lease_until = now()`)
	other := w.open(t)
	notifyAll(t, other)
	texts, _ := w.answered(t)
	equal(t, "answers", texts, []string{first})
	equal(t, "asked", len(w.ordered()), 2)
	// Another comment is another order.
	w.comment(t, n, "alice", "/muxpost team")
	look(t, other)
	notifyAll(t, other)
	if texts, _ = w.answered(t); len(texts) != 2 || texts[1] == first {
		t.Errorf("answers %q", texts)
	}
}

func TestCommand_ADispatcherThatIsAwayIsAskedForAQuarterOfAnHour(t *testing.T) {
	w, p, n := commandWorld(t, withNotices)
	w.dispatcher.mu.Lock()
	w.dispatcher.silent = true
	w.dispatcher.mu.Unlock()
	w.comment(t, n, "alice", "/muxpost stop")
	w.comment(t, n, "alice", "a word meanwhile")
	look(t, p)
	notifyAll(t, p)
	carry(t, p)
	equal(t, "a delivery meanwhile", last(t, p).State, ledger.Delivered)
	equal(t, "posts", outbox(t, p), []string{"command waiting"})
	sql(t, p, `update poller.outbox set created_at = created_at - interval '15 minutes'`)
	notifyAll(t, p)
	w.dispatcher.mu.Lock()
	w.dispatcher.silent = false
	w.dispatcher.mu.Unlock()
	notifyAll(t, p)
	equal(t, "orders", w.ordered(), []string(nil))
	texts, _ := w.answered(t)
	if len(texts) != 1 || !strings.Contains(texts[0], "within 15 minutes") {
		t.Errorf("answers %q", texts)
	}
	states, err := p.store.SourceStates(t.Context(), []string{"gh"})
	must(t, err)
	equal(t, "the source's problem", states["gh"].NoticeError, "")
}

func TestCommand_ARefusalIsSaidWithoutAPathOfTheHost(t *testing.T) {
	w, p, n := commandWorld(t, withNotices)
	w.dispatcher.mu.Lock()
	w.dispatcher.refusal = status.Error(codes.FailedPrecondition, "the tree at /srv/secret/tree has work in it")
	w.dispatcher.mu.Unlock()
	w.comment(t, n, "alice", "/muxpost stop")
	look(t, p)
	notifyAll(t, p)
	texts, reactions := w.answered(t)
	if len(texts) != 1 || len(reactions) > 0 || strings.Contains(texts[0], "/srv") || !strings.Contains(texts[0], "has work in it") {
		t.Errorf("answers %q, %q", texts, reactions)
	}
}

func TestCommand_CleanupKeepsATreeWithSomethingToLose(t *testing.T) {
	w, p, n := commandWorld(t, withNotices)
	w.dispatcher.kept = "2 commits of /srv/work/loop-1 are not pushed"
	w.comment(t, n, "alice", "/muxpost cleanup")
	look(t, p)
	notifyAll(t, p)
	texts, reactions := w.answered(t)
	equal(t, "answers", texts, []string{"**muxpost** keeps its working tree: 2 commits of (a path of its host) are not pushed."})
	equal(t, "reactions", reactions, []string(nil))
}

func TestCommand_RetryTriesWhatGaveUpAgainAndLeavesWhatMayHaveBeenTyped(t *testing.T) {
	w, p := noticeWorld(t, dispatcherv1.Outcome_OUTCOME_FAILED, "harness_exited")
	carry(t, p)
	w.comment(t, 1, "alice", "typed, or not")
	look(t, p)
	sql(t, p, `update poller.events set state = 'settled', reason = 'unconfirmed', next_look = null where state = 'pending'`)
	w.always(dispatcherv1.Outcome_OUTCOME_DELIVERED, "")
	w.comment(t, 1, "alice", "/muxpost retry")
	look(t, p)
	notifyAll(t, p)
	carry(t, p)
	equal(t, "rows", rows(t, p)[1:4], []string{"comment alice delivered", "comment alice settled unconfirmed", "comment alice settled command"})
	texts, _ := w.answered(t)
	if len(texts) != 1 || !strings.Contains(texts[0], "tries 1 event again. Of 1 event nothing shows whether it arrived") {
		t.Errorf("answers %q", texts)
	}
	equal(t, "who", w.dispatcher.reopened[0], entries(t, p)[1].DeliveryID+" alice (in a comment)")
}

func TestCommand_StatusSaysHowItStands(t *testing.T) {
	w, p, n := commandWorld(t, withNotices)
	w.comment(t, n, "alice", "/muxpost pause")
	look(t, p)
	notifyAll(t, p)
	w.always(dispatcherv1.Outcome_OUTCOME_WAITING, "paused")
	w.comment(t, n, "alice", "a word")
	look(t, p)
	carry(t, p)
	w.comment(t, n, "alice", "/muxpost status")
	look(t, p)
	notifyAll(t, p)
	texts, _ := w.answered(t)
	equal(t, "answers", len(texts), 1)
	item := entries(t, p)[0].WorkItem
	for _, want := range []string{"**muxpost** on `" + item + "`", "- agent: live", "- paused by `alice (in a comment)`", "- events: 1 pending, 1 delivered",
		"waits: `paused`", "`muxpost attach " + item + "`"} {
		if !strings.Contains(texts[0], want) {
			t.Errorf("the answer lacks %q:\n%s", want, texts[0])
		}
	}
}

// TestRefusals_OfTheDispatcherAreFaults holds the double to what the real one does.
func TestRefusals_OfTheDispatcherAreFaults(t *testing.T) {
	w, p, _ := commandWorld(t, standard)
	w.dispatcher.mu.Lock()
	w.dispatcher.refusal = status.Error(codes.FailedPrecondition, "no")
	w.dispatcher.mu.Unlock()
	if _, _, err := p.asked.Stop(t.Context(), entries(t, p)[0].WorkItem, strings.Repeat("ü", 100), ""); fault.KindOf(err) != fault.Conflict {
		t.Error(err)
	}
	if got := w.ordered(); len(got) != 1 || len(got[0]) > 200 {
		t.Errorf("ordered %q", got)
	}
}
