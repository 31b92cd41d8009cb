package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/ledger"
	"muxpost.dev/muxpost/core/workitem"
	"muxpost.dev/muxpost/db/dbtest"
	"muxpost.dev/muxpost/services/poller/internal/forward"
	"muxpost.dev/muxpost/services/poller/internal/poll"
)

func TestMain(m *testing.M) { os.Exit(dbtest.Main(m)) }

type world struct {
	*Store
	pool  *pgxpool.Pool
	spans *tracetest.SpanRecorder
}

func newWorld(t *testing.T) *world {
	t.Helper()
	pool := dbtest.New(t)
	spans := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	return &world{New(Config{Pool: pool, Quiet: pool, Tracer: provider.Tracer("test"), Holder: NewHolder(), Version: func() ledger.Version { return ledger.Version{} }}), pool, spans}
}

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

// sql runs a statement for its effect.
func (w *world) sql(t *testing.T, statement string, args ...any) {
	t.Helper()
	_, err := w.pool.Exec(t.Context(), statement, args...)
	must(t, err)
}

func ref(t *testing.T, n int) workitem.Ref {
	t.Helper()
	r, err := workitem.Parse(fmt.Sprintf("github:octo/widget#%d", n))
	must(t, err)
	return r
}

var epoch = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func event(item workitem.Ref, object string, at time.Time, order int64) poll.Event {
	key := ledger.Key{Provider: "github", Host: item.Host(), Kind: poll.KindComment, ObjectID: object, Revision: "1"}
	return poll.Event{
		DeliveryID: ledger.DeliveryID(key, item.String()), Key: key, WorkItem: item.String(), NodeID: "I_" + item.String(),
		Source: "gh", Kind: poll.KindComment, Author: "alice", Text: "text of " + object, UpstreamAt: at, UpstreamOrder: order,
		State: ledger.Pending, Budget: 3,
	}
}

func record(item workitem.Ref, events ...poll.Event) poll.Record {
	return poll.Record{
		Source: "gh", LookBegan: epoch, WorkItem: item.String(), Place: poll.PlaceOf(item), FirstSight: true, SeenAt: epoch,
		Item: poll.Item{Ref: item, NodeID: "I_" + item.String(), Repository: "octo/widget", Title: "a title", Open: true}, Events: events,
	}
}

func (w *world) add(t *testing.T, item workitem.Ref, events ...poll.Event) {
	t.Helper()
	r := record(item, events...)
	_, err := w.Record(t.Context(), r)
	must(t, err)
	r.FirstSight = false
	_, err = w.Record(t.Context(), r)
	must(t, err)
}

func (w *world) claims(t *testing.T, n int) []string {
	t.Helper()
	claims, err := w.Claim(t.Context(), n)
	must(t, err)
	return texts(claims)
}

func texts(claims []forward.Claim) []string {
	var out []string
	for _, c := range claims {
		out = append(out, strings.TrimPrefix(c.Text, "text of "))
	}
	slices.Sort(out)
	return out
}

// answer finishes a claim.
func (w *world) answer(t *testing.T, c forward.Claim, a ledger.Answer, after time.Duration) ledger.Progress {
	t.Helper()
	_, progress, err := w.Finish(t.Context(), c, forward.Outcome{Detail: "a detail"}, func(p ledger.Progress, now time.Time) ledger.Progress {
		return ledger.Apply(p, a, "why", after, now, 0)
	})
	must(t, err)
	return progress
}

func (w *world) one(t *testing.T) forward.Claim {
	t.Helper()
	claims, err := w.Claim(t.Context(), 1)
	must(t, err)
	if len(claims) != 1 {
		t.Fatalf("claimed %d events, want one", len(claims))
	}
	return claims[0]
}

func TestClaim_EventsOfAnItemGoOneAtATimeInUpstreamOrder(t *testing.T) {
	w := newWorld(t)
	item := ref(t, 1)
	// In the second of epoch two comments: the lower id is first. They come in in another order.
	w.add(t, item, event(item, "c", epoch.Add(time.Second), 1), event(item, "b", epoch, 8), event(item, "a", epoch, 7))
	for _, want := range []string{"a", "b", "c"} {
		c := w.one(t)
		equal(t, "claimed", texts([]forward.Claim{c}), []string{want})
		equal(t, "claimed beside it", w.claims(t, 10), []string(nil))
		w.answer(t, c, ledger.Arrived, 0)
	}
	equal(t, "left", w.claims(t, 10), []string(nil))
}

func TestClaim_AWaitingHeadHoldsBackItsItemAndNoOther(t *testing.T) {
	for name, a := range map[string]ledger.Answer{
		"silent": ledger.Silent, "held": ledger.Holding, "failing": ledger.Failing, "unproven": ledger.Unproven, "working": ledger.Working,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			stuck, other := ref(t, 1), ref(t, 2)
			w.add(t, stuck, event(stuck, "s1", epoch, 1), event(stuck, "s2", epoch, 2))
			w.answer(t, w.one(t), a, time.Hour)
			w.add(t, other, event(other, "o1", epoch, 1), event(other, "o2", epoch, 2))
			c := w.one(t)
			equal(t, "claimed", c.Text, "text of o1")
			w.answer(t, c, ledger.Arrived, 0)
			equal(t, "claimed next", w.claims(t, 10), []string{"o2"})
		})
	}
}

func TestClaim_AnEndedHeadHoldsBackNothing(t *testing.T) {
	w := newWorld(t)
	item := ref(t, 1)
	var events []poll.Event
	ended := []string{"gave_up", "dropped", "cancelled", "settled", "delivered"}
	for i := range ended {
		events = append(events, event(item, ended[i], epoch, int64(i)))
	}
	w.add(t, item, append(events, event(item, "next", epoch, 99))...)
	for _, state := range ended {
		w.sql(t, `update poller.events set state = $1, next_look = null where text = 'text of ' || $1`, state)
	}
	equal(t, "claimed", w.claims(t, 10), []string{"next"})
}

func TestClaim_AnExpiredLeaseIsTakenOverAndTheOldHolderCanNoLongerAct(t *testing.T) {
	w := newWorld(t)
	item := ref(t, 1)
	w.add(t, item, event(item, "a", epoch, 1))
	lost := w.one(t)
	equal(t, "while the lease runs", w.claims(t, 10), []string(nil))
	w.sql(t, `update poller.events set lease_until = now() - interval '1 second'`)
	taken := w.one(t)
	_, _, err := w.Finish(t.Context(), lost, forward.Outcome{}, func(p ledger.Progress, now time.Time) ledger.Progress {
		t.Error("the progress of a lost lease was asked for")
		return p
	})
	if !errors.Is(err, fault.Fenced) || !errors.Is(w.Release(t.Context(), lost), fault.Fenced) {
		t.Errorf("the old holder could act: %v", err)
	}
	equal(t, "state", w.answer(t, taken, ledger.Arrived, 0).State, ledger.Delivered)
}

func TestClaim_ALateEarlierEventWaitsForTheOneThatIsOut(t *testing.T) {
	w := newWorld(t)
	item := ref(t, 1)
	w.add(t, item, event(item, "late", epoch.Add(time.Minute), 2))
	w.one(t)
	w.add(t, item, event(item, "earlier", epoch, 1))
	equal(t, "beside the one that is out", w.claims(t, 10), []string(nil))
	w.sql(t, `update poller.events set lease_until = now() - interval '1 second' where state = 'leased'`)
	out := w.one(t)
	equal(t, "after its lease", out.Text, "text of late")
	w.answer(t, out, ledger.Silent, time.Nanosecond)
	out = w.one(t)
	equal(t, "once it was asked about", out.Text, "text of late")
	w.answer(t, out, ledger.Holding, time.Nanosecond)
	out = w.one(t)
	equal(t, "while it is held", out.Text, "text of late")
	w.answer(t, out, ledger.Arrived, 0)
	equal(t, "behind it", w.claims(t, 10), []string{"earlier"})
}

// One that nobody was asked about, because the poller stopped in time, has no place to keep.
func TestClaim_AnEarlierEventOvertakesOneThatWasGivenBack(t *testing.T) {
	w := newWorld(t)
	item := ref(t, 1)
	w.add(t, item, event(item, "late", epoch.Add(time.Minute), 2))
	out := w.one(t)
	must(t, w.Release(t.Context(), out))
	w.add(t, item, event(item, "earlier", epoch, 1))
	equal(t, "in order", w.claims(t, 10), []string{"earlier"})
}

// Both were dropped because somebody had the name of their session. A person has the first one tried again while a sweep has the second.
func TestClaim_EventsThatWereDroppedComeBackInOrder(t *testing.T) {
	w := newWorld(t)
	item := ref(t, 1)
	w.add(t, item, event(item, "first", epoch, 1), event(item, "second", epoch.Add(time.Minute), 2))
	w.sql(t, `update poller.events set state = 'dropped', reason = $1, detail = 'a detail', next_look = now()`, ledger.ReasonSessionOccupied)
	dropped, err := w.Occupied(t.Context(), item.String(), 10)
	must(t, err)
	equal(t, "dropped", len(dropped), 2)
	retried, err := w.Retry(t.Context(), poll.Again{DeliveryID: dropped[0].DeliveryID, Who: "alice"})
	must(t, err)
	swept, err := w.AskAgain(t.Context(), dropped[1])
	must(t, err)
	equal(t, "both wait", []bool{retried, swept}, []bool{true, true})
	equal(t, "in order", w.claims(t, 10), []string{"first"})
}

func TestClaim_ManyClaimersNeverGetOneEventTwiceNorTwoOfOneItem(t *testing.T) {
	w := newWorld(t)
	const items, each, claimers = 12, 6, 8
	for i := range items {
		item := ref(t, i+1)
		var events []poll.Event
		for n := range each {
			events = append(events, event(item, fmt.Sprintf("%d/%d", i, n), epoch, int64(n)))
		}
		w.add(t, item, events...)
	}
	book := &book{busy: map[string]bool{}, next: map[string]int{}, left: items * each}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var wait sync.WaitGroup
	for n := range claimers {
		wait.Go(func() {
			for !book.done() && ctx.Err() == nil && !t.Failed() {
				claims, err := w.Claim(ctx, 1+n%3)
				if err != nil {
					t.Error(err)
					return
				}
				for _, c := range claims {
					book.take(t, c)
				}
				for _, c := range claims {
					// Given before the row is finished: from then on anybody may have the next.
					book.give(c)
					if _, _, err := w.Finish(ctx, c, forward.Outcome{}, func(p ledger.Progress, now time.Time) ledger.Progress {
						return ledger.Apply(p, ledger.Arrived, "", 0, now, 0)
					}); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wait.Wait()
	equal(t, "left", book.left, 0)
}

// book notes which items have an event out, and which of their events is next.
type book struct {
	mu   sync.Mutex
	busy map[string]bool
	next map[string]int
	left int
}

func (b *book) take(t *testing.T, c forward.Claim) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var i, n int
	if _, err := fmt.Sscanf(c.Text, "text of %d/%d", &i, &n); err != nil {
		t.Error(err)
	}
	if b.busy[c.WorkItem] || n != b.next[c.WorkItem] {
		t.Errorf("%s: claimed %d, want %d; busy %v", c.WorkItem, n, b.next[c.WorkItem], b.busy[c.WorkItem])
	}
	b.busy[c.WorkItem] = true
}

func (b *book) give(c forward.Claim) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.busy[c.WorkItem] = false
	b.next[c.WorkItem]++
	b.left--
}

func (b *book) done() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.left == 0
}

func TestClaim_LateEventsAmongManyClaimersStillGoOneAtATime(t *testing.T) {
	w := newWorld(t)
	item := ref(t, 1)
	w.add(t, item)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	const events = 60
	var mu sync.Mutex
	out, delivered := 0, 0
	var wait sync.WaitGroup
	wait.Go(func() {
		for n := range events { // each one before all others
			r := record(item, event(item, fmt.Sprint(n), epoch.Add(-time.Duration(n)*time.Second), 1))
			r.FirstSight = false
			if _, err := w.Record(ctx, r); err != nil {
				t.Error(err)
			}
		}
	})
	for range 6 {
		wait.Go(func() {
			for ctx.Err() == nil {
				mu.Lock()
				ended := delivered == events
				mu.Unlock()
				if ended {
					return
				}
				claims, err := w.Claim(ctx, 2)
				if err != nil {
					t.Error(err)
					return
				}
				for _, c := range claims {
					mu.Lock()
					if out++; out > 1 {
						t.Errorf("%d events of one item are out", out)
					}
					mu.Unlock()
					runtime.Gosched()
					mu.Lock()
					out--
					delivered++
					mu.Unlock()
					_, _, err := w.Finish(ctx, c, forward.Outcome{}, func(p ledger.Progress, now time.Time) ledger.Progress {
						return ledger.Apply(p, ledger.Arrived, "", 0, now, 0)
					})
					if err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wait.Wait()
	equal(t, "delivered", delivered, events)
}

func TestRelease_IsAsIfItHadNotBeenClaimed(t *testing.T) {
	w := newWorld(t)
	item := ref(t, 1)
	w.add(t, item, event(item, "a", epoch, 1))
	w.answer(t, w.one(t), ledger.Failing, time.Nanosecond)
	w.sql(t, `update poller.events set next_look = now()`)
	must(t, w.Release(t.Context(), w.one(t)))
	rows, err := w.List(t.Context(), poll.Filter{Limit: 1})
	must(t, err)
	equal(t, "state, reason, tries", []any{rows[0].State, rows[0].Reason, rows[0].Tries}, []any{ledger.Pending, "why", 1})
	equal(t, "due again", w.claims(t, 1), []string{"a"})
}

func TestFinish_KeepsWhatTheRulesNeedNextTime(t *testing.T) {
	w := newWorld(t)
	item := ref(t, 1)
	w.add(t, item, event(item, "a", epoch, 1))
	again := func() forward.Claim {
		w.sql(t, `update poller.events set next_look = now()`)
		return w.one(t)
	}
	w.answer(t, w.one(t), ledger.Silent, 0)
	p := w.answer(t, again(), ledger.Silent, 0)
	equal(t, "silences", p.Silences, 2)
	since := w.answer(t, again(), ledger.Unproven, 0).UnprovenSince
	p = w.answer(t, again(), ledger.Unproven, 0)
	if p.UnprovenSince.IsZero() || p.UnprovenSince.Sub(since).Abs() > time.Millisecond {
		t.Errorf("unproven since %v, and then %v", since, p.UnprovenSince)
	}
	w.answer(t, again(), ledger.Failing, 0)
	w.answer(t, again(), ledger.Failing, 0)
	p = w.answer(t, again(), ledger.Failing, 0)
	equal(t, "after three failures", []any{p.State, p.Tries}, []any{ledger.GaveUp, 3})
	wait, ok, err := w.NextDue(t.Context())
	must(t, err)
	equal(t, "due", []any{wait, ok}, []any{time.Duration(0), false})
}

func TestNextDue_IsTheEarliestHead(t *testing.T) {
	w := newWorld(t)
	for n := range 2 {
		item := ref(t, n+1)
		w.add(t, item, event(item, fmt.Sprint(n), epoch, 1), event(item, fmt.Sprint(n, "behind"), epoch, 2))
		w.answer(t, w.one(t), ledger.Holding, time.Duration(n+1)*time.Hour)
	}
	wait, ok, err := w.NextDue(t.Context())
	must(t, err)
	if !ok || wait < 59*time.Minute || wait > time.Hour {
		t.Errorf("due in %v, %v", wait, ok)
	}
}

func TestClaim_TwoThatMeetOnOneItemGiveWayWithoutAnError(t *testing.T) {
	w := newWorld(t)
	item := ref(t, 1)
	w.add(t, item, event(item, "a", epoch, 2))
	// Another claim, not yet committed, has leased an earlier event that came in late.
	other, err := w.pool.Begin(t.Context())
	must(t, err)
	inserted, err := insert(t.Context(), other, event(item, "late", epoch, 1))
	must(t, err)
	equal(t, "inserted", inserted, true)
	_, err = other.Exec(t.Context(), `
update poller.events set state = 'leased', lease_holder = 'other', lease_until = now() + interval '1 minute' where upstream_order = 1`)
	must(t, err)
	claimed := make(chan []string, 1)
	go func() {
		claims, err := w.Claim(t.Context(), 10)
		if err != nil {
			t.Error(err)
		}
		claimed <- texts(claims)
	}()
	for waiting := false; !waiting; { // until the claim waits for the other one to end
		must(t, w.pool.QueryRow(t.Context(), `
select exists (select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock')`).Scan(&waiting))
	}
	must(t, other.Commit(t.Context()))
	equal(t, "claimed beside it", <-claimed, []string(nil))
}
