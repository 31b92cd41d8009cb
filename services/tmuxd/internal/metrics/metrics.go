// Package metrics is the table of what tmuxd measures. docs/metrics.md is made from it.
//
// It knows when nothing is measured: those who do something record it. Which host it is stands in the resource, and in Prometheus in the label
// "instance".
package metrics

import (
	"context"
	"os"
	"strconv"
	"strings"

	"muxpost.dev/muxpost/internal/obs"
)

// Metrics are tmuxd's instruments. Attributes are of closed lists.
type Metrics struct {
	// Acts takes what was asked for: spawns, pastes, ends. Held, Refused and NotStarted count why they did nothing.
	Acts                      *obs.Histogram
	Held, Refused, NotStarted *obs.Counter
	// Commands takes what tmux servers were asked.
	Commands *obs.Histogram
	// Unknown counts answers that nothing is known, SnapshotAge takes how old those were that needed no look.
	Unknown     *obs.Counter
	SnapshotAge *obs.Histogram
	// Ended counts sessions that ended by themselves, MassDeaths alarms.
	Ended, MassDeaths *obs.Counter
	// Attempts counts those that ended.
	Attempts *obs.Counter

	sessions, capacity, servers, serverMemory, clients, running *obs.Gauge
	storage, writable, memory, load, info                       *obs.Gauge
}

// New makes the instruments; a nil meter makes ones that record nothing.
func New(m *obs.Meter) *Metrics {
	const action, outcome, reason, state = obs.KeyAction, obs.KeyOutcome, obs.KeyReason, obs.KeyState
	return &Metrics{
		Acts: m.Histogram("muxpost.tmuxd.act.duration",
			"How long what was asked for took, by action (spawn, paste, terminate, kill) and outcome: a verdict, or error for what is not known.", obs.Soon, action, outcome),
		Held:       m.Counter("muxpost.tmuxd.pastes.held", "{paste}", "Pastes that were held at a living session, by reason: draft, dialog, busy, not_ready and others.", reason),
		Refused:    m.Counter("muxpost.tmuxd.acts.refused", "{act}", "Pastes and ends that were refused, by action and reason.", action, reason),
		NotStarted: m.Counter("muxpost.tmuxd.spawns.failed", "{spawn}", "Spawns after which no agent lives, by reason: exited (it ended at once) and others.", reason),
		Commands:   m.Histogram("muxpost.tmuxd.tmux.duration", "How long tmux servers took to answer, by command list and outcome: answered or no_answer.", obs.Soon, "command", outcome),
		Unknown:    m.Counter("muxpost.tmuxd.answers.unknown", "{answer}", "Questions for a session's state that were answered with unknown."),
		SnapshotAge: m.Histogram("muxpost.tmuxd.snapshot.age",
			"How old the answers were that readers allowed to be old. What was looked at for the question is not counted.", obs.Late),
		Ended:      m.Counter("muxpost.tmuxd.sessions.ended", "{session}", "Sessions that ended without an order, by how: exited, or lost (their server is gone and nothing tells how).", "how"),
		MassDeaths: m.Counter("muxpost.tmuxd.mass_deaths", "{alarm}", "How often many sessions ended within moments."),
		Attempts:   m.Counter("muxpost.tmuxd.attempts.ended", "{attempt}", "Attempts of tasks that ended, by outcome and reason (docs/glossary.md).", outcome, reason),

		sessions:     m.Gauge("muxpost.tmuxd.sessions", "{session}", "Sessions that are known, by state: live, dead, unknown.", state),
		capacity:     m.Gauge("muxpost.tmuxd.capacity", "{session}", "How many agents may live at once; absent for any number."),
		servers:      m.Gauge("muxpost.tmuxd.tmux.servers", "{server}", "tmux servers whose processes are watched."),
		serverMemory: m.Gauge("muxpost.tmuxd.tmux.memory", "By", "What they hold in memory, all together."),
		clients:      m.Gauge("muxpost.tmuxd.tmux.clients", "{connection}", "Control clients that stand: one for each server that was asked lately."),
		running:      m.Gauge("muxpost.tmuxd.attempts.running", "{attempt}", "Attempts that are not over."),
		storage:      m.Gauge("muxpost.tmuxd.storage.available", "By", "What is free where the state directory lies."),
		writable:     m.Gauge("muxpost.tmuxd.storage.writable", "", "1 while the state directory can be written, else 0: then nothing is typed."),
		memory:       m.Gauge("muxpost.tmuxd.memory.available", "By", "What the machine has left of its memory."),
		load:         m.Gauge("muxpost.tmuxd.load", "", "The machine's load average over one minute, for each processor that tmuxd may use."),
		info:         m.Gauge("muxpost.tmuxd.tmux.info", "", "1, with the tmux that new servers are started with.", obs.KeyVersion),
	}
}

// Figures are read for the gauges; they are at hand, and no tmux server is asked.
type Figures struct {
	Live, Dead, Unknown, Capacity int
	// Servers are the pids of tmux servers.
	Servers          []int
	Clients, Running int
	// Storage and Memory are bytes. Load is for each processor.
	Storage, Memory int64
	Writable        bool
	Load            float64
	TmuxVersion     string
}

// Observe has the gauges read whenever somebody collects.
func (m *Metrics) Observe(meter *obs.Meter, figures func() Figures) {
	m.MassDeaths.Add(context.Background(), 0) // an alert counts from the first one
	meter.Observe(func(_ context.Context, tell obs.Tell) {
		f := figures()
		for state, n := range map[string]int{"live": f.Live, "dead": f.Dead, "unknown": f.Unknown} {
			tell(m.sessions, float64(n), state)
		}
		if f.Capacity > 0 {
			tell(m.capacity, float64(f.Capacity))
		}
		tell(m.servers, float64(len(f.Servers)))
		tell(m.serverMemory, float64(resident(f.Servers)))
		tell(m.clients, float64(f.Clients))
		tell(m.running, float64(f.Running))
		tell(m.storage, float64(f.Storage))
		tell(m.memory, float64(f.Memory))
		tell(m.load, f.Load)
		tell(m.info, 1, f.TmuxVersion)
		writable := 0.0
		if f.Writable {
			writable = 1
		}
		tell(m.writable, writable)
	}, m.sessions, m.capacity, m.servers, m.serverMemory, m.clients, m.running, m.storage, m.memory, m.load, m.info, m.writable)
}

// resident is what processes hold in memory, in bytes. One that has ended holds nothing.
func resident(pids []int) (bytes int64) {
	for _, pid := range pids {
		data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/statm")
		if fields := strings.Fields(string(data)); err == nil && len(fields) > 1 {
			pages, _ := strconv.ParseInt(fields[1], 10, 64)
			bytes += pages * int64(os.Getpagesize())
		}
	}
	return bytes
}
