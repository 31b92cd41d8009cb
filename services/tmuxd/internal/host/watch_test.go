package host

import (
	"testing"
	"time"

	"muxpost.dev/muxpost/core/session"
)

// A session whose agent ended and that is live all the same (something of it lives on without its wrapper) can only be looked at: the sweep does.
func TestEnded_WhatHasEndedIsNotTakenForWatched(t *testing.T) {
	t.Parallel()
	h := New(Config{}, Deps{Now: time.Now})
	stop := func() {}
	one := &watched{stamp: "s1", server: process{Life{1, 1}, stop}, agent: process{Life{2, 2}, stop}}
	h.watcher.of["t"] = one
	h.feed.tell(seenAs("t", session.Live, 1))
	if !h.lives("t") {
		t.Fatal("both are watched")
	}
	h.ended("t", "s0", one, &one.agent, Life{3, 3}) // the news of an earlier one
	if !h.lives("t") {
		t.Error("the end of another process counts")
	}
	h.ended("t", "s1", one, &one.agent, Life{2, 2})
	if h.lives("t") || one.whole(session.Live) || !one.whole(session.Dead) {
		t.Error("the agent has ended")
	}
	h.ended("t", "s1", one, &one.server, Life{1, 1})
	if one.whole(session.Dead) {
		t.Error("the server has ended")
	}
	if got := h.feed.among(session.Unknown); len(got) != 1 {
		t.Errorf("in doubt: %q", got)
	}
}

// watches is a Processes that tells of nothing.
type watches struct{ begun []int }

func (w *watches) Watch(pid int, _ uint64, _ func()) (func(), error) {
	w.begun = append(w.begun, pid)
	return func() {}, nil
}

// A look can see a process alive that is gone by the time at which it is to be watched. The news of its end must still come: nothing else has the
// session looked at again.
func TestAwait_TheNewsOfAnEndIsNotCalledOff(t *testing.T) {
	t.Parallel()
	of := &watches{}
	h := New(Config{}, Deps{Now: time.Now, Processes: of})
	stopped := false
	p := process{Life{2, 2}, func() { stopped = true }}
	if h.await(&p, Life{}, nil); stopped || p.life != (Life{2, 2}) || p.stop == nil {
		t.Errorf("stopped %v, left with %+v", stopped, p.life)
	}
	if h.await(&p, Life{3, 3}, nil); !stopped || p.life != (Life{3, 3}) || len(of.begun) != 1 {
		t.Errorf("stopped %v, watching %+v, begun %v", stopped, p.life, of.begun)
	}
	p.stop = nil // it could not be watched
	if h.await(&p, Life{}, nil); p.life != (Life{}) {
		t.Errorf("left with %+v, which nobody will hear of", p.life)
	}
}
