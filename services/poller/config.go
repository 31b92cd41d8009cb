package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/ledger"
	"muxpost.dev/muxpost/core/workitem"
	"muxpost.dev/muxpost/db"
	"muxpost.dev/muxpost/internal/conf"
	"muxpost.dev/muxpost/internal/layout"
	"muxpost.dev/muxpost/services/poller/internal/github"
	"muxpost.dev/muxpost/services/poller/internal/poll"
)

const (
	section         = string(layout.Poller)
	defaultInterval = 30 * time.Second
	minInterval     = 5 * time.Second
	// minLocalInterval is for a server on this machine, which nobody else pays for.
	minLocalInterval = time.Second
	maxInterval      = 24 * time.Hour
	maxWorkers       = 256
	maxBudget        = 100
	maxSourceName    = 64
	maxTokenFile     = 4 << 10
)

// config is the section poller of the configuration file.
type config struct {
	// Listen is the address of the operator API: loopback, or unix:/path.
	Listen string `conf:"listen"`
	// DataDir is where traces are kept.
	DataDir string `conf:"data_dir"`
	// DatabaseURL and DatabaseURLFile are the database, or a file that holds its URL; MUXPOST_DATABASE_URL where neither is set.
	DatabaseURL     string `conf:"database_url"`
	DatabaseURLFile string `conf:"database_url_file"`
	// Dispatcher is its address.
	Dispatcher string `conf:"dispatcher"`
	// Workers is how many events are with the dispatcher at once.
	Workers int `conf:"workers"`
	// Budget is how many tries an event may spend.
	Budget   int            `conf:"budget"`
	LogLevel slog.Level     `conf:"log_level"`
	Sources  []sourceConfig `conf:"sources"`
}

// sourceConfig is one entry of poller.sources.
type sourceConfig struct {
	// Name is how the source is called in the ledger and in logs.
	Name string `conf:"name"`
	// Kind is github.
	Kind string `conf:"kind"`
	// BaseURL is the server's address; empty for github.com.
	BaseURL string `conf:"base_url"`
	// Host is the server's name in names of work items; what BaseURL says when empty.
	Host string `conf:"host"`
	// TokenFile holds the token. A token never stands in the configuration itself.
	TokenFile string `conf:"token_file"`
	// Repositories, as owner/repo.
	Repositories []string `conf:"repositories"`
	// Label puts an open issue under our care.
	Label string `conf:"label"`
	// Authors are the logins that may steer; nobody when empty.
	Authors []string `conf:"authors"`
	// TrustLabel lets the opening event of a labelled issue through whoever wrote it.
	TrustLabel bool `conf:"trust_label"`
	// Interval is how often the source is looked at.
	Interval time.Duration `conf:"interval"`

	token string
}

// loadConfig reads the file at path, fills in what it leaves out, and reads the files it names. An empty path means the file in
// the data directory, and defaults where there is none. Any mistake is fault.Invalid, and all mistakes of the sources are told at
// once.
func loadConfig(path, dataDir string) (config, error) {
	c := config{Listen: layout.Poller.Listen(), Dispatcher: layout.Dispatcher.Listen(), Workers: 8, Budget: ledger.DefaultBudget}
	path, err := findConfig(path, dataDir)
	if err != nil {
		return c, err
	}
	if path != "" {
		if err := conf.Load(path, layout.Sections(), section, &c); err != nil {
			return c, err
		}
	}
	beside := func(file string) string {
		if file == "" || filepath.IsAbs(file) {
			return file
		}
		return filepath.Join(filepath.Dir(path), file)
	}
	c.DatabaseURLFile = beside(c.DatabaseURLFile)
	if c.DatabaseURL == "" && c.DatabaseURLFile == "" {
		c.DatabaseURL = os.Getenv(layout.DatabaseURLVariable)
	}
	if c.DatabaseURL, err = db.LoadURL(c.DatabaseURL, c.DatabaseURLFile); err != nil {
		return c, inSection(err)
	}
	if c.DataDir, err = chooseDataDir(cmp.Or(dataDir, c.DataDir)); err != nil {
		return c, err
	}
	var p problems
	p.add(c.Listen == "", "listen is empty: write an address such as %s", layout.Poller.Listen())
	p.add(c.Dispatcher == "", "dispatcher is empty: write its address, such as %s", layout.Dispatcher.Listen())
	p.add(c.Workers < 1 || c.Workers > maxWorkers, "workers is %d: it must be 1 to %d", c.Workers, maxWorkers)
	p.add(c.Budget < 1 || c.Budget > maxBudget, "budget is %d: it must be 1 to %d", c.Budget, maxBudget)
	for i := range c.Sources {
		c.Sources[i].TokenFile = beside(c.Sources[i].TokenFile)
		c.Sources[i].check(&p, fmt.Sprintf("sources[%d]", i))
	}
	checkTogether(&p, c.Sources)
	return c, p.fault()
}

// findConfig returns the file that was named, else the one in the data directory if it is there, else "".
func findConfig(path, dataDir string) (string, error) {
	if path != "" {
		return path, nil
	}
	dir, err := chooseDataDir(dataDir)
	if err != nil {
		return "", err
	}
	path = layout.DataDir(dir).Config()
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return path, nil
}

// inSection names the keys of a database URL, which db does not know.
func inSection(err error) error {
	return fault.Newf(fault.Invalid, fault.ReasonBadConfig, "%v; the keys are %s.database_url and %s.database_url_file, or set %s",
		err, section, section, layout.DatabaseURLVariable)
}

// chooseDataDir returns the directory that was named, or the user's own.
func chooseDataDir(dir string) (string, error) {
	if dir == "" {
		home, _ := os.UserHomeDir() // without one there is no default, which is said below
		dir = layout.DefaultDataDir(os.Geteuid() == 0, home)
	}
	if dir == "" {
		return "", fault.New(fault.Invalid, fault.ReasonBadConfig, "there is no home directory to keep data in").
			WithRemedy("set " + section + ".data_dir, --data-dir or " + layout.DataDirVariable)
	}
	return filepath.Abs(dir)
}

// problems collects mistakes.
type problems []string

func (p *problems) add(wrong bool, format string, args ...any) {
	if wrong {
		*p = append(*p, section+"."+fmt.Sprintf(format, args...))
	}
}

func (p problems) fault() error {
	if len(p) == 0 {
		return nil
	}
	return fault.New(fault.Invalid, fault.ReasonBadConfig, strings.Join(p, "\n"))
}

// check fills in what a source leaves out, reads its token, and finds its mistakes; key is where it stands.
func (s *sourceConfig) check(p *problems, key string) {
	p.add(!validName(s.Name), "%s.name is %q: write a short name of a-z, 0-9, - and _, such as github", key, s.Name)
	p.add(s.Name == poll.SourceManual, "%s.name is %q, which is the name for events by hand: choose another", key, s.Name)
	p.add(s.Kind != github.Provider, "%s.kind is %q: write kind: github, the only kind there is", key, s.Kind)
	p.add(strings.TrimSpace(s.Label) == "", "%s.label is empty: write the label that puts an issue under muxpost's care, such as agent", key)
	p.add(strings.Contains(s.Label, ","), "%s.label has a comma, which GitHub reads as two labels: name one label", key)
	host, err := github.DefaultHost(s.BaseURL)
	p.add(err != nil, "%s.base_url: %v", key, err)
	if s.Host == "" {
		s.Host = host
	}
	if err == nil {
		_, err = workitem.New(s.Host, "owner", "repo", "1")
		p.add(err != nil, "%s.host is %q, which cannot stand in the name of a work item: write a host name, such as github.example.com",
			key, s.Host)
	}
	p.add(len(s.Repositories) == 0, "%s.repositories is empty: list at least one, as owner/repo", key)
	for i, repository := range s.Repositories {
		_, _, err := github.SplitRepository("", repository)
		p.add(err != nil, "%s.repositories[%d] is %q: write it as owner/repo", key, i, repository)
	}
	for i, author := range s.Authors {
		p.add(strings.TrimSpace(author) == "" || strings.ContainsAny(author, " @\t\n"), "%s.authors[%d] is %q: write a GitHub login, without @",
			key, i, author)
	}
	s.Interval = cmp.Or(s.Interval, defaultInterval)
	least := minInterval
	if isLoopback(s.BaseURL) {
		least = minLocalInterval
	}
	p.add(s.Interval < least || s.Interval > maxInterval, "%s.interval is %v: it must be %v to %v", key, s.Interval, least, maxInterval)
	s.token, err = readToken(s.TokenFile)
	p.add(err != nil, "%s.token_file: %v", key, err)
}

// checkTogether finds what single sources cannot: names used twice, and repositories that two sources would both read.
func checkTogether(p *problems, sources []sourceConfig) {
	names, places := map[string]int{}, map[string]int{}
	for i, s := range sources {
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

// readToken reads a token from a file that not everybody on the machine may read. No file means no token.
func readToken(path string) (string, error) {
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
