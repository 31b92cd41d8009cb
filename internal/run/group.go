package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// DefaultStopTimeout is how long components have to stop.
const DefaultStopTimeout = 10 * time.Second

// Group runs the components of a program together. The zero value is ready to use.
type Group struct {
	// StopTimeout bounds how long Run waits for components once their context has ended; DefaultStopTimeout when 0.
	StopTimeout time.Duration

	components []component
}

type component struct {
	name string
	run  func(context.Context) error
}

// Add adds a component. Its function runs until its context ends; it may return nil earlier when its work is done. It must
// be called before Run.
func (g *Group) Add(name string, run func(context.Context) error) {
	g.components = append(g.components, component{name, run})
}

// Run runs all components, tells the service manager that they run, and goes on until ctx ends or one of them fails; then it ends the
// context of all and waits for them, at most StopTimeout. It returns the first failure, with the component's name before it; an error that
// names the components that did not stop; or nil. The program must end after Run: a component that did not stop is still running.
func (g *Group) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := state{running: make([]string, 0, len(g.components))}
	done := make(chan struct{})
	var wait sync.WaitGroup
	for _, c := range g.components {
		s.running = append(s.running, c.name)
	}
	for _, c := range g.components {
		wait.Go(func() {
			err := guard(func() error { return c.run(ctx) })
			s.ended(c.name, err, ctx.Err() != nil)
			if err != nil {
				cancel()
			}
		})
	}
	go func() {
		wait.Wait()
		close(done)
	}()
	notify("READY=1")
	select {
	case <-done:
		return s.result()
	case <-ctx.Done():
	}
	notify("STOPPING=1")
	timeout := cmp.Or(g.StopTimeout, DefaultStopTimeout)
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-done:
		return s.result()
	case <-timer.C:
		return errors.Join(s.result(), fmt.Errorf("still running %v after being told to stop: %s", timeout, s.names()))
	}
}

// state is what is known of the components.
type state struct {
	mu      sync.Mutex
	running []string
	first   error
}

// ended records a component's end. That it was cancelled is no failure once it was told to stop.
func (s *state) ended(name string, err error, told bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.running, name); i >= 0 {
		s.running = slices.Delete(s.running, i, i+1)
	}
	if err == nil || s.first != nil || told && errors.Is(err, context.Canceled) {
		return
	}
	s.first = fmt.Errorf("%s: %w", name, err)
}

func (s *state) result() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.first
}

func (s *state) names() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.running, ", ")
}
