package hosts

import (
	"sync"
	"time"
)

const (
	// tolerated is how many calls in a row may get no answer before the next ones are kept away.
	tolerated = 3
	// firstPause is how long they are kept away, doubled each time that the host is silent again, up to longestPause.
	firstPause   = time.Second
	longestPause = 30 * time.Second
)

// breaker keeps calls away from a host that does not answer, so that nobody waits for it again and again: each item of the host would otherwise
// hold whoever asks for seconds. After a pause one call goes through to see.
type breaker struct {
	now func() time.Time

	mu     sync.Mutex
	silent int
	pause  time.Duration
	until  time.Time
	trying bool
}

// enter lets a call through, or says for how long it is kept away. Whoever is let through leaves.
func (b *breaker) enter() (wait time.Duration, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.silent < tolerated {
		return 0, true
	}
	if wait = b.until.Sub(b.now()); wait > 0 || b.trying {
		return max(wait, 0), false
	}
	b.trying = true
	return 0, true
}

// leave says whether the call was answered. It returns true when further ones are kept away because of it, and were not before.
func (b *breaker) leave(answered bool) (opened bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.trying = false
	if answered {
		b.silent, b.pause, b.until = 0, 0, time.Time{}
		return false
	}
	if b.silent++; b.silent >= tolerated {
		b.pause = min(max(2*b.pause, firstPause), longestPause)
		b.until = b.now().Add(b.pause)
	}
	return b.silent == tolerated
}

// open says until when calls are kept away; zero when they are not.
func (b *breaker) open() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.silent < tolerated {
		return time.Time{}
	}
	return b.until
}
