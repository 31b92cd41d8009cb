package settings

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/ledger"
	"muxpost.dev/muxpost/core/workitem"
	"muxpost.dev/muxpost/internal/layout"
)

// KindGitHub is the one kind of source: a server that speaks GitHub's REST API.
const KindGitHub = ledger.ProviderGitHub

const (
	// publicAPI is where github.com answers.
	publicAPI       = "https://api.github.com/"
	defaultInterval = 30 * time.Second
	minInterval     = 5 * time.Second
	// minLocalInterval is for a server on this machine, which nobody else pays for.
	minLocalInterval = time.Second
	maxInterval      = 24 * time.Hour
	maxWorkers       = 256
	maxBudget        = 100
	maxSourceName    = 64
	maxTokenFile     = 4 << 10
	maxDigestAfter   = 1000
)

func (c *Poller) check(p *problems) {
	checkListen(p, c.Listen)
	checkCalled(p, "dispatcher", c.Dispatcher, layout.Dispatcher)
	checkRetention(p, "retention", c.Retention)
	p.add(c.Workers < 1 || c.Workers > maxWorkers, "workers is %d: it must be 1 to %d", c.Workers, maxWorkers)
	p.add(c.Budget < 1 || c.Budget > maxBudget, "budget is %d: it must be 1 to %d", c.Budget, maxBudget)
	p.add(c.DigestAfter < 0 || c.DigestAfter > maxDigestAfter, "digest_after is %d: it must be 0 (never) to %d", c.DigestAfter, maxDigestAfter)
	_, err := c.TemplateSet()
	p.add(err != nil, "templates: %v", err)
	names, places := map[string]int{}, map[string]int{}
	for i, s := range c.Sources {
		s.check(p, fmt.Sprintf("sources[%d]", i))
		// What single sources cannot show: names used twice, and repositories that two sources would both read.
		first, twice := names[s.Name]
		p.add(twice, "sources[%d].name is %q, as is that of sources[%d]: names must differ", i, s.Name, first)
		names[s.Name] = i
		for _, repository := range s.Repositories {
			place := strings.ToLower(s.Host + "/" + repository)
			first, twice := places[place]
			p.add(twice, "sources[%d].repositories lists %s, as does sources[%d]: list it once", i, repository, first)
			places[place] = i
		}
	}
}

// derive fills in what a source leaves out.
func (s *Source) derive() {
	s.Interval = cmp.Or(s.Interval, defaultInterval)
	if s.Host == "" {
		s.Host, _ = HostOf(s.BaseURL) // a bad URL is told by check
	}
}

// check finds the mistakes of a source, and whether its token can be read; key is where it stands.
func (s *Source) check(p *problems, key string) {
	p.add(!validName(s.Name), "%s.name is %q: write a short name of a-z, 0-9, - and _, such as github", key, s.Name)
	p.add(s.Name == ledger.SourceManual, "%s.name is %q, which is the name for events by hand: choose another", key, s.Name)
	p.add(s.Kind != KindGitHub, "%s.kind is %q: write kind: github, the only kind there is", key, s.Kind)
	p.add(strings.TrimSpace(s.Label) == "", "%s.label is empty: write the label that puts an issue under muxpost's care, such as agent", key)
	p.add(strings.Contains(s.Label, ","), "%s.label has a comma, which GitHub reads as two labels: name one label", key)
	if _, err := HostOf(s.BaseURL); err != nil {
		p.add(true, "%s.base_url: %v", key, err)
	} else {
		_, err = workitem.New(s.Host, "owner", "repo", "1")
		p.add(err != nil, "%s.host is %q, which cannot stand in the name of a work item: write a host name, such as github.example.com",
			key, s.Host)
	}
	p.add(len(s.Repositories) == 0, "%s.repositories is empty: list at least one, as owner/repo", key)
	for i, repository := range s.Repositories {
		owner, name, _ := strings.Cut(repository, "/")
		_, err := workitem.New("", owner, name, "1")
		p.add(err != nil, "%s.repositories[%d] is %q: write it as owner/repo", key, i, repository)
	}
	for i, author := range s.Authors {
		p.add(strings.TrimSpace(author) == "" || strings.ContainsAny(author, " @\t\n"), "%s.authors[%d] is %q: write a GitHub login, without @",
			key, i, author)
	}
	least := minInterval
	if isLoopback(s.BaseURL) {
		least = minLocalInterval
	}
	p.add(s.Interval < least || s.Interval > maxInterval, "%s.interval is %v: it must be %v to %v", key, s.Interval, least, maxInterval)
	p.add(s.Notices && s.TokenFile == "", "%s.notices is on and there is no token_file: writing to issues needs a token", key)
	p.add(s.Reactions && s.TokenFile == "", "%s.reactions is on and there is no token_file: writing to issues needs a token", key)
	_, err := s.Token()
	p.add(err != nil, "%s.token_file: %v", key, err)
}

func validName(s string) bool {
	if s == "" || len(s) > maxSourceName || s[0] == '-' || s[0] == '_' {
		return false
	}
	return strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-_") == ""
}

func isLoopback(baseURL string) bool {
	u, err := url.Parse(baseURL)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(u.Hostname())
	return u.Hostname() == "localhost" || err == nil && ip.IsLoopback()
}

// ParseBaseURL reads the base URL of a source; an empty one is github.com's. Its path ends in a slash. What is no http or https URL
// of a server is fault.Invalid.
func ParseBaseURL(text string) (*url.URL, error) {
	u, err := url.Parse(cmp.Or(text, publicAPI))
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		// The text may hold a secret in the wrong place, so it is not repeated.
		return nil, fault.New(fault.Invalid, fault.ReasonBadConfig, "the base URL is not an http or https URL of a server").
			WithRemedy("write it as https://github.example.com or https://github.example.com/api/v3/, or leave it out for github.com")
	}
	if !strings.HasSuffix(u.Path, "/") {
		u.Path += "/"
	}
	return u, nil
}

// HostOf returns the host that a base URL stands for in names of work items: github.com for an empty one, otherwise its host, and
// its port if it has one. It fails as ParseBaseURL does.
func HostOf(baseURL string) (string, error) {
	u, err := ParseBaseURL(baseURL)
	if err != nil {
		return "", err
	}
	if u.Host == "api.github.com" || u.Host == "github.com" {
		return "github.com", nil
	}
	return strings.ToLower(u.Host), nil
}

// Token reads the token of a source from its file, which must not be one that everybody on the machine may read. No file means no
// token. The error is text for the person who made the file.
func (s *Source) Token() (string, error) {
	path := s.TokenFile
	if path == "" {
		return "", nil
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("there is no file %s: create it with the token in it and chmod 600", path)
	case err != nil:
		return "", fmt.Errorf("cannot read it: %w", err)
	case !info.Mode().IsRegular() || info.Size() > maxTokenFile:
		return "", fmt.Errorf("%s is not a small regular file: it should hold a token and nothing else", path)
	case info.Mode().Perm()&0o004 != 0:
		return "", fmt.Errorf("everybody on this machine can read %s: run chmod 600 on it, and consider the token known", path)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("cannot read it: %w", err)
	}
	token := strings.TrimSpace(string(data))
	if token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fmt.Errorf("%s should hold one token on one line, and does not", path)
	}
	return token, nil
}
