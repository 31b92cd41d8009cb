package deliver_test

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"muxpost.dev/muxpost/core/dispatch"
	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/services/dispatcher/internal/deliver"
	"muxpost.dev/muxpost/services/dispatcher/internal/deliver/delivertest"
)

// mortal is a bench with a breaker of three deaths within ten minutes, whose version is *v.
func mortal(w delivertest.World, v *dispatch.Version, change func(*deliver.Config)) bench {
	return newBench(w, func(c *deliver.Config) {
		c.Breaker = dispatch.Breaker{Deaths: 3, Within: 10 * time.Minute}
		c.Version = func(string) dispatch.Version { return *v }
		if change != nil {
			change(c)
		}
	})
}

// dies ends the agent that lives, as a crash does.
func (b bench) dies() { b.host.Change(func(w *delivertest.World) { w.State = session.Dead }) }

// starts is how many sessions were started.
func (b bench) starts() int { w := b.host.World(); return w.Fresh + w.Resumed }

// delivers asks for new deliveries until one is not delivered, with the agent dying after each, and returns how many were.
func (b bench) delivers(t *testing.T, prefix string) (n int, last deliver.Result) {
	t.Helper()
	for ; n < 20; n++ {
		if last = b.ask(t, fmt.Sprintf("%s-%d", prefix, n)); last.Delivery.Outcome != dispatch.Delivered {
			return n, last
		}
		b.dies()
	}
	t.Fatal("nothing is ever parked")
	return n, last
}

// A program that ends because its conversation is open elsewhere, or at a limit, waits by a rule of its own, however long that lasts.
func TestPark_AnEndWithACauseOfItsOwnDoesNotCount(t *testing.T) {
	for _, ends := range []dispatch.Spawn{dispatch.SpawnInUse, dispatch.SpawnLimited} {
		synctest.Test(t, func(t *testing.T) {
			v := dispatch.Version{Name: "one", Distinct: true}
			w := dead(delivertest.World{})
			w.ResumeEnds = ends
			b := mortal(w, &v, nil)
			b.store.Put(*recorded("c1"))
			for range 12 {
				if d := b.ask(t, id).Delivery; d.Outcome != dispatch.Waiting || d.Reason == dispatch.ReasonSessionParked {
					t.Fatalf("%+v", d)
				}
				time.Sleep(time.Minute)
			}
		})
	}
}

func TestPark_AnAgentThatDiesAgainAndAgainIsNotStartedAgainUntilAPersonSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := dispatch.Version{Name: "one", Distinct: true}
		b := mortal(absent(), &v, nil)
		n, got := b.delivers(t, "delivery")
		d := got.Delivery
		if n != 3 || b.starts() != 3 || d.Outcome != dispatch.Waiting || d.Reason != dispatch.ReasonSessionParked || got.LookAgain != time.Minute ||
			!strings.Contains(d.Detail, "died 3 times within 10m") || !strings.Contains(d.Remedy, "muxpost unpark '"+item+"'") {
			t.Errorf("after %d, %d starts: %+v", n, b.starts(), got)
		}
		if !strings.HasSuffix(b.events(), "session.parked") {
			t.Errorf("%s", b.events())
		}
		// It stays so through any time and any process, and tells of it no second time.
		time.Sleep(30 * 24 * time.Hour)
		b.deliverer = deliver.New(deliver.Config{Store: b.store, Hosts: delivertest.Hosts{b.host}, Logger: slog.New(slog.DiscardHandler), Tracer: tracer(t, nil), Process: "p2", Harness: "claude",
			Resume: true, Breaker: dispatch.Breaker{Deaths: 3, Within: 10 * time.Minute}, Version: func(string) dispatch.Version { return v }})
		if again := b.ask(t, d.ID); again.Delivery.Reason != dispatch.ReasonSessionParked || b.starts() != 3 || strings.Count(b.events(), "session.parked") != 1 {
			t.Errorf("%+v, %s", again, b.events())
		}
		for _, want := range []bool{true, false} {
			p, stood, err := b.deliverer.Unpark(t.Context(), "github:Octo/Widget#7", "ann")
			if err != nil || stood != want || want && (p.Deaths != 3 || p.WorkItem != item) {
				t.Errorf("%+v, %v, %v", p, stood, err)
			}
		}
		told := b.store.Events()
		haveTheirFields(t, told)
		if e := told[len(told)-1]; e.Type != dispatch.SessionUnparked || e.Fields["who"] != "ann" || e.Fields["reason"] != "command" || e.WorkItem != item {
			t.Errorf("%+v", e)
		}
		if got := b.ask(t, d.ID).Delivery; got.Outcome != dispatch.Delivered {
			t.Errorf("afterwards: %+v", got)
		}
		b.dies()
		if n, _ := b.delivers(t, "another"); n != 2 { // and the one before
			t.Errorf("parked again after %d", n)
		}
	})
}

func TestPark_ADeathCountsForATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := mortal(absent(), &dispatch.Version{}, nil)
		for i := range 10 {
			if d := b.ask(t, fmt.Sprintf("delivery-%d", i)).Delivery; d.Outcome != dispatch.Delivered {
				t.Fatalf("%d: %+v", i, d)
			}
			b.dies()
			time.Sleep(6 * time.Minute)
		}
	})
}

func TestPark_OneDeathIsCountedOnceHoweverOftenItIsSeen(t *testing.T) {
	b := mortal(dead(delivertest.World{ResumeEnds: dispatch.SpawnSilent}), &dispatch.Version{}, nil)
	b.store.Put(*recorded("c1"))
	for range 10 {
		if d := b.ask(t, id).Delivery; d.Reason != dispatch.ReasonSpawnNoAnswer {
			t.Fatalf("%+v", d)
		}
	}
	if strings.Contains(b.events(), "parked") {
		t.Error(b.events())
	}
}

// A program that ends at once is started as often as the breaker lets it, and not as often for each event: a resume and a fresh start count each.
func TestPark_AStartThatEndsAtOnceIsADeath(t *testing.T) {
	b := mortal(dead(delivertest.World{ResumeEnds: dispatch.SpawnDied, FreshEnds: dispatch.SpawnDied}), &dispatch.Version{}, nil)
	b.store.Put(*recorded("c1"))
	if d := b.ask(t, id).Delivery; d.Reason != dispatch.ReasonHarnessExited {
		t.Fatalf("%+v", d)
	}
	if d := b.ask(t, id).Delivery; d.Reason != dispatch.ReasonSessionParked || b.host.World().Died != 2 { // and the one that was dead
		t.Errorf("%+v after %d", d, b.host.World().Died)
	}
}

func TestPark_WhatAPersonStopsDoesNotCount(t *testing.T) {
	b := mortal(absent(), &dispatch.Version{}, nil)
	for i := range 10 {
		if d := b.ask(t, fmt.Sprintf("delivery-%d", i)).Delivery; d.Outcome != dispatch.Delivered {
			t.Fatalf("%d: %+v", i, d)
		}
		if _, err := b.deliverer.Stop(t.Context(), deliver.Stop{WorkItem: item}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestPark_WhatHadDiedBeforeAPersonStoppedItCounts(t *testing.T) {
	b := mortal(absent(), &dispatch.Version{}, nil)
	for i := range 3 {
		if d := b.ask(t, fmt.Sprintf("delivery-%d", i)).Delivery; d.Outcome != dispatch.Delivered {
			t.Fatalf("%d: %+v", i, d)
		}
		b.dies()
		if ended, err := b.deliverer.Stop(t.Context(), deliver.Stop{WorkItem: item}); err != nil || !ended.Already {
			t.Fatalf("%+v, %v", ended, err)
		}
	}
	if d := b.ask(t, "delivery-x").Delivery; d.Reason != dispatch.ReasonSessionParked {
		t.Errorf("%+v", d)
	}
}

func TestPark_AnotherVersionTriesOnceEach(t *testing.T) {
	v := dispatch.Version{Name: "one", Distinct: true}
	b := mortal(absent(), &v, nil)
	total, last := b.delivers(t, "under-one")
	for i, step := range []struct {
		version dispatch.Version
		more    int
	}{
		{dispatch.Version{Name: "one", Distinct: true}, 0}, {dispatch.Version{Name: "two+dirty"}, 0}, {dispatch.Version{Name: "two", Distinct: true}, 3},
		{dispatch.Version{Name: "one", Distinct: true}, 0}, {dispatch.Version{Name: "two", Distinct: true}, 0},
	} {
		v = step.version
		again := b.ask(t, last.Delivery.ID)
		if again.Delivery.Outcome == dispatch.Delivered {
			b.dies()
			_, last = b.delivers(t, fmt.Sprintf("later-%d", i))
		}
		if got := b.starts() - total; got != step.more {
			t.Errorf("%d, under %q: %d more starts, want %d", i, step.version.Name, got, step.more)
		}
		total = b.starts()
	}
	if got := strings.Count(b.events(), "session.unparked"); got != 1 || strings.Count(b.events(), "session.parked") != 2 {
		t.Errorf("%s", b.events())
	}
}

func TestPark_TimeEndsItWhereTheConfigurationSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := mortal(absent(), &dispatch.Version{}, func(c *deliver.Config) { c.Breaker.Parked = time.Hour })
		_, last := b.delivers(t, "delivery")
		time.Sleep(time.Hour - time.Second)
		if d := b.ask(t, last.Delivery.ID).Delivery; d.Reason != dispatch.ReasonSessionParked {
			t.Errorf("too early: %+v", d)
		}
		time.Sleep(time.Second)
		if d := b.ask(t, last.Delivery.ID).Delivery; d.Outcome != dispatch.Delivered {
			t.Errorf("%+v", d)
		}
		haveTheirFields(t, b.store.Events())
		for _, e := range b.store.Events() {
			if e.Type == dispatch.SessionUnparked && e.Fields["reason"] != "time" {
				t.Errorf("%+v", e)
			}
		}
	})
}

func TestPark_AnAgentThatAPersonStartedIsTalkedTo(t *testing.T) {
	b := mortal(absent(), &dispatch.Version{}, nil)
	_, last := b.delivers(t, "delivery")
	b.host.Change(func(w *delivertest.World) { w.State, w.Stamp = session.Live, "by-hand" })
	if d := b.ask(t, last.Delivery.ID).Delivery; d.How != dispatch.HowPasted {
		t.Errorf("%+v", d)
	}
	b.dies()
	if d := b.ask(t, "delivery-x").Delivery; d.Reason != dispatch.ReasonSessionParked {
		t.Errorf("and is not started: %+v", d)
	}
}

func TestPark_IsOverWhenTheItemIsMovedAway(t *testing.T) {
	b, other := two(dead(delivertest.World{ResumeEnds: dispatch.SpawnDied, FreshEnds: dispatch.SpawnDied}))
	b.store.Put(*recorded("c1"))
	config := deliver.Config{Store: b.store, Hosts: delivertest.Hosts{b.host, other}, Logger: slog.New(slog.DiscardHandler), Tracer: tracer(t, nil),
		Process: "p1", Harness: "claude", Resume: true, Breaker: dispatch.Breaker{Deaths: 1, Within: time.Minute}}
	b.deliverer = deliver.New(config)
	if d := b.ask(t, id).Delivery; d.Reason != dispatch.ReasonSessionParked {
		t.Fatalf("%+v", d)
	}
	b.evacuate(t)
	if d := b.ask(t, id).Delivery; d.Outcome != dispatch.Delivered || d.Host != "b" {
		t.Errorf("%+v", d)
	}
}

func TestUnpark_RefusesWhatIsNoItem(t *testing.T) {
	b := newBench(absent(), nil)
	for item, who := range map[string]string{"x": "", item: strings.Repeat("x", 101)} {
		if _, _, err := b.deliverer.Unpark(t.Context(), item, who); !errors.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", item, err)
		}
	}
}
