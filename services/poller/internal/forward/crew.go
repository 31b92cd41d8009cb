package forward

import (
	"context"
	"sync"
	"time"
)

// crew is the workers of one run.
type crew struct {
	// freed gets a value when a worker becomes free.
	freed chan struct{}

	ctx    context.Context // of the work; it outlives the order to stop
	cancel context.CancelFunc
	wait   sync.WaitGroup
	mu     sync.Mutex
	count  int
}

func (f *Forwarder) newCrew(ctx context.Context) *crew {
	c := &crew{freed: make(chan struct{}, 1)}
	c.ctx, c.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return c
}

func (c *crew) start(work func(context.Context)) {
	c.mu.Lock()
	c.count++
	c.mu.Unlock()
	c.wait.Go(func() {
		defer func() {
			c.mu.Lock()
			c.count--
			c.mu.Unlock()
			select {
			case c.freed <- struct{}{}:
			default:
			}
		}()
		work(c.ctx)
	})
}

func (c *crew) busy() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.count
}

func (c *crew) idle() bool { return c.busy() == 0 }

// stop waits for the work under way, and calls it off after the grace.
func (c *crew) stop(grace time.Duration) {
	timer := time.AfterFunc(grace, c.cancel)
	c.wait.Wait()
	timer.Stop()
	c.cancel()
}
