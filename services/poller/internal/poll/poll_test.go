package poll

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/trace/noop"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/ledger"
	"muxpost.dev/muxpost/core/prompt"
	"muxpost.dev/muxpost/core/workitem"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func equal(t *testing.T, what string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func item(t *testing.T) Item {
	t.Helper()
	ref, err := workitem.Parse("github:octo/widget#7")
	must(t, err)
	return Item{
		Ref: ref, NodeID: "I_7", Repository: "octo/widget", Author: Author{Login: "alice"}, Title: "a title", Body: "a body", Open: true,
	}
}

func newMaker(p Policy) maker {
	return maker{source: "gh", provider: "github", policy: p, budget: 3, templates: prompt.Default()}
}

func TestPolicy_WhoMaySteer(t *testing.T) {
	alice, bot := Author{Login: "aLiCe"}, Author{Login: "alice", Machine: true}
	for _, tt := range []struct {
		name             string
		policy           Policy
		author           Author
		body             string
		opening, comment string
	}{
		{"on the list, in any case", Policy{Authors: []string{"Alice"}}, alice, "x", "", ""},
		{"not on the list", Policy{Authors: []string{"bob"}}, alice, "x", ledger.ReasonUnauthorised, ledger.ReasonUnauthorised},
		{"no list", Policy{}, alice, "x", ledger.ReasonUnauthorised, ledger.ReasonUnauthorised},
		{"nobody, and an empty name on the list", Policy{Authors: []string{""}}, Author{}, "x",
			ledger.ReasonUnauthorised, ledger.ReasonUnauthorised},
		{"a letter that only looks alike", Policy{Authors: []string{"alice"}}, Author{Login: "аlice"}, "x",
			ledger.ReasonUnauthorised, ledger.ReasonUnauthorised},
		{"a machine on the list", Policy{Authors: []string{"alice"}}, bot, "x", ReasonBot, ReasonBot},
		{"our own mark", Policy{Authors: []string{"alice"}}, alice, "x <!-- muxpost:1 -->", ReasonOwn, ReasonOwn},
		{"the label is trusted", Policy{TrustLabel: true}, alice, "x", "", ledger.ReasonUnauthorised},
		{"the label is trusted, a machine", Policy{TrustLabel: true}, bot, "x", "", ReasonBot},
		{"the label is trusted, our own mark", Policy{TrustLabel: true}, alice, "<!-- muxpost -->", ReasonOwn, ReasonOwn},
	} {
		equal(t, tt.name+", opening", tt.policy.opening(Item{Author: tt.author, Body: tt.body, Care: CareLabel}), tt.opening)
		equal(t, tt.name+", comment", tt.policy.post(Post{Author: tt.author, Body: tt.body}), tt.comment)
	}
	mentioned := Item{Author: alice, Body: "x", Care: CareMention}
	equal(t, "the label is trusted, and anybody can mention", Policy{TrustLabel: true}.opening(mentioned), ledger.ReasonUnauthorised)
}

func TestMentions_AreNamesAndNotPartsOfThem(t *testing.T) {
	for text, want := range map[string]bool{
		"@Helper do it": true, "please, @helper.": true, "(@helper)": true, "cc @helper": true, "x@helper.example": false, "@helper-2": false,
		"@helpers": false, "helper": false, "mail me@helper": false, "@helpers and @helper": true, "ä@helper": false, "": false,
	} {
		equal(t, text, mentions(text, "helper"), want)
	}
	equal(t, "of nobody", mentions("@ you", ""), false)
}

func TestEvents_TheFenceIsAnotherEachTime(t *testing.T) {
	m := newMaker(Policy{Authors: []string{"alice"}})
	c := Post{Kind: KindComment, NodeID: "IC_1", Author: Author{Login: "alice"}, Body: "one"}
	a, err := m.later(thread{workItem: "github:octo/widget#7", item: item(t)}, []Post{c}, time.Time{})
	must(t, err)
	b, err := m.later(thread{workItem: "github:octo/widget#7", item: item(t)}, []Post{c}, time.Time{})
	must(t, err)
	if a[0].Text == b[0].Text {
		t.Error("two fences are alike")
	}
}

func TestEvents_WhateverWasWrittenFits(t *testing.T) {
	m := newMaker(Policy{Authors: []string{"alice"}})
	i := item(t)
	i.Body, i.Title = strings.Repeat("é", prompt.MaxText), strings.Repeat("t", 100_000)
	var comments []Post
	for n := range 400 {
		comments = append(comments, Post{
			Kind: KindComment, ID: int64(n), NodeID: fmt.Sprint("IC_", n), Author: Author{Login: "alice"},
			Body: fmt.Sprintf("number %03d. %s", n, strings.Repeat("x", 1000)),
		})
	}
	events, err := m.firstSight(thread{workItem: "github:octo/widget#7", item: i}, comments)
	must(t, err)
	text := events[0].Text
	if len(text) > prompt.MaxText || !strings.Contains(text, "number 399.") || strings.Contains(text, "number 000.") ||
		!strings.Contains(text, "earlier comments are left out") || !strings.Contains(text, "follow the link") {
		t.Errorf("%d bytes, beginning with %.300s", len(text), text)
	}
	equal(t, "events", len(events), 401)
	for _, e := range events[1:] {
		if e.State != ledger.Settled || e.Text != "" || e.Reason != ledger.ReasonBaselined {
			t.Fatalf("%+v", e)
		}
	}
}

func TestLine_IsOneLineThatShows(t *testing.T) {
	equal(t, "a line", line(" a\nb\x1b[2J\u202e\u200b\tc\x00 "), "a b[2J c")
	equal(t, "length", len([]rune(line(strings.Repeat("é", 1000)))), maxTitle)
}

// fakeSource answers by state.
type fakeSource struct {
	err   error
	items []Item
	read  []string
}

func (s *fakeSource) Items(_ context.Context, repository string) (Listing, error) {
	s.read = append(s.read, repository)
	return Listing{Items: s.items, At: time.Now()}, s.err
}

func (s *fakeSource) Item(context.Context, string, uint64, bool) (Item, error) { return Item{}, s.err }

func (s *fakeSource) HasPost(context.Context, string, uint64, string, int64) (bool, error) {
	return true, s.err
}

func (s *fakeSource) Posts(context.Context, string, uint64, bool, time.Time) ([]Post, error) {
	return nil, s.err
}

// fakeLedger keeps what a look says of itself; the real one is tested with Postgres.
type fakeLedger struct {
	mu      sync.Mutex
	held    bool
	look    Look
	ends    []LookEnd
	records []Record
}

func (l *fakeLedger) KeepLook(context.Context, string, string, time.Duration) error { return nil }

func (l *fakeLedger) LookDue(context.Context, string, time.Duration) (time.Duration, error) {
	return 0, nil
}

func (l *fakeLedger) BeginLook(context.Context, string, string, time.Duration, time.Duration) (Look, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held {
		return Look{}, fault.New(fault.Conflict, fault.ReasonLeaseHeld, "held")
	}
	return l.look, nil
}

func (l *fakeLedger) EndLook(_ context.Context, _, _ string, end LookEnd) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ends = append(l.ends, end)
	l.look.Throttles = end.Throttles
	return nil
}

func (l *fakeLedger) Known(context.Context, string, []string) ([]Known, error) { return nil, nil }

func (l *fakeLedger) KnownPulls(context.Context, string, []string) ([]KnownPull, error) {
	return nil, nil
}

func (l *fakeLedger) Link(context.Context, Record, string) (Linked, bool, error) {
	return Linked{}, false, errors.New("not used")
}

func (l *fakeLedger) PullsAt(context.Context, string, string, []uint64) ([]KnownPull, error) {
	return nil, nil
}

func (l *fakeLedger) Items(context.Context, []string) (map[string]Owner, error) { return nil, nil }

func (l *fakeLedger) Record(_ context.Context, r Record) (Recorded, error) {
	l.records = append(l.records, r)
	return Recorded{Pending: len(r.Events)}, nil
}

func (l *fakeLedger) Submit(context.Context, Event, bool) (Entry, bool, error) {
	return Entry{}, false, errors.New("not used")
}

// seesNothing is a rearmer for whom every version is an old one.
type seesNothing struct{}

func (seesNothing) See(context.Context, []string) ([]string, error) { return nil, nil }

func newPoller(l *fakeLedger, s *fakeSource) *Poller {
	return New(Config{
		Ledger: l, Rearmer: seesNothing{}, Holder: "me", Budget: 3, Logger: slog.New(slog.DiscardHandler), Tracer: noop.NewTracerProvider().Tracer(""), Now: time.Now,
		Sources: []Watched{{Name: "gh", Provider: "github", Host: "github.com", Source: s, Repositories: []string{"a/b", "c/d", "e/f"}}},
	})
}

func TestLook_WaitsLongerEachTimeALimitDoesNotSayHowLong(t *testing.T) {
	l, s := &fakeLedger{}, &fakeSource{err: fault.New(fault.Throttled, fault.ReasonRateLimited, "limited")}
	p := newPoller(l, s)
	for range 7 {
		_, err := p.Look(t.Context(), "gh")
		must(t, err)
	}
	s.err = fault.New(fault.Throttled, fault.ReasonRateLimited, "limited").WithRetryAfter(7 * time.Second)
	_, err := p.Look(t.Context(), "gh")
	must(t, err)
	s.err = nil
	_, err = p.Look(t.Context(), "gh")
	must(t, err)
	var waits []time.Duration
	for _, end := range l.ends {
		waits = append(waits, end.Wait)
	}
	equal(t, "waits", waits, []time.Duration{
		time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 15 * time.Minute, 15 * time.Minute, 15 * time.Minute, 7 * time.Second, 0,
	})
	equal(t, "limits in a row at the end", l.look.Throttles, 0)
}

func TestLook_AsksNothingMoreOnceTheSourceIsSilentOrLimits(t *testing.T) {
	for kind, want := range map[fault.Kind]int{fault.Throttled: 1, fault.Unavailable: 1, fault.Denied: 3, fault.NotFound: 3} {
		l, s := &fakeLedger{}, &fakeSource{err: fault.New(kind, fault.ReasonSourceRefused, "no")}
		r, err := newPoller(l, s).Look(t.Context(), "gh")
		must(t, err)
		equal(t, kind.Error(), len(s.read), want)
		if !errors.Is(r.Err, kind) || l.ends[0].Problem == "" {
			t.Errorf("%v: %v, %+v", kind, r.Err, l.ends[0])
		}
	}
}

func TestLookNow_WaitsForAnotherLookToEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &fakeLedger{held: true}
		p := newPoller(l, &fakeSource{items: []Item{item(t)}})
		time.AfterFunc(10*time.Second, func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.held = false
		})
		begun := time.Now()
		r, err := p.LookNow(t.Context(), "gh")
		must(t, err)
		equal(t, "items", r.Items, 3)
		if took := time.Since(begun); took < 10*time.Second || took > 11*time.Second {
			t.Errorf("took %v", took)
		}
		l.held = true
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r, err = p.LookNow(ctx, "gh")
		must(t, err)
		equal(t, "given up", fault.ReasonOf(r.Err), fault.ReasonLeaseHeld)
	})
}

func TestKnown_IsQuietOnlyLongAfterItsLastChange(t *testing.T) {
	at := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		name  string
		known Known
		item  Item
		want  bool
	}{
		{"unchanged", Known{SeenAt: at.Add(time.Minute), SeenUpdatedAt: at, SeenComments: 2}, Item{UpdatedAt: at, Comments: 2}, true},
		{"seen in the minute of its change", Known{SeenAt: at.Add(59 * time.Second), SeenUpdatedAt: at, SeenComments: 2},
			Item{UpdatedAt: at, Comments: 2}, false},
		{"changed", Known{SeenAt: at.Add(time.Hour), SeenUpdatedAt: at, SeenComments: 2},
			Item{UpdatedAt: at.Add(time.Second), Comments: 2}, false},
		{"another number of comments", Known{SeenAt: at.Add(time.Hour), SeenUpdatedAt: at, SeenComments: 2},
			Item{UpdatedAt: at, Comments: 3}, false},
		{"never seen", Known{}, Item{UpdatedAt: at}, false},
		{"unchanged, of a repository that had another name", Known{Place: "github:octo/gadget", SeenAt: at.Add(time.Minute), SeenUpdatedAt: at},
			Item{UpdatedAt: at}, false},
	} {
		equal(t, tt.name, tt.known.quiet(tt.item), tt.want)
	}
}

func (s *fakeSource) Checks(context.Context, string, string) ([]Check, error) { return nil, s.err }
