// Package hosts is how the dispatcher reaches the host that its sessions live on: tmuxd over gRPC, translated into the words of
// core/dispatch.
//
// Silence is told apart from an answer here, once: a host that did not answer is unreachable, a tmux server that did not is
// unknown, and neither is ever taken for dead or absent. Before the first call on a connection the host is asked who it is and for
// the highest fencing token that it has seen, the sequence of tokens is raised above it, and the host gets a floor from there
// (fence.go): so a restored database cannot make a host deaf, nor an old lease act.
//
// The package decides nothing about deliveries, and knows nothing of databases.
package hosts

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/obs"
	"muxpost.dev/muxpost/internal/rpc"
	tmuxdv1 "muxpost.dev/muxpost/proto/gen/muxpost/tmuxd/v1"
	"muxpost.dev/muxpost/services/dispatcher/internal/deliver"
)

const (
	// greetTime bounds the questions before the first call on a connection.
	greetTime = 3 * time.Second
	// returning is the part of a call's time that is kept for the answer's way back, so that a host that needs all of its time is
	// still heard.
	returning = 500 * time.Millisecond
)

// Tokens is the sequence that fencing tokens come from.
type Tokens interface {
	// RaiseToken makes every later token greater than above, and draws one that no lease has: all before it are lower, all after it
	// higher.
	RaiseToken(ctx context.Context, above int64) (drawn int64, err error)
}

// Config says which host there is.
type Config struct {
	// Name is the host's name; empty takes whatever the host at that address says. A host that says another name is not used.
	Name string
	// Address is tmuxd's, "host:port" or "unix:/path".
	Address string
	Tokens  Tokens
	Logger  *slog.Logger
	// TracerProvider starts the spans of calls; nil starts none.
	TracerProvider trace.TracerProvider
}

// Host is one host. It may be used by many goroutines.
type Host struct {
	config Config
	conn   *grpc.ClientConn
	client tmuxdv1.TmuxdServiceClient

	// greeting has room for one: two floors at once would only refuse each other's leases.
	greeting chan struct{}

	mu sync.Mutex
	// life counts what may have been a new host process, from 1. met and fenced are the life in which the host was last greeted and
	// last given a floor, and floor is what stood then; zero for one that knows no floor.
	life, met, fenced int
	floor             int64

	name      string
	harnesses map[string]bool
	build     deliver.Build
	// told is the last that was logged: whether it is reached.
	told, reached bool
}

var _ deliver.Host = (*Host)(nil)

// Dial returns the host; it is reached with the first call. The caller closes it.
func Dial(config Config) (*Host, error) {
	conn, err := rpc.Dial(config.Address, rpc.DialOptions{
		Name: "the host", Silent: fault.ReasonHostUnreachable, TracerProvider: config.TracerProvider,
	})
	if err != nil {
		return nil, err
	}
	return &Host{
		config: config, conn: conn, client: tmuxdv1.NewTmuxdServiceClient(conn), greeting: make(chan struct{}, 1), life: 1, name: config.Name,
	}, nil
}

// Close ends the connection.
func (h *Host) Close() error { return h.conn.Close() }

// Meet greets the host and logs whether it is reached. A host that is away is no failure: it is greeted when it comes.
func (h *Host) Meet(ctx context.Context) {
	_, err := h.greet(ctx)
	h.report(ctx, err)
}

// Watch keeps the connection up until ctx ends, greets the host whenever it comes back, and logs when it goes and when it is back.
// Calls do not depend on it: they greet for themselves.
func (h *Host) Watch(ctx context.Context) error {
	for {
		state := h.conn.GetState()
		switch state {
		case connectivity.Idle:
			h.conn.Connect()
		case connectivity.Ready:
			h.Meet(ctx)
		case connectivity.TransientFailure, connectivity.Shutdown:
			h.report(ctx, fault.Newf(fault.Unavailable, fault.ReasonHostUnreachable, "nobody answers at %s", h.config.Address))
		case connectivity.Connecting:
		}
		if !h.conn.WaitForStateChange(ctx, state) {
			return nil
		}
		if state == connectivity.Ready { // though it may be ready again by now
			life, _ := h.greeted()
			h.lose(life)
		}
	}
}

// report logs a change between being reached and not.
func (h *Host) report(ctx context.Context, err error) {
	h.mu.Lock()
	changed := !h.told || h.reached != (err == nil)
	h.told, h.reached = true, err == nil
	name := h.name
	h.mu.Unlock()
	if !changed || ctx.Err() != nil {
		return
	}
	attrs := []slog.Attr{slog.String(obs.KeyHost, name), slog.String(obs.KeyAddress, h.config.Address)}
	if err != nil {
		attrs = append(attrs, slog.String(obs.KeyError, err.Error()))
		h.config.Logger.LogAttrs(ctx, slog.LevelWarn, "the host is not reached; its work items wait", attrs...)
		return
	}
	h.config.Logger.LogAttrs(ctx, slog.LevelInfo, "the host is reached", attrs...)
}

// forget has the next call greet the host again.
func (h *Host) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.met = 0
}

// lose ends a life, unless it has ended: the next call greets the host as one that was never met, for it may be another process, which
// lost what it was told.
func (h *Host) lose(life int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.life == life {
		h.life++
	}
}

// greeted returns the present life, and whether the host was greeted in it.
func (h *Host) greeted() (life int, met bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.life, h.met == h.life
}

// greet makes sure that the host is the one that is meant, and that tokens are above what it has seen and not below its floor. It
// returns the life that this holds for, and costs nothing while the connection has been greeted.
func (h *Host) greet(ctx context.Context) (life int, err error) {
	life, met := h.greeted()
	if met {
		return life, nil
	}
	ctx, cancel := context.WithTimeout(ctx, greetTime)
	defer cancel()
	select {
	case h.greeting <- struct{}{}:
		defer func() { <-h.greeting }()
	case <-ctx.Done():
		return life, fault.Wrap(fault.Unavailable, fault.ReasonHostUnreachable, "the host at "+h.config.Address+" does not answer", ctx.Err())
	}
	if life, met = h.greeted(); met {
		return life, nil
	}
	info, err := h.client.Info(ctx, &tmuxdv1.InfoRequest{})
	if err != nil {
		return life, err
	}
	if h.config.Name != "" && info.GetHost() != h.config.Name {
		return life, fault.Newf(fault.Unavailable, fault.ReasonHostUnreachable, "the host at %s says that it is %q, and %q is configured",
			h.config.Address, plain(info.GetHost()), h.config.Name).WithRemedy("correct dispatcher.host.name or dispatcher.host.address")
	}
	if err := h.fence(ctx, life, info); err != nil {
		return life, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.met, h.name, h.build, h.harnesses = life, plain(info.GetHost()), buildOf(info), map[string]bool{}
	for _, harness := range info.GetHarnesses() {
		h.harnesses[harness.GetName()] = harness.GetResumes()
	}
	return life, nil
}

// Name returns the host's name; empty when it is neither configured nor learned yet.
func (h *Host) Name() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.name
}

// Build returns the build of the host's tmuxd as it said it last; nothing is known of it while it was never reached.
func (h *Host) Build() deliver.Build {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := h.build
	out.Program, out.Host = "tmuxd", h.name
	return out
}

// Resumes reports whether a harness can resume a conversation on the host; known is false for a harness that the host did not name,
// and while it has never been reached.
func (h *Host) Resumes(harness string) (resumes, known bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	resumes, known = h.harnesses[harness]
	return resumes, known
}

// failed looks at the error of a call that was made in a life of the host: after one that may mean another connection, another host
// process or an unknown token, the host is greeted again.
func (h *Host) failed(life int, err error) error {
	switch {
	case fault.ReasonOf(err) == fault.ReasonHostUnreachable:
		h.lose(life)
	case slices.Contains([]fault.Kind{fault.Unavailable, fault.Fenced}, fault.KindOf(err)):
		h.forget()
	}
	return err
}
