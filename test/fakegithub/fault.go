package fakegithub

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"muxpost.dev/muxpost/core/fault"
)

// Kind names what goes wrong.
type Kind string

// The kinds of faults.
const (
	// KindStatus answers with Fault.Status, Header and Body.
	KindStatus Kind = "status"
	// KindBadGateway is a 502 from in front of the API: a page of HTML, no rate limit headers.
	KindBadGateway Kind = "bad_gateway"
	// KindForbidden is a 403 because the token lacks a permission.
	KindForbidden Kind = "forbidden"
	// KindRateLimit is a 403 with nothing remaining until RetryAfter seconds from now.
	KindRateLimit Kind = "rate_limit"
	// KindSecondaryLimit is a 403 (or Status 429) with Retry-After.
	KindSecondaryLimit Kind = "secondary_limit"
	// KindHang gives no answer at all until the client leaves, the faults are cleared or the server is closed.
	KindHang Kind = "hang"
	// KindTruncate sends the true answer's headers and half its body, then cuts the connection.
	KindTruncate Kind = "truncate"
)

// Fault is something to go wrong with the next requests that it matches.
type Fault struct {
	Kind Kind `json:"kind"`
	// Method is the HTTP method it is for; empty means any.
	Method string `json:"method"`
	// Path is the beginning of the path without /api/v3, in whole segments: /repos/o/r/issues/1 is not …/issues/10. Empty means any.
	Path string `json:"path"`
	// Times is how many requests it is for: 0 means one, a negative number means all until ClearFaults.
	Times int `json:"times"`
	// AfterEffect carries the request out before it fails, so that a write happens and its answer is lost.
	AfterEffect bool `json:"after_effect"`
	// Status replaces the kind's own status code.
	Status int `json:"status"`
	// RetryAfter is in seconds; 0 means 60.
	RetryAfter int `json:"retry_after"`
	// Header is set on the answer, over everything else.
	Header map[string]string `json:"header"`
	// Body replaces the kind's own body.
	Body string `json:"body"`
}

// Inject adds a fault; where several match, the oldest acts first. It fails with fault.Invalid for a kind it does not know.
func (s *Server) Inject(f Fault) error {
	switch f.Kind {
	case KindBadGateway, KindForbidden, KindRateLimit, KindSecondaryLimit, KindHang, KindTruncate:
	case KindStatus:
		if f.Status < 200 || f.Status > 599 {
			return fault.Newf(fault.Invalid, fault.ReasonBadArgument, "a fault of kind status needs a status between 200 and 599, not %d", f.Status)
		}
	default:
		return fault.Newf(fault.Invalid, fault.ReasonBadArgument, "there is no kind of fault called %q", f.Kind)
	}
	if f.Times == 0 {
		f.Times = 1
	}
	if f.RetryAfter == 0 {
		f.RetryAfter = 60
	}
	f.Path = strings.Trim(strings.TrimPrefix(strings.ToLower(f.Path), enterprisePrefix), "/")
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, &f)
	return nil
}

// ClearFaults forgets every fault, and lets every hanging request go by cutting its connection.
func (s *Server) ClearFaults() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = nil
	close(s.release)
	s.release = make(chan struct{})
}

func (s *Server) takeFault(method, path string) *Fault {
	for i, f := range s.faults {
		inside := f.Path == "" || strings.HasPrefix(path+"/", "/"+f.Path+"/")
		if !inside || f.Method != "" && !strings.EqualFold(f.Method, method) {
			continue
		}
		if f.Times > 0 {
			if f.Times--; f.Times == 0 {
				s.faults = append(s.faults[:i:i], s.faults[i+1:]...)
			}
		}
		return f
	}
	return nil
}

func (f *Fault) needsAnswer() bool { return f.AfterEffect || f.Kind == KindTruncate }
func (f *Fault) cuts() bool        { return f.Kind == KindHang || f.Kind == KindTruncate }

// apply makes the answer that the fault wants; the true one is what truncation needs.
func (f *Fault) apply(s *Server, c *call, truth answer) answer {
	if f.cuts() {
		return truth
	}
	if c.user == nil {
		_ = c.authenticate() // only to say whose limit it is: a fault comes before a bad token
	}
	a := answer{header: s.baseHeader()}
	if f.Kind != KindBadGateway {
		s.rate(c.rateKey(c.resource)).head(a.header)
	}
	p := &problem{status: f.Status, message: http.StatusText(f.Status)}
	switch f.Kind {
	case KindBadGateway:
		a.header.Set("Content-Type", "text/html")
		p.status = http.StatusBadGateway
		a.body = []byte("<html><head><title>502 Bad Gateway</title></head><body><h1>502 Bad Gateway</h1></body></html>\n")
	case KindForbidden:
		p = &problem{status: http.StatusForbidden, message: "Resource not accessible by personal access token"}
		a.header.Set("X-Accepted-Github-Permissions", "issues=write")
	case KindRateLimit:
		p = limitExceeded(c.user)
		a.header.Set(headerRateLimitPrefix+"Remaining", "0")
		a.header.Set(headerRateLimitPrefix+"Used", a.header.Get(headerRateLimitPrefix+"Limit"))
		a.header.Set(headerRateLimitPrefix+"Reset", strconv.FormatInt(s.now().Add(time.Duration(f.RetryAfter)*time.Second).Unix(), 10))
	case KindSecondaryLimit:
		p = tooMuch()
		a.header.Set("Retry-After", strconv.Itoa(f.RetryAfter))
	}
	a.status = p.status
	if f.Status != 0 {
		a.status, p.status = f.Status, f.Status
	}
	if f.Body != "" {
		a.body = []byte(f.Body)
	} else if a.body == nil {
		a.body, _ = json.Marshal(p.reply().value) // strings and numbers only: cannot fail
	}
	for key, value := range f.Header {
		a.header.Set(key, value)
	}
	return a
}

// cut ends a request without a proper answer. It does not return.
func (f *Fault) cut(w http.ResponseWriter, r *http.Request, a answer, release <-chan struct{}) {
	if f.Kind == KindTruncate {
		a.header.Set("Content-Length", strconv.Itoa(len(a.body)))
		a.body = a.body[:len(a.body)/2]
		a.write(w)
		_ = http.NewResponseController(w).Flush()
	} else {
		select {
		case <-r.Context().Done():
		case <-release:
		}
	}
	panic(http.ErrAbortHandler)
}

// Count is what has been asked of one path by one method.
type Count struct {
	// Requests counts all that arrived, those that met a fault included.
	Requests int `json:"requests"`
	// NotModified counts the answers with 304.
	NotModified int `json:"not_modified"`
	// Charged counts what the rate limit was charged.
	Charged int `json:"charged"`
	// Faulted counts the requests that met a fault.
	Faulted int `json:"faulted"`
}

// Counts returns the counters by method and path, such as "GET /repos/acme/widgets/issues": lower case, without query and /api/v3.
func (s *Server) Counts() map[string]Count {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[string]Count, len(s.counts))
	for key, count := range s.counts {
		out[key] = *count
	}
	return out
}

// ResetCounts sets every counter back to zero.
func (s *Server) ResetCounts() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts = map[string]*Count{}
}

func (s *Server) count(method, path string) *Count {
	key := method + " " + path
	if s.counts[key] == nil {
		s.counts[key] = &Count{}
	}
	return s.counts[key]
}
