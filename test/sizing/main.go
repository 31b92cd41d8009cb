// Command sizing measures what an operator sizes an installation by, on a stack of its own: what an event takes in Postgres and on the disk of a
// host, what the services take while nothing happens, and how GitHub is asked. Everything in it is real but the server that speaks GitHub's API
// and the agent, which are bundled, so what agents take is not in it. It ends by itself.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	pollerv1 "muxpost.dev/muxpost/proto/gen/muxpost/poller/v1"
	"muxpost.dev/muxpost/test/fakegithub"
	"muxpost.dev/muxpost/test/stack"
)

// plan is how much is measured.
type plan struct {
	// items have an agent each, and events comments each besides the opening.
	items, events int
	// rows are how many events the database has when their size is measured.
	rows int
	// idle is how long nothing happens, and interval how often the source is looked at.
	idle, interval time.Duration
}

func main() {
	var p plan
	bin := flag.String("bin", "bin", "`directory` of the programs")
	flag.IntVar(&p.items, "items", 20, "work items, each with an agent")
	flag.IntVar(&p.events, "events", 15, "comments for each; 25 at most, because more within five minutes are dropped")
	flag.IntVar(&p.rows, "rows", 10_000, "events in the database when their size is measured")
	flag.DurationVar(&p.interval, "interval", time.Second, "how often the source is looked at")
	flag.DurationVar(&p.idle, "idle", 30*time.Second, "how long nothing happens")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *bin, p, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, bin string, p plan, out io.Writer) error {
	repo := fakegithub.Repo{Owner: stack.Owner, Name: stack.Repo, Associations: map[string]string{stack.Author: "MEMBER"}}
	for n := range p.items {
		repo.Issues = append(repo.Issues, fakegithub.Issue{Number: n + 1, Title: "The build is red", Author: stack.Author, Labels: []string{stack.Label},
			Body: "`make` fails since this morning. Please find out why and fix it."})
	}
	s, err := stack.New(ctx, bin, fakegithub.Seed{Repos: []fakegithub.Repo{repo}}, os.Stderr)
	if err != nil {
		return err
	}
	defer s.Close(ctx)
	s.Env = []string{"FAKEAGENT_TURN=50ms"}
	// Each event is to be one delivery.
	config, err := os.ReadFile(s.ConfigFile())
	if err != nil {
		return err
	}
	config = bytes.Replace(config, []byte("\npoller:\n"), []byte("\npoller:\n  digest_after: 0\n"), 1)
	config = bytes.Replace(config, []byte("interval: 1s"), []byte("interval: "+p.interval.String()), 1)
	if err := os.WriteFile(s.ConfigFile(), config, 0o600); err != nil {
		return err
	}
	if err := s.Up(ctx); err != nil {
		return err
	}
	db, err := pgx.Connect(ctx, "host="+filepath.Join(s.Dir, "postgres")+" user=postgres dbname=muxpost application_name=sizing")
	if err != nil {
		return err
	}
	defer db.Close(context.WithoutCancel(ctx)) //nolint:errcheck // Nothing is under way.
	m := &measuring{Stack: s, plan: p, db: db, out: out}
	for _, step := range []func(context.Context) error{m.deliver, m.connections, m.quiet, m.sizes} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// measuring is what is measured, under way.
type measuring struct {
	*stack.Stack
	plan
	db  *pgx.Conn
	out io.Writer
}

func (m *measuring) tell(format string, args ...any) {
	fmt.Fprintf(m.out, "sizing: "+format+"\n", args...) //nolint:errcheck // A terminal that is gone has no reader.
}

// text is a comment of an ordinary length.
const text = "I looked into it: the build began to fail with the change to the Makefile, because the generated files are not made any more before the " +
	"tests are compiled.\n\nPlease have `make test` depend on them again, and add a test that fails without it. See also what the linter says of the same file.\n"

// deliver has every agent told everything, and says what that left on the disk for each event.
func (m *measuring) deliver(ctx context.Context) error {
	if err := m.delivered(ctx, m.items); err != nil {
		return err
	}
	before := m.disk()
	for range m.events {
		for n := range m.items {
			if err := m.Comment(ctx, stack.Author, n+1, text); err != nil {
				return err
			}
		}
	}
	all := m.items * m.events
	if err := m.delivered(ctx, m.items+all); err != nil {
		return err
	}
	after := m.disk()
	each := func(name string) float64 { return float64(after[name]-before[name]) / float64(all) }
	m.tell("bytes_each_event journal=%.0f traces=%.0f log=%.0f", each("tmuxd/journal"), each("traces"), each("log"))
	m.tell("bytes_each_session tmuxd=%.0f", float64(after["tmuxd/sessions"]+after["tmuxd/records"]+after["tmuxd/tokens"])/float64(m.items))
	return nil
}

// delivered waits until so many events are in their conversations.
func (m *measuring) delivered(ctx context.Context, n int) error {
	limit, cancel := context.WithTimeoutCause(ctx, 10*time.Minute, errors.New("not everything was delivered within ten minutes"))
	defer cancel()
	for {
		var done, other int
		err := m.db.QueryRow(limit, `select count(*) filter (where state = 'delivered'), count(*) filter (where state in ('dropped', 'gave_up', 'settled'))
			from poller.events`).Scan(&done, &other)
		switch {
		case err != nil:
			return errors.Join(err, context.Cause(limit))
		case other > 0:
			return fmt.Errorf("%d events ended otherwise than delivered", other)
		case done >= n:
			return nil
		}
		if err := pause(limit, 200*time.Millisecond); err != nil {
			return err
		}
	}
}

// connections counts those of each service to Postgres.
func (m *measuring) connections(ctx context.Context) error {
	rows, err := m.db.Query(ctx, `select application_name, count(*) from pg_stat_activity where application_name like 'muxpost-%' group by 1 order by 1`)
	if err != nil {
		return err
	}
	var name string
	var n int
	_, err = pgx.ForEachRow(rows, []any{&name, &n}, func() error { m.tell("connections %s=%d", name, n); return nil })
	return err
}

// quiet says what everything takes while nothing happens but looks that find nothing.
func (m *measuring) quiet(ctx context.Context) error {
	requests := func() (*pollerv1.RequestCount, error) {
		res, err := m.Poller.ListSources(ctx, &pollerv1.ListSourcesRequest{})
		if err != nil {
			return nil, err
		}
		return res.GetSources()[0].GetRequests(), nil
	}
	commits := func() (n int64, err error) {
		err = m.db.QueryRow(ctx, `select xact_commit from pg_stat_database where datname = current_database()`).Scan(&n)
		return n, err
	}
	before, disk := m.processes(), m.disk()
	asked, err := requests()
	if err != nil {
		return err
	}
	committed, err := commits()
	if err != nil {
		return err
	}
	if err := pause(ctx, m.idle); err != nil {
		return err
	}
	after, grown := m.processes(), m.disk()
	askedSince, err := requests()
	if err != nil {
		return err
	}
	committedSince, err := commits()
	if err != nil {
		return err
	}
	seconds := m.idle.Seconds()
	for _, name := range []string{"tmuxd", "dispatcher", "poller", "postgres", "tmux", "wrappers"} {
		m.tell("idle sessions=%d interval=%v %s cpu_percent=%.2f pss_mib=%.1f", m.items, m.interval, name, (after[name].cpu-before[name].cpu)/seconds*100, float64(after[name].pss)/(1<<20))
	}
	looks := seconds / m.interval.Seconds()
	total := float64(askedSince.GetTotal() - asked.GetTotal())
	m.tell("github items=%d requests_each_look=%.1f not_free_each_look=%.2f", m.items, total/looks,
		(total-float64(askedSince.GetUnchanged()-asked.GetUnchanged()))/looks)
	m.tell("idle each_look: commits=%.1f looks_traces_bytes=%.0f other_traces_bytes=%.0f log_bytes=%.0f", float64(committedSince-committed)/looks,
		float64(grown["routine"]-disk["routine"])/looks, float64(grown["traces"]-disk["traces"])/looks, float64(grown["log"]-disk["log"])/looks)
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
