// Package load has what comes after an outage, and what a loud thread does: everything at once. The poller, the dispatcher and Postgres are real;
// where thousands of agents are needed, hosts are gRPC servers of this process that say of each session what a tmuxd would.
//
//	make load
//
// runs it with ten thousand items and a thousand events; the tests alone take a few hundred.
package load

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/db/dbtest"
	"muxpost.dev/muxpost/internal/rpc"
	"muxpost.dev/muxpost/internal/rpc/rpctest"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	pollerv1 "muxpost.dev/muxpost/proto/gen/muxpost/poller/v1"
	tmuxdv1 "muxpost.dev/muxpost/proto/gen/muxpost/tmuxd/v1"
	"muxpost.dev/muxpost/test/stack"
)

var build = sync.OnceValues(func() (string, error) { return stack.Build("") })

func TestMain(m *testing.M) {
	code := dbtest.Main(m)
	if dir, _ := build(); dir != "" {
		_ = os.RemoveAll(dir)
	}
	os.Exit(code)
}

// number is what make load asks for, or what is usual.
func number(name string, usual int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil && n > 0 {
		return n
	}
	return usual
}

// hotel is a host on which every session can be started, once.
type hotel struct {
	tmuxdv1.UnimplementedTmuxdServiceServer
	name string

	mu     sync.Mutex
	starts []time.Time
	texts  map[string][]string // that were taken, by work item
	live   map[string]*tmuxdv1.Incarnation
}

func (h *hotel) Info(context.Context, *tmuxdv1.InfoRequest) (*tmuxdv1.InfoResponse, error) {
	return &tmuxdv1.InfoResponse{Host: h.name, InstanceId: "i-" + h.name, Version: "v1", Release: "v1",
		Harnesses: []*tmuxdv1.HarnessInfo{{Name: "fakeagent", Binary: "/f", Resumes: true, RunsSessions: true}}}, nil
}

func (h *hotel) RaiseFence(_ context.Context, r *tmuxdv1.RaiseFenceRequest) (*tmuxdv1.RaiseFenceResponse, error) {
	return &tmuxdv1.RaiseFenceResponse{Floor: r.GetFloor()}, nil
}

func (h *hotel) SessionState(_ context.Context, r *tmuxdv1.SessionStateRequest) (*tmuxdv1.SessionStateResponse, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if i := h.live[r.GetWorkItem()]; i != nil {
		return &tmuxdv1.SessionStateResponse{State: tmuxdv1.State_STATE_LIVE, Harness: "fakeagent", ConversationId: "c-" + r.GetWorkItem(), Incarnation: i}, nil
	}
	return &tmuxdv1.SessionStateResponse{State: tmuxdv1.State_STATE_ABSENT}, nil
}

func (h *hotel) Spawn(_ context.Context, r *tmuxdv1.SpawnRequest) (*tmuxdv1.SpawnResponse, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.starts = append(h.starts, time.Now())
	i := &tmuxdv1.Incarnation{Stamp: "s-" + r.GetWorkItem()}
	h.live[r.GetWorkItem()] = i
	h.texts[r.GetWorkItem()] = append(h.texts[r.GetWorkItem()], r.GetPrompt().GetText())
	return &tmuxdv1.SpawnResponse{Outcome: &tmuxdv1.SpawnResponse_Started{Started: &tmuxdv1.Started{
		Incarnation: i, ConversationId: "c-" + r.GetWorkItem(), PromptPhase: tmuxdv1.Phase_PHASE_TAKEN}}}, nil
}

func (h *hotel) Paste(_ context.Context, r *tmuxdv1.PasteRequest) (*tmuxdv1.PasteResponse, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.texts[r.GetWorkItem()] = append(h.texts[r.GetWorkItem()], r.GetText())
	return &tmuxdv1.PasteResponse{Verdict: &tmuxdv1.PasteResponse_Submitted{Submitted: &tmuxdv1.Submitted{Evidence: tmuxdv1.Evidence_EVIDENCE_TRANSCRIPT}}}, nil
}

func (h *hotel) WatchSessions(_ *tmuxdv1.WatchSessionsRequest, stream grpc.ServerStreamingServer[tmuxdv1.WatchSessionsResponse]) error {
	if err := stream.Send(&tmuxdv1.WatchSessionsResponse{Step: &tmuxdv1.WatchSessionsResponse_CaughtUp{CaughtUp: &tmuxdv1.CaughtUp{}}}); err != nil {
		return err
	}
	<-stream.Context().Done()
	return stream.Context().Err()
}

// most is the largest number of starts in any second.
func (h *hotel) most() (most int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	slices.SortFunc(h.starts, time.Time.Compare)
	for first, last := 0, 0; last < len(h.starts); last++ {
		for h.starts[last].Sub(h.starts[first]) > time.Second {
			first++
		}
		most = max(most, last-first+1)
	}
	return most
}

// center is a poller and a dispatcher on a database, with hotels for hosts.
type center struct {
	t      *testing.T
	dir    string
	bin    string
	hotels []*hotel
	poller pollerv1.PollerServiceClient
	pids   map[string]*exec.Cmd
	url    string // of the database
}

func newCenter(t *testing.T, hosts int) *center {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "mux") // a socket's address is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	c := &center{t: t, dir: dir, pids: map[string]*exec.Cmd{}, url: dbtest.NewURL(t)}
	if c.bin, err = build(); err != nil {
		t.Fatal(err)
	}
	var list strings.Builder
	for i := range hosts {
		h := &hotel{name: fmt.Sprintf("h%d", i), texts: map[string][]string{}, live: map[string]*tmuxdv1.Incarnation{}}
		listener, err := net.Listen("unix", filepath.Join(dir, h.name))
		if err != nil {
			t.Fatal(err)
		}
		server := grpc.NewServer()
		tmuxdv1.RegisterTmuxdServiceServer(server, h)
		go func() { _ = server.Serve(listener) }()
		t.Cleanup(server.Stop)
		c.hotels = append(c.hotels, h)
		fmt.Fprintf(&list, "    - {name: %s, address: \"unix:%s\"}\n", h.name, filepath.Join(dir, h.name))
	}
	config := fmt.Sprintf("dispatcher:\n  listen: unix:%[1]s/d.sock\n  data_dir: %[1]s\n  database_url: %[2]q\n  harness: fakeagent\n  log_level: ERROR\n  hosts:\n%[3]s"+
		"poller:\n  listen: unix:%[1]s/p.sock\n  data_dir: %[1]s\n  database_url: %[2]q\n  dispatcher: unix:%[1]s/d.sock\n  log_level: ERROR\n  sources: []\n",
		dir, c.url, list.String())
	if err := os.WriteFile(filepath.Join(dir, "m.yaml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	c.start("poller")
	c.poller = pollerv1.NewPollerServiceClient(rpctest.Dial(t, "unix:"+filepath.Join(dir, "p.sock"), rpc.DialOptions{}))
	return c
}

// start runs a service until the test ends.
func (c *center) start(service string) {
	c.t.Helper()
	cmd := exec.Command(filepath.Join(c.bin, "muxpost-"+service), "--config", filepath.Join(c.dir, "m.yaml")) //nolint:noctx // it is ended in order
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.pids[service] = cmd
	c.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	health := healthpb.NewHealthClient(rpctest.Dial(c.t, "unix:"+filepath.Join(c.dir, service[:1]+".sock"), rpc.DialOptions{}))
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		_, err := health.Check(c.t.Context(), &healthpb.HealthCheckRequest{})
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("the %s does not serve: %v", service, err)
		}
	}
}

// memory is how much a service holds, in MiB.
func (c *center) memory(service string) int {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", c.pids[service].Process.Pid))
	if err != nil {
		c.t.Fatal(err)
	}
	var total, resident int
	if _, err := fmt.Sscan(string(data), &total, &resident); err != nil {
		c.t.Fatal(err)
	}
	return resident * os.Getpagesize() >> 20
}

// submit gives the poller n events, many at a time, and tells how often it was asked to come back later.
func (c *center) submit(n int, event func(i int) *pollerv1.SubmitRequest) (refused int) {
	c.t.Helper()
	var mu sync.Mutex
	var group errgroup.Group
	group.SetLimit(32)
	for i := range n {
		group.Go(func() error {
			for {
				_, err := c.poller.Submit(c.t.Context(), event(i))
				if later, ok := again(err); ok {
					mu.Lock()
					refused++
					mu.Unlock()
					time.Sleep(later) // as it was told
					continue
				}
				return err
			}
		})
	}
	if err := group.Wait(); err != nil {
		c.t.Fatal(err)
	}
	return refused
}

// counts waits until no event is open, tells how many are after each step, and returns how many there are in each state.
func (c *center) counts(patience time.Duration, step func(open int64)) map[pollerv1.LedgerState]int64 {
	c.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		answer, err := c.poller.CountLedger(c.t.Context(), &pollerv1.CountLedgerRequest{})
		if err != nil {
			c.t.Fatal(err)
		}
		by := map[pollerv1.LedgerState]int64{}
		for _, count := range answer.GetCounts() {
			if count.GetCount() > 0 {
				by[count.GetState()] = count.GetCount()
			}
		}
		open := by[pollerv1.LedgerState_LEDGER_STATE_PENDING] + by[pollerv1.LedgerState_LEDGER_STATE_LEASED] + by[pollerv1.LedgerState_LEDGER_STATE_HELD]
		step(open)
		if open == 0 {
			return by
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("events are open: %v", by)
		}
	}
}

func item(i int) string { return fmt.Sprintf("github:octo/widget#%d", i+1) }

// Everything waits for a dispatcher that is away, and nobody has an agent. When it is back, sessions are started no faster than hosts bear, each item
// has its event once, and nothing gave up.
func TestLoad_EverythingAtOnceAfterAnOutage(t *testing.T) {
	items, hosts := number("LOAD_ITEMS", 200), number("LOAD_HOSTS", 4)
	c := newCenter(t, hosts)
	c.submit(items, func(i int) *pollerv1.SubmitRequest {
		return &pollerv1.SubmitRequest{WorkItem: item(i), Text: fmt.Sprintf("event of %d", i+1), IdempotencyKey: fmt.Sprintf("outage-%d", i)}
	})
	began := time.Now()
	c.start("dispatcher")
	var half time.Duration
	by := c.counts(30*time.Minute, func(open int64) {
		if half == 0 && open <= int64(items/2) {
			half = time.Since(began)
		}
	})
	took := time.Since(began)
	if by[pollerv1.LedgerState_LEDGER_STATE_DELIVERED] != int64(items) {
		t.Errorf("the events ended as %v", by)
	}
	lost, doubled, most := 0, 0, 0
	for i := range items {
		n := 0
		for _, h := range c.hotels {
			n += len(h.texts[item(i)])
		}
		lost += max(1-n, 0)
		doubled += max(n-1, 0)
	}
	for _, h := range c.hotels {
		most = max(most, h.most())
	}
	// What the dispatcher's own bound is, with those that it lets begin together.
	const perSecond, together = 10, 20
	if lost > 0 || doubled > 0 || most > perSecond+together {
		t.Errorf("lost %d, doubled %d, %d starts in a second on one host", lost, doubled, most)
	}
	t.Logf("load outage: items=%d hosts=%d recovered_s=%.1f half_s=%.1f most_starts_per_s_and_host=%d lost=%d doubled=%d poller_mib=%d dispatcher_mib=%d",
		items, hosts, took.Seconds(), half.Seconds(), most, lost, doubled, c.memory("poller"), c.memory("dispatcher"))
}

// A thread in which somebody, or a machine, writes without end: all of it reaches the agent in its order, and another item is not kept waiting.
func TestLoad_ManyEventsForOneItem(t *testing.T) {
	events := number("LOAD_EVENTS", 100)
	c := newCenter(t, 1)
	c.start("dispatcher")
	began := time.Now()
	for i := range events { // one after the other, for their order is looked at
		if _, err := c.poller.Submit(t.Context(), &pollerv1.SubmitRequest{WorkItem: item(0), Text: fmt.Sprintf("word %06d.", i)}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.poller.Submit(t.Context(), &pollerv1.SubmitRequest{WorkItem: item(1), Text: "another thread"}); err != nil {
		t.Fatal(err)
	}
	asked := time.Now()
	h := c.hotels[0]
	var other time.Duration
	by := c.counts(10*time.Minute, func(int64) {
		h.mu.Lock()
		defer h.mu.Unlock()
		if other == 0 && len(h.texts[item(1)]) > 0 {
			other = time.Since(asked)
		}
	})
	took := time.Since(began)
	told := strings.Join(h.texts[item(0)], "\n")
	at, disordered, missing := 0, 0, 0
	for i := range events {
		switch n := strings.Index(told, fmt.Sprintf("word %06d.", i)); {
		case n < 0:
			missing++
		case n < at:
			disordered++
		default:
			at = n
		}
	}
	doubled := strings.Count(told, "word ") - events
	if missing > 0 || disordered > 0 || doubled > 0 || other == 0 {
		t.Errorf("missing %d, disordered %d, doubled %d; %v", missing, disordered, doubled, by)
	}
	t.Logf("load thread: events=%d prompts=%d took_s=%.1f other_item_s=%.2f missing=%d disordered=%d doubled=%d", events, len(h.texts[item(0)]), took.Seconds(),
		other.Seconds(), missing, disordered, doubled)
}

// A database that stands still fills the service with calls. What is one too many is told when to ask again; the others are told that nothing is known;
// nobody is told that muxpost is broken; whether it lives can be asked all the time; and when the database goes on, so does everything.
func TestLoad_ADatabaseThatStandsStill(t *testing.T) {
	const callers = 2 * rpc.DefaultMaxCalls
	c := newCenter(t, 1)
	c.start("dispatcher")
	// One connection alone has no more calls at once than the server grants it; the others wait in the client.
	var dispatchers [4]dispatcherv1.DispatcherServiceClient
	for i := range dispatchers {
		dispatchers[i] = dispatcherv1.NewDispatcherServiceClient(rpctest.Dial(t, "unix:"+filepath.Join(c.dir, "d.sock"), rpc.DialOptions{}))
	}
	deliver := func(i int) error {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		_, err := dispatchers[i%len(dispatchers)].Deliver(ctx, &dispatcherv1.DeliverRequest{DeliveryId: fmt.Sprintf("still-%06d", i), WorkItem: item(i), Text: "look", Kind: dispatcherv1.EventKind_EVENT_KIND_MESSAGE})
		return err
	}
	if err := deliver(0); err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), c.url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	if _, err := conn.Exec(t.Context(), "begin; lock table dispatcher.deliveries in access exclusive mode"); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var all sync.WaitGroup
	told := map[fault.Reason]int{}
	for i := range callers {
		all.Go(func() {
			err := deliver(i + 1)
			mu.Lock()
			defer mu.Unlock()
			switch later, full := again(err); {
			case full && later <= 0:
				t.Errorf("refused without a time: %v", err)
			case err != nil && !full && !errors.Is(err, fault.Unavailable):
				t.Errorf("%v", err)
			}
			told[fault.ReasonOf(err)]++
		})
	}
	health := healthpb.NewHealthClient(rpctest.Dial(t, "unix:"+filepath.Join(c.dir, "d.sock"), rpc.DialOptions{}))
	refused := func() int { mu.Lock(); defer mu.Unlock(); return told[fault.ReasonOverloaded] }
	for deadline := time.Now().Add(15 * time.Second); refused() == 0 && time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if _, err := health.Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil {
			t.Errorf("health: %v", err)
		}
	}
	if refused() == 0 {
		t.Errorf("nobody was refused: %v", told)
	}
	if _, err := conn.Exec(t.Context(), "rollback"); err != nil {
		t.Fatal(err)
	}
	all.Wait()
	if err := deliver(0); err != nil {
		t.Errorf("after it: %v", err)
	}
	t.Logf("load standstill: calls=%d told=%v dispatcher_mib=%d", callers, told, c.memory("dispatcher"))
}

// again returns when to ask again, of an answer that says so.
func again(err error) (time.Duration, bool) {
	var told *fault.Error
	if errors.As(err, &told) && told.Kind == fault.Throttled {
		return told.RetryAfter, true
	}
	return 0, false
}
