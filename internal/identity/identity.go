// Package identity says who is at the other end of a connection between machines: a certificate of one authority, whose name is a URI such as
// spiffe://muxpost/host/east or spiffe://muxpost/service/dispatcher. Both ends show one. Addresses and host names say nothing.
//
// The files are looked at again at each handshake, so that a certificate can be renewed without a restart. The package issues none
// (internal/authority does).
package identity

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"muxpost.dev/muxpost/core/fault"
)

// Domain is the part of every name that says whose it is.
const Domain = "muxpost"

// scheme begins every name.
const scheme = "spiffe://" + Domain + "/"

// ID is a name without its scheme: "host/east", "service/dispatcher", "operator/ann".
type ID string

// The names of services.
const (
	Dispatcher ID = "service/dispatcher"
	Poller     ID = "service/poller"
)

// Host is the name of a host.
func Host(name string) ID { return ID("host/" + name) }

// IsOperator reports whether it is a person's.
func (id ID) IsOperator() bool { return strings.HasPrefix(string(id), "operator/") }

// HostName is the name of a host; false where it is another party's.
func (id ID) HostName() (string, bool) { return strings.CutPrefix(string(id), "host/") }

// IsService reports whether it is a service's.
func (id ID) IsService() bool { return id == Dispatcher || id == Poller }

// URI is the name as it stands in a certificate.
func (id ID) URI() string { return scheme + string(id) }

// Files are our own certificate with its key, and the authority's. A client may have the authority's alone: it then knows who answers, and has
// to say in another way who it is itself.
type Files struct {
	Cert, Key, CA string
}

// Server returns the configuration of a server that lets in whom allow names. A client without a certificate of the authority is refused.
// Files that cannot be used are fault.Invalid.
func (f Files) Server(allow func(ID) bool) (*tls.Config, error) {
	l := &loader{files: f}
	if m, err := l.load(); err != nil {
		return nil, err
	} else if m.cert.Leaf == nil {
		return nil, fault.New(fault.Invalid, fault.ReasonBadConfig, "a server needs a certificate and its key")
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		ClientAuth: tls.RequireAnyClientCert,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			m, err := l.load()
			return m.cert, err
		},
		VerifyConnection: func(s tls.ConnectionState) error { return l.verify(s, x509.ExtKeyUsageClientAuth, allow) },
	}, nil
}

// OpenServer is Server, and lets in clients that show no certificate as well: they have to prove in another way who they are. One that is shown
// has to be the authority's all the same. It shows the authority's certificate beside its own, for clients that know no more than how to
// recognise that (Pinned).
func (f Files) OpenServer(allow func(ID) bool) (*tls.Config, error) {
	config, err := f.Server(allow)
	if err != nil {
		return nil, err
	}
	own := config.GetCertificate
	config.GetCertificate = func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		cert, err := own(hello)
		if err != nil {
			return nil, err
		}
		with := *cert
		if text, err := os.ReadFile(f.CA); err == nil { // else others do without it
			if block, _ := pem.Decode(text); block != nil {
				with.Certificate = append(slices.Clone(with.Certificate), block.Bytes)
			}
		}
		return &with, nil
	}
	verify := config.VerifyConnection
	config.ClientAuth = tls.RequestClientCert
	config.VerifyConnection = func(s tls.ConnectionState) error {
		if len(s.PeerCertificates) == 0 {
			return nil
		}
		return verify(s)
	}
	return config, nil
}

// Client returns the configuration of a client that speaks to whom allow names, and to nobody else.
func (f Files) Client(allow func(ID) bool) (*tls.Config, error) {
	l := &loader{files: f}
	if _, err := l.load(); err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		// Who answers is told by the name in its certificate, which VerifyConnection checks with the whole chain, and not by an address.
		InsecureSkipVerify: true, //nolint:gosec // see above
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			m, err := l.load()
			return m.cert, err
		},
		VerifyConnection: func(s tls.ConnectionState) error { return l.verify(s, x509.ExtKeyUsageServerAuth, allow) },
	}, nil
}

// Pinned returns the configuration of a client that knows nothing but the SHA-256 of the authority's certificate, and speaks to whom allow names.
func Pinned(fingerprint []byte, allow func(ID) bool) *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS13,
		InsecureSkipVerify: true, //nolint:gosec // as in Client
		VerifyConnection: func(s tls.ConnectionState) error {
			for _, cert := range s.PeerCertificates {
				if sum := sha256.Sum256(cert.Raw); bytes.Equal(sum[:], fingerprint) {
					roots := x509.NewCertPool()
					roots.AddCert(cert)
					return verify(roots, s, x509.ExtKeyUsageServerAuth, allow)
				}
			}
			return errors.New("who answers is not of the authority that was named")
		},
	}
}

// Of returns the name of the verified party of a connection; false when there is none.
func Of(s *tls.ConnectionState) (ID, bool) {
	if s == nil || len(s.PeerCertificates) == 0 {
		return "", false
	}
	return NameOf(s.PeerCertificates[0])
}

// NameOf returns the name in a certificate, whoever signed it; false when there is none.
func NameOf(cert *x509.Certificate) (ID, bool) {
	if len(cert.URIs) != 1 {
		return "", false
	}
	name, ok := strings.CutPrefix(cert.URIs[0].String(), scheme)
	return ID(name), ok && name != ""
}

// FormerKey is where the key of the present certificate is while both are being replaced.
func (f Files) FormerKey() string { return f.Key + ".former" }

// Validity is how long a certificate lasts.
type Validity struct {
	Name         ID
	Begins, Ends time.Time
}

// Look reads our own certificate; without one the answer is empty. Files that cannot be used are fault.Invalid.
func (f Files) Look() (Validity, error) { return f.Looks()() }

// Looks returns what looks again and again, as a service does that goes on with what it read last where the files cannot be used any more: then
// that is the answer, and no error.
func (f Files) Looks() func() (Validity, error) {
	l := &loader{files: f}
	return func() (Validity, error) {
		m, err := l.load()
		if err != nil || m.cert.Leaf == nil {
			return Validity{}, err
		}
		name, _ := NameOf(m.cert.Leaf)
		return Validity{name, m.cert.Leaf.NotBefore, m.cert.Leaf.NotAfter}, nil
	}
}

// Due reports whether it is time for another one: a third of its life is left, or less.
func (v Validity) Due(now time.Time) bool { return v.Ends.Sub(now) <= v.Ends.Sub(v.Begins)/3 }

// material is what the files hold.
type material struct {
	cert  *tls.Certificate
	roots *x509.CertPool
	// stamp tells files that have changed.
	stamp string
}

// loader reads the files again once they have changed. Where they cannot be used, what was read last goes on.
type loader struct {
	files Files
	mu    sync.Mutex
	last  *material
}

func (l *loader) load() (material, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	stamp := ""
	for _, path := range []string{l.files.Cert, l.files.Key, l.files.CA} {
		if info, err := os.Stat(path); err == nil {
			stamp += fmt.Sprint(info.ModTime().UnixNano(), info.Size(), ";")
		}
	}
	if l.last != nil && l.last.stamp == stamp {
		return *l.last, nil
	}
	m, err := l.read()
	switch {
	case err == nil:
		m.stamp = stamp
		l.last = &m
	case l.last != nil: // half of a renewal, say
		return *l.last, nil
	}
	return m, err
}

func (l *loader) read() (m material, err error) {
	m.cert = &tls.Certificate{}
	if l.files.Cert != "" || l.files.Key != "" {
		if m.cert, err = l.own(); err != nil {
			return m, err
		}
	}
	data, err := os.ReadFile(l.files.CA)
	if err != nil {
		return m, fault.Wrap(fault.Invalid, fault.ReasonBadConfig, "the certificate of the authority cannot be read", err)
	}
	m.roots = x509.NewCertPool()
	if !m.roots.AppendCertsFromPEM(data) {
		return m, fault.Newf(fault.Invalid, fault.ReasonBadConfig, "%s holds no certificate", l.files.CA)
	}
	return m, nil
}

// own reads our own certificate and its key.
func (l *loader) own() (*tls.Certificate, error) {
	if info, err := os.Stat(l.files.Key); err == nil && info.Mode().Perm()&0o077 != 0 {
		return nil, fault.Newf(fault.Invalid, fault.ReasonBadConfig, "the key %s can be read by others", l.files.Key).WithRemedy("chmod 600 " + l.files.Key)
	}
	cert, err := tls.LoadX509KeyPair(l.files.Cert, l.files.Key)
	if err != nil {
		if former, formerErr := tls.LoadX509KeyPair(l.files.Cert, l.files.FormerKey()); formerErr == nil {
			cert, err = former, nil // a renewal that was stopped before it came to the certificate
		}
	}
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, fault.ReasonBadConfig, "the certificate "+l.files.Cert+" and its key cannot be used", err)
	}
	if _, ok := NameOf(cert.Leaf); !ok {
		return nil, fault.Newf(fault.Invalid, fault.ReasonBadConfig, "the certificate %s has no name of ours", l.files.Cert).
			WithRemedy("its one URI must be such as " + Host("NAME").URI() + " or " + Dispatcher.URI())
	}
	return &cert, nil
}

// verify checks who is at the other end.
func (l *loader) verify(s tls.ConnectionState, use x509.ExtKeyUsage, allow func(ID) bool) error {
	m, err := l.load()
	if err != nil {
		return err
	}
	return verify(m.roots, s, use, allow)
}

func verify(roots *x509.CertPool, s tls.ConnectionState, use x509.ExtKeyUsage, allow func(ID) bool) error {
	if len(s.PeerCertificates) == 0 {
		return errors.New("no certificate was shown")
	}
	options := x509.VerifyOptions{Roots: roots, Intermediates: x509.NewCertPool(), CurrentTime: time.Now(), KeyUsages: []x509.ExtKeyUsage{use}}
	for _, cert := range s.PeerCertificates[1:] {
		options.Intermediates.AddCert(cert)
	}
	if _, err := s.PeerCertificates[0].Verify(options); err != nil {
		return err
	}
	name, ok := NameOf(s.PeerCertificates[0])
	if !ok || !allow(name) {
		return fmt.Errorf("%q is not let in here", name)
	}
	return nil
}
