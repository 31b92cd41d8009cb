// Package hosts is how the dispatcher reaches the hosts that its sessions live on: tmuxd over gRPC, translated into the words of
// core/dispatch. A Host is one of them, and the Fleet all (fleet.go), where the host of a work item is found.
//
// Silence is told apart from an answer here, once: a host that did not answer is unreachable, a tmux server that did not is
// unknown, and neither is ever taken for dead or absent. Before the first call on a connection the host is asked who it is and for
// the highest fencing token that it has seen, the sequence of tokens is raised above it, and the host gets a floor from there
// (fence.go): so a restored database cannot make a host deaf, nor an old lease act.
//
// A host that is silent costs nobody but its own items anything: the calls under way at it are bounded, and after some without an answer the next
// ones are kept away for a time (breaker.go).
//
// The package decides nothing about deliveries, and knows nothing of databases.
package hosts

import (
	"context"
	"crypto/tls"
	"log/slog"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/obs"
	"muxpost.dev/muxpost/internal/rpc"
	tmuxdv1 "muxpost.dev/muxpost/proto/gen/muxpost/tmuxd/v1"
	"muxpost.dev/muxpost/services/dispatcher/internal/deliver"
	"muxpost.dev/muxpost/services/dispatcher/internal/hints"
)

const (
	// greetTime bounds the questions before the first call on a connection.
	greetTime = 3 * time.Second
	// returning is the part of a call's time that is kept for the answer's way back, so that a host that needs all of its time is
	// still heard.
	returning = 500 * time.Millisecond
	// atOnce is how many calls may be under way at one host, and slotTime how long a further one waits.
	atOnce   = 64
	slotTime = 500 * time.Millisecond
	// patience is the least time after which a call without an answer counts against the host: others are cut short by whoever asked.
	patience = time.Second
	// startsPerSecond and startsAtOnce bound how quickly sessions are started on a host, and paceTime how long a start waits for that: after many
	// ended at once, all of them come back.
	startsPerSecond = 10
	startsAtOnce    = 20
	paceTime        = 2 * time.Second
	// placedFor is how long a session that is to be started counts as one that lives, before the host tells of it.
	placedFor = 5 * time.Second
)

// Tokens is the sequence that fencing tokens come from.
type Tokens interface {
	// RaiseToken makes every later token greater than above, and draws one that no lease has: all before it are lower, all after it
	// higher.
	RaiseToken(ctx context.Context, above int64) (drawn int64, err error)
}

// Registry keeps what is recorded of hosts.
type Registry interface {
	// MeetHost returns what is recorded of a host of which a tmuxd answered; the name belongs to the first instance that did.
	MeetHost(ctx context.Context, name, instance string) (deliver.HostRecord, error)
	// Hosts returns what is recorded of all.
	Hosts(ctx context.Context) ([]deliver.HostRecord, error)
}

// Activities keep what the agents of a host do.
type Activities interface {
	// KeepActivities stores what the agents of a host do, each work item once; an empty activity forgets what it did. With whole that is all of
	// the host's, and what else is known of it is forgotten.
	KeepActivities(ctx context.Context, host string, told []deliver.Told, whole bool) error
}

// Config says which host there is.
type Config struct {
	// Name is the host's name; empty takes whatever the host at that address says. A host that says another name is not used.
	Name string
	// Address is tmuxd's, "host:port" or "unix:/path".
	Address  string
	Tokens   Tokens
	Registry Registry
	// Activities keep what agents do; nil keeps nothing.
	Activities Activities
	Logger     *slog.Logger
	// TracerProvider starts the spans of calls; nil starts none.
	TracerProvider trace.TracerProvider
	// MeterProvider takes the durations of calls; nil takes none.
	MeterProvider metric.MeterProvider
	// Silent is called when calls are kept away from the host from now on; nil is not.
	Silent func(host string)
	// TLS asks whoever answers for its certificate, and shows ours; nil is for hosts on this machine.
	TLS *tls.Config
}

// Host is one host. It may be used by many goroutines.
type Host struct {
	config Config
	conn   *grpc.ClientConn
	client tmuxdv1.TmuxdServiceClient

	// greeting has room for one: two floors at once would only refuse each other's leases.
	greeting chan struct{}
	// slots bound the calls under way, and pace how quickly sessions start.
	slots   chan struct{}
	pace    *rate.Limiter
	breaker breaker

	mu sync.Mutex
	// life counts what may have been a new host process, from 1. met and fenced are the life in which the host was last greeted and
	// last given a floor, and floor is what stood then; zero for one that knows no floor.
	life, met, fenced int
	floor             int64

	name   string
	info   *tmuxdv1.InfoResponse // as it was greeted last
	record deliver.HostRecord
	// told is the last that was logged: whether it is reached, since when, and why not.
	told, reached bool
	since         time.Time
	why           string
	// silence is what the last call without an answer said.
	silence string
	// sessions are those that the host told of last; complete is true while it tells of all.
	sessions map[string]known
	complete bool
	// followed is until when it told of all last; zero for never.
	followed time.Time
	// near counts the living ones by repository, and live all of them.
	near map[string]int
	live int
	// placed are the times of starts that the host has not told of yet.
	placed []time.Time
}

var _ deliver.Host = (*Host)(nil)

// Dial returns the host; it is reached with the first call. The caller closes it.
func Dial(config Config) (*Host, error) {
	conn, err := rpc.Dial(config.Address, rpc.DialOptions{
		Name: "the host", Silent: fault.ReasonHostUnreachable, TracerProvider: config.TracerProvider,
		MeterProvider: config.MeterProvider, TLS: config.TLS,
	})
	if err != nil {
		return nil, err
	}
	return &Host{
		config: config, conn: conn, client: tmuxdv1.NewTmuxdServiceClient(conn), greeting: make(chan struct{}, 1), life: 1, name: config.Name,
		slots: make(chan struct{}, atOnce), pace: rate.NewLimiter(startsPerSecond, startsAtOnce), breaker: breaker{now: time.Now},
		sessions: map[string]known{}, near: map[string]int{},
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

// Revive asks a host from which calls are kept away whether it answers again, until ctx ends, and tells that anything may have changed when it
// does. Otherwise what waits for it would be asked for, and find out, in its own time.
func (h *Host) Revive(ctx context.Context, tell func(workItem string)) {
	ticker := time.NewTicker(firstPause)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if h.breaker.open().IsZero() {
			continue
		}
		asking, cancel := context.WithTimeout(ctx, greetTime)
		end, err := h.begin(asking)
		if err == nil {
			_, err = h.client.Info(asking, &tmuxdv1.InfoRequest{})
			err = end(err)
		}
		cancel()
		if err == nil {
			tell(hints.Any)
		}
	}
}

// report logs a change between being reached and not.
func (h *Host) report(ctx context.Context, err error) {
	h.mu.Lock()
	changed := !h.told || h.reached != (err == nil)
	h.told, h.reached, h.why = true, err == nil, ""
	if err != nil {
		h.why = words(err)
	}
	if changed {
		h.since = time.Now()
	}
	name := h.name
	h.mu.Unlock()
	if err == nil {
		h.breaker.leave(true)
	}
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
			h.config.Address, plain(info.GetHost()), h.config.Name).WithRemedy("correct the name or the address, in the configuration or with muxpost hosts add")
	}
	record, err := h.known(ctx, info)
	if err != nil {
		return life, err
	}
	if err := h.fence(ctx, life, info); err != nil {
		return life, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.met, h.name, h.info, h.record = life, plain(info.GetHost()), info, record
	return life, nil
}

// known returns what is recorded of the host that answered. A second tmuxd under one name is refused: it would be taken for the first, which
// has the sessions.
func (h *Host) known(ctx context.Context, info *tmuxdv1.InfoResponse) (deliver.HostRecord, error) {
	name, instance := plain(info.GetHost()), plain(info.GetInstanceId())
	record, err := h.config.Registry.MeetHost(ctx, name, instance)
	if err == nil && instance != "" && record.Instance != "" && record.Instance != instance {
		err = fault.Newf(fault.Unavailable, fault.ReasonHostUnreachable, "the tmuxd at %s is another one than the name %q belongs to: it has another state directory",
			h.config.Address, name).WithRemedy("give one of the two another tmuxd.host; where the host was set up anew, run `muxpost hosts accept " + name + "`")
	}
	return record, err
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
	out := buildOf(h.info)
	out.Program, out.Host = "tmuxd", h.name
	return out
}

// Resumes reports whether a harness can resume a conversation on the host; known is false for a harness that the host did not name,
// and while it has never been reached.
func (h *Host) Resumes(harness string) (resumes, known bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, have := range h.info.GetHarnesses() {
		if have.GetName() == harness {
			return have.GetResumes(), true
		}
	}
	return false, false
}

// begin lets a call through to the host, greeted. Whoever is let through ends it with the call's error, which comes back.
func (h *Host) begin(ctx context.Context) (end func(error) error, err error) {
	if wait, ok := h.breaker.enter(); !ok {
		return nil, fault.Newf(fault.Unavailable, fault.ReasonHostUnreachable, "the host did not answer some calls in a row, and is asked again in %v; at last: %s",
			wait.Round(100*time.Millisecond), h.lastSilence())
	}
	began := time.Now()
	left := func(err error) {
		if !silent(err) {
			h.breaker.leave(true)
			return
		}
		h.mu.Lock()
		h.silence = words(err)
		h.mu.Unlock()
		if h.breaker.leave(time.Since(began) < patience && fault.ReasonOf(err) == fault.ReasonDeadline) && h.config.Silent != nil {
			h.config.Silent(h.Name())
		}
	}
	slot := time.NewTimer(slotTime)
	defer slot.Stop()
	select {
	case h.slots <- struct{}{}:
	case <-slot.C:
		left(nil) // it is slow, and answers
		return nil, fault.Newf(fault.Unavailable, fault.ReasonHostUnreachable, "%d calls are under way at the host", atOnce)
	}
	life, err := h.greet(ctx)
	if err != nil {
		<-h.slots
		left(err)
		return nil, err
	}
	return func(err error) error {
		<-h.slots
		left(err)
		if err != nil {
			err = h.failed(life, err)
		}
		return err
	}, nil
}

func (h *Host) lastSilence() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.silence
}

// silent reports whether an error says that the host did not answer.
func silent(err error) bool {
	return fault.KindOf(err) == fault.Unavailable && !answeredByHost(err) &&
		(fault.ReasonOf(err) == fault.ReasonHostUnreachable || fault.ReasonOf(err) == fault.ReasonDeadline)
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
