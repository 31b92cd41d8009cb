package settings

import (
	"cmp"

	"muxpost.dev/muxpost/internal/layout"
)

// Command is the section of the operator's command, for services on other machines.
type Command struct {
	// Dispatcher and Poller are the addresses to call in the place of those at which the services of this installation listen.
	Dispatcher string `conf:"dispatcher"`
	Poller     string `conf:"poller"`
	// TokenFile holds the token that is sent. A token never stands in the configuration itself.
	TokenFile string `conf:"token_file"`
	// TLS is the authority that a service on another machine is known by. A certificate of our own is not needed.
	TLS TLS `conf:"tls"`
}

func (c *Command) check(p *problems) {
	for _, a := range []struct {
		key, address string
		whose        layout.Service
	}{{"command.dispatcher", c.Dispatcher, layout.Dispatcher}, {"command.poller", c.Poller, layout.Poller}} {
		if a.address == "" {
			continue
		}
		checkCalled(p, a.key, a.address, a.whose)
		p.add(IsRemote(a.address) && c.TLS.CAFile == "", "%s is another machine's: set command.tls.ca_file (muxpost ca trust prints it), so that it is known who answers", a.key)
	}
	p.add((c.TLS.CertFile == "") != (c.TLS.KeyFile == ""), "command.tls: cert_file and key_file go together")
	p.add(c.TLS.CertFile != "" && c.TLS.CAFile == "", "command.tls.ca_file is not set: it goes with cert_file and key_file")
	_, err := c.Token()
	p.add(err != nil, "command.token_file: %v", err)
}

// Token reads the token; none is empty. The error is text for the person who made the file.
func (c *Command) Token() (string, error) { return readToken(c.TokenFile) }

// Called returns where the operator's command calls a service.
func (s *Settings) Called(service layout.Service) string {
	switch service {
	case layout.Dispatcher:
		return cmp.Or(s.Command.Dispatcher, s.Dispatcher.Listen)
	case layout.Poller:
		return cmp.Or(s.Command.Poller, s.Poller.Listen)
	case layout.Tmuxd:
	}
	return s.Address(service)
}

// Remote returns where other machines reach a service; empty for nowhere.
func (s *Settings) Remote(service layout.Service) string {
	switch service {
	case layout.Tmuxd:
		return s.Tmuxd.TLS.Listen
	case layout.Dispatcher:
		return s.Dispatcher.TLS.Listen
	case layout.Poller:
		return s.Poller.TLS.Listen
	}
	return ""
}
