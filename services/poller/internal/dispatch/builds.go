package dispatch

import (
	"context"
	"slices"
	"sync"
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/ledger"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
)

const (
	// learnTime bounds the question which builds take part; after an answer it is put again learnedFor later, after silence silentFor later.
	learnTime  = 2 * time.Second
	learnedFor = time.Minute
	silentFor  = 10 * time.Second
)

// builds are those that take part in deliveries, as they were last heard of.
type builds struct {
	own ledger.Build

	mu     sync.Mutex
	others []ledger.Build
	// known is false while the dispatcher never said which builds take part. Then nobody knows whether a version was tried before.
	known bool
	// next is when the question is to be put again.
	next time.Time
}

// Known returns the version that was last heard of.
func (b *builds) Known() ledger.Version {
	b.mu.Lock()
	defer b.mu.Unlock()
	v := ledger.VersionOf(append([]ledger.Build{b.own}, b.others...)...)
	v.Rearms = v.Rearms && b.known
	return v
}

// heard takes what a dispatcher said; one that is older says nothing, and counts for no part of the version.
func (b *builds) heard(answer []*dispatcherv1.Build) ledger.Version {
	var others []ledger.Build
	for _, o := range answer {
		others = append(others, ledger.Build{Program: o.GetProgram(), Release: o.GetRelease(), Commit: o.GetCommit(), Dirty: o.GetDirty()})
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !slices.Equal(others, b.others) || !b.known {
		b.others, b.known = others, true
	}
	return ledger.VersionOf(append([]ledger.Build{b.own}, others...)...)
}

// due reports whether it is time to ask, and has everybody else leave it to the caller.
func (b *builds) due(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if now.Before(b.next) {
		return false
	}
	b.next = now.Add(silentFor)
	return true
}

func (b *builds) learned(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.next = now.Add(learnedFor)
}

// Version returns the version that takes part in deliveries, and asks the dispatcher when it was not asked for a while.
func (c *Client) Version(ctx context.Context) ledger.Version {
	if now := time.Now(); c.due(now) {
		c.Learn(ctx)
	}
	return c.Known()
}

// Learn asks the dispatcher which builds take part.
func (c *Client) Learn(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, learnTime)
	defer cancel()
	info, err := c.api.Info(ctx, &dispatcherv1.InfoRequest{})
	if err != nil && fault.ReasonOf(err) != fault.ReasonUnknownCall {
		return // the next question comes soon
	}
	c.heard(info.GetBuilds())
	c.learned(time.Now())
}
