package main

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"muxpost.dev/muxpost/core/ledger"
	"muxpost.dev/muxpost/internal/rpc"
	"muxpost.dev/muxpost/internal/rpc/rpctest"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	"muxpost.dev/muxpost/test/fakegithub"
)

// judge is a dispatcher that remembers every question and says what was wrong about it. The text of an event is its number among its item's.
type judge struct {
	dispatcherv1.UnimplementedDispatcherServiceServer

	mu     sync.Mutex
	random *rand.Rand
	// asking are the items of which a question is being answered; ended is how many events of an item have had their last answer here, and
	// latest the highest number that was asked about.
	asking        map[string]bool
	ended, latest map[string]int
	ids           map[string]string // by item and number
	failed        map[string]bool
	asked, lost   int
	wrong         []string
}

func newJudge(seed uint64) *judge {
	return &judge{random: rand.New(rand.NewPCG(seed, 1)), asking: map[string]bool{}, ended: map[string]int{}, latest: map[string]int{}, //nolint:gosec // a script
		ids: map[string]string{}, failed: map[string]bool{}}
}

func (j *judge) Deliver(ctx context.Context, r *dispatcherv1.DeliverRequest) (*dispatcherv1.DeliverResponse, error) {
	takes := j.begin(r)
	select { // as long as a script says that this question takes
	case <-ctx.Done():
	case <-time.After(takes):
	}
	return j.end(ctx, r)
}

func (j *judge) begin(r *dispatcherv1.DeliverRequest) time.Duration {
	j.mu.Lock()
	defer j.mu.Unlock()
	item, id := r.GetWorkItem(), r.GetDeliveryId()
	n := number(r)
	key := fmt.Sprint(item, " ", n)
	wrong := func(what string) { j.wrong = append(j.wrong, key+": "+what) }
	j.asked++
	if j.asking[item] {
		wrong("asked about while a question about its item is open")
	}
	if known := cmp.Or(j.ids[key], id); known != id {
		wrong("asked about as " + known + " and as " + id)
	}
	if n > j.ended[item] || n < j.latest[item] {
		wrong(fmt.Sprintf("asked about out of order: %d have ended, %d was asked about", j.ended[item], j.latest[item]))
	}
	j.asking[item], j.ids[key], j.latest[item] = true, id, max(n, j.latest[item])
	if j.random.IntN(20) == 0 {
		return time.Duration(j.random.IntN(200)) * time.Millisecond // long enough for who asks to die meanwhile
	}
	return time.Duration(j.random.IntN(4000)) * time.Microsecond
}

func (j *judge) end(ctx context.Context, r *dispatcherv1.DeliverRequest) (*dispatcherv1.DeliverResponse, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	item, n := r.GetWorkItem(), number(r)
	key := fmt.Sprint(item, " ", n)
	j.asking[item] = false
	if ctx.Err() != nil {
		// Who asked is dead. Half of what it asked for is done all the same.
		if j.lost++; j.random.IntN(2) == 0 {
			j.ended[item] = max(j.ended[item], n+1)
		}
		return nil, ctx.Err()
	}
	if j.ended[item] > n {
		return outcome(dispatcherv1.Outcome_OUTCOME_DELIVERED, "", 0), nil
	}
	switch draw := j.random.IntN(100); {
	case strings.Fields(r.GetText())[1] == "fails":
		j.ended[item] = n + 1 // its budget is one try
		return outcome(dispatcherv1.Outcome_OUTCOME_FAILED, "harness_exited", 0), nil
	case draw < 5:
		return outcome(dispatcherv1.Outcome_OUTCOME_HELD, "session_holds", 20*time.Millisecond), nil
	case draw < 10:
		return outcome(dispatcherv1.Outcome_OUTCOME_WAITING, "host_unreachable", 20*time.Millisecond), nil
	case draw < 14:
		return outcome(dispatcherv1.Outcome_OUTCOME_IN_PROGRESS, "starting", 20*time.Millisecond), nil
	case draw < 15 && !j.failed[key]:
		j.failed[key] = true
		return outcome(dispatcherv1.Outcome_OUTCOME_FAILED, "paste_error", 0), nil
	case draw < 18:
		j.ended[item] = n + 1
		return outcome(dispatcherv1.Outcome_OUTCOME_DROPPED, "spawn_forbidden", 0), nil
	}
	j.ended[item] = n + 1
	return outcome(dispatcherv1.Outcome_OUTCOME_DELIVERED, "", 0), nil
}

func number(r *dispatcherv1.DeliverRequest) int {
	n, err := strconv.Atoi(strings.Fields(r.GetText())[0])
	if err != nil {
		panic(err)
	}
	return n
}

// fill puts n events of each of as many items into the ledger, in an order that is not theirs. One in forty may fail once, and does.
func fill(t *testing.T, pool *pgxpool.Pool, items, n int) {
	t.Helper()
	for _, statement := range []string{
		`insert into poller.items (work_item, source, place, number)
select 'github:o/r#' || i, 'manual', 'github:o/r', i from generate_series(1, $1::int) i where $2::int > 0`,
		`insert into poller.events (delivery_id, natural_key, work_item, source, kind, upstream_at, upstream_order, state, budget, next_look, text,
  with_context)
select 'd-' || md5(i || '/' || k), 'manual|' || i || '/' || k, 'github:o/r#' || i, 'manual', 'message', now(), k, 'pending',
  case when (i * 7 + k) % 40 = 0 then 1 else 3 end, now(), k || case when (i * 7 + k) % 40 = 0 then ' fails' else ' works' end,
  case when i % 4 > 0 then false end
from generate_series(1, $1::int) i, generate_series(0, $2::int - 1) k order by md5(k || '/' || i)`,
	} {
		_, err := pool.Exec(t.Context(), statement, items, n)
		must(t, err)
	}
}

const (
	replicas     = 4
	replicaItems = 1200
	eventsEach   = 3
)

// TestReplicas_ShareTheWorkWhateverIsKilled has several processes empty one ledger, while they are killed and started again and their connections
// are broken. A seed says what is done and after how many events; REPLICAS_SEED repeats one.
func TestReplicas_ShareTheWorkWhateverIsKilled(t *testing.T) {
	seed := uint64(time.Now().UnixNano()) //nolint:gosec // any will do
	if text := os.Getenv("REPLICAS_SEED"); text != "" {
		var err error
		seed, err = strconv.ParseUint(text, 10, 64)
		must(t, err)
	}
	t.Logf("REPLICAS_SEED=%d", seed)
	w := newWorld(t, strings.Replace(standard, "1s", "1h", 1))
	j := newJudge(seed)
	server := rpc.NewServer(rpc.Options{})
	dispatcherv1.RegisterDispatcherServiceServer(server, j)
	w.address = rpctest.Serve(t, server)
	w.configure(t, standard)
	pool := outsider(t, w)
	fill(t, pool, replicaItems, eventsEach)
	began := time.Now()
	processes := make([]*process, replicas)
	for i := range processes {
		processes[i] = startProcess(t, w)
	}
	const open = `select count(*) from poller.events where state in ('pending', 'leased', 'held')`
	random := rand.New(rand.NewPCG(seed, 2)) //nolint:gosec // a script
	kills, broken, done := 0, 0, 0
	for next := 100; next < replicaItems*eventsEach*8/10; next += 100 + random.IntN(150) {
		within(t, time.Minute, fmt.Sprint(next, " events end"), func() bool {
			done = replicaItems*eventsEach - value[int](t, pool, open)
			return done >= next
		})
		if random.IntN(3) == 0 {
			broken += breakConnections(t, pool, random)
			continue
		}
		i := random.IntN(replicas)
		processes[i].kill()
		processes[i] = startProcess(t, w)
		kills++
	}
	worked := time.Since(began)
	within(t, 90*time.Second, "every event ends", func() bool { return value[int](t, pool, open) == 0 })
	t.Logf("%d events of %d items in %v, %v of it under fire: %d kills, %d connections broken, %d questions, %d of them unheard",
		replicaItems*eventsEach, replicaItems, time.Since(began).Round(time.Millisecond), worked.Round(time.Millisecond), kills, broken, j.asked, j.lost)
	for _, p := range processes {
		p.serves(t)
		p.stop(t)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	equal(t, "what was wrong", j.wrong, []string(nil))
	equal(t, "events, ids", []int{len(j.ids), value[int](t, pool, `select count(distinct delivery_id) from poller.events`)},
		[]int{replicaItems * eventsEach, replicaItems * eventsEach})
	for item, n := range j.ended {
		if n != eventsEach {
			t.Errorf("%s ended in the ledger, and only %d of its events here", item, n)
		}
	}
}

// breakConnections ends half of the pollers' connections to the database.
func breakConnections(t *testing.T, pool *pgxpool.Pool, random *rand.Rand) int {
	t.Helper()
	pids := value[[]int32](t, pool, `
select coalesce(array_agg(pid order by pid), '{}') from pg_stat_activity where datname = current_database() and application_name = 'muxpost-poller'`)
	random.Shuffle(len(pids), func(a, b int) { pids[a], pids[b] = pids[b], pids[a] })
	pids = pids[:len(pids)/2]
	_, err := pool.Exec(t.Context(), `select pg_terminate_backend(pid) from unnest($1::int[]) pid`, pids)
	must(t, err)
	return len(pids)
}

// TestReplicas_ADeadOneIsReplacedWithinItsLeases kills a process that looks at a source and has an event in its hands, and one that has nothing.
func TestReplicas_ADeadOneIsReplacedWithinItsLeases(t *testing.T) {
	w := newWorld(t, standard) // an interval of a second
	stub := &stuck{asked: make(chan struct{}, 10)}
	server := rpc.NewServer(rpc.Options{})
	dispatcherv1.RegisterDispatcherServiceServer(server, stub)
	w.address = rpctest.Serve(t, server)
	w.configure(t, standard)
	pool := outsider(t, w)
	fill(t, pool, 1, 1)
	must(t, w.Inject(fakegithub.Fault{Kind: fakegithub.KindHang, Times: -1}))
	first := startProcess(t, w)
	within(t, time.Minute, "it looks, and asks about the event", func() bool {
		return len(stub.asked) > 0 && value[int](t, pool, `select count(*) from poller.sources where lease_until > now()`) == 1
	})
	second := startProcess(t, w)
	second.serves(t)
	killed := value[time.Time](t, pool, `select clock_timestamp()`)
	leases := value[int](t, pool, `select count(*) from poller.events where state = 'leased' and lease_until > now()`)
	first.kill()
	w.ClearFaults()
	within(t, 2*time.Minute, "the other one has looked", func() bool {
		return value[bool](t, pool, `select coalesce(last_success_at > $1, false) from poller.sources`, killed)
	})
	after := value[time.Time](t, pool, `select last_success_at from poller.sources`).Sub(killed)
	t.Logf("killed while it looked: the next look ended %v later", after.Round(time.Millisecond))
	if bound := 20*time.Second + time.Second; after > bound {
		t.Errorf("the source was looked at %v after the death of who looked at it, later than %v", after, bound)
	}
	within(t, 2*time.Minute, "the event is delivered", func() bool {
		return value[int](t, pool, `select count(*) from poller.events where state = 'delivered'`) == 1
	})
	after = value[time.Time](t, pool, `select updated_at from poller.events`).Sub(killed)
	t.Logf("killed while it asked: the event was delivered by the other one %v later", after.Round(time.Millisecond))
	// The ledger is looked into once a second; the rest is for a machine that is busy.
	if bound := ledger.LeaseTime + 5*time.Second; leases != 1 || after > bound {
		t.Errorf("%d events were leased, and that was asked about %v after the death of who had it, later than %v", leases, after, bound)
	}

	third := startProcess(t, w)
	third.serves(t)
	killed = value[time.Time](t, pool, `select clock_timestamp()`)
	second.kill()
	within(t, 2*time.Minute, "the third one has looked", func() bool {
		return value[bool](t, pool, `select last_success_at > $1 from poller.sources`, killed.Add(time.Second))
	})
	after = value[time.Time](t, pool, `select last_success_at from poller.sources`).Sub(killed)
	t.Logf("killed between looks: there was a look %v later", after.Round(time.Millisecond))
	if bound := 20*time.Second + time.Second; after > bound {
		t.Errorf("the source was looked at %v after the death of one of two, later than %v", after, bound)
	}
	third.stop(t)
}

// stuck is a dispatcher that has no answer to the first question, until who asked it is gone.
type stuck struct {
	dispatcherv1.UnimplementedDispatcherServiceServer

	asked chan struct{}
}

func (s *stuck) Deliver(ctx context.Context, _ *dispatcherv1.DeliverRequest) (*dispatcherv1.DeliverResponse, error) {
	select {
	case s.asked <- struct{}{}:
	default:
	}
	if len(s.asked) == 1 {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return outcome(dispatcherv1.Outcome_OUTCOME_DELIVERED, "", 0), nil
}

func (s *stuck) ListSessions(context.Context, *dispatcherv1.ListSessionsRequest) (*dispatcherv1.ListSessionsResponse, error) {
	return &dispatcherv1.ListSessionsResponse{}, nil
}

func (j *judge) ListSessions(context.Context, *dispatcherv1.ListSessionsRequest) (*dispatcherv1.ListSessionsResponse, error) {
	return &dispatcherv1.ListSessionsResponse{}, nil
}
