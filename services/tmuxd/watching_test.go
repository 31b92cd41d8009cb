package main

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/core/workitem"
	"muxpost.dev/muxpost/services/tmuxd/internal/disk"
	"muxpost.dev/muxpost/services/tmuxd/internal/host"
	"muxpost.dev/muxpost/services/tmuxd/internal/notes"
	"muxpost.dev/muxpost/services/tmuxd/internal/pidfd"
	"muxpost.dev/muxpost/services/tmuxd/internal/tmux"
)

// longAgo is an age that a snapshot never has here: a reader that allows it is asked of tmux only when something changed.
const longAgo = time.Hour

// watching is a rig whose host watches its sessions, as a started tmuxd does.
type watching struct {
	*rig
	processes *pidfd.Watcher
	log       *syncBuffer
	// looks counts the questions that went to a server, and commands everything that did.
	looks, commands atomic.Int32
	// ended is called after the host heard of the end of a process, with its pid. An end may be heard of twice.
	ended atomic.Pointer[func(pid int)]
	stop  func()
}

// counted is a tracer that counts: each list that goes to a server, and each run of tmux, is a span.
type counted struct {
	noop.Tracer
	spans *atomic.Int32
}

func (c counted) Start(ctx context.Context, name string, opts ...trace.SpanStartOption) (context.Context, trace.Span) {
	c.spans.Add(1)
	return c.Tracer.Start(ctx, name, opts...)
}

// counting is the host's tmux, with a count of the looks.
type counting struct {
	host.Tmux
	looks *atomic.Int32
}

func (c counting) Observe(ctx context.Context, target string) (host.View, error) {
	c.looks.Add(1)
	return c.Tmux.Observe(ctx, target)
}

// Watch lets the test know when the host has heard of the end of a process.
func (w *watching) Watch(pid int, start uint64, ended func()) (func(), error) {
	return w.processes.Watch(pid, start, func() {
		ended()
		if f := w.ended.Load(); f != nil {
			(*f)(pid)
		}
	})
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// watched begins to watch, with what is on disk. sweep is how often the sweep comes.
func (r *rig) watched(sweep time.Duration) *watching {
	r.t.Helper()
	w := &watching{rig: r, log: &syncBuffer{}}
	var err error
	if w.processes, err = pidfd.New(); err != nil {
		r.t.Fatal(err)
	}
	r.tmux.Close()
	var h *host.Host
	if r.tmux, err = tmux.New(tmux.Config{Bin: "tmux", Dir: filepath.Join(r.dir, "state"), Tracer: counted{spans: &w.commands},
		Hint: func(target string) { h.Hint(target) }, Env: []string{"PATH=" + os.Getenv("PATH"), "TERM=xterm-256color"}}); err != nil {
		r.t.Fatal(err)
	}
	deps := r.Deps
	deps.Tmux, deps.Processes, deps.Logger = counting{r.tmux, &w.looks}, w, slog.New(slog.NewTextHandler(w.log, nil))
	h = host.New(host.Config{Roots: []string{filepath.Join(r.dir, "work")}, Width: 200, Height: 50, Capacity: r.capacity, Sweep: sweep}, deps)
	r.Host = h
	if err := h.Adopt(r.ctx()); err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	stopNotes, err := notes.Watch(r.disk.NotesDir(), func(name string) {
		if target, stamp, ok := disk.NoteOf(name); ok {
			h.Noted(target, stamp)
		}
	}, h.NotedAny)
	if err != nil {
		r.t.Fatal(err)
	}
	watched := make(chan error, 1)
	go func() { watched <- h.Watch(ctx) }()
	w.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-watched; err != nil {
			r.t.Error(err)
		}
		_ = w.processes.Close()
		if err := stopNotes(); err != nil {
			r.t.Error(err)
		}
	})
	r.t.Cleanup(w.stop)
	return w
}

// sleepers makes the harness a program that only waits: many of them cost little.
func (r *rig) sleepers() {
	r.t.Helper()
	r.entry.Binary, r.entry.Fresh, r.entry.Resume, r.entry.PromptArgs = "/bin/sleep", []string{"600"}, nil, nil
	r.entry.ConversationID, r.entry.Survival, r.entry.Transcript = "none", 1500*time.Millisecond, ""
	r.restart()
}

func itemNo(t testing.TB, n int) workitem.Ref {
	t.Helper()
	item, err := workitem.Parse(fmt.Sprintf("github:octo/widget#%d", n))
	if err != nil {
		t.Fatal(err)
	}
	return item
}

// startMany starts sessions for the items 1 to count, a few at a time.
func (r *rig) startMany(count int) {
	r.t.Helper()
	r.t.Cleanup(func() {
		for n := range count { // all at once: the rig ends them one after another
			m, known, err := r.disk.Recall(itemNo(r.t, n+1).Target())
			if err == nil && known && r.disk.ServerLives(m) == session.ProcessAlive {
				_ = syscall.Kill(m.Server.Pid, syscall.SIGTERM)
			}
		}
	})
	numbers := make(chan int)
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			for n := range numbers {
				res, err := r.Spawn(context.Background(), host.SpawnRequest{Item: itemNo(r.t, n), Harness: "fakeagent", Token: 1})
				if err != nil || res.Outcome != host.SpawnStarted {
					r.t.Errorf("%d: %+v, %v", n, res, err)
				}
			}
		})
	}
	for n := range count {
		numbers <- n + 1
	}
	close(numbers)
	wg.Wait()
}

// lately reads the item from what was seen lately, however long ago.
func (r *rig) lately(item workitem.Ref) (host.Status, time.Duration) {
	r.t.Helper()
	st, age, err := r.StateWithin(r.ctx(), item, longAgo)
	if err != nil {
		r.t.Fatal(err)
	}
	return st, age
}

// listed returns what is told of an item, without asking anybody.
func (r *rig) listed(item workitem.Ref) host.Summary {
	page, _ := r.List("", 1000)
	for _, s := range page {
		if s.Target == item.Target() {
			return s
		}
	}
	return host.Summary{}
}

// settled waits until the item is told in a state and is served from the snapshot.
func (w *watching) settled(item workitem.Ref, want session.State) {
	w.t.Helper()
	w.until("it is told as "+want.String()+" and served without a look", func() bool {
		before := w.looks.Load()
		st, _ := w.lately(item)
		again, age := w.lately(item)
		return st.State == want && again.State == want && age > 0 && w.looks.Load() == before && w.listed(item).State == want
	})
}
