package server

import (
	"context"
	"fmt"

	"muxpost.dev/muxpost/internal/version"
	tmuxdv1 "muxpost.dev/muxpost/proto/gen/muxpost/tmuxd/v1"
)

// Facts are what Info tells of a host.
type Facts struct {
	Host, TmuxVersion, StateDir string
	// Instance names the state directory for good.
	Instance string
	// Labels are the host's, and Capacity how many agents may live there; zero is any number.
	Labels   map[string]string
	Capacity int
	// Build is tmuxd's own.
	Build version.Info
	// Harnesses are the entries of the table; with versions, those programs are run whose versions are not known.
	Harnesses func(ctx context.Context, versions bool) []*tmuxdv1.HarnessInfo
	// Storage says why nothing can be written; nil when it can.
	Storage func() error
	// Machine looks at the machine; nil leaves it out.
	Machine func() Machine
}

// Machine is what a host has left. Zero means not known.
type Machine struct {
	// Load is the load average over one minute, CPUs the processors that tmuxd may use.
	Load float64
	CPUs int
	// MemoryAvailable and StorageAvailable are bytes; the latter is where the state directory lies.
	MemoryAvailable, StorageAvailable int64
	// Warnings are what a person should repair, one line each.
	Warnings []string
}

// Info tells the host's facts.
func (s *Server) Info(ctx context.Context, req *tmuxdv1.InfoRequest) (*tmuxdv1.InfoResponse, error) {
	fence, counts := s.host.Fence(), s.host.Counts()
	out := &tmuxdv1.InfoResponse{
		Host: s.facts.Host, Version: s.facts.Build.String(), TmuxVersion: s.facts.TmuxVersion,
		Release: s.facts.Build.Release(), Commit: s.facts.Build.Commit, Dirty: s.facts.Build.Dirty,
		StateDir: s.facts.StateDir, HighestFencingToken: fence.Highest, FencingFloor: fence.Floor,
		InstanceId: s.facts.Instance, Labels: s.facts.Labels, Capacity: int32(s.facts.Capacity), //nolint:gosec // a small number
		Sessions: &tmuxdv1.SessionCounts{Live: int32(counts.Live), Dead: int32(counts.Dead), Unknown: int32(counts.Unknown)},
	}
	if s.facts.Harnesses != nil {
		out.Harnesses = s.facts.Harnesses(ctx, req.GetHarnessVersions())
	}
	if s.facts.Machine != nil {
		m := s.facts.Machine()
		out.Load_1M, out.Cpus, out.MemoryAvailableBytes, out.StorageAvailableBytes = m.Load, int32(m.CPUs), m.MemoryAvailable, m.StorageAvailable
		out.Warnings = m.Warnings
	}
	if living, capacity := s.host.Living(); capacity > 0 && living >= capacity {
		out.Warnings = append(out.Warnings, fmt.Sprintf("%d agents live on this host, as many as tmuxd.capacity (%d) lets: what needs another one waits. "+
			"End one that nobody needs, or raise it", living, capacity))
	}
	if err := s.facts.Storage(); err != nil {
		out.RefusesMutations = fmt.Sprintf("the state directory cannot be written: %v", err)
	}
	return out, nil
}
