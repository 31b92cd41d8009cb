package poll

import (
	"context"
	"time"
)

// Meter tells what reading a source costs.
type Meter interface {
	// Use returns what was asked since the start, and what the limits were when they were last told.
	Use() Use
	// Rate returns the limit of ordinary requests about a repository, and how long it lasts; false while none is known.
	Rate(repository string) (rate Rate, left time.Duration, ok bool)
	// Spent returns how many requests about a repository the limits were charged since the start, at most.
	Spent(repository string) int64
}

// Use is what was asked of a source by this process.
type Use struct {
	// Credential is what kind of credential is used, for people; it is no secret.
	Credential string
	// Total counts everything, and Repositories what was about each of them, by name in lower case.
	Total        Requests
	Repositories map[string]Requests
	// Rates are the limits, by credential and resource.
	Rates []Rate
	// Skew is how far the source's clock is before ours.
	Skew time.Duration
	// Problems are of kinds of results that may not be read, while everything else is.
	Problems []KindProblem
}

// Requests counts requests.
type Requests struct {
	// Sent are all that were sent. Unchanged are those that found what is known, and cost nothing; Failed are those that were refused, or
	// not answered.
	Sent, Unchanged, Failed int64
}

// Plus returns the sum.
func (c Requests) Plus(other Requests) Requests {
	return Requests{c.Sent + other.Sent, c.Unchanged + other.Unchanged, c.Failed + other.Failed}
}

// Charged returns how many requests the limits were charged, at most.
func (c Requests) Charged() int64 { return c.Sent - c.Unchanged }

// Rate is a limit as the source last told it.
type Rate struct {
	// Credential is whose it is, for people, and Resource what it is of, as the source says it.
	Credential, Resource string
	// Remaining of Limit requests may be made until Reset, on the source's clock.
	Limit, Remaining int
	Reset            time.Time
}

// KindProblem is why one kind of results of a repository is not read.
type KindProblem struct {
	Repository, Kind, Problem string
	Since                     time.Time
}

type fullKey struct{}

// Full has a source read in full within a context: nothing is taken for unchanged because the source says so.
func Full(ctx context.Context) context.Context { return context.WithValue(ctx, fullKey{}, true) }

// NotFull takes Full back.
func NotFull(ctx context.Context) context.Context { return context.WithValue(ctx, fullKey{}, false) }

// WantsFull reports whether a source is to be read in full.
func WantsFull(ctx context.Context) bool {
	full, _ := ctx.Value(fullKey{}).(bool)
	return full
}

type aloneKey struct{}

// LeaveAlone has a source not be asked within a context, because it wants to be left alone for that much longer: what would ask it is
// fault.Throttled, with that time.
func LeaveAlone(ctx context.Context, left time.Duration) context.Context {
	return context.WithValue(ctx, aloneKey{}, left)
}

// LeftAlone returns for how much longer a source wants to be left alone; zero when it may be asked.
func LeftAlone(ctx context.Context) time.Duration {
	left, _ := ctx.Value(aloneKey{}).(time.Duration)
	return left
}
