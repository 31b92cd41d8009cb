package store

import (
	"slices"
	"testing"
	"time"

	"muxpost.dev/muxpost/services/dispatcher/internal/metrics"
)

func TestFigures_CountWhatThereIs(t *testing.T) {
	s, pool := newStore(t)
	if got, err := s.Figures(t.Context()); err != nil || len(got.Sessions)+len(got.Waiting) > 0 || got.Parked+got.PausedAll+got.PausedItems+got.Endings > 0 {
		t.Errorf("of nothing: %+v, %v", got, err)
	}
	for _, statement := range []string{
		`insert into dispatcher.sessions (work_item, target, host, stamp, closed) values
			('a', 'ta', 'east', 's1', false), ('b', 'tb', 'east', 's2', false), ('c', 'tc', 'west', 's3', false), ('d', 'td', 'west', 's4', true)`,
		// What is told of another incarnation says nothing of this one.
		`insert into dispatcher.activities (work_item, host, stamp, activity) values ('a', 'east', 's1', 'idle'), ('b', 'east', 'old', 'working')`,
		`insert into dispatcher.deliveries (delivery_id, work_item, kind, fingerprint, outcome, reason, created_at) values
			('1', 'a', 'comment', '', 'waiting', 'host_unreachable', now() - interval '1 hour'), ('2', 'b', 'comment', '', 'waiting', 'host_unreachable', now()),
			('3', 'c', 'comment', '', 'held', 'busy', now()), ('4', 'c', 'comment', '', 'delivered', '', now()), ('5', 'c', 'comment', '', 'dropped', 'busy', now())`,
		`insert into dispatcher.parks (work_item, deaths, within, lifted) values ('a', 1, '1s', false), ('b', 1, '1s', true)`,
		`insert into dispatcher.endings (work_item, closes, stamp, grace) values ('a', false, 's1', '1s')`,
	} {
		if _, err := pool.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	got, err := s.Figures(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []metrics.Sessions{{Host: "east", Activity: "idle", Count: 1}, {Host: "east", Count: 1}, {Host: "west", Count: 1}} {
		if !slices.Contains(got.Sessions, want) {
			t.Errorf("no %+v in %+v", want, got.Sessions)
		}
	}
	waiting := map[string]metrics.Waiting{}
	for _, w := range got.Waiting {
		waiting[w.Outcome+" "+w.Reason] = w
	}
	if w := waiting["waiting host_unreachable"]; len(waiting) != 2 || w.Count != 2 || w.Oldest < time.Hour || w.Oldest > 2*time.Hour || waiting["held busy"].Count != 1 {
		t.Errorf("waiting: %+v", got.Waiting)
	}
	if len(got.Sessions) != 3 || got.Parked != 1 || got.Endings != 1 || got.PausedAll+got.PausedItems != 0 {
		t.Errorf("%+v", got)
	}
}

// One item that is paused holds nothing else back: whoever asks whether everything is must not be told so.
func TestFigures_TellAPauseOfAllFromThatOfAnItem(t *testing.T) {
	s, pool := newStore(t)
	for _, step := range []struct {
		do         string
		all, items int
	}{
		{`insert into dispatcher.pauses (work_item) values ('a'), ('b')`, 0, 2},
		{`insert into dispatcher.pauses (work_item) values ('')`, 1, 2},
		{`delete from dispatcher.pauses where work_item <> ''`, 1, 0},
		{`delete from dispatcher.pauses`, 0, 0},
	} {
		if _, err := pool.Exec(t.Context(), step.do); err != nil {
			t.Fatal(err)
		}
		if got, err := s.Figures(t.Context()); err != nil || got.PausedAll != step.all || got.PausedItems != step.items {
			t.Errorf("after %s: %d of all and %d of items, %v", step.do, got.PausedAll, got.PausedItems, err)
		}
	}
}
