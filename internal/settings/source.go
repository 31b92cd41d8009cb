package settings

import (
	"cmp"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
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
	defaultLoopPosts = 30
	maxLoopPosts     = 100_000
	maxSourceName    = 64
	maxTokenFile     = 4 << 10
	maxKeyFile       = 16 << 10
	// quietFactor is how many intervals max_interval is, unless the file says so.
	quietFactor     = 10
	defaultFullRead = time.Hour
	minFullRead     = 10 * time.Minute
	maxLogin        = 100
	maxDigestAfter  = 1000
)

// CIKinds returns the kinds of results of CI that a source can read; the first two are read unless the file says otherwise.
func CIKinds() []string { return []string{"check_run", "status", "workflow_run"} }

// NoBranch as a source's branch means that no branch belongs to an item.
const NoBranch = "none"

// associations are the words of GitHub's author_association for those who can be asked for something: anybody can become a CONTRIBUTOR.
var associations = []string{"OWNER", "MEMBER", "COLLABORATOR"}

func (c *Poller) check(p *problems) {
	checkListen(p, c.Listen)
	checkCalled(p, "dispatcher", c.Dispatcher, layout.Dispatcher)
	c.TLS.check(p, true)
	p.add(IsRemote(c.Dispatcher) && !c.TLS.Files().On(), "dispatcher is another machine's address: set tls, so that it is known who answers there and who asks")
	checkRetention(p, "retention", c.Retention)
	p.add(c.Workers < 1 || c.Workers > maxWorkers, "workers is %d: it must be 1 to %d", c.Workers, maxWorkers)
	p.add(c.LoopPosts < 0 || c.LoopPosts > maxLoopPosts, "loop_posts is %d: it must be 0 (deliver all) to %d", c.LoopPosts, maxLoopPosts)
	p.add(c.Budget < 1 || c.Budget > maxBudget, "budget is %d: it must be 1 to %d", c.Budget, maxBudget)
	c.checkWebhook(p)
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
	s.MaxInterval = cmp.Or(s.MaxInterval, min(s.Interval*quietFactor, maxInterval))
	s.FullRead = cmp.Or(s.FullRead, defaultFullRead)
	if s.CI == nil {
		s.CI = CIKinds()[:2]
	}
	s.Branch = cmp.Or(s.Branch, defaultBranch)
	if s.Host == "" {
		s.Host, _ = HostOf(s.BaseURL) // a bad URL is told by check
	}
}

// check finds the mistakes of a source, and whether its token can be read; key is where it stands.
func (s *Source) check(p *problems, key string) {
	p.add(!validName(s.Name), "%s.name is %q: write a short name of a-z, 0-9, - and _, such as github", key, s.Name)
	p.add(s.Name == ledger.SourceManual, "%s.name is %q, which is the name for events by hand: choose another", key, s.Name)
	p.add(s.Kind != KindGitHub, "%s.kind is %q: write kind: github, the only kind there is", key, s.Kind)
	s.checkTriggers(p, key)
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
	for i, login := range s.Machines {
		p.add(strings.TrimSpace(login) == "" || strings.ContainsAny(login, " @\t\n"),
			"%s.machines[%d] is %q: write a bot's login as GitHub shows it, such as ci-helper[bot]", key, i, login)
	}
	for i, a := range s.Associations {
		p.add(!slices.Contains(associations, strings.ToUpper(a)), "%s.associations[%d] is %q: write one of %s", key, i, a,
			strings.Join(associations, ", "))
	}
	p.add(s.Branch != NoBranch && strings.Count(s.Branch, "{number}") != 1,
		"%s.branch is %q: write the name of an item's branch with {number} in it once, such as muxpost/{number}, or none", key, s.Branch)
	least := minInterval
	if isLoopback(s.BaseURL) {
		least = minLocalInterval
	}
	p.add(s.Interval < least || s.Interval > maxInterval, "%s.interval is %v: it must be %v to %v", key, s.Interval, least, maxInterval)
	p.add(s.MaxInterval < s.Interval || s.MaxInterval > maxInterval, "%s.max_interval is %v: it must be interval (%v) to %v", key, s.MaxInterval,
		s.Interval, maxInterval)
	p.add(s.FullRead < minFullRead || s.FullRead > 7*maxInterval, "%s.full_read is %v: it must be %v to %v", key, s.FullRead, minFullRead,
		7*maxInterval)
	p.add(s.Notices && !s.Authenticated(), "%s.notices is on and there is no token_file: writing to issues needs a token, or an app", key)
	p.add(s.Reactions && !s.Authenticated(), "%s.reactions is on and there is no token_file: writing to issues needs a token, or an app", key)
	_, err := s.Token()
	p.add(err != nil, "%s.token_file: %v", key, err)
	if s.App != nil {
		p.add(s.TokenFile != "", "%s has token_file and app: keep one of them", key)
		s.App.check(p, key+".app")
	}
}

// checkTriggers finds the mistakes of what puts issues under our care, and of what else is read.
func (s *Source) checkTriggers(p *problems, key string) {
	login, self, ok := s.MentionOf()
	p.add(!ok, "%s.mention: write the login of the account whose mentions count, without @, or true for the source's own", key)
	p.add(self && !s.Authenticated(), "%s.mention is true and there is no token_file: without one there is no account to mention", key)
	p.add(strings.TrimSpace(s.Label) == "" && s.Assignee == "" && login == "" && !self && ok && len(s.TeamLabels) == 0,
		"%s.label is empty: write the label that puts an issue under muxpost's care, such as agent, or set assignee, mention or team_labels", key)
	s.checkTeamLabels(p, key)
	p.add(s.Assignee != "" && !validLogin(s.Assignee), "%s.assignee is %q: write a GitHub login, without @", key, s.Assignee)
	kinds := CIKinds()
	for i, kind := range s.CI {
		p.add(!slices.Contains(kinds, kind), "%s.ci[%d] is %q: write one of %s, or ci: [] for none", key, i, kind, strings.Join(kinds, ", "))
		p.add(slices.Index(s.CI, kind) < i, "%s.ci[%d] is %q, which is listed twice", key, i, kind)
	}
}

func (s *Source) checkTeamLabels(p *problems, key string) {
	seen := map[string]bool{}
	for _, label := range sortedKeys(s.TeamLabels) {
		at := fmt.Sprintf("%s.team_labels: %q", key, label)
		p.add(strings.TrimSpace(label) == "" || strings.Contains(label, ","), "%s is no label: name one label, without a comma", at)
		p.add(strings.EqualFold(label, s.Label), "%s is label, too: choose another, so that an issue can have an agent and no team", at)
		p.add(seen[strings.ToLower(label)], "%s is there twice: GitHub takes no notice of the case of a label", at)
		seen[strings.ToLower(label)] = true
		team := s.TeamLabels[label]
		p.add(team != "" && !validName(team), "%s has the team %q: write the name of an entry of dispatcher.teams, or nothing for the first that matches", at, team)
	}
	p.add(len(seen) > 0 && !s.Authenticated(), "%s.team_labels is set and there is no token_file: GitHub says only with one who put a label on an issue", key)
}

func (a *App) check(p *problems, key string) {
	_, err := a.AppID()
	p.add(err != nil, "%s.id: %v", key, err)
	p.add(a.InstallationID < 0, "%s.installation_id is %d: write the number at the end of the installation's address, or leave it out", key, a.InstallationID)
	_, err = a.PrivateKey()
	p.add(err != nil, "%s.private_key_file: %v", key, err)
}

// Authenticated reports whether the source is read with a credential.
func (s *Source) Authenticated() bool { return s.TokenFile != "" || s.App != nil }

// ReadsPulls reports whether pull requests are read, which they are unless the file says otherwise.
func (s *Source) ReadsPulls() bool { return s.Pulls == nil || *s.Pulls }

// MentionOf returns whose mentions put an issue under our care: an account's, or self, the source's own. It is not ok for a value that is
// neither a login nor a truth value.
func (s *Source) MentionOf() (login string, self, ok bool) {
	switch v := s.Mention.(type) {
	case nil:
		return "", false, true
	case bool:
		return "", v, true
	case string:
		return v, false, validLogin(v)
	}
	return "", false, false
}

// validLogin takes a person's login and an app's, which ends in [bot].
func validLogin(login string) bool {
	name := strings.TrimSuffix(login, "[bot]")
	return name != "" && len(name) <= maxLogin && strings.Trim(strings.ToLower(name), "abcdefghijklmnopqrstuvwxyz0123456789-_") == ""
}

// AppID returns the App's id or client id. The error is text for the person who wrote the file.
func (a *App) AppID() (string, error) {
	switch v := a.ID.(type) {
	case int:
		if v > 0 {
			return strconv.Itoa(v), nil
		}
	case string:
		if v != "" && len(v) <= maxLogin && strings.Trim(strings.ToLower(v), "abcdefghijklmnopqrstuvwxyz0123456789._-") == "" {
			return v, nil
		}
	}
	return "", errors.New("write the App's id, a number, or its client id; both are on the App's page")
}

// handedOver is below which systemd puts the credentials of services, each where that service alone gets at it.
const handedOver = "/run/credentials/"

// PrivateKey reads the App's key from its file, which must be its owner's alone. The error is text for the person who made the file, and
// never holds what stands in it.
func (a *App) PrivateKey() (string, error) {
	path := a.PrivateKeyFile
	if path == "" {
		return "", errors.New("it is not set: name the .pem file that GitHub gave when the key was made")
	}
	others := os.FileMode(0o077)
	if strings.HasPrefix(path, handedOver) {
		others = 0o037 // systemd lets the service in by an access list, which shows as a right of root's group
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("there is no file %s: put the .pem file there that GitHub gave when the key was made, and chmod 600 it", path)
	case err != nil:
		return "", fmt.Errorf("cannot read it: %w", err)
	case !info.Mode().IsRegular() || info.Size() > maxKeyFile:
		return "", fmt.Errorf("%s is not a small regular file: it should hold one private key and nothing else", path)
	case info.Mode().Perm()&others != 0:
		return "", fmt.Errorf("others on this machine can read %s: run chmod 600 on it, and consider making a new key", path)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("cannot read it: %w", err)
	}
	block, _ := pem.Decode(data)
	if block == nil || !strings.HasSuffix(block.Type, "PRIVATE KEY") {
		return "", fmt.Errorf("%s does not hold a private key in PEM, as GitHub gives it", path)
	}
	return string(data), nil
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
func (s *Source) Token() (string, error) { return readToken(s.TokenFile) }

// readToken reads a file that holds one token.
func readToken(path string) (string, error) {
	data, err := readSecret(path, "a token")
	if err != nil || path == "" {
		return "", err
	}
	token := strings.TrimSpace(data)
	if token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fmt.Errorf("%s should hold one token on one line, and does not", path)
	}
	return token, nil
}

// readSecret reads a small file that not everybody on the machine may read. No path is no text; what names what should be in it. The
// error is text for the person who made the file, and holds nothing of it.
func readSecret(path, what string) (string, error) {
	if path == "" {
		return "", nil
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("there is no file %s: create it with %s in it and chmod 600", path, what)
	case err != nil:
		return "", fmt.Errorf("cannot read it: %w", err)
	case !info.Mode().IsRegular() || info.Size() > maxTokenFile:
		return "", fmt.Errorf("%s is not a small regular file: it should hold %s and nothing else", path, what)
	case info.Mode().Perm()&0o004 != 0:
		return "", fmt.Errorf("everybody on this machine can read %s: run chmod 600 on it, and consider %s known", path, what)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("cannot read it: %w", err)
	}
	return string(data), nil
}
