package local

import (
	"context"
	"io"
	"log/slog"
	"net/url"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"muxpost.dev/muxpost/core/fault"
)

// The two ways to stop: fast ends the clients and writes everything down; immediate just ends, and the next start recovers.
const (
	stopFast      = syscall.SIGINT
	stopImmediate = syscall.SIGQUIT
)

// immediatePatience is how long an immediate stop may take. Postgres itself kills what has not gone after five seconds.
const immediatePatience = 10 * time.Second

// Cluster is a running Postgres.
type Cluster struct {
	home      *home
	pid       int
	socket    string
	port      int
	log       *slog.Logger
	started   bool
	temporary bool
	child     *child // nil when the postmaster is not ours
	unlock    func() // nil unless the cluster is temporary

	watch   sync.Once
	gone    chan struct{}
	stop    sync.Mutex
	stopped bool
}

// URL returns the connection string of a database in the cluster. It holds no password, for there is none.
func (c *Cluster) URL(dbname string) string {
	q := url.Values{"host": {c.socket}, "port": {strconv.Itoa(c.port)}, "sslmode": {"disable"}}
	u := url.URL{Scheme: "postgres", User: url.User("postgres"), Path: "/" + dbname, RawQuery: q.Encode()}
	return u.String()
}

// Pid returns the postmaster's process id.
func (c *Cluster) Pid() int { return c.pid }

// Started reports whether this Start started the postmaster; false means that it was running and was attached to.
func (c *Cluster) Started() bool { return c.started }

// Dir returns the cluster's directory, absolute and with links resolved.
func (c *Cluster) Dir() string { return c.home.dir }

// SocketDir returns the directory of the unix socket. It is Dir, unless that is too long for a socket's address.
func (c *Cluster) SocketDir() string { return c.socket }

// LogPath returns the path of Postgres's log.
func (c *Cluster) LogPath() string { return c.home.logPath() }

// LogTail returns the last n lines of Postgres's log, as far as they fit into 32 KiB, and "" when it cannot be read.
func (c *Cluster) LogTail(n int) string {
	f, err := os.Open(c.LogPath())
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	const window = 32 << 10
	if info, err := f.Stat(); err == nil && info.Size() > window {
		_, _ = f.Seek(-window, io.SeekEnd)
	}
	text, _ := io.ReadAll(f)
	return lastLines(string(text), n)
}

// Done is closed when the postmaster has ended, by whatever cause. For one that was attached to, the first call begins to watch
// it, which lasts until it ends.
func (c *Cluster) Done() <-chan struct{} {
	if c.child != nil {
		return c.child.done
	}
	c.watch.Do(func() {
		c.gone = make(chan struct{})
		go func() {
			defer close(c.gone)
			for c.running() {
				time.Sleep(100 * time.Millisecond)
			}
		}()
	})
	return c.gone
}

// Stop stops the postmaster that Start started and returns when it is gone; a temporary cluster's directory goes with it. One
// that was attached to is left to whoever started it: the function Stop ends that one. ctx bounds how long clients may take to
// be sent away (a minute, when it has no deadline); after that the stop is immediate. A second Stop does nothing.
func (c *Cluster) Stop(ctx context.Context) error {
	c.stop.Lock()
	defer c.stop.Unlock()
	if !c.started || c.stopped {
		return nil
	}
	ctx, cancel := withPatience(ctx)
	defer cancel()
	how := stopFast
	if c.temporary {
		how = stopImmediate
	}
	if err := c.end(ctx, how); err != nil {
		return err
	}
	c.stopped = true
	if !c.temporary {
		return nil
	}
	defer c.unlock()
	if err := c.home.remove(); err != nil {
		return fault.Wrap(fault.Unavailable, fault.ReasonStorage, "a temporary cluster's directory cannot be removed", err)
	}
	return nil
}

// end signals the postmaster and waits until it is gone.
func (c *Cluster) end(ctx context.Context, how syscall.Signal) error {
	if err := c.signal(how); err != nil {
		return err
	}
	if !c.waitGone(ctx) && how != stopImmediate {
		c.log.Warn("the database did not stop in time and is stopped at once", "dir", c.home.dir, "pid", c.pid)
		if err := c.signal(stopImmediate); err != nil {
			return err
		}
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), immediatePatience)
	defer cancel()
	if !c.waitGone(last) {
		return fault.Newf(fault.Unavailable, fault.ReasonDatabase, "the postmaster in %s (process %d) does not stop", c.home.dir, c.pid).
			WithRemedy("look into " + c.LogPath())
	}
	if c.socket != "" {
		c.home.removeSocket(c.socket)
	}
	return nil
}

// signal reaches the postmaster and nothing else: a child of ours by its handle, any other only with proof of what it is.
func (c *Cluster) signal(sig syscall.Signal) error {
	var err error
	if c.child != nil {
		err = c.child.signal(sig)
	} else {
		err = signalPostmaster(c.pid, c.home.data(), sig)
	}
	if err != nil {
		return fault.Wrap(fault.Unavailable, fault.ReasonDatabase,
			"the postmaster in "+c.home.dir+" (process "+strconv.Itoa(c.pid)+") cannot be told to stop", err)
	}
	return nil
}

func (c *Cluster) waitGone(ctx context.Context) bool {
	if c.child != nil {
		select {
		case <-c.child.done:
			return true
		case <-ctx.Done():
			return false
		}
	}
	for c.running() {
		if !sleep(ctx, 20*time.Millisecond) {
			return false
		}
	}
	return true
}

// running reports whether the postmaster still lives. Where that cannot be told, it is taken to live.
func (c *Cluster) running() bool {
	is, err := isPostmaster(c.pid, c.home.data())
	return is || err != nil
}
