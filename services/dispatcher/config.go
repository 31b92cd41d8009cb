package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/db"
	"muxpost.dev/muxpost/internal/conf"
)

const usage = `muxpost-dispatcher decides what each delivery needs and has it done on the host of its session.

Usage: muxpost-dispatcher [--config FILE] [--data-dir DIR]

  --config FILE    configuration (YAML); the section dispatcher is read
  --data-dir DIR   directory for span files; none are written without one
  --version        print the version and exit
  --help           print this and exit

Keys of the section dispatcher, with their defaults:
  harness            none      harness for first sessions that name none; required
  listen             127.0.0.1:7412   "host:port" on a loopback address, or "unix:/path"
  data_dir           none      as --data-dir
  database_url       none      postgres://user:password@host:5432/muxpost
  database_url_file  none      file that holds the URL, instead of database_url
  host.address       127.0.0.1:7411   where tmuxd answers
  host.name          none      the name that tmuxd must give; none takes the name that it gives
  resume             true      whether a session that ended comes back with its conversation
  log_level          info      debug, info, warn or error

Environment, which goes before the file, as flags go before both:
  MUXPOST_DATABASE_URL         instead of database_url and database_url_file
  MUXPOST_DATABASE_URL_FILE    the same, as a file
  MUXPOST_LISTEN               instead of listen
  MUXPOST_HOST_ADDRESS         instead of host.address
  OTEL_EXPORTER_OTLP_ENDPOINT  sends spans to an OpenTelemetry collector
`

// config is the section dispatcher of the configuration file, with what flags and the environment put over it.
type config struct {
	Listen          string     `conf:"listen"`
	DataDir         string     `conf:"data_dir"`
	DatabaseURL     string     `conf:"database_url"`
	DatabaseURLFile string     `conf:"database_url_file"`
	Host            hostConfig `conf:"host"`
	Harness         string     `conf:"harness"`
	Resume          bool       `conf:"resume"`
	LogLevel        slog.Level `conf:"log_level"`
}

// hostConfig says which host there is.
type hostConfig struct {
	Name    string `conf:"name"`
	Address string `conf:"address"`
}

// options are the flags.
type options struct {
	config, dataDir string
	help, version   bool
}

// parseFlags reads the command line; a mistake is fault.Invalid.
func parseFlags(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("muxpost-dispatcher", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&o.config, "config", "", "")
	flags.StringVar(&o.dataDir, "data-dir", "", "")
	flags.BoolVar(&o.version, "version", false, "")
	err := flags.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return options{help: true}, nil
	}
	if err == nil && flags.NArg() > 0 {
		err = fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if err != nil {
		return o, fault.New(fault.Invalid, fault.ReasonBadArgument, err.Error()).WithRemedy("muxpost-dispatcher --help lists the flags")
	}
	return o, nil
}

// loadConfig reads the file, if one is named, and puts the environment and the flags over it. The database's URL is read from its
// file, so that DatabaseURL is what to use.
func loadConfig(o options, getenv func(string) string) (config, error) {
	c := config{Listen: "127.0.0.1:7412", Host: hostConfig{Address: "127.0.0.1:7411"}, Resume: true}
	if o.config != "" {
		if err := conf.Load(o.config, []string{"tmuxd", "dispatcher", "poller"}, "dispatcher", &c); err != nil {
			return c, err
		}
	}
	url, file := getenv("MUXPOST_DATABASE_URL"), getenv("MUXPOST_DATABASE_URL_FILE")
	if url != "" || file != "" {
		c.DatabaseURL, c.DatabaseURLFile = url, file
	}
	over(&c.Listen, getenv("MUXPOST_LISTEN"))
	over(&c.Host.Address, getenv("MUXPOST_HOST_ADDRESS"))
	over(&c.DataDir, o.dataDir)
	if c.Harness == "" {
		return c, fault.New(fault.Invalid, fault.ReasonBadConfig, "dispatcher.harness is not set: nobody says what to start for a first session").
			WithRemedy("set it to one of the harnesses in tmuxd's table, such as claude, and pass the file with --config")
	}
	if c.DataDir != "" {
		var err error
		if c.DataDir, err = filepath.Abs(c.DataDir); err != nil {
			return c, fault.Wrap(fault.Invalid, fault.ReasonBadConfig, "the data directory cannot be named", err)
		}
	}
	var err error
	c.DatabaseURL, err = db.LoadURL(c.DatabaseURL, c.DatabaseURLFile)
	return c, err
}

func over(value *string, with string) {
	if with != "" {
		*value = with
	}
}
