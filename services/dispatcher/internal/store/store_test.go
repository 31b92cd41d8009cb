package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/jackc/pgx/v5/pgxpool"

	"muxpost.dev/muxpost/core/dispatch"
	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/lease"
	"muxpost.dev/muxpost/db/dbtest"
	"muxpost.dev/muxpost/services/dispatcher/internal/deliver"
	"muxpost.dev/muxpost/services/dispatcher/internal/deliver/delivertest"
)

func TestMain(m *testing.M) { os.Exit(dbtest.Main(m)) }

const item = "github:octo/widget#7"

func newStore(t *testing.T) (*Store, *pgxpool.Pool) {
	pool := dbtest.New(t)
	return New(pool), pool
}

func delivery(id string) deliver.Delivery {
	return deliver.Delivery{
		ID: id, WorkItem: item, NodeID: "I_7", Kind: deliver.Comment, Fingerprint: [32]byte{1}, Harness: "claude",
		Outcome: dispatch.InProgress, Reason: dispatch.ReasonStart, Detail: "asked", Target: "loop-octo-widget-7", Asked: 1,
		Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", TraceID: "0af7651916cd43dd8448eb211c80319c",
	}
}

func queued(id string) deliver.Event {
	return deliver.Event{Type: dispatch.DispatchQueued, WorkItem: item, DeliveryID: id, Fields: map[string]string{"kind": "comment"}}
}

func begin(t *testing.T, s *Store, id string) deliver.Delivery {
	t.Helper()
	d, _, err := s.Begin(t.Context(), delivery(id), queued(id))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func take(t *testing.T, s *Store, holder string) lease.Lease {
	t.Helper()
	l, ok, err := s.TakeLease(t.Context(), item, holder)
	if err != nil || !ok {
		t.Fatalf("take the lease: %v, %v", ok, err)
	}
	return l
}

func events(t *testing.T, s *Store, q deliver.EventQuery) []deliver.Event {
	t.Helper()
	return page(t, s, q).Events
}

func page(t *testing.T, s *Store, q deliver.EventQuery) deliver.EventPage {
	t.Helper()
	if q.Limit == 0 {
		q.Limit = 100
	}
	got, err := s.Events(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestBegin_IsIdempotentAndCountsAsks(t *testing.T) {
	s, _ := newStore(t)
	first := begin(t, s, "delivery-1")
	want := delivery("delivery-1")
	if diff := cmp.Diff(want, first, cmpopts.IgnoreFields(deliver.Delivery{}, "CreatedAt", "UpdatedAt"), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("what was stored (-want +got):\n%s", diff)
	}
	again := begin(t, s, "delivery-1")
	if again.Asked != 2 || !again.CreatedAt.Equal(first.CreatedAt) || !again.UpdatedAt.Equal(first.UpdatedAt) {
		t.Errorf("the second ask gives %+v", again)
	}
	if got := events(t, s, deliver.EventQuery{}); len(got) != 1 || got[0].Type != dispatch.DispatchQueued ||
		got[0].Fields["kind"] != "comment" {
		t.Errorf("events %+v", got)
	}
}

func TestBegin_RefusesAnIDOfAnotherEvent(t *testing.T) {
	s, _ := newStore(t)
	begin(t, s, "delivery-1")
	other := delivery("delivery-1")
	other.Fingerprint = [32]byte{2}
	_, _, err := s.Begin(t.Context(), other, queued("delivery-1"))
	if !errors.Is(err, fault.Conflict) || fault.ReasonOf(err) != fault.ReasonDeliveryMismatch {
		t.Errorf("%v", err)
	}
	if d, err := s.Delivery(t.Context(), "delivery-1"); err != nil || d.Asked != 1 {
		t.Errorf("a refused ask was counted: %+v, %v", d, err)
	}
}

func TestBegin_OfOneIDAtOnceStoresOne(t *testing.T) {
	s, _ := newStore(t)
	asked := make([]int, 16)
	var wait sync.WaitGroup
	for i := range asked {
		wait.Go(func() {
			d, _, err := s.Begin(t.Context(), delivery("delivery-1"), queued("delivery-1"))
			if err != nil {
				t.Error(err)
			}
			asked[i] = d.Asked
		})
	}
	wait.Wait()
	slices.Sort(asked)
	for i, n := range asked {
		if n != i+1 {
			t.Fatalf("the asks count %v", asked)
		}
	}
	if got := events(t, s, deliver.EventQuery{}); len(got) != 1 {
		t.Errorf("%d events", len(got))
	}
}

func TestTakeLease_OneOfManyGetsIt(t *testing.T) {
	s, _ := newStore(t)
	var wait sync.WaitGroup
	var mu sync.Mutex
	var won []lease.Lease
	for i := range 16 {
		wait.Go(func() {
			l, ok, err := s.TakeLease(t.Context(), item, fmt.Sprintf("process/%d", i))
			if err != nil {
				t.Error(err)
			}
			if ok {
				mu.Lock()
				defer mu.Unlock()
				won = append(won, l)
			}
		})
	}
	wait.Wait()
	if len(won) != 1 {
		t.Fatalf("%d have the lease", len(won))
	}
}

// TestTakeLease_TokensOnlyGrow has many takers come and go on one item while a host is greeted again and again: each token must be
// greater than every one before it.
func TestTakeLease_TokensOnlyGrow(t *testing.T) {
	s, _ := newStore(t)
	var wait sync.WaitGroup
	var mu sync.Mutex
	var tokens []int64
	for i := range 8 {
		wait.Go(func() {
			for taken := 0; taken < 20; {
				l, ok, err := s.TakeLease(t.Context(), item, fmt.Sprintf("process/%d", i))
				if err != nil {
					t.Error(err)
					return
				}
				if !ok {
					continue
				}
				mu.Lock()
				tokens = append(tokens, l.Token)
				mu.Unlock()
				taken++
				if err := s.Release(t.Context(), item, l); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for above := range int64(20) {
		if _, err := s.RaiseToken(t.Context(), above*10); err != nil {
			t.Error(err)
		}
	}
	wait.Wait()
	if !slices.IsSorted(tokens) || len(slices.Compact(tokens)) != 160 {
		t.Errorf("tokens in the order of their leases: %v", tokens)
	}
}

func TestTakeLease_AgreesWithTheRule(t *testing.T) {
	s, pool := newStore(t)
	for _, row := range []struct {
		holder string
		until  string
	}{{"", "1 hour"}, {"a", "1 hour"}, {"b", "1 hour"}, {"a", "-1 second"}, {"b", "-1 second"}} {
		var held lease.Lease
		var now time.Time
		if err := pool.QueryRow(t.Context(), `insert into dispatcher.leases
			values ($1, $2, nextval('dispatcher.fencing_token'), now() + $3::interval)
			on conflict (work_item) do update set holder = excluded.holder, token = excluded.token, until = excluded.until
			returning holder, token, until, now()`, item, row.holder, row.until).Scan(&held.Holder, &held.Token, &held.Until, &now); err != nil {
			t.Fatal(err)
		}
		l, ok, err := s.TakeLease(t.Context(), item, "a")
		if err != nil || ok != held.MayTake("a", now) {
			t.Errorf("%+v: taken %v, %v; the rule says %v", row, ok, err, held.MayTake("a", now))
		}
		if ok && l.Token <= held.Token {
			t.Errorf("%+v: the new token %d is not above %d", row, l.Token, held.Token)
		}
	}
}

func TestRaiseToken_OnlyRaises(t *testing.T) {
	s, _ := newStore(t)
	var before int64
	for _, above := range []int64{0, 1, 41, 7} {
		drawn, err := s.RaiseToken(t.Context(), above)
		if err != nil || drawn <= above || drawn <= before {
			t.Errorf("above %d and after %d comes %d, %v", above, before, drawn, err)
		}
		if before = take(t, s, "a").Token; before <= drawn {
			t.Errorf("after %d was drawn, a lease has %d", drawn, before)
		}
	}
	if before <= 42 {
		t.Errorf("a lower host took the sequence back to %d", before)
	}
}

// A database that was restored gives tokens again that were given before. The host's highest takes the sequence above them all.
func TestRaiseToken_MakesUpForASequenceThatWasSetBack(t *testing.T) {
	s, pool := newStore(t)
	if _, err := s.RaiseToken(t.Context(), 500); err != nil {
		t.Fatal(err)
	}
	seen := take(t, s, "a").Token
	if _, err := pool.Exec(t.Context(), "select setval('dispatcher.fencing_token', 3)"); err != nil {
		t.Fatal(err)
	}
	drawn, err := s.RaiseToken(t.Context(), seen)
	if l := take(t, s, "a"); err != nil || drawn <= seen || l.Token <= drawn {
		t.Errorf("after %d: drawn %d, leased %d, %v", seen, drawn, l.Token, err)
	}
}

// Whoever draws a token may have drawn it long before it is committed. What is raised then must be neither lower nor set back by it.
func TestRaiseToken_WaitsForWhoeverDrawsATokenAndForNobodyElse(t *testing.T) {
	s, pool := newStore(t)
	drawing, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = drawing.Rollback(context.WithoutCancel(t.Context())) }()
	// It has its turn, and somebody else is at the leases without having drawn anything.
	if _, err := drawing.Exec(t.Context(), "select pg_advisory_xact_lock('dispatcher.fencing_token'::regclass::bigint)"); err != nil {
		t.Fatal(err)
	}
	leasing, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = leasing.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := leasing.Exec(t.Context(), "insert into dispatcher.leases values ('github:octo/widget#8', 'b', 1, now())"); err != nil {
		t.Fatal(err)
	}
	const above = int64(1) << 52
	type result struct {
		drawn int64
		err   error
	}
	raised := make(chan result, 1)
	go func() {
		drawn, err := s.RaiseToken(t.Context(), above)
		raised <- result{drawn, err}
	}()
	for limit := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		var waits bool
		if err := pool.QueryRow(t.Context(), "select exists (select from pg_locks where not granted and database = (select oid from pg_database where datname = current_database()))").
			Scan(&waits); err != nil {
			t.Fatal(err)
		}
		if waits {
			break
		}
		if time.Now().After(limit) {
			t.Fatal("it does not wait for whoever draws a token")
		}
	}
	var last, first int64
	if err := pool.QueryRow(t.Context(), "select last_value from dispatcher.fencing_token").Scan(&last); err != nil || last >= above {
		t.Errorf("the sequence is at %d while another one draws, %v", last, err)
	}
	if err := drawing.QueryRow(t.Context(), "select dispatcher.next_token()").Scan(&first); err != nil {
		t.Fatal(err)
	}
	if err := drawing.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	select {
	case r := <-raised:
		if r.err != nil || r.drawn <= above || first >= r.drawn {
			t.Errorf("%d was drawn before %d, %v", first, r.drawn, r.err)
		}
	case <-time.After(time.Minute):
		t.Error("it waits for whoever is at the leases")
	}
}

func session() deliver.Session {
	return deliver.Session{
		WorkItem: item, NodeID: "I_7", Target: "loop-octo-widget-7", Host: "a", Harness: "claude", ConversationID: "c1",
		Lineage: []string{"c0"}, SocketPath: "/s.sock", Directory: "/d", Incarnation: deliver.Incarnation{
			Stamp: "st1", SessionID: "$1", PaneID: "%2", PanePID: 3, ServerPID: 4, ServerStarted: time.Unix(1_700_000_000, 0).UTC(),
		},
	}
}

func TestSave_KeepsSessionOutcomeAndEventsTogether(t *testing.T) {
	s, _ := newStore(t)
	d := begin(t, s, "delivery-1")
	l := take(t, s, "a")
	record := session()
	change := deliver.Change{Session: &record, Events: []deliver.Event{{Type: dispatch.SessionSpawned, DeliveryID: d.ID, TraceID: "t",
		Fields: map[string]string{"incarnation": "st1"}}}}
	if err := s.Save(t.Context(), l, item, change); err != nil {
		t.Fatal(err)
	}
	d.Outcome, d.Reason, d.How, d.Host, d.Steps = dispatch.Delivered, "", dispatch.HowSpawned, "a", []string{"one", "two"}
	if err := s.Save(t.Context(), l, item, deliver.Change{Outcome: &d, Events: []deliver.Event{
		{Type: dispatch.SessionRespawnAverted, DeliveryID: d.ID}, {Type: dispatch.DispatchSucceeded, DeliveryID: d.ID},
	}}); err != nil {
		t.Fatal(err)
	}
	known, err := s.Look(t.Context(), item, d.ID)
	found, got := known.Session, known.Delivery
	if err != nil {
		t.Fatal(err)
	}
	ignore := cmpopts.IgnoreFields(deliver.Session{}, "CreatedAt", "UpdatedAt")
	if diff := cmp.Diff(&record, found, ignore, cmpopts.EquateApproxTime(0)); diff != "" {
		t.Errorf("session (-want +got):\n%s", diff)
	}
	if got.Outcome != dispatch.Delivered || got.How != dispatch.HowSpawned || !got.UpdatedAt.Equal(d.UpdatedAt) ||
		!got.UpdatedAt.After(got.CreatedAt) || len(got.Steps) != 2 {
		t.Errorf("delivery %+v", got)
	}
	var types []string
	for _, e := range events(t, s, deliver.EventQuery{}) {
		types = append(types, string(e.Type))
		if e.WorkItem != item || e.DeliveryID != d.ID {
			t.Errorf("event %+v", e)
		}
	}
	if got := strings.Join(types, " "); got != "dispatch.queued session.spawned session.respawn_averted dispatch.succeeded" {
		t.Errorf("events: %s", got)
	}
	take(t, s, "b") // the outcome gave the lease back
}

func TestSave_UnderALostLeaseChangesNothing(t *testing.T) {
	s, pool := newStore(t)
	d := begin(t, s, "delivery-1")
	old := take(t, s, "a")
	if _, err := pool.Exec(t.Context(), "update dispatcher.leases set until = now() - interval '1 second'"); err != nil {
		t.Fatal(err)
	}
	newer := take(t, s, "b")
	record := session()
	d.Outcome = dispatch.Delivered
	for _, change := range []deliver.Change{
		{Session: &record}, {Outcome: &d}, {Outcome: &d, Session: &record, Events: []deliver.Event{{Type: dispatch.DispatchSucceeded}}},
		{Events: []deliver.Event{{Type: dispatch.SessionResumeFailed}}},
	} {
		if err := s.Save(t.Context(), old, item, change); !errors.Is(err, fault.Fenced) || fault.ReasonOf(err) != fault.ReasonLeaseLost {
			t.Errorf("%+v: %v", change, err)
		}
	}
	if err := s.Release(t.Context(), item, old); err != nil {
		t.Fatal(err)
	}
	known, err := s.Look(t.Context(), item, d.ID)
	found, got := known.Session, known.Delivery
	if err != nil || found != nil || got.Outcome != dispatch.InProgress {
		t.Errorf("session %+v, delivery %+v, %v", found, got, err)
	}
	if got := events(t, s, deliver.EventQuery{}); len(got) != 1 {
		t.Errorf("events %+v", got)
	}
	if _, ok, _ := s.TakeLease(t.Context(), item, "c"); ok {
		t.Error("the older run gave the newer one's lease away")
	}
	if err := s.Save(t.Context(), newer, item, deliver.Change{Outcome: &d}); err != nil {
		t.Errorf("the newer run: %v", err)
	}
	if err := s.Save(t.Context(), newer, item, deliver.Change{Outcome: &d}); !errors.Is(err, fault.Fenced) {
		t.Errorf("a lease that was given back still changes things: %v", err)
	}
}

func TestSave_RefusesASecondItemOfOneName(t *testing.T) {
	s, _ := newStore(t)
	record := session()
	if err := s.Save(t.Context(), take(t, s, "a"), item, deliver.Change{Session: &record}); err != nil {
		t.Fatal(err)
	}
	record.WorkItem = "github:octo/widget#8"
	l, _, err := s.TakeLease(t.Context(), record.WorkItem, "a")
	if err != nil {
		t.Fatal(err)
	}
	err = s.Save(t.Context(), l, record.WorkItem, deliver.Change{Session: &record})
	if !errors.Is(err, fault.Conflict) || fault.ReasonOf(err) != fault.ReasonTargetCollision {
		t.Errorf("%v", err)
	}
}

func TestSave_TheSameOutcomeKeepsItsTime(t *testing.T) {
	s, _ := newStore(t)
	d := begin(t, s, "delivery-1")
	d.Outcome, d.Reason = dispatch.Waiting, dispatch.ReasonHostUnreachable
	var times []time.Time
	for range 2 {
		if err := s.Save(t.Context(), take(t, s, "a"), item, deliver.Change{Outcome: &d}); err != nil {
			t.Fatal(err)
		}
		got, err := s.Delivery(t.Context(), d.ID)
		if err != nil {
			t.Fatal(err)
		}
		times = append(times, got.UpdatedAt)
	}
	if !times[0].Equal(times[1]) {
		t.Errorf("waiting since %v, then since %v", times[0], times[1])
	}
}

func TestDelivery_NotKnown(t *testing.T) {
	s, _ := newStore(t)
	_, err := s.Delivery(t.Context(), "delivery-1")
	if !errors.Is(err, fault.NotFound) || fault.ReasonOf(err) != fault.ReasonDeliveryNotFound {
		t.Errorf("%v", err)
	}
}

func TestStore_KeepsTheContract(t *testing.T) {
	s, _ := newStore(t)
	delivertest.CheckStore(t, s)
}

// A restore takes the sequence back to where it was at the backup: what is leased afterwards is above what the restore forgot, though nobody
// raised it.
func TestTakeLease_ARestoredSequenceRepeatsNoToken(t *testing.T) {
	s, pool := newStore(t)
	var last int64
	if err := pool.QueryRow(t.Context(), "select last_value from dispatcher.fencing_token").Scan(&last); err != nil {
		t.Fatal(err)
	}
	forgotten := take(t, s, "a").Token
	if _, err := pool.Exec(t.Context(), "select setval('dispatcher.fencing_token', $1)", last); err != nil {
		t.Fatal(err)
	}
	if l := take(t, s, "a"); l.Token <= forgotten {
		t.Errorf("%d after %d", l.Token, forgotten)
	}
}
