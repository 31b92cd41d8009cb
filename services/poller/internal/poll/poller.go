package poll

import (
	"context"
	"crypto/rand"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/prompt"
	"muxpost.dev/muxpost/internal/obs"
	"muxpost.dev/muxpost/services/poller/internal/metrics"
)

const (
	// LookTime bounds one look at one source. What was read by then is kept, and the next look goes on from there.
	LookTime = 50 * time.Second
	// leasePause is how long to wait for another look at the same source before asking for its lease again.
	leasePause = 100 * time.Millisecond
)

// Watched is a source and what to do with it.
type Watched struct {
	// Name is the source's name in the configuration.
	Name string
	// Provider is the kind of source, as it stands in natural keys.
	Provider string
	// Host is the provider's host, as it stands in names of work items.
	Host   string
	Source Source
	// Graph answers what threads do not show; nil when the source has none, and then what looks edited does not steer.
	Graph Graph
	// MentionSelf is whether the account whose mention counts is the source's own.
	MentionSelf bool
	// TeamLabels are the labels that have a team run for an issue, each with the team's name; empty for the one that is configured first.
	TeamLabels map[string]string
	// Branch is the name of the branch that belongs to an item, with {number} for the item's number; empty for none.
	Branch string
	// Meter tells what reading costs; nil when nobody counts.
	Meter Meter
	// Repositories are read in this order where none of them has waited longer.
	Repositories []string
	// Interval is how often the source is to be looked at; whoever calls Look keeps it. MaxInterval is how seldom at most what is quiet is
	// read, of a source with many repositories.
	Interval, MaxInterval time.Duration
	// FullRead is how often each repository is read in full; zero for never.
	FullRead time.Duration
	Policy   Policy
	// Notices is whether its tickets are written to; for the record, whoever carries out posts keeps it.
	Notices bool
	// Webhooks is whether its webhooks are taken; for the record, whoever receives them keeps it.
	Webhooks bool
}

// Config is what a Poller is made from; every field but Templates and Metrics is required.
type Config struct {
	Ledger  Ledger
	Rearmer Rearmer
	Sources []Watched
	// Holder names this process in leases.
	Holder string
	// Budget is how many tries an event may spend.
	Budget int
	// Templates are for the texts of events; the built-in ones when nil.
	Templates *prompt.Set
	Logger    *slog.Logger
	Tracer    obs.Tracer
	// Metrics take how long looks take; nil takes nothing.
	Metrics *metrics.Metrics
	// Now is the clock for spans and durations; what is stored uses the clocks of the sources and of the database.
	Now func() time.Time
}

// Poller looks at sources. It is safe for use by many goroutines.
type Poller struct {
	config Config

	edits  edits
	rounds rounds

	mu    sync.Mutex
	last  map[string]string          // the last problem of each source, so that one that lasts is logged once
	kinds map[string]map[string]bool // the problems of kinds of results of each source, likewise
}

// New returns a poller.
func New(config Config) *Poller {
	if config.Metrics == nil {
		config.Metrics = metrics.New(nil)
	}
	if config.Templates == nil {
		config.Templates = prompt.Default()
	}
	return &Poller{config: config, last: map[string]string{}, kinds: map[string]map[string]bool{}}
}

// Sources returns the names of the sources, in the order of the configuration.
func (p *Poller) Sources() []string {
	names := make([]string, len(p.config.Sources))
	for i, w := range p.config.Sources {
		names[i] = w.Name
	}
	return names
}

// Watched returns the sources, in the order of the configuration.
func (p *Poller) Watched() []Watched { return slices.Clone(p.config.Sources) }

// MaySteer reports whether an author may steer agents by what he writes at a source; nobody may at one that is not configured.
func (p *Poller) MaySteer(source string, author Author) bool {
	i := slices.IndexFunc(p.config.Sources, func(w Watched) bool { return w.Name == source })
	return i >= 0 && (p.config.Sources[i].Policy.allows(author) || has(p.config.Sources[i].Policy.Machines, author.Login))
}

// Result is what one look at one source found.
type Result struct {
	Source string
	// Items is how many work items were seen.
	Items int
	// NewEvents is how many events are new in the ledger and will be delivered.
	NewEvents int
	// SettledEvents is how many were refused by policy.
	SettledEvents int
	// Took is how long it took.
	Took time.Duration
	// Err is why the look failed; what had been read before is in the ledger.
	Err error
}

// LookNow looks at all of a source, and waits first while somebody else is looking. It fails only for a name that it does not know,
// with fault.NotFound; a look that fails is a Result.
func (p *Poller) LookNow(ctx context.Context, name string) (Result, error) {
	w, err := p.source(name)
	if err != nil {
		return Result{}, err
	}
	for {
		result := p.look(ctx, w, 0, true)
		if fault.ReasonOf(result.Err) != fault.ReasonLeaseHeld {
			return result, nil
		}
		timer := time.NewTimer(leasePause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return result, nil
		}
	}
}

// Look looks once at what is due of a source. While somebody else is looking, the result's error has ReasonLeaseHeld.
func (p *Poller) Look(ctx context.Context, name string) (Result, error) {
	w, err := p.source(name)
	if err != nil {
		return Result{}, err
	}
	return p.look(ctx, w, 0, false), nil
}

func (p *Poller) source(name string) (Watched, error) {
	i := slices.IndexFunc(p.config.Sources, func(w Watched) bool { return w.Name == name })
	if i < 0 {
		remedy := "none is configured: add one under poller.sources"
		if known := p.Sources(); len(known) > 0 {
			remedy = "known here: " + strings.Join(known, ", ")
		}
		return Watched{}, fault.Newf(fault.NotFound, fault.ReasonSourceNotFound, "there is no source called %q", line(name)).WithRemedy(remedy)
	}
	return p.config.Sources[i], nil
}

// look looks at a source once, unless somebody else does, or one that ended is younger than every.
// By hand, everything of it is due.
func (p *Poller) look(ctx context.Context, w Watched, every time.Duration, byHand bool) Result {
	ctx, cancel := context.WithTimeout(ctx, LookTime)
	defer cancel()
	ctx = obs.Routine(ctx, true)
	began, holder := p.config.Now(), p.config.Holder+"/"+rand.Text()
	look, err := p.config.Ledger.BeginLook(ctx, w.Name, holder, lookLease, every)
	if err != nil {
		result := Result{Source: w.Name, Err: err, Took: p.config.Now().Sub(began)}
		if fault.ReasonOf(err) != fault.ReasonLeaseHeld && fault.KindOf(err) != fault.Throttled {
			p.report(ctx, result)
		}
		return result
	}
	ctx, end := obs.Start(ctx, p.config.Tracer, "poll.Source", slog.String(obs.KeySource, w.Name))
	l := p.newLook(ctx, w, began)
	l.known = look.Repositories
	kept := p.keep(ctx, cancel, w.Name, holder)
	l.run(ctx, byHand)
	kept()
	result := l.result
	result.Took = p.config.Now().Sub(began)
	// The lease goes back also when the look ran out of time.
	endCtx, cancelEnd := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancelEnd()
	if err := p.config.Ledger.EndLook(endCtx, w.Name, holder, l.end(look)); err != nil && result.Err == nil {
		result.Err = err
	}
	obs.Annotate(ctx, slog.Int("items", result.Items), slog.Int("new_events", result.NewEvents),
		slog.Int("settled_events", result.SettledEvents))
	p.config.Metrics.Looks.Record(ctx, result.Took, w.Name, resultOf(result.Err))
	end(result.Err)
	p.report(ctx, result)
	p.reportKinds(ctx, w)
	return result
}

// resultOf is the word for how a look went.
func resultOf(err error) string {
	switch {
	case err == nil:
		return "ok"
	case fault.KindOf(err) == fault.Throttled:
		return "limited"
	}
	return "failed"
}

// self returns the login that a source's token acts as; empty when it may not be told. What muxpost writes has its mark in any case.
func self(ctx context.Context, w Watched) (string, error) {
	if w.Graph == nil {
		return "", nil
	}
	login, err := w.Graph.Self(ctx)
	if kind := fault.KindOf(err); kind != fault.Throttled && kind != fault.Unavailable {
		return login, nil //nolint:nilerr // A token need not be allowed to ask that.
	}
	return "", err
}

// reportKinds logs the kinds of results that may not be read, each once for as long as that lasts.
func (p *Poller) reportKinds(ctx context.Context, w Watched) {
	if w.Meter == nil {
		return
	}
	now := map[string]bool{}
	for _, problem := range w.Meter.Use().Problems {
		key := problem.Repository + " " + problem.Kind
		now[key] = true
		p.mu.Lock()
		before := p.kinds[w.Name][key]
		p.mu.Unlock()
		if !before {
			p.config.Logger.WarnContext(ctx, "one kind of results of CI cannot be read; everything else is", obs.KeySource, w.Name,
				"repository", problem.Repository, "kind", problem.Kind, obs.KeyError, problem.Problem)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kinds[w.Name] = now
}

// report logs what a look found, if there is news: a look a second that finds nothing is none, nor is a problem that lasts.
func (p *Poller) report(ctx context.Context, r Result) {
	problem := ""
	if r.Err != nil {
		problem = r.Err.Error()
	}
	p.mu.Lock()
	before := p.last[r.Source]
	p.last[r.Source] = problem
	p.mu.Unlock()
	log := p.config.Logger.With(obs.KeySource, r.Source)
	switch {
	case problem != "" && problem != before:
		log.WarnContext(ctx, "cannot read the source", obs.KeyReason, string(fault.ReasonOf(r.Err)), obs.KeyError, problem)
	case problem == "" && before != "":
		log.InfoContext(ctx, "the source can be read again")
	}
	if r.NewEvents > 0 || r.SettledEvents > 0 {
		log.InfoContext(ctx, "new events", obs.KeyCount, r.NewEvents, "settled", r.SettledEvents)
	}
}
