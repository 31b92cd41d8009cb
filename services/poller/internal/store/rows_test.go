package store

import (
	"testing"

	"muxpost.dev/muxpost/core/ledger"
	"muxpost.dev/muxpost/services/poller/internal/poll"
)

// TestRecord_OneEventByTwoWaysIsOneRow has the same event come by a look and by a call, in either order, and once more in the name of
// another source: the natural key is one, so the row is one and it is claimed once.
func TestRecord_OneEventByTwoWaysIsOneRow(t *testing.T) {
	for name, lookFirst := range map[string]bool{"the look first": true, "the call first": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			item := ref(t, 1)
			w.add(t, item)
			e := event(item, "a", epoch, 1)
			seen := record(item, e)
			seen.FirstSight = false
			look := func() (fresh bool) {
				t.Helper()
				got, err := w.Record(t.Context(), seen)
				must(t, err)
				return got.Pending == 1
			}
			call := func() (fresh bool) {
				t.Helper()
				_, existed, err := w.Submit(t.Context(), e, false)
				must(t, err)
				return !existed
			}
			ways := []func() bool{look, call}
			if !lookFirst {
				ways = []func() bool{call, look}
			}
			equal(t, "fresh the first time", ways[0](), true)
			equal(t, "fresh by the other way", ways[1](), false)
			seen.Source, seen.Events[0].Source = "another", "another"
			equal(t, "fresh from another source", look(), false)
			rows, err := w.List(t.Context(), poll.Filter{Limit: 10})
			must(t, err)
			equal(t, "rows", len(rows), 1)
			w.answer(t, w.one(t), ledger.Arrived, 0)
			equal(t, "once it is delivered", []bool{look(), call()}, []bool{false, false})
			equal(t, "claimed again", w.claims(t, 10), []string(nil))
		})
	}
}
