package notify

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/ledger"
)

var now = time.Unix(1_700_000_000, 0)

// fakeOutbox hands out one post, once.
type fakeOutbox struct {
	post *Post
	ends []End
}

func (o *fakeOutbox) ClaimPost(context.Context, []string, time.Duration) (Post, bool, error) {
	if o.post == nil {
		return Post{}, false, nil
	}
	p := *o.post
	o.post = nil
	return p, true, nil
}

func (o *fakeOutbox) EndPost(_ context.Context, _ Post, end End) error {
	o.ends = append(o.ends, end)
	return nil
}

// fakeTickets answers everything alike.
type fakeTickets struct {
	there  bool
	err    error
	writes []string
}

func (f *fakeTickets) Noticed(context.Context, string, uint64, string) (bool, error) {
	return f.there, nil
}

func (f *fakeTickets) Notice(_ context.Context, _ string, _ uint64, text string) error {
	f.writes = append(f.writes, text)
	return f.err
}

func (f *fakeTickets) React(_ context.Context, _ string, _ uint64, kind string, _ int64, content string) error {
	f.writes = append(f.writes, strings.TrimSpace(kind+" "+content))
	return f.err
}

// fakeOrders carries out everything alike.
type fakeOrders struct {
	text, reaction string
	err            error
	carried        []string
}

func (f *fakeOrders) Command(_ context.Context, _, workItem, who string, c ledger.Command) (text, reaction string, err error) {
	f.carried = append(f.carried, strings.Join([]string{workItem, who, c.String()}, " "))
	return f.text, f.reaction, f.err
}

func carryOne(t *testing.T, p Post, tickets *fakeTickets) End {
	t.Helper()
	return carryWith(t, p, tickets, &fakeOrders{})
}

func carryWith(t *testing.T, p Post, tickets *fakeTickets, orders *fakeOrders) End {
	t.Helper()
	p.Source, p.Now = "gh", now
	if p.Posting.CreatedAt.IsZero() {
		p.Posting.CreatedAt = now
	}
	o := &fakeOutbox{post: &p}
	n := New(o, map[string]Tickets{"gh": tickets}, orders, slog.New(slog.DiscardHandler), nil)
	if err := n.Carry(t.Context()); err != nil || len(o.ends) != 1 {
		t.Fatalf("%v, %d ends", err, len(o.ends))
	}
	return o.ends[0]
}

func TestCarry_WhatAnAnswerMeansForAPost(t *testing.T) {
	gaveUp := Post{What: ledger.NoticeGaveUp, State: ledger.GaveUp}
	old := gaveUp
	old.Posting.CreatedAt = now.Add(-ledger.PostTime)
	worn := gaveUp
	worn.Posting = ledger.Posting{Refusals: ledger.PostTries - 1, CreatedAt: now}
	limit := fault.New(fault.Throttled, fault.ReasonRateLimited, "limited")
	for _, tt := range []struct {
		name     string
		post     Post
		tickets  fakeTickets
		state    State
		refusals int
		limit    time.Duration
		writes   int
	}{
		{"taken", gaveUp, fakeTickets{}, Done, 0, 0, 1},
		{"there already", gaveUp, fakeTickets{there: true}, Done, 0, 0, 0},
		{"no longer true", Post{What: ledger.NoticeGaveUp, State: ledger.Pending}, fakeTickets{}, Skipped, 0, 0, 0},
		{"silence", gaveUp, fakeTickets{err: fault.New(fault.Unavailable, "", "x")}, Waiting, 0, 0, 1},
		{"a fault of ours", gaveUp, fakeTickets{err: errors.New("x")}, Waiting, 0, 0, 1},
		{"a refusal", gaveUp, fakeTickets{err: fault.New(fault.Denied, "", "x")}, Waiting, 1, 0, 1},
		{"the last refusal", worn, fakeTickets{err: fault.New(fault.NotFound, "", "x")}, Failed, ledger.PostTries, 0, 1},
		{"a limit", worn, fakeTickets{err: limit}, Waiting, ledger.PostTries - 1, time.Minute, 1},
		{"a limit with a time", gaveUp, fakeTickets{err: limit.WithRetryAfter(time.Hour)}, Waiting, 0, time.Hour, 1},
		{"too old", old, fakeTickets{}, Failed, 1, 0, 0},
	} {
		end := carryOne(t, tt.post, &tt.tickets)
		got := []any{end.State, end.Posting.Refusals, end.Limit, len(tt.tickets.writes), end.Problem != ""}
		want := []any{tt.state, tt.refusals, tt.limit, tt.writes, tt.state == Waiting || tt.state == Failed}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: state, refusals, limit, writes, problem (-want +got):\n%s", tt.name, diff)
		}
		if (end.State == Waiting) != (end.Wait > 0) && end.State != Failed {
			t.Errorf("%s: %s waits %v", tt.name, end.State, end.Wait)
		}
	}
}

func TestText_EveryNoticeNamesIDLinkAndRemedyBehindItsOwnMark(t *testing.T) {
	marks := map[string]bool{}
	for _, what := range ledger.AllPosts() {
		if !what.Notice() || what == ledger.NoticeStarted {
			continue
		}
		p := Post{What: what, DeliveryID: "dabc", WorkItem: "github:o/r#1", URL: "https://example.com/1", Tries: 3}
		got := text(p)
		for _, want := range []string{mark(p) + "\n", "`dabc`", "https://example.com/1", "what to do: "} {
			if !strings.Contains(got, want) {
				t.Errorf("%s lacks %q:\n%s", what, want, got)
			}
		}
		if ended := what != ledger.NoticeHeld; ended != strings.Contains(strings.Replace(got, "--type-again ", "", 1), "`muxpost retry dabc`") {
			t.Errorf("%s: the retry is for what has ended alone:\n%s", what, got)
		}
		if !strings.HasPrefix(got, "<!-- muxpost notice ") || marks[mark(p)] {
			t.Errorf("the mark of %s is %s", what, mark(p))
		}
		marks[mark(p)] = true
	}
}

func TestText_WhereAnAgentWasStartedIsSaidWithHowToLook(t *testing.T) {
	for want, words := range map[string]Words{
		"**muxpost** started an agent (`codex`) on the host `east` for this.": {Harness: "codex", Host: "ea`st"},
		"**muxpost** started an agent for this.":                              {},
	} {
		got := text(Post{What: ledger.NoticeStarted, DeliveryID: "dabc", WorkItem: "github:o/r#1", Words: words})
		if !strings.HasPrefix(got, "<!-- muxpost notice notice_started dabc -->\n"+want+"\n") || !strings.Contains(got, "`muxpost attach github:o/r#1`") {
			t.Error(got)
		}
	}
}

func TestCarry_ReactionsGoToWhatTheEventIsAbout(t *testing.T) {
	for want, p := range map[string]Post{
		"opened eyes":                {What: ledger.ReactionEyes, Kind: "opened", State: ledger.Pending},
		"comment hooray":             {What: ledger.ReactionHooray, Kind: "comment", State: ledger.Delivered},
		"review_comment confused":    {What: ledger.ReactionConfused, Kind: "review_comment", State: ledger.Dropped},
		"comment +1":                 {What: ledger.PostAnswer, Kind: "comment", State: ledger.Settled, Words: Words{Reaction: "+1"}},
		"<!-- muxpost notice answer": {What: ledger.PostAnswer, Kind: "comment", State: ledger.Settled, Words: Words{Text: "said", Reaction: "+1"}},
	} {
		tickets := &fakeTickets{}
		if end := carryOne(t, p, tickets); end.State != Done || len(tickets.writes) != 1 || !strings.HasPrefix(tickets.writes[0], want) {
			t.Errorf("%s: %s, %q", want, end.State, tickets.writes)
		}
	}
	tickets := &fakeTickets{}
	if end := carryOne(t, Post{What: ledger.ReactionEyes, State: ledger.Delivered}, tickets); end.State != Skipped || len(tickets.writes) > 0 {
		t.Errorf("eyes on what was delivered: %s, %q", end.State, tickets.writes)
	}
}

func TestCarry_AnOrderIsCarriedOutAndItsAnswerKeptAndNothingIsWritten(t *testing.T) {
	order := Post{What: ledger.PostCommand, State: ledger.Settled, Command: "/muxpost pause for now", Author: "alice", WorkItem: "i"}
	old := order
	old.Posting = ledger.Posting{CreatedAt: now.Add(-ledger.CommandTime), Time: ledger.CommandTime}
	late1 := order
	late1.Posting = ledger.Posting{CreatedAt: now.Add(1 - ledger.CommandTime), Time: ledger.CommandTime}
	silence := fault.New(fault.Unavailable, fault.ReasonDispatcherSilent, "x")
	for name, tt := range map[string]struct {
		post    Post
		orders  fakeOrders
		state   State
		answer  Words
		carried int
	}{
		"done":                   {order, fakeOrders{reaction: "+1"}, Done, Words{Reaction: "+1"}, 1},
		"with words":             {order, fakeOrders{text: "so it is", reaction: "+1"}, Done, Words{Text: "so it is", Reaction: "+1"}, 1},
		"nobody answers":         {order, fakeOrders{err: silence}, Waiting, Words{}, 1},
		"nobody answered":        {late1, fakeOrders{err: silence}, Failed, Words{Text: late}, 1},
		"its turn came too late": {old, fakeOrders{}, Failed, Words{Text: late}, 0},
	} {
		tickets := &fakeTickets{}
		end := carryWith(t, tt.post, tickets, &tt.orders)
		if diff := cmp.Diff([]any{tt.state, tt.answer, tt.carried, 0, time.Duration(0)},
			[]any{end.State, end.Answer, len(tt.orders.carried), len(tickets.writes), end.Limit}); diff != "" {
			t.Errorf("%s: state, answer, carried, writes, limit (-want +got):\n%s", name, diff)
		}
		if tt.carried > 0 && tt.orders.carried[0] != "i alice /muxpost pause for now" {
			t.Errorf("%s: %q", name, tt.orders.carried)
		}
	}
}

func TestStands_EveryPostIsTrueWhenItIsMade(t *testing.T) {
	for _, s := range ledger.States() {
		for _, reason := range []string{"", ledger.ReasonUnconfirmed, ledger.ReasonSessionOccupied} {
			for _, what := range ledger.Posts(ledger.Progress{State: s, Reason: reason, HeldSince: now.Add(-ledger.HeldLong)}, now) {
				if !(Post{What: what, State: s}).stands() {
					t.Errorf("%s is not true of %v, %q", what, s, reason)
				}
			}
		}
	}
}
