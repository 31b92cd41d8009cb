// Package settings is what the operator's command knows of one installation: its data directory, and the one configuration file
// that all services read. It reads the file with the services' own loader, writes the first one, and says which database is meant.
//
// The services own the keys and what they mean. The structs here repeat the keys, so that a mistake is found before a service is
// started and the address of each is known; a test holds them equal to the services'. It starts and calls nothing.
package settings

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/db"
	"muxpost.dev/muxpost/internal/conf"
	"muxpost.dev/muxpost/internal/layout"
)

// Settings are the settings of one installation.
type Settings struct {
	// DataDir is absolute.
	DataDir layout.DataDir
	// File is the configuration file, absolute; Found says whether it is there.
	File  string
	Found bool

	Tmuxd      Tmuxd
	Dispatcher Dispatcher
	Poller     Poller

	getenv func(string) string
}

// Tmuxd is the section of tmuxd.
type Tmuxd struct {
	Listen        string             `conf:"listen"`
	Host          string             `conf:"host"`
	StateDir      string             `conf:"state_dir"`
	SocketDir     string             `conf:"socket_dir"`
	Tmux          string             `conf:"tmux"`
	Exec          string             `conf:"exec"`
	Roots         []string           `conf:"roots"`
	Directory     string             `conf:"directory"`
	MakeDirectory bool               `conf:"make_directory"`
	Width         int                `conf:"width"`
	Height        int                `conf:"height"`
	LogLevel      slog.Level         `conf:"log_level"`
	Harnesses     map[string]Harness `conf:"harnesses"`
}

// Harness is one entry of tmuxd's table.
type Harness struct {
	Binary           string            `conf:"binary"`
	Fresh            []string          `conf:"fresh"`
	Resume           []string          `conf:"resume"`
	PromptArgs       []string          `conf:"prompt_args"`
	ConversationID   string            `conf:"conversation_id"`
	Env              map[string]string `conf:"env"`
	PassEnv          []string          `conf:"pass_env"`
	Prompt           string            `conf:"prompt"`
	Placeholder      string            `conf:"placeholder"`
	Footer           string            `conf:"footer"`
	Fold             string            `conf:"fold"`
	Dialogs          []string          `conf:"dialogs"`
	DialogTitles     []string          `conf:"dialog_titles"`
	BusyTitle        string            `conf:"busy_title"`
	Busy             string            `conf:"busy"`
	WhenBusy         string            `conf:"when_busy"`
	NoBracketedPaste bool              `conf:"no_bracketed_paste"`
	Settle           time.Duration     `conf:"settle"`
	Survival         time.Duration     `conf:"survival"`
	Transcript       string            `conf:"transcript"`
	Taken            string            `conf:"taken"`
}

// Dispatcher is the section of the dispatcher.
type Dispatcher struct {
	Listen          string     `conf:"listen"`
	DataDir         string     `conf:"data_dir"`
	DatabaseURL     string     `conf:"database_url"`
	DatabaseURLFile string     `conf:"database_url_file"`
	Host            Host       `conf:"host"`
	Harness         string     `conf:"harness"`
	Resume          bool       `conf:"resume"`
	LogLevel        slog.Level `conf:"log_level"`
}

// Host is the host that the dispatcher calls.
type Host struct {
	Name    string `conf:"name"`
	Address string `conf:"address"`
}

// Poller is the section of the poller.
type Poller struct {
	Listen          string     `conf:"listen"`
	DataDir         string     `conf:"data_dir"`
	DatabaseURL     string     `conf:"database_url"`
	DatabaseURLFile string     `conf:"database_url_file"`
	Dispatcher      string     `conf:"dispatcher"`
	Workers         int        `conf:"workers"`
	Budget          int        `conf:"budget"`
	LogLevel        slog.Level `conf:"log_level"`
	Sources         []Source   `conf:"sources"`
}

// Source is one source of events.
type Source struct {
	Name         string        `conf:"name"`
	Kind         string        `conf:"kind"`
	BaseURL      string        `conf:"base_url"`
	Host         string        `conf:"host"`
	TokenFile    string        `conf:"token_file"`
	Repositories []string      `conf:"repositories"`
	Label        string        `conf:"label"`
	Authors      []string      `conf:"authors"`
	TrustLabel   bool          `conf:"trust_label"`
	Interval     time.Duration `conf:"interval"`
}

// Where says how an installation is found: by flags, by the environment, or by who asks.
type Where struct {
	// File and DataDir are what the command line says; empty for nothing.
	File, DataDir string
	// Root says whether root asks.
	Root bool
	// Home is the home directory; empty when there is none.
	Home   string
	Getenv func(string) string
}

// Load finds the installation and reads its configuration. A file that is not there, and that nobody named, leaves the defaults.
// Mistakes in the file are fault.Invalid, all of them in one error, and what could be read is returned with it.
func Load(w Where) (Settings, error) {
	dir := first(w.DataDir, w.Getenv(layout.DataDirVariable), layout.DefaultDataDir(w.Root, w.Home))
	if dir == "" {
		return Settings{}, fault.New(fault.Invalid, fault.ReasonBadConfig, "there is no home directory to keep data in").
			WithRemedy("name a directory with --data-dir or " + layout.DataDirVariable)
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return Settings{}, fault.Wrap(fault.Invalid, fault.ReasonBadConfig, "the data directory has no absolute path", err)
	}
	s := Settings{DataDir: layout.DataDir(dir), getenv: w.Getenv}
	named := first(w.File, w.Getenv(layout.ConfigVariable))
	if s.File, err = filepath.Abs(first(named, s.DataDir.Config())); err != nil {
		return s, fault.Wrap(fault.Invalid, fault.ReasonBadConfig, "the configuration file has no absolute path", err)
	}
	s.defaults()
	switch _, err := os.Stat(s.File); {
	case errors.Is(err, fs.ErrNotExist) && named == "":
		return s, nil
	case errors.Is(err, fs.ErrNotExist):
		return s, fault.Newf(fault.Invalid, fault.ReasonBadConfig, "there is no configuration file at %s", s.File).
			WithRemedy("create it, or leave out --config and " + layout.ConfigVariable + " to use " + s.DataDir.Config())
	}
	s.Found = true
	return s, s.read()
}

// defaults fills in what a file may leave out.
func (s *Settings) defaults() {
	s.Tmuxd = Tmuxd{Listen: layout.Tmuxd.Listen(), Tmux: "tmux", StateDir: s.DataDir.TmuxdState(), MakeDirectory: true,
		Directory: filepath.Join(s.DataDir.Work(), "{target}"), Width: 200, Height: 50}
	s.Tmuxd.Host, _ = os.Hostname()
	s.Dispatcher = Dispatcher{Listen: layout.Dispatcher.Listen()}
	s.Dispatcher.Host.Address = layout.Tmuxd.Listen()
	s.Poller = Poller{Listen: layout.Poller.Listen(), Dispatcher: layout.Dispatcher.Listen()}
	s.settle()
}

// settle derives what follows from other settings.
func (s *Settings) settle() {
	if s.Tmuxd.SocketDir == "" {
		s.Tmuxd.SocketDir = s.Tmuxd.StateDir
	}
}

// read reads the three sections, and keeps the mistakes of each once.
func (s *Settings) read() error {
	s.Tmuxd.SocketDir = ""
	defer s.settle()
	into := map[layout.Service]any{layout.Tmuxd: &s.Tmuxd, layout.Dispatcher: &s.Dispatcher, layout.Poller: &s.Poller}
	var texts []string
	for _, service := range layout.Services() {
		err := conf.Load(s.File, layout.Sections(), string(service), into[service])
		if err == nil {
			continue
		}
		// What is wrong at the top of the file is told by each section.
		for line := range strings.SplitSeq(err.Error(), "\n") {
			if !contains(texts, line) {
				texts = append(texts, line)
			}
		}
	}
	if len(texts) == 0 {
		return nil
	}
	return fault.New(fault.Invalid, fault.ReasonBadConfig, strings.Join(texts, "\n"))
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

// Database says which database the services use.
type Database struct {
	// URL is empty when the database is the local cluster of the data directory.
	URL string
	// From says where the URL came from, for people.
	From string
	// InFile is true when the services read it from the configuration file themselves.
	InFile bool
}

// Local reports whether it is the local cluster.
func (d Database) Local() bool { return d.URL == "" }

// Database returns the database that the configuration, or else the environment, names. Dispatcher and poller must agree: one
// that is named for only one of them, or two that differ, are fault.Invalid.
func (s *Settings) Database() (Database, error) {
	dispatcher, err := s.url("dispatcher", s.Dispatcher.DatabaseURL, s.Dispatcher.DatabaseURLFile)
	if err != nil {
		return Database{}, err
	}
	poller, err := s.url("poller", s.Poller.DatabaseURL, s.Poller.DatabaseURLFile)
	if err != nil {
		return Database{}, err
	}
	fromEnv := strings.TrimSpace(s.getenv(layout.DatabaseURLVariable))
	switch {
	case dispatcher == "" && poller == "" && fromEnv == "":
		return Database{}, nil
	case dispatcher == "" && poller == "":
		return Database{URL: fromEnv, From: "the variable " + layout.DatabaseURLVariable}, nil
	case dispatcher == poller:
		return Database{URL: dispatcher, From: s.File, InFile: true}, nil
	case dispatcher == "" || poller == "":
		return Database{}, fault.Newf(fault.Invalid, fault.ReasonBadConfig,
			"%s names a database for one of dispatcher and poller, and both need the same", s.File).
			WithRemedy("set database_url_file in both sections, or in neither to use a local database")
	}
	return Database{}, fault.Newf(fault.Invalid, fault.ReasonBadConfig,
		"%s names different databases for dispatcher and poller, and both need the same", s.File)
}

func (s *Settings) url(section, url, file string) (string, error) {
	if url == "" && file == "" {
		return "", nil
	}
	text, err := db.LoadURL(url, s.Beside(file))
	if err != nil {
		return "", fault.Newf(fault.Invalid, fault.ReasonBadConfig, "%s: section %s: %v", s.File, section, err)
	}
	return text, nil
}

// Beside returns the path of a file that the configuration names: a relative one is meant from the configuration's directory.
func (s *Settings) Beside(file string) string {
	if file == "" || filepath.IsAbs(file) {
		return file
	}
	return filepath.Join(filepath.Dir(s.File), file)
}

// Mismatch is an address at which a service calls another one that listens elsewhere.
type Mismatch struct{ Key, Calls, Other, Listens string }

// Mismatches returns the addresses that do not fit together within this installation.
func (s *Settings) Mismatches() []Mismatch {
	var out []Mismatch
	if s.Dispatcher.Host.Address != s.Tmuxd.Listen {
		out = append(out, Mismatch{"dispatcher.host.address", s.Dispatcher.Host.Address, "tmuxd.listen", s.Tmuxd.Listen})
	}
	if s.Poller.Dispatcher != s.Dispatcher.Listen {
		out = append(out, Mismatch{"poller.dispatcher", s.Poller.Dispatcher, "dispatcher.listen", s.Dispatcher.Listen})
	}
	return out
}

func first(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}

func contains(lines []string, line string) bool {
	for _, l := range lines {
		if l == line {
			return true
		}
	}
	return false
}
