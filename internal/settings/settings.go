// Package settings is the configuration of one installation: the keys that each service reads, their defaults, what may stand in
// them, and where the file and the data directory are. The services and the operator's command all read it here, so that what one
// takes the other does not refuse.
//
// It reads the configuration file and the files that it names, and nothing else. It starts, calls and connects to nothing, and
// does not know what the services do with what it says.
package settings

import (
	"cmp"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/ledger"
	"muxpost.dev/muxpost/internal/conf"
	"muxpost.dev/muxpost/internal/layout"
)

const (
	defaultRetainAge   = 7 * 24 * time.Hour
	defaultRetainCount = 50
)

// Settings are the settings of one installation. Paths in them are absolute, except where a program is named for the PATH.
type Settings struct {
	// DataDir is absolute.
	DataDir layout.DataDir
	// File is the configuration file, absolute; Found says whether it is there.
	File  string
	Found bool

	Tmuxd      Tmuxd
	Dispatcher Dispatcher
	Poller     Poller
	Command    Command

	getenv func(string) string
}

// Where says how an installation is found: by flags, by the environment, or by who asks.
type Where struct {
	// File and DataDir are what the command line says; empty for nothing.
	File, DataDir string
	// Root says whether root asks.
	Root bool
	// Home is the home directory; empty when there is none.
	Home string
	// BinDir holds the programs of this release.
	BinDir string
	Getenv func(string) string
}

// Here returns the surroundings of this process, without flags.
func Here() Where {
	w := Where{Root: os.Geteuid() == 0, Getenv: os.Getenv}
	w.Home, _ = os.UserHomeDir() // without one there is no default, which Load says
	if self, err := os.Executable(); err == nil {
		w.BinDir = filepath.Dir(self)
	}
	return w
}

// Load finds the installation and reads the sections of the services, of all when none is named, over their defaults. The order is:
// flag, then file, then environment. A file that is not there, and that nobody named, leaves the defaults.
//
// Keys that nobody knows and values of a wrong type are fault.Invalid, all of them in one error, and what could be read is returned
// with it. Whether the values make sense says Check.
func Load(w Where, services ...layout.Service) (Settings, error) {
	s := Settings{getenv: w.Getenv}
	s.defaults()
	named := cmp.Or(w.File, w.Getenv(layout.ConfigVariable))
	given := cmp.Or(w.DataDir, w.Getenv(layout.DataDirVariable), layout.DefaultDataDir(w.Root, w.Home))
	var readErr error
	if named != "" || given != "" {
		var err error
		if s.File, err = filepath.Abs(cmp.Or(named, layout.DataDir(given).Config())); err != nil {
			return s, fault.Wrap(fault.Invalid, fault.ReasonBadConfig, "the configuration file has no absolute path", err)
		}
		readErr = s.open(named != "", services)
	}
	inFile, dirErr := s.dataDirOfFile()
	if w.DataDir != "" {
		inFile, dirErr = w.DataDir, nil
	}
	dir := cmp.Or(inFile, given)
	if dir == "" {
		return s, errors.Join(readErr, fault.New(fault.Invalid, fault.ReasonBadConfig, "there is no home directory to keep data in").
			WithRemedy("name a directory with --data-dir, with data_dir in the configuration or in "+layout.DataDirVariable))
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return s, fault.Wrap(fault.Invalid, fault.ReasonBadConfig, "the data directory has no absolute path", err)
	}
	s.DataDir = layout.DataDir(dir)
	s.derive(w.BinDir)
	return s, cmp.Or(readErr, dirErr)
}

// LoadService is Load and Check for one service, which goes no further with an error.
func LoadService(w Where, service layout.Service) (Settings, error) {
	s, err := Load(w, service)
	if err == nil {
		err = s.Check(service)
	}
	return s, err
}

// defaults fills in what a file may leave out and what does not depend on anything else in it.
func (s *Settings) defaults() {
	s.Tmuxd = Tmuxd{Tmux: "tmux", MakeDirectory: true, TreesMinFreeMiB: defaultMinFree, Width: 200, Height: 50, Retain: Retain{Age: defaultRetainAge, Count: defaultRetainCount, Journal: longRetention},
		Tasks:     Tasks{Limit: 2 * time.Hour, MaxLimit: 24 * time.Hour, MaxRunning: 64, KeepFor: 7 * 24 * time.Hour, Keep: 500},
		Harnesses: BuiltinHarnesses()}
	if s.Tmuxd.Host, _ = os.Hostname(); s.Tmuxd.Host == "" {
		s.Tmuxd.Host = "localhost"
	}
	s.Dispatcher = Dispatcher{Resume: true, FirstSpawn: FirstSpawnAny, Retention: defaultRetention, UndeliveredRetention: longRetention,
		Breaker: Breaker{Deaths: 5, Within: 10 * time.Minute}, Idle: Idle{After: 7 * 24 * time.Hour}}
	s.Poller = Poller{Workers: 8, Budget: ledger.DefaultBudget, LoopPosts: defaultLoopPosts, Retention: defaultRetention, DigestAfter: 5,
		CoalesceChecks: true, Webhook: Webhook{MaxBodyMiB: defaultMaxBody}}
}

// derive fills in what follows from the data directory and from other settings, and makes paths absolute.
func (s *Settings) derive(binDir string) {
	t := &s.Tmuxd
	t.Listen = cmp.Or(t.Listen, s.DataDir.Address(layout.Tmuxd))
	s.Dispatcher.Listen = cmp.Or(s.Dispatcher.Listen, s.DataDir.Address(layout.Dispatcher))
	s.Dispatcher.CADir = cmp.Or(s.beside(s.Dispatcher.CADir), s.DataDir.CA())
	s.Dispatcher.EventsRetention = cmp.Or(s.Dispatcher.EventsRetention, s.Dispatcher.Retention)
	if !s.Dispatcher.Listed() {
		s.Dispatcher.Host.Address = cmp.Or(s.Dispatcher.Host.Address, s.DataDir.Address(layout.Tmuxd))
	}
	s.Poller.Listen = cmp.Or(s.Poller.Listen, s.DataDir.Address(layout.Poller))
	s.Poller.Dispatcher = cmp.Or(s.Poller.Dispatcher, s.DataDir.Address(layout.Dispatcher))
	t.StateDir = cmp.Or(t.StateDir, s.DataDir.TmuxdState())
	t.SocketDir = cmp.Or(t.SocketDir, t.StateDir)
	t.Launcher = cmp.Or(t.Launcher, s.getenv(layout.LauncherVariable))
	t.Directory = cmp.Or(t.Directory, filepath.Join(s.DataDir.Work(), "{target}"))
	if len(t.Roots) == 0 {
		t.Roots = []string{s.DataDir.Work()}
	}
	for i, tree := range t.Trees {
		t.Trees[i] = tree.withDefaults()
	}
	t.Exec = cmp.Or(s.beside(t.Exec), filepath.Join(binDir, "muxpost-exec"))
	for name, h := range t.Harnesses {
		t.Harnesses[name] = h.withDefaults()
	}
	s.Command.TokenFile = cmp.Or(s.beside(s.Command.TokenFile), s.getenv(layout.TokenFileVariable))
	for _, file := range []*string{&s.Command.TLS.CertFile, &s.Command.TLS.KeyFile, &s.Command.TLS.CAFile} {
		*file = s.beside(*file)
	}
	s.Dispatcher.DatabaseURLFile = s.secret(s.Dispatcher.DatabaseURLFile)
	s.Poller.DatabaseURLFile = s.secret(s.Poller.DatabaseURLFile)
	s.Poller.Webhook.SecretFile = s.secret(s.Poller.Webhook.SecretFile)
	s.Poller.Templates = s.beside(s.Poller.Templates)
	for i := range s.Poller.Sources {
		source := &s.Poller.Sources[i]
		source.WebhookSecretFile = s.secret(source.WebhookSecretFile)
		if source.Webhook {
			source.WebhookSecretFile = cmp.Or(source.WebhookSecretFile, s.Poller.Webhook.SecretFile)
		}
		source.TokenFile = s.secret(source.TokenFile)
		if source.App != nil {
			source.App.PrivateKeyFile = s.secret(source.App.PrivateKeyFile)
		}
		source.derive()
	}
}

// open reads the file if it is there. One that was named must be.
func (s *Settings) open(named bool, services []layout.Service) error {
	switch _, err := os.Stat(s.File); {
	case errors.Is(err, fs.ErrNotExist) && !named:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return fault.Newf(fault.Invalid, fault.ReasonBadConfig, "there is no configuration file at %s", s.File).
			WithRemedy("create it, or leave out --config and " + layout.ConfigVariable + " to use muxpost.yaml in the data directory")
	}
	s.Found = true
	return s.read(services)
}

// read reads every section, and keeps the mistakes of the wanted ones, each once. The others are read for what all have in common.
func (s *Settings) read(services []layout.Service) error {
	into := map[string]any{string(layout.Tmuxd): &s.Tmuxd, string(layout.Dispatcher): &s.Dispatcher, string(layout.Poller): &s.Poller,
		layout.CommandSection: &s.Command}
	var texts []string
	for _, section := range layout.Sections() {
		err := conf.Load(s.File, layout.Sections(), section, into[section])
		if err == nil || len(services) > 0 && !slices.Contains(services, layout.Service(section)) {
			continue
		}
		// What is wrong at the top of the file is told by each section.
		for line := range strings.SplitSeq(err.Error(), "\n") {
			if !slices.Contains(texts, line) {
				texts = append(texts, line)
			}
		}
	}
	if len(texts) == 0 {
		return nil
	}
	return fault.New(fault.Invalid, fault.ReasonBadConfig, strings.Join(texts, "\n"))
}

// dataDirOfFile returns the data directory that the file names, if it does. One installation has one, whichever section names it.
func (s *Settings) dataDirOfFile() (string, error) {
	dir, by := "", ""
	for _, c := range []struct{ key, dir string }{
		{"tmuxd.data_dir", s.Tmuxd.DataDir}, {"dispatcher.data_dir", s.Dispatcher.DataDir}, {"poller.data_dir", s.Poller.DataDir},
	} {
		switch named := s.beside(c.dir); {
		case named == "":
		case dir == "":
			dir, by = named, c.key
		case filepath.Clean(dir) != filepath.Clean(named):
			return dir, fault.Newf(fault.Invalid, fault.ReasonBadConfig, "%s: %s is %s and %s is %s, and one installation has one data directory",
				s.File, by, dir, c.key, named).WithRemedy("write the same in both, or in one of them alone")
		}
	}
	return dir, nil
}

// beside returns the path of a file that the configuration names: a relative one begins where the configuration is.
func (s *Settings) beside(file string) string {
	if file == "" || filepath.IsAbs(file) {
		return file
	}
	return filepath.Join(filepath.Dir(s.File), file)
}

// secret is beside for a file that holds a secret: where the service manager has handed over a credential of its base name, that counts.
func (s *Settings) secret(file string) string {
	file = s.beside(file)
	if dir := s.getenv(layout.CredentialsVariable); file != "" && dir != "" {
		given := filepath.Join(dir, filepath.Base(file))
		if _, err := os.Stat(given); err == nil {
			return given
		}
	}
	return file
}

// Address returns where a service listens.
func (s *Settings) Address(service layout.Service) string {
	switch service {
	case layout.Tmuxd:
		return s.Tmuxd.Listen
	case layout.Dispatcher:
		return s.Dispatcher.Listen
	case layout.Poller:
		return s.Poller.Listen
	}
	return ""
}

// Here reports whether a service is meant to run from this installation. On a machine that joined as a host there is tmuxd alone, and where other
// hosts are listed tmuxd is on those.
func (s *Settings) Here(service layout.Service) bool {
	joined := s.Found && s.Dispatcher.Harness == "" && s.Tmuxd.TLS.Files().On()
	if service == layout.Tmuxd {
		return joined || !s.Dispatcher.Listed() || slices.ContainsFunc(s.Dispatcher.Hosts, func(h Host) bool { return h.Address == s.Tmuxd.Listen })
	}
	return !joined
}

// HarnessNames returns the names of the harnesses, sorted.
func (s *Settings) HarnessNames() []string { return slices.Sorted(maps.Keys(s.Tmuxd.Harnesses)) }

// StandsIn reports whether events of a source that is no test of somebody's own would be told to the bundled stand-in for an agent. It is
// likely meant otherwise, and a work item keeps the harness that it was started with.
func (s *Settings) StandsIn() bool {
	return s.Dispatcher.Harness == StandIn && !s.Dispatcher.Shadow &&
		slices.ContainsFunc(s.Poller.Sources, func(source Source) bool { return !isLoopback(source.BaseURL) })
}

// Mismatch is an address at which a service calls another one that listens elsewhere.
type Mismatch struct{ Key, Calls, Other, Listens string }

// Mismatches returns the addresses that do not fit together within this installation.
func (s *Settings) Mismatches() []Mismatch {
	var out []Mismatch
	if !s.Dispatcher.Listed() && s.Dispatcher.Host.Address != s.Tmuxd.Listen {
		out = append(out, Mismatch{"dispatcher.host.address", s.Dispatcher.Host.Address, "tmuxd.listen", s.Tmuxd.Listen})
	}
	if s.Poller.Dispatcher != s.Dispatcher.Listen && s.Poller.Dispatcher != s.Dispatcher.TLS.Listen && !IsRemote(s.Poller.Dispatcher) {
		out = append(out, Mismatch{"poller.dispatcher", s.Poller.Dispatcher, "dispatcher.listen", s.Dispatcher.Listen})
	}
	return out
}
