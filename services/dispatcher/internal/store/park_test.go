package store

import (
	"fmt"
	"testing"
	"time"

	"muxpost.dev/muxpost/core/dispatch"
	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/services/dispatcher/internal/deliver"
)

func TestDied_CountsThoseOfTheTimeThatIsAskedFor(t *testing.T) {
	s, pool := newStore(t)
	l := take(t, s, "a")
	for i := range 3 {
		if _, err := s.Died(t.Context(), l, item, fmt.Sprint(i), time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := pool.Exec(t.Context(), `update dispatcher.deaths set seen_at = now() - interval '30 minutes' where stamp = '1'`); err != nil {
		t.Fatal(err)
	}
	for within, want := range map[time.Duration]int{time.Hour: 3, 29 * time.Minute: 2} {
		if got, err := s.Died(t.Context(), l, item, "", within); err != nil || got.Count != want {
			t.Errorf("within %v: %+v, %v; want %d", within, got, err, want)
		}
	}
}

func TestDied_SaysForHowLongTheItemHasBeenParked(t *testing.T) {
	s, pool := newStore(t)
	l := take(t, s, "a")
	if err := s.Save(t.Context(), l, item, deliver.Change{Park: &deliver.Park{WorkItem: item, Deaths: 1, Within: time.Hour}}); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(t.Context(), `update dispatcher.parks set since = now() - interval '2 hours'`); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Died(t.Context(), l, item, "", time.Hour); err != nil || got.Age < 2*time.Hour || got.Age > 3*time.Hour {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestParks_AreThoseThatStandByWorkItem(t *testing.T) {
	s, pool := newStore(t)
	if _, err := pool.Exec(t.Context(), `insert into dispatcher.parks (work_item, deaths, within, lifted) values
		('c', 1, '1s', false), ('a', 2, '10m', false), ('b', 3, '1s', true)`); err != nil {
		t.Fatal(err)
	}
	all, err := s.Parks(t.Context(), deliver.ParkQuery{Limit: 9})
	if err != nil || len(all) != 2 || all[0].WorkItem != "a" || all[0].Within != 10*time.Minute || all[1].WorkItem != "c" {
		t.Errorf("%+v, %v", all, err)
	}
	if rest, err := s.Parks(t.Context(), deliver.ParkQuery{After: "a", Limit: 9}); err != nil || len(rest) != 1 {
		t.Errorf("%+v, %v", rest, err)
	}
}

func TestSessions_ThoseThatWereClosedAreAskedFor(t *testing.T) {
	s, _ := newStore(t)
	l := take(t, s, "a")
	record := deliver.Session{WorkItem: item, Target: "t", Host: "h", Closed: true}
	if err := s.Save(t.Context(), l, item, deliver.Change{Session: &record}); err != nil {
		t.Fatal(err)
	}
	for closed, want := range map[bool]int{false: 0, true: 1} {
		if got, err := s.Sessions(t.Context(), deliver.SessionQuery{Closed: closed, Limit: 9}); err != nil || len(got) != want {
			t.Errorf("closed %v: %+v, %v", closed, got, err)
		}
	}
	// They hold no host.
	told := deliver.Event{Type: dispatch.HostForgotten}
	if _, err := s.PutHost(t.Context(), deliver.HostRecord{Name: "h"}, told); err != nil {
		t.Fatal(err)
	}
	if err := s.DropHost(t.Context(), "h", told); err != nil {
		t.Errorf("%v (%s)", err, fault.ReasonOf(err))
	}
}
