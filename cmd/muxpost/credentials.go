package main

import (
	"strings"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/access"
	"muxpost.dev/muxpost/internal/identity"
	"muxpost.dev/muxpost/internal/layout"
	"muxpost.dev/muxpost/internal/rpc"
	"muxpost.dev/muxpost/internal/settings"
)

// options say how a service is called: how it is known, and with which token. A token goes only where nobody else hears it: into a socket of
// this user's, or to whoever has shown the certificate of the service. tmuxd knows no tokens.
func (s *services) options(service layout.Service) (rpc.DialOptions, error) {
	address, out := s.Called(service), rpc.DialOptions{}
	if service == layout.Tmuxd {
		return out, nil
	}
	socket := strings.HasPrefix(address, "unix:")
	if s.Command.TLS.CAFile != "" && !socket && address != s.Address(service) {
		tls := s.Command.TLS
		files := identity.Files{Cert: tls.CertFile, Key: tls.KeyFile, CA: tls.CAFile}
		var err error
		if out.TLS, err = files.Client(func(id identity.ID) bool { return id == identity.ID("service/"+string(service)) }); err != nil {
			return out, err
		}
	}
	if settings.IsRemote(address) && out.TLS == nil {
		return out, fault.Newf(fault.Invalid, fault.ReasonBadConfig, "%s is another machine's address, and nothing says who should answer there", address).
			WithRemedy("set command." + string(service) + " and command.tls.ca_file: muxpost ca trust prints that file where the authority is")
	}
	token, err := s.Command.Token()
	if err != nil {
		return out, fault.Wrap(fault.Invalid, fault.ReasonBadConfig, "the token for "+string(service)+" cannot be read", err)
	}
	if token != "" && (socket || out.TLS != nil) {
		out.Credentials = access.Bearer(token)
	}
	return out, nil
}
