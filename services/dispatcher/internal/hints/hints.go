// Package hints passes on of which work items something changed at their session, to however many follow. A hint tells where it is worth
// while to look, and not what is there: it may be lost, and may come for nothing.
//
// It knows nothing of where the hints come from, nor of who follows.
package hints

import (
	"context"
	"sync"
)

// most is how many work items wait for one follower; with one more they become the hint that it may be any.
const most = 1000

// Any is the hint that something may have changed at any session.
const Any = ""

// Hub passes hints on. It is safe for use by many goroutines.
type Hub struct {
	mu        sync.Mutex
	followers map[*Follower]bool
}

// New returns a hub that nobody follows.
func New() *Hub { return &Hub{followers: map[*Follower]bool{}} }

// Tell gives a work item, or Any, to everybody who follows. It does not wait for them.
func (h *Hub) Tell(workItem string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for f := range h.followers {
		f.add(workItem)
	}
}

// Follow returns a follower of the hints from now on, of which the first is Any. Whoever follows closes it.
func (h *Hub) Follow() *Follower {
	f := &Follower{hub: h, waits: map[string]bool{}, more: make(chan struct{}, 1)}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.followers[f] = true
	f.add(Any)
	return f
}

// Follower gets hints: one for each work item, however often it was told before the hint was read.
type Follower struct {
	hub   *Hub
	order []string
	waits map[string]bool
	more  chan struct{}
}

// add queues a hint. The hub's lock is held.
func (f *Follower) add(workItem string) {
	if f.waits[Any] || f.waits[workItem] {
		return
	}
	if workItem == Any || len(f.order) >= most {
		workItem, f.order = Any, nil
		clear(f.waits)
	}
	f.order, f.waits[workItem] = append(f.order, workItem), true
	select {
	case f.more <- struct{}{}:
	default:
	}
}

// Next waits for the next hint. The error is the context's.
func (f *Follower) Next(ctx context.Context) (workItem string, err error) {
	for {
		if workItem, ok := f.take(); ok {
			return workItem, nil
		}
		select {
		case <-f.more:
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}

func (f *Follower) take() (workItem string, ok bool) {
	f.hub.mu.Lock()
	defer f.hub.mu.Unlock()
	if len(f.order) == 0 {
		return "", false
	}
	workItem, f.order = f.order[0], f.order[1:]
	delete(f.waits, workItem)
	return workItem, true
}

// Close ends it.
func (f *Follower) Close() {
	f.hub.mu.Lock()
	defer f.hub.mu.Unlock()
	delete(f.hub.followers, f)
}
