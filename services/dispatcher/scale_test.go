package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/trace/noop"
	"google.golang.org/grpc"

	"muxpost.dev/muxpost/core/dispatch"
	"muxpost.dev/muxpost/core/workitem"
	"muxpost.dev/muxpost/db/dbtest"
	tmuxdv1 "muxpost.dev/muxpost/proto/gen/muxpost/tmuxd/v1"
	"muxpost.dev/muxpost/services/dispatcher/internal/deliver"
	"muxpost.dev/muxpost/services/dispatcher/internal/hosts"
	"muxpost.dev/muxpost/services/dispatcher/internal/store"
)

// trips counts what goes to the database and back.
type trips struct{ statements, round atomic.Int64 }

func (c *trips) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.statements.Add(1)
	c.round.Add(1)
	return ctx
}
func (c *trips) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (c *trips) TraceBatchStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceBatchStartData) context.Context {
	c.statements.Add(int64(d.Batch.Len()))
	c.round.Add(1)
	return ctx
}
func (c *trips) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (c *trips) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

// crowd is a tmuxd in memory with sessions that live and take everything.
type crowd struct {
	tmuxdv1.UnimplementedTmuxdServiceServer
	name  string
	items []string
}

func (c *crowd) Info(context.Context, *tmuxdv1.InfoRequest) (*tmuxdv1.InfoResponse, error) {
	return &tmuxdv1.InfoResponse{Host: c.name, InstanceId: "i-" + c.name, Version: "v1", Release: "v1",
		Harnesses: []*tmuxdv1.HarnessInfo{{Name: "fakeagent", Binary: "/f", Resumes: true, RunsSessions: true}}}, nil
}

func (c *crowd) RaiseFence(_ context.Context, r *tmuxdv1.RaiseFenceRequest) (*tmuxdv1.RaiseFenceResponse, error) {
	return &tmuxdv1.RaiseFenceResponse{Floor: r.GetFloor()}, nil
}

func (c *crowd) SessionState(_ context.Context, r *tmuxdv1.SessionStateRequest) (*tmuxdv1.SessionStateResponse, error) {
	return &tmuxdv1.SessionStateResponse{State: tmuxdv1.State_STATE_LIVE, Harness: "fakeagent", ConversationId: "c-" + r.GetWorkItem(),
		Incarnation: &tmuxdv1.Incarnation{Stamp: "s-" + r.GetWorkItem()}, Detail: "the agent's pane is alive"}, nil
}

func (c *crowd) Paste(context.Context, *tmuxdv1.PasteRequest) (*tmuxdv1.PasteResponse, error) {
	return &tmuxdv1.PasteResponse{Verdict: &tmuxdv1.PasteResponse_Submitted{Submitted: &tmuxdv1.Submitted{
		Evidence: tmuxdv1.Evidence_EVIDENCE_TRANSCRIPT}}}, nil
}

func (c *crowd) WatchSessions(_ *tmuxdv1.WatchSessionsRequest, stream grpc.ServerStreamingServer[tmuxdv1.WatchSessionsResponse]) error {
	for _, item := range c.items {
		if err := stream.Send(&tmuxdv1.WatchSessionsResponse{Step: &tmuxdv1.WatchSessionsResponse_Session{Session: &tmuxdv1.SessionSummary{
			WorkItem: item, Target: "t", State: tmuxdv1.State_STATE_LIVE, Incarnation: &tmuxdv1.Incarnation{Stamp: "s-" + item}}}}); err != nil {
			return err
		}
	}
	if err := stream.Send(&tmuxdv1.WatchSessionsResponse{Step: &tmuxdv1.WatchSessionsResponse_CaughtUp{CaughtUp: &tmuxdv1.CaughtUp{}}}); err != nil {
		return err
	}
	<-stream.Context().Done()
	return stream.Context().Err()
}

// world is hosts with living sessions, all recorded in a database.
type world struct {
	addresses []hosts.Address
	items     []string
	trips     *trips
	pool      *pgxpool.Pool
	store     *store.Store
}

func newWorld(t *testing.T, hostCount, sessionCount int) *world {
	t.Helper()
	config, err := pgxpool.ParseConfig(dbtest.NewURL(t))
	if err != nil {
		t.Fatal(err)
	}
	w := &world{trips: &trips{}}
	config.ConnConfig.Tracer, config.MaxConns = w.trips, 16
	if w.pool, err = pgxpool.NewWithConfig(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.pool.Close)
	w.store = store.New(w.pool)
	dir, err := os.MkdirTemp("/tmp", "mux") // a socket's address is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	crowds := make([]*crowd, hostCount)
	for i := range crowds {
		crowds[i] = &crowd{name: fmt.Sprintf("h%04d", i)}
	}
	var rows [][]any
	for i := range sessionCount {
		c, item := crowds[i%hostCount], fmt.Sprintf("github:octo/r%d#%d", i%97, i+1)
		ref, err := workitem.Parse(item)
		if err != nil {
			t.Fatal(err)
		}
		c.items, w.items = append(c.items, item), append(w.items, item)
		rows = append(rows, []any{item, ref.Target(), c.name, "fakeagent", "c-" + item, "s-" + item})
	}
	if _, err := w.pool.CopyFrom(t.Context(), pgx.Identifier{"dispatcher", "sessions"},
		[]string{"work_item", "target", "host", "harness", "conversation_id", "stamp"}, pgx.CopyFromRows(rows)); err != nil {
		t.Fatal(err)
	}
	for _, c := range crowds {
		path := filepath.Join(dir, c.name)
		listener, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		server := grpc.NewServer()
		tmuxdv1.RegisterTmuxdServiceServer(server, c)
		go func() { _ = server.Serve(listener) }()
		t.Cleanup(server.Stop)
		w.addresses = append(w.addresses, hosts.Address{Name: c.name, Address: "unix:" + path})
	}
	return w
}

// dispatcher is a dispatcher of the world, once all hosts have told of their sessions; took says how long that was.
func (w *world) dispatcher(t *testing.T) (d *deliver.Deliverer, took time.Duration) {
	t.Helper()
	began := time.Now()
	var told sync.WaitGroup
	told.Add(len(w.addresses))
	f, err := hosts.NewFleet(hosts.FleetConfig{Hosts: w.addresses, Registry: w.store, Tokens: w.store, Logger: slog.New(slog.DiscardHandler),
		Tell: func(item string) {
			if item == "" {
				told.Done()
			}
		}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	f.Meet(ctx)
	go func() { done <- f.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		f.Close()
	})
	told.Wait()
	return deliver.New(deliver.Config{Store: w.store, Hosts: f, Logger: slog.New(slog.DiscardHandler), Tracer: noop.NewTracerProvider().Tracer(""),
		Process: "p-" + strconv.FormatInt(began.UnixNano(), 36), Harness: "fakeagent", Resume: true}), time.Since(began)
}

// deliver has an event delivered, and returns whether it arrived.
func (w *world) deliver(ctx context.Context, d *deliver.Deliverer, i, n int) error {
	result, err := d.Deliver(ctx, deliver.Request{DeliveryID: fmt.Sprintf("scale-%06d-%06d", i, n), WorkItem: w.items[i%len(w.items)],
		Kind: deliver.Comment, Text: "please look"})
	if err == nil && result.Delivery.Outcome != dispatch.Delivered {
		err = fmt.Errorf("%v (%s): %s", result.Delivery.Outcome, result.Delivery.Reason, result.Delivery.Detail)
	}
	return err
}

func TestDeliver_IntoALivingAgentTakesFourRoundTripsToTheDatabase(t *testing.T) {
	w := newWorld(t, 2, 4)
	d, _ := w.dispatcher(t)
	// The first ones prepare their statements, on whichever connection.
	for i := range 40 {
		if err := w.deliver(t.Context(), d, i, 0); err != nil {
			t.Fatal(err)
		}
	}
	var fewest int64 = 1000
	for i := range 10 {
		before := w.trips.round.Load()
		if err := w.deliver(t.Context(), d, i, 1); err != nil {
			t.Fatal(err)
		}
		fewest = min(fewest, w.trips.round.Load()-before) // the registry is read beside them, now and then
	}
	if fewest > 4 {
		t.Errorf("%d round trips", fewest)
	}
}

// TestScale_ManyHostsAndSessions prints what a dispatcher does with many of both. make scale has a thousand hosts and fifty thousand sessions.
func TestScale_ManyHostsAndSessions(t *testing.T) {
	number := func(name string, usual int) int {
		if n, err := strconv.Atoi(os.Getenv(name)); err == nil && n > 0 {
			return n
		}
		return usual
	}
	hostCount, sessionCount, seconds := number("SCALE_HOSTS", 20), number("SCALE_SESSIONS", 400), number("SCALE_SECONDS", 2)
	w := newWorld(t, hostCount, sessionCount)
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	d, took := w.dispatcher(t)
	runtime.GC()
	runtime.ReadMemStats(&after)

	const workers = 16
	var delivered, n atomic.Int64
	var lengths []time.Duration
	var mu sync.Mutex
	statements, round := w.trips.statements.Load(), w.trips.round.Load()
	run := func(do func(ctx context.Context, i int) error) (perSecond float64) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(seconds)*time.Second)
		defer cancel()
		began, count := time.Now(), atomic.Int64{}
		var group sync.WaitGroup
		for range workers {
			group.Go(func() {
				for ctx.Err() == nil {
					start := time.Now()
					if err := do(context.WithoutCancel(ctx), int(n.Add(1))); err != nil {
						t.Error(err)
						return
					}
					count.Add(1)
					mu.Lock()
					lengths = append(lengths, time.Since(start))
					mu.Unlock()
				}
			})
		}
		group.Wait()
		return float64(count.Load()) / time.Since(began).Seconds()
	}
	deliveries := run(func(ctx context.Context, i int) error {
		err := w.deliver(ctx, d, i, i)
		delivered.Add(1)
		return err
	})
	slices.Sort(lengths)
	p50, p99 := lengths[len(lengths)/2], lengths[len(lengths)*99/100]
	perDelivery := func(now, then int64) float64 { return float64(now-then) / float64(delivered.Load()) }
	statementsEach, roundEach := perDelivery(w.trips.statements.Load(), statements), perDelivery(w.trips.round.Load(), round)
	commits := run(func(ctx context.Context, i int) error {
		_, err := w.pool.Exec(ctx, "insert into dispatcher.leases (work_item, holder, token, until) values ($1, '', 1, now())", fmt.Sprintf("bare-%d", i))
		return err
	})
	// Another one takes over: how long until it has heard of all sessions.
	_, again := w.dispatcher(t)
	fmt.Printf("scale: hosts=%d sessions=%d deliveries_per_s=%.0f bare_commits_per_s=%.0f ratio=%.2f p50_ms=%.1f p99_ms=%.1f statements=%.1f round_trips=%.1f "+
		"heap_mib=%.0f start_s=%.1f takeover_s=%.1f\n", hostCount, sessionCount, deliveries, commits, deliveries/commits, p50.Seconds()*1000,
		p99.Seconds()*1000, statementsEach, roundEach, float64(after.HeapAlloc-before.HeapAlloc)/(1<<20), took.Seconds(), again.Seconds())
	if roundEach > 6 {
		t.Errorf("%.1f round trips for each delivery", roundEach)
	}
}
