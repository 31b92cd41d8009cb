package settings

import (
	"net"
	"net/netip"
	"path/filepath"
	"strings"
)

// On reports whether there is a certificate.
func (t TLS) On() bool { return t != TLS{} }

// check finds the mistakes; key is where they stand.
func (t TLS) check(p *problems, key string) {
	for _, f := range []struct{ name, path string }{{"cert_file", t.CertFile}, {"key_file", t.KeyFile}, {"ca_file", t.CAFile}} {
		p.add(f.path == "", "%s.%s is not set: a certificate, its key and the authority's certificate go together", key, f.name)
		p.add(f.path != "" && !filepath.IsAbs(f.path), "%s.%s: %q is not an absolute path", key, f.name, f.path)
	}
}

// check finds the mistakes. Where a service has a certificate to call others with, the address may be left out.
func (t ServerTLS) check(p *problems, calls bool) {
	if t == (ServerTLS{}) {
		return
	}
	t.Files().check(p, "tls")
	if calls && t.Listen == "" {
		return
	}
	err := checkAddress(t.Listen, true)
	p.add(err != nil || strings.HasPrefix(t.Listen, unixScheme), "tls.listen is %q: write an address such as 0.0.0.0:7413 or 10.0.0.5:7413", t.Listen)
}

// IsRemote reports whether an address may be another machine's, so that whoever is called there has to show a certificate.
func IsRemote(address string) bool {
	if strings.HasPrefix(address, unixScheme) {
		return false
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil || host == "localhost" {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return err != nil || !ip.Unmap().IsLoopback()
}
