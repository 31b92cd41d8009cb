// Package layout says where the parts of one installation are: the names of the services and of their sections in the
// configuration file, the addresses they have unless the file says otherwise, and what lies where below the data directory.
//
// It opens nothing and knows no key of the configuration; those belong to the package settings.
package layout

import "path/filepath"

// Service is the name of a service, and of its section in the configuration file.
type Service string

// The services.
const (
	Tmuxd      Service = "tmuxd"
	Dispatcher Service = "dispatcher"
	Poller     Service = "poller"
)

// Services returns the services in the order in which they are started; they are stopped the other way round.
func Services() []Service { return []Service{Tmuxd, Dispatcher, Poller} }

// CommandSection is the section of the operator's command.
const CommandSection = "command"

// Sections returns the names that may stand at the top of the configuration file.
func Sections() []string {
	names := make([]string, 0, len(Services())+1)
	for _, s := range Services() {
		names = append(names, string(s))
	}
	return append(names, CommandSection)
}

// Binary returns the name of the service's program.
func (s Service) Binary() string { return "muxpost-" + string(s) }

// TCP returns the address that is suggested for the service where its socket will not do.
func (s Service) TCP() string {
	switch s {
	case Tmuxd:
		return "127.0.0.1:7411"
	case Dispatcher:
		return "127.0.0.1:7412"
	case Poller:
		return "127.0.0.1:7413"
	}
	return ""
}

// The environment variables that all programs read, for what neither a flag nor the configuration says.
const (
	// ConfigVariable names the configuration file.
	ConfigVariable = "MUXPOST_CONFIG"
	// DataDirVariable names the data directory.
	DataDirVariable = "MUXPOST_DATA_DIR"
	// DatabaseURLVariable holds the database's URL where the configuration names none.
	DatabaseURLVariable = "MUXPOST_DATABASE_URL"
	// TokenFileVariable names the file with the operator's token where the configuration names none.
	TokenFileVariable = "MUXPOST_TOKEN_FILE" //nolint:gosec // a name, and no token
	// CredentialsVariable names the directory in which systemd hands a service its credentials (LoadCredential=).
	CredentialsVariable = "CREDENTIALS_DIRECTORY"
	// LauncherVariable names the socket of tmuxd's launcher where the configuration names none.
	LauncherVariable = "MUXPOST_LAUNCHER"
)

// Database is the name of the database in a cluster of our own.
const Database = "muxpost"

// DefaultDataDir returns the data directory of a user: a system directory for root, one below the home directory otherwise.
// Without a home directory it is empty.
func DefaultDataDir(root bool, home string) string {
	switch {
	case root:
		return "/var/lib/muxpost"
	case home == "":
		return ""
	}
	return filepath.Join(home, ".local", "share", "muxpost")
}

// DataDir is a data directory.
type DataDir string

func (d DataDir) join(parts ...string) string {
	return filepath.Join(append([]string{string(d)}, parts...)...)
}

// Config is the configuration file, where no other is named.
func (d DataDir) Config() string { return d.join("muxpost.yaml") }

// Postgres is the directory of the local database cluster.
func (d DataDir) Postgres() string { return d.join("postgres") }

// LogDir holds the logs of services that were started in the background.
func (d DataDir) LogDir() string { return d.join("log") }

// Log is a service's log.
func (d DataDir) Log(s Service) string { return d.join("log", string(s)+".log") }

// RunDir holds a file for each service that was started in the background.
func (d DataDir) RunDir() string { return d.join("run") }

// Address returns where the service listens unless its section says otherwise: a socket that only its owner may connect to. On a
// loopback port every user of the machine could type into the agents.
func (d DataDir) Address(s Service) string { return "unix:" + d.join("run", string(s)+".sock") }

// PIDFile says which process a service runs in.
func (d DataDir) PIDFile(s Service) string { return d.join("run", string(s)+".json") }

// Traces holds the span files.
func (d DataDir) Traces() string { return d.join("traces") }

// TmuxdState is the state directory of tmuxd, where its section names no other. The sockets of the tmux servers lie there too.
func (d DataDir) TmuxdState() string { return d.join("tmuxd") }

// CA is the directory of the authority that issues certificates, where this installation has one.
func (d DataDir) CA() string { return d.join("ca") }

// Certificates holds the certificates that were issued here, with their keys, in a directory for each party.
func (d DataDir) Certificates() string { return d.join("certificates") }

// Work holds the working directories of agents, where the section of tmuxd names no others.
func (d DataDir) Work() string { return d.join("work") }
