package settings

import "time"

const (
	defaultRetention = 90 * 24 * time.Hour
	// minRetention is longer than anything is asked about again by itself.
	minRetention = 24 * time.Hour
)

// checkRetention checks how long what is finished is kept.
func checkRetention(p *problems, keep time.Duration) {
	p.add(keep < minRetention, "retention is %v: it must be %v at least", keep, minRetention)
}
