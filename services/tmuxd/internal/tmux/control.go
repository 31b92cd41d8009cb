package tmux

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"muxpost.dev/muxpost/services/tmuxd/internal/host"
)

const (
	// maxPending bounds the requests that wait for one server, and maxOutbox the bytes of them that it has not taken yet.
	maxPending = 256
	maxOutbox  = 4 << 20
)

var (
	// errLost means that the connection ended before the answer: the server may have run the list.
	errLost = fmt.Errorf("%w: the connection to it was lost", host.ErrNoAnswer)
	// errNotAttached means that the server let nobody in: the list was never read.
	errNotAttached = fmt.Errorf("%w: no session to attach to", host.ErrNoAnswer)
	errBusy        = fmt.Errorf("%w: too many requests wait for it", host.ErrNoAnswer)
)

// request is one command list on its way. It is answered when a line with its nonce and one of the ending tags was printed, or when
// one of its commands failed: nothing of a list runs after that.
type request struct {
	nonce string
	reply reply
	err   error
	done  chan struct{}
}

// conn is a control client of one server: a tmux process that is attached, and of which the server reads and writes the pipes. Nobody
// who asks ever waits for the pipe: a writer feeds it, and a reader always drains it.
type conn struct {
	cmd *exec.Cmd
	in  *os.File
	out *os.File
	// hint is called for every notification, left once nothing is left of the client.
	hint func()
	left func(*conn)

	mu      sync.Mutex
	wake    *sync.Cond
	pending []*request // in the order in which the server gets them
	outbox  []byte
	ended   error // set once nothing more will be answered
	// attached is true once the server answered anything.
	attached bool
	// heard is when the server was last heard, or, if nothing was pending then, when something was asked.
	heard time.Time

	// settled is closed once the server has let the client in, or never will; gone once it knows of it no more.
	settled, gone chan struct{}
}

// dial starts a control client on a server that must be there. It does not wait for the server.
func dial(s *starter, bin string, env, args []string, hint func(), left func(*conn)) (*conn, error) {
	inR, inW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		inR.Close()
		inW.Close()
		return nil, err
	}
	cmd := exec.CommandContext(context.Background(), bin, args...) // it outlives the request that opens it
	cmd.Env, cmd.Dir = env, "/"
	cmd.Stdin, cmd.Stdout = inR, outW
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setpgid: true, // a Ctrl-C at our own terminal is not for it
		// A client that outlives us with an answer under way keeps its server from ending, for good: it waits to hand the answer over.
		Pdeathsig: endClient,
	}
	err = s.start(cmd)
	inR.Close()
	outW.Close()
	if err != nil {
		inW.Close()
		outR.Close()
		return nil, err
	}
	c := &conn{cmd: cmd, in: inW, out: outR, hint: hint, left: left, heard: time.Now(), settled: make(chan struct{}), gone: make(chan struct{})}
	c.wake = sync.NewCond(&c.mu)
	go c.write()
	go c.read()
	return c, nil
}

// send gives a list to the server and does not wait.
func (c *conn) send(line, nonce string) (*request, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.ended != nil:
		return nil, c.ended
	case len(c.pending) >= maxPending, len(c.outbox)+len(line) > maxOutbox:
		return nil, errBusy
	}
	r := &request{nonce: nonce, done: make(chan struct{})}
	if len(c.pending) == 0 {
		c.heard = time.Now()
	}
	c.pending = append(c.pending, r)
	c.outbox = append(append(c.outbox, line...), '\n')
	c.wake.Signal()
	return r, nil
}

// wait waits for the answer. Giving up takes nothing back: the list may still run.
func (r *request) wait(ctx context.Context) (reply, error) {
	select {
	case <-r.done:
		return r.reply, r.err
	case <-ctx.Done():
		return reply{}, fmt.Errorf("%w within its deadline", host.ErrNoAnswer)
	}
}

// usable says whether a further request has a chance. A server that is silent is given no second connection: it would be as silent.
func (c *conn) usable() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended == nil
}

// stands says whether the server answered on this connection, and it did not end.
func (c *conn) stands() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended == nil && c.attached
}

// idle says whether nothing is under way, and was not for this long.
func (c *conn) idle(d time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.pending) == 0 && time.Since(c.heard) > d
}

func (c *conn) write() {
	for {
		c.mu.Lock()
		for len(c.outbox) == 0 && c.ended == nil {
			c.wake.Wait()
		}
		if c.ended != nil {
			c.mu.Unlock()
			return
		}
		data := c.outbox
		c.outbox = nil
		c.mu.Unlock()
		if _, err := c.in.Write(data); err != nil {
			c.end(errLost)
			return
		}
	}
}

// read takes everything that the server writes, to the end: that comes once the server has closed its side, and the client too.
func (c *conn) read() {
	defer func() {
		c.end(errLost)
		_ = c.out.Close()
		_ = c.cmd.Wait()
		close(c.gone)
		c.left(c)
	}()
	p := newParser(c.out)
	for {
		b, notification, err := p.next()
		switch {
		case err != nil:
			return
		case notification != "":
			if strings.HasPrefix(notification, "%exit") {
				c.end(errLost)
			}
			if !strings.HasPrefix(notification, "%paste-buffer-") { // since 3.4, and every look makes one
				c.hint()
			}
		case b.ours:
			c.take(b)
		case b.failed:
			c.end(fmt.Errorf("%w: %s", errNotAttached, printable(strings.Join(b.lines, " "))))
		default:
			c.mu.Lock()
			c.letIn()
			c.mu.Unlock()
		}
	}
}

// letIn notes that the server is heard. c.mu is held.
func (c *conn) letIn() {
	c.heard = time.Now()
	if !c.attached && c.ended == nil {
		close(c.settled)
	}
	c.attached = true
}

// take gives a block to the request that it belongs to: the oldest, unless it names the nonce of another. Then the older ones are over
// without an answer, for the server takes them in order.
func (c *conn) take(b block) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.letIn()
	whose, ended := c.owner(b)
	if whose < 0 {
		return // nobody waits for it any more
	}
	for range whose {
		c.pop(errLost)
	}
	r := c.pending[0]
	r.reply.cut = r.reply.cut || b.cut
	if b.failed {
		r.reply.stderr = strings.Join(b.lines, "\n")
	} else {
		r.reply.lines = append(r.reply.lines, b.lines...)
	}
	if ended || b.failed {
		c.pop(nil)
	}
}

// owner finds the request that a block belongs to, -1 for none, and whether the block ends it.
func (c *conn) owner(b block) (i int, ended bool) {
	for _, line := range b.lines {
		if nonce, ends := ending(line); ends {
			for i, r := range c.pending {
				if r.nonce == nonce {
					return i, true
				}
			}
		}
	}
	return min(len(c.pending), 1) - 1, false
}

// pop finishes the oldest request.
func (c *conn) pop(err error) {
	c.pending[0].finish(err)
	c.pending[0] = nil
	c.pending = c.pending[1:]
}

func (r *request) finish(err error) {
	r.err = err
	close(r.done)
}

// end lets the connection go, for a reason: nothing more is asked over it, and the server is told by the end of our input. What it was
// sent, it may still run. The client is not killed: the server has to see it leave before another one comes (see open).
func (c *conn) end(why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended != nil {
		return
	}
	if !c.attached {
		close(c.settled)
	}
	c.ended = why
	for _, r := range c.pending {
		r.finish(why)
	}
	c.pending, c.outbox = nil, nil
	c.wake.Broadcast()
	_ = c.in.Close()
}

// kill ends the client at once, when no other will follow.
func (c *conn) kill() {
	c.end(errLost)
	_ = c.cmd.Process.Signal(endClient)
}

// endClient ends a control client at once, whatever its server does, but not in the middle of saying who it is: one that is killed there
// ends a server before 3.7, and the agent on it.
const endClient = syscall.SIGTERM

// The tags of the lines with which lists end.
const (
	tagOK  = "OK"
	tagNO  = "NO"
	tagEnd = "END"
)

// ending returns the nonce of a line that ends a list.
func ending(line string) (nonce string, ok bool) {
	tag, rest, ok := strings.Cut(line, "|")
	if !ok || tag != tagOK && tag != tagNO && tag != tagEnd {
		return "", false
	}
	nonce, _, _ = strings.Cut(rest, "|")
	return nonce, true
}
