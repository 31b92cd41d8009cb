package store

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/ledger"
	"muxpost.dev/muxpost/services/poller/internal/hook"
	"muxpost.dev/muxpost/services/poller/internal/poll"
)

func arrival(guid string, number uint64) hook.Arrival {
	return hook.Arrival{Source: "gh", GUID: guid, Payload: []byte("payload of " + guid), Envelope: hook.Envelope{
		Event: "issue_comment", Action: "created", Repository: "Octo/Widget", Number: number, Object: "IC_" + guid,
	}}
}

func (w *world) put(t *testing.T, arrivals ...hook.Arrival) []bool {
	t.Helper()
	known, err := w.Put(t.Context(), arrivals)
	must(t, err)
	return known
}

func (w *world) hooks(t *testing.T, n int) []hook.Hook {
	t.Helper()
	claims, err := w.ClaimHooks(t.Context(), []string{"gh"}, n, time.Minute)
	must(t, err)
	slices.SortFunc(claims, func(a, b hook.Hook) int { return int(a.ID - b.ID) })
	return claims
}

func guids(claims []hook.Hook) string {
	var out []string
	for _, c := range claims {
		out = append(out, c.GUID)
	}
	return strings.Join(out, " ")
}

func (w *world) end(t *testing.T, h hook.Hook, e hook.End) {
	t.Helper()
	must(t, w.EndHook(t.Context(), h, e))
}

func TestHooks_OneOfAThreadAtATimeInTheOrderInWhichTheyCame(t *testing.T) {
	w := newWorld(t)
	commit := arrival("e", 0)
	commit.SHA = "abc"
	equal(t, "known", w.put(t, arrival("a", 7), arrival("b", 7), arrival("c", 8)), []bool{false, false, false})
	equal(t, "known", w.put(t, arrival("d", 7), commit, arrival("a", 7)), []bool{false, false, true})
	first := w.hooks(t, 10)
	equal(t, "first", guids(first), "a c e")
	equal(t, "as it came", []any{string(first[0].Payload), string(first[1].Payload), first[0].Repository, first[0].Number, first[0].Tries, first[2].SHA},
		[]any{"payload of a", "payload of c", "octo/widget", uint64(7), 1, "abc"})
	equal(t, "while they are handled", guids(w.hooks(t, 10)), "")
	w.end(t, first[0], hook.End{State: hook.Done})
	second := w.hooks(t, 10)
	equal(t, "second", guids(second), "b")
	// One that has to wait holds back those behind it, and no others.
	w.end(t, second[0], hook.End{State: hook.Waiting, Wait: time.Hour, Problem: "no answer"})
	w.end(t, first[1], hook.End{State: hook.Failed, Problem: "odd"})
	w.put(t, arrival("f", 8))
	equal(t, "third", guids(w.hooks(t, 10)), "f")
	w.sql(t, `update poller.hooks set next_look = now() where guid = 'b'`)
	again := w.hooks(t, 10)
	equal(t, "again", guids(again), "b")
	equal(t, "tries", again[0].Tries, 2)
	other, err := w.ClaimHooks(t.Context(), []string{"other"}, 10, time.Minute)
	must(t, err)
	equal(t, "of another source", len(other), 0)
	var left string
	must(t, w.pool.QueryRow(t.Context(), `select string_agg(guid || case when payload is null then '' else '+' end || ' ' || state, ', ' order by id)
from poller.hooks`).Scan(&left))
	equal(t, "rows", left, "a done, b+ waiting, c+ failed, d+ waiting, e+ waiting, f+ waiting")
}

func TestHooks_ALeaseThatEndedIsSomebodyElses(t *testing.T) {
	w := newWorld(t)
	w.put(t, arrival("a", 7), arrival("b", 7))
	lost := w.hooks(t, 1)[0]
	w.sql(t, `update poller.hooks set lease_until = now() - interval '1 second' where guid = 'a'`)
	again := w.hooks(t, 10)
	equal(t, "claimed", guids(again), "a")
	if err := w.EndHook(t.Context(), lost, hook.End{State: hook.Done}); !errors.Is(err, fault.Fenced) {
		t.Errorf("the end by who lost it: %v", err)
	}
	w.end(t, again[0], hook.End{State: hook.Done})
	if err := w.EndHook(t.Context(), again[0], hook.End{State: hook.Failed}); !errors.Is(err, fault.Fenced) {
		t.Errorf("a second end: %v", err)
	}
}

// TestHooks_ALimitIsTheSourcesWhoeverHeardIt: looks and notices go by it too.
func TestHooks_ALimitIsTheSourcesWhoeverHeardIt(t *testing.T) {
	w := newWorld(t)
	left := func() time.Duration {
		t.Helper()
		wait, err := w.LookDue(t.Context(), "gh", time.Second)
		must(t, err)
		return wait.Round(10 * time.Second)
	}
	w.put(t, arrival("a", 7), arrival("b", 8), arrival("c", 9))
	claims := w.hooks(t, 3)
	equal(t, "limited at first", []time.Duration{claims[0].Limited, claims[1].Limited}, []time.Duration{0, 0})
	untold := hook.End{State: hook.Waiting, Limited: true}
	w.end(t, claims[0], untold)
	w.end(t, claims[1], untold)
	equal(t, "two who heard it at once", left(), time.Minute)
	if _, err := w.BeginLook(t.Context(), "gh", "me", time.Minute, 0); !errors.Is(err, fault.Throttled) {
		t.Errorf("a look: %v", err)
	}
	for _, again := range w.hooks(t, 3) {
		equal(t, "what goes along with "+again.GUID, again.Limited.Round(10*time.Second), time.Minute)
	}
	w.sql(t, `update poller.sources set not_before = now()`)
	w.end(t, claims[2], untold)
	equal(t, "in a row it is longer", left(), 2*time.Minute)
	w.put(t, arrival("d", 10), arrival("e", 11))
	claims = w.hooks(t, 3)
	w.end(t, claims[0], hook.End{State: hook.Waiting, Limited: true, Limit: time.Minute})
	equal(t, "a shorter one changes nothing", left(), 2*time.Minute)
	w.end(t, claims[1], hook.End{State: hook.Failed, Limited: true, Limit: time.Hour})
	equal(t, "a longer one counts", left(), time.Hour)
	if err := w.EndHook(t.Context(), claims[1], hook.End{State: hook.Done, Limited: true, Limit: 2 * time.Hour}); !errors.Is(err, fault.Fenced) {
		t.Errorf("by who has it no more: %v", err)
	}
	equal(t, "also of who has lost the message", left(), 2*time.Hour)
}

func TestHooks_TwoClaimsNeverHaveTwoOfAThread(t *testing.T) {
	w := newWorld(t)
	const threads, each = 6, 8
	for n := range threads * each {
		w.put(t, arrival(fmt.Sprint("g", n), uint64(n%threads+1)))
	}
	var mu sync.Mutex
	busy, done := map[uint64]string{}, map[string]int{}
	var wait sync.WaitGroup
	for range 6 {
		wait.Go(func() {
			for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
				claims, err := w.ClaimHooks(t.Context(), []string{"gh"}, 3, time.Minute)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if len(done) == threads*each {
					mu.Unlock()
					return
				}
				for _, c := range claims {
					if other := busy[c.Number]; other != "" {
						t.Errorf("%s and %s of one thread at once", other, c.GUID)
					}
					busy[c.Number] = c.GUID
				}
				mu.Unlock()
				for _, c := range claims {
					mu.Lock()
					busy[c.Number] = ""
					done[c.GUID]++
					mu.Unlock()
					if err := w.EndHook(t.Context(), c, hook.End{State: hook.Done}); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wait.Wait()
	equal(t, "handled", len(done), threads*each)
	for guid, n := range done {
		equal(t, guid, n, 1)
	}
}

func TestHooks_AreForgottenLongAfterTheyCannotBeSentAgain(t *testing.T) {
	w := newWorld(t)
	for _, tt := range []struct {
		guid, state string
		days        int
	}{{"a", "done", 6}, {"b", "done", 8}, {"c", "failed", 8}, {"d", "failed", 31}, {"e", "waiting", 8}, {"f", "waiting", 31}} {
		w.put(t, arrival(tt.guid, 7))
		w.sql(t, `update poller.hooks set state = $2, received_at = now() - make_interval(days => $3) where guid = $1`, tt.guid, tt.state, tt.days)
	}
	deleted, unhandled, err := w.ForgetHooks(t.Context())
	must(t, err)
	equal(t, "deleted, of them never handled", []int64{deleted, unhandled}, []int64{3, 2})
	equal(t, "known", w.put(t, arrival("a", 7), arrival("b", 7)), []bool{true, false})
}

// found puts an event into the ledger as a look that found it a while ago; happened is how long ago it happened.
func (w *world) found(t *testing.T, object string, happened, found time.Duration) {
	t.Helper()
	item := ref(t, 7)
	e := event(item, object, time.Now().Add(-happened), 0)
	w.add(t, item, e)
	w.sql(t, `update poller.events set revised_at = upstream_at, created_at = now() - $2::interval where delivery_id = $1`, e.DeliveryID, found)
}

func (w *world) gap(t *testing.T) int {
	t.Helper()
	gap, err := w.FindGap(t.Context(), "gh", time.Minute)
	must(t, err)
	return gap.Count
}

// watching has webhooks taken for an hour, and gaps looked for up to five minutes ago.
func (w *world) watching(t *testing.T) {
	t.Helper()
	must(t, w.Watch(t.Context(), []string{"gh"}, nil))
	w.sql(t, `update poller.hook_sources set since = now() - interval '1 hour', checked_through = now() - interval '5 minutes'`)
}

func TestGap_IsWhatWasFoundAndNotToldAMinuteAfter(t *testing.T) {
	w := newWorld(t)
	w.found(t, "before", 5*time.Minute, 2*time.Minute)
	must(t, w.Watch(t.Context(), []string{"gh"}, nil))
	equal(t, "just switched on", w.gap(t), 0)
	w.watching(t)
	w.sql(t, `update poller.events set created_at = now() - interval '1 hour'`)
	w.found(t, "told", 3*time.Minute, 2*time.Minute)
	w.put(t, arrival("x", 7))
	w.sql(t, `update poller.hooks set object = 'told'`)
	w.found(t, "missed", 10*time.Minute, 2*time.Minute)
	w.found(t, "missed too", 2*time.Minute, 2*time.Minute)
	w.found(t, "may still come", 30*time.Minute, 30*time.Second)
	began := time.Now()
	gap, err := w.FindGap(t.Context(), "gh", time.Minute)
	must(t, err)
	equal(t, "count", gap.Count, 2)
	if d, long := began.Sub(gap.From)-10*time.Minute, gap.To.Sub(gap.From)-8*time.Minute; d.Abs() > 20*time.Second || long.Abs() > 20*time.Second {
		t.Errorf("from %v to %v", gap.From, gap.To)
	}
	events, err := w.Events(t.Context(), poll.EventQuery{Limit: 10, Types: []ledger.EventType{ledger.GapFound}})
	must(t, err)
	equal(t, "events", len(events), 1)
	equal(t, "fields", events[0].Fields, map[string]string{"count": "2", "from": gap.From.Format(time.RFC3339), "to": gap.To.Format(time.RFC3339)})
	equal(t, "source", events[0].Source, "gh")
	equal(t, "told once", w.gap(t), 0)
	states, err := w.HookStates(t.Context(), []string{"gh", "other"})
	must(t, err)
	equal(t, "on record", []any{states["gh"].Gap.Count, states["gh"].GapFound.IsZero(), states["gh"].Waiting, states["gh"].LastReceived.IsZero(),
		states["other"]}, []any{2, false, 1, false, hook.SourceState{}})
	// The last one has had its minute now. A webhook that came late came; without one it was missed after all.
	w.put(t, arrival("y", 7))
	w.sql(t, `update poller.hooks set object = 'may still come' where guid = 'y'`)
	for _, want := range []int{0, 1} {
		w.sql(t, `update poller.hook_sources set checked_through = now() - interval '90 seconds'`)
		w.sql(t, `update poller.events set created_at = now() - interval '75 seconds' where natural_key like '%may still come%'`)
		equal(t, "of one that was slow", w.gap(t), want)
		w.sql(t, `delete from poller.hooks where guid = 'y'`)
	}
}

func TestGap_AnEditIsToldByAWebhookOfItsOwn(t *testing.T) {
	w := newWorld(t)
	w.watching(t)
	w.found(t, "edited", 3*time.Minute, 2*time.Minute)
	w.put(t, arrival("x", 7))
	w.sql(t, `update poller.hooks set object = 'edited', received_at = now() - interval '30 minutes'`)
	equal(t, "told half an hour before it was edited", w.gap(t), 1)
}

func TestGap_IsNotExpectedOfWhatWasBaselinedNorWithoutWebhooks(t *testing.T) {
	w := newWorld(t)
	w.watching(t)
	w.found(t, "old", 10*time.Minute, 2*time.Minute)
	w.sql(t, `update poller.events set state = 'settled', reason = 'baselined', next_look = null`)
	equal(t, "baselined", w.gap(t), 0)
	w.watching(t)
	w.found(t, "new", 10*time.Minute, 2*time.Minute)
	must(t, w.Watch(t.Context(), nil, []string{"gh"}))
	equal(t, "switched off", w.gap(t), 0)
	must(t, w.Watch(t.Context(), []string{"gh"}, nil))
	equal(t, "switched on again", w.gap(t), 0)
	w.watching(t)
	equal(t, "and had it been on", w.gap(t), 1)
}

func TestGap_IsToldByOneOfTwoProcesses(t *testing.T) {
	w := newWorld(t)
	w.watching(t)
	w.found(t, "missed", 3*time.Minute, 2*time.Minute)
	var wait sync.WaitGroup
	counts := make([]int, 8)
	for i := range counts {
		wait.Go(func() { counts[i] = w.gap(t) })
	}
	wait.Wait()
	slices.Sort(counts)
	equal(t, "counts", counts, []int{0, 0, 0, 0, 0, 0, 0, 1})
}
