package deliver_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"muxpost.dev/muxpost/core/dispatch"
	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/services/dispatcher/internal/deliver"
	"muxpost.dev/muxpost/services/dispatcher/internal/deliver/delivertest"
)

func TestAdopt_RecordsOnlyWhatIsProvenOurs(t *testing.T) {
	flagged := func(state session.State, flags session.Flags) delivertest.World {
		w := live(delivertest.World{})
		w.State, w.Flags = state, flags
		return w
	}
	gone := absent()
	gone.Conversation = "c1"
	for name, row := range map[string]struct {
		world   delivertest.World
		record  *deliver.Session
		refusal error // nil for none
		already bool
	}{
		"it lives":                           {live(delivertest.World{}), nil, nil, false},
		"it has died, its conversation":      {dead(delivertest.World{}), nil, nil, false},
		"it is gone, its conversation":       {gone, nil, nil, false},
		"there is none":                      {absent(), nil, fault.NotFound, false},
		"it is recorded":                     {live(delivertest.World{}), recorded("c1"), nil, true},
		"it is recorded, and has died":       {dead(delivertest.World{}), recorded("c1"), nil, true},
		"somebody else lives there":          {flagged(session.Live, session.Foreign), nil, fault.Conflict, false},
		"a guest lives there":                {flagged(session.Dead, session.Guests), nil, fault.Conflict, false},
		"its agent lives without it":         {flagged(session.Live, session.Detached), nil, fault.Conflict, false},
		"the host is away":                   {live(delivertest.World{Unreachable: true}), nil, fault.Unavailable, false},
		"the host of the record is away":     {live(delivertest.World{Unreachable: true}), recorded("c1"), fault.Unavailable, false},
		"tmux does not answer":               {live(delivertest.World{Mute: true}), nil, fault.Unavailable, false},
		"another incarnation than recorded":  {func() delivertest.World { w := live(delivertest.World{}); w.Stamp = "new"; return w }(), recorded("c1"), nil, false},
		"it was closed, and is brought back": {dead(delivertest.World{}), closedRecord(), nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(row.world, nil)
			if row.record != nil {
				b.store.Put(*row.record)
			}
			got, already, err := b.deliverer.Adopt(t.Context(), "github:Octo/Widget#7", "ann")
			if row.refusal != nil {
				if !errors.Is(err, row.refusal) || len(b.store.Events()) != 0 {
					t.Errorf("%+v, %v", got, err)
				}
				return
			}
			stored, _ := b.store.Session(item)
			if err != nil || already != row.already || stored.Closed || stored.ConversationID != "c1" || stored.Host != "a" || stored.Target != target ||
				slices.Contains(stored.Lineage, "c1") {
				t.Fatalf("%+v, %v, %v", stored, already, err)
			}
			told := b.store.Events()
			haveTheirFields(t, told)
			if row.already != (len(told) == 0) {
				t.Errorf("%+v", told)
			}
			for _, e := range told {
				if e.Type != dispatch.SessionRegistered || e.Fields["who"] != "ann" || e.Fields["reason"] == "" {
					t.Errorf("%+v", e)
				}
			}
			// The next event goes into it, or brings its conversation back.
			if d := b.ask(t, id).Delivery; d.How != dispatch.HowPasted && d.How != dispatch.HowResumed || b.host.World().Fresh != 0 {
				t.Errorf("%+v", d)
			}
		})
	}
}

// closedRecord is what a close left of the session.
func closedRecord() *deliver.Session {
	s := recorded("")
	s.Lineage, s.Closed = []string{"c0", "c1"}, true
	return s
}

func TestAdopt_RefusesWhatWaitsToBeEndedAndWhatIsNoItem(t *testing.T) {
	b := away(t)
	if _, err := b.deliverer.Stop(t.Context(), stopIt); err != nil {
		t.Fatal(err)
	}
	b.returns()
	if _, _, err := b.deliverer.Adopt(t.Context(), item, ""); !errors.Is(err, fault.Conflict) || !strings.Contains(err.Error(), "--cancel") {
		t.Errorf("%v", err)
	}
	for item, who := range map[string]string{"x": "", item: strings.Repeat("x", 101)} {
		if _, _, err := b.deliverer.Adopt(t.Context(), item, who); !errors.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", item, err)
		}
	}
}

func TestOrphans_ByTheTable(t *testing.T) {
	on := func(host string) *deliver.Session {
		s := recorded("c1")
		s.Host = host
		return s
	}
	for name, row := range map[string]struct {
		a, b   delivertest.World
		record *deliver.Session
		want   string
		silent string
	}{
		"it lives and is recorded":            {live(delivertest.World{}), absent(), on("a"), "", ""},
		"it lives and nothing is recorded":    {live(delivertest.World{}), absent(), nil, "a 1 ", ""},
		"it lives and was closed":             {live(delivertest.World{}), absent(), closedRecord(), "a 1 ", ""},
		"it has died and nothing is recorded": {dead(delivertest.World{}), absent(), nil, "", ""},
		"somebody else lives there":           {delivertest.World{State: session.Live, Flags: session.Foreign}, absent(), nil, "", ""},
		"it lives on another host":            {live(delivertest.World{}), dead(delivertest.World{}), on("b"), "a 2 b", ""},
		"its host has nothing of it":          {absent(), absent(), on("a"), "a 3 a", ""},
		"its host is away":                    {delivertest.World{Unreachable: true}, absent(), on("a"), "", "a"},
	} {
		t.Run(name, func(t *testing.T) {
			b, other := two(row.a)
			other.Change(func(w *delivertest.World) { *w = row.b })
			if row.record != nil {
				b.store.Put(*row.record)
			}
			found, silent, err := b.deliverer.Orphans(t.Context())
			got := ""
			for _, o := range found {
				got += o.Host + " " + string('0'+rune(o.Gap)) + " " + o.RecordedOn
			}
			if err != nil || got != row.want || strings.Join(silent, " ") != row.silent {
				t.Errorf("%q, %q, %v; want %q", got, silent, err, row.want)
			}
		})
	}
}

func TestOrphans_WhatWasLeftBehindByAnOrderIsNone(t *testing.T) {
	b, _ := two(live(delivertest.World{}))
	b.store.Put(*recorded("c1"))
	b.evacuate(t)
	if found, _, err := b.deliverer.Orphans(t.Context()); err != nil || len(found) != 0 {
		t.Errorf("%+v, %v", found, err)
	}
}
