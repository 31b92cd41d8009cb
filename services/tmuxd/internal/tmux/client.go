// Package tmux speaks to tmux servers: one private server for each session, reached by its socket. Every request is one command list
// that the server runs without a pause and answers with an echoed nonce; only that nonce proves that the server executed anything,
// never an exit status. Every mutation checks its guard inside the server, in the same list as the act.
//
// Requests travel over one control client per server (control.go), opened when it is needed and closed when it is not; a binary is
// run only for that (to find the server's own and to knock first), and to make a session. There is no second path: a server that cannot be reached that way does not answer.
//
// It knows commands, formats and sockets. It knows no work item, no delivery text's meaning, no harness and no policy.
package tmux

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/core/workitem"
	"muxpost.dev/muxpost/internal/launch"
	"muxpost.dev/muxpost/services/tmuxd/internal/host"
	"muxpost.dev/muxpost/services/tmuxd/internal/metrics"
)

const (
	// maxSocketPath is the longest path that a socket's address can hold.
	maxSocketPath = 107
	// dialTimeout is long for a connection on one machine; only a full backlog takes longer.
	dialTimeout = time.Second
)

// Client speaks to tmux servers. What it keeps of a server is its connection, nothing else.
type Client struct {
	bin    string
	dir    string
	conf   string
	env    []string
	tracer trace.Tracer
	meters *metrics.Metrics
	hint   func(target string)
	launch run

	lines   lines
	starter starter
}

// run runs a command to its end.
type run func(context.Context, launch.Command) (launch.Result, error)

// Config says how to run tmux.
type Config struct {
	// Bin is the tmux binary.
	Bin string
	// Dir is where the sockets lie, and the servers' own configuration. Only we may enter it.
	Dir string
	// Env is the environment of tmux, from which servers and panes inherit. It should hold little.
	Env []string
	// Tracer makes the spans around commands.
	Tracer trace.Tracer
	// Metrics take how long servers take to answer; nil takes nothing.
	Metrics *metrics.Metrics
	// Hint is called when a server says that something changed on it: a session was renamed, a window closed. It must not block, and
	// may be nil.
	Hint func(target string)
	// Launch runs the one command that may start a server: where it is run, servers and agents live. We run it ourselves when it is nil.
	Launch func(context.Context, launch.Command) (launch.Result, error)
}

// serverConf is the configuration of every server. Nothing in it may fail: one bad line discards the whole file, and puts the next
// pane into a mode that swallows input.
const serverConf = `set -s exit-empty on
set -s escape-time 10
set -s @mux_now '%s'
set -g remain-on-exit on
set -g remain-on-exit-format ''
set -g destroy-unattached off
set -s exit-unattached off
set -g status off
set -g history-limit 10000
set -g update-environment ''
set -g allow-rename off
set -g automatic-rename off
`

// New returns a client and writes the servers' configuration.
func New(c Config) (*Client, error) {
	bin, err := exec.LookPath(c.Bin)
	if err != nil {
		return nil, fmt.Errorf("tmux is not installed or not on the PATH (looked for %q): %w", c.Bin, err)
	}
	if longest := len(c.Dir) + 1 + workitem.MaxTarget + len(".sock"); longest > maxSocketPath {
		return nil, fmt.Errorf("the path of the socket directory %s is too long: it has %d bytes, and with a session's name at most %d are possible",
			c.Dir, len(c.Dir), len(c.Dir)-(longest-maxSocketPath))
	}
	conf := filepath.Join(c.Dir, "tmux.conf")
	if err := os.WriteFile(conf, []byte(serverConf), 0o600); err != nil {
		return nil, fmt.Errorf("cannot write the tmux configuration: %w", err)
	}
	env := append([]string{"LANG=C.UTF-8", "LC_ALL=C.UTF-8"}, c.Env...)
	hint := c.Hint
	if hint == nil {
		hint = func(string) {}
	}
	meters := c.Metrics
	if meters == nil {
		meters = metrics.New(nil)
	}
	client := &Client{bin: bin, dir: c.Dir, conf: conf, env: env, tracer: c.Tracer, meters: meters, hint: hint, launch: c.Launch}
	if client.launch == nil {
		client.launch = launch.Run
	}
	client.sweep()
	return client, nil
}

// Nonce returns a fresh nonce. It holds no character that tmux or strftime reads as its own.
func Nonce() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // it never fails: see crypto/rand
	return "n" + hex.EncodeToString(b[:])
}

// Socket returns the path of a target's socket.
func (c *Client) Socket(target string) string { return filepath.Join(c.dir, target+".sock") }

// Dial says whether somebody listens on the target's socket: NoServer when nobody does, Answered when a connection was accepted, and
// NoAnswer for everything else (no permission, a full backlog), which proves nothing. A connection that stands is somebody who listens,
// as long as its address is there for others too.
func (c *Client) Dial(target string) session.Answer {
	if _, err := os.Lstat(c.Socket(target)); err == nil && c.stands(target) {
		return session.Answered
	}
	conn, err := net.DialTimeout("unix", c.Socket(target), dialTimeout)
	switch {
	case err == nil:
		conn.Close()
		return session.Answered
	case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ECONNREFUSED):
		return session.NoServer
	}
	return session.NoAnswer
}

// reply is what a command list printed.
type reply struct {
	lines []string
	// stderr is what a failed command said.
	stderr string
	// cut is true when more was printed than is kept.
	cut bool
}

// find returns the fields of the first line that begins with tag|nonce|, and whether there is one.
func (r reply) find(tag, nonce string) ([]string, bool) {
	for _, line := range r.lines {
		if rest, ok := strings.CutPrefix(line, tag+"|"+nonce); ok && (rest == "" || rest[0] == '|') {
			return strings.Split(strings.TrimPrefix(rest, "|"), "|"), true
		}
	}
	return nil, false
}

// text returns the rest of the first line that begins with tag|nonce|, whatever is in it; empty when there is none.
func (r reply) text(tag, nonce string) string {
	for _, line := range r.lines {
		if rest, ok := strings.CutPrefix(line, tag+"|"+nonce+"|"); ok {
			return rest
		}
	}
	return ""
}

// exec has a tmux binary run once: to make a session, or to knock.
func (c *Client) exec(ctx context.Context, name string, by run, bin string, args []string) (reply, error) {
	ctx, span := c.tracer.Start(ctx, "tmux."+name, trace.WithSpanKind(trace.SpanKindClient))
	defer span.End()
	out, err := by(ctx, launch.Command{Argv: append([]string{bin}, args...), Env: c.env}) // SIGKILL at the deadline: a TERMed tmux client exits with status 0
	span.SetAttributes(attribute.Int("tmux.stdout_bytes", len(out.Stdout)))
	r := reply{lines: strings.Split(strings.TrimSuffix(string(out.Stdout), "\n"), "\n"), stderr: strings.TrimSpace(string(out.Stderr))}
	if ctx.Err() != nil {
		span.SetStatus(codes.Error, "deadline")
		return r, fmt.Errorf("%w within its deadline", host.ErrNoAnswer)
	}
	// What was printed by then is looked at all the same: only the nonce counts.
	if err != nil {
		span.SetStatus(codes.Error, "cannot run tmux")
		return r, fmt.Errorf("%w: cannot run tmux: %w", host.ErrNoAnswer, err)
	}
	return r, nil
}

// silent makes the error for a list whose nonce did not come back.
func (r reply) silent() error {
	if r.stderr != "" {
		return fmt.Errorf("%w; it said: %s", host.ErrNoAnswer, printable(r.stderr))
	}
	return host.ErrNoAnswer
}

// printable keeps what tmux says to one line of printable ASCII.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return ' '
		}
		return r
	}, s[:min(len(s), 300)])
}
