package github

import (
	"cmp"
	"context"
	"errors"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	gh "github.com/google/go-github/v90/github"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/services/poller/internal/poll"
)

// refusalTime is how long a kind of result that was refused is not asked for.
const refusalTime = time.Hour

// Checks returns the latest results of CI at a commit, of the kinds that the configuration names. A kind that the token may not read is
// a problem of that kind alone: it is told by Meter, and not asked for again for an hour. A commit at which nothing happens any more is asked about more and more seldom.
func (c *Client) Checks(ctx context.Context, repository, sha string) ([]poll.Check, error) {
	if sha == "" || strings.Trim(sha, "0123456789abcdefABCDEF") != "" {
		return nil, fault.Newf(fault.Invalid, fault.ReasonBadArgument, "%q is not the name of a commit", sha)
	}
	if known, ok := c.quiet.known(repository, sha, c.now()); ok && !poll.WantsFull(ctx) {
		return known, nil
	}
	var out []poll.Check
	for _, kind := range c.ci {
		if c.refusals.stands(repository, kind, c.now()) {
			continue
		}
		found, err := c.checks(ctx, kind, repository, sha)
		switch {
		case errors.Is(err, errUnprocessable):
		case errors.Is(err, fault.Denied), errors.Is(err, fault.NotFound):
			c.refusals.add(repository, kind, err, c.now())
		case err != nil:
			return nil, err
		default:
			c.refusals.remove(repository, kind)
			out = append(out, found...)
		}
	}
	c.quiet.read(repository, sha, out, c.now())
	return out, nil
}

func (c *Client) checks(ctx context.Context, kind, repository, sha string) (out []poll.Check, err error) {
	page := url.Values{"per_page": {strconv.Itoa(pageSize)}}
	// Each page says how many there are in all.
	switch kind {
	case poll.CheckRun:
		page.Set("filter", "latest")
		_, err = readPages(ctx, c, repository, "commits/"+sha+"/check-runs?"+page.Encode(), never, func(p gh.ListCheckRunsResults) {
			for _, r := range p.CheckRuns {
				out = append(out, checkOfRun(r))
			}
		})
	case poll.CheckStatus:
		_, err = readPages(ctx, c, repository, "commits/"+sha+"/status?"+page.Encode(), never, func(p gh.CombinedStatus) {
			for _, s := range p.Statuses {
				out = append(out, checkOfStatus(sha, s))
			}
		})
	case poll.CheckWorkflow:
		page.Set("head_sha", sha)
		_, err = readPages(ctx, c, repository, "actions/runs?"+page.Encode(), never, func(p gh.WorkflowRuns) {
			for _, r := range p.WorkflowRuns {
				out = append(out, checkOfWorkflow(r))
			}
		})
		out = newestRuns(out)
	}
	return out, err
}

// newestRuns keeps the newest run of each name: a workflow may have been started several times for one commit.
func newestRuns(runs []poll.Check) []poll.Check {
	slices.SortFunc(runs, func(a, b poll.Check) int { return int(min(1, max(-1, b.ID-a.ID))) })
	seen := map[string]bool{}
	return slices.DeleteFunc(runs, func(r poll.Check) bool {
		before := seen[r.Name]
		seen[r.Name] = true
		return before
	})
}

// refusals are the kinds of results that may not be read, by repository.
type refusals struct {
	mu  sync.Mutex
	all map[[2]string]refusal
}

type refusal struct {
	problem string
	since   time.Time
	until   time.Time
}

// stands reports whether a kind is not to be asked for.
func (r *refusals) stands(repository, kind string, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	known, ok := r.all[[2]string{repository, kind}]
	return ok && now.Before(known.until)
}

func (r *refusals) add(repository, kind string, err error, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == nil {
		r.all = map[[2]string]refusal{}
	}
	key := [2]string{repository, kind}
	since := now
	if known, ok := r.all[key]; ok {
		since = known.since
	}
	r.all[key] = refusal{problem: err.Error(), since: since, until: now.Add(refusalTime)}
}

func (r *refusals) remove(repository, kind string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.all, [2]string{repository, kind})
}

// list returns what was refused, by repository and kind.
func (r *refusals) list() []poll.KindProblem {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]poll.KindProblem, 0, len(r.all))
	for key, known := range r.all {
		out = append(out, poll.KindProblem{Repository: key[0], Kind: key[1], Problem: known.problem, Since: known.since})
	}
	slices.SortFunc(out, func(a, b poll.KindProblem) int {
		return cmp.Or(cmp.Compare(a.Repository, b.Repository), cmp.Compare(a.Kind, b.Kind))
	})
	return out
}
