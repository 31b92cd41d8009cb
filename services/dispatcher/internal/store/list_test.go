package store

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"muxpost.dev/muxpost/core/dispatch"
	"muxpost.dev/muxpost/services/dispatcher/internal/deliver"
)

// TestEvents_AnOpenWriterIsNeverOvertaken holds a transaction open that has written an event: nobody may write one with a later
// number that can be read first, or a reader would go past the open one for good.
func TestEvents_AnOpenWriterIsNeverOvertaken(t *testing.T) {
	s, pool := newStore(t)
	older, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = older.Rollback(t.Context()) }()
	if _, err := older.Exec(t.Context(), "insert into dispatcher.events (type) values ('dispatch.failed')"); err != nil {
		t.Fatal(err)
	}
	begun := make(chan error, 1)
	go func() {
		_, _, err := s.Begin(t.Context(), delivery("delivery-1"), queued("delivery-1"))
		begun <- err
	}()
	waitFor(t, pool, "select exists (select from pg_stat_activity where wait_event = 'advisory' and datname = current_database())")
	if got := events(t, s, deliver.EventQuery{}); len(got) != 0 {
		t.Errorf("events %+v", got)
	}
	if err := older.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-begun; err != nil {
		t.Fatal(err)
	}
	got := events(t, s, deliver.EventQuery{})
	if len(got) != 2 || got[0].Type != dispatch.DispatchFailed || got[1].Type != dispatch.DispatchQueued {
		t.Errorf("events %+v", got)
	}
}

// TestEvents_AnOlderTransactionHidesNothing holds that a long transaction elsewhere does not stop the stream, and that the event
// which it writes in the end is still seen by a reader that has gone on.
func TestEvents_AnOlderTransactionHidesNothing(t *testing.T) {
	s, pool := newStore(t)
	older, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = older.Rollback(t.Context()) }()
	if _, err := older.Exec(t.Context(), "select pg_current_xact_id()"); err != nil {
		t.Fatal(err)
	}
	begin(t, s, "delivery-1")
	got := events(t, s, deliver.EventQuery{})
	if len(got) != 1 {
		t.Fatalf("events %+v", got)
	}
	if _, err := older.Exec(t.Context(), "insert into dispatcher.events (type) values ('dispatch.failed')"); err != nil {
		t.Fatal(err)
	}
	if err := older.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if late := events(t, s, deliver.EventQuery{After: got[0].Sequence}); len(late) != 1 || late[0].Type != dispatch.DispatchFailed {
		t.Errorf("the late event: %+v", late)
	}
}

// waitFor polls a question to the server, which is a process of its own, until the answer is yes.
func waitFor(t *testing.T, pool *pgxpool.Pool, question string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for yes := false; !yes; {
		if err := pool.QueryRow(ctx, question).Scan(&yes); err != nil {
			t.Fatalf("%s: %v", question, err)
		}
	}
}

// TestEvents_AReaderMissesNone follows the stream while writers, some of which have taken their transaction id long before their
// first event, commit in any order.
func TestEvents_AReaderMissesNone(t *testing.T) {
	s, pool := newStore(t)
	const writers, each = 6, 20
	done := make(chan error, writers)
	for w := range writers {
		go func() {
			for i := range each {
				done <- pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
					if w%2 == 0 {
						if _, err := tx.Exec(t.Context(), "select pg_current_xact_id()"); err != nil {
							return err
						}
					}
					_, err := tx.Exec(t.Context(), "insert into dispatcher.events (type, delivery_id) values ('x', $1)", fmt.Sprintf("%d-%d", w, i))
					return err
				})
			}
		}()
	}
	seen := map[string]bool{}
	after, ended := int64(0), 0
	for len(seen) < writers*each {
		allEnded := ended == writers*each
		got, err := s.Events(t.Context(), deliver.EventQuery{After: after, Limit: 7})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range got.Events {
			seen[e.DeliveryID], after = true, e.Sequence
		}
		if len(got.Events) == 0 {
			after = got.Last // as a reader does that has had everything
		}
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			ended++
		default:
		}
		if len(got.Events) == 0 && allEnded {
			t.Fatalf("the reader saw %d of %d events", len(seen), writers*each)
		}
	}
}

func TestEvents_AreChosenAndCut(t *testing.T) {
	s, _ := newStore(t)
	for i := range 5 {
		begin(t, s, fmt.Sprintf("delivery-%d", i))
	}
	all := events(t, s, deliver.EventQuery{})
	ids := func(q deliver.EventQuery) string {
		var out []string
		for _, e := range events(t, s, q) {
			out = append(out, strings.TrimPrefix(e.DeliveryID, "delivery-"))
		}
		return strings.Join(out, "")
	}
	for _, row := range []struct {
		name string
		q    deliver.EventQuery
		want string
	}{
		{"all", deliver.EventQuery{}, "01234"},
		{"first page", deliver.EventQuery{Limit: 2}, "01"},
		{"after", deliver.EventQuery{After: all[1].Sequence, Limit: 2}, "23"},
		{"latest, in order", deliver.EventQuery{Latest: true, Limit: 2}, "34"},
		{"of an item", deliver.EventQuery{WorkItem: item}, "01234"},
		{"of another", deliver.EventQuery{WorkItem: "github:o/r#1"}, ""},
		{"of a delivery", deliver.EventQuery{DeliveryID: "delivery-3"}, "3"},
		{"of types", deliver.EventQuery{Types: []dispatch.EventType{dispatch.SessionSpawned, dispatch.DispatchQueued}}, "01234"},
		{"of another type", deliver.EventQuery{Types: []dispatch.EventType{dispatch.SessionSpawned}}, ""},
	} {
		if got := ids(row.q); got != row.want {
			t.Errorf("%s: %s, want %s", row.name, got, row.want)
		}
	}
}

func TestDeliveries_PageByPageNewestFirst(t *testing.T) {
	s, pool := newStore(t)
	var want []string
	for i := range 7 {
		id := fmt.Sprintf("delivery-%d", i)
		begin(t, s, id)
		want = append(want, id)
	}
	slices.Reverse(want)
	// Equal times must not make a page repeat or skip a delivery.
	if _, err := pool.Exec(t.Context(), "update dispatcher.deliveries set created_at = '2026-01-01'"); err != nil {
		t.Fatal(err)
	}
	var got []string
	for q := (deliver.DeliveryQuery{WorkItem: item, Limit: 3}); ; {
		page, err := s.Deliveries(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range page {
			got = append(got, d.ID)
			q.BeforeTime, q.BeforeID = d.CreatedAt, d.ID
		}
		if len(page) < q.Limit {
			break
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("deliveries %v, want %v", got, want)
	}
	if other, err := s.Deliveries(t.Context(), deliver.DeliveryQuery{WorkItem: "github:o/r#1", Limit: 3}); err != nil || len(other) != 0 {
		t.Errorf("of another item: %v, %v", other, err)
	}
}

func TestSessions_PageByPage(t *testing.T) {
	s, _ := newStore(t)
	for i := range 5 {
		record := session()
		record.WorkItem, record.Target = fmt.Sprintf("github:o/r#%d", i), fmt.Sprintf("loop-o-r-%d", i)
		l, _, err := s.TakeLease(t.Context(), record.WorkItem, "a")
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Save(t.Context(), l, record.WorkItem, deliver.Change{Session: &record}); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for q := (deliver.SessionQuery{Limit: 2}); ; {
		page, err := s.Sessions(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range page {
			got, q.After = append(got, r.Target), r.WorkItem
		}
		if len(page) < q.Limit {
			break
		}
	}
	if strings.Join(got, " ") != "loop-o-r-0 loop-o-r-1 loop-o-r-2 loop-o-r-3 loop-o-r-4" {
		t.Errorf("sessions %v", got)
	}
	one, err := s.Sessions(t.Context(), deliver.SessionQuery{WorkItem: "github:o/r#3", Limit: 2})
	if err != nil || len(one) != 1 {
		t.Errorf("%v, %v", one, err)
	}
}

func TestSuperseded_PageByPage(t *testing.T) {
	s, _ := newStore(t)
	var want []string
	for i := range 5 {
		record := session()
		record.WorkItem, record.Target, record.Host = fmt.Sprintf("github:o/r#%d", i), fmt.Sprintf("loop-o-r-%d", i), fmt.Sprintf("host-%d", 1-i%2)
		l, _, err := s.TakeLease(t.Context(), record.WorkItem, "a")
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []deliver.Change{{Session: &record}, {Left: true}} {
			if err := s.Save(t.Context(), l, record.WorkItem, c); err != nil {
				t.Fatal(err)
			}
		}
		want = append(want, record.Host+" "+record.WorkItem)
	}
	slices.Sort(want)
	var got []string
	for q := (deliver.SupersededQuery{Limit: 2}); ; {
		page, err := s.Superseded(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range page {
			got, q.AfterHost, q.AfterItem = append(got, o.Host+" "+o.WorkItem), o.Host, o.WorkItem
		}
		if len(page) < q.Limit {
			break
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestIndexes_ServeEveryList holds that no list reads a whole table once the tables have grown.
func TestIndexes_ServeEveryList(t *testing.T) {
	_, pool := newStore(t)
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if _, err := conn.Exec(t.Context(), "set enable_seqscan = off; set enable_sort = off"); err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{
		"select * from dispatcher.deliveries order by created_at desc, delivery_id desc limit 50",
		"select * from dispatcher.deliveries where (created_at, delivery_id) < (now(), 'x') order by created_at desc, delivery_id desc limit 50",
		"select * from dispatcher.deliveries where work_item = 'x' order by created_at desc, delivery_id desc limit 50",
		"select * from dispatcher.sessions where work_item > 'x' order by work_item limit 50",
		"select * from dispatcher.events where seq > 1 order by seq limit 50",
		"select * from dispatcher.events where seq > 1 and work_item = 'x' order by seq desc limit 50",
		"select * from dispatcher.events where seq > 1 and delivery_id = 'x' order by seq limit 50",
		"select * from dispatcher.events where seq > 1 and type = any('{x}') order by seq limit 50",
		"select max(seq) from dispatcher.events",
	} {
		rows, err := conn.Query(t.Context(), "explain "+sql)
		if err != nil {
			t.Fatal(err)
		}
		plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		if text := strings.Join(plan, "\n"); strings.Contains(text, "Seq Scan") || strings.Contains(text, "Sort") {
			t.Errorf("%s\n%s", sql, text)
		}
	}
}

func TestKinds_AreStoredAsTheyAre(t *testing.T) {
	s, _ := newStore(t)
	for _, o := range dispatch.Outcomes() {
		d := begin(t, s, "delivery-"+o.String())
		d.Outcome, d.Reason = o, dispatch.ReasonSessionHolds
		if err := s.Save(t.Context(), take(t, s, "a"), item, deliver.Change{Outcome: &d}); err != nil {
			t.Fatalf("%v: %v", o, err)
		}
		if got, err := s.Delivery(t.Context(), d.ID); err != nil || got.Outcome != o {
			t.Errorf("%v reads back as %v, %v", o, got.Outcome, err)
		}
	}
}
