// Package schedule has River look at each source at its interval, carry out what is to be written upstream, and delete what is old: one
// job at a time for each, whichever replica does it, and whichever replica leads. Writing and deleting have queues of their own, so that
// they delay no look.
//
// It knows nothing of what a look is, nor what is written. What fails is not tried again by River: the next interval does that.
package schedule

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"
	"github.com/riverqueue/rivercontrib/otelriver"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/trace"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/db"
	"muxpost.dev/muxpost/internal/obs"
	"muxpost.dev/muxpost/services/poller/internal/poll"
)

const (
	// queue is the poller's own: a service that does not know these jobs never fetches them.
	queue = "poller"
	// notifyQueue and notifyInterval are for what is written upstream.
	notifyQueue    = "poller_notify"
	notifyInterval = 5 * time.Second
	// forgetQueue and forgetInterval are for what is deleted by age.
	forgetQueue    = "poller_forget"
	forgetInterval = time.Hour
	// jobTime is a little more than a look may take; rescueTime, after which a job of a replica that died is made again, is more.
	jobTime    = poll.LookTime + 5*time.Second
	rescueTime = 90 * time.Second
	// retention keeps finished jobs for as long as somebody might ask what happened.
	retention = time.Hour
	// softStop is how long a look may go on once Run is told to stop.
	softStop = 4 * time.Second
	hardStop = 8 * time.Second
)

// Source is a source and how often it is looked at.
type Source struct {
	Name     string
	Interval time.Duration
}

// Config is what Run needs; every field but Notify is required.
type Config struct {
	// Pool is River's; it keeps one connection of it for itself.
	Pool *pgxpool.Pool
	// Schema is where River's tables are.
	Schema  string
	Sources []Source
	// Look looks at a source once.
	Look func(ctx context.Context, source string) error
	// Forget deletes what is old enough.
	Forget func(ctx context.Context) error
	// Notify writes upstream what is due; nil when nothing may be written.
	Notify         func(ctx context.Context) error
	Logger         *slog.Logger
	TracerProvider trace.TracerProvider
}

// Run has the sources looked at until ctx ends. It fails when River cannot be started.
func Run(ctx context.Context, config Config) error {
	workers := river.NewWorkers()
	err := errors.Join(river.AddWorkerSafely(workers, &worker{look: config.Look}), river.AddWorkerSafely(workers,
		river.WorkFunc(func(ctx context.Context, _ *river.Job[forgetArgs]) error { return once(ctx, config.Forget) })))
	queues := map[string]river.QueueConfig{queue: {MaxWorkers: max(4, len(config.Sources))}, forgetQueue: {MaxWorkers: 1}}
	jobs := append(periodic(config.Sources), every(forgetInterval, forgetArgs{}, forgetQueue))
	if config.Notify != nil {
		err = errors.Join(err, river.AddWorkerSafely(workers,
			river.WorkFunc(func(ctx context.Context, _ *river.Job[notifyArgs]) error { return once(ctx, config.Notify) })))
		queues[notifyQueue] = river.QueueConfig{MaxWorkers: 1}
		jobs = append(jobs, every(notifyInterval, notifyArgs{}, notifyQueue))
	}
	if err != nil {
		return fault.Wrap(fault.Internal, "", "River does not take a job", err)
	}
	client, err := river.NewClient(riverpgxv5.New(config.Pool), &river.Config{
		Schema:                      config.Schema,
		Queues:                      queues,
		Workers:                     workers,
		PeriodicJobs:                jobs,
		FetchCooldown:               5 * time.Millisecond,
		FetchOnlyKnownKinds:         true,
		JobTimeout:                  jobTime,
		RescueStuckJobsAfter:        rescueTime,
		CompletedJobRetentionPeriod: retention,
		CancelledJobRetentionPeriod: retention,
		DiscardedJobRetentionPeriod: 24 * time.Hour,
		MaxAttempts:                 1,
		SoftStopTimeout:             softStop,
		Logger:                      config.Logger,
		Middleware: []rivertype.Middleware{otelriver.NewMiddleware(&otelriver.MiddlewareConfig{
			EnableTracePropagation: true, TracerProvider: config.TracerProvider, MeterProvider: metricnoop.NewMeterProvider(),
		})},
	})
	if err != nil {
		return fault.Wrap(fault.Internal, fault.ReasonBadConfig, "River does not take its configuration", err)
	}
	if err := client.Start(context.WithoutCancel(ctx)); err != nil {
		return startFault(err)
	}
	first := lookFirst(ctx, config)
	<-ctx.Done()
	first.Wait()
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), hardStop)
	defer cancel()
	if err := client.Stop(stopping); err != nil {
		return fault.Wrap(fault.Unavailable, fault.ReasonDeadline, "River did not stop in time", err)
	}
	return nil
}

// lookFirst looks at every source at once: after a crash River has no leader for a quarter of a minute, and a job that a dead process
// left running keeps the next one away for longer. A source that is being looked at already is left alone by the look itself.
func lookFirst(ctx context.Context, config Config) *sync.WaitGroup {
	var looks sync.WaitGroup
	for _, source := range config.Sources {
		looks.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, jobTime)
			defer cancel()
			// What fails is recorded by the look, and the next interval tries again.
			if err := config.Look(ctx, source.Name); err != nil {
				config.Logger.DebugContext(ctx, "the first look failed", obs.KeySource, source.Name, obs.KeyError, err)
			}
		})
	}
	return &looks
}

func startFault(err error) error {
	if known := db.Fault(err); fault.KindOf(known) != fault.Internal {
		return known
	}
	return fault.Wrap(fault.Internal, fault.ReasonDatabase, "River cannot be started", err)
}

// periodic returns one job a source.
func periodic(sources []Source) []*river.PeriodicJob {
	jobs := make([]*river.PeriodicJob, len(sources))
	for i, s := range sources {
		jobs[i] = every(s.Interval, lookArgs{Source: s.Name}, queue)
	}
	return jobs
}

// every returns a job that is made at once and then at an interval.
func every(interval time.Duration, args river.JobArgs, queue string) *river.PeriodicJob {
	return river.NewPeriodicJob(river.PeriodicInterval(interval), func() (river.JobArgs, *river.InsertOpts) { return args, oneAtATime(queue) },
		&river.PeriodicJobOpts{RunOnStart: true})
}

// oneAtATime has the next job not made while one waits or runs.
func oneAtATime(queue string) *river.InsertOpts {
	return &river.InsertOpts{Queue: queue, MaxAttempts: 1, UniqueOpts: river.UniqueOpts{
		ByArgs: true, ByQueue: true, ByState: []rivertype.JobState{
			rivertype.JobStateAvailable, rivertype.JobStatePending, rivertype.JobStateRetryable, rivertype.JobStateRunning,
			rivertype.JobStateScheduled,
		},
	}}
}

// lookArgs is one look at one source.
type lookArgs struct {
	Source string `json:"source"`
}

// Kind is the job's name in River's tables.
func (lookArgs) Kind() string { return "poller.look" }

type worker struct {
	river.WorkerDefaults[lookArgs]
	look func(context.Context, string) error
}

// Work looks. An error means that there is no such source here: a job of a replica with another configuration.
func (w *worker) Work(ctx context.Context, job *river.Job[lookArgs]) error {
	if err := w.look(ctx, job.Args.Source); err != nil {
		return river.JobCancel(err)
	}
	return nil
}

// notifyArgs is one round of what is to be written upstream.
type notifyArgs struct{}

// Kind is the job's name in River's tables.
func (notifyArgs) Kind() string { return "poller.notify" }

// forgetArgs is one round of deleting.
type forgetArgs struct{}

// Kind is the job's name in River's tables.
func (forgetArgs) Kind() string { return "poller.forget" }

// once does a round of something. An error is the ledger's: the next interval tries again.
func once(ctx context.Context, round func(context.Context) error) error {
	if err := round(ctx); err != nil {
		return river.JobCancel(err)
	}
	return nil
}
