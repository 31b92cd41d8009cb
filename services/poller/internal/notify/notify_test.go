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

func (f *fakeTickets) React(_ context.Context, _ string, _ uint64, _ int64, content string) error {
	f.writes = append(f.writes, content)
	return f.err
}

func carryOne(t *testing.T, p Post, tickets *fakeTickets) End {
	t.Helper()
	p.Source, p.Now = "gh", now
	if p.Posting.CreatedAt.IsZero() {
		p.Posting.CreatedAt = now
	}
	o := &fakeOutbox{post: &p}
	n := New(o, map[string]Tickets{"gh": tickets}, slog.New(slog.DiscardHandler))
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
		if !what.Notice() {
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
