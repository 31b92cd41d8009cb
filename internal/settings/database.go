package settings

import (
	"os"
	"strings"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/layout"
)

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
	dispatcher, err := s.urlOf(layout.Dispatcher)
	if err != nil {
		return Database{}, err
	}
	poller, err := s.urlOf(layout.Poller)
	if err != nil {
		return Database{}, err
	}
	fromEnv := s.urlOfEnvironment()
	switch {
	case dispatcher == "" && poller == "" && fromEnv == "":
		return Database{}, nil
	case dispatcher == "" && poller == "":
		return Database{URL: fromEnv, From: "the variable " + layout.DatabaseURLVariable}, nil
	case dispatcher == poller:
		return Database{URL: dispatcher, From: s.File, InFile: true}, nil
	case dispatcher == "" || poller == "":
		return Database{}, fault.New(fault.Invalid, fault.ReasonBadConfig,
			"a database is named for one of dispatcher and poller, and both need the same").WithRemedy("set database_url_file in both sections, or in neither to use a local database")
	}
	return Database{}, fault.New(fault.Invalid, fault.ReasonBadConfig,
		"dispatcher.database_url and poller.database_url, or their files, name different databases, and both services need the same")
}

// DatabaseURL returns the URL of a service's database: what its section says, else what the environment says. None is fault.Invalid.
func (s *Settings) DatabaseURL(service layout.Service) (string, error) {
	url, err := s.urlOf(service)
	if err != nil || url != "" {
		return url, err
	}
	if url = s.urlOfEnvironment(); url == "" {
		return "", fault.New(fault.Invalid, fault.ReasonBadConfig, "no database URL is set").WithRemedy(
			"set " + string(service) + ".database_url_file to a file that holds one, such as postgres://user:password@host:5432/muxpost, or set " +
				layout.DatabaseURLVariable + "; muxpost up does so for a database of its own")
	}
	return url, nil
}

func (s *Settings) urlOfEnvironment() string {
	return strings.TrimSpace(s.getenv(layout.DatabaseURLVariable))
}

// urlOf returns the URL that a service's section names, or "".
func (s *Settings) urlOf(service layout.Service) (string, error) {
	url, file := s.Dispatcher.DatabaseURL, s.Dispatcher.DatabaseURLFile
	if service == layout.Poller {
		url, file = s.Poller.DatabaseURL, s.Poller.DatabaseURLFile
	}
	section := string(service)
	if url = strings.TrimSpace(url); url != "" && file != "" {
		return "", fault.Newf(fault.Invalid, fault.ReasonBadConfig, "%s.database_url and %s.database_url_file are both set", section, section).
			WithRemedy("keep one of them")
	}
	if file == "" {
		return url, nil
	}
	// The file keeps the password out of command lines and of the environment.
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fault.Wrap(fault.Invalid, fault.ReasonBadConfig, section+".database_url_file cannot be read", err).
			WithRemedy("create it with the URL in it and chmod 600, or correct its path")
	}
	if url = strings.TrimSpace(string(text)); url == "" {
		return "", fault.Newf(fault.Invalid, fault.ReasonBadConfig, "%s.database_url_file: %s should hold a database URL and is empty", section, file)
	}
	return url, nil
}
