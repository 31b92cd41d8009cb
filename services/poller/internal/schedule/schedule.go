// Package schedule has River carry out what is to be written upstream, and delete what is old: one job at a time for each, whichever replica
// does it, and whichever replica leads. Nothing here is urgent: when the replica that leads dies, the next round comes after up to two minutes.
//
// It knows nothing of what is written or deleted. What fails is not tried again by River: the next interval does that.
package schedule

import (
	"context"
	"errors"
	"log/slog"
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
)

const (
	// notifyQueue and notifyInterval are for what is written upstream. A queue is for what it is for: a service that does not know its jobs
	// never fetches them.
	notifyQueue    = "poller_notify"
	notifyInterval = 5 * time.Second
	// forgetQueue and forgetInterval are for what is deleted by age.
	forgetQueue    = "poller_forget"
	forgetInterval = time.Hour
	// jobTime bounds a round; rescueTime, after which a job of a replica that died is made again, is more.
	jobTime    = 55 * time.Second
	rescueTime = 90 * time.Second
	// retention keeps finished jobs for as long as somebody might ask what happened.
	retention = time.Hour
	// softStop is how long a round may go on once Run is told to stop.
	softStop = 4 * time.Second
	hardStop = 8 * time.Second
)

// Config is what Run needs; every field but Notify is required.
type Config struct {
	// Pool is River's; it keeps one connection of it for itself.
	Pool *pgxpool.Pool
	// Schema is where River's tables are.
	Schema string
	// Forget deletes what is old enough.
	Forget func(ctx context.Context) error
	// Notify writes upstream what is due; nil when nothing may be written.
	Notify         func(ctx context.Context) error
	Logger         *slog.Logger
	TracerProvider trace.TracerProvider
}

// Run has the rounds made until ctx ends. It fails when River cannot be started.
func Run(ctx context.Context, config Config) error {
	workers := river.NewWorkers()
	err := river.AddWorkerSafely(workers,
		river.WorkFunc(func(ctx context.Context, _ *river.Job[forgetArgs]) error { return once(ctx, config.Forget) }))
	queues := map[string]river.QueueConfig{forgetQueue: {MaxWorkers: 1}}
	jobs := []*river.PeriodicJob{every(forgetInterval, forgetArgs{}, forgetQueue)}
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
	<-ctx.Done()
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), hardStop)
	defer cancel()
	if err := client.Stop(stopping); err != nil {
		return fault.Wrap(fault.Unavailable, fault.ReasonDeadline, "River did not stop in time", err)
	}
	return nil
}

func startFault(err error) error {
	if known := db.Fault(err); fault.KindOf(known) != fault.Internal {
		return known
	}
	return fault.Wrap(fault.Internal, fault.ReasonDatabase, "River cannot be started", err)
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
