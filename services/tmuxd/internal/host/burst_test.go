package host

import (
	"strings"
	"testing"
	"time"

	"muxpost.dev/muxpost/core/session"
)

func TestBurst_ManyDeathsWithinMomentsAreOneAlarm(t *testing.T) {
	t.Parallel()
	begin := time.Unix(1000, 0)
	for name, c := range map[string]struct {
		every time.Duration
		count int
		live  int
		want  int
	}{
		"four of four":                     {time.Millisecond, 4, 0, 0},
		"five of five":                     {time.Millisecond, 5, 0, 5},
		"five of ten":                      {time.Millisecond, 5, 5, 5},
		"five of eleven":                   {time.Millisecond, 5, 6, 0},
		"twenty of a thousand":             {time.Millisecond, 20, 980, 20},
		"nineteen of a thousand":           {time.Millisecond, 19, 981, 0},
		"one each second":                  {900 * time.Millisecond, 6, 0, 6},
		"one each three seconds":           {3 * time.Second, 30, 0, 0},
		"some, then long nothing, then on": {6 * time.Second, 8, 0, 0},
	} {
		var b burst
		var got, alarms int
		at := begin
		for range c.count {
			if due := b.due(); !due.IsZero() && due.Before(at) {
				got += len(b.judge(c.live))
			}
			b.add(death{at: at, told: at, target: "t", harness: "h"})
			at = at.Add(c.every)
		}
		if deaths := b.judge(c.live); deaths != nil {
			alarms++
			got += len(deaths)
		}
		if got != c.want || alarms > 1 {
			t.Errorf("%s: %d deaths in %d alarms", name, got, alarms)
		}
	}
}

func TestBurst_IsJudgedOnceItSettlesAndBeforeItIsTooOld(t *testing.T) {
	t.Parallel()
	begin := time.Unix(1000, 0)
	var b burst
	if !b.due().IsZero() {
		t.Error("nothing is due of nothing")
	}
	for i := range 17 {
		b.add(death{at: begin, told: begin.Add(time.Duration(i) * 600 * time.Millisecond)})
		if i == 0 && !b.due().Equal(begin.Add(burstSettles)) {
			t.Errorf("due at %v", b.due())
		}
	}
	if !b.due().Equal(begin.Add(burstTime)) {
		t.Errorf("due at %v", b.due())
	}
}

func TestCommon_SaysWhatTheDeathsShare(t *testing.T) {
	t.Parallel()
	gone := death{harness: "codex", exit: Exit{Known: true, Signal: 1}}
	lost := death{harness: "codex"}
	ended := death{harness: "claude", exit: Exit{Known: true, Code: 7}, serverUp: true}
	for want, deaths := range map[string][]death{
		"all: the tmux servers are gone; all: ended by signal 1; all: harness codex":                                   {gone, gone},
		"all: the tmux servers are gone; 1: ended by signal 1; 1: nothing recorded how they ended; all: harness codex": {gone, lost},
	} {
		if got := common(deaths); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := common([]death{gone, ended}); !strings.Contains(got, "exit code 7") || !strings.Contains(got, "live on") {
		t.Error(got)
	}
	if d := massDeath([]death{{at: time.Unix(6, 0)}, {at: time.Unix(7, 0)}, {at: time.Unix(5, 0)}}); d.Sessions != 3 || d.Within != 2*time.Second {
		t.Errorf("%+v", d)
	}
}

func TestTell_AnEndThatWasOrderedIsNoAlarm(t *testing.T) {
	t.Parallel()
	h := New(Config{}, Deps{Now: time.Now})
	for i, target := range []string{"a", "b", "c"} {
		h.tell(seenAs(target, session.Live, 1))
		if target == "b" {
			h.snapshot.act(target)() // as a Terminate does
		}
		h.tell(seenAs(target, session.Dead, 2))
		if n := len(h.watcher.burst.deaths); n != []int{1, 1, 2}[i] {
			t.Errorf("after %s: %d deaths", target, n)
		}
	}
}
