package drill

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"muxpost.dev/muxpost/db"
	"muxpost.dev/muxpost/db/migrations"
)

// Options say what is run, and how.
type Options struct {
	// Dir is an empty directory for everything; its path is short, because sockets lie below it.
	Dir string
	// Bin holds the programs, and Next those of another build, to which a rolling upgrade goes in the middle.
	Bin, Next string
	// Clocks says that the programs are built so that their clocks can be stepped.
	Clocks bool
	// Channel is how deliveries reach the agents: paste or socket.
	Channel string
	Seed    uint64
	// Steps is how many events are told, Rate how many a second, to the agents of so many Items.
	Steps, Items int
	Rate         float64
	// Interval is how often GitHub is read.
	Interval time.Duration
	// Faults are what breaks.
	Faults []Fault
	// Settle is how long everything may take to arrive once nothing breaks any more.
	Settle time.Duration
	// Keep leaves everything in Dir; what was on the hosts' disks is copied there.
	Keep bool
	Log  func(format string, args ...any)
}

// Run runs the drill once. An error means that there is no verdict.
func Run(ctx context.Context, o Options) (v Verdict, err error) {
	f, err := newFleet(ctx, o)
	if err != nil {
		return v, err
	}
	defer f.Close()
	if err := f.ready(ctx); err != nil {
		return v, err
	}
	w := newWatcher(f)
	done, watched := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		w.run(done)
	}()
	books := newBookkeeper(f.centers()...)
	kept := make(chan error, 1)
	go func() { kept <- books.run(done) }()
	n, l := newNemesis(f, w, o.Faults), newLoad(f)
	began := time.Now()
	err = drive(ctx, f, n, l)
	n.rest()
	told := l.flush()
	if err == nil {
		f.Log("told %d events in %v; broken:%s", len(told), time.Since(began).Round(time.Second), n)
		err = settle(ctx, f, n, told)
	}
	close(done)
	<-watched
	if err = errors.Join(err, <-kept); err != nil {
		return v, err
	}
	e, err := f.evidence(ctx, w, n, told)
	e.accounts = books.accounts
	if err != nil {
		return v, err
	}
	v = judge(e)
	v.Seed = o.Seed
	return v, nil
}

// prepare makes the database and brings it to the schema.
func prepare(ctx context.Context, p *postgres) (*pgxpool.Pool, error) {
	conn, err := pgx.Connect(ctx, p.cluster.URL("postgres"))
	if err != nil {
		return nil, err
	}
	_, err = conn.Exec(ctx, "create database "+database)
	if err = errors.Join(err, conn.Close(ctx)); err != nil {
		return nil, err
	}
	pool, err := db.Open(ctx, db.Config{URL: p.url, AppName: "drill"})
	if err != nil {
		return nil, err
	}
	if _, err = migrations.Up(ctx, pool, nil); err == nil {
		_, err = pool.Exec(ctx, moments)
	}
	if err != nil {
		pool.Close()
		return nil, err
	}
	return pool, nil
}

// moments has the database write down when each event was about to be committed, and when the statement began that first claimed it: what that
// statement could see was decided then, however long it took. The product knows nothing of it.
const moments = `
create schema drill;
create table drill.moments (delivery_id text primary key, known timestamptz, claimed timestamptz);
create function drill.know() returns trigger language plpgsql as $$ begin
	insert into drill.moments (delivery_id, known) values (new.delivery_id, clock_timestamp())
		on conflict (delivery_id) do update set known = excluded.known;
	return null; end $$;
create function drill.claim() returns trigger language plpgsql as $$ begin
	update drill.moments set claimed = statement_timestamp() where delivery_id = new.delivery_id and claimed is null;
	return null; end $$;
create constraint trigger drill_know after insert on poller.events deferrable initially deferred for each row execute function drill.know();
create trigger drill_claim after update of state on poller.events for each row when (new.state = 'leased') execute function drill.claim();`

// ready waits until every item was seen upstream, with its pull request: what was there before would be no event.
func (f *fleet) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyTime, errors.New("the fleet does not get ready"))
	defer cancel()
	for {
		var seen int
		err := f.pool.QueryRow(ctx, `select (select count(*) from poller.items where baselined_at is not null)
			+ (select count(*) from poller.pulls where work_item is not null and seen_updated_at is not null)`).Scan(&seen)
		if err == nil && seen == 2*f.Items {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// readyTime is how long the fleet may take before anything is told.
const readyTime = time.Minute

// drive goes through the steps. The clock only paces them: what happens at each was decided by the seed.
func drive(ctx context.Context, f *fleet, n *nemesis, l *load) error {
	tick := time.NewTicker(time.Duration(float64(time.Second) / f.Rate))
	defer tick.Stop()
	for step := range f.Steps {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
		n.step(ctx, step)
		if err := l.tell(Tell(f.Seed, step, f.Items)); err != nil {
			return fmt.Errorf("the drill's own GitHub does not take an event: %w", err)
		}
	}
	return nil
}

// settle waits until everything that was told has ended. What has not by then is judged as it stands.
func settle(ctx context.Context, f *fleet, n *nemesis, all []told) error {
	began, last := time.Now(), ""
	for round := 0; time.Since(began) < f.Settle; round++ {
		if round%10 == 5 {
			n.tidy()
		}
		open := ""
		found, err := rows(ctx, f.pool)
		if err != nil {
			open = err.Error()
		}
		known := words(evidence{rows: found})
		for _, t := range all {
			if r, ok := known[Word(t.Item, t.Step)]; !ok {
				open = fmt.Sprintf("%s, told %s, is not in the ledger", Word(t.Item, t.Step), t.How)
			} else if r.waits() {
				open = fmt.Sprintf("%s is %s (%s): %s", Word(t.Item, t.Step), r.State, r.Reason, r.Detail)
			}
		}
		if open == "" && err == nil {
			f.Log("everything has ended %v after the last fault was mended; the last to end was: %s", time.Since(began).Round(time.Second), last)
			return nil
		}
		last = open
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(500 * time.Millisecond):
		}
	}
	f.Log("not everything has ended within %v: %s", f.Settle, last)
	return nil
}

// evidence gathers what there is to judge by.
func (f *fleet) evidence(ctx context.Context, w *watcher, n *nemesis, all []told) (e evidence, err error) {
	e = evidence{told: all, guests: n.typedAtGuests(), lost: w.lost, deaths: w.deaths(), seen: w.seen, twins: w.twins}
	if e.conversations, err = conversations(f); err != nil {
		return e, err
	}
	if e.refused, err = refusals(f); err != nil {
		return e, err
	}
	if e.rows, err = rows(ctx, f.pool); err != nil {
		return e, err
	}
	for _, a := range w.gone {
		if w.spared(a) {
			e.gone = append(e.gone, a)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	e.crashes = f.crashes
	return e, nil
}
