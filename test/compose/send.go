package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

const (
	// items is how many work items there are, each in a repository of its own, so that both hosts get some.
	items = 8
	// every is the time between two events of an item.
	every = 2 * time.Second
)

func item(i int) string { return fmt.Sprintf("github:octo/widget-%d#7", i) }

// word is what the n-th event of an item says, and nothing else does.
func word(i, n int) string { return fmt.Sprintf("(event %d of %d)", n, i) }

// senders send events, one after the other for each item, whatever happens to the stack.
type senders struct {
	s stack
	// quit ends the sending with the events under way, abandon without them.
	quit, abandon context.CancelFunc
	done          sync.WaitGroup

	mu   sync.Mutex
	sent [items]int
}

func startSenders(ctx context.Context, s stack) *senders {
	ctx, abandon := context.WithCancel(ctx)
	sending, quit := context.WithCancel(ctx)
	out := &senders{s: s, quit: quit, abandon: abandon}
	for i := range items {
		out.done.Go(func() {
			for n := 0; sending.Err() == nil; n++ {
				// One that may or may not have been taken is sent again with its key, until it is known.
				for ctx.Err() == nil {
					if _, err := s.muxpost(ctx, "send", "--key", fmt.Sprintf("key-%d-%d", i, n), item(i), word(i, n)); err == nil {
						break
					}
					_ = pause(ctx, time.Second)
				}
				out.mu.Lock()
				out.sent[i] = n + 1
				out.mu.Unlock()
				_ = pause(sending, every)
			}
		})
	}
	return out
}

// stop ends the sending and returns how many events each item was sent.
func (s *senders) stop() [items]int {
	s.quit()
	s.done.Wait()
	return s.sent
}

// reachEverybody waits until each item on the hosts that which names (nil for all) has got an event that was sent after now.
func (s *senders) reachEverybody(ctx context.Context, which func(host string) bool) error {
	s.mu.Lock()
	want := s.sent
	s.mu.Unlock()
	for began := time.Now(); ; {
		seen, err := read(ctx, s.s)
		missing := 0
		for i := range items {
			arrived := seen.last(i) >= want[i]
			if which != nil {
				host := seen.host(i)
				arrived = arrived || !which(host)
			}
			if !arrived {
				missing++
			}
		}
		switch {
		case err == nil && missing == 0:
			return nil
		case time.Since(began) > patience:
			return errors.Join(err, fmt.Errorf("after %v, %d items have not got what was sent to them", patience, missing))
		}
		if err := pause(ctx, 500*time.Millisecond); err != nil {
			return err
		}
	}
}
