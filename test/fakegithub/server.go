// Package fakegithub is a GitHub of one's own for tests and demonstrations: an http.Handler that speaks the part of GitHub's REST API
// that deals with issues, pull requests, reviews, comments, labels, reactions, branches and what CI reports, under / and under /api/v3/,
// with its ETags, pagination, rate limits and error bodies. It answers one query of GraphQL (who edited a text, and what a pull request
// closes), knows GitHub Apps with their JWTs and installation tokens, and sends webhooks.
//
// Tests seed and change its state through Go methods; people do so through the API itself, or with JSON under /_fake/. On request it also
// fails, hangs and cuts answers short, as the real one does, and holds webhooks back, shuffles, loses and repeats them.
//
// It answers by state alone: the same request gets the same answer until something changes or a fault was asked for. Every html_url of an
// issue, a pull request, a comment or a review leads to a readable page on the same server. What it does follows GitHub's documentation;
// the comments name the page, as "REST: List pull requests", or say that it was only observed.
//
// The package knows nothing of muxpost's services. It keeps everything in memory and renders no Markdown; it has no search and no git: a
// commit is a name, and no diff is behind a pull request. It is for loopback only: whoever reaches /_fake/ may do anything.
package fakegithub

import (
	"context"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	maxRequestBytes       = 1 << 20
	defaultRate           = 5000
	defaultAnonymousRate  = 60
	firstUserID           = 1000
	firstRepoID           = 500_000
	firstIssueID          = 2_400_000_000
	firstCommentID        = 3_100_000_000 // beyond 32 bits, as GitHub's are
	firstReviewID         = 2_900_000_000
	firstInlineID         = 2_200_000_000
	firstCheckID          = 51_000_000_000
	firstSuiteID          = 44_000_000_000
	firstStatusID         = 38_000_000_000
	firstRunID            = 17_000_000_000
	firstHookID           = 480_000_000
	firstDeliveryID       = 190_000_000_000
	firstReactionID       = 250_000_000
	firstLabelID          = 7_000_000_000
	controlPrefix         = "/_fake/"
	enterprisePrefix      = "/api/v3"
	enterpriseGraphQL     = "/api/graphql"
	rateWindow            = time.Hour
	loginBotSuffix        = "[bot]"
	contentTypeJSON       = "application/json; charset=utf-8"
	headerRateLimitPrefix = "X-Ratelimit-"
)

// Config is what a Server is made from. The zero value is a public GitHub that nobody can write to.
type Config struct {
	// Tokens maps an API token to the login it acts as. AddToken adds more later.
	Tokens map[string]string
	// RequireToken refuses every API request that carries no token with 401.
	RequireToken bool
	// RateLimit is the number of requests an hour for each login; 0 means 5000.
	RateLimit int
	// AnonymousRateLimit is the same for all requests without a token together; 0 means 60.
	AnonymousRateLimit int
	// StrongETags leaves out the W/ before an ETag. GitHub sends weak ones.
	StrongETags bool
	// Concurrent is how many requests may be under way at once, and WritesPerMinute how many may create content for each login: beyond
	// that, GitHub's secondary limits answer. It allows 100 and 80; 0 means no such limit.
	Concurrent, WritesPerMinute int
	// HookTimeout is how long the receiver of a webhook may take; 0 means 10 s ("Best practices for using webhooks": within 10 seconds).
	HookTimeout time.Duration
	// Now is the server's clock; nil means time.Now. Times are cut to the second, so several changes may share one.
	Now func() time.Time
}

// Server is the fake. It is an http.Handler and safe for use by many goroutines.
type Server struct {
	cfg      Config
	inFlight atomic.Int64

	mu         sync.Mutex
	tokens     map[string]*grant
	users      map[string]*user
	repos      map[string]*repo
	forks      map[string]*repo // that only a head of a pull request names
	comments   map[int64]*comment
	reviews    map[int64]*review
	inline     map[int64]*reviewComment
	rates      map[rateKey]*rate
	writes     map[rateKey][]time.Time
	counts     map[string]*Count
	faults     []*Fault
	release    chan struct{}
	apps       []*app
	hooks      hooks
	lastUser   int64
	lastRepo   int64
	lastIssue  int64
	lastNote   int64
	lastReview int64
	lastInline int64
	lastReact  int64
	lastCheck  int64
	lastSuite  int64
	lastStatus int64
	lastRun    int64
	lastLabel  int64
	lastPut    int64 // of labels
	requestSeq int64
}

// New returns a server without repositories.
func New(cfg Config) *Server {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.RateLimit == 0 {
		cfg.RateLimit = defaultRate
	}
	if cfg.AnonymousRateLimit == 0 {
		cfg.AnonymousRateLimit = defaultAnonymousRate
	}
	if cfg.HookTimeout == 0 {
		cfg.HookTimeout = defaultHookTimeout
	}
	s := &Server{
		cfg: cfg, tokens: map[string]*grant{}, users: map[string]*user{}, repos: map[string]*repo{}, forks: map[string]*repo{},
		comments: map[int64]*comment{}, reviews: map[int64]*review{}, inline: map[int64]*reviewComment{},
		lastReview: firstReviewID, lastInline: firstInlineID,
		lastCheck: firstCheckID, lastSuite: firstSuiteID, lastStatus: firstStatusID, lastRun: firstRunID,
		rates: map[rateKey]*rate{}, counts: map[string]*Count{}, writes: map[rateKey][]time.Time{}, release: make(chan struct{}),
		lastUser: firstUserID, lastRepo: firstRepoID, lastIssue: firstIssueID, lastNote: firstCommentID,
		lastReact: firstReactionID, lastLabel: firstLabelID,
	}
	s.hooks = hooks{lastHook: firstHookID, lastMade: firstDeliveryID, base: "http://127.0.0.1", timeLimit: cfg.HookTimeout}
	s.hooks.ctx, s.hooks.stop = context.WithCancel(context.Background())
	s.addTokens(cfg.Tokens)
	return s
}

// addTokens goes by the order of tokens, so that the same start gives the same user ids.
func (s *Server) addTokens(tokens map[string]string) {
	for _, token := range slices.Sorted(maps.Keys(tokens)) {
		s.tokens[token] = &grant{user: s.userFor(tokens[token])}
	}
}

// Close lets every hanging request go, by cutting its connection, and forgets the faults. It ends the sending of webhooks, and waits for
// that. The server can still be used, but sends nothing any more.
func (s *Server) Close() {
	s.ClearFaults()
	s.closeHooks()
}

// ServeHTTP answers the API, the pages for people and the control requests under /_fake/.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// The whole body is read first: net/http notices a client that went away only after that, and a hang depends on it.
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequestBytes))
	if err != nil {
		http.Error(w, `{"message":"Request body is too large or was cut short"}`, http.StatusRequestEntityTooLarge)
		return
	}
	if strings.HasPrefix(r.URL.Path, controlPrefix) {
		s.serveControl(w, r, body)
		return
	}
	if r.URL.Path == enterpriseGraphQL {
		s.serveAPI(w, r, []string{"graphql"}, true, body)
		return
	}
	path, enterprise := strings.CutPrefix(r.URL.Path, enterprisePrefix+"/")
	segments := strings.Split(strings.Trim(path, "/"), "/")
	if !enterprise && !apiRoots[segments[0]] {
		s.servePage(w, r, segments)
		return
	}
	s.serveAPI(w, r, segments, enterprise, body)
}

// apiRoots are the first segments that belong to the API, the parts that are not here included: they get a 404 in JSON.
var apiRoots = map[string]bool{
	"repos": true, "repositories": true, "user": true, "rate_limit": true,
	"users": true, "orgs": true, "search": true, "graphql": true, "app": true, "installation": true, "notifications": true,
}

// now is the server's clock in GitHub's resolution of one second.
func (s *Server) now() time.Time { return s.cfg.Now().UTC().Truncate(time.Second) }
