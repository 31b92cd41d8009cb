package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/core/workitem"
	tmuxdv1 "muxpost.dev/muxpost/proto/gen/muxpost/tmuxd/v1"
	"muxpost.dev/muxpost/services/tmuxd/internal/host"
)

// crowded is a host for a number of agents, which only wait.
func crowded(t *testing.T, capacity int) (*rig, *watching) {
	t.Helper()
	r := newRig(t, nil)
	r.capacity = capacity
	r.waiting()
	return r, r.watched(0)
}

func (r *rig) start(n int) (host.SpawnResult, error) {
	r.t.Helper()
	return r.Spawn(r.ctx(), host.SpawnRequest{Item: itemNo(r.t, n), Harness: "fakeagent", Token: r.token()})
}

func (r *rig) starts(n int) host.Incarnation {
	r.t.Helper()
	res, err := r.start(n)
	if err != nil || res.Outcome != host.SpawnStarted {
		r.t.Fatalf("%d: %+v, %v", n, res, err)
	}
	return res.Incarnation
}

// full expects that there is no place for an item, and that nothing was touched for it.
func (r *rig) full(n, living int) {
	r.t.Helper()
	target := itemNo(r.t, n).Target()
	before, state := r.files(target), r.stateOf(itemNo(r.t, n))
	res, err := r.start(n)
	if !errors.Is(err, fault.Throttled) || fault.ReasonOf(err) != fault.ReasonNoCapacity {
		r.t.Fatalf("%+v, %v", res, err)
	}
	if f := new(fault.Error); !errors.As(err, &f) || !strings.Contains(f.Message, fmt.Sprintf("%d agents live", living)) ||
		!strings.Contains(f.Remedy, "tmuxd.capacity") || f.RetryAfter < time.Second {
		r.t.Errorf("%+v", err)
	}
	// The token that it was asked for under is remembered.
	if after := r.files(target); !slices.Equal(after, before) && !slices.Equal(after, append(before, "sessions/"+target+".json")) {
		r.t.Errorf("files were %q and are %q", before, after)
	}
	if now := r.stateOf(itemNo(r.t, n)); now.State != state.State || now.Incarnation != state.Incarnation {
		r.t.Errorf("it was %+v and is %+v", state, now)
	}
}

func (r *rig) stateOf(item workitem.Ref) host.Status {
	r.t.Helper()
	st, err := r.State(r.ctx(), item, "")
	if err != nil {
		r.t.Fatal(err)
	}
	return st
}

func (r *rig) ends(n int, of host.Incarnation) {
	r.t.Helper()
	end, err := r.Terminate(r.ctx(), host.TerminateRequest{Item: itemNo(r.t, n), Stamp: of.Stamp, Token: r.token(), Grace: time.Minute})
	if err != nil || end.Outcome != host.EndDone {
		r.t.Fatalf("%+v, %v", end, err)
	}
	r.isNow(itemNo(r.t, n), session.Dead)
}

func TestCapacity_OneMoreAgentThanTheHostMayHaveWaits(t *testing.T) {
	t.Parallel()
	r, w := crowded(t, 2)
	first, second := r.starts(1), r.starts(2)
	r.full(3, 2)
	if res, err := r.start(2); err != nil || res.Outcome != host.SpawnOccupied || res.Occupant != host.OccupantLive {
		t.Errorf("who lives is not told to wait: %+v, %v", res, err)
	}
	// The place of an agent that has just died is free at once, and its own respawn needs one like any other's.
	r.signal(first.PanePid, syscall.SIGKILL)
	r.until("its place is free", func() bool { living, _ := r.Living(); return living == 1 })
	third := r.starts(3)
	r.isNow(itemNo(t, 1), session.Dead)
	r.full(1, 2)
	r.ends(3, third)
	r.starts(1)
	// An agent whose tmux server does not answer lives, and so does one that an earlier tmuxd started.
	r.signal(second.Server.Pid, syscall.SIGSTOP)
	r.isNow(itemNo(t, 2), session.Unknown)
	r.full(3, 2)
	r.signal(second.Server.Pid, syscall.SIGCONT)
	w.stop()
	r.restart()
	r.watched(0)
	r.full(3, 2)
}

func TestCapacity_InfoSaysWhenItIsUsedUp(t *testing.T) {
	t.Parallel()
	r, _ := crowded(t, 2)
	client := r.overTheWire()
	says := func() bool {
		info, err := client.Info(r.ctx(), &tmuxdv1.InfoRequest{})
		if err != nil {
			t.Fatal(err)
		}
		living, _ := r.Living()
		return int(info.GetSessions().GetLive()) == living &&
			slices.ContainsFunc(info.GetWarnings(), func(s string) bool {
				return strings.Contains(s, "2 agents live") && strings.Contains(s, "tmuxd.capacity")
			})
	}
	first := r.starts(1)
	r.until("one is told as live", func() bool { return r.listed(itemNo(t, 1)).State == session.Live })
	if says() {
		t.Error("a warning, and there is room")
	}
	r.starts(2)
	r.until("both counts are told, and that there is no room", says)
	r.ends(1, first)
	r.until("there is room", func() bool { return !says() })
}

func TestCapacity_NoTwoStartsTakeTheLastPlace(t *testing.T) {
	t.Parallel()
	const capacity, starts = 3, 12
	r, _ := crowded(t, capacity)
	var mu sync.Mutex
	started, full := 0, 0
	var all sync.WaitGroup
	for n := range starts {
		all.Go(func() {
			res, err := r.Spawn(r.ctxFor(time.Minute), host.SpawnRequest{Item: itemNo(t, n+1), Harness: "fakeagent", Token: 1})
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil && res.Outcome == host.SpawnStarted:
				started++
			case fault.ReasonOf(err) == fault.ReasonNoCapacity:
				full++
			default:
				t.Errorf("%+v, %v", res, err)
			}
		})
	}
	all.Wait()
	if started != capacity || full != starts-capacity {
		t.Errorf("%d were started, and %d were told to wait", started, full)
	}
}
