package fakegithub

import (
	"net/http"
	"slices"
	"strconv"
	"time"
)

// What follows are the secondary limits of "Rate limits for the REST API", as rules that depend on what is asked, and when.

const (
	secondaryWait = 60 // seconds, what GitHub asks for when it says nothing more exact
	writeWindow   = time.Minute
)

// secondaryLimit is the answer to a request beyond a secondary limit: 403 with Retry-After, and the primary limit as it was.
func (s *Server) secondaryLimit(c *call, wait int) answer {
	a := s.finish(c, tooMuch().reply(), s.rate(c.rateKey(c.resource)))
	a.header.Set("Retry-After", strconv.Itoa(wait))
	return a
}

func tooMuch() *problem {
	return &problem{status: http.StatusForbidden, doc: "/overview/rate-limits-for-the-rest-api#about-secondary-rate-limits",
		message: "You have exceeded a secondary rate limit. Please wait a few minutes before you try again."}
}

// beyondSecondary says for how many seconds to wait, 0 for a request that is within the limits. What is refused does not count as written.
func (s *Server) beyondSecondary(c *call) int {
	if s.cfg.Concurrent > 0 && int(s.inFlight.Load()) > s.cfg.Concurrent {
		return secondaryWait
	}
	if s.cfg.WritesPerMinute == 0 || !c.writes() {
		return 0
	}
	key, now := c.rateKey(c.resource), s.now()
	recent := slices.DeleteFunc(s.writes[key], func(at time.Time) bool { return !now.Before(at.Add(writeWindow)) })
	if len(recent) >= s.cfg.WritesPerMinute {
		s.writes[key] = recent
		return max(1, int(recent[len(recent)-s.cfg.WritesPerMinute].Add(writeWindow).Sub(now).Seconds()))
	}
	s.writes[key] = append(recent, now)
	return 0
}

// writes are requests that create content: those of GraphQL only read here, and an app that gets a token has written nothing.
func (c *call) writes() bool {
	return c.r.Method != http.MethodGet && c.r.Method != http.MethodHead && c.resource == resourceCore && c.app == nil
}
