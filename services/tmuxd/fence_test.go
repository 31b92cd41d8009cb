package main

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/lease"
	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/core/workitem"
	"muxpost.dev/muxpost/services/tmuxd/internal/host"
)

// floor raises the host's floor.
func (r *rig) floor(floor int64) host.Fence {
	r.t.Helper()
	f, err := r.RaiseFence(floor)
	if err != nil {
		r.t.Fatal(err)
	}
	return f
}

// belowFloor expects a paste and a spawn under a token to be refused by the host's floor.
func (r *rig) belowFloor(item workitem.Ref, token int64) {
	r.t.Helper()
	_, paste := r.Paste(r.ctx(), host.PasteRequest{Item: item, DeliveryID: d1, Text: "hello there", Token: token})
	_, spawn := r.Spawn(r.ctx(), host.SpawnRequest{Item: item, Harness: "fakeagent", DeliveryID: d1, Text: "hello there", Token: token})
	for act, err := range map[string]error{"paste": paste, "spawn": spawn} {
		if !errors.Is(err, fault.Fenced) || fault.ReasonOf(err) != fault.ReasonOlderToken || !strings.Contains(err.Error(), "floor of this host") {
			r.t.Errorf("%s under %d at %s: %v", act, token, item, err)
		}
	}
}

func TestFence_AFloorRefusesOlderTokensAtEverySession(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	res := r.started("", "")
	r.ready()
	if f := r.floor(50); f != (host.Fence{Floor: 50, Highest: 50}) {
		t.Errorf("%+v", f)
	}
	never, err := workitem.Parse("github:octo/widget#8")
	if err != nil {
		t.Fatal(err)
	}
	r.belowFloor(r.item, 49)
	r.belowFloor(never, 49)
	if r.tmux.Dial(never.Target()) != session.NoServer {
		t.Error("a tmux server was started")
	}
	// What was refused is not remembered as seen, and the floor itself may act.
	if f := r.Fence(); f.Highest != 50 {
		t.Errorf("%+v", f)
	}
	got, err := r.Paste(r.ctx(), host.PasteRequest{Item: r.item, DeliveryID: d1, Text: "hello there", Token: 50})
	if err != nil || got.Verdict != host.Submitted {
		t.Errorf("%+v, %v", got, err)
	}
	r.took(res.Conversation, typed(d1, "hello there"))
}

func TestFence_AFloorNeverSinksAndOutlivesTmuxd(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.floor(50)
	if f := r.floor(30); f.Floor != 50 {
		t.Errorf("it sank: %+v", f)
	}
	for _, floor := range []int64{0, -1} {
		if _, err := r.RaiseFence(floor); !errors.Is(err, fault.Invalid) {
			t.Errorf("a floor of %d: %v", floor, err)
		}
	}
	r.restart()
	r.belowFloor(r.item, 49)
	if f := r.Fence(); f != (host.Fence{Floor: 50, Highest: 50}) {
		t.Errorf("%+v", f)
	}
}

// Without its files a host has forgotten what it saw. The floor that it is given again refuses all of it.
func TestFence_AFloorMakesUpForLostFiles(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.tokens = 40
	server := r.started("", "").Incarnation.Server.Pid
	r.ready()
	r.signal(server, syscall.SIGKILL)
	r.becomes(session.Absent)
	for _, file := range []string{"token.json", "floor.json", filepath.Join("sessions", r.item.Target()+".json")} {
		if err := os.Remove(filepath.Join(r.dir, "state", file)); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
	r.restart()
	if f := r.Fence(); f != (host.Fence{}) {
		t.Fatalf("it remembers %+v", f)
	}
	r.floor(42)
	r.belowFloor(r.item, 41)
	r.tokens = 41
	r.started(d1, "hello there")
}

// capturing has something happen before the screen is read, which a paste does after it was let in.
type capturing struct {
	host.Tmux
	before func()
}

func (c *capturing) Capture(ctx context.Context, target string, g host.Guard) (host.Screen, bool, error) {
	c.before()
	return c.Tmux.Capture(ctx, target, g)
}

// An act that was let in before the floor rose is brought to its end: half a delivery would be worse than one under a lease that still
// stands. The next one under its token is refused.
func TestFence_AnActUnderWayWhenTheFloorRisesIsFinished(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	res := r.started("", "")
	r.ready()
	r.Tmux = &capturing{Tmux: r.Tmux, before: sync.OnceFunc(func() { r.floor(50) })}
	got, err := r.Paste(r.ctx(), host.PasteRequest{Item: r.item, DeliveryID: d1, Text: "hello there", Token: 20})
	if err != nil || got.Verdict != host.Submitted || r.Fence().Floor != 50 {
		t.Errorf("%+v, %v under a floor of %d", got, err, r.Fence().Floor)
	}
	r.took(res.Conversation, typed(d1, "hello there"))
	r.belowFloor(r.item, 20)
}

func TestFence_AFloorThatCannotBeKeptIsNotTold(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	if err := os.MkdirAll(filepath.Join(r.dir, "state", "floor.json", "full"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := r.RaiseFence(50); !errors.Is(err, fault.Unavailable) || fault.ReasonOf(err) != fault.ReasonStorage {
		t.Errorf("%v", err)
	}
	if f := r.Fence(); f.Floor != 0 {
		t.Errorf("%+v", f)
	}
}

// A host that lost its own files is asked, when a dispatcher comes, for the highest token it knows; what its sessions have seen counts too, once
// one of them has refused an older one.
func TestFence_WhatASessionHasSeenIsKnownAgainAfterTheFilesAreLost(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.tokens = 1_795_000_000_000_000 // as a dispatcher's are: microseconds
	r.started("", "")
	seen := r.tokens
	r.tmux.Close()
	r.disk.Close()
	for _, name := range []string{"token.json", "floor.json"} {
		if err := os.Remove(filepath.Join(r.dir, "state", name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
	r.open()
	if f := r.Fence(); f.Highest != 0 {
		t.Fatalf("%+v", f)
	}
	if _, err := r.Paste(r.ctx(), host.PasteRequest{Item: r.item, DeliveryID: d1, Text: "hello there", Token: seen - 1}); !errors.Is(err, fault.Fenced) {
		t.Errorf("an older token: %v", err)
	}
	if f := r.Fence(); f.Highest != seen {
		t.Errorf("%+v, and %d was seen", f, seen)
	}
	r.ready()
	r.until("a newer one acts", func() bool { return r.goesIn(d1, "hello there") })
}

// An agent can write what it likes into the options of its own tmux server. It harms its own session with it, and no other.
func TestFence_ATokenThatWasNeverDrawnGoesNoFurther(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.started("", "")
	r.ready()
	seen := r.Fence().Highest
	r.person("set-option", "-p", "-t", "%0", "@mux_fence", "9223372036854775807")
	if _, err := r.Paste(r.ctx(), host.PasteRequest{Item: r.item, DeliveryID: d1, Text: "hello there", Token: seen}); !errors.Is(err, fault.Fenced) {
		t.Errorf("the session took it: %v", err)
	}
	for _, token := range []int64{lease.MaxToken + 1, math.MaxInt64} {
		if _, err := r.Paste(r.ctx(), host.PasteRequest{Item: r.item, DeliveryID: d1, Text: "hello there", Token: token}); !errors.Is(err, fault.Invalid) {
			t.Errorf("%d: %v", token, err)
		}
		if _, err := r.RaiseFence(token); !errors.Is(err, fault.Invalid) {
			t.Errorf("a floor of %d: %v", token, err)
		}
	}
	if f := r.Fence(); f.Highest != seen {
		t.Errorf("%+v, and %d was seen", f, seen)
	}
}
