package github

import (
	"maps"
	"slices"
	"sync"
	"time"

	"muxpost.dev/muxpost/core/pace"
	"muxpost.dev/muxpost/services/poller/internal/poll"
)

// maxCommits bounds what is remembered of CI; more than that are forgotten that were not asked about for longest.
const maxCommits = 10_000

// quietCI remembers the results at commits where everything has ended, so that a commit at which nothing happens is asked about more and
// more seldom. Of one that waits for a result nothing is remembered.
type quietCI struct {
	interval, most time.Duration

	mu  sync.Mutex
	all map[[2]string]*results // by repository and commit
}

type results struct {
	checks []poll.Check
	// quiet is how many readings in a row found nothing new; next is when the next one is due, and asked when somebody last wanted to know.
	quiet       int
	next, asked time.Time
}

// known returns the results at a commit while it need not be asked about.
func (q *quietCI) known(repository, sha string, now time.Time) ([]poll.Check, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	r := q.all[[2]string{repository, sha}]
	if r == nil {
		return nil, false
	}
	r.asked = now
	return slices.Clone(r.checks), now.Before(r.next)
}

// read keeps what was read at a commit.
func (q *quietCI) read(repository, sha string, checks []poll.Check, now time.Time) {
	if q.most <= q.interval {
		return
	}
	key := [2]string{repository, sha}
	q.mu.Lock()
	defer q.mu.Unlock()
	before := q.all[key]
	if slices.ContainsFunc(checks, func(c poll.Check) bool { return !c.Done }) {
		delete(q.all, key)
		return
	}
	r := &results{checks: slices.Clone(checks), asked: now}
	if before != nil && slices.Equal(before.checks, checks) {
		r.quiet = before.quiet + 1
		// A look comes around once an interval, and not to the moment.
		r.next = now.Add(pace.Grow(q.interval, q.most, r.quiet) - q.interval/2)
	}
	if q.all == nil {
		q.all = map[[2]string]*results{}
	}
	q.all[key] = r
	if len(q.all) > maxCommits {
		oldest := slices.SortedFunc(maps.Keys(q.all), func(a, b [2]string) int { return q.all[a].asked.Compare(q.all[b].asked) })
		for _, key := range oldest[:len(oldest)/2] {
			delete(q.all, key)
		}
	}
}
