package settings

import "time"

const (
	defaultRetention = 90 * 24 * time.Hour
	// longRetention is for what a person may still want to have tried again, or what tells a second time from a first.
	longRetention = 365 * 24 * time.Hour
	// minJournal is the time within which a database may be restored, or a thing that was forgotten be found anew.
	minJournal = 30 * 24 * time.Hour
	// minRetention is longer than anything is asked about again by itself.
	minRetention = 24 * time.Hour
)

// checkRetention checks how long what is finished is kept.
func checkRetention(p *problems, key string, keep time.Duration) {
	p.add(keep < minRetention, "%s is %v: it must be %v at least", key, keep, minRetention)
}
