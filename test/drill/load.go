package drill

import (
	"context"
	"sync"
	"time"

	pollerv1 "muxpost.dev/muxpost/proto/gen/muxpost/poller/v1"
)

// told is something that was told, and when that was certain.
type told struct {
	Telling
	// At is when it was begun to be told, and Done when it was taken.
	At, Done time.Time
}

// load tells the agents things: upstream at the step, by hand in the order of the item, each until a poller has taken it.
type load struct {
	fleet *fleet
	queue []chan Telling

	mu    sync.Mutex
	all   []told
	group sync.WaitGroup
}

func newLoad(f *fleet) *load {
	l := &load{fleet: f}
	for range f.Items {
		queue := make(chan Telling, f.Steps)
		l.queue = append(l.queue, queue)
		l.group.Go(func() {
			for t := range queue {
				l.send(t)
			}
		})
	}
	return l
}

// tell tells one thing. Only what the drill's own server does not take is an error.
func (l *load) tell(t Telling) error {
	if t.How == byHand {
		l.queue[t.Item] <- t
		return nil
	}
	issue := map[string]any{"number": t.Item + 1, "comments": []any{map[string]any{"author": author, "body": t.Text}}}
	if t.How != byComment {
		review := map[string]any{"author": author, "body": t.Text}
		if t.How == byInline {
			review = map[string]any{"author": author, "comments": []any{map[string]any{"body": t.Text, "path": "main.go", "line": 1 + t.Step%9}}}
		}
		issue = map[string]any{"number": t.Item + 1 + l.fleet.Items, "pull": map[string]any{"reviews": []any{review}}}
	}
	at := time.Now()
	err := l.fleet.control("seed", map[string]any{"repos": []any{map[string]any{"owner": owner, "name": repo, "issues": []any{issue}}}})
	if err == nil {
		l.note(told{t, at, time.Now()})
	}
	return err
}

func (l *load) note(t told) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, t)
}

// send submits a message until one of the pollers has taken it: one that was taken counts, whether the answer came or not.
func (l *load) send(t Telling) {
	request := &pollerv1.SubmitRequest{WorkItem: itemName(t.Item), Text: t.Text, IdempotencyKey: Word(t.Item, t.Step)}
	at := time.Now()
	for try := t.Step; ; try++ {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		_, err := l.fleet.submit[try%replicaCount].Submit(ctx, request)
		cancel()
		if err == nil {
			l.note(told{t, at, time.Now()})
			return
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// flush waits until everything that is sent by hand was taken, and returns all that was told.
func (l *load) flush() []told {
	for _, q := range l.queue {
		close(q)
	}
	l.group.Wait()
	return l.all
}
