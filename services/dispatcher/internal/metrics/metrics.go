// Package metrics is the table of what the dispatcher measures. docs/metrics.md is made from it.
//
// It knows when nothing is measured: those who do something record it.
package metrics

import (
	"context"
	"time"

	"muxpost.dev/muxpost/internal/obs"
)

// Metrics are the dispatcher's instruments. Attributes are of closed lists, but for the names of hosts.
type Metrics struct {
	// Answers and Duration are of Deliver, Steps of what is done within it.
	Answers         *obs.Counter
	Duration, Steps *obs.Histogram
	// Events counts what deliveries and endings tell.
	Events *obs.Counter
	// LeasesLost counts runs whose lease went to another one.
	LeasesLost *obs.Counter
	// Spawns and Pastes are what came of what hosts were asked for.
	Spawns, Pastes *obs.Counter
	// BreakerOpened counts by host.
	BreakerOpened *obs.Counter

	sessions, waiting, oldest, parked, paused, endings                       *obs.Gauge
	hostUp, hostDraining, hostKeptAway, hostSessions, hostCapacity, warnings *obs.Gauge
}

// oneOf says how a gauge is read that every replica tells.
const oneOf = " Each dispatcher tells it of the one database or of the same hosts: take max by, never sum."

// New makes the instruments; a nil meter makes ones that record nothing.
func New(m *obs.Meter) *Metrics {
	const host, state = obs.KeyHost, obs.KeyState
	return &Metrics{
		Answers: m.Counter("muxpost.dispatcher.answers", "{answer}",
			"What Deliver answered, by outcome and reason (docs/glossary.md). What waits is asked about again and again, and counted each time.",
			obs.KeyOutcome, obs.KeyReason),
		Duration: m.Histogram("muxpost.dispatcher.delivery.duration", "How long Deliver took to answer, by outcome.", obs.Soon, obs.KeyOutcome),
		Steps: m.Histogram("muxpost.dispatcher.step.duration",
			"How long each step of a delivery took: begin (it is stored), lease (waiting for its item's), the actions of core/dispatch, and finish (the outcome is stored).",
			obs.Soon, obs.KeyAction),
		Events: m.Counter("muxpost.dispatcher.events", "{event}",
			"Events that deliveries and endings told, by type (docs/events.md): respawns, parks, drops and others. Orders of operators are not among them.", obs.KeyEvent),
		LeasesLost: m.Counter("muxpost.dispatcher.leases.lost", "{lease}", "Runs that found that their item's lease had gone to another run."),
		Spawns: m.Counter("muxpost.dispatcher.spawns", "{spawn}",
			"Sessions that a host was asked to start, by action (resume or fresh) and result: no capacity is a host that is full.", obs.KeyAction, "result"),
		Pastes: m.Counter("muxpost.dispatcher.pastes", "{paste}", "Deliveries that a host was asked to type, by result.", "result"),
		BreakerOpened: m.Counter("muxpost.dispatcher.host.breaker.openings", "{opening}",
			"How often calls were kept away from a host because it had left several without an answer.", host),

		sessions: m.Gauge("muxpost.dispatcher.sessions", "{session}",
			"Sessions that are recorded and not closed, by host and by what their agents do; empty where their host told nothing."+oneOf, host, "activity"),
		waiting: m.Gauge("muxpost.dispatcher.deliveries.waiting", "{delivery}",
			"Deliveries that have not ended, by outcome and reason. One that nobody asks about any more stays here until it is forgotten."+oneOf, obs.KeyOutcome, obs.KeyReason),
		oldest:       m.Gauge("muxpost.dispatcher.deliveries.oldest", "s", "How long ago the oldest of them was first asked for, by outcome."+oneOf, obs.KeyOutcome),
		parked:       m.Gauge("muxpost.dispatcher.parked", "{item}", "Work items whose agents died so often that none is started."+oneOf),
		paused:       m.Gauge("muxpost.dispatcher.paused", "{pause}", "Pauses that stand, by what they are of: all, or an item."+oneOf, "of"),
		endings:      m.Gauge("muxpost.dispatcher.endings", "{order}", "Orders to end an agent that wait for its host."+oneOf),
		hostUp:       m.Gauge("muxpost.dispatcher.host.reachable", "", "1 while the host answers, else 0. Each dispatcher tells how it finds it: min by says whether one does not reach it.", host),
		hostDraining: m.Gauge("muxpost.dispatcher.host.draining", "", "1 while nothing more is started on the host, else 0."+oneOf, host),
		hostKeptAway: m.Gauge("muxpost.dispatcher.host.kept_away", "", "1 while calls are kept away from the host, which left some without an answer, else 0."+oneOf, host),
		hostSessions: m.Gauge("muxpost.dispatcher.host.sessions", "{session}", "Agents that live on the host, as it told last."+oneOf, host),
		hostCapacity: m.Gauge("muxpost.dispatcher.host.capacity", "{session}", "How many agents may live on the host; absent for any number."+oneOf, host),
		warnings:     m.Gauge("muxpost.dispatcher.host.warnings", "{warning}", "What the host says that a person should repair: `muxpost hosts` shows it."+oneOf, host),
	}
}

// Figures are read from the database for the gauges.
type Figures struct {
	Sessions        []Sessions
	Waiting         []Waiting
	Parked, Endings int
	// PausedAll is 1 while everything is paused, PausedItems how many items are by themselves.
	PausedAll, PausedItems int
}

// Sessions counts those of a host whose agents do the same.
type Sessions struct {
	Host, Activity string
	Count          int
}

// Waiting counts deliveries that have not ended.
type Waiting struct {
	Outcome, Reason string
	Count           int
	// Oldest is how long ago the first of them was asked for.
	Oldest time.Duration
}

// Host is how a host stands.
type Host struct {
	Name                         string
	Reached, Draining, KeptAway  bool
	Sessions, Capacity, Warnings int
}

// Observe has the gauges read whenever somebody collects. What figures fails to say is not told.
func (m *Metrics) Observe(meter *obs.Meter, figures func(context.Context) (Figures, error), hosts func() []Host) {
	kept := obs.Keep(figures)
	meter.Observe(func(ctx context.Context, tell obs.Tell) {
		if f, ok := kept.Read(ctx); ok {
			m.tellFigures(f, tell)
		}
	}, m.sessions, m.waiting, m.oldest, m.parked, m.paused, m.endings)
	meter.Observe(func(_ context.Context, tell obs.Tell) {
		for _, h := range hosts() {
			tell(m.hostUp, number(h.Reached), h.Name)
			tell(m.hostDraining, number(h.Draining), h.Name)
			tell(m.hostKeptAway, number(h.KeptAway), h.Name)
			tell(m.hostSessions, float64(h.Sessions), h.Name)
			if h.Capacity > 0 {
				tell(m.hostCapacity, float64(h.Capacity), h.Name)
			}
			tell(m.warnings, float64(h.Warnings), h.Name)
		}
	}, m.hostUp, m.hostDraining, m.hostKeptAway, m.hostSessions, m.hostCapacity, m.warnings)
}

func (m *Metrics) tellFigures(f Figures, tell obs.Tell) {
	for _, s := range f.Sessions {
		tell(m.sessions, float64(s.Count), s.Host, s.Activity)
	}
	oldest := map[string]time.Duration{}
	for _, w := range f.Waiting {
		tell(m.waiting, float64(w.Count), w.Outcome, w.Reason)
		oldest[w.Outcome] = max(oldest[w.Outcome], w.Oldest)
	}
	for outcome, age := range oldest {
		tell(m.oldest, age.Seconds(), outcome)
	}
	tell(m.parked, float64(f.Parked))
	tell(m.paused, float64(f.PausedAll), "all")
	tell(m.paused, float64(f.PausedItems), "item")
	tell(m.endings, float64(f.Endings))
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
