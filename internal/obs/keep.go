package obs

import (
	"context"
	"sync"
	"time"
)

const (
	// keepTime is how old figures may be: two who collect at the same time cost one question.
	keepTime = 10 * time.Second
	// readTime bounds the question.
	readTime = 2 * time.Second
)

// Kept are figures that cost a question to somebody else.
type Kept[T any] struct {
	read func(context.Context) (T, error)

	mu     sync.Mutex
	at     time.Time
	latest T
	ok     bool
}

// Keep returns figures that are asked for with read, at most once in ten seconds, and only if somebody collects them.
func Keep[T any](read func(context.Context) (T, error)) *Kept[T] { return &Kept[T]{read: read} }

// Read returns the figures; false while nobody answers for them.
func (k *Kept[T]) Read(ctx context.Context) (T, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.at.IsZero() && time.Since(k.at) < keepTime {
		return k.latest, k.ok
	}
	ctx, cancel := context.WithTimeout(Untraced(ctx), readTime)
	defer cancel()
	latest, err := k.read(ctx)
	k.latest, k.ok, k.at = latest, err == nil, time.Now()
	return k.latest, k.ok
}
