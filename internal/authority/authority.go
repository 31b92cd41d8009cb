// Package authority issues the certificates by which the parties of an installation know one another across machines, and keeps a
// list of what it issued. It is a directory: the authority's certificate, its key, and the list.
//
// What it may sign is bounded by its own certificate: names below spiffe://muxpost and no further authority. It revokes nothing:
// certificates end soon, and that is what there is in place of a list of revoked ones. Who may have one is for others to decide.
package authority

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/identity"
	"muxpost.dev/muxpost/internal/inherit"
)

const (
	// Lifetime is how long an authority lasts.
	Lifetime = 10 * 365 * 24 * time.Hour
	// DefaultTerm is how long a certificate lasts of which nobody says how long.
	DefaultTerm = 30 * 24 * time.Hour
	// MinTerm is the least that may be asked for.
	MinTerm = time.Minute
	// MaxTerm is the most: there is no revoking, so that a lost key counts until its certificate ends.
	MaxTerm = 366 * 24 * time.Hour
	// skew is how much the clocks of two machines may differ.
	skew = 5 * time.Minute
)

// The files of the directory.
const (
	certFile = "ca.pem"
	keyFile  = "ca.key"
	listFile = "issued.jsonl"
)

// Authority signs certificates.
type Authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// Issued is one certificate that was issued.
type Issued struct {
	Name   identity.ID `json:"name"`
	Serial string      `json:"serial"`
	Begins time.Time   `json:"begins"`
	Ends   time.Time   `json:"ends"`
}

// Certificate is a certificate with its key; both are PEM.
type Certificate struct {
	Issued
	Cert, Key []byte
}

// CertFile is the authority's certificate in its directory.
func CertFile(dir string) string { return filepath.Join(dir, certFile) }

// Init makes an authority in a directory, which has none yet.
func Init(dir string, now time.Time) (*Authority, error) {
	for _, name := range []string{keyFile, certFile} {
		path := filepath.Join(dir, name)
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			return nil, fault.Newf(fault.AlreadyExists, "", "there is an authority already: %s", path).
				WithRemedy("muxpost ca show lists what it issued; every certificate would have to be replaced with another authority, so none is overwritten")
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fault.Wrap(fault.Internal, "", "a key cannot be made", err)
	}
	template := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: "muxpost " + now.UTC().Format(time.DateOnly)},
		NotBefore: now.Add(-skew), NotAfter: now.Add(Lifetime),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign,
		// A certificate of another name is worth nothing, even if somebody has this one sign it.
		PermittedDNSDomainsCritical: true, PermittedURIDomains: []string{identity.Domain},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, fault.Wrap(fault.Internal, "", "the authority cannot be made", err)
	}
	encoded, err := encodeKey(key)
	if err != nil {
		return nil, err
	}
	if err := inherit.MkdirAll(dir, 0o700); err != nil {
		return nil, fault.Wrap(fault.Invalid, fault.ReasonStorage, "the directory of the authority cannot be made", err)
	}
	// The key first: a certificate without its key would pass for an authority.
	if err := create(filepath.Join(dir, keyFile), encoded, 0o600); err != nil {
		return nil, err
	}
	if err := create(filepath.Join(dir, certFile), encodeCert(der), 0o644); err != nil {
		return nil, err
	}
	return Open(dir)
}

// Open reads the authority of a directory. None is fault.NotFound; a key that others can read is fault.Invalid.
func Open(dir string) (*Authority, error) {
	path := filepath.Join(dir, keyFile)
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fault.Newf(fault.NotFound, "", "there is no authority in %s", dir).WithRemedy("muxpost ca init makes one")
	case err == nil && info.Mode().Perm()&0o077 != 0:
		return nil, fault.Newf(fault.Invalid, fault.ReasonBadConfig, "the key %s can be read by others", path).WithRemedy("chmod 600 " + path)
	}
	unusable := func(err error) error {
		return fault.Wrap(fault.Invalid, fault.ReasonBadConfig, "the authority in "+dir+" cannot be used", err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, unusable(err)
	}
	a := &Authority{dir: dir}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, unusable(errors.New(keyFile + " holds no key"))
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, unusable(err)
	}
	var ok bool
	if a.key, ok = key.(*ecdsa.PrivateKey); !ok {
		return nil, unusable(errors.New(keyFile + " holds a key of another kind than ECDSA"))
	}
	if a.cert, err = Read(CertFile(dir)); err != nil {
		return nil, unusable(err)
	}
	if !a.key.PublicKey.Equal(a.cert.PublicKey) {
		return nil, unusable(errors.New(certFile + " belongs to another key"))
	}
	return a, nil
}

// Read reads the first certificate of a file.
func Read(path string) (*x509.Certificate, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, fmt.Errorf("%s holds no certificate", path)
	}
	return x509.ParseCertificate(block.Bytes)
}

// Ends is when the authority ends, and everything that it issued with it.
func (a *Authority) Ends() time.Time { return a.cert.NotAfter }

// Validity is how long the authority lasts; it has no name.
func (a *Authority) Validity() identity.Validity {
	return identity.Validity{Begins: a.cert.NotBefore, Ends: a.cert.NotAfter}
}

// PEM is the authority's certificate, for others to trust.
func (a *Authority) PEM() []byte { return encodeCert(a.cert.Raw) }

// named is what may stand in a name.
var named = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// Name returns the name of a party: service dispatcher or poller, host NAME, operator NAME. Anything else is fault.Invalid.
func Name(kind, name string) (identity.ID, error) {
	id := identity.ID(kind + "/" + name)
	switch kind {
	case "service":
		if id != identity.Dispatcher && id != identity.Poller {
			return "", fault.Newf(fault.Invalid, fault.ReasonBadArgument, "%q is no service that has a certificate", name).
				WithRemedy("write dispatcher or poller; a tmuxd has its host's: host NAME")
		}
		return id, nil
	case "host", "operator":
		if !named.MatchString(name) {
			return "", fault.Newf(fault.Invalid, fault.ReasonBadArgument, "%q cannot be a name", name).
				WithRemedy("use letters, digits and . _ - after the first, at most 63")
		}
		return id, nil
	}
	return "", fault.Newf(fault.Invalid, fault.ReasonBadArgument, "%q is no kind of party", kind).WithRemedy("write service, host or operator")
}

// Order is what a certificate is to say.
type Order struct {
	Name identity.ID
	// Term is how long it lasts; DefaultTerm when 0. It never lasts longer than the authority.
	Term time.Duration
	// Addresses are names and addresses by which clients that know nothing of ours find the party, such as curl.
	Addresses []string
}

// Issue makes a key and a certificate.
func (a *Authority) Issue(o Order, now time.Time) (Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Certificate{}, fault.Wrap(fault.Internal, "", "a key cannot be made", err)
	}
	out, err := a.sign(o, &key.PublicKey, now)
	if err != nil {
		return out, err
	}
	out.Key, err = encodeKey(key)
	return out, err
}

// sign makes the certificate of a key, which is on the list before anybody has it.
func (a *Authority) sign(o Order, public any, now time.Time) (out Certificate, err error) {
	if o.Term == 0 {
		o.Term = DefaultTerm
	}
	if o.Term < MinTerm || o.Term > MaxTerm {
		return out, fault.Newf(fault.Invalid, fault.ReasonBadArgument, "a certificate cannot last %v", o.Term).
			WithRemedy(fmt.Sprintf("choose from %v to %d days", MinTerm, MaxTerm/(24*time.Hour)))
	}
	ends := now.Add(o.Term)
	if ends.After(a.cert.NotAfter) {
		ends = a.cert.NotAfter
	}
	if !ends.After(now) {
		return out, fault.Newf(fault.Conflict, "", "the authority ended at %s", a.cert.NotAfter.Format(time.RFC3339)).
			WithRemedy("make another one: move its directory away, muxpost ca init, and issue every certificate again")
	}
	uri, err := url.Parse(o.Name.URI())
	if err != nil {
		return out, fault.Wrap(fault.Invalid, fault.ReasonBadArgument, "the name cannot stand in a certificate", err)
	}
	template := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: string(o.Name)}, NotBefore: now.Add(-skew), NotAfter: ends, URIs: []*url.URL{uri},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, address := range o.Addresses {
		if ip := net.ParseIP(address); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, address)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, public, a.key)
	if err != nil {
		return out, fault.Wrap(fault.Invalid, fault.ReasonBadArgument, "the certificate cannot be made", err)
	}
	out.Issued = Issued{Name: o.Name, Serial: fmt.Sprintf("%x", template.SerialNumber), Begins: now.UTC(), Ends: ends.UTC()}
	out.Cert = encodeCert(der)
	return out, a.note(out.Issued)
}

// note adds a certificate to the list.
func (a *Authority) note(i Issued) (err error) {
	defer func() {
		if err != nil {
			err = fault.Wrap(fault.Unavailable, fault.ReasonStorage, "what is issued cannot be written down, so nothing is", err)
		}
	}()
	line, err := json.Marshal(i)
	if err != nil {
		return err
	}
	f, err := openList(filepath.Join(a.dir, listFile))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := f.Write(append(line, '\n')); err != nil {
		return err
	}
	return f.Sync()
}

// List returns what was issued, the oldest first. A line that a crash cut short is of a certificate that nobody got.
func (a *Authority) List() ([]Issued, error) {
	text, err := os.ReadFile(filepath.Join(a.dir, listFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fault.Wrap(fault.Unavailable, fault.ReasonStorage, "the list of what was issued cannot be read", err)
	}
	return parseList(text), nil
}

func serial() *big.Int {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it does not fail
	b[0] &= 0x7f           // the number is positive, and has 16 bytes at most
	return new(big.Int).SetBytes(b[:])
}

func encodeCert(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fault.Wrap(fault.Internal, "", "a key cannot be written", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}
