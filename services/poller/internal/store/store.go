package store

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"muxpost.dev/muxpost/core/ledger"
	"muxpost.dev/muxpost/core/prompt"
	"muxpost.dev/muxpost/db"
	"muxpost.dev/muxpost/internal/obs"
	"muxpost.dev/muxpost/services/poller/internal/forward"
	"muxpost.dev/muxpost/services/poller/internal/metrics"
	"muxpost.dev/muxpost/services/poller/internal/notify"
	"muxpost.dev/muxpost/services/poller/internal/poll"
	"muxpost.dev/muxpost/services/poller/internal/rearm"
)

// Store is the poller's part of the database. It is safe for use by many goroutines and processes.
type Store struct {
	pool   *pgxpool.Pool
	quiet  *pgxpool.Pool
	tracer obs.Tracer
	meters *metrics.Metrics
	holder string

	version    func() ledger.Version
	notices    map[string]bool
	reactions  map[string]bool
	maySteer   func(source string, author poll.Author) bool
	loop       Loop
	coalescing ledger.Coalescing
	templates  *prompt.Set
}

var (
	_ poll.Ledger    = (*Store)(nil)
	_ poll.Ended     = (*Store)(nil)
	_ poll.Swept     = (*Store)(nil)
	_ poll.Acks      = (*Store)(nil)
	_ forward.Ledger = (*Store)(nil)
	_ rearm.Ledger   = (*Store)(nil)
	_ notify.Outbox  = (*Store)(nil)
)

// Config is what a Store is made from; the first five fields are required.
type Config struct {
	// Pool is for what belongs to a trace.
	Pool *pgxpool.Pool
	// Quiet is for what is asked again and again (is anything due?); a pool without a tracer, or Pool again.
	Quiet *pgxpool.Pool
	// Tracer starts the trace of each event.
	Tracer obs.Tracer
	// Metrics count what comes in; nil counts nothing.
	Metrics *metrics.Metrics
	// Holder names this process in leases.
	Holder string
	// Version returns what is running, as it was last heard of.
	Version func() ledger.Version
	// Notices are the names of the sources whose tickets may be written to.
	Notices []string
	// MaySteer says whose earlier comments go along as context; nobody's when nil.
	MaySteer func(source string, author poll.Author) bool
	// Loop bounds what may be written about one item within a time; the zero value does not.
	Loop Loop
	// Reactions are the names of the sources on which reactions are put.
	Reactions []string
	// Coalescing says when events that wait become one text.
	Coalescing ledger.Coalescing
	// Templates are for that text, and for context; the built-in ones when nil.
	Templates *prompt.Set
}

// Loop is a limit: more posts than Posts about one item, at different times within Within, are dropped. People do not write so much;
// programs that answer each other do.
type Loop struct {
	Posts  int
	Within time.Duration
}

// New returns a store. The caller closes the pools.
func New(config Config) *Store {
	s := &Store{
		pool: config.Pool, quiet: config.Quiet, tracer: config.Tracer, meters: config.Metrics, holder: config.Holder, version: config.Version,
		notices: map[string]bool{}, reactions: map[string]bool{}, maySteer: config.MaySteer, loop: config.Loop, coalescing: config.Coalescing,
		templates: config.Templates,
	}
	if s.meters == nil {
		s.meters = metrics.New(nil)
	}
	if s.templates == nil {
		s.templates = prompt.Default()
	}
	s.coalescing.Most = prompt.MaxEntries - 1
	if s.maySteer == nil {
		s.maySteer = func(string, poll.Author) bool { return false }
	}
	for _, name := range config.Notices {
		s.notices[name] = true
	}
	for _, name := range config.Reactions {
		s.reactions[name] = true
	}
	return s
}

// NewHolder returns a name for this process that no other has.
func NewHolder() string { return uuid.NewString() }

// Ping asks whether the database answers. The error is a fault.
func (s *Store) Ping(ctx context.Context) error {
	return db.Fault(s.quiet.Ping(ctx))
}

// exec runs one statement and returns how many rows it touched.
func exec(ctx context.Context, q querier, statement string, args pgx.NamedArgs) (int64, error) {
	tag, err := q.Exec(ctx, statement, args)
	return tag.RowsAffected(), db.Fault(err)
}
