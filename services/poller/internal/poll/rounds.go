package poll

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/pace"
)

const (
	// repositoryTime is how long one of several repositories may be read in one look. What was read by then is kept.
	repositoryTime = LookTime / 2
	// leastTime has to be left for another repository to be begun.
	leastTime = 2 * time.Second
	// manyRepositories of a source are each read at its interval, whether or not they are quiet.
	manyRepositories = 100
	// maxQuiet bounds what is counted.
	maxQuiet = 1000
)

// rounds remembers how the latest look at each repository went.
type rounds struct {
	mu  sync.Mutex
	all map[string]round
}

// round is what is remembered of a repository.
type round struct {
	// cost is in requests that were charged.
	cost int
	// last is the number of the item that was asked for last of those that no list shows; 0 when none was.
	last uint64
	// owed is true while no look has come to the pull requests since the last one that was to.
	owed bool
}

// change changes what is remembered of a repository, and returns what it was.
func (r *rounds) change(source, repository string, f func(*round)) round {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == nil {
		r.all = map[string]round{}
	}
	key := source + " " + strings.ToLower(repository)
	was := r.all[key]
	now := was
	f(&now)
	r.all[key] = now
	return was
}

func (r *rounds) cost(source, repository string) int {
	return r.change(source, repository, func(*round) {}).cost
}

func (r *rounds) set(source, repository string, cost int) {
	r.change(source, repository, func(o *round) { o.cost = cost })
}

// owe writes down that a look is to come to the pull requests, and reports whether the one before it did not.
func (r *rounds) owe(source, repository string) bool {
	return r.change(source, repository, func(o *round) { o.owed = true }).owed
}

// paid writes down that it has come to them.
func (r *rounds) paid(source, repository string) {
	r.change(source, repository, func(o *round) { o.owed = false })
}

// came writes down which of the items that no list shows has had its turn.
func (r *rounds) came(source, repository string, number uint64) {
	r.change(source, repository, func(o *round) { o.last = number })
}

// inTurn returns items, which are sorted by their numbers, in the order of their turns. After a start it begins anywhere: a process that
// looks once and ends must not begin with the same ones for ever.
func (r *rounds) inTurn(source, repository string, items []Known) []Known {
	if len(items) == 0 {
		return nil
	}
	last := r.change(source, repository, func(*round) {}).last
	first := slices.IndexFunc(items, func(k Known) bool { return k.Number > last })
	if last == 0 {
		first = rand.IntN(len(items)) //nolint:gosec // Whose turn it is is no secret.
	}
	first = max(first, 0) // behind the last one comes the first
	return slices.Concat(items[first:], items[:first])
}

// run reads the repositories that are due, those first that were not looked at for the longest: where a look runs out of time, or of
// requests, the next one goes on. One that cannot be read does not keep the others from being read, unless it is the source itself that
// does not answer, or that wants to be left alone. By hand, everything is due.
func (l *look) run(ctx context.Context, byHand bool) {
	var skipped []error
	for _, repository := range l.order() {
		if l.over() {
			break
		}
		state := l.state(repository)
		if !byHand && !l.due(repository, state) {
			if state.Problem != "" {
				skipped = append(skipped, fault.New(fault.Invalid, fault.ReasonSourceRefused, state.Problem))
			}
			continue
		}
		if end, ok := ctx.Deadline(); ok && time.Until(end) < leastTime || ctx.Err() != nil {
			break
		}
		l.one(ctx, repository, state)
	}
	l.problems = append(l.problems, skipped...)
	l.result.Err = l.err()
}

// order returns the repositories, those first that no look has come to for the longest.
func (l *look) order() []string {
	all := slices.Clone(l.watched.Repositories)
	slices.SortStableFunc(all, func(a, b string) int {
		x, y := l.state(a).Since, l.state(b).Since
		switch {
		case x == y:
			return 0
		case x < 0 || y >= 0 && x > y:
			return -1
		}
		return 1
	})
	return all
}

// state returns what is known of a repository.
func (l *look) state(repository string) RepositoryLook {
	if state, ok := l.known[strings.ToLower(repository)]; ok {
		return state
	}
	return RepositoryLook{Since: -1, SinceFull: -1}
}

// due reports whether a repository is to be read. A look comes around once an interval: half of one earlier is the moment nearest to it.
func (l *look) due(repository string, state RepositoryLook) bool {
	early := l.watched.Interval / 2
	if state.Since < 0 {
		return true
	}
	return state.Wait <= early && l.wait(repository) <= state.Since+early
}

// budget returns what may still be asked about a repository.
func (l *look) budget(repository string) pace.Budget {
	if l.watched.Meter == nil {
		return pace.Budget{}
	}
	rate, left, ok := l.watched.Meter.Rate(repository)
	if !ok {
		return pace.Budget{}
	}
	return pace.Budget{Limit: rate.Limit, Remaining: rate.Remaining, Left: left}
}

// wait returns how long a repository waits for the sake of the budget, by what the latest look at it cost.
func (l *look) wait(repository string) time.Duration {
	return l.budget(repository).Wait(l.rounds.cost(l.watched.Name, repository), len(l.watched.Repositories))
}

// spent returns how many requests about a repository were charged since the start.
func (l *look) spent(repository string) int64 {
	if l.watched.Meter == nil {
		return 0
	}
	return l.watched.Meter.Spent(repository)
}

// one reads one repository, and says when it is read again.
func (l *look) one(ctx context.Context, repository string, state RepositoryLook) {
	end := RepositoryEnd{Name: repository}
	reading, cancel := ctx, context.CancelFunc(func() {})
	if len(l.watched.Repositories) > 1 {
		reading, cancel = context.WithTimeout(ctx, repositoryTime)
	}
	defer cancel()
	if l.watched.FullRead > 0 && state.SinceFull >= 0 && pace.FullDue(repository, l.watched.FullRead, state.SinceFull, l.budget(repository)) {
		reading, end.Full = Full(reading), true
	}
	before, events, spent := len(l.problems), l.result.NewEvents+l.result.SettledEvents, l.spent(repository)
	l.repository(reading, repository)
	end.Full = end.Full || state.SinceFull < 0 // the first look reads everything
	switch problems := l.problems[before:]; {
	case len(problems) == 0:
	case reading.Err() != nil && l.limit == nil && len(l.watched.Repositories) > 1:
		// The next look goes on from there, and the others are read: that is no problem of the source.
		l.problems = l.problems[:before]
		end.Problem, end.Full = fmt.Sprintf("reading it takes longer than one look has time for (%v); the next one goes on", repositoryTime), false
	default:
		end.Problem, end.Full = problems[len(problems)-1].Error(), false
	}
	l.rounds.set(l.watched.Name, repository, int(l.spent(repository)-spent))
	if l.result.NewEvents+l.result.SettledEvents == events {
		end.Quiet = min(state.Quiet+1, maxQuiet)
	}
	if end.Problem == "" {
		end.Wait = l.wait(repository)
		if len(l.watched.Repositories) > manyRepositories && end.Quiet > 0 {
			end.Wait = max(end.Wait, pace.Grow(l.watched.Interval, l.watched.MaxInterval, end.Quiet))
		}
	}
	l.ends = append(l.ends, end)
}
