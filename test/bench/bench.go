package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"muxpost.dev/muxpost/db/local"
	"muxpost.dev/muxpost/internal/obs"
	"muxpost.dev/muxpost/internal/obs/spanfile"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	pollerv1 "muxpost.dev/muxpost/proto/gen/muxpost/poller/v1"
	"muxpost.dev/muxpost/test/fakegithub"
	"muxpost.dev/muxpost/test/stack"
)

// patience is the longest wait for anything here.
const patience = 2 * time.Minute

const secret = "bench"

// bench is the product under measurement.
type bench struct {
	*stack.Stack
	items    int
	bin, dir string // the programs, and the database
	cluster  *local.Cluster
	baseline *baseline
	files    map[int]string // transcript of each item's agent
}

// event is one comment and what is known of its way.
type event struct {
	number         int
	text           string
	written, taken time.Time
	settled        time.Time // known only of those that came alone
}

func (b *bench) begin(ctx context.Context) (err error) {
	if b.bin, err = stack.Build(""); err != nil {
		return err
	}
	if b.dir, err = os.MkdirTemp("", "muxbench"); err != nil {
		return err
	}
	if err := os.Chmod(b.dir, 0o711); err != nil { //nolint:gosec // the database's user must get through
		return err
	}
	if b.cluster, err = local.Start(ctx, local.Options{Dir: filepath.Join(b.dir, "postgres")}); err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, b.cluster.URL("postgres"))
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, "create database bench")
	if err = errors.Join(err, conn.Close(ctx)); err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil { // the poller takes the port over
		return err
	}
	repo := fakegithub.Repo{
		Owner: stack.Owner, Name: stack.Repo, Associations: map[string]string{stack.Author: "MEMBER"},
		Hooks: []fakegithub.Hook{{URL: "http://" + address + "/webhooks/widgets", Secret: secret}},
	}
	for n := range b.items {
		repo.Issues = append(repo.Issues, fakegithub.Issue{Number: n + 1, Title: "The build is red", Author: stack.Author, Labels: []string{stack.Label}})
	}
	if b.Stack, err = stack.New(ctx, b.bin, fakegithub.Seed{Repos: []fakegithub.Repo{repo}}, os.Stderr); err != nil {
		return err
	}
	b.Env = append(b.Env, "MUXPOST_DATABASE_URL="+b.cluster.URL("bench"))
	if err := b.webhooks(address); err != nil {
		return err
	}
	if err := b.Up(ctx); err != nil {
		return err
	}
	b.files = map[int]string{}
	for n := range b.items {
		if _, err := b.WaitEvent(ctx, stack.Item(n+1), 0); err != nil {
			return err
		}
		s, err := b.Session(ctx, stack.Item(n+1))
		if err != nil || s == nil {
			return fmt.Errorf("%s has no session: %w", stack.Item(n+1), err)
		}
		b.files[n+1] = s.GetConversationId()
	}
	b.baseline, err = startBaseline(ctx, b.dir, b.cluster.URL("bench"))
	return err
}

// webhooks has the poller take webhooks, and look by itself so seldom that no event comes that way.
func (b *bench) webhooks(address string) error {
	file := filepath.Join(b.Dir, "webhook-secret")
	if err := os.WriteFile(file, []byte(secret+"\n"), 0o600); err != nil {
		return err
	}
	data, err := os.ReadFile(b.ConfigFile())
	if err != nil {
		return err
	}
	text := strings.Replace(string(data), "interval: 1s", "interval: 1h\n      webhook: true", 1)
	text = strings.Replace(text, "  sources:", fmt.Sprintf("  webhook: {listen: %q, secret_file: %s}\n  sources:", address, file), 1)
	return os.WriteFile(b.ConfigFile(), []byte(text), 0o600)
}

// end ends everything that was started.
func (b *bench) end() {
	ctx := context.Background()
	if b.baseline != nil {
		b.baseline.end()
	}
	if b.Stack != nil {
		b.Close(ctx)
	}
	if b.cluster != nil {
		_ = b.cluster.Stop(ctx)
	}
	_ = os.RemoveAll(b.dir)
	_ = os.RemoveAll(b.bin)
}

// text has 200 bytes, as a short comment does.
func text(n int) string {
	return fmt.Sprintf("%-200s", fmt.Sprintf("comment %06d: please look at this", n))
}

// mark finds a comment again among what an agent took.
func mark(n int) string { return fmt.Sprintf("comment %06d:", n) }

// figures are what was measured with nothing else under way, and the baselines, in turns with it.
type figures struct {
	events []*event
	// sum is a blind paste and a commit, one after the other, as the least that carries and records an event.
	sum, commits, calls, asks []time.Duration
	stages                    map[string][]time.Duration
}

// alone writes one comment after the other, to one agent after the other.
func (b *bench) alone(ctx context.Context, rounds int) (*figures, error) {
	f := &figures{}
	for n := range rounds {
		e := &event{number: n%b.items + 1, text: mark(n), written: time.Now()}
		if err := b.Comment(ctx, stack.Author, e.number, text(n)); err != nil {
			return nil, err
		}
		if err := b.took(ctx, []*event{e}); err != nil {
			return nil, err
		}
		entry, err := b.WaitEvent(ctx, stack.Item(e.number), n/b.items+1)
		if err != nil {
			return nil, err
		}
		if entry.GetState() != pollerv1.LedgerState_LEDGER_STATE_DELIVERED {
			return nil, fmt.Errorf("a comment is %s: %s", entry.GetState(), entry.GetDetail())
		}
		e.settled = entry.GetUpdateTime().AsTime()
		f.events = append(f.events, e)
		if err := b.bare(ctx, f, n, entry.GetDeliveryId()); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// bare measures the baselines once.
func (b *bench) bare(ctx context.Context, f *figures, n int, delivery string) error {
	pasted, err := timed(func() error { return b.baseline.paste(ctx, text(n)) })
	if err != nil {
		return err
	}
	committed, err := timed(func() error { return b.baseline.commit(ctx, text(n)) })
	if err != nil {
		return err
	}
	f.sum, f.commits = append(f.sum, pasted+committed), append(f.commits, committed)
	for range 5 {
		called, err := timed(func() error { return b.baseline.call(ctx) })
		if err != nil {
			return err
		}
		asked, err := timed(func() error {
			_, err := b.Dispatcher.GetDelivery(ctx, &dispatcherv1.GetDeliveryRequest{DeliveryId: delivery})
			return err
		})
		if err != nil {
			return err
		}
		f.calls, f.asks = append(f.calls, called), append(f.asks, asked)
	}
	return nil
}

// took waits until the agents have all these events in their transcripts, and notes when each was taken, as the agent wrote it.
func (b *bench) took(ctx context.Context, events []*event) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errors.New("not all comments arrived"))
	defer cancel()
	for tick := time.NewTicker(2 * time.Millisecond); ; {
		open := map[int][]*event{}
		for _, e := range events {
			if e.taken.IsZero() {
				open[e.number] = append(open[e.number], e)
			}
		}
		if len(open) == 0 {
			tick.Stop()
			return nil
		}
		for number, waiting := range open {
			lines, err := b.Conversation(b.files[number]).Lines()
			if err != nil {
				return err
			}
			for _, l := range lines {
				for _, e := range waiting {
					if l.Type == "user" && strings.Contains(l.Text, e.text) {
						e.taken = l.Time
					}
				}
			}
		}
		select {
		case <-ctx.Done():
			tick.Stop()
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// together writes many comments at once, each item's in order, and returns how many arrived in a second.
func (b *bench) together(ctx context.Context, n int) (rate float64, events []*event, err error) {
	const first = 500_000
	byItem := make([][]*event, b.items)
	for i := range n {
		e := &event{number: i%b.items + 1, text: mark(first + i)}
		byItem[i%b.items] = append(byItem[i%b.items], e)
		events = append(events, e)
	}
	var all sync.WaitGroup
	errs := make([]error, b.items)
	began := time.Now()
	for i, mine := range byItem {
		all.Go(func() {
			for k, e := range mine {
				e.written = time.Now()
				if errs[i] = b.Comment(ctx, stack.Author, e.number, text(first+k*b.items+i)); errs[i] != nil {
					return
				}
			}
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return 0, nil, err
	}
	if err := b.took(ctx, events); err != nil {
		return 0, nil, err
	}
	last := began
	for _, e := range events {
		if e.taken.After(last) {
			last = e.taken
		}
	}
	return float64(n) / last.Sub(began).Seconds(), events, nil
}

// The stages of an event's way, in order.
const (
	toLedger  = "comment written → row in the ledger"
	toAsk     = "row in the ledger → asked of the dispatcher"
	toPaste   = "asked of the dispatcher → ordered of tmuxd"
	toTaken   = "ordered of tmuxd → taken by the agent"
	toSettled = "taken by the agent → settled in the ledger"
)

// stages takes the way of each event apart, by its trace.
func (b *bench) stages(ctx context.Context, f *figures) error {
	f.stages = map[string][]time.Duration{}
	spans, err := spanfile.Read(obs.TracesDir(b.Dir), func(s spanfile.Span) bool {
		return s.Name == "forward.Deliver" || strings.HasSuffix(s.Name, "TmuxdService/Paste") && s.Kind == "client"
	})
	if err != nil {
		return err
	}
	began := map[string]map[spanfile.TraceID]time.Time{}
	for _, s := range spans { // by start: the first of each counts
		of := "paste"
		if s.Name == "forward.Deliver" {
			of = "ask"
		}
		if began[of] == nil {
			began[of] = map[spanfile.TraceID]time.Time{}
		}
		if _, there := began[of][s.TraceID]; !there {
			began[of][s.TraceID] = s.Start
		}
	}
	for number := 1; number <= b.items; number++ {
		rows, err := b.Events(ctx, stack.Item(number))
		if err != nil {
			return err
		}
		for i, e := range eventsOf(f.events, number) {
			row := rows[i+1] // the first began the session
			trace := spanfile.TraceID(row.GetTraceId())
			asked, ordered := began["ask"][trace], began["paste"][trace]
			if asked.IsZero() || ordered.IsZero() {
				return fmt.Errorf("the trace %s of %s lacks its spans", trace, row.GetDeliveryId())
			}
			created := row.GetCreateTime().AsTime()
			for stage, d := range map[string]time.Duration{
				toLedger: created.Sub(e.written), toAsk: asked.Sub(created), toPaste: ordered.Sub(asked), toTaken: e.taken.Sub(ordered),
				toSettled: e.settled.Sub(e.taken),
			} {
				f.stages[stage] = append(f.stages[stage], d)
			}
		}
	}
	return nil
}

func eventsOf(events []*event, number int) (out []*event) {
	for _, e := range events {
		if e.number == number {
			out = append(out, e)
		}
	}
	return out
}
