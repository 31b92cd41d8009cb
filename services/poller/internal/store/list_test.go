package store

import (
	"fmt"
	"testing"
	"time"

	"muxpost.dev/muxpost/core/ledger"
	"muxpost.dev/muxpost/services/poller/internal/poll"
)

// What waits behind others that are not due is due by itself, and there may be more of it than a claim looks at.
func TestClaim_FindsWhatIsDueBehindHoweverManyThatAreNotTheFirst(t *testing.T) {
	w := newWorld(t)
	first, second := ref(t, 1), ref(t, 2)
	events := []poll.Event{event(first, "head", epoch, 1)}
	for i := range 2 * claimDepth {
		events = append(events, event(first, fmt.Sprint("behind ", i), epoch, int64(i+2)))
	}
	w.add(t, first, events...)
	w.add(t, second, event(second, "due", epoch, 1))
	w.sql(t, `update poller.events set next_look = now() - interval '1 hour' where work_item = $1`, first.String())
	w.sql(t, `update poller.events set state = 'held', next_look = now() + interval '1 hour' where work_item = $1 and upstream_order = 1`, first.String())
	claims, err := w.Claim(t.Context(), 3)
	must(t, err)
	equal(t, "claimed", texts(claims), []string{"due"})
	w.sql(t, `update poller.events set next_look = now() where state = 'held'`)
	claims, err = w.Claim(t.Context(), 3)
	must(t, err)
	equal(t, "claimed once the first is due", texts(claims), []string{"head"})
}

func TestCount_CountsByStateAndReason(t *testing.T) {
	w := newWorld(t)
	count := func(f poll.Filter) []poll.Count {
		t.Helper()
		counts, err := w.Count(t.Context(), f)
		must(t, err)
		return counts
	}
	equal(t, "an empty ledger", len(count(poll.Filter{})), 0)
	one, two := ref(t, 1), ref(t, 2)
	w.add(t, one, event(one, "a", epoch, 1), event(one, "b", epoch, 2), event(one, "c", epoch, 3))
	w.add(t, two, event(two, "d", epoch, 1))
	w.answer(t, w.one(t), ledger.Arrived, 0)
	w.sql(t, `update poller.events set state = 'settled', reason = 'bot' where upstream_order > 1`)
	equal(t, "all", count(poll.Filter{}), []poll.Count{{State: ledger.Delivered, Events: 1}, {State: ledger.Pending, Events: 1},
		{State: ledger.Settled, Reason: "bot", Events: 2}})
	equal(t, "of an item", count(poll.Filter{WorkItem: two.String()}), []poll.Count{{State: ledger.Pending, Events: 1}})
}

func TestList_ChoosesByEachFilterAndAllOfThem(t *testing.T) {
	w := newWorld(t)
	item := ref(t, 1)
	w.add(t, item, event(item, "a", epoch, 1), event(item, "b", epoch, 2))
	w.sql(t, `update poller.events set source = 'other', kind = 'opened', reason = 'own', state = 'settled', created_at = now() - interval '1 day'
where upstream_order = 1`)
	settled := ledger.Settled
	for name, tt := range map[string]struct {
		filter poll.Filter
		want   int
	}{
		"none":            {poll.Filter{}, 2},
		"a source":        {poll.Filter{Source: "other"}, 1},
		"a kind":          {poll.Filter{Kind: "opened"}, 1},
		"a reason":        {poll.Filter{Reason: "own"}, 1},
		"since":           {poll.Filter{Since: time.Now().Add(-time.Hour)}, 1},
		"since long":      {poll.Filter{Since: time.Now().Add(-48 * time.Hour)}, 2},
		"all of them":     {poll.Filter{State: &settled, Source: "other", Kind: "opened", Reason: "own"}, 1},
		"a contradiction": {poll.Filter{Source: "other", Kind: "comment"}, 0},
	} {
		tt.filter.Limit = 10
		rows, err := w.List(t.Context(), tt.filter)
		must(t, err)
		if len(rows) != tt.want {
			t.Errorf("%s: %d rows", name, len(rows))
		}
	}
}
