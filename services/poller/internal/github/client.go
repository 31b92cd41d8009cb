package github

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	gh "github.com/google/go-github/v90/github"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/workitem"
	"muxpost.dev/muxpost/internal/settings"
	"muxpost.dev/muxpost/internal/version"
)

// DefaultTimeout bounds one request, its body included.
const DefaultTimeout = 15 * time.Second

// Config says which server to read and as whom.
type Config struct {
	// BaseURL is the root of the server or of its API; empty means github.com. A path of its own (such as /api/v3/) is kept.
	BaseURL string
	// Host is the host in names of work items; empty means settings.HostOf(BaseURL).
	Host string
	// Token is sent with every request; nil sends none. App takes its place.
	Token *Token
	App   *App
	// Label, Assignee and Mention are what puts an issue under our care: a label, the account that it is assigned to, and the account
	// that it mentions. Empty ones put none there. MentionSelf mentions the account that the credential acts as.
	Label, Assignee, Mention string
	MentionSelf              bool
	// TeamLabels are the labels that have a team run for an issue.
	TeamLabels []string
	// Pulls has open pull requests listed.
	Pulls bool
	// CI are the kinds of results of CI that Checks returns, as poll names them.
	CI []string
	// CIInterval and CIQuiet are how often the results at a commit are read at first, and how seldom at last, once all have ended and none
	// is new. Without them they are read whenever they are asked for.
	CIInterval, CIQuiet time.Duration
	// Timeout bounds a request; DefaultTimeout when 0.
	Timeout time.Duration
	// TracerProvider starts a span for each request; nil starts none.
	TracerProvider trace.TracerProvider
	// Now is this machine's clock; nil is time.Now.
	Now func() time.Time
}

// Client reads one server. It is safe for use by many goroutines.
type Client struct {
	api     *gh.Client
	direct  *http.Transport
	base    *url.URL
	host    string
	timeout time.Duration
	now     func() time.Time

	label, assignee, mention string
	mentionSelf, pulls       bool
	ci, teamLabels           []string

	transport *transport
	refusals  refusals
	quiet     quietCI
	nodes     nodes
	self      self
}

// apiOf returns where the API of a server is. A server of one's own has it under /api/v3/; one on this machine is taken as it
// is, and so is an address that has a path or says that it is an API.
func apiOf(base *url.URL) *url.URL {
	if base.Path != "/" {
		return base
	}
	name := base.Hostname()
	switch ip, err := netip.ParseAddr(name); {
	case name == "github.com":
		return &url.URL{Scheme: "https", Host: "api.github.com", Path: "/"}
	case strings.HasPrefix(name, "api."), name == "localhost", err == nil && ip.IsLoopback():
		return base
	}
	return base.JoinPath("api", "v3", "/")
}

// New returns a client. It connects to nothing yet. A configuration that cannot work is fault.Invalid.
func New(config Config) (*Client, error) {
	base, err := settings.ParseBaseURL(config.BaseURL)
	if err != nil {
		return nil, err
	}
	host := config.Host
	if host == "" {
		if host, err = settings.HostOf(config.BaseURL); err != nil {
			return nil, err
		}
	}
	base = apiOf(base)
	if config.Now == nil {
		config.Now = time.Now
	}
	if config.TracerProvider == nil {
		config.TracerProvider = tracenoop.NewTracerProvider()
	}
	direct := http.DefaultTransport.(*http.Transport).Clone()
	direct.MaxResponseHeaderBytes = 1 << 20
	sender := &transport{
		base: base, cache: newCache(), clock: &clock{now: config.Now}, meter: newMeter(), credential: fileToken{cmp.Or(config.Token, &Token{})},
		// GitHub is no part of ours: our trace context is none of its business, so none is sent.
		next: otelhttp.NewTransport(direct, otelhttp.WithTracerProvider(config.TracerProvider),
			otelhttp.WithMeterProvider(metricnoop.NewMeterProvider()), otelhttp.WithPropagators(propagation.NewCompositeTextMapPropagator())),
	}
	timeout := cmp.Or(config.Timeout, DefaultTimeout)
	if config.App != nil {
		config.App.api = &appAPI{sender, timeout}
		sender.credential = config.App
	}
	httpClient := &http.Client{
		Transport: sender,
		// A renamed repository answers with a redirect to itself by number, on the same server.
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			if len(via) > 3 || r.URL.Host != base.Host || r.URL.Scheme != base.Scheme {
				return http.ErrUseLastResponse
			}
			return nil
		},
	}
	baseText := base.String()
	api, err := gh.NewClient(gh.WithHTTPClient(httpClient), gh.WithURLs(&baseText, &baseText),
		gh.WithUserAgent(userAgent()),
		// Limits are kept where every replica sees them, and not in this process.
		gh.WithDisableRateLimitCheck())
	if err != nil {
		return nil, fault.Wrap(fault.Internal, fault.ReasonBadConfig, "cannot make a client for GitHub", err)
	}
	return &Client{
		api: api, direct: direct, base: base, host: host, timeout: timeout, now: config.Now, label: config.Label, assignee: config.Assignee,
		mention: config.Mention, teamLabels: config.TeamLabels, mentionSelf: config.MentionSelf, pulls: config.Pulls, ci: config.CI, transport: sender,
		nodes: nodes{apart: config.App != nil && config.App.fixed == 0},
		quiet: quietCI{interval: config.CIInterval, most: config.CIQuiet},
	}, nil
}

func userAgent() string { return "muxpost/" + version.Get().Version }

// Close gives up the connections that are not in use. The client can still be used.
func (c *Client) Close() { c.direct.CloseIdleConnections() }

// SplitRepository reads owner/repo. It fails with fault.Invalid for anything else.
func SplitRepository(host, repository string) (owner, name string, err error) {
	owner, name, ok := strings.Cut(repository, "/")
	if ok {
		if _, err = workitem.New(host, owner, name, "1"); err == nil {
			return owner, name, nil
		}
	}
	return "", "", fault.Newf(fault.Invalid, fault.ReasonBadConfig, "%q is not a repository", repository).
		WithRemedy("write it as owner/repo")
}

// get reads one URL below the API, or an absolute one on the same server, into v, and returns the answer's head.
func (c *Client) get(ctx context.Context, repository, path string, v any) (*gh.Response, error) {
	asking, cancel := context.WithTimeout(about(ctx, repository), c.timeout)
	defer cancel()
	request, err := c.api.NewRequest(asking, http.MethodGet, path, nil)
	if err != nil {
		return nil, fault.Wrap(fault.Internal, "", "cannot ask for "+repository, err)
	}
	response, err := c.api.BareDo(request)
	if err != nil {
		return nil, c.failed(ctx, repository, response, err)
	}
	defer func() { _ = response.Body.Close() }() // it was read to its end, or is given up
	if err := json.NewDecoder(response.Body).Decode(v); err != nil {
		return nil, c.transport.unreadable(ctx, repository, err)
	}
	return response, nil
}

// next returns the URL of the next page, or "" on the last one. It is taken from the answer as it is, because some lists go on
// by number and some by cursor; one that leads away from the server is an error.
func (c *Client) next(repository string, response *gh.Response) (string, error) {
	for link := range strings.SplitSeq(response.Header.Get("Link"), ",") {
		target, rest, ok := strings.Cut(link, ">")
		if !ok || !strings.Contains(rest, `rel="next"`) {
			continue
		}
		u, err := url.Parse(strings.TrimLeft(target, " <"))
		if err != nil || u.Host != c.base.Host || u.Scheme != c.base.Scheme {
			return "", fault.Newf(fault.Denied, fault.ReasonSourceRefused,
				"the list of %s goes on at another server than %s, and the token is not sent there", repository, c.base.Host).
				WithRemedy("set base_url to the address that the server gives itself in its answers")
		}
		return u.String(), nil
	}
	return "", nil
}
