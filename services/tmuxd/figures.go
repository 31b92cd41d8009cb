package main

import (
	"muxpost.dev/muxpost/services/tmuxd/internal/attempt"
	"muxpost.dev/muxpost/services/tmuxd/internal/host"
	"muxpost.dev/muxpost/services/tmuxd/internal/metrics"
	"muxpost.dev/muxpost/services/tmuxd/internal/server"
	"muxpost.dev/muxpost/services/tmuxd/internal/tmux"
)

// figures returns what reads the gauges. No tmux server is asked.
func figures(capacity int, version string, h *host.Host, client *tmux.Client, attempts *attempt.Runner, storage func() error,
	machine func() server.Machine) func() metrics.Figures {
	return func() metrics.Figures {
		counts, m := h.Counts(), machine()
		return metrics.Figures{
			Live: counts.Live, Dead: counts.Dead, Unknown: counts.Unknown, Capacity: capacity, Servers: h.Servers(), Clients: client.Standing(),
			Running: attempts.Running(), Storage: m.StorageAvailable, Memory: m.MemoryAvailable, Writable: storage() == nil,
			Load: m.Load / float64(max(m.CPUs, 1)), TmuxVersion: version,
		}
	}
}
