package store

import (
	"slices"
	"testing"
	"time"

	"muxpost.dev/muxpost/core/dispatch"
	"muxpost.dev/muxpost/services/dispatcher/internal/deliver"
)

func TestForget_OnlyWhatWasDeliveredLongAgoAndWhatWasToldOfIt(t *testing.T) {
	s, pool := newStore(t)
	exec := func(sql string, args ...any) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
			t.Fatal(err)
		}
	}
	const old = `created_at = now() - interval '100 days', updated_at = now() - interval '100 days'`
	var want []string
	for _, o := range dispatch.Outcomes() {
		id := "delivery-" + o.String()
		begin(t, s, id)
		exec(`update dispatcher.deliveries set `+old+`, outcome = $2 where delivery_id = $1`, id, o.String())
		if o != dispatch.Delivered {
			want = append(want, id)
		}
	}
	begin(t, s, "delivery-new")
	exec(`update dispatcher.deliveries set created_at = now() - interval '100 days', outcome = 'delivered' where delivery_id = 'delivery-new'`)
	want = append(want, "delivery-new")
	exec(`insert into dispatcher.events (type, work_item) values ('session.spawned', $1)`, item)
	exec(`update dispatcher.events set time = now() - interval '100 days'`)
	exec(`insert into dispatcher.events (type, work_item) values ('session.lost', $1)`, item)
	exec(`insert into dispatcher.deaths (work_item, stamp, seen_at) values ('old', 'a', now() - interval '100 days'), ('new', 'b', now())`)
	exec(`insert into dispatcher.parks (work_item, deaths, within, lifted, since) select item, 1, '1s', lifted, now() - age::interval
		from (values ('old', true, '100 days'), ('still', false, '100 days'), ('new', true, '1 day')) as p(item, lifted, age)`)
	// Of the two that are delivered, one is kept; of neither the old events are.
	if n, err := s.ForgetEvents(t.Context(), 90*24*time.Hour); err != nil || n != 3 {
		t.Errorf("%d events, %v", n, err)
	}
	if n, err := s.ForgetDeliveries(t.Context(), 90*24*time.Hour); err != nil || n != 1 {
		t.Errorf("%d deliveries, %v", n, err)
	}
	var kept string
	if err := pool.QueryRow(t.Context(), `select string_agg(work_item, ' ' order by work_item) from
		(select work_item from dispatcher.deaths union all select work_item from dispatcher.parks) as all_of_them`).Scan(&kept); err != nil || kept != "new new still" {
		t.Errorf("deaths and parks left: %q, %v", kept, err)
	}
	left, err := s.Deliveries(t.Context(), deliver.DeliveryQuery{Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, d := range left {
		got = append(got, d.ID)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("left %v, want %v", got, want)
	}
	// The others have not changed for 100 days either, which is long enough at some point.
	if n, err := s.ForgetUndelivered(t.Context(), 101*24*time.Hour); err != nil || n != 0 {
		t.Errorf("%d that were not delivered, %v", n, err)
	}
	exec(`update dispatcher.deliveries set updated_at = now() where delivery_id = 'delivery-dropped'`)
	if n, err := s.ForgetUndelivered(t.Context(), 99*24*time.Hour); err != nil || n != int64(len(dispatch.Outcomes())-2) {
		t.Errorf("%d that were not delivered, %v", n, err)
	}
	for _, e := range events(t, s, deliver.EventQuery{}) {
		if e.DeliveryID == "delivery-delivered" || e.DeliveryID == "delivery-new" || e.Type == "session.spawned" {
			t.Errorf("left %+v", e)
		}
	}
}

// TestForgetEvents_WhoReadsAfterwardsCanSeeThatSomeAreGone holds the number up to which events may be gone, beside those before it that are kept.
func TestForgetEvents_WhoReadsAfterwardsCanSeeThatSomeAreGone(t *testing.T) {
	s, pool := newStore(t)
	begin(t, s, "delivery-1") // it waits, so that its event is kept
	if _, err := pool.Exec(t.Context(), `insert into dispatcher.events (type) select 'session.spawned' from generate_series(1, 3);
update dispatcher.events set time = now() - interval '100 days'; insert into dispatcher.events (type) values ('session.stopped')`); err != nil {
		t.Fatal(err)
	}
	before := page(t, s, deliver.EventQuery{})
	if n, err := s.ForgetEvents(t.Context(), 90*24*time.Hour); err != nil || n != 3 {
		t.Errorf("%d events, %v", n, err)
	}
	after := page(t, s, deliver.EventQuery{})
	if before.Forgotten != 0 || after.Forgotten != before.Events[3].Sequence || len(after.Events) != 2 || after.Last != before.Last {
		t.Errorf("%+v, and before %+v", after, before)
	}
	// When all are gone, the numbers do not begin again for who asks.
	if _, err := s.ForgetEvents(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(t.Context(), "update dispatcher.deliveries set outcome = 'delivered'"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.ForgetEvents(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if none := page(t, s, deliver.EventQuery{}); len(none.Events) != 0 || none.Last != before.Last || none.Forgotten != before.Last {
		t.Errorf("%+v, and before %+v", none, before)
	}
}

func TestForget_GoesOnUntilNothingIsLeft(t *testing.T) {
	s, pool := newStore(t)
	if _, err := pool.Exec(t.Context(), `insert into dispatcher.events (type, time)
select 'session.spawned', now() - interval '100 days' from generate_series(1, $1)`, 2*forgetBatch+1); err != nil {
		t.Fatal(err)
	}
	if told, err := s.ForgetEvents(t.Context(), 90*24*time.Hour); err != nil || told != 2*forgetBatch+1 {
		t.Errorf("%d, %v", told, err)
	}
}
