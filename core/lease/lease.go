// Package lease holds the rules of leases: who may hold one, and how long an act under it may take. A lease is a holder, a fencing
// token and an end on the database's clock; whoever acts under it passes on the token and a duration, never a clock value.
//
// It performs nothing and reads no clock; it knows nothing of Postgres.
package lease

import "time"

const (
	// Time is how long a lease lasts from its last renewal.
	Time = 30 * time.Second
	// Margin is how long before its lease an act must end, so that two holders never act at once.
	Margin = 2 * time.Second
	// MaxToken is the highest fencing token that anybody may act under. Tokens are microseconds of the database's clock, and the clock comes
	// there in 2255.
	MaxToken = 1 << 53
	// maxLearned leaves more tokens above it than will ever be drawn.
	maxLearned = MaxToken - 1<<40
)

// Learnable reports whether a token that somebody claims to have seen may raise the sequence that tokens are drawn from. A higher one was never
// drawn: somebody wrote it by hand, and raising the sequence above it would leave no token for anybody.
func Learnable(token int64) bool { return token <= maxLearned }

// Lease is one holder's right to act on one work item. The zero value is held by nobody.
type Lease struct {
	// Holder names the process that holds it.
	Holder string
	// Token grows with every new holder; a host refuses an older one than it has seen.
	Token int64
	// Until is its end, on the database's clock.
	Until time.Time
}

// Held reports whether somebody holds the lease at now, which is on the database's clock.
func (l Lease) Held(now time.Time) bool { return l.Holder != "" && now.Before(l.Until) }

// MayTake reports whether holder may take the lease at now: nobody else holds it. A holder may take its own again (and gets a new
// token, because its earlier acts may still be under way).
func (l Lease) MayTake(holder string, now time.Time) bool {
	return holder != "" && (!l.Held(now) || l.Holder == holder)
}

// Budget returns how long an act that starts now may take: it must end Margin before the lease does. Zero means that nothing may
// be started under this lease any more.
func (l Lease) Budget(now time.Time) time.Duration {
	if !l.Held(now) {
		return 0
	}
	return max(0, l.Until.Sub(now)-Margin)
}
