package github

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"muxpost.dev/muxpost/services/poller/internal/poll"
)

const (
	resourceCore    = "core"
	resourceGraphQL = "graphql"
)

var _ poll.Meter = (*Client)(nil)

// meter counts requests, and keeps what answers say of limits.
type meter struct {
	mu     sync.Mutex
	counts map[string]*poll.Requests // by repository, in lower case
	rates  map[rateKey]poll.Rate
}

type rateKey struct{ credential, resource string }

func newMeter() *meter {
	return &meter{counts: map[string]*poll.Requests{}, rates: map[rateKey]poll.Rate{}}
}

// of returns the counter of what a context's requests are about.
func (m *meter) of(ctx context.Context) *poll.Requests {
	repository := strings.ToLower(repositoryOf(ctx))
	if m.counts[repository] == nil {
		m.counts[repository] = &poll.Requests{}
	}
	return m.counts[repository]
}

func (m *meter) silent(ctx context.Context) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.of(ctx)
	n.Sent++
	n.Failed++
}

// answered counts an answer. What did not change is not charged.
func (m *meter) answered(ctx context.Context, credential string, response *http.Response) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.of(ctx)
	n.Sent++
	switch {
	case response.StatusCode == http.StatusNotModified:
		n.Unchanged++
	case response.StatusCode >= 400:
		n.Failed++
	}
	number := func(name string) (int64, bool) {
		v, err := strconv.ParseInt(response.Header.Get("X-Ratelimit-"+name), 10, 64)
		return v, err == nil
	}
	limit, known := number("Limit")
	remaining, ok := number("Remaining")
	reset, timed := number("Reset")
	if !known || !ok || !timed {
		return
	}
	resource := response.Header.Get("X-Ratelimit-Resource")
	if resource == "" {
		resource = resourceCore
		if strings.HasSuffix(response.Request.URL.Path, "/graphql") {
			resource = resourceGraphQL
		}
	}
	key := rateKey{credential, resource}
	rate := poll.Rate{Credential: credential, Resource: resource, Limit: int(limit), Remaining: int(remaining), Reset: time.Unix(reset, 0).UTC()}
	// Answers may overtake each other: within one window what remains only shrinks.
	if before, ok := m.rates[key]; ok && before.Reset.Equal(rate.Reset) && before.Limit == rate.Limit {
		rate.Remaining = min(rate.Remaining, before.Remaining)
	}
	m.rates[key] = rate
}

// Use returns what was asked since the start, and what the limits were when they were last told.
func (c *Client) Use() poll.Use {
	m := c.transport.meter
	u := poll.Use{Credential: c.transport.credential.String(), Skew: c.transport.clock.ahead(), Problems: c.refusals.list(),
		Repositories: map[string]poll.Requests{}}
	m.mu.Lock()
	defer m.mu.Unlock()
	for repository, n := range m.counts {
		u.Total = u.Total.Plus(*n)
		if repository != "" {
			u.Repositories[repository] = *n
		}
	}
	for _, rate := range m.rates {
		u.Rates = append(u.Rates, rate)
	}
	slices.SortFunc(u.Rates, func(a, b poll.Rate) int {
		return cmp.Or(cmp.Compare(a.Credential, b.Credential), cmp.Compare(a.Resource, b.Resource))
	})
	return u
}

// Rate returns the limit of ordinary requests about a repository, and how long it lasts by the server's clock; false while none is known,
// or once it has ended.
func (c *Client) Rate(repository string) (rate poll.Rate, left time.Duration, ok bool) {
	name := c.limitsOf(repository)
	m := c.transport.meter
	m.mu.Lock()
	defer m.mu.Unlock()
	rate, ok = m.rates[rateKey{name, resourceCore}]
	left = rate.Reset.Sub(c.transport.clock.server())
	return rate, left, ok && left > 0
}

// Spent returns how many requests about a repository the limits were charged since the start, at most.
func (c *Client) Spent(repository string) int64 {
	m := c.transport.meter
	m.mu.Lock()
	defer m.mu.Unlock()
	if n := m.counts[strings.ToLower(repository)]; n != nil {
		return n.Charged()
	}
	return 0
}

// limitsOf returns the name under which the limits of a repository are kept.
func (c *Client) limitsOf(repository string) string {
	switch known := c.transport.credential.(type) {
	case *App:
		return known.nameFor(ownerOf(repository))
	case fileToken:
		if known.Get() != "" {
			return nameOfToken
		}
	}
	return ""
}
