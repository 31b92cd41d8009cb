package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"muxpost.dev/muxpost/db"
	"muxpost.dev/muxpost/db/local"
	"muxpost.dev/muxpost/db/migrations"
	"muxpost.dev/muxpost/internal/rpc"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
)

const configuration = `poller:
  data_dir: %[1]s
  database_url: %[2]q
  dispatcher: unix:%[1]s/d.sock
  listen: unix:%[1]s/p.sock
  log_level: ERROR
`

// workers is what the poller's default is: as many connections make the baseline of its rate.
const workers = 8

// stage is a database, a dispatcher and a poller.
type stage struct {
	dir     string
	cluster *local.Cluster
	pool    *pgxpool.Pool
	*dispatcher
	serving sync.WaitGroup
	stop    context.CancelFunc
	poller  *exec.Cmd
	items   int // that were made so far
}

// begin starts everything. The database is one as muxpost up starts it: it waits for its disk.
func begin(ctx context.Context) (_ *stage, err error) {
	s := &stage{dispatcher: &dispatcher{asked: make(chan time.Time, 1)}, stop: func() {}}
	if s.dir, err = os.MkdirTemp("", "muxbench"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.end()
		}
	}()
	if err := os.Chmod(s.dir, 0o711); err != nil { //nolint:gosec // the database's user must get through
		return nil, err
	}
	progress("building")
	bin := filepath.Join(s.dir, "muxpost-poller")
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", bin, "muxpost.dev/muxpost/services/poller").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("cannot build the poller: %w\n%s", err, out)
	}
	if s.cluster, err = local.Start(ctx, local.Options{Dir: filepath.Join(s.dir, "postgres")}); err != nil {
		return nil, err
	}
	if err := s.migrate(ctx); err != nil {
		return nil, err
	}
	if err := s.past(ctx); err != nil {
		return nil, err
	}
	if err := s.serve(); err != nil {
		return nil, err
	}
	file := filepath.Join(s.dir, "muxpost.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, configuration, s.dir, s.cluster.URL("bench")), 0o600); err != nil {
		return nil, err
	}
	s.poller = exec.Command(bin, "--config", file) //nolint:noctx // it is ended in order
	s.poller.Stderr = os.Stderr
	return s, s.poller.Start()
}

func (s *stage) migrate(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, s.cluster.URL("postgres"))
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, "create database bench")
	if err = errors.Join(err, conn.Close(ctx)); err != nil {
		return err
	}
	if s.pool, err = db.Open(ctx, db.Config{URL: s.cluster.URL("bench"), AppName: "bench", MaxConns: workers + 4}); err != nil {
		return err
	}
	if _, err := migrations.Up(ctx, s.pool, nil); err != nil {
		return err
	}
	_, err = s.pool.Exec(ctx, `
create table public.bare (id bigint generated always as identity primary key, text text not null);
create function public.announce_bare() returns trigger language plpgsql as $$ begin perform pg_notify('bare', ''); return null; end $$;
create table public.announced (id bigint generated always as identity primary key, text text not null);
create trigger announce after insert on public.announced for each statement execute function public.announce_bare()`)
	return err
}

// history is how many events the ledger has that ended: the database plans otherwise for a table that is empty.
const history = 20_000

func (s *stage) past(ctx context.Context) error {
	progress("filling the ledger")
	first, err := s.newItems(ctx, history)
	if err != nil {
		return err
	}
	if err := s.insertEvents(ctx, first, history, false); err != nil {
		return err
	}
	_, err = s.pool.Exec(ctx, `update poller.events set state = 'delivered', next_look = null, with_context = false`)
	return err
}

func (s *stage) serve() error {
	listener, err := rpc.Listen("unix:" + filepath.Join(s.dir, "d.sock"))
	if err != nil {
		return err
	}
	server := rpc.NewServer(rpc.Options{})
	dispatcherv1.RegisterDispatcherServiceServer(server, s.dispatcher)
	var ctx context.Context
	ctx, s.stop = context.WithCancel(context.Background())
	s.serving.Go(func() { _ = server.Serve(ctx, listener) }) // the end of everything
	return nil
}

// end ends what was started, as far as that came.
func (s *stage) end() {
	if s.poller != nil && s.poller.Process != nil {
		_ = s.poller.Process.Signal(syscall.SIGTERM)
		_ = s.poller.Wait()
	}
	s.stop()
	s.serving.Wait()
	if s.pool != nil {
		s.pool.Close()
	}
	if s.cluster != nil {
		_ = s.cluster.Stop(context.Background())
	}
	_ = os.RemoveAll(s.dir)
}

// dispatcher delivers everything at once.
type dispatcher struct {
	dispatcherv1.UnimplementedDispatcherServiceServer

	// asked gets when a question came in, if there is room.
	asked chan time.Time
}

func (d *dispatcher) Deliver(_ context.Context, _ *dispatcherv1.DeliverRequest) (*dispatcherv1.DeliverResponse, error) {
	select {
	case d.asked <- time.Now():
	default:
	}
	return &dispatcherv1.DeliverResponse{Delivery: &dispatcherv1.Delivery{Outcome: dispatcherv1.Outcome_OUTCOME_DELIVERED}}, nil
}

func (d *dispatcher) ListSessions(context.Context, *dispatcherv1.ListSessionsRequest) (*dispatcherv1.ListSessionsResponse, error) {
	return &dispatcherv1.ListSessionsResponse{}, nil
}

// newItems makes items that have no event yet, and returns the number of the first.
func (s *stage) newItems(ctx context.Context, n int) (int, error) {
	first := s.items + 1
	s.items += n
	_, err := s.pool.Exec(ctx, `
insert into poller.items (work_item, source, place, number) select 'github:o/r#' || i, 'manual', 'github:o/r', i from generate_series($1::int, $2::int) i`,
		first, s.items)
	return first, err
}

// insertEvents puts an event of each of n items into the ledger, due at once or not for a long time.
func (s *stage) insertEvents(ctx context.Context, first, n int, due bool) error {
	state, look := "held", "1 day"
	if due {
		state, look = "pending", "0"
	}
	_, err := s.pool.Exec(ctx, `
insert into poller.events (delivery_id, natural_key, work_item, source, kind, upstream_at, state, budget, next_look, text)
select 'bench-' || i, 'manual|' || i, 'github:o/r#' || i, 'manual', 'message', now(), $3::text, 3, now() + $4::text::interval, $5::text
from generate_series($1::int, $2::int) i`, first, first+n-1, state, look, text)
	return err
}
