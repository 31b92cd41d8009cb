// Command muxpost-dispatcher decides what each delivery needs and has it done on the host of its session. It keeps which session
// owns which work item, the deliveries with their outcomes, and the events that people follow, in Postgres.
package main

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"time"

	"muxpost.dev/muxpost/core/dispatch"
	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/ledger"
	"muxpost.dev/muxpost/core/workitem"
	"muxpost.dev/muxpost/db"
	"muxpost.dev/muxpost/db/local"
	"muxpost.dev/muxpost/db/migrations"
	"muxpost.dev/muxpost/db/tokens"
	"muxpost.dev/muxpost/internal/access"
	"muxpost.dev/muxpost/internal/identity"
	"muxpost.dev/muxpost/internal/layout"
	"muxpost.dev/muxpost/internal/obs"
	"muxpost.dev/muxpost/internal/obs/scrape"
	"muxpost.dev/muxpost/internal/rpc"
	"muxpost.dev/muxpost/internal/run"
	"muxpost.dev/muxpost/internal/settings"
	"muxpost.dev/muxpost/internal/validity"
	"muxpost.dev/muxpost/internal/version"
	"muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1/dispatcherv1connect"
	"muxpost.dev/muxpost/proto/gen/muxpost/team/v1/teamv1connect"
	"muxpost.dev/muxpost/services/dispatcher/internal/deliver"
	"muxpost.dev/muxpost/services/dispatcher/internal/endings"
	"muxpost.dev/muxpost/services/dispatcher/internal/enroll"
	"muxpost.dev/muxpost/services/dispatcher/internal/forget"
	"muxpost.dev/muxpost/services/dispatcher/internal/hints"
	"muxpost.dev/muxpost/services/dispatcher/internal/hosts"
	"muxpost.dev/muxpost/services/dispatcher/internal/idle"
	"muxpost.dev/muxpost/services/dispatcher/internal/metrics"
	"muxpost.dev/muxpost/services/dispatcher/internal/server"
	"muxpost.dev/muxpost/services/dispatcher/internal/store"
	"muxpost.dev/muxpost/services/dispatcher/internal/team"
)

const (
	// draining is how long deliveries under way may go on after a signal: their own limit, and a little to answer in.
	draining = deliver.Limit + 2*time.Second
	// healthEvery is how often the database is asked whether it answers, and healthTime how long it may take.
	healthEvery = 3 * time.Second
	healthTime  = 2 * time.Second
)

const databaseHelp = `                    Where neither the configuration nor the environment names a
                    database, it is the one that muxpost up keeps in the data
                    directory, as long as that runs
`

func main() {
	run.Main("muxpost-dispatcher", func(ctx context.Context) error {
		return start(ctx, os.Args[1:], settings.Here(), os.Stdout, os.Stderr)
	})
}

// start answers --help and --version, or serves with the configuration that args and the surroundings name.
func start(ctx context.Context, args []string, here settings.Where, stdout, stderr io.Writer) error {
	program := settings.Program{
		Service: layout.Dispatcher, About: "decides what each delivery needs and has it done on the host of its session.", FlagsHelp: databaseHelp,
	}
	where, text, err := program.Parse(args, here)
	if err != nil || text != "" {
		_, _ = io.WriteString(stdout, text) // whoever closed it does not want to know
		return err
	}
	s, err := settings.LoadService(where, layout.Dispatcher)
	if err != nil {
		return err
	}
	url, err := local.ServiceURL(ctx, s, layout.Dispatcher)
	if err != nil {
		return err
	}
	reader, page, err := scrape.New()
	if err != nil {
		return err
	}
	telemetry, err := obs.Setup(ctx, obs.Config{
		Service: "dispatcher", DataDir: string(s.DataDir), LogLevel: s.Dispatcher.LogLevel, Stderr: stderr, Reader: reader,
	})
	if err != nil {
		return err
	}
	defer telemetry.Shutdown(ctx)
	return serve(ctx, s.Dispatcher, string(s.DataDir), url, telemetry, page)
}

// serve runs the service until ctx ends; page shows its metrics.
func serve(ctx context.Context, config settings.Dispatcher, dataDir, url string, telemetry *obs.Telemetry, page http.Handler) error {
	provider := telemetry.MeterProvider()
	pool, err := db.Open(ctx, db.Config{URL: url, AppName: "muxpost-dispatcher", TracerProvider: telemetry.TracerProvider(), MeterProvider: provider})
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := migrations.Check(ctx, pool); err != nil {
		return err
	}
	records := store.New(pool)
	meter := obs.NewMeter(provider, "dispatcher")
	measured := metrics.New(meter)

	hub, changed := hints.New(), hints.New()
	fleet, err := hosts.NewFleet(hosts.FleetConfig{
		Hosts: addresses(config), Registry: records, Tokens: records, Activities: records, Labels: labels(config.Placement), Tell: hub.Tell,
		TellAttempt: changed.Tell, Logger: telemetry.Logger, TracerProvider: telemetry.TracerProvider(), MeterProvider: provider,
		TLS: knownBy(config.TLS.Files()), Silent: func(host string) { measured.BreakerOpened.Add(ctx, 1, host) },
	})
	if err != nil {
		return err
	}
	defer fleet.Close()
	measured.Observe(meter, records.Figures, func() []metrics.Host { return standing(fleet.Statuses()) })
	validity.Observe(obs.NewMeter(provider, "certificate"), filesOf(config.TLS.Files()), time.Now)
	// Before the first lease, so that its token is already one that the hosts accept.
	fleet.Meet(ctx)

	own := ownBuild()
	deliverer := deliver.New(deliver.Config{
		Store: records, Hosts: fleet, Logger: telemetry.Logger, Tracer: telemetry.Tracer("dispatcher/deliver"), Metrics: measured,
		Process: processName(), Harness: config.Harness, Resume: config.Resume, Forbids: forbids(config.FirstSpawn),
		Shadow: config.Shadow, Breaker: dispatch.Breaker(config.Breaker), Attempts: records,
		Version: func(host string) dispatch.Version { return versionOf(own, buildOn(fleet, host)) },
	})

	policy, err := policies(config.Teams)
	if err != nil {
		return err
	}
	instance, lock, err := openInstance(dataDir)
	if err != nil {
		telemetry.Logger.WarnContext(ctx, "what an earlier dispatcher coordinated is waited for until its leases end", obs.KeyError, err)
	} else {
		defer lock.Close()
	}
	teams := team.New(team.Config{
		Policy: policy, Shadow: config.Shadow, Instance: instance,
		Store: records, Hosts: fleet, Hints: changed, Logger: telemetry.Logger, Tracer: telemetry.Tracer("dispatcher/team"), Process: processName(),
	})

	news, bearers := hints.New(), tokens.New(pool)
	service := server.New(server.Config{
		Deliverer: deliverer, Records: records, Hosts: fleet, Hints: hub, News: news, Build: own, Tokens: bearers, Logger: telemetry.Logger,
		Enroller: enroll.New(enroll.Config{Dir: config.CADir, Invitations: bearers, Logger: telemetry.Logger, Now: time.Now}),
	})
	api, err := access.Open(access.Config{Listen: config.Listen, Remote: config.TLS.Listen, Files: filesOf(config.TLS.Files()), Tokens: bearers,
		Logger: telemetry.Logger, TracerProvider: telemetry.TracerProvider(), MeterProvider: provider, Metrics: page, StopTimeout: draining,
	}, func(s *rpc.ConnectServer) {
		dispatcherv1connect.RegisterDispatcherServiceHandler(s.RPC(), service)
		teamv1connect.RegisterTeamServiceHandler(s.RPC(), server.NewTeams(teams, records, fleet, news))
	})
	if err != nil {
		return err
	}
	if config.Shadow {
		telemetry.Logger.WarnContext(ctx, "shadow mode: sessions are looked at, and nothing is started or typed")
	}
	telemetry.Logger.InfoContext(ctx, "the dispatcher is ready", obs.KeyAddress, strings.Join(api.Addresses(), " "), obs.KeyVersion, version.String())

	group := run.Group{StopTimeout: draining + 2*time.Second}
	api.Join(&group)
	group.Add("hosts", fleet.Run)
	group.Add("teams", teams.Run)
	if config.Idle.End && config.Idle.After > 0 {
		group.Add("idle", func(ctx context.Context) error { return idle.Run(ctx, deliverer, config.Idle.After, telemetry.Logger) })
	}
	group.Add("endings", func(ctx context.Context) error { return endings.Run(ctx, deliverer, hub, telemetry.Logger) })
	group.Add("listen", func(ctx context.Context) error {
		return records.Listen(ctx, func() { news.Tell(hints.Any) }, telemetry.Logger)
	})
	group.Add("forget", func(ctx context.Context) error {
		return forget.Run(ctx, records, forget.Keep{Deliveries: config.Retention, Undelivered: config.UndeliveredRetention, Events: config.EventsRetention}, telemetry.Logger)
	})
	group.Add("health", func(ctx context.Context) error {
		return watchHealth(ctx, records, api, telemetry.Logger, healthEvery)
	})
	return group.Run(ctx)
}

// standing is how hosts stand, in the words of metrics. One that was never reached under a configuration that names none has no name to
// be told under.
func standing(statuses []deliver.HostStatus) (out []metrics.Host) {
	for _, s := range statuses {
		if s.Name != "" {
			out = append(out, metrics.Host{Name: s.Name, Reached: s.Reached, Draining: s.Record.Draining, KeptAway: !s.KeptAway.IsZero(),
				Sessions: s.Live, Capacity: s.Capacity, Warnings: len(s.Warnings)})
		}
	}
	return out
}

// addresses are the hosts of the configuration: several by name, or one that says its name itself.
func addresses(config settings.Dispatcher) (out []hosts.Address) {
	for _, h := range config.Hosts {
		out = append(out, hosts.Address{Name: h.Name, Address: h.Address})
	}
	if !config.Listed() {
		out = append(out, hosts.Address{Name: config.Host.Name, Address: config.Host.Address})
	}
	return out
}

// knownBy says by what a host is known: on another machine by a certificate for its name, and so on this one where tls is set and it is not
// reached by a socket.
func knownBy(files settings.TLS) func(name, address string) (*tls.Config, error) {
	return func(name, address string) (*tls.Config, error) {
		switch {
		case strings.HasPrefix(address, "unix:") || !files.On() && !settings.IsRemote(address):
			return nil, nil
		case !files.On():
			return nil, fault.Newf(fault.Invalid, fault.ReasonBadConfig, "%s is another machine's address, and this dispatcher has no certificate to show", address).
				WithRemedy("set dispatcher.tls")
		}
		return filesOf(files).Client(func(id identity.ID) bool { return id == identity.Host(name) })
	}
}

func filesOf(t settings.TLS) identity.Files {
	return identity.Files{Cert: t.CertFile, Key: t.KeyFile, CA: t.CAFile}
}

// labels says which labels a host must have for a work item: those of the first entry that matches its repository.
func labels(placement []settings.Placement) func(string) map[string]string {
	return func(workItem string) map[string]string {
		ref, err := workitem.Parse(workItem)
		if err != nil {
			return nil
		}
		for _, p := range placement {
			if p.Matches(ref.Owner(), ref.Repo()) {
				return p.Labels
			}
		}
		return nil
	}
}

func ownBuild() deliver.Build {
	b := version.Get()
	return deliver.Build{Program: string(layout.Dispatcher), Release: b.Release(), Commit: b.Commit, Dirty: b.Dirty}
}

// buildOn is what a host runs; nothing is known of one that was not reached.
func buildOn(fleet *hosts.Fleet, host string) deliver.Build {
	for _, b := range fleet.Builds() {
		if b.Host == host {
			return b
		}
	}
	return deliver.Build{Program: string(layout.Tmuxd)}
}

// versionOf is the version that builds make together, named as the ledger names its own.
func versionOf(builds ...deliver.Build) dispatch.Version {
	var named []ledger.Build
	for _, b := range builds {
		named = append(named, ledger.Build{Program: b.Program, Release: b.Release, Commit: b.Commit, Dirty: b.Dirty})
	}
	v := ledger.VersionOf(named...)
	return dispatch.Version{Name: v.Name, Distinct: v.Rearms}
}

// forbids says which kinds of events may not start a first session under a policy of the configuration.
func forbids(firstSpawn string) func(deliver.Kind) bool {
	switch firstSpawn {
	case settings.FirstSpawnNever:
		return func(deliver.Kind) bool { return true }
	case settings.FirstSpawnOpened:
		return func(k deliver.Kind) bool { return k != deliver.Opened && k != deliver.Message }
	}
	return nil
}

// pinger is a database that can be asked whether it answers.
type pinger interface {
	Ping(ctx context.Context) error
}

// health is what a server says of itself.
type health interface {
	Set(service string, serving bool)
}

// watchHealth says that the service serves while the database answers, and logs each change.
func watchHealth(ctx context.Context, database pinger, health health, log *slog.Logger, every time.Duration) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for serving := true; ; {
		ping, cancel := context.WithTimeout(ctx, healthTime)
		err := database.Ping(ping)
		cancel()
		if ctx.Err() != nil {
			return nil
		}
		health.Set("", err == nil)
		health.Set(dispatcherv1connect.DispatcherServiceName, err == nil)
		switch {
		case serving && err != nil:
			log.WarnContext(ctx, "the database does not answer; nothing is delivered until it does", obs.KeyError, err)
		case !serving && err == nil:
			log.InfoContext(ctx, "the database answers again")
		}
		serving = err == nil
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}
