// Package identitytest has an authority that issues certificates for one test.
package identitytest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Files are a certificate, its key, and the authority's certificate.
type Files struct{ Cert, Key, CA string }

// Authority signs certificates.
type Authority struct {
	// File is its own certificate.
	File string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewAuthority returns an authority that nobody else trusts.
func NewAuthority(t testing.TB) Authority {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "ca.pem")
	write(t, file, "CERTIFICATE", der)
	return Authority{file, cert, key}
}

// Issue makes a certificate for a name, such as "host/a"; an empty one has none.
func (a Authority) Issue(t testing.TB, name string) Files {
	t.Helper()
	return a.IssueUntil(t, name, time.Now().Add(time.Hour))
}

// IssueUntil is Issue for a certificate that ends at a time.
func (a Authority) IssueUntil(t testing.TB, name string, until time.Time) Files {
	t.Helper()
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), NotBefore: time.Now().Add(-time.Hour), NotAfter: until,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	if name != "" {
		template.URIs = []*url.URL{{Scheme: "spiffe", Host: "muxpost", Path: "/" + name}}
	}
	key := newKey(t)
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	out := Files{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem"), CA: a.File}
	write(t, out.Cert, "CERTIFICATE", der)
	write(t, out.Key, "EC PRIVATE KEY", encoded)
	return out
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func write(t testing.TB, path, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}
