package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/ledger"
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
	"muxpost.dev/muxpost/proto/gen/muxpost/poller/v1/pollerv1connect"
	"muxpost.dev/muxpost/services/poller/internal/dispatch"
	"muxpost.dev/muxpost/services/poller/internal/forward"
	"muxpost.dev/muxpost/services/poller/internal/github"
	"muxpost.dev/muxpost/services/poller/internal/metrics"
	"muxpost.dev/muxpost/services/poller/internal/notify"
	"muxpost.dev/muxpost/services/poller/internal/poll"
	"muxpost.dev/muxpost/services/poller/internal/rearm"
	"muxpost.dev/muxpost/services/poller/internal/schedule"
	"muxpost.dev/muxpost/services/poller/internal/server"
	"muxpost.dev/muxpost/services/poller/internal/store"
)

const (
	section = string(layout.Poller)
	// healthInterval is how often the database is asked whether it answers, and healthTime how long it may take.
	healthInterval = 2 * time.Second
	healthTime     = 2 * time.Second
	// closeTime bounds the wait for connections that were not given back.
	closeTime = 2 * time.Second
	// loopTime is within which more than poller.loop_posts posts about one item are taken for a loop.
	loopTime = 5 * time.Minute
	// spareConns are for looks and RPCs, beside one for each worker; quietConns for River, for the claims and for webhooks.
	spareConns = 8
	quietConns = 12
)

// parts are what the poller is made of.
type parts struct {
	telemetry   *obs.Telemetry
	metrics     *metrics.Metrics
	page        http.Handler // of the metrics
	pool, quiet *pgxpool.Pool
	conn        *grpc.ClientConn
	sources     []*github.Client
	store       *store.Store
	poller      *poll.Poller
	asked       *dispatch.Client
	forwarder   *forward.Forwarder
	retrier     *poll.Retrier
	notifier    *notify.Notifier
	hooks       hooks
	wake        chan struct{}
	retention   time.Duration
}

// buildOf returns the poller's own part of the version that events give up under.
func buildOf(i version.Info) ledger.Build {
	return ledger.Build{Program: section, Release: i.Release(), Commit: i.Commit, Dirty: i.Dirty}
}

// assemble opens what the poller needs. A database that does not answer is fault.Unavailable; one with another schema is
// fault.Conflict.
func assemble(ctx context.Context, s settings.Settings, own ledger.Build, stderr io.Writer) (_ *parts, err error) {
	p, c := &parts{wake: make(chan struct{}, 1), retention: s.Poller.Retention}, s.Poller
	url, err := local.ServiceURL(ctx, s, layout.Poller)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			p.close(ctx)
		}
	}()
	reader, page, err := scrape.New()
	if err != nil {
		return nil, err
	}
	p.page = page
	p.telemetry, err = obs.Setup(ctx, obs.Config{Service: section, DataDir: string(s.DataDir), LogLevel: c.LogLevel, Stderr: stderr, Reader: reader})
	if err != nil {
		return nil, err
	}
	dbConfig := db.Config{URL: url, AppName: "muxpost-poller", MaxConns: int32(c.Workers + spareConns)}
	dbConfig.TracerProvider, dbConfig.MeterProvider = p.telemetry.TracerProvider(), p.telemetry.MeterProvider()
	if p.pool, err = db.Open(ctx, dbConfig); err != nil {
		return nil, err
	}
	if err = migrations.Check(ctx, p.pool); err != nil {
		return nil, err
	}
	// What is asked every second would fill the traces with one-line stories.
	dbConfig.TracerProvider, dbConfig.MaxConns, dbConfig.Pool = nil, quietConns, "muxpost-poller-quiet"
	dbConfig.EndIdle = true // River begins transactions itself, and who leads is decided in one
	if p.quiet, err = db.Open(ctx, dbConfig); err != nil {
		return nil, err
	}
	dial := rpc.DialOptions{Name: "the dispatcher", Silent: fault.ReasonDispatcherSilent, TracerProvider: p.telemetry.TracerProvider(),
		MeterProvider: p.telemetry.MeterProvider()}
	// As dispatchers call hosts: whoever has a certificate shows it wherever it is not a socket that is called.
	if c.TLS.Files().On() && !strings.HasPrefix(c.Dispatcher, "unix:") {
		if dial.TLS, err = filesOf(c.TLS).Client(func(id identity.ID) bool { return id == identity.Dispatcher }); err != nil {
			return nil, err
		}
	}
	if p.conn, err = rpc.Dial(c.Dispatcher, dial); err != nil {
		return nil, err
	}
	return p, p.compose(c, own)
}

func filesOf(t settings.ServerTLS) identity.Files {
	return identity.Files{Cert: t.CertFile, Key: t.KeyFile, CA: t.CAFile}
}

// compose makes the poller's own parts on what was opened.
func (p *parts) compose(c settings.Poller, own ledger.Build) error {
	tracer, log := p.telemetry.Tracer(section), p.telemetry.Logger
	holder := store.NewHolder()
	meter := obs.NewMeter(p.telemetry.MeterProvider(), section)
	p.metrics = metrics.New(meter)
	templates, err := c.TemplateSet()
	if err != nil {
		return err
	}
	watched, tickets, err := p.watch(c)
	if err != nil {
		return err
	}
	p.asked = dispatch.New(p.conn, own)
	p.store = store.New(store.Config{
		Pool: p.pool, Quiet: p.quiet, Tracer: tracer, Metrics: p.metrics, Holder: holder, Version: p.asked.Known,
		Notices: named(c.Sources, func(s settings.Source) bool { return s.Notices }), Reactions: named(c.Sources, func(s settings.Source) bool { return s.Reactions }),
		MaySteer:   func(source string, author poll.Author) bool { return p.poller.MaySteer(source, author) },
		Loop:       store.Loop{Posts: c.LoopPosts, Within: loopTime},
		Coalescing: ledger.Coalescing{After: c.DigestAfter, Together: c.CoalesceChecks}, Templates: templates,
	})
	rearmer := rearm.New(p.store, p.asked, log, p.metrics)
	p.poller = poll.New(poll.Config{
		Ledger: p.store, Rearmer: rearmer, Sources: watched, Holder: holder, Budget: c.Budget, Templates: templates, Logger: log, Tracer: tracer,
		Metrics: p.metrics, Now: time.Now,
	})
	p.retrier = poll.NewRetrier(p.store, p.asked, log)
	p.notifier = notify.New(p.store, tickets, poll.NewCommander(p.store, p.retrier, p.asked, log), log, p.metrics)
	p.forwarder = forward.New(forward.Config{
		Ledger: p.store, Rearmer: rearmer, Deliverer: p.asked, Workers: c.Workers, Wake: p.wake, Logger: log, Tracer: tracer,
		Metrics: p.metrics,
	})
	p.metrics.Observe(meter, p.store.Figures, p.costs)
	validity.Observe(obs.NewMeter(p.telemetry.MeterProvider(), "certificate"), filesOf(c.TLS), time.Now)
	return p.receive(c)
}

// watch makes the sources, and the tickets of those that may be written to, by name.
func (p *parts) watch(c settings.Poller) (watched []poll.Watched, tickets map[string]notify.Tickets, err error) {
	tickets = map[string]notify.Tickets{}
	for _, s := range c.Sources {
		source, err := clientOf(s, p.telemetry.TracerProvider())
		if err != nil {
			return nil, nil, fault.Wrap(fault.Invalid, fault.ReasonBadConfig, "the source "+s.Name, err)
		}
		p.sources = append(p.sources, source)
		if s.Notices || s.Reactions {
			tickets[s.Name] = source
		}
		mention, mentionSelf, _ := s.MentionOf() // checked with the configuration
		w := poll.Watched{
			Name: s.Name, Provider: s.Kind, Host: s.Host, Source: source, Repositories: s.Repositories, Interval: s.Interval,
			MaxInterval: s.MaxInterval, FullRead: s.FullRead, Meter: source,
			Policy: poll.Policy{Authors: s.Authors, Associations: upper(s.Associations), Machines: s.Machines, TrustLabel: s.TrustLabel,
				Mention: mention},
			MentionSelf: mentionSelf, TeamLabels: s.TeamLabels,
			Notices: s.Notices, Branch: branchOf(s), Webhooks: s.Webhook,
		}
		if s.Authenticated() { // GraphQL answers nobody without a credential
			w.Graph = source
		}
		watched = append(watched, w)
		p.explain(s)
	}
	return watched, tickets, nil
}

// clientOf returns the client that reads a source.
func clientOf(s settings.Source, tracer trace.TracerProvider) (*github.Client, error) {
	mention, self, _ := s.MentionOf() // checked with the configuration
	c := github.Config{
		BaseURL: s.BaseURL, Host: s.Host, Label: s.Label, Assignee: s.Assignee, Mention: mention, MentionSelf: self, TeamLabels: slices.Sorted(maps.Keys(s.TeamLabels)),
		Pulls: s.ReadsPulls(), CI: s.CI, CIInterval: s.Interval, CIQuiet: s.MaxInterval, TracerProvider: tracer,
	}
	if s.App == nil {
		token, err := github.NewToken(s.TokenFile, s.Token)
		if err != nil {
			return nil, err
		}
		c.Token = token
		return github.New(c)
	}
	id, err := s.App.AppID()
	if err != nil {
		return nil, err
	}
	key, err := github.NewToken(s.App.PrivateKeyFile, s.App.PrivateKey)
	if err != nil {
		return nil, err
	}
	if c.App, err = github.NewApp(id, key, s.App.InstallationID); err != nil {
		return nil, err
	}
	return github.New(c)
}

// costs are what reading the sources cost.
func (p *parts) costs() (out []metrics.Source) {
	for _, w := range p.poller.Watched() {
		if w.Meter == nil {
			continue
		}
		use := w.Meter.Use()
		n := use.Total
		s := metrics.Source{Name: w.Name, Unchanged: n.Unchanged, Failed: n.Failed, Answered: n.Sent - n.Unchanged - n.Failed}
		for _, r := range use.Rates {
			s.Rates = append(s.Rates, metrics.Rate{Credential: r.Credential, Resource: r.Resource, Limit: r.Limit, Remaining: r.Remaining,
				Reset: time.Until(r.Reset) - use.Skew})
		}
		out = append(out, s)
	}
	return out
}

func upper(words []string) []string {
	out := make([]string, len(words))
	for i, word := range words {
		out[i] = strings.ToUpper(word)
	}
	return out
}

func branchOf(s settings.Source) string {
	if s.Branch == settings.NoBranch {
		return ""
	}
	return s.Branch
}

// named returns the names of the sources that something is true of.
func named(sources []settings.Source, is func(settings.Source) bool) (names []string) {
	for _, s := range sources {
		if is(s) {
			names = append(names, s.Name)
		}
	}
	return names
}

// explain says at the start what a person would otherwise only find out by waiting.
func (p *parts) explain(s settings.Source) {
	log := p.telemetry.Logger.With(obs.KeySource, s.Name)
	switch {
	case len(s.Authors)+len(s.Associations) > 0:
	case s.TrustLabel:
		log.Warn("no comment will reach an agent: authors and associations are empty, so nobody may steer; labelled issues do, by trust_label")
	default:
		log.Warn("no event will reach an agent: authors and associations are empty, so nobody may steer; list the logins that may")
	}
	if !s.Authenticated() && s.BaseURL == "" {
		log.Warn("no token_file is set: GitHub answers 60 requests an hour without one, and shows public repositories only")
	}
}

// serve runs until ctx ends.
func (p *parts) serve(ctx context.Context, c settings.Poller) error {
	service := server.New(p.poller, p.retrier, p.store, p.store)
	api, err := access.Open(access.Config{Listen: c.Listen, Remote: c.TLS.Listen, Files: filesOf(c.TLS), Tokens: tokens.New(p.quiet),
		Logger: p.telemetry.Logger, TracerProvider: p.telemetry.TracerProvider(), MeterProvider: p.telemetry.MeterProvider(), Metrics: p.page,
	}, func(s *rpc.ConnectServer) { pollerv1connect.RegisterPollerServiceHandler(s.RPC(), service) })
	if err != nil {
		return err
	}
	var group run.Group
	api.Join(&group)
	group.Add("health", func(ctx context.Context) error { return p.watchHealth(ctx, api) })
	group.Add("listen", func(ctx context.Context) error { return p.store.Listen(ctx, p.wake, p.telemetry.Logger) })
	group.Add("forward", p.forwarder.Run)
	group.Add("sweep", p.retrier.Run)
	group.Add("hints", hints{p.asked, p.store, p.retrier, p.telemetry.Logger}.follow)
	group.Add("look", p.poller.Run)
	group.Add("schedule", p.schedule)
	if err := p.hooks.join(ctx, &group, p); err != nil {
		return errors.Join(err, api.Close())
	}
	p.telemetry.Logger.InfoContext(ctx, "poller started", obs.KeyAddress, strings.Join(api.Addresses(), " "), obs.KeyCount, len(c.Sources),
		obs.KeyVersion, version.String())
	err = group.Run(ctx)
	p.telemetry.Logger.InfoContext(ctx, "poller stopped")
	return err
}

func (p *parts) schedule(ctx context.Context) error {
	config := schedule.Config{
		Pool: p.quiet, Schema: migrations.RiverSchema, TracerProvider: p.telemetry.TracerProvider(),
		Logger: slog.New(atLeast{p.telemetry.Logger.Handler(), slog.LevelWarn}),
		Forget: p.forget, Notify: p.notifier.Carry,
	}
	return schedule.Run(ctx, config)
}

// forget deletes what has been finished for longer than the retention.
func (p *parts) forget(ctx context.Context) error {
	events, lines, err := p.store.Forget(ctx, p.retention)
	if events+lines > 0 {
		p.telemetry.Logger.InfoContext(ctx, "deleted what was finished long ago", obs.KeyCount, events, "lines", lines)
	}
	if err != nil {
		return err
	}
	hooks, unhandled, err := p.store.ForgetHooks(ctx)
	if unhandled > 0 {
		p.telemetry.Logger.WarnContext(ctx, "deleted webhooks that were never handled", obs.KeyCount, unhandled)
	}
	if hooks > unhandled {
		p.telemetry.Logger.InfoContext(ctx, "deleted webhooks that were handled long ago", obs.KeyCount, hooks-unhandled)
	}
	return err
}

// watchHealth has the server say that it serves while the database answers.
func (p *parts) watchHealth(ctx context.Context, health *access.API) error {
	ticker := time.NewTicker(healthInterval)
	defer ticker.Stop()
	for {
		asking, cancel := context.WithTimeout(ctx, healthTime)
		err := p.store.Ping(asking)
		cancel()
		if ctx.Err() != nil {
			return nil
		}
		health.Set("", err == nil)
		health.Set(pollerv1connect.PollerServiceName, err == nil)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// close gives back what assemble opened, as far as it came.
func (p *parts) close(ctx context.Context) {
	for _, source := range p.sources {
		source.Close()
	}
	if p.conn != nil {
		_ = p.conn.Close() // the process is about to end
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		for _, pool := range []*pgxpool.Pool{p.quiet, p.pool} {
			if pool != nil {
				pool.Close()
			}
		}
	}()
	select {
	case <-closed:
	case <-time.After(closeTime):
		p.telemetry.Logger.WarnContext(ctx, "connections to the database were not given back")
	}
	if p.telemetry != nil {
		p.telemetry.Shutdown(ctx)
	}
}

// atLeast passes on records from a level up: River tells at Info what only its authors would miss.
type atLeast struct {
	slog.Handler
	level slog.Level
}

// Enabled reports whether the level is high enough for both.
func (h atLeast) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= h.level && h.Handler.Enabled(ctx, level)
}

// WithAttrs keeps the level.
func (h atLeast) WithAttrs(attrs []slog.Attr) slog.Handler {
	return atLeast{h.Handler.WithAttrs(attrs), h.level}
}

// WithGroup keeps the level.
func (h atLeast) WithGroup(name string) slog.Handler {
	return atLeast{h.Handler.WithGroup(name), h.level}
}
