package main

import (
	"errors"
	"reflect"
	"sync"
	"testing"

	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/services/tmuxd/internal/host"
)

// held is of how many targets a host holds something in memory, by where. Nothing else shows it. Nobody may be at work meanwhile.
func held(h *host.Host) map[string]int {
	of := reflect.ValueOf(h).Elem()
	return map[string]int{
		"turns": of.FieldByName("slots").Len(), "watched": of.FieldByName("watcher").Elem().FieldByName("of").Len(),
		"seen": of.FieldByName("snapshot").Elem().FieldByName("entries").Len(),
	}
}

// A session that was reaped is told as absent to whoever follows, and nothing is held of it any more.
func TestReap_WhatIsRemovedIsToldAndLeavesNothingInMemory(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.waiting()
	w := r.watched(0)
	var mu sync.Mutex
	heard := map[int]bool{}
	hears := func(pid int) { mu.Lock(); defer mu.Unlock(); heard[pid] = true }
	w.ended.Store(&hears)
	reaped, lives := itemNo(t, 7), itemNo(t, 8)
	if res, err := r.Spawn(r.ctx(), host.SpawnRequest{Item: lives, Harness: "fakeagent", Token: r.token()}); err != nil || res.Outcome != host.SpawnStarted {
		t.Fatalf("%+v, %v", res, err)
	}
	of := r.ended(reaped)
	enough := errors.New("enough")
	told := make(chan error, 1)
	go func() {
		told <- r.Follow(r.ctx(), "", func(s host.Step) error {
			if s.Session != nil && s.Session.Target == reaped.Target() && s.Session.State == session.Absent {
				return enough
			}
			return nil
		})
	}()
	r.Reap(r.ctx(), host.Retain{Age: forEver.Age, Count: 0})
	if err := <-told; !errors.Is(err, enough) {
		t.Fatalf("it is not told as absent: %v", err)
	}
	r.until("its processes are heard to have ended", func() bool { mu.Lock(); defer mu.Unlock(); return heard[of.Server.Pid] && heard[of.PanePid] })
	r.isNow(reaped, session.Absent)
	if s := r.listed(reaped); s.Target != "" {
		t.Errorf("it is listed: %+v", s)
	}
	w.stop()
	for what, n := range held(r.Host) {
		if n != 1 {
			t.Errorf("%s: %d, with one session", what, n)
		}
	}
}
