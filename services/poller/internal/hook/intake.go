package hook

import (
	"context"
	"sync"
	"time"

	"muxpost.dev/muxpost/core/fault"
)

const (
	// maxBatch and maxBatchBytes bound what one transaction writes down.
	maxBatch      = 64
	maxBatchBytes = 4 << 20
	// maxWriters is how many transactions write at once: while one is at its commit, another collects what came in meanwhile.
	maxWriters = 3
	// putTime bounds a transaction. GitHub waits for ten seconds.
	putTime = 6 * time.Second
)

// Intake writes messages down, those that come in at the same time in one transaction. It is safe for use by many goroutines.
type Intake struct {
	inbox Inbox
	// wake gets a value after each transaction that wrote something.
	wake chan<- struct{}

	mu      sync.Mutex
	pending []*entry
	writers int
}

// entry is a message that somebody waits for.
type entry struct {
	arrival Arrival
	known   bool
	err     error
	done    chan struct{}
}

// NewIntake returns an intake. wake may be nil.
func NewIntake(inbox Inbox, wake chan<- struct{}) *Intake { return &Intake{inbox: inbox, wake: wake} }

// Put returns once the message is there for good, and reports whether it was there before. After an error it may be there all the same.
func (i *Intake) Put(ctx context.Context, a Arrival) (known bool, err error) {
	e := &entry{arrival: a, done: make(chan struct{})}
	i.mu.Lock()
	i.pending = append(i.pending, e)
	if i.writers < maxWriters {
		i.writers++
		go i.write()
	}
	i.mu.Unlock()
	select {
	case <-e.done:
		return e.known, e.err
	case <-ctx.Done():
		return false, fault.Wrap(fault.Unavailable, fault.ReasonDeadline, "nobody waits for the message to be written down any more", ctx.Err())
	}
}

// write writes until nothing is left.
func (i *Intake) write() {
	for {
		batch := i.take()
		if batch == nil {
			return
		}
		i.put(batch)
	}
}

// take returns the next batch, and ends this writer where there is none. A message that is sent twice at once is in one batch once: the
// second has its turn with the next, and is known by then.
func (i *Intake) take() []*entry {
	i.mu.Lock()
	defer i.mu.Unlock()
	var batch, left []*entry
	size, seen := 0, map[[2]string]bool{}
	for _, e := range i.pending {
		key := [2]string{e.arrival.Source, e.arrival.GUID}
		full := len(batch) == maxBatch || len(batch) > 0 && size+len(e.arrival.Payload) > maxBatchBytes
		if full || seen[key] {
			left = append(left, e)
			continue
		}
		seen[key] = true
		size += len(e.arrival.Payload)
		batch = append(batch, e)
	}
	i.pending = left
	if batch == nil {
		i.writers--
	}
	return batch
}

func (i *Intake) put(batch []*entry) {
	arrivals := make([]Arrival, len(batch))
	for n, e := range batch {
		arrivals[n] = e.arrival
	}
	ctx, cancel := context.WithTimeout(context.Background(), putTime)
	defer cancel()
	known, err := i.inbox.Put(ctx, arrivals)
	for n, e := range batch {
		if e.err = err; err == nil {
			e.known = known[n]
		}
		close(e.done)
	}
	if err != nil || i.wake == nil {
		return
	}
	select {
	case i.wake <- struct{}{}:
	default:
	}
}
