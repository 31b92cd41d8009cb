package main

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/services/tmuxd/internal/host"
)

// slowPaste is the rig's tmux, with a paste that takes until the gate opens.
type slowPaste struct {
	host.Tmux
	begun, open chan struct{}
}

func (g *slowPaste) Paste(ctx context.Context, target string, guard host.Guard, p host.Text) (host.Ruling, error) {
	select {
	case g.begun <- struct{}{}:
	default:
	}
	<-g.open
	return g.Tmux.Paste(ctx, target, guard, p)
}

func TestPaste_OnlySoManyWaitForTheirTurn(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	conversation := r.started("", "").Conversation
	r.ready()
	g := &slowPaste{Tmux: r.Tmux, begun: make(chan struct{}, 1), open: make(chan struct{})}
	r.Tmux = g
	var all sync.WaitGroup
	all.Go(func() { r.paste(d1, "hello there") })
	<-g.begun
	// One is at work, and 64 wait: one of those below may find a place taken that the question after them holds for a moment.
	const waiting = 64
	ctx, token := r.ctx(), r.token()
	for range waiting {
		all.Go(func() {
			for {
				got, err := r.Spawn(ctx, host.SpawnRequest{Item: r.item, Harness: "fakeagent", Token: token})
				if errors.Is(err, fault.Throttled) && ctx.Err() == nil {
					continue
				}
				if err != nil || got.Outcome != host.SpawnOccupied {
					t.Errorf("who waits is not served: %+v, %v", got, err)
				}
				return
			}
		})
	}
	one := func() error {
		_, err := r.Paste(r.ctxFor(20*time.Millisecond), host.PasteRequest{Item: r.item, DeliveryID: d2, Text: "one more", Token: token})
		return err
	}
	var err error
	r.until("one more is sent away", func() bool { err = one(); return errors.Is(err, fault.Throttled) })
	if f := new(fault.Error); !errors.As(err, &f) || f.Remedy == "" || f.RetryAfter < time.Second {
		t.Errorf("%+v", err)
	}
	close(g.open)
	all.Wait()
	r.took(conversation, typed(d1, "hello there"))
	// There is room again, once the turn is over.
	r.until("it goes in", func() bool { return r.goesIn(d2, "one more") })
	r.took(conversation, typed(d1, "hello there"), typed(d2, "one more"))
}
