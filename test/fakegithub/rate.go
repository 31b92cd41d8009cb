package fakegithub

import (
	"fmt"
	"net/http"
	"time"
)

// rate is one login's hour of requests of one kind.
type rate struct {
	limit, used int
	reset       time.Time
	resource    string
}

// rateKey says whose hour it is: every installation of an app has its own ("Rate limits for the REST API"), and GraphQL counts apart.
type rateKey struct {
	user         *user
	installation int64
	resource     string
}

func (s *Server) rate(key rateKey) *rate {
	bucket := s.rates[key]
	if bucket == nil {
		bucket = &rate{limit: s.cfg.RateLimit, resource: key.resource}
		if key.user == nil {
			bucket.limit = s.cfg.AnonymousRateLimit
		}
		s.rates[key] = bucket
	}
	if now := s.now(); !now.Before(bucket.reset) {
		bucket.used, bucket.reset = 0, now.Add(rateWindow)
	}
	return bucket
}

func (c *call) rateKey(resource string) rateKey {
	key := rateKey{user: c.user, resource: resource}
	switch {
	case c.installation != nil:
		key.installation = c.installation.id
	case c.app != nil:
		key.user = c.app.bot // what an app does as itself counts apart from its installations
	}
	return key
}

func (b *rate) value() object {
	return object{"limit": b.limit, "remaining": max(0, b.limit-b.used), "used": b.used, "reset": b.reset.Unix(), "resource": b.resource}
}

func (b *rate) head(h http.Header) {
	for key, value := range b.value() {
		h.Set(headerRateLimitPrefix+key, fmt.Sprint(value))
	}
}

// SetRemaining sets how many requests a login has left in its hour; the empty login is everyone without a token.
func (s *Server) SetRemaining(login string, remaining int) {
	s.setRemaining(login, resourceCore, remaining)
}

// SetRemainingGraphQL is SetRemaining for GraphQL, which counts apart.
func (s *Server) SetRemainingGraphQL(login string, remaining int) {
	s.setRemaining(login, resourceGraphQL, remaining)
}

func (s *Server) setRemaining(login, resource string, remaining int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var u *user
	if login != "" {
		u = s.userFor(login)
	}
	bucket := s.rate(rateKey{user: u, resource: resource})
	bucket.used = bucket.limit - remaining
}

func limitExceeded(u *user) *problem {
	message := "API rate limit exceeded for 127.0.0.1. (But here's the good news: Authenticated requests get a higher rate limit.)"
	if u != nil {
		message = fmt.Sprintf("API rate limit exceeded for user ID %d.", u.id)
	}
	return &problem{status: http.StatusForbidden, message: message, doc: "/using-the-rest-api/rate-limits-for-the-rest-api"}
}

// exhausted is the answer when the hour's requests are used up. GraphQL says so in a 200 ("Rate limits and query limits for the GraphQL
// API": the status may still be 200, with an error message and nothing remaining).
func (c *call) exhausted() reply {
	p := limitExceeded(c.user)
	if c.resource != resourceGraphQL {
		return p.reply()
	}
	return reply{status: http.StatusOK, value: object{"errors": []object{{"type": "RATE_LIMITED", "message": p.message}}}}
}
