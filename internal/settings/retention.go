package settings

import "time"

const (
	defaultRetention = 90 * 24 * time.Hour
	// minRetention is longer than anything is asked about again by itself.
	minRetention = 24 * time.Hour
)

// checkRetention checks how long what is finished is kept.
func checkRetention(p *problems, key string, keep time.Duration) {
	p.add(keep < minRetention, "%s is %v: it must be %v at least", key, keep, minRetention)
}
