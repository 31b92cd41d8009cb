// Package rearm has the events of a work item that gave up tried again when a version sees the item that had no part in giving them
// up. It is lazy: an item is asked about when it is seen, in a look or in a claim, once under each version in the life of the process, and
// the ledger is never gone through.
//
// It knows nothing of what a version is made of, nor of when an event is re-armed: core/ledger says so, and the store does it.
package rearm

import (
	"context"
	"log/slog"
	"sync"

	"muxpost.dev/muxpost/core/ledger"
	"muxpost.dev/muxpost/internal/obs"
	"muxpost.dev/muxpost/services/poller/internal/metrics"
)

// Done is what was re-armed of one work item.
type Done struct {
	WorkItem string
	Source   string
	// Comments are the delivery ids of the events that are pending again.
	Comments []string
	// RecordedVersions are the versions that they had been tried under.
	RecordedVersions []string
}

// Ledger re-arms. Its errors are faults.
type Ledger interface {
	// Rearm gives the events of items that gave up a new budget, where the running version had no part in them, and returns the
	// items that had any.
	Rearm(ctx context.Context, items []string, running ledger.Version) ([]Done, error)
}

// Versions say which version is running: the builds that take part in deliveries, which may change in the life of the process.
type Versions interface {
	Version(ctx context.Context) ledger.Version
}

// Rearmer remembers which items were seen. It is safe for use by many goroutines.
type Rearmer struct {
	ledger   Ledger
	versions Versions
	log      *slog.Logger
	metrics  *metrics.Metrics

	mu sync.Mutex
	// seen is the version under which each item was seen.
	seen map[string]string
}

// New returns a rearmer that has seen nothing; m counts what it re-arms, and may be nil.
func New(l Ledger, v Versions, log *slog.Logger, m *metrics.Metrics) *Rearmer {
	if m == nil {
		m = metrics.New(nil)
	}
	return &Rearmer{ledger: l, versions: v, log: log, metrics: m, seen: map[string]string{}}
}

// See re-arms what is to be re-armed of the items that were not seen before under this version, and returns those that had any. Items that could not be
// asked about count as not seen.
func (r *Rearmer) See(ctx context.Context, items []string) ([]string, error) {
	if len(items) == 0 {
		return nil, nil
	}
	running := r.versions.Version(ctx)
	fresh := r.fresh(items, running.Name)
	if len(fresh) == 0 {
		return nil, nil
	}
	done, err := r.ledger.Rearm(ctx, fresh, running)
	if err != nil {
		return nil, err
	}
	r.remember(fresh, running.Name)
	var rearmed []string
	r.metrics.Rearmed.Add(ctx, int64(len(done)))
	for _, d := range done {
		rearmed = append(rearmed, d.WorkItem)
		r.log.InfoContext(ctx, "events re-armed", obs.KeyEvent, string(ledger.Rearmed), obs.KeyWorkItem, d.WorkItem, obs.KeySource, d.Source,
			"comments", d.Comments, "recorded_versions", d.RecordedVersions)
	}
	return rearmed, nil
}

func (r *Rearmer) fresh(items []string, version string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for _, item := range items {
		if seen, ok := r.seen[item]; !ok || seen != version {
			out = append(out, item)
		}
	}
	return out
}

func (r *Rearmer) remember(items []string, version string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, item := range items {
		r.seen[item] = version
	}
}
