// Package metrics is the table of what the poller measures. docs/metrics.md is made from it.
//
// It knows when nothing is measured: those who do something record it.
package metrics

import (
	"context"
	"time"

	"muxpost.dev/muxpost/internal/obs"
)

// Metrics are the poller's instruments. Attributes are of closed lists, but for the names of sources.
type Metrics struct {
	// Taken and Refused are of what came in, Arrival of how late that was.
	Taken, Refused *obs.Counter
	Arrival        *obs.Histogram
	// Forwarded counts what became of events that the dispatcher was asked about, Ended those that ended so, and Delivery takes how long they had
	// been in the ledger.
	Forwarded, Ended *obs.Counter
	Delivery         *obs.Histogram
	Rearmed          *obs.Counter
	Looks            *obs.Histogram
	// Webhooks are requests, Hooks messages that were handled, Gaps events that no message told.
	Webhooks, Hooks, Gaps *obs.Counter
	Posts                 *obs.Counter

	events, oldest, inbox, inboxOldest, received, outbox, outboxOldest, success *obs.Gauge
	requests, limit, remaining, reset                                           *obs.Gauge
}

// oneOf says how a gauge is read that every replica tells.
const oneOf = " Each poller tells it of the one database: take max by, never sum."

// New makes the instruments; a nil meter makes ones that record nothing.
func New(m *obs.Meter) *Metrics {
	const source, state, result = obs.KeySource, obs.KeyState, "result"
	return &Metrics{
		Taken: m.Counter("muxpost.poller.events.taken", "{event}", "Events that came into the ledger to be delivered, by source and kind.", source, "kind"),
		Refused: m.Counter("muxpost.poller.events.refused", "{event}",
			"Events that came into the ledger and are not delivered, by source and reason (docs/glossary.md): what policy refuses, and loops. What was there before is not counted.",
			source, obs.KeyReason),
		Arrival: m.Histogram("muxpost.poller.event.arrival", "How long after it happened upstream an event came into the ledger, by two clocks, by source.", obs.Late, source),
		Forwarded: m.Counter("muxpost.poller.events.forwarded", "{event}",
			"What became of an event each time that the dispatcher was asked about it, by its state then (delivered, dropped, gave_up and others have ended) and reason.", state, obs.KeyReason),
		Ended: m.Counter("muxpost.poller.events.ended", "{event}",
			"Events that ended when the dispatcher was asked about them, by the state that they ended in. One that is tried again and ends again counts again.", state),
		Delivery: m.Histogram("muxpost.poller.event.delivery", "How long an event that ended had been in the ledger, by the state that it ended in.", obs.Late, state),
		Rearmed:  m.Counter("muxpost.poller.items.rearmed", "{item}", "Work items whose events were given a new budget because another version runs."),
		Looks:    m.Histogram("muxpost.poller.look.duration", "How long a look at a source took, by source and result: ok, limited, or failed.", obs.Soon, source, result),
		Webhooks: m.Counter("muxpost.poller.webhooks", "{request}",
			"Requests at the webhooks' address, by source (empty for whoever is not known) and result: accepted, known, pong, ignored_event, ignored_repository, unsigned, busy, database and others.",
			source, result),
		Hooks: m.Counter("muxpost.poller.webhooks.handled", "{message}", "Messages of the inbox that were worked at, by source and result: done, waiting (again later), failed.", source, result),
		Gaps:  m.Counter("muxpost.poller.webhooks.missed", "{event}", "Events that a look found and no webhook had told, by source.", source),
		Posts: m.Counter("muxpost.poller.notices", "{notice}", "Notices, reactions and answers to commands that were worked at, by source and result: done, skipped, waiting (again later), failed.", source, result),

		events:       m.Gauge("muxpost.poller.ledger.events", "{event}", "Events that wait (pending, leased, held) or need a person (gave_up, dropped), by state."+oneOf, state),
		oldest:       m.Gauge("muxpost.poller.ledger.oldest", "s", "How long the oldest event that waits has been in the ledger, by state; 0 where none waits. Of an item that is paused the pending ones are left out."+oneOf, state),
		inbox:        m.Gauge("muxpost.poller.inbox.messages", "{message}", "Webhooks in the inbox that wait or failed, by state."+oneOf, state),
		inboxOldest:  m.Gauge("muxpost.poller.inbox.oldest", "s", "How long the oldest webhook that waits has been in the inbox; 0 where none waits."+oneOf),
		received:     m.Gauge("muxpost.poller.webhook.age", "s", "How long ago the latest webhook of a source came in; absent where none did."+oneOf, source),
		outbox:       m.Gauge("muxpost.poller.outbox.notices", "{notice}", "Notices, reactions and answers that wait to be written upstream."+oneOf),
		outboxOldest: m.Gauge("muxpost.poller.outbox.oldest", "s", "How long the oldest of them has waited; 0 where none waits."+oneOf),
		success:      m.Gauge("muxpost.poller.source.age", "s", "How long ago the source was last read without an error, by any poller; absent where it never was."+oneOf, source),

		requests: m.Total("muxpost.poller.requests", "{request}",
			"Requests to a source by this process, by source and result: unchanged ones cost nothing of its limits, others were answered or failed.", source, result),
		limit: m.Gauge("muxpost.poller.rate.limit", "{request}",
			"The limit of a source, by credential and resource, as it told this process last."+oneOf, source, "credential", "resource"),
		remaining: m.Gauge("muxpost.poller.rate.remaining", "{request}",
			"What is left of it. Pollers that use one credential share it: take min by.", source, "credential", "resource"),
		reset: m.Gauge("muxpost.poller.rate.reset", "s", "In how long it is whole again; 0 where that has passed."+oneOf, source, "credential", "resource"),
	}
}

// Figures are read from the database for the gauges.
type Figures struct {
	Events, Inbox []Waiting
	Outbox        Waiting
	// Received and Success are how long ago that was last, by source.
	Received, Success map[string]time.Duration
}

// Waiting counts those in one state.
type Waiting struct {
	State string
	Count int
	// Oldest is how long the first of them has waited; zero for those that do not wait.
	Oldest time.Duration
}

// Source is what reading a source cost.
type Source struct {
	Name                        string
	Unchanged, Failed, Answered int64
	Rates                       []Rate
}

// Rate is a limit of a source. Reset is in how long it is whole again.
type Rate struct {
	Credential, Resource string
	Limit, Remaining     int
	Reset                time.Duration
}

// waits are the states of the ledger whose oldest event is told.
var waits = []string{"pending", "leased", "held"}

// Observe has the gauges read whenever somebody collects. What figures fails to say is not told.
func (m *Metrics) Observe(meter *obs.Meter, figures func(context.Context) (Figures, error), sources func() []Source) {
	// What an alert counts is there from the beginning: the first of a row that begins with it would go unnoticed.
	m.Forwarded.Add(context.Background(), 0, "delivered", "")
	m.Forwarded.Add(context.Background(), 0, "settled", "unconfirmed")
	for _, state := range []string{"gave_up", "dropped"} {
		m.Ended.Add(context.Background(), 0, state)
	}
	for _, s := range sources() {
		m.Refused.Add(context.Background(), 0, s.Name, "loop")
		m.Gaps.Add(context.Background(), 0, s.Name)
	}
	kept := obs.Keep(figures)
	meter.Observe(func(ctx context.Context, tell obs.Tell) {
		if f, ok := kept.Read(ctx); ok {
			m.tellFigures(f, tell)
		}
	}, m.events, m.oldest, m.inbox, m.inboxOldest, m.received, m.outbox, m.outboxOldest, m.success)
	meter.Observe(func(_ context.Context, tell obs.Tell) {
		for _, s := range sources() {
			tell(m.requests, float64(s.Unchanged), s.Name, "unchanged")
			tell(m.requests, float64(s.Failed), s.Name, "failed")
			tell(m.requests, float64(s.Answered), s.Name, "answered")
			for _, r := range s.Rates {
				tell(m.limit, float64(r.Limit), s.Name, r.Credential, r.Resource)
				tell(m.remaining, float64(r.Remaining), s.Name, r.Credential, r.Resource)
				tell(m.reset, max(0, r.Reset.Seconds()), s.Name, r.Credential, r.Resource)
			}
		}
	}, m.requests, m.limit, m.remaining, m.reset)
}

// tellFigures tells of every state, also where there is nothing in it: that nothing waits is news, and that nothing is told is another.
func (m *Metrics) tellFigures(f Figures, tell obs.Tell) {
	by := func(all []Waiting, state string) Waiting {
		for _, w := range all {
			if w.State == state {
				return w
			}
		}
		return Waiting{}
	}
	for _, state := range append([]string{"gave_up", "dropped"}, waits...) {
		tell(m.events, float64(by(f.Events, state).Count), state)
	}
	for _, state := range waits {
		tell(m.oldest, by(f.Events, state).Oldest.Seconds(), state)
	}
	for _, state := range []string{"waiting", "failed"} {
		tell(m.inbox, float64(by(f.Inbox, state).Count), state)
	}
	tell(m.inboxOldest, by(f.Inbox, "waiting").Oldest.Seconds())
	tell(m.outbox, float64(f.Outbox.Count))
	tell(m.outboxOldest, f.Outbox.Oldest.Seconds())
	for source, age := range f.Received {
		tell(m.received, age.Seconds(), source)
	}
	for source, age := range f.Success {
		tell(m.success, age.Seconds(), source)
	}
}
