package attempt

import "time"

// pace is when an attempt was last seen to make progress.
type pace struct {
	last Progress
	// moved is when last was seen first, going when nothing was seen to stand stopped, looked when it was looked at.
	moved, going, looked time.Time
}

// stalled reports whether nothing of an attempt made progress, or something of it stood stopped, for its whole stall limit. What is watched are
// its own processes. It is looked at ten times within the limit; a look that fails proves nothing, and begins anew.
func (p *pace) stalled(m Memory, trees Trees) bool {
	now := time.Now()
	if !p.looked.IsZero() && now.Sub(p.looked) < m.StallLimit/10 {
		return false
	}
	seen, err := trees.Progress(m)
	if gap := now.Sub(p.looked); err != nil || p.looked.IsZero() || gap > m.StallLimit/2 {
		// After a long time without a look nothing is known of that time: this process may have stood still itself.
		*p = pace{last: seen, moved: now, going: now}
	}
	p.looked = now
	if seen != p.last {
		p.moved = now
	}
	if !seen.Stopped {
		p.going = now
	}
	p.last = seen
	return now.Sub(p.moved) >= m.StallLimit || now.Sub(p.going) >= m.StallLimit
}
