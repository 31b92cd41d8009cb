package tmux

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"muxpost.dev/muxpost/internal/launch"
	"muxpost.dev/muxpost/services/tmuxd/internal/host"
)

const (
	// idleTime is how long a connection is kept that nobody uses, and idleTick how often that is looked at.
	idleTime = 10 * time.Minute
	idleTick = time.Minute
	// leaveTime is how long the end waits for servers to see their clients leave; one that is stopped does not.
	leaveTime = 300 * time.Millisecond
	// inline is the longest text that travels in a command: tmux parses those slowly, and reads a file at once.
	inline = 1024
	// textPattern names the files of texts on their way.
	textPattern = ".text.*"
)

// lines are the connections, by target.
type lines struct {
	mu     sync.Mutex
	of     map[string]*line
	closed bool
	// sweeping is true while a goroutine looks for idle ones.
	sweeping bool
}

// line is the way to one server.
type line struct {
	// turn holds one token: whoever has it may let a client in, or make a session. Both at once can end the server.
	turn chan struct{}

	mu   sync.Mutex
	conn *conn
	// anyone is true when the last try to attach to the target's own session found none: a person may have renamed it.
	anyone bool
}

// standing returns the connection, if a request has a chance over it.
func (l *line) standing() (c *conn, anyone bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn == nil || !l.conn.usable() {
		return nil, false
	}
	return l.conn, l.anyone
}

// take waits for the turn.
func (l *line) take(ctx context.Context) error {
	select {
	case <-l.turn:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w within its deadline", host.ErrNoAnswer)
	}
}

func (l *line) give() { l.turn <- struct{}{} }

func (l *lines) get(target string) *line {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.of == nil {
		l.of = map[string]*line{}
	}
	if l.of[target] == nil {
		l.of[target] = &line{turn: make(chan struct{}, 1)}
		l.of[target].give()
	}
	return l.of[target]
}

// Standing returns how many control clients stand.
func (c *Client) Standing() (n int) {
	c.lines.mu.Lock()
	defer c.lines.mu.Unlock()
	for _, l := range c.lines.of {
		if conn, _ := l.standing(); conn != nil {
			n++
		}
	}
	return n
}

// ask runs one command list on a server that must be there already, and returns what it printed. nonce is in the line that ends the list.
func (c *Client) ask(ctx context.Context, name, target, nonce, list string) (reply, error) {
	ctx, span := c.tracer.Start(ctx, "tmux."+name, trace.WithSpanKind(trace.SpanKindClient))
	defer span.End()
	begun := time.Now()
	r, err := c.over(ctx, target, nonce, list)
	if err != nil {
		c.meters.Commands.Record(ctx, time.Since(begun), name, "no_answer")
		span.SetStatus(codes.Error, "no answer")
		return reply{}, err
	}
	c.meters.Commands.Record(ctx, time.Since(begun), name, "answered")
	span.SetAttributes(attribute.Int("tmux.lines", len(r.lines)))
	return r, nil
}

// look is ask for lists that change nothing: one that a lost connection took with it is asked again.
func (c *Client) look(ctx context.Context, name, target, nonce, list string) (reply, error) {
	r, err := c.ask(ctx, name, target, nonce, list)
	if errors.Is(err, errLost) && ctx.Err() == nil {
		r, err = c.ask(ctx, name, target, nonce, list)
	}
	return r, err
}

func (c *Client) over(ctx context.Context, target, nonce, list string) (reply, error) {
	for {
		r, again, err := c.once(ctx, target, nonce, list)
		if !again {
			return r, err
		}
	}
}

// once sends a list. again is true when the connection had attached to nobody, so that the list was not read, and another try is worth it.
func (c *Client) once(ctx context.Context, target, nonce, list string) (r reply, again bool, err error) {
	l := c.lines.get(target)
	conn, anyone := l.standing()
	if conn == nil {
		if conn, anyone, err = c.open(ctx, l, target); err != nil {
			return reply{}, false, err
		}
	}
	req, err := conn.send(list, nonce)
	if err == nil {
		r, err = req.wait(ctx)
	}
	if errors.Is(err, errNotAttached) {
		l.mu.Lock()
		l.anyone = !anyone
		l.mu.Unlock()
		return reply{}, !anyone, err
	}
	return r, false, err
}

// open makes a connection, unless somebody else just did.
//
// While a control client is on its way in, tmux before 3.7 takes it for one that can be told things, and crashes if it has to tell it
// something: that another client left, that a session was made, renamed or ended. So one comes only when the one before has left in
// the eyes of the server, never while a session is made, and only when the server has just answered: then it is in within microseconds. What
// a person does in just those is left, and cannot be helped.
func (c *Client) open(ctx context.Context, l *line, target string) (conn *conn, anyone bool, err error) {
	if err := l.take(ctx); err != nil {
		return nil, false, err
	}
	defer l.give()
	if conn, anyone = l.standing(); conn != nil {
		return conn, anyone, nil
	}
	if err := l.vacate(ctx); err != nil {
		return nil, false, err
	}
	bin, err := c.program(ctx, target)
	if err != nil {
		return nil, false, err
	}
	if err := c.knock(ctx, bin, target); err != nil {
		return nil, false, err
	}
	if conn, anyone, err = c.admit(l, bin, target); err != nil {
		return nil, false, err
	}
	select {
	case <-conn.settled:
	case <-ctx.Done():
	}
	return conn, anyone, nil
}

// admit starts a client, with the turn in hand.
func (c *Client) admit(l *line, bin, target string) (conn *conn, anyone bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	args := []string{"-N", "-S", c.Socket(target), "-u", "-C", "attach-session", "-E", "-f", "no-output,ignore-size"}
	if !l.anyone {
		args = append(args, "-t", "="+target+":")
	}
	if conn, err = dial(&c.starter, bin, c.env, args, func() { c.hint(target) }, l.drop); err != nil {
		return nil, false, fmt.Errorf("%w: cannot run tmux: %w", host.ErrNoAnswer, err)
	}
	l.conn = conn
	c.lines.watch()
	return conn, l.anyone, nil
}

// drop lets go of a connection of which nothing is left. The line itself stays: somebody may hold its turn.
func (l *line) drop(gone *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn == gone {
		l.conn = nil
	}
}

// vacate waits until nobody of ours is at the server any more, nor on the way in.
func (l *line) vacate(ctx context.Context) error {
	l.mu.Lock()
	conn := l.conn
	l.mu.Unlock()
	if conn == nil {
		return nil
	}
	select {
	case <-conn.settled:
	case <-ctx.Done():
		return fmt.Errorf("%w: a client is on its way in", host.ErrNoAnswer)
	}
	conn.end(errLost)
	select {
	case <-conn.gone:
	case <-ctx.Done():
		return fmt.Errorf("%w: a client has not left yet", host.ErrNoAnswer)
	}
	l.mu.Lock()
	l.conn = nil
	l.mu.Unlock()
	return nil
}

// knock asks by a process of its own, which may be killed at any time, whether the server answers at all.
func (c *Client) knock(ctx context.Context, bin, target string) error {
	n := Nonce()
	r, err := c.exec(ctx, "Knock", launch.Run, bin, []string{"-N", "-S", c.Socket(target), "-u", "display-message", "-p", "OK|" + n})
	if err != nil {
		return err
	}
	if _, ok := r.find(tagOK, n); !ok {
		return r.silent()
	}
	return nil
}

// forget lets go of a target whose server is gone and whose name is not used again.
func (c *Client) forget(target string) {
	l := c.lines.get(target)
	l.mu.Lock()
	if l.conn != nil {
		l.conn.end(errLost)
	}
	l.mu.Unlock()
	c.lines.mu.Lock()
	defer c.lines.mu.Unlock()
	delete(c.lines.of, target)
}

// stands says whether a connection to the server is up.
func (c *Client) stands(target string) bool {
	l := c.lines.get(target)
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.conn != nil && l.conn.stands()
}

// watch closes idle connections, as long as there are any.
func (l *lines) watch() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sweeping || l.closed {
		return
	}
	l.sweeping = true
	go func() {
		for {
			time.Sleep(idleTick)
			if !l.closeIdle(idleTime) {
				return
			}
		}
	}()
}

// closeIdle closes what was not used for a time. It returns false when nothing is open any more.
func (l *lines) closeIdle(d time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	open := false
	for _, line := range l.of {
		if !line.mu.TryLock() {
			open = true // somebody is using it
			continue
		}
		switch {
		case line.conn == nil || !line.conn.usable():
		case line.conn.idle(d):
			line.conn.end(errLost)
		default:
			open = true
		}
		line.mu.Unlock()
	}
	l.sweeping = open && !l.closed
	return l.sweeping
}

// Close ends the connections. Servers and agents are not touched. It waits a moment until the servers have seen them leave: a tmuxd that
// comes right after this one lets clients in too.
func (c *Client) Close() {
	c.lines.mu.Lock()
	c.lines.closed = true
	var leaving []*conn
	for _, line := range c.lines.of {
		line.mu.Lock()
		if line.conn != nil {
			line.conn.kill()
			leaving = append(leaving, line.conn)
		}
		line.mu.Unlock()
	}
	c.lines.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), leaveTime)
	defer cancel()
	for _, conn := range leaving {
		select {
		case <-conn.gone:
		case <-ctx.Done():
		}
	}
	c.starter.close()
}

// starter starts processes on a thread that lives as long as it: the kernel sends the signal of a parent's death when the thread ends that
// started the child, and Go ends threads as it likes.
type starter struct {
	mu     sync.Mutex
	jobs   chan func()
	closed bool
}

func (s *starter) start(cmd *exec.Cmd) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errors.New("it is closed")
	}
	if s.jobs == nil {
		s.jobs = make(chan func())
		go func() {
			runtime.LockOSThread() // and never unlocked: the thread ends with this function
			for job := range s.jobs {
				job()
			}
		}()
	}
	started := make(chan error)
	s.jobs <- func() { started <- cmd.Start() }
	return <-started
}

func (s *starter) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed = true; s.jobs != nil {
		close(s.jobs)
		s.jobs = nil
	}
}

// load is the beginning of a list: it puts a text into a buffer of its own. remove is to be called after the answer. Texts that are long
// travel in a file that the server reads by itself, whole: it is complete before the list is sent.
func (c *Client) load(buffer, text string) (list string, remove func(), err error) {
	if len(text) <= inline {
		return "set-buffer -b " + buffer + " -- " + quote(text) + " ; ", func() {}, nil
	}
	f, err := os.CreateTemp(c.dir, textPattern)
	if err != nil {
		return "", nil, fmt.Errorf("cannot hand the text over: %w", err)
	}
	remove = func() { _ = os.Remove(f.Name()) }
	_, err = f.WriteString(text)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		remove()
		return "", nil, fmt.Errorf("cannot hand the text over: %w", err)
	}
	return "load-buffer -b " + buffer + " " + quote(escapeFormat(f.Name())) + " ; ", remove, nil
}

// sweep removes the texts that an earlier life left behind.
func (c *Client) sweep() {
	left, _ := filepath.Glob(filepath.Join(c.dir, textPattern))
	for _, path := range left {
		_ = os.Remove(path)
	}
}
