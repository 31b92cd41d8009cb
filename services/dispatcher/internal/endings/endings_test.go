package endings

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"muxpost.dev/muxpost/services/dispatcher/internal/hints"
)

// carrier has one order, which is carried out once its host is there.
type carrier struct {
	mu     sync.Mutex
	asked  []string
	there  bool
	broken bool
}

func (c *carrier) CarryOut(_ context.Context, workItem string, over func(string)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = append(c.asked, workItem)
	if c.broken {
		return errors.New("no database")
	}
	if c.there && (workItem == "" || workItem == "one") {
		c.there = false
		over("one")
	}
	return nil
}

func (c *carrier) took() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.asked)
}

func TestRun_LooksOnEachHintAndEveryMinuteAndTellsOfWhatIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub, c := hints.New(), &carrier{}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- Run(ctx, c, hub, slog.New(slog.DiscardHandler)) }()
		synctest.Wait()
		follower := hub.Follow()
		defer follower.Close()
		if item, err := follower.Next(ctx); err != nil || item != hints.Any {
			t.Errorf("%q, %v", item, err)
		}
		c.mu.Lock()
		c.broken = true
		c.mu.Unlock()
		hub.Tell("two")
		synctest.Wait()
		c.mu.Lock()
		c.broken, c.there = false, true
		c.mu.Unlock()
		time.Sleep(every + time.Second)
		if got := c.took(); !slices.Equal(got, []string{"", "two", "", "one"}) {
			t.Errorf("looked at %q", got)
		}
		for _, want := range []string{"two", "one"} {
			if item, err := follower.Next(ctx); err != nil || item != want {
				t.Errorf("told %q, %v", item, err)
			}
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
